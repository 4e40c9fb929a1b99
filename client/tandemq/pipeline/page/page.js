"use strict";
(() => {
// Draws what stands in `given`. A chart is drawn when it comes into view: there may be thousands.
const { page, specs } = JSON.parse(document.getElementById("given").textContent);
const P = ["p50", "p95", "p99"];
const dark = matchMedia("(prefers-color-scheme: dark)");
const moment = (slot) => page.first + slot * page.grain;
const slots = Array.from({ length: page.slots }, (_, slot) => slot);

// The value of each slot, `none` where there is none.
function dense(at, values, none) {
  const found = new Array(page.slots).fill(none);
  (at || []).forEach((slot, n) => { if (slot >= 0 && slot < page.slots) found[slot] = values[n]; });
  return found;
}

const rows = {
  flow: (of) => ["put", "gone"].flatMap((k) =>
    dense(of.i, of[k], 0).map((v, slot) => ({ t: moment(slot), k, v }))),
  stock: (of) => dense(of.si, of.stock, 0).map((v, slot) => ({ t: moment(slot), v })),
  oldest: (of) => dense(of.si, of.oldest, 0).map((v, slot) => ({ t: moment(slot), v })),
  wait: (of) => quantiles(of, "wait"),
  run: (of) => quantiles(of, "run"),
  failed: (of) => (of.failed || []).map(([slot, why, v]) => ({ t: moment(slot), k: page.reasons[why], v })),
  "bars-wait": (of) => bars(of, "wait"),
  "bars-run": (of) => bars(of, "run"),
};

function quantiles(of, name) {
  return P.flatMap((k, n) => of[name]
    ? dense(of.i, of[name][n], null).map((v, slot) => ({ t: moment(slot), k, v })) : []);
}

function bars(of, name) {
  const there = (of.bars && of.bars[name]) || [];
  if (!there.length) return [];
  const at = new Map(there.map(([bar, v, b]) => [bar, { v, b }]));
  const first = there[0][0], last = there[there.length - 1][0];
  return Array.from({ length: last - first + 1 }, (_, n) => first + n)
    .map((bar) => ({ k: page.bars[bar], v: 0, ...at.get(bar) }));
}

async function draw(place, of) {
  const made = rows[place.dataset.chart](of);
  place.dataset.rows = made.length;
  if (!made.some((row) => row.v !== null)) { place.textContent = "Nothing to draw."; return; }
  const spec = structuredClone(specs[place.dataset.kind]);
  for (const set of spec.data) {
    if (set.name === "rows") set.values = made;
    if (set.name === "begins") set.values = [page.begins === null ? { t: made[0].t, o: 0 } : { t: page.begins, o: 1 }];
  }
  const options = { mode: "vega", renderer: "svg", actions: false, defaultStyle: false,
    tooltip: { theme: dark.matches ? "dark" : "light" } };
  await vegaEmbed(place, spec, options);
  place.dataset.drawn = "1";
}

const seen = new IntersectionObserver((all) => {
  for (const { isIntersecting, target } of all) {
    if (!isIntersecting) continue;
    seen.unobserve(target);
    const of = "tube" in target.dataset ? page.tubes[target.dataset.tube] : page.all;
    draw(target, of).catch((error) => console.error(String(error)));
  }
}, { rootMargin: "200px" });
document.querySelectorAll("#report .chart").forEach((place) => seen.observe(place));

// A tube's own page, by the address.
const report = document.getElementById("report"), own = document.getElementById("tube");
const count = (n) => n.toLocaleString("en");

function tile(title, value) {
  const box = document.createElement("div"), head = document.createElement("h3"), p = document.createElement("p");
  box.className = "tile"; p.className = "value";
  head.textContent = title; p.textContent = value;
  box.append(head, p);
  return box;
}

function show() {
  const at = /^#tube-(\d+)$/.exec(location.hash), of = at && page.tubes[at[1]];
  own.hidden = !of; report.hidden = Boolean(of);
  if (!of) { const to = location.hash && document.getElementById(location.hash.slice(1)); if (to) to.scrollIntoView(); return; }
  document.getElementById("tube-name").textContent = of.name;
  const says = document.getElementById("tube-says");
  says.className = of.state; says.replaceChildren(document.createElement("strong"));
  says.firstChild.textContent = of.says;
  const heads = ["put", "gone", "failed deliveries", "there now"].map((title, n) => [title, count(of.now[n])]);
  ["waiting, median", "waiting, 95 of 100 within", "running, median", "running, 95 of 100 within"]
    .forEach((title, n) => heads.push([title, of.took[n]]));
  document.getElementById("tube-tiles").replaceChildren(...heads.map((one) => tile(...one)));
  own.querySelectorAll(".chart").forEach((place) => {
    const fresh = place.cloneNode(false);
    delete fresh.dataset.drawn;
    fresh.className = "chart"; fresh.dataset.tube = at[1];
    place.replaceWith(fresh);
    seen.observe(fresh);
  });
  scrollTo(0, 0);
}
addEventListener("hashchange", show);
show();

// Finding and ordering tubes.
const cards = document.querySelector(".cards"), find = document.getElementById("find");
const order = document.getElementById("order"), all = [...cards.children];
const by = {
  state: (a, b) => a - b,
  name: (a, b) => (page.tubes[a].name < page.tubes[b].name ? -1 : 1),
};

function arrange() {
  const words = find.value.toLowerCase();
  let shown = 0;
  const ranked = all.map((card) => Number(card.dataset.at));
  ranked.sort(by[order.value] || ((a, b) => page.tubes[b].now[order.value] - page.tubes[a].now[order.value] || a - b));
  cards.append(...ranked.map((at) => all[at]));
  all.forEach((card) => {
    card.hidden = !page.tubes[card.dataset.at].name.toLowerCase().includes(words);
    shown += !card.hidden;
  });
  document.getElementById("found").textContent = `${count(shown)} shown`;
}
find.addEventListener("input", arrange);
order.addEventListener("change", arrange);
})();
