// thread.js - the conversation as elements, in the order of message ids.
//
// A message is one element from the moment it is written: first under its client_id (sending, failed),
// then under its id.  Being told something twice changes nothing; an older revision never wins.

import { showFiles } from './files.js';
import { markdown } from './markdown.js';

const LIVE_MS = 2000; // a text that has not changed for so long is not being written any more
const PREVIEW_MS = 30000; // a preview that has not changed for so long disappears
const TOGETHER_MS = 5 * 60000; // messages of one author this close read as one
const time = new Intl.DateTimeFormat(undefined, { hour: 'numeric', minute: '2-digit' });
const day = new Intl.DateTimeFormat(undefined, { weekday: 'long', day: 'numeric', month: 'long' });

function el(name, className, text) {
  const e = document.createElement(name);
  if (className) e.className = className;
  if (text !== undefined) e.textContent = text;
  return e;
}

export class Thread {
  /** @param {HTMLElement} log  @param {{retry: Function, press: Function, fileUrl: Function}} handlers */
  constructor(log, handlers) {
    this.log = log;
    this.handlers = handlers;
    this.byId = new Map();
    this.byClient = new Map();
    this.drafts = new Map(); // previews of answers that are being written
    log.addEventListener('click', (e) => this.#clicked(e));
  }

  get size() {
    return this.log.childElementCount;
  }

  get oldestId() {
    return this.log.querySelector('.message[data-id]')?.dataset.id;
  }

  /** A message from the server.  Returns the entry and whether it was not known before. */
  put(message) {
    let entry = this.byId.get(message.id) || (message.client_id && this.byClient.get(message.client_id));
    const isNew = !entry;
    if (isNew && message.from === 'agent') this.#endDrafts();
    if (entry && entry.rev && entry.rev >= message.rev) return { entry, isNew: false };
    if (!entry) entry = this.#make(message);
    const moved = entry.id !== message.id;
    Object.assign(entry, message, { status: 'sent' });
    this.byId.set(entry.id, entry);
    if (entry.client_id) this.byClient.set(entry.client_id, entry);
    if (isNew || moved) this.#place(entry);
    this.#fill(entry);
    return { entry, isNew };
  }

  /** An edit may come without the rest of the message when bellhop keeps no history. */
  edit(message) {
    const entry = this.byId.get(message.id);
    const done = this.put(entry ? { ...message, at: entry.at } : message);
    if (entry?.live?.startsWith(message.text)) this.#live(entry, entry.live); // the page is ahead of the store
    return done;
  }

  /** The text of a message, or of a preview, from UTF-16 unit @from on.  False: nothing to show it in. */
  grow({ id, draft, from, text }) {
    let entry = id === undefined ? this.drafts.get(draft) : this.byId.get(id);
    if (!entry && (id !== undefined || from !== 0)) return false;
    if (!entry) {
      entry = this.#make({ from: 'agent' });
      Object.assign(entry, { from: 'agent', text: '', at: Date.now(), status: 'sent', draft });
      this.drafts.set(draft, entry);
      this.log.append(entry.element);
      this.#fill(entry);
      this.#decorateAround(entry.element);
    }
    const before = entry.live ?? entry.text;
    if (from > before.length) return false; // what is before was missed: the whole text comes soon
    this.#live(entry, before.slice(0, from) + text);
    return true;
  }

  #live(entry, text) {
    entry.live = text;
    entry.element.classList.add('live');
    entry.body.replaceChildren(...this.#quote(entry), markdown(text), ...showFiles(entry.files, this.handlers.fileUrl));
    clearTimeout(entry.liveTimer);
    entry.liveTimer = setTimeout(() => {
      entry.element.classList.remove('live');
      if (entry.draft === undefined) entry.live = undefined;
      else this.#endDrafts(entry);
    }, entry.draft === undefined ? LIVE_MS : PREVIEW_MS);
  }

  #endDrafts(only) {
    for (const [draft, entry] of this.drafts) {
      if (only && only !== entry) continue;
      clearTimeout(entry.liveTimer);
      const before = entry.element.previousElementSibling;
      entry.element.remove();
      if (before) this.#decorate(before);
      this.drafts.delete(draft);
    }
  }

