// Tubes by name: counts, rates, ages.

import { get } from "./api.js";
import { count, h, num, rate, seconds, table } from "./dom.js";

// What of a tube is paused, in words; nothing when all goes on.
export function pausedWords(tube) {
  const sides = [tube.paused_puts ? "puts" : null, tube.paused_takes ? "takes" : null].filter(Boolean);
  return sides.length ? `${sides.join(" and ")} paused` : "";
}

export class TubesView {
  constructor() {
    this.after = [""];
    this.search = h("input", { id: "search", type: "search", autocomplete: "off", oninput: () => { this.after = [""]; this.refresh(); } });
    this.list = h("div");
    this.pages = h("p", { class: "buttons" });
    this.element = h("div", null, h("h1", null, "Tubes"),
      h("p", { class: "filters" }, h("label", { for: "search" }, "Name contains"), this.search), this.list, this.pages);
  }

  async refresh() {
    const page = await get("/v1/tubes", { search: this.search.value, after: this.after.at(-1), limit: 50 });
    const rows = page.tubes.map((tube) => [
      [h("a", { href: `#/tubes/${encodeURIComponent(tube.name)}` }, tube.name), pausedWords(tube) ? h("span", { class: "warn" }, ` ${pausedWords(tube)}`) : null, tube.problem ? h("span", { class: "bad" }, ` ${tube.problem}`) : null],
      tube.type, count(tube.ready), count(tube.taken), count(tube.delayed),
      tube.buried ? h("b", { class: "warn" }, count(tube.buried)) : count(tube.buried),
      rate(tube.rates?.put), rate(tube.rates?.take), rate(tube.rates?.ack),
      seconds(tube.oldest_ready_seconds), seconds(tube.wait_seconds), seconds(tube.processing_seconds),
      count(tube.waiting_consumers)]);
    const top = this.list.querySelector(".scroll")?.scrollLeft || 0;
    const focused = this.list.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    this.list.replaceChildren(table(`${count(page.total)} tubes`, ["Tube", "Type", num("Ready"), num("Taken"), num("Delayed"), num("Buried"),
      num("Put/s"), num("Taken/s"), num("Acked/s"), num("Oldest ready"), num("Mean wait"), num("Mean work"), num("Waiting takes")],
    rows, this.search.value ? "no tube has this in its name" : "there is no tube yet"));
    this.list.querySelector(".scroll").scrollLeft = top;
    if (focused) [...this.list.querySelectorAll("a")].find((a) => a.getAttribute("href") === focused)?.focus();
    this.pages.replaceChildren(...[
      this.after.length > 1 ? h("button", { type: "button", onclick: () => { this.after.pop(); this.refresh(); } }, "Back") : null,
      page.next !== null ? h("button", { type: "button", onclick: () => { this.after.push(page.next); this.refresh(); } }, "More") : null,
    ].filter(Boolean));
  }

  failed(error) { this.list.replaceChildren(h("p", { class: "bad", role: "alert" }, error.message)); }
  gone() {}
}
