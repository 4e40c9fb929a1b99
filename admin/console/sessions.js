// Sessions, their connections, and who holds what.

import { get } from "./api.js";
import { count, h, num, seconds, table } from "./dom.js";

export class SessionsView {
  constructor() {
    this.after = 0;
    this.list = h("div");
    this.others = h("div");
    this.pages = h("p", { class: "buttons" });
    this.element = h("div", null, h("h1", null, "Sessions"), this.list, this.pages, h("h2", null, "Connections without a session"), this.others);
  }

  async refresh() {
    const page = await get("/v1/sessions", { after: this.after, limit: 50 });
    const rows = page.sessions.map((session) => [
      h("code", null, session.id),
      session.attached ? "attached" : `detached, ends in ${seconds(session.expires_seconds)}`,
      session.connections.length ? session.connections.map((one) => h("div", null, `${one.peer} as ${one.user}${one.waits ? `, ${one.waits} waiting` : ""}`)) : "–",
      count(session.held),
      session.tasks.length ? h("ul", { class: "plain" }, session.tasks.slice(0, 10).map((task) => h("li", null,
        h("a", { href: `#/tubes/${encodeURIComponent(task.tube)}` }, task.tube), ` ${task.id}, for ${seconds(task.held_seconds)}`)),
      session.held > 10 ? h("li", null, `and ${count(session.held - 10)} more`) : null) : "–"]);
    this.list.replaceChildren(table(`${count(page.total)} sessions, ${count(page.connections)} connections`, ["Session", "State", "Connections", num("Tasks"), "Holds"], rows, "no session: nobody has taken a task or asked for one"));
    const others = page.others.map((one) => [String(one.id), one.peer, one.user, one.tls ? "yes" : "no", one.replication ? "replication" : one.waits ? `${one.waits} waiting` : "–"]);
    this.others.replaceChildren(table("Producers, readers, peers", [num("Id"), "From", "User", "TLS", "Does"], others, "none"));
    this.pages.replaceChildren(...[
      this.after ? h("button", { type: "button", onclick: () => { this.after = Math.max(0, this.after - 50); this.refresh(); } }, "Back") : null,
      page.next !== null ? h("button", { type: "button", onclick: () => { this.after = page.next; this.refresh(); } }, "More") : null,
    ].filter(Boolean));
  }

  failed(error) { this.list.replaceChildren(h("p", { class: "bad", role: "alert" }, error.message)); }
  gone() {}
}
