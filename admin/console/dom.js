// Elements from data. Text is only ever set as text: nothing that a task or a client said can
// become markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && typeof value !== "string" && !(element instanceof SVGElement)) element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

// A table that scrolls sideways by itself on narrow screens. Cells: text, nodes, or {cell, class}.
export function table(caption, columns, rows, empty) {
  const head = columns.map((c) => h("th", { scope: "col", class: c.class || null, "aria-sort": c.sort || null }, c.cell ?? c));
  const body = rows.map((cells) => h("tr", null, cells.map((cell, at) => {
    const name = columns[at].class || null;
    return h("td", { class: name }, cell);
  })));
  if (!rows.length) body.push(h("tr", null, h("td", { colspan: String(columns.length), class: "none" }, empty || "none")));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", null, h("caption", null, caption), h("thead", null, h("tr", null, head)), h("tbody", null, body)));
}

export const num = (label) => ({ cell: label, class: "num" });

// -- numbers for people ---------------------------------------------------------------------------

export function count(value) {
  return value === null || value === undefined ? "–" : Number(value).toLocaleString("en");
}

export function rate(value) {
  if (value === null || value === undefined) return "–";
  return value >= 100 ? count(Math.round(value)) : value.toFixed(value && value < 10 ? 2 : 1);
}

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 0) return "-" + seconds(-value);
  if (value < 0.001) return value ? `${Math.round(value * 1e6)} µs` : "0 s";
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 60) return `${value.toFixed(1)} s`;
  if (value < 3600) return `${Math.floor(value / 60)} min ${Math.floor(value % 60)} s`;
  if (value < 86400) return `${Math.floor(value / 3600)} h ${Math.floor((value % 3600) / 60)} min`;
  return `${Math.floor(value / 86400)} d ${Math.floor((value % 86400) / 3600)} h`;
}

// So long ago, and counting: nobody is told that time stands still.
export function ago(value) {
  return h("span", { "data-since": String(Date.now() - value * 1000) }, `${seconds(value)} ago`);
}
setInterval(() => {
  for (const one of document.querySelectorAll("[data-since]")) one.textContent = `${seconds((Date.now() - Number(one.dataset.since)) / 1000)} ago`;
}, 500);

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  if (value < 1024) return `${value} B`;
  if (value < 1048576) return `${(value / 1024).toFixed(1)} KiB`;
  if (value < 10 * 1073741824) return `${(value / 1048576).toFixed(1)} MiB`;
  return `${(value / 1073741824).toFixed(1)} GiB`;
}

export function moment(epoch) {
  if (epoch === null || epoch === undefined) return "–";
  return new Date(epoch * 1000).toISOString().replace("T", " ").slice(0, 19) + "Z";
}

// -- messages and questions -----------------------------------------------------------------------

export function toast(text, bad) {
  const element = h("p", { class: bad ? "toast bad" : "toast" }, text);
  document.getElementById("toasts").append(element);
  setTimeout(() => element.remove(), bad ? 12000 : 6000);
}

// The page's one dialog. `build(close)` gives its elements; resolves with what `close` was given.
export function ask(title, build) {
  const dialog = document.getElementById("dialog");
  return new Promise((resolve) => {
    let value = null;
    const close = (given) => { value = given; dialog.close(); };
    const parts = build(close);
    dialog.replaceChildren(h("h2", { id: "dialog-title" }, title), ...[parts].flat());
    dialog.addEventListener("close", () => { dialog.replaceChildren(); resolve(value); }, { once: true });
    dialog.showModal();
  });
}

// A yes-or-no question; `typed` is what must be typed before yes counts.
export function confirmed(title, lines, label, typed) {
  return ask(title, (close) => {
    const yes = h("button", { type: "button", class: "danger", onclick: () => close(true) }, label);
    const no = h("button", { type: "button", onclick: () => close(false), autofocus: true }, "Cancel");
    const parts = lines.map((line) => (line instanceof Node ? line : h("p", null, line)));
    if (typed) {
      yes.disabled = true;
      const field = h("input", { id: "typed", autocomplete: "off", oninput: (e) => { yes.disabled = e.target.value !== typed; } });
      parts.push(h("label", { for: "typed" }, "Type ", h("b", null, typed), " to go on"), field);
    }
    return [...parts, h("p", { class: "buttons" }, no, yes)];
  });
}
