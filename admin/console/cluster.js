// Both nodes: state machines, terms, LSNs, lag over time, what a flip would lose, and flips.

import { Actions, lagText } from "./actions.js";
import { get } from "./api.js";
import { Chart } from "./charts.js";
import { ago, bytes, count, h, moment, num, rate, seconds, svg, table } from "./dom.js";

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

export class ClusterView extends Actions {
  constructor() {
    super();
    this.nodes = h("div", { class: "nodes" });
    this.outlook = h("section", { "aria-labelledby": "flips" });
    this.history = h("section", { "aria-labelledby": "transitions" });
    this.trail = h("section", { "aria-labelledby": "trail" });
    this.notice = h("p", { class: "bad", role: "alert", hidden: true });
    this.lag = new Chart("Replication lag, records", [], (v) => count(v === null ? v : Math.round(v)));
    this.rates = new Chart("Tasks per second", ["put", "taken", "done"], rate);
    this.samples = null;
    this.status = null;
    this.element = h("div", null, h("h1", null, "Cluster"), this.notice, this.nodes,
      h("div", { class: "charts" }, this.lag.element, this.rates.element), this.outlook, this.history, this.trail);
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
    await this.showTrail();
    if (this.flip) this.flip.look(cluster);
  }

  news(kind, data) {
    super.news(kind, data);
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
        fact("Is", status.summary),
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
        fact("Heard from", peer.heard_seconds === null ? "never" : ago(peer.heard_seconds)),
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

  async showTrail() {
    let page;
    try {
      page = await get("/v1/audit-trail", { limit: 12 });
    } catch (error) {
      if (error.status !== 401) throw error;
      page = { entries: [], problem: "", none: "it is read with a token of its own" };
    }
    const rows = page.entries.map((one) => [moment(Date.parse(one.time) / 1000),
      [one.user || one.by, one.address ? h("span", { class: "muted" }, ` ${one.address}`) : null],
      `${one.action} ${one.target}`, one.outcome === "done" ? "done" : h("span", { class: "bad", title: one.error },
        `${one.outcome}${one.repeated ? `, ${count(one.repeated)} times more` : ""}`)]);
    this.trail.replaceChildren(h("h2", { id: "trail" }, "Who did what"),
      h("p", { class: "bad", hidden: !page.problem }, `not written: ${page.problem}`),
      table("Newest first", ["At", "Who", "What", "Outcome"], rows, page.none || "nothing yet"));
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
