// Tasks of one tube: pages, payloads, and what an operator may do to one or many.

import { get, post } from "./api.js";
import { ask, bytes, confirmed, count, h, moment, num, rate, seconds, table, toast } from "./dom.js";
import { pausedWords, tubeLinks } from "./tubes.js";

const ACTIONS = { kick: "Kick", bury: "Bury", release: "Release", delete: "Delete", move: "Move …" };
const FITS = { ready: ["bury", "delete", "move"], taken: ["release", "bury", "delete"], delayed: ["bury", "delete", "move"], buried: ["kick", "delete", "move"] };
const STATES = Object.keys(FITS);
const ALTERABLE = ["max_attempts", "dead_letter", "retry_delay", "retry_factor", "retry_delay_max", "retry_jitter", "capacity", "capacity_bytes", "overflow", "key_window", "ttl", "ttr"];
const LIMIT = 10000;

export class TasksView {
  constructor(tube, asked) {
    this.tube = tube;
    this.after = [null];
    this.chosen = new Set();
    this.open = new Set();
    this.tasks = [];
    const again = () => { this.after = [null]; this.chosen.clear(); this.write(); this.refresh(true); };
    this.state = h("select", { id: "state", onchange: again }, h("option", { value: "" }, "all"), STATES.map((s) => h("option", { value: s }, s)));
    this.subqueue = h("input", { id: "subqueue", autocomplete: "off", onchange: again });
    this.from = h("input", { id: "from", type: "number", min: "0", onchange: again });
    this.words = h("input", { id: "words", type: "search", autocomplete: "off", placeholder: "payload, header, reason", onchange: again });
    this.failedOnly = h("input", { id: "failed", type: "checkbox", onchange: again });
    this.fields = { state: this.state, subqueue: this.subqueue, from: this.from, search: this.words };
    for (const [name, field] of Object.entries(this.fields)) field.value = asked.get(name) || "";
    this.failedOnly.checked = asked.get("failed") === "true";
    this.facts = h("p", { class: "facts" });
    this.flow = h("div", { class: "bar", role: "group", "aria-label": "The whole tube" });
    this.bar = h("div", { class: "bar", role: "group", "aria-label": "Chosen tasks" });
    this.whole = h("div", { class: "bar", role: "group", "aria-label": "All tasks of the state" });
    this.list = h("div");
    this.pages = h("p", { class: "buttons" });
    this.element = h("div", null, h("p", null, h("a", { href: "#/tubes" }, "Tubes")), h("h1", null, tube), this.facts, this.flow,
      h("p", { class: "filters" }, h("label", { for: "state" }, "State"), this.state,
        h("label", { for: "subqueue" }, "Sub-queue"), this.subqueue, h("label", { for: "from" }, "From id"), this.from,
        h("label", { for: "words" }, "Contains"), this.words, h("label", { for: "failed" }, "Failed only"), this.failedOnly),
      this.whole, this.bar, this.list, this.pages);
  }

  // The address is the view: it can be kept, and sent to somebody.
  write() {
    const asked = new URLSearchParams();
    for (const [name, field] of Object.entries(this.fields)) if (field.value) asked.set(name, field.value);
    if (this.failedOnly.checked) asked.set("failed", "true");
    history.replaceState(null, "", `#/tubes/${encodeURIComponent(this.tube)}${asked.size ? `?${asked}` : ""}`);
  }

  filter() {
    return { tube: this.tube, state: this.state.value, subqueue: this.subqueue.value, search: this.words.value, failed: this.failedOnly.checked ? "true" : null };
  }

  async refresh(forced) {
    const first = this.after.at(-1) ?? (this.from.value ? Number(this.from.value) - 1 : null);
    const [page, tubes] = await Promise.all([
      get("/v1/tasks", { ...this.filter(), after: first, limit: 50 }),
      get("/v1/tubes", { search: this.tube, limit: 200 }),
    ]);
    const facts = tubes.tubes.find((one) => one.name === this.tube);
    this.showFacts(facts);
    this.showFlow(facts);
    this.showWhole(facts);
    // Who reads or chooses is not disturbed: ages are let stand while the focus is in the table.
    const ids = page.tasks.map((task) => `${task.id}${task.state}`).join();
    const busy = this.list.contains(document.activeElement) || this.list.querySelector("tbody:hover");
    if (!forced && busy && ids === this.ids) return;
    this.ids = ids;
    this.tasks = page.tasks;
    this.next = page.next;
    this.show();
  }

