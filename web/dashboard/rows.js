// rows.js - the list of instances: as many as there are, and only those in sight are in the page.
//
// The server filters and sorts.  The list tells the server which window of rows is in sight, and gets
// these rows, later only those that changed.
import { h, set, count, bytes, when, refreshTimes, chip } from './dom.js';
import { look, live } from './api.js';

const ROW = 34;      // px, as in dashboard.css
const AHEAD = 25;    // rows beyond what is in sight
const MOST = 120;    // the server sends no more
const MAX_HEIGHT = 8e6; // browsers stop somewhere above

const COLUMNS = ['Instance', 'State', 'Mailbox', 'Oldest', 'Parked', 'Last in', 'Last out', 'Wake'];
export const STATE_WORDS = { live: 'live', away: 'away', asleep: 'asleep', never: 'never connected' };

export class Rows {
  /** open(row): somebody wants to see it.  none(): what is shown while there is no instance at all. */
  constructor(open, none) {
    this.open = open;
    this.none = none;
    this.want = { filter: '', state: '', waiting: false, sort: 'attention' };
    this.rows = new Map(); // number -> row
    this.order = [];
    this.offset = 0;
    this.found = 0;
    this.body = h('div', { class: 'rows-body', role: 'rowgroup' });
    this.table = h('div', { class: 'rows', role: 'table', 'aria-label': 'Instances', tabindex: 0 },
      h('div', { class: 'rows-head', role: 'rowgroup' }, h('div', { class: 'row head', role: 'row', 'aria-rowindex': 1 }, COLUMNS.map((c) => h('span', { role: 'columnheader' }, c)))),
      this.body);
    this.empty = h('div', { hidden: true });
    this.node = h('div', {}, this.table, this.empty);
    this.table.addEventListener('scroll', () => this.#scrolled(), { passive: true });
    this.onrows = (e) => this.#got(e.detail);
    this.onchanges = (e) => this.#changed(e.detail);
    this.elements = new Map(); // number -> element
  }

  start() {
    live.addEventListener('rows', this.onrows);
    live.addEventListener('changes', this.onchanges);
    this.#ask();
  }

  stop() {
    live.removeEventListener('rows', this.onrows);
    live.removeEventListener('changes', this.onchanges);
    look({ count: 0 });
  }

  set(change) {
    Object.assign(this.want, change);
    this.table.scrollTop = 0;
    this.#ask();
  }

  #inSight() {
    const first = Math.floor(this.table.scrollTop / ROW);
    return [first, Math.ceil(this.table.clientHeight / ROW) + 1];
  }

  #ask() {
    const [first, n] = this.#inSight();
    const offset = Math.max(0, first - AHEAD);
    this.asked = { offset, count: Math.min(MOST, n + 2 * AHEAD) };
    look({ ...this.want, ...this.asked });
  }

  #scrolled() {
    const [first, n] = this.#inSight();
    const { offset, count: have } = this.asked;
    const covered = first >= offset && Math.min(first + n, this.found) <= offset + have;
    if (covered || this.timer) return;
    this.timer = setTimeout(() => { this.timer = 0; this.#ask(); }, 60);
  }

  #got(d) {
    for (const r of d.rows) this.rows.set(r.n, r);
    this.found = d.found;
    if (!d.found && this.total !== d.total) set(this.empty, d.total ? h('p', { class: 'none' }, 'No instance fits.') : this.none());
    this.total = d.found ? null : d.total;
    this.table.setAttribute('aria-rowcount', d.found + 1);
    if (d.order) {
      this.order = d.order;
      this.offset = d.offset;
      const keep = new Set(d.order);
      for (const n of this.rows.keys()) if (!keep.has(n)) this.rows.delete(n);
    }
    this.body.style.height = `${Math.min(MAX_HEIGHT, Math.max(1, this.found) * ROW)}px`;
    this.#draw(new Set(d.rows.map((r) => r.n)));
  }

  #changed(rows) {
    for (const r of rows) if (this.rows.has(r.n)) this.rows.set(r.n, r);
    this.#draw(new Set(rows.map((r) => r.n)));
  }

  #draw(changed) {
    const shown = new Set(this.order);
    for (const [n, e] of this.elements) if (!shown.has(n)) { e.remove(); this.elements.delete(n); }
    this.order.forEach((n, i) => {
      const r = this.rows.get(n);
      if (!r) return;
      let e = this.elements.get(n);
      if (!e) {
        e = h('div', { class: 'row', role: 'row', 'data-n': n });
        this.elements.set(n, e);
        this.body.append(e);
        this.#fillRow(e, r);
      } else if (changed.has(n)) {
        this.#fillRow(e, r);
      }
      e.style.transform = `translateY(${(this.offset + i) * ROW}px)`;
      e.setAttribute('aria-rowindex', this.offset + i + 2);
    });
    this.empty.hidden = this.found > 0;
    this.table.hidden = this.found === 0;
    refreshTimes(this.body);
  }

  async #show(r) {
    await this.open(r);
    const e = this.elements.get(r.n); // it may have been drawn again meanwhile
    if (e) e.querySelector('button').focus();
  }

  #fillRow(e, r) {
    const focused = e.contains(document.activeElement);
    const cell = (cls, ...c) => h('span', { role: 'cell', class: cls }, ...c);
    e.dataset.state = r.state;
    e.classList.toggle('bad', r.parked > 0 || (Boolean(r.pokeProblem) && r.entries > 0));
    set(e,
      cell('name', h('button', { type: 'button', class: 'link', title: `${r.tenant}/${r.instance}`, onclick: () => this.#show(r) },
        h('span', { class: 'soft tenant' }, r.tenant), h('span', { class: 'soft' }, '/'), r.instance), r.displayName && r.displayName !== r.instance ? h('span', { class: 'soft display' }, r.displayName) : null),
      cell('state', chip(r.state, r.state === 'never' ? ['never', h('span', { class: 'long' }, ' connected')] : STATE_WORDS[r.state])),
      cell('num', r.entries ? [count(r.entries), h('small', { class: 'soft' }, ` ${bytes(r.bytes)}`)] : h('span', { class: 'soft' }, '0')),
      cell('', r.oldestAt ? when(r.oldestAt) : h('span', { class: 'soft' }, '–')),
      cell('num', r.parked ? h('b', { class: 'badtext' }, count(r.parked)) : h('span', { class: 'soft' }, '0')),
      cell('', when(r.lastInboundAt)), cell('', when(r.lastOutboundAt)),
      cell('wake', r.pokeProblem ? h('span', { class: 'badtext', title: r.pokeProblem }, r.pokeProblem) : h('span', { class: 'soft' }, r.wakeUrlRegistered ? 'wake URL' : '–')));
    if (focused) e.querySelector('button').focus();
  }
}