  /** A message of our own that the server has not confirmed. */
  putLocal({ client_id, text, files, at, status }) {
    const entry = this.#make({ from: 'visitor', client_id, text, at });
    Object.assign(entry, { client_id, text, files, at, status, from: 'visitor' });
    this.byClient.set(client_id, entry);
    this.log.append(entry.element);
    this.#fill(entry);
    this.#decorateAround(entry.element);
    return entry;
  }

  /** The server took it under @id, or did not (@error is a sentence). */
  settle(entry, { id, error }) {
    if (id !== undefined && this.byId.has(id) && this.byId.get(id) !== entry) {
      entry.element.remove(); // its echo came first, without a client id to know it by
      return;
    }
    if (id !== undefined && !entry.id) {
      entry.id = id;
      this.byId.set(id, entry);
      this.#place(entry);
    }
    entry.status = error === undefined ? 'sent' : 'failed';
    entry.error = error;
    this.#status(entry);
  }

  sending(entry) {
    entry.status = 'sending';
    entry.error = undefined;
    this.#status(entry);
  }

  /** A question of the agent's is being answered, or could not be (@error is a sentence). */
  pressing(entry, on, error) {
    entry.pressing = on;
    entry.promptError = error;
    this.#prompt(entry);
  }

  /** A question was answered. */
  pressed(id, option) {
    const entry = this.byId.get(id);
    if (!entry?.prompt) return;
    entry.prompt.chosen = option;
    this.pressing(entry, false);
  }

  // ---- making ----

