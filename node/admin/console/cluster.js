// Both nodes: state machines, terms, LSNs, lag over time, what a flip would lose, and flips.

import { get, post, put } from "./api.js";
import { Chart } from "./charts.js";
import { ask, bytes, confirmed, count, h, moment, num, rate, seconds, svg, table, toast } from "./dom.js";

const BOXES = { INIT: [60, 30], STARTUP: [180, 30], RUNNING: [300, 30], ENDING: [300, 110], WAITING: [180, 110] };
const ARROWS = [
  ["INIT", "STARTUP", "M100 30H138"], ["STARTUP", "RUNNING", "M220 30H258"], ["RUNNING", "ENDING", "M300 48V90"],
  ["ENDING", "WAITING", "M260 110H222"], ["WAITING", "STARTUP", "M170 92V50"], ["STARTUP", "WAITING", "M190 48V90"],
  ["STARTUP", "ENDING", "M214 48L272 91"],
];

// The role machine with the present state lit, and the way it came by.
export function machine(name, state, last) {
  const found = svg("svg", { viewBox: "0 0 360 140", class: "machine", role: "img", "aria-label": `${name} is ${state || "unknown"}` });
  for (const [from, to, path] of ARROWS) {
    const came = last && last.from_state === from && last.to_state === to;
    const [[x, y]] = [path.match(/(-?\d+)$/g)].map(() => end(path));
    found.append(svg("path", { d: path, class: came ? "arrow came" : "arrow" }),
      svg("path", { d: head(path, x, y), class: came ? "head came" : "head" }));
  }
  for (const [box, [x, y]] of Object.entries(BOXES)) {
    found.append(svg("g", { class: box === state ? "box lit" : "box", "data-state": box },
      svg("rect", { x: x - 40, y: y - 17, width: 80, height: 34, rx: 8 }),
      svg("text", { x, y: y + 4, "text-anchor": "middle" }, box)));
  }
  return found;
}

function points(path) {
  const at = [0, 0];
  const found = [];
  for (const [, kind, rest] of path.matchAll(/([MHVL])([-\d. ]+)/g)) {
    const numbers = rest.trim().split(" ").map(Number);
    if (kind === "H") at[0] = numbers[0];
    else if (kind === "V") at[1] = numbers[0];
    else [at[0], at[1]] = numbers;
    found.push([...at]);
  }
  return found;
}
const end = (path) => points(path).at(-1);
function head(path, x, y) {
  const [fx, fy] = points(path).at(-2);
  const angle = Math.atan2(y - fy, x - fx);
  const corner = (turn) => `${(x - 7 * Math.cos(angle + turn)).toFixed(1)} ${(y - 7 * Math.sin(angle + turn)).toFixed(1)}`;
  return `M${x} ${y}L${corner(0.5)}L${corner(-0.5)}Z`;
}

const fact = (label, ...value) => [h("dt", null, label), h("dd", null, value)];
const lagText = (lag) => (lag ? `${count(lag.records)} records, ${bytes(lag.bytes)}, ${seconds(lag.seconds)}` : "–");

export class ClusterView {
  constructor() {
    this.nodes = h("div", { class: "nodes" });
    this.outlook = h("section", { "aria-labelledby": "flips" });
    this.history = h("section", { "aria-labelledby": "transitions" });
    this.notice = h("p", { class: "bad", role: "alert", hidden: true });
    this.lag = new Chart("Replication lag, records", [], (v) => count(v === null ? v : Math.round(v)));
    this.rates = new Chart("Tasks per second", ["put", "taken", "done"], rate);
    this.samples = null;
    this.status = null;
    this.flip = null;
    this.element = h("div", null, h("h1", null, "Cluster"), this.notice, this.nodes,
      h("div", { class: "charts" }, this.lag.element, this.rates.element), this.outlook, this.history);
  }

  async refresh() {
    const [status, cluster, outlook] = await Promise.all([get("/v1/status"), get("/v1/cluster"), get("/v1/switchover")]);
    if (!this.samples) {
      this.samples = (await get("/v1/history", { seconds: 600 })).samples;
      this.draw();
    }
    this.status = status;
    this.cluster = cluster;
    this.notice.hidden = !cluster.conflict && !status.problem;
    this.notice.textContent = cluster.conflict ? `${cluster.writable.join(" and ")} both claim to be writable` : status.problem || "";
    document.title = `${status.name} ${status.state} · Tandem`;
    this.nodes.replaceChildren(this.here(status), ...status.peers.map((peer) => this.peer(peer)));
    this.showOutlook(outlook, status);
    this.showHistory(status);
    if (this.flip) this.flip.look(cluster);
  }

