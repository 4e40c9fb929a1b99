// The first page: is somebody serving, is nothing about to be lost, is work being done.

import { get } from "./api.js";
import { Actions } from "./actions.js";
import { bytes, count, h, num, rate, seconds, table } from "./dom.js";
import { failedLink, tubeWords } from "./tubes.js";

const WORDS = { green: "All is well", amber: "Look at this", red: "Act now" };
const tile = (label, value, more) => h("div", { class: "tile" }, h("dt", null, label), h("dd", null, value, more ? h("small", null, more) : null));

export class OverviewView extends Actions {
  constructor() {
    super();
    this.candidates = [];
    this.banner = h("section", { class: "banner", role: "status", "aria-live": "polite" });
    this.tiles = h("dl", { class: "tiles" });
    this.list = h("div");
    this.element = h("div", null, h("h1", null, "Overview"), this.banner, this.tiles, h("h2", null, "Backlog"), this.list);
  }

  async refresh() {
    const [found, status, cluster] = await Promise.all([get("/v1/overview"), get("/v1/status"), get("/v1/cluster")]);
    this.status = status;
    this.cluster = cluster;
    this.lookOut(found);
    if (this.flip) this.flip.look(cluster);
    document.title = `${found.level === "green" ? "" : "! "}${status.name}: ${found.sentence} · Tandem`;
    this.found = found;
    this.showBanner();
    this.showTiles(found, status);
    this.showBacklog(found);
  }

  // Who could take over is asked of the other node, too: nobody waits for that.
  async lookOut(found) {
    if (this.asking || !found.serving.length) return;
    this.asking = true;
    try {
      const { candidates } = await get("/v1/switchover");
      this.candidates = candidates.filter((one) => !one.writable && one.planned && one.planned.possible);
      this.showBanner();
    } catch { /* said by what else is asked */ } finally {
      this.asking = false;
    }
  }

  // Built anew only when it says something else: a button under a hand must not vanish.
  showBanner() {
    const { found, status, candidates: able } = this;
    const text = JSON.stringify([found.level, found.concerns, found.sentence, status.state, able.map((one) => one.node)]);
    if (text === this.bannerText) return;
    this.bannerText = text;
    this.banner.dataset.level = found.level;
    const others = found.concerns.slice(found.level === "green" ? 0 : 1);
    const buttons = [
      !found.serving.length && !["RUNNING", "STARTUP"].includes(status.state)
        ? h("button", { type: "button", class: "primary", onclick: () => this.promote(this.status) }, `Promote ${status.name}`) : null,
      ...able.map((one) => h("button", { type: "button", onclick: () => this.switchTo(this.candidates.find((now) => now.node === one.node) || one) }, `Switch over to ${one.node}`)),
    ].filter(Boolean);
    this.banner.replaceChildren(h("p", { class: "level" }, WORDS[found.level]),
      h("p", { class: "sentence" }, found.sentence),
      ...(found.todo ? [h("p", null, `What to do: ${found.todo}.`)] : []),
      ...(others.length ? [h("ul", null, others.map((one) => h("li", { "data-level": one.level },
        one.tube ? h("a", { href: tubeHref(one.tube) }, one.sentence) : one.sentence, one.todo ? `: ${one.todo}` : "")))] : []),
      ...(buttons.length ? [h("p", { class: "buttons" }, buttons)] : []));
  }

  showTiles(found, status) {
    const { memory } = found;
    const share = memory.max ? `${Math.round((100 * memory.used) / memory.max)} % of ${bytes(memory.max)}` : "no bound";
    this.tiles.replaceChildren(
      tile("Serves", found.serving.join(" and ") || "nobody", status.summary),
      tile("If it died", found.successor),
      tile("Waiting", count(found.ready), found.oldest_ready_seconds === null ? "none waits" : `the oldest ${seconds(found.oldest_ready_seconds)}`),
      tile("In, out per second", `${rate(found.put_rate)}, ${rate(found.ack_rate)}`, `taken ${rate(found.take_rate)}`),
      tile("Failures per minute", rate(found.failed_per_minute)),
      tile("Dead letters", count(found.dead_letters)),
      tile("Memory", bytes(memory.used), share));
  }

  showBacklog(found) {
    const rows = found.backlog.map((tube) => [h("a", { href: tubeHref(tube.name) }, tube.name), tubeWords(tube), count(tube.ready),
      seconds(tube.oldest_ready_seconds), count(tube.taken), rate(tube.rates?.put), rate(tube.rates?.ack), failedLink(tube),
      tube.buried ? h("a", { href: `${tubeHref(tube.name)}?state=buried` }, count(tube.buried)) : count(tube.buried)]);
    const focused = this.list.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    this.list.replaceChildren(table("Tubes with the most waiting tasks first", ["Tube", "", num("Waiting"), num("Oldest"), num("Taken"),
      num("Put/s"), num("Acked/s"), num("Failed/min"), num("Buried")].map((one, at) => (at === 1 ? { cell: h("span", { class: "hidden" }, "State") } : one)), rows, "there is no tube yet"));
    if (focused) [...this.list.querySelectorAll("a")].find((a) => a.getAttribute("href") === focused)?.focus();
  }

  failed(error) {
    this.bannerText = null;
    this.banner.dataset.level = "red";
    this.banner.replaceChildren(h("p", { class: "sentence" }, error.message));
  }

  gone() {}
}

const tubeHref = (name) => `#/tubes/${encodeURIComponent(name)}`;
