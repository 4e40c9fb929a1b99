// Lines over time, drawn by uPlot (see uPlot.LICENSE). Colours follow the page's theme.

import { h } from "./dom.js";

const COLOURS = ["--line-1", "--line-2", "--line-3", "--line-4"];
// A canvas wants a plain colour, not one that depends on the theme.
const probe = h("span", { class: "hidden", "aria-hidden": "true" });
function css(name) {
  if (!probe.isConnected) document.body.append(probe);
  probe.style.color = `var(${name})`;
  return getComputedStyle(probe).color;
}

export class Chart {
  // labels: of the lines; unit(value): text of a value.
  constructor(title, labels, unit) {
    this.title = title;
    this.labels = labels;
    this.unit = unit;
    this.box = h("div", { class: "chart", role: "img", "aria-label": title });
    this.element = h("figure", null, h("figcaption", null, title), this.box);
    this.plot = null;
    this.data = null;
    this.seen = new ResizeObserver(() => this.resize());
    this.seen.observe(this.box);
  }

  // data: [seconds since the epoch, values of line 1, ...].
  show(labels, data) {
    this.data = data;
    const last = data.slice(1).map((line, at) => `${labels[at]} ${this.unit(line[line.length - 1] ?? null)}`);
    this.box.setAttribute("aria-label", `${this.title}: now ${last.join(", ") || "nothing"}`);
    if (labels.join("\n") !== this.labels.join("\n")) { this.labels = labels; this.destroy(); }
    if (this.plot) this.plot.setData(data);
    else this.draw();
  }

  draw() {
    const width = this.box.clientWidth;
    if (!width || !this.data || !window.uPlot) return;
    const axis = { stroke: () => css("--muted"), grid: { stroke: () => css("--grid"), width: 1 }, ticks: { show: false } };
    const options = {
      width, height: 170, cursor: { y: false }, legend: { live: true },
      scales: { y: { range: (u, low, high) => [0, Math.max(1, (high || 0) * 1.1)] } },
      axes: [axis, { ...axis, size: 64, values: (u, splits) => splits.map((v) => this.unit(v)) }],
      series: [{ label: "at" }, ...this.labels.map((label, at) => ({
        label, width: 2, stroke: () => css(COLOURS[at % COLOURS.length]), points: { show: false },
        value: (u, v) => this.unit(v),
      }))],
    };
    this.plot = new window.uPlot(options, this.data, this.box);
  }

  resize() {
    const width = this.box.clientWidth;
    if (!this.plot) this.draw();
    else if (width && width !== this.plot.width) this.plot.setSize({ width, height: 170 });
  }

  recolour() { this.destroy(); this.draw(); }

  destroy() {
    if (this.plot) this.plot.destroy();
    this.plot = null;
  }

  gone() { this.seen.disconnect(); this.destroy(); }
}
