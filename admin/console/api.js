// The admin API. The token lives in this tab only and goes out in a header, never by itself: no
// other site can make this browser use it.

const KEY = "tandemq.token";

export const token = {
  get: () => sessionStorage.getItem(KEY),
  set: (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

export class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || `HTTP ${status}`);
    this.status = status;
    this.problem = problem;
    this.kind = String(problem.type || "").split(":").pop();
  }
}

function headers(more) {
  const found = { ...more };
  if (token.get()) found.Authorization = `Bearer ${token.get()}`;
  return found;
}

// A read that takes so long is one of a node that is gone; changes may take their time.
const READ_MS = 8000;

async function call(method, path, body, signal) {
  if (method === "GET" && !signal) signal = AbortSignal.timeout(READ_MS);
  const options = { method, signal, headers: headers(body === undefined ? {} : { "Content-Type": "application/json" }) };
  if (body !== undefined) options.body = JSON.stringify(body);
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, { detail: "the node does not answer" });
  }
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Refused(response.status, answer);
  return answer;
}

export const get = (path, query, signal) => {
  const pairs = Object.entries(query || {}).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return call("GET", pairs.length ? `${path}?${new URLSearchParams(pairs)}` : path, undefined, signal);
};
export const post = (path, body) => call("POST", path, body);
export const put = (path, body) => call("PUT", path, body);

// -- server-sent events ---------------------------------------------------------------------------
// By fetch, because EventSource cannot send a token.

const SILENCE_MS = 4000;

export class Events extends EventTarget {
  constructor() {
    super();
    this.lastId = null;
    this.stopped = false;
    this.abort = null;
  }

  tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }

  async run() {
    let wait = 500;
    while (!this.stopped) {
      try {
        this.abort = new AbortController();
        const more = { Accept: "text/event-stream" };
        if (this.lastId) more["Last-Event-ID"] = this.lastId;
        const response = await fetch("/v1/events", { headers: headers(more), signal: this.abort.signal });
        if (response.status === 401) { this.tell("unauthorized"); return; }
        if (!response.ok) throw new Error(`HTTP ${response.status}`);
        this.tell("open");
        wait = 500;
        await this.read(response.body.pipeThrough(new TextDecoderStream()).getReader());
      } catch (error) {
        if (this.stopped) return;
      }
      this.tell("lost");
      await new Promise((resolve) => setTimeout(resolve, wait));
      wait = Math.min(wait * 2, 5000);
    }
  }

  // A sample comes each second: a connection that was cut without a word is noticed by that.
  async read(reader) {
    let buffer = "";
    for (;;) {
      const silent = setTimeout(() => this.abort.abort(), SILENCE_MS);
      const { value, done } = await reader.read().finally(() => clearTimeout(silent));
      if (done) return;
      buffer += value;
      let end;
      while ((end = buffer.indexOf("\n\n")) >= 0) {
        this.event(buffer.slice(0, end));
        buffer = buffer.slice(end + 2);
      }
    }
  }

  event(block) {
    const fields = {};
    for (const line of block.split("\n")) {
      const at = line.indexOf(": ");
      if (at > 0) fields[line.slice(0, at)] = line.slice(at + 2);
    }
    if (fields.id) this.lastId = fields.id;
    if (fields.event && fields.data) this.tell("news", { kind: fields.event, data: JSON.parse(fields.data) });
  }

  stop() {
    this.stopped = true;
    if (this.abort) this.abort.abort();
  }
}
