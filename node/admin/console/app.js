// The console's frame: sign in, routes after the #, the stream of events, the theme.

import { Events, get, token } from "./api.js";
import { ClusterView } from "./cluster.js";
import { h, toast } from "./dom.js";
import { SessionsView } from "./sessions.js";
import { TasksView } from "./tasks.js";
import { TubesView } from "./tubes.js";

const main = document.getElementById("main");
const live = document.getElementById("live");
const nav = document.querySelector("nav");
const leave = document.getElementById("leave");
let view = null;
let events = null;

// -- theme ----------------------------------------------------------------------------------------

const THEME = "tandemq.theme";
function setTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  if (view && view.recolour) view.recolour();
}
document.getElementById("theme").addEventListener("click", () => {
  const now = document.documentElement.dataset.theme;
  const dark = now ? now === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  localStorage.setItem(THEME, dark ? "light" : "dark");
  setTheme(localStorage.getItem(THEME));
});
setTheme(localStorage.getItem(THEME));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => setTheme(null));

// -- routes ---------------------------------------------------------------------------------------

function viewOf(hash) {
  const path = hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  if (path[0] === "tubes" && path.length > 1) return ["tubes", new TasksView(path.slice(1).join("/"))];
  if (path[0] === "tubes") return ["tubes", new TubesView()];
  if (path[0] === "sessions") return ["sessions", new SessionsView()];
  return ["cluster", new ClusterView()];
}

async function show() {
  if (view) view.gone();
  let name;
  [name, view] = viewOf(location.hash);
  for (const link of nav.querySelectorAll("a")) {
    if (link.dataset.view === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  main.replaceChildren(view.element);
  await refresh();
}

let busy = false;
async function refresh() {
  if (busy || !view || document.hidden) return;
  busy = true;
  const asked = view;
  try {
    await asked.refresh();
  } catch (error) {
    if (error.status === 401) signIn();
    else if (asked === view) asked.failed(error);
  } finally {
    busy = false;
    if (asked !== view) refresh();
  }
}

// -- events ---------------------------------------------------------------------------------------

function listen() {
  if (events) events.stop();
  events = new Events();
  events.addEventListener("open", () => { live.textContent = "live"; live.dataset.state = "on"; refresh(); });
  events.addEventListener("lost", () => { live.textContent = "no connection"; live.dataset.state = "off"; });
  events.addEventListener("unauthorized", signIn);
  events.addEventListener("news", ({ detail }) => {
    if (view && view.news) view.news(detail.kind, detail.data);
    if (["sample", "state", "peers", "term"].includes(detail.kind)) refresh();
  });
  events.run();
}
document.addEventListener("visibilitychange", refresh);

// -- signing in -----------------------------------------------------------------------------------

function signIn(event) {
  if (events) events.stop();
  if (view) view.gone();
  view = null;
  nav.hidden = leave.hidden = true;
  live.textContent = "signed out";
  live.dataset.state = "off";
  const wrong = h("p", { class: "bad", role: "alert" });
  const field = h("input", { id: "token", type: "password", autocomplete: "off", required: true, spellcheck: false });
  const form = h("form", { class: "card narrow", onsubmit: async (e) => {
    e.preventDefault();
    token.set(field.value.trim());
    wrong.textContent = "";
    try {
      await get("/v1/status");
      start();
    } catch (error) {
      token.set(null);
      wrong.textContent = error.status === 401 ? "This is not the node's token." : error.message;
      field.select();
    }
  } },
  h("h1", null, "Sign in"),
  h("p", null, "This node asks for its token. It stays in this tab and is forgotten with it."),
  h("label", { for: "token" }, "Token"), field, wrong,
  h("p", { class: "buttons" }, h("button", { type: "submit", class: "primary" }, "Sign in")));
  main.replaceChildren(form);
  field.focus();
}

leave.addEventListener("click", () => { token.set(null); signIn(); toast("signed out"); });

function start() {
  nav.hidden = false;
  leave.hidden = !token.get();
  live.textContent = "connecting";
  listen();
  show();
}

window.addEventListener("hashchange", () => { if (view) show(); });
get("/v1/status").then(start, (error) => {
  if (error.status === 401) { token.set(null); signIn(); } else start();
});
