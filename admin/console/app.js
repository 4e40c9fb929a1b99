// The console's frame: sign in, routes after the #, the stream of events, the theme.

import { Events, get, token } from "./api.js";
import { ClusterView } from "./cluster.js";
import { h, seconds, toast } from "./dom.js";
import { OverviewView } from "./overview.js";
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
  const [place, query] = hash.replace(/^#\/?/, "").split("?");
  const path = place.split("/").map(decodeURIComponent);
  const asked = new URLSearchParams(query || "");
  if (path[0] === "tubes" && path.length > 1) return ["tubes", new TasksView(path.slice(1).join("/"), asked)];
  if (path[0] === "tubes") return ["tubes", new TubesView(asked)];
  if (path[0] === "sessions") return ["sessions", new SessionsView()];
  if (path[0] === "cluster") return ["cluster", new ClusterView()];
  return ["overview", new OverviewView()];
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
    if (since !== null) fresh();
  } catch (error) {
    if (error.status === 401) signIn();
    else if (error.status === 0) stale();
    else if (asked === view) asked.failed(error);
  } finally {
    busy = false;
    if (asked !== view) refresh();
  }
}

// -- a node that is gone --------------------------------------------------------------------------

// What is shown is old from the moment nobody answers: grey, and nothing of it can be pressed.
const gone = document.getElementById("gone");
let since = null;
let known = "";
function stale() {
  live.textContent = "no connection";
  live.dataset.state = "off";
  if (since === null) since = Date.now();
  document.body.dataset.stale = "yes";
  main.inert = true;
  gone.hidden = false;
  tellGone();
}
function fresh() {
  if (since !== null) { live.textContent = "live"; live.dataset.state = "on"; }
  since = null;
  delete document.body.dataset.stale;
  main.inert = false;
  gone.hidden = true;
}
function tellGone() {
  if (since === null) return;
  const silent = seconds((Date.now() - since) / 1000);
  gone.textContent = `${location.host} does not answer since ${silent}: what you see below is old.${known ? ` Look at the console of ${known}.` : ""}`;
}
setInterval(() => { tellGone(); if (since !== null) refresh(); }, 1000);

// -- events ---------------------------------------------------------------------------------------

function listen() {
  if (events) events.stop();
  events = new Events();
  events.addEventListener("open", () => { live.textContent = "live"; live.dataset.state = "on"; fresh(); refresh(); });
  events.addEventListener("lost", stale);
  events.addEventListener("unauthorized", signIn);
  events.addEventListener("news", ({ detail }) => {
    if (detail.kind === "peers") known = detail.data.peers.map((peer) => peer.name || peer.address).join(" or ");
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
  fresh();
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

// Filters write themselves into the address: that is no other place.
window.addEventListener("hashchange", () => { if (view && location.hash !== view.address) show(); });
get("/v1/status").then(start, (error) => {
  if (error.status === 401) { token.set(null); signIn(); } else start();
});
