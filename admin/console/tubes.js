// Tubes: counts, rates, ages, sorted by whatever column is asked for.

import { get } from "./api.js";
import { count, h, num, rate, seconds, table } from "./dom.js";

const PAGE = 200;
const MOST = 1000;

// What of a tube is paused, in words; nothing when all goes on.
export function pausedWords(tube) {
  const sides = [tube.paused_puts ? "puts" : null, tube.paused_takes ? "takes" : null].filter(Boolean);
  return sides.length ? `${sides.join(" and ")} paused` : "";
}

export function tubeLinks(names) {
  return names.map((name, at) => [at ? ", " : "", h("a", { href: `#/tubes/${encodeURIComponent(name)}` }, name)]);
}

// What is worth knowing of a tube beside its numbers: paused, empty, whose dead letters it takes.
export function tubeWords(tube) {
  const words = [];
  if (tube.problem) words.push(h("span", { class: "bad" }, tube.problem));
  if (pausedWords(tube)) words.push(h("span", { class: "warn" }, pausedWords(tube)));
  else if (!tube.total) words.push(h("span", { class: "muted" }, "empty"));
  if (tube.dead_letters_of.length) {
    words.push(h("span", null, "dead letters of ", tubeLinks(tube.dead_letters_of)));
  }
  return words.flatMap((word, at) => (at ? ["; ", word] : [word]));
}

// Failures of the last minute, and the way to the tasks that failed.
export function failedLink(tube) {
  const text = rate(tube.failed_per_minute);
  return tube.failed_per_minute ? h("a", { class: "warn", href: `#/tubes/${encodeURIComponent(tube.name)}?failed=true` }, text) : text;
}

const COLUMNS = [
  ["name", "Tube", (tube) => tube.name],
  ["type", "Type", (tube) => tube.type],
  ["words", "State", (tube) => `${pausedWords(tube)}${tube.total ? "" : "empty"}`],
  ["ready", "Ready", (tube) => tube.ready], ["taken", "Taken", (tube) => tube.taken],
  ["delayed", "Delayed", (tube) => tube.delayed], ["buried", "Buried", (tube) => tube.buried],
  ["put", "Put/s", (tube) => tube.rates?.put], ["take", "Taken/s", (tube) => tube.rates?.take],
  ["ack", "Acked/s", (tube) => tube.rates?.ack], ["failed", "Failed/min", (tube) => tube.failed_per_minute],
  ["oldest", "Oldest ready", (tube) => tube.oldest_ready_seconds], ["wait", "Mean wait", (tube) => tube.wait_seconds],
  ["work", "Mean work", (tube) => tube.processing_seconds], ["consumers", "Waiting takes", (tube) => tube.waiting_consumers],
];
const TEXTS = 3;

export class TubesView {
  constructor(asked) {
    this.sort = COLUMNS.some(([key]) => key === asked.get("sort")) ? asked.get("sort") : "name";
    this.down = asked.get("order") === "desc";
    this.order = [];
    this.search = h("input", { id: "search", type: "search", autocomplete: "off", value: asked.get("search") || "", oninput: () => { this.write(); this.refresh(); } });
    this.list = h("div", { class: "dense" });
    this.element = h("div", null, h("h1", null, "Tubes"),
      h("p", { class: "filters" }, h("label", { for: "search" }, "Name contains"), this.search), this.list);
  }

  // The address is the view: it can be kept, and sent to somebody.
  write() {
    const asked = new URLSearchParams();
    if (this.search.value) asked.set("search", this.search.value);
    if (this.sort !== "name") asked.set("sort", this.sort);
    if (this.down) asked.set("order", "desc");
    history.replaceState(null, "", `#/tubes${asked.size ? `?${asked}` : ""}`);
  }

  async refresh() {
    let after = "";
    const tubes = [];
    let total = 0;
    while (after !== null && tubes.length < MOST) {
      const page = await get("/v1/tubes", { search: this.search.value, after, limit: PAGE });
      tubes.push(...page.tubes);
      total = page.total;
      after = page.next;
    }
    this.tubes = tubes;
    this.total = total;
    this.show();
  }

  // Rows stay where they are while somebody points at them.
  sorted() {
    const known = new Map(this.tubes.map((tube) => [tube.name, tube]));
    const same = this.order.length === known.size && this.order.every((name) => known.has(name));
    if (same && this.list.querySelector("tbody:hover") && this.asked === `${this.sort} ${this.down}`) return this.order.map((name) => known.get(name));
    this.asked = `${this.sort} ${this.down}`;
    const value = COLUMNS.find(([key]) => key === this.sort)[2];
    const text = COLUMNS.findIndex(([key]) => key === this.sort) < TEXTS;
    const compare = (a, b) => {
      const [x, y] = [value(a), value(b)];
      const by = text ? String(x).localeCompare(String(y)) : (x ?? -1) - (y ?? -1);
      return (this.down ? -by : by) || a.name.localeCompare(b.name);
    };
    const found = [...this.tubes].sort(compare);
    this.order = found.map((tube) => tube.name);
    return found;
  }

  by(key) {
    this.down = this.sort === key ? !this.down : COLUMNS.findIndex(([one]) => one === key) >= TEXTS;
    this.sort = key;
    this.write();
    this.show();
    this.list.querySelector(`[data-sort="${key}"]`)?.focus();
  }

  show() {
    const rows = this.sorted().map((tube) => [
      h("a", { href: `#/tubes/${encodeURIComponent(tube.name)}` }, tube.name), tube.type, tubeWords(tube),
      count(tube.ready), count(tube.taken), count(tube.delayed),
      tube.buried ? h("a", { class: "warn", href: `#/tubes/${encodeURIComponent(tube.name)}?state=buried` }, count(tube.buried)) : count(tube.buried),
      rate(tube.rates?.put), rate(tube.rates?.take), rate(tube.rates?.ack), failedLink(tube),
      seconds(tube.oldest_ready_seconds), seconds(tube.wait_seconds), seconds(tube.processing_seconds), count(tube.waiting_consumers)]);
    const columns = COLUMNS.map(([key, label], at) => {
      const button = h("button", { type: "button", class: "sort", "data-sort": key, onclick: () => this.by(key) }, label);
      const sort = key === this.sort ? (this.down ? "descending" : "ascending") : null;
      return { ...(at < TEXTS ? {} : num("")), cell: button, sort };
    });
    const cut = this.total > this.tubes.length ? `, the first ${count(this.tubes.length)} of them` : "";
    const left = this.list.querySelector(".scroll")?.scrollLeft || 0;
    const focused = this.list.contains(document.activeElement) ? document.activeElement : null;
    const again = focused?.dataset.sort ? `[data-sort="${focused.dataset.sort}"]` : focused?.getAttribute("href") ? `a[href="${focused.getAttribute("href")}"]` : null;
    this.list.replaceChildren(table(`${count(this.total)} tubes${cut}`, columns, rows, this.search.value ? "no tube has this in its name" : "there is no tube yet"));
    this.list.querySelector(".scroll").scrollLeft = left;
    if (again) this.list.querySelector(again)?.focus();
  }

  failed(error) { this.list.replaceChildren(h("p", { class: "bad", role: "alert" }, error.message)); }
  gone() {}
}
