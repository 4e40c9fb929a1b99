// What an operator may do to nodes: switch over, promote, read-only, solo, snapshot. Each asks first.

import { get, post, put } from "./api.js";
import { ask, bytes, confirmed, count, h, seconds, toast } from "./dom.js";

export const lagText = (lag) => (lag ? `${count(lag.records)} records, ${bytes(lag.bytes)}, ${seconds(lag.seconds)}` : "–");

export class Actions {
  constructor() {
    this.flip = null;
  }

  news(kind, data) {
    if (this.flip) this.flip.news(kind, data);
  }

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