  showFacts(tube) {
    if (!tube) return;
    this.facts.textContent = `${tube.type} · ${STATES.map((s) => `${count(tube[s])} ${s}`).join(", ")} · put ${rate(tube.rates?.put)}/s, taken ${rate(tube.rates?.take)}/s, acked ${rate(tube.rates?.ack)}/s · oldest ready ${seconds(tube.oldest_ready_seconds)}`;
  }

  // Built anew only when it says something else: a button that is being used must not vanish.
  showFlow(tube) {
    const key = tube && JSON.stringify([tube.paused_puts, tube.paused_takes, tube.dead_letters_of, tube.options]);
    if (!tube || key === this.flowKey) return;
    this.flowKey = key;
    const side = (what, paused) => h("button", { type: "button", onclick: () => this.turn(paused ? "resume" : "pause", what) }, `${paused ? "Resume" : "Pause"} ${what}`);
    const from = tube.dead_letters_of;
    this.flow.replaceChildren(...[
      pausedWords(tube) ? h("b", { class: "warn" }, pausedWords(tube)) : null,
      side("puts", tube.paused_puts), side("takes", tube.paused_takes),
      h("button", { type: "button", onclick: () => this.alter(tube) }, "Alter …"),
      h("button", { type: "button", onclick: () => this.lookBack() }, "Look back …"),
      tube.options.dead_letter ? h("a", { href: `#/tubes/${encodeURIComponent(tube.options.dead_letter)}` }, "Its dead letters") : null,
      from.length ? h("span", null, "Dead letters of ", tubeLinks(from), ":") : null,
      from.length ? h("button", { type: "button", onclick: () => this.redrive(from) }, "Send back") : null,
    ].filter(Boolean));
  }

  async turn(action, what) {
    await this.sendTube({ tube: this.tube, action, what }, (done) => `${action} ${what}: ${pausedWords(done) || "all goes on"}`);
  }

  async alter(tube) {
    const fields = ALTERABLE.map((name) => [name, tube.options[name] ?? "",
      h("input", { id: `option-${name}`, autocomplete: "off", placeholder: "default", value: tube.options[name] === undefined ? "" : String(tube.options[name]) })]);
    const yes = await confirmed(`Alter ${this.tube}`, ["Holds at once, for tasks that are there too. An empty field is the default.",
      h("div", { class: "fields" }, fields.map(([name, , field]) => [h("label", { for: field.id }, name), field]))], "Alter");
    if (!yes) return;
    const options = {};
    for (const [name, before, field] of fields) {
      const text = field.value.trim();
      if (text !== String(before)) options[name] = text === "" ? null : /^-?\d+(\.\d+)?$/.test(text) ? Number(text) : text;
    }
    if (Object.keys(options).length) await this.sendTube({ tube: this.tube, action: "alter", options }, () => `altered: ${Object.keys(options).join(", ")}`);
  }

  async redrive(from) {
    const lines = [`Ready and buried tasks of ${this.tube} that died in ${from.join(", ")} go back there, the oldest first, at most ${count(LIMIT)}. Their attempts are forgotten.`];
    if (await confirmed("Send dead letters back?", lines, "Send back")) await this.sendTube({ tube: this.tube, action: "redrive" }, (done) => `sent back: ${count(done.moved)}`);
  }

  async sendTube(order, words) {
    try {
      toast(words(await post("/v1/tubes", order)));
    } catch (error) {
      toast(`${order.action}: ${error.message}`, true);
    }
    await this.refresh(true).catch((error) => this.failed(error));
  }

  showWhole(tube) {
    const state = this.state.value;
    const sifted = this.subqueue.value || this.words.value || this.failedOnly.checked;
    const key = `${state} ${tube ? tube[state] : ""} ${sifted ? "sifted" : ""}`;
    if (key === this.wholeKey) return;
    this.wholeKey = key;
    if (sifted) {
      this.whole.replaceChildren(h("button", { type: "button", onclick: () => this.chooseAll() }, "Choose all that fit"));
      return;
    }
    const many = state && tube && tube[state];
    this.whole.replaceChildren(...(many ? [h("span", null, `All ${count(tube[state])} ${state} tasks:`),
      FITS[state].map((action) => h("button", { type: "button", onclick: () => this.all(action, state) }, ACTIONS[action]))].flat() : []));
  }

  // All that the filter lets through, page by page: how many they are is seen before anything is done to them.
  async chooseAll() {
    try {
      let after = this.from.value ? Number(this.from.value) - 1 : null;
      do {
        const page = await get("/v1/tasks", { ...this.filter(), after, limit: 200 });
        for (const task of page.tasks) this.chosen.add(task.id);
        after = page.next;
      } while (after !== null && this.chosen.size < LIMIT);
      if (after !== null) toast(`The first ${count(this.chosen.size)} are chosen, there may be more.`);
      this.show();
    } catch (error) {
      toast(error.message, true);
    }
  }