  news(kind, data) {
    if (this.flip) this.flip.news(kind, data);
    if (kind !== "sample" || !this.samples) return;
    this.samples.push(data);
    if (this.samples.length > 600) this.samples.shift();
    this.draw();
  }

  draw() {
    const at = this.samples.map((sample) => sample.at);
    const names = [...new Set(this.samples.flatMap((sample) => sample.peers.map((peer) => peer.name)))].slice(0, 4);
    const lags = names.map((name) => this.samples.map((sample) => sample.peers.find((p) => p.name === name)?.lag.records ?? null));
    this.lag.show(names, [at, ...lags]);
    this.rates.show(this.rates.labels, [at, ...["put_rate", "take_rate", "done_rate"].map((key) => this.samples.map((s) => s[key]))]);
  }

  here(status) {
    const last = status.transitions.at(-1);
    return h("section", { class: "card node", "aria-label": `Node ${status.name}`, "data-node": status.name },
      h("h2", null, status.name, " ", badge(status.writable ? "writable" : "read-only", status.writable), h("span", { class: "muted" }, " this node")),
      machine(status.name, status.state, last),
      h("dl", null,
        fact("State", h("b", { class: "state" }, status.state)),
        fact("Term", status.term ? `${status.term.number}${status.term.solo ? ", solo" : ""}, by ${status.term.node}` : "none"),
        fact("LSN", h("span", { class: "lsn" }, count(status.lsn))),
        fact("Committed, durable", `${count(status.commit_lsn)}, ${count(status.durable_lsn)}`),
        fact("Behind", status.lag ? lagText(status.lag) : "–"),
        fact("Log, acknowledged by", `${status.wal_mode}, ${status.ack}` + (status.promise === status.wal_mode ? "" : `; promised: ${status.promise}`)),
        fact("Connections, sessions", `${count(status.connections)}, ${count(status.sessions)}`),
        fact("Up for", seconds(status.uptime_seconds)),
        status.rescue_files ? fact("Rescue files", h("b", { class: "bad" }, count(status.rescue_files))) : null,
        status.ro_reason ? fact("Read-only because", status.ro_reason) : null),
      h("p", { class: "buttons" },
        h("button", { type: "button", onclick: () => this.snapshot() }, "Snapshot"),
        status.ack === "pair" && status.state === "RUNNING" && !status.solo
          ? h("button", { type: "button", onclick: () => this.solo() }, "Go solo") : null,
        status.state === "RUNNING"
          ? h("button", { type: "button", onclick: () => this.readOnly(status) }, "Make read-only")
          : h("button", { type: "button", onclick: () => this.promote(status) }, "Promote")));
  }

  peer(peer) {
    const name = peer.name || peer.address;
    return h("section", { class: "card node", "aria-label": `Node ${name}`, "data-node": name },
      h("h2", null, name, " ", peer.connected ? badge(peer.writable ? "writable" : "read-only", peer.writable) : badge("not connected", false, true)),
      machine(name, peer.connected ? peer.state : null, null),
      h("dl", null,
        fact("State", h("b", { class: "state" }, peer.connected ? peer.state : "unknown")),
        fact("Address", peer.address),
        fact("Term", count(peer.term)),
        fact("LSN", h("span", { class: "lsn" }, count(peer.lsn))),
        fact("Durable there", count(peer.durable_lsn)),
        fact(peer.role === "upstream" ? "This node is behind it" : "Behind", lagText(peer.lag)),
        fact("Heard from", peer.heard_seconds === null ? "never" : `${seconds(peer.heard_seconds)} ago`),
        peer.clock_offset_seconds === null ? null : fact("Clock differs by", seconds(peer.clock_offset_seconds)),
        peer.problem ? fact("Problem", h("span", { class: "bad" }, peer.problem)) : null));
  }