  #make(message) {
    const element = el('article', `message ${message.from}`);
    const entry = { element };
    const said = el('span', 'hidden', message.from === 'agent' ? 'Agent: ' : 'You: ');
    entry.dayElement = el('p', 'day');
    entry.body = el('div', 'bubble');
    entry.meta = el('p', 'meta');
    entry.time = el('time');
    entry.editedMark = el('span', 'edited', 'edited');
    entry.state = el('span', 'state');
    entry.retry = el('button', 'retry', 'Try again');
    entry.retry.type = 'button';
    entry.question = el('div', 'prompt');
    entry.question.setAttribute('role', 'group');
    entry.question.hidden = true;
    entry.meta.append(entry.time, entry.editedMark, entry.state, entry.retry);
    element.append(entry.dayElement, said, entry.body, entry.question, entry.meta);
    element.entry = entry;
    return entry;
  }

  #fill(entry) {
    const { element, body } = entry;
    if (entry.id) element.dataset.id = entry.id;
    if (entry.id) element.id = `m-${entry.id}`;
    element.classList.toggle('stop', entry.kind === 'stop');
    if (entry.kind === 'stop' || (entry.from === 'visitor' && entry.text.trim() === '/stop')) {
      element.classList.add('stop');
      body.textContent = 'You asked the agent to stop';
    } else if (entry.from === 'agent') {
      body.replaceChildren(...this.#quote(entry), markdown(entry.text), ...showFiles(entry.files, this.handlers.fileUrl));
    } else {
      body.replaceChildren(entry.text, ...showFiles(entry.files, this.handlers.fileUrl));
    }
    this.#prompt(entry);
    const at = new Date(entry.at);
    entry.time.dateTime = at.toISOString();
    entry.time.textContent = time.format(at);
    entry.time.title = at.toLocaleString();
    entry.editedMark.hidden = !entry.edited;
    this.#status(entry);
  }

  #status(entry) {
    entry.element.dataset.status = entry.status;
    entry.state.textContent = { sending: 'Sending…', failed: entry.error || 'Not sent.' }[entry.status] || '';
    entry.retry.hidden = entry.status !== 'failed';
  }

  /** The buttons of a question: dead once it is answered or its time is up. */
  #prompt(entry) {
    const { prompt, question } = entry;
    question.hidden = !prompt;
    if (!prompt) return;
    const left = prompt.until - Date.now();
    const over = prompt.chosen === undefined && (left <= 0 || prompt.over);
    question.replaceChildren(...prompt.options.map((o) => {
      const b = el('button', `option ${o.style}`, o.label);
      b.type = 'button';
      b.dataset.option = o.id;
      b.disabled = over || entry.pressing || prompt.chosen !== undefined;
      b.classList.toggle('chosen', prompt.chosen === o.id);
      if (prompt.chosen === o.id) b.setAttribute('aria-pressed', 'true');
      return b;
    }));
    if (over || entry.promptError) question.append(el('p', 'prompt-note', entry.promptError || 'Its time is up.'));
    clearTimeout(entry.promptTimer);
    if (!over && prompt.chosen === undefined) entry.promptTimer = setTimeout(() => this.#prompt(entry), Math.min(left + 50, 2 ** 31 - 1));
  }

  /** What is answered, when it is not simply the message before. */
  #quote(entry) {
    const to = entry.reply_to && this.byId.get(entry.reply_to);
    if (!to || to.kind === 'stop') return [];
    let before = entry.element.previousElementSibling;
    while (before && before.entry.from === 'agent') before = before.previousElementSibling;
    if (before === to.element || !before) return [];
    const a = el('a', 'reply', to.text.length > 120 ? `${to.text.slice(0, 120)}…` : to.text);
    a.href = `#m-${to.id}`;
    return [a];
  }

  // ---- placing ----

  #place(entry) {
    let before = this.log.lastElementChild;
    while (before && (before === entry.element || !before.entry.id || before.entry.id > entry.id)) before = before.previousElementSibling;
    const was = entry.element.nextElementSibling;
    if (before) before.after(entry.element);
    else this.log.prepend(entry.element);
    if (was) this.#decorate(was);
    this.#decorateAround(entry.element);
  }

  #decorateAround(element) {
    this.#decorate(element);
    if (element.previousElementSibling) this.#decorate(element.previousElementSibling);
    if (element.nextElementSibling) this.#decorate(element.nextElementSibling);
  }

  #decorate(element) {
    const { entry } = element;
    const before = element.previousElementSibling?.entry;
    const after = element.nextElementSibling?.entry;
    const newDay = !before || new Date(before.at).toDateString() !== new Date(entry.at).toDateString();
    const together = (a, b) => a && b && a.from === b.from && a.kind !== 'stop' && b.kind !== 'stop' &&
      Math.abs(b.at - a.at) < TOGETHER_MS && new Date(a.at).toDateString() === new Date(b.at).toDateString();
    entry.dayElement.hidden = !newDay;
    entry.dayElement.textContent = newDay ? this.#dayName(new Date(entry.at)) : '';
    element.classList.toggle('first', !together(before, entry));
    element.classList.toggle('last', !together(entry, after));
  }

  #dayName(date) {
    const days = Math.round((new Date().setHours(0, 0, 0, 0) - new Date(date).setHours(0, 0, 0, 0)) / 86400000);
    return days === 0 ? 'Today' : days === 1 ? 'Yesterday' : day.format(date);
  }

  async #clicked(e) {
    const button = e.target.closest('button');
    if (!button) return;
    if (button.classList.contains('retry')) this.handlers.retry(button.closest('.message').entry);
    if (button.classList.contains('option')) this.handlers.press(button.closest('.message').entry, button.dataset.option);
    if (!button.classList.contains('copy')) return;
    const text = button.closest('.code').querySelector('code').textContent;
    const done = await copyText(text);
    button.textContent = done ? 'Copied' : 'Press Ctrl+C';
    setTimeout(() => { button.textContent = 'Copy'; }, 2000);
  }
}

/** The clipboard needs a secure page; elsewhere a selection is the next best thing. */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = el('textarea');
    area.value = text;
    area.className = 'hidden';
    document.body.append(area);
    area.select();
    const done = document.execCommand('copy');
    area.remove();
    return done;
  }
}