  show() {
    const rows = this.tasks.map((task) => [
      h("input", { type: "checkbox", "aria-label": `Choose task ${task.id}`, checked: this.chosen.has(task.id),
        onchange: (e) => { this.chosen[e.target.checked ? "add" : "delete"](task.id); this.showBar(); } }),
      String(task.id), h("span", { class: `state-${task.state}` }, task.state), this.payload(task),
      this.story(task), [task.subqueue === null ? "–" : task.subqueue, task.priority ? h("div", { class: "muted" }, `priority ${task.priority}`) : null],
      seconds(task.age_seconds), seconds(task.due_seconds),
      task.holder ? h("span", { title: `session ${task.holder.session}` }, `${task.holder.peer || "not connected"}, ${seconds(task.holder.held_seconds)}`) : "–",
      h("span", { class: "row" }, h("button", { type: "button", class: "small", "aria-label": `History of task ${task.id}`, onclick: () => this.past(task.id) }, "History"), (FITS[task.state] || []).map((action) => h("button", { type: "button", class: "small",
        "aria-label": `${ACTIONS[action].replace(" …", "")} task ${task.id}`, onclick: () => this.change(action, [task.id]) }, ACTIONS[action])))]);
    const everyone = h("input", { type: "checkbox", "aria-label": "Choose all on this page",
      onchange: (e) => { for (const task of this.tasks) this.chosen[e.target.checked ? "add" : "delete"](task.id); this.show(); } });
    const left = this.list.querySelector(".scroll")?.scrollLeft || 0;
    this.list.className = "dense";
    this.list.replaceChildren(table(`Tasks of ${this.tube}`, [{ cell: everyone }, num("Id"), "State", "Payload", "Attempts", "Sub-queue", num("Age"), num("Due in"), "Held by", "Actions"],
      rows, this.next === null ? "no such task" : "none in this stretch, go on with More"));
    this.list.querySelector(".scroll").scrollLeft = left;
    this.pages.replaceChildren(...[
      this.after.length > 1 ? h("button", { type: "button", onclick: () => { this.after.pop(); this.refresh(true); } }, "Back") : null,
      this.next !== null ? h("button", { type: "button", onclick: () => { this.after.push(this.next); this.refresh(true); } }, "More") : null,
    ].filter(Boolean));
    this.showBar();
  }

  payload(task) {
    let pretty = task.payload;
    try { if (!/\d{16}/.test(pretty)) pretty = JSON.stringify(JSON.parse(pretty), null, 2); } catch { /* shown as it came */ }
    const size = `${bytes(task.payload_bytes)}${task.truncated ? ", cut" : ""}`;
    if (task.payload.length <= 60 && !task.truncated) return h("code", null, task.payload);
    return h("details", { open: this.open.has(task.id), ontoggle: (e) => this.open[e.target.open ? "add" : "delete"](task.id) },
      h("summary", null, h("code", null, `${task.payload.slice(0, 60)}…`), h("span", { class: "muted" }, ` ${size}`)), h("pre", null, pretty));
  }

  // What befell it so far: attempts, why it failed last, where it died, what its producer noted.
  story(task) {
    const failure = task.failure;
    const origin = failure?.from_tube ? `task ${failure.from_id} of ${failure.from_tube}, dead after ${count(failure.from_attempts)} attempts` : null;
    const noted = Object.entries(task.headers).map(([name, value]) => `${name}: ${value}`);
    const lines = [failure ? `${failure.reason} (${moment(failure.at)})` : null, origin, ...noted].filter(Boolean);
    const attempts = task.attempts === null ? "–" : String(task.attempts);
    return lines.length ? [attempts, h("div", { class: "muted story" }, lines.map((line) => h("div", null, line)))] : attempts;
  }

  // From the node's log: also what is long over. It is read while the dialog is open.
  readPast(list, wanted) {
    list.replaceChildren(h("p", { class: "muted" }, "reading the log …"));
    get("/v1/past", { tube: this.tube, ...wanted }, AbortSignal.timeout(40000)).then(({ steps }) => {
      const rows = steps.map((one) => [String(one.id), moment(one.at), one.call, `${one.state} ${one.moved}`.trim(), one.node, one.session ? one.session.slice(0, 8) : "–", one.reason || "–"]);
      list.replaceChildren(table(`${count(steps.length)} steps`, [num("Task"), "At", "Call", "State", "Node", "Session", "Reason"], rows, "the log, as far as it goes back, has nothing of it"));
    }, (error) => list.replaceChildren(h("p", { class: "bad", role: "alert" }, error.message)));
  }