  showOutlook(outlook, status) {
    const rows = outlook.candidates.filter((one) => !one.writable).map((one) => {
      const plan = one.planned;
      const forced = one.forced;
      const lost = !forced ? "–" : forced.records === null ? "not known"
        : `${forced.known ? "" : "at least "}${count(forced.records)} records${forced.bytes === null ? "" : `, ${bytes(forced.bytes)}`}${forced.seconds === null ? "" : `, ${seconds(forced.seconds)}`}`;
      return [one.node,
        plan && plan.possible ? "loses nothing" : h("span", { class: "bad" }, plan ? plan.missing.join("; ") : "its name is not known yet"),
        h("span", { title: forced ? forced.detail : "" }, lost),
        h("button", { type: "button", class: "primary", disabled: !plan || !plan.possible,
          "aria-label": `Switch over to ${one.node}`, onclick: () => this.switchTo(one) }, "Switch over")];
    });
    // The button under a finger is not replaced while nothing has changed.
    const text = JSON.stringify([outlook, status.peers.length], (key, value) => (key === "seconds" ? null : value));
    if (text === this.outlookText) return;
    this.outlookText = text;
    const focused = this.outlook.contains(document.activeElement);
    this.outlook.replaceChildren(h("h2", { id: "flips" }, "A flip right now"),
      rows.length ? table("What making another node the master would mean",
        ["To", "Planned switch-over", "Forced, without the other node, loses at most", { cell: h("span", { class: "hidden" }, "Action") }], rows)
        : h("p", { class: "muted" }, status.peers.length ? "No other node can take over." : "This node has no peers: there is nothing to switch over to."));
    if (focused) this.outlook.querySelector("button")?.focus();
  }

  showHistory(status) {
    const rows = [...status.transitions].reverse().map((one) => [moment(one.at), `${one.from_state} → ${one.to_state}`, one.reason, seconds(one.seconds)]);
    this.history.replaceChildren(h("h2", { id: "transitions" }, "Transitions of this node"),
      table("Newest first", ["At", "Transition", "Reason", num("After")], rows, "none since the start"));
  }

  // -- actions ------------------------------------------------------------------------------------

  async switchTo(candidate) {
    const plan = candidate.planned;
    const yes = await confirmed(`Switch over to ${candidate.node}?`, [
      `${plan.from_node} stops taking changes, ${candidate.node} catches up and opens a new term. Nothing that was acknowledged is lost; clients are refused for a moment and go on with ${candidate.node}.`,
      h("ol", null, plan.steps.map((step) => h("li", null, `${step.node}: ${step.detail}`))),
      plan.lag ? `${candidate.node} is ${lagText(plan.lag)} behind.` : `${candidate.node} has everything.`,
    ], "Switch over");
    if (yes) await this.flipTo(candidate);
  }

  async flipTo(candidate) {
    this.flip = new Flip(candidate, this.cluster);
    try {
      await ask(`Switching over to ${candidate.node}`, (close) => this.flip.build(close));
    } finally {
      this.flip = null;
      this.outlookText = null;
    }
  }

  async act(what, doing) {
    try {
      toast(`${what}: ${await doing()}`);
    } catch (error) {
      toast(`${what}: ${error.message}`, true);
    }
    await this.refresh().catch(() => {});
  }

  snapshot() {
    return this.act("Snapshot", async () => `written at LSN ${count((await post("/v1/snapshot", {})).lsn)}`);
  }

  async solo() {
    const yes = await confirmed("Go on without the replica?", ["Changes are acknowledged as soon as they are durable here, until the replica is back."], "Go solo");
    if (yes) await this.act("Solo", async () => `term ${(await post("/v1/solo", {})).term}`);
  }

  async readOnly(status) {
    const yes = await confirmed(`Make ${status.name} read-only?`, ["Nobody can change anything until a node is promoted. To hand over to the other node, use the switch-over."], "Make read-only", status.name);
    if (yes) await this.act("Read-only", async () => (await put("/v1/read_only", { read_only: true })).state);
  }

  async promote(status) {
    if (!(await confirmed(`Promote ${status.name}?`, ["It begins to serve if that gives up nothing that was acknowledged."], "Promote"))) return;
    try {
      toast(`Promoted: ${(await put("/v1/read_only", { read_only: false })).state}`);
    } catch (error) {
      if (error.kind !== "needs-force") return toast(`Promote: ${error.message}`, true);
      const bound = error.problem.loss_bound;
      const loss = bound.records === null ? "It is not known how many records that gives up." : `That may give up ${bound.known ? "" : "at least "}${count(bound.records)} records.`;
      const yes = await confirmed("This may lose acknowledged work", [error.message, loss, bound.detail], "Promote by force", status.name);
      if (yes) await this.act("Promoted by force", async () => (await put("/v1/read_only", { read_only: false, force: true })).state);
    }
  }

