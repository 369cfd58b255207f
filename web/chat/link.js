// link.js - the line to bellhop: calls, and the stream of events.
//
//   start --> open --lost--> waiting --(backoff, or somebody looks, or the line is back)--> open ...
//                 '--rest--> resting --(somebody looks)--> open
//
// The stream remembers the last event it saw and asks for what came after it.

const FIRST_WAIT_MS = 700;
const LONGEST_WAIT_MS = 15000;
const LONG_HIDDEN_MS = 60000; // a page hidden this long may have slept: ask anew when it is looked at

/** A call that did not work, told as what to do about it. */
export class CallError extends Error {
  constructor(message, { code = 'unreachable', status = 0 } = {}) {
    super(message);
    this.code = code;
    this.status = status;
  }
}

export class Link {
  /** @param {string} api  @param {{event: Function, up: Function, down: Function}} handlers */
  constructor(api, handlers) {
    this.api = api;
    this.handlers = handlers;
    this.last = '';
    this.wait = FIRST_WAIT_MS;
    this.source = null;
    this.timer = 0;
    this.hiddenAt = 0;
    document.addEventListener('visibilitychange', () => this.#looked());
    window.addEventListener('online', () => this.open());
    window.addEventListener('pageshow', (e) => { if (e.persisted) this.open(); });
    window.addEventListener('pagehide', () => this.#close());
  }

  open() {
    this.#close();
    const url = this.last ? `${this.api}/events?last=${this.last}` : `${this.api}/events`;
    const source = new EventSource(url);
    this.source = source;
    for (const type of ['message', 'edit', 'delta', 'interrupt', 'typing', 'state', 'reset', 'pressed']) {
      source.addEventListener(type, (e) => this.#got(type, e));
    }
    source.addEventListener('rest', () => this.#close());
    source.onerror = () => this.#lost();
  }

  async send(text, clientId, files = []) {
    return this.#call('message', files.length ? { text, client_id: clientId, files } : { text, client_id: clientId });
  }

  async press(prompt, option) {
    return this.#call('press', { prompt, option });
  }

  fileUrl(file) {
    return `${this.api}/file/${encodeURIComponent(file.id)}?k=${encodeURIComponent(file.key)}`;
  }

  /** Only XMLHttpRequest tells how far an upload is. */
  upload(file, progress) {
    const request = new XMLHttpRequest();
    const promise = new Promise((resolve, reject) => {
      const fail = () => {
        let said = {};
        try { said = JSON.parse(request.responseText); } catch { /* not ours */ }
        reject(new CallError(said.error || 'bellhop cannot be reached.', { code: said.code, status: request.status }));
      };
      request.open('POST', `${this.api}/file`);
      request.setRequestHeader('Content-Type', file.type || 'application/octet-stream');
      request.setRequestHeader('X-File-Name', encodeURIComponent(file.name || ''));
      request.upload.addEventListener('progress', (e) => { if (e.lengthComputable) progress(e.loaded / e.total); });
      request.addEventListener('load', () => {
        if (request.status !== 200) { fail(); return; }
        try { resolve(JSON.parse(request.responseText)); } catch { fail(); }
      });
      request.addEventListener('error', fail);
      request.addEventListener('abort', fail);
      request.send(file);
    });
    return { promise, abort: () => request.abort() };
  }

  async rename(name) {
    return this.#call('name', { name });
  }

  async history(before) {
    return this.#call(before ? `history?before=${before}` : 'history');
  }

  async #call(path, body) {
    const options = body === undefined ? {} : {
      method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body),
    };
    let answer, said;
    try {
      answer = await fetch(`${this.api}/${path}`, { cache: 'no-store', ...options });
    } catch {
      throw new CallError('bellhop cannot be reached.');
    }
    try {
      said = await answer.json();
    } catch {
      said = {};
    }
    if (!answer.ok) throw new CallError(said.error || `bellhop answered ${answer.status}.`, { code: said.code, status: answer.status });
    return said;
  }

  #got(type, e) {
    if (e.lastEventId > this.last) this.last = e.lastEventId; // fixed width: text order is number order
    this.wait = FIRST_WAIT_MS;
    let data;
    try {
      data = JSON.parse(e.data);
    } catch {
      return;
    }
    if (type === 'state') this.handlers.up();
    this.handlers.event(type, data);
  }

  #lost() {
    this.#close();
    this.handlers.down();
    this.timer = setTimeout(() => this.open(), this.wait * (0.75 + Math.random() / 2));
    this.wait = Math.min(this.wait * 2, LONGEST_WAIT_MS);
  }

  #looked() {
    if (document.hidden) {
      this.hiddenAt = Date.now();
      return;
    }
    if (!this.source || Date.now() - this.hiddenAt > LONG_HIDDEN_MS) this.open();
  }

  #close() {
    clearTimeout(this.timer);
    if (this.source) this.source.close();
    this.source = null;
  }
}