  async past(id) {
    const list = h("div");
    this.readPast(list, { task: id });
    await ask(`Task ${id} of ${this.tube}`, (close) => [list, h("p", { class: "buttons" }, h("button", { type: "button", onclick: () => close(true) }, "Close"))]);
  }

  // What is done is in no table: it is asked for by id, by a field of its payload, or by words in it.
  async lookBack() {
    const list = h("div");
    const field = h("input", { id: "back", type: "search", autocomplete: "off", placeholder: "17, order=17, or words" });
    const look = () => {
      const text = field.value.trim();
      if (text) this.readPast(list, /^\d+$/.test(text) ? { task: text } : /^[^=\s{"]+=./.test(text) ? { field: text } : { find: text });
    };
    field.addEventListener("keydown", (e) => { if (e.key === "Enter") { e.preventDefault(); look(); } });
    await ask(`What happened in ${this.tube}`, (close) => [
      h("p", { class: "filters" }, h("label", { for: "back" }, "Task, field or words"), field, h("button", { type: "button", onclick: look }, "Look")), list,
      h("p", { class: "buttons" }, h("button", { type: "button", onclick: () => close(true) }, "Close"))]);
  }

  showBar() {
    const ids = [...this.chosen];
    this.bar.replaceChildren(...(ids.length ? [h("span", null, `${count(ids.length)} chosen:`),
      ...Object.keys(ACTIONS).map((action) => h("button", { type: "button", onclick: () => this.change(action, ids) }, ACTIONS[action])),
      h("button", { type: "button", class: "quiet", onclick: () => { this.chosen.clear(); this.show(); } }, "Choose none")] : []));
  }

  async target() {
    const field = h("input", { id: "target", autocomplete: "off", list: "targets" });
    const names = (await get("/v1/tubes", { limit: 200 })).tubes.map((tube) => tube.name).filter((name) => name !== this.tube);
    const yes = await confirmed(`Move tasks of ${this.tube}`, [h("label", { for: "target" }, "To the tube"), field,
      h("datalist", { id: "targets" }, names.map((name) => h("option", { value: name })))], "Move");
    return yes && field.value ? field.value : null;
  }

  async change(action, ids) {
    const to = action === "move" ? await this.target() : undefined;
    if (to === null) return;
    if (action === "bury" && ids.length > 1 && !(await confirmed("Bury?", [`${count(ids.length)} tasks of ${this.tube} are set aside until somebody kicks them.`], "Bury"))) return;
    if (action === "release" && !(await confirmed("Release?", [`${count(ids.length)} ${ids.length === 1 ? "task" : "tasks"} of ${this.tube}: whoever works on it loses it, and another worker begins.`], "Release"))) return;
    if (action === "delete" && !(await confirmed("Delete for good?", [`${count(ids.length)} ${ids.length === 1 ? "task" : "tasks"} of ${this.tube}`], "Delete"))) return;
    const parts = [];
    for (let at = 0; at < ids.length; at += 500) parts.push(ids.slice(at, at + 500));
    for (const part of parts) await this.send({ tube: this.tube, action, ids: part, to });
  }

  async all(action, state) {
    const to = action === "move" ? await this.target() : undefined;
    if (to === null) return;
    const order = { tube: this.tube, action, state, to, limit: LIMIT };
    try {
      const dry = await post("/v1/tasks", { ...order, dry_run: true });
      const more = dry.more ? [`There are more: at most ${count(LIMIT)} are changed at once.`] : [];
      if (await confirmed(`${ACTIONS[action].replace(" …", "")} ${count(dry.matched)} ${state} tasks?`, [`of ${this.tube}`, ...more], ACTIONS[action].replace(" …", ""))) await this.send(order);
    } catch (error) {
      toast(error.message, true);
    }
  }

  async send(order) {
    try {
      const result = await post("/v1/tasks", order);
      const failed = result.failed.length ? `; left: ${result.failed.slice(0, 3).map((one) => one.detail).join(", ")}` : "";
      toast(`${order.action}: ${count(result.done)} of ${count(result.matched)}${failed}`, result.failed.length > 0);
      this.chosen.clear();
    } catch (error) {
      toast(`${order.action}: ${error.message}`, true);
    }
    await this.refresh(true).catch((error) => this.failed(error));
  }

  failed(error) { this.list.replaceChildren(h("p", { class: "bad", role: "alert" }, error.message)); }
  gone() {}
}