  failed(error) {
    this.notice.hidden = false;
    this.notice.textContent = error.message;
  }

  recolour() { this.lag.recolour(); this.rates.recolour(); }
  gone() { this.lag.gone(); this.rates.gone(); }
}

function badge(text, good, bad) {
  return h("span", { class: `badge ${bad ? "worse" : good ? "good" : ""}` }, text);
}

// A switch-over under way: steps as the nodes' own states show them, then the report.
class Flip {
  constructor(candidate, cluster) {
    this.to = candidate.node;
    this.from = candidate.planned.from_node;
    this.seen = Object.fromEntries(cluster.nodes.filter((node) => node.connected).map((node) => [node.name || node.address, node.state]));
    this.began = performance.now();
    this.steps = candidate.planned.steps.map((step) => ({ ...step, item: h("li", { "data-outcome": "planned" }, `${step.node}: ${step.detail}`) }));
    this.log = h("ol", { class: "log", "aria-label": "States as they change", role: "log" });
    this.result = h("p", { class: "result", role: "status" }, "under way …");
  }

  build(close) {
    this.button = h("button", { type: "button", disabled: true, onclick: () => close(true) }, "Close");
    this.run();
    return [h("ol", { class: "steps" }, this.steps.map((step) => step.item)), this.log, this.result, h("p", { class: "buttons" }, this.button)];
  }

  async run() {
    try {
      const report = await post("/v1/switchover", { to: this.to, dry_run: false });
      if (report.outcome === "under_way") await this.wait();
      else this.done(report);
    } catch (error) {
      this.failed(error.message, error.problem.report);
    }
    this.button.disabled = false;
    this.button.focus();
  }

  // It takes longer than a request may: the node's status tells what becomes of it.
  async wait() {
    for (;;) {
      await new Promise((resolve) => setTimeout(resolve, 500));
      const { operation } = await get("/v1/status").catch(() => ({}));
      if (operation && operation.outcome === "done") return this.done(operation.result);
      if (operation && operation.outcome === "failed") return this.failed(operation.problem.detail, operation.problem.report);
    }
  }

  news(kind, data) {
    if (kind === "state") {
      const last = data.transition;
      // Events may be told together: the way between is known from the transition.
      if (last && last.to_state === data.state) this.saw(data.name, last.from_state, "");
      this.saw(data.name, data.state, last ? last.reason : "");
    } else if (kind === "peers") {
      for (const peer of data.peers) if (peer.connected) this.saw(peer.name || peer.address, peer.state, "");
    }
  }

  look(cluster) {
    for (const node of cluster.nodes) if (node.connected) this.saw(node.name || node.address, node.state, "");
  }

  saw(node, state, reason) {
    const before = this.seen[node];
    if (before === state) return;
    this.seen[node] = state;
    if (!before) return;
    const after = seconds((performance.now() - this.began) / 1000);
    this.log.append(h("li", null, `${after} · ${node}: ${before} → ${state}${reason ? ` (${reason})` : ""}`));
    if (node === this.from && state === "WAITING") this.mark(0, "done");
    if (node === this.to && state === "RUNNING") this.mark(1, "done");
  }

  mark(at, outcome, took) {
    const step = this.steps[at];
    if (!step) return;
    step.item.dataset.outcome = outcome;
    step.item.textContent = `${step.node}: ${step.detail} · ${outcome}${took ? ` after ${seconds(took)}` : ""}`;
  }

  done(report) {
    report.steps.forEach((step, at) => this.mark(at, step.outcome, step.seconds));
    this.result.textContent = `${report.to_node} is the master, after ${seconds(report.seconds)}.`;
    this.result.classList.add("good");
  }

  failed(text, report) {
    if (report) report.steps.forEach((step, at) => this.mark(at, step.outcome, step.seconds));
    this.result.textContent = `${text}${report && report.rolled_back ? `. Rolled back: ${report.from_node} is the master again.` : ""}`;
    this.result.classList.add("bad");
  }
}
