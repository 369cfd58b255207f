// dom.js - elements, dialogs, notices, and how times and numbers are written.
//
// Every text goes through textContent.  Nothing here builds HTML from text, so a name or a message
// of a platform user stays text whatever it contains.

/** An element: h('p', { class: 'soft', onclick: f }, 'text', child, [children], null). */
export function h(tag, props, ...children) {
  const e = document.createElement(tag);
  fill(e, props, children);
  return e;
}

/** The same for SVG. */
export function svg(tag, props, ...children) {
  const e = document.createElementNS('http://www.w3.org/2000/svg', tag);
  fill(e, props, children);
  return e;
}

function fill(e, props, children) {
  for (const [name, value] of Object.entries(props || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) e.addEventListener(name.slice(2), value);
    else if (name === 'value') e.value = value;
    else e.setAttribute(name, value === true ? '' : String(value));
  }
  put(e, ...children);
}

/** Appends children; lists are flattened, null and false are skipped. */
export function put(e, ...children) {
  for (const c of children.flat(Infinity)) {
    if (c === null || c === undefined || c === false) continue;
    e.append(c instanceof Node ? c : document.createTextNode(String(c)));
  }
  return e;
}

export const set = (e, ...children) => { e.replaceChildren(); return put(e, ...children); };
export const $ = (id) => document.getElementById(id);

// ---- numbers and times ----

let skew = 0; // the server's clock minus ours

export function setNow(serverMs) { skew = serverMs - Date.now(); }
export const now = () => Date.now() + skew;

export function count(n) {
  if (n === null || n === undefined) return '–';
  if (n < 10000) return String(n);
  if (n < 1e6) return `${(n / 1e3).toFixed(n < 1e5 ? 1 : 0)}k`;
  return `${(n / 1e6).toFixed(1)}M`;
}

export function rate(n) {
  if (n === null || n === undefined || Number.isNaN(n)) return '–';
  return n === 0 ? '0' : n < 10 ? n.toFixed(1) : count(Math.round(n));
}

export function bytes(n) {
  if (!n) return '0 B';
  const i = Math.min(Math.floor(Math.log2(n) / 10), 4);
  const v = n / 2 ** (10 * i);
  return `${i && v < 10 ? v.toFixed(1) : Math.round(v)} ${['B', 'KiB', 'MiB', 'GiB', 'TiB'][i]}`;
}

/** A duration as people say it: "3 h", "4 min", "12 s". */
export function span(ms) {
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 90) return `${s} s`;
  if (s < 5400) return `${Math.round(s / 60)} min`;
  if (s < 129600) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86400)} d`;
}

export const ago = (at) => (!at ? 'never' : at - now() > 1500 ? `in ${span(at - now())}` : now() - at < 1500 ? 'just now' : `${span(now() - at)} ago`);

export function clock(at) {
  if (!at) return '–';
  const d = new Date(at);
  const day = d.toDateString() === new Date().toDateString() ? '' : `${d.toLocaleDateString('sv')} `;
  return day + d.toLocaleTimeString('sv');
}

/** A time that stays right while it is shown: refreshTimes() rewrites it. */
export function when(at) {
  if (!at) return h('span', { class: 'soft' }, 'never');
  return h('time', { 'data-at': at, datetime: new Date(at).toISOString(), title: clock(at) }, ago(at));
}

export function refreshTimes(root = document) {
  for (const e of root.querySelectorAll('time[data-at]')) {
    const text = ago(Number(e.dataset.at));
    if (e.textContent !== text) e.textContent = text;
  }
}

// ---- notices ----

const MOST_NOTICES = 4;

/** A notice at the edge of the page; with undo, a button that takes the change back. */
export function notice(text, { bad = false, undo = null } = {}) {
  const box = h('div', { class: bad ? 'toast bad' : 'toast' }, h('span', {}, text));
  const close = () => box.remove();
  if (undo) {
    box.append(h('button', {
      type: 'button', class: 'undo', onclick: async () => {
        close();
        try { await undo(); notice('Undone.'); } catch (e) { notice(e.message, { bad: true }); }
      },
    }, 'Undo'));
  }
  box.append(h('button', { type: 'button', class: 'close', 'aria-label': 'Dismiss', onclick: close }, '×'));
  $('toasts').append(box);
  while ($('toasts').children.length > MOST_NOTICES) $('toasts').firstChild.remove(); // they cover the page
  setTimeout(close, undo ? 20000 : bad ? 12000 : 5000);
}

// ---- dialogs ----

/** Opens a modal dialog and resolves when it closes, with the value of its form or null. */
export function dialog(title, body, { ok = 'OK', danger = false, cancel = 'Cancel', wide = false } = {}) {
  return new Promise((resolve) => {
    let answer = null;
    const form = h('form', { method: 'dialog' },
      h('h2', { id: 'dialog-title' }, title), body,
      h('p', { class: 'buttons' },
        cancel && h('button', { type: 'button', class: 'quiet', onclick: () => box.close() }, cancel),
        ok && h('button', { class: danger ? 'danger' : 'primary' }, ok)));
    const box = h('dialog', { 'aria-labelledby': 'dialog-title', class: wide ? 'wide' : '' }, form);
    form.addEventListener('submit', (e) => {
      e.preventDefault();
      answer = Object.fromEntries([...form.elements].filter((x) => x.name)
        .map((x) => [x.name, x.type === 'checkbox' ? x.checked : x.value.trim()]));
      box.close();
    });
    box.addEventListener('close', () => { box.remove(); resolve(answer); });
    document.body.append(box);
    box.showModal();
  });
}

export const sure = (title, words, verb, danger = true) =>
  dialog(title, h('p', {}, words), { ok: verb, danger }).then((a) => a !== null);

/** Shows something that is shown only once. */
export function secret(title, words, text) {
  const code = h('pre', { class: 'secret', tabindex: 0 }, text);
  const copy = h('button', {
    type: 'button', class: 'quiet', onclick: async () => {
      try {
        await navigator.clipboard.writeText(text);
        copy.textContent = 'Copied';
      } catch { // not allowed without TLS: select it, so that the keyboard can copy it
        const range = document.createRange();
        range.selectNodeContents(code);
        getSelection().removeAllRanges();
        getSelection().addRange(range);
      }
    },
  }, 'Copy');
  return dialog(title, [h('p', {}, words), code, h('p', {}, copy)], { ok: 'Done', cancel: null, wide: true });
}

/** A labelled field of a form. */
export function field(label, name, props = {}) {
  const { options, hint, type, ...rest } = props;
  const id = `f-${name}-${Math.floor(Math.random() * 1e9)}`;
  const hintId = hint ? `${id}-hint` : null;
  let input;
  if (options) {
    input = h('select', { id, name, 'aria-describedby': hintId, ...rest },
      options.map((o) => h('option', { value: Array.isArray(o) ? o[0] : o }, Array.isArray(o) ? o[1] : o)));
    if (rest.value !== undefined) input.value = rest.value;
  } else if (type === 'lines') {
    input = h('textarea', { id, name, rows: 5, spellcheck: 'false', 'aria-describedby': hintId, ...rest });
  } else if (type === 'checkbox') {
    return h('p', { class: 'field check' }, h('input', { id, name, type, ...rest }), h('label', { for: id }, label),
      hint && h('small', { id: hintId }, hint));
  } else {
    input = h('input', { id, name, type: type || 'text', autocomplete: 'off', spellcheck: 'false', 'aria-describedby': hintId, ...rest });
  }
  return h('p', { class: 'field' }, h('label', { for: id }, label), input, hint && h('small', { id: hintId }, hint));
}

// ---- tables ----

/** columns: [{ head, cell: row => node or text, class }].  Empty: says so in words. */
export function table(caption, columns, rows, { none = 'Nothing here.', actions = null } = {}) {
  if (!rows.length) return h('p', { class: 'none' }, none);
  const all = actions ? [...columns, { head: 'Actions', hide: true, class: 'actions', cell: actions }] : columns;
  return h('div', { class: 'tablebox', tabindex: 0, role: 'region', 'aria-label': `Table: ${caption}` },
    h('table', { role: 'table' }, h('caption', { class: 'hidden' }, caption), // roles: a narrow page shows rows as blocks
      h('thead', { role: 'rowgroup' }, h('tr', { role: 'row' }, all.map((c) => h('th', { scope: 'col', role: 'columnheader', class: c.class }, c.hide ? h('span', { class: 'hidden' }, c.head) : c.head)))),
      h('tbody', { role: 'rowgroup' }, rows.map((r) => h('tr', { role: 'row' },
        all.map((c) => h('td', { role: 'cell', class: c.class, 'data-head': c.hide ? '' : c.head }, c.cell(r))))))));
}

export const button = (label, onclick, props = {}) => h('button', { type: 'button', class: 'small', onclick, ...props }, label);

/** Runs an action: its button rests meanwhile, and an error becomes a notice. */
export async function act(e, fn) {
  const b = e && e.currentTarget;
  if (b) b.disabled = true;
  try {
    return await fn();
  } catch (err) {
    notice(err.message, { bad: true });
    return undefined;
  } finally {
    if (b) b.disabled = false;
  }
}

export function chip(state, text) {
  return h('span', { class: 'chip', 'data-state': state }, text || state);
}

export const person = (platform, id) => h('span', { class: 'person' }, h('span', { class: 'soft' }, `${platform} `), id);

/** What `status` warns of: { what, words, platform, bot }. */
export const warning = (w) => h('p', { class: 'warning' }, w.bot ? h('b', {}, `${w.platform} ${w.bot}: `) : null, w.words,
  w.what === 'dead_letters' ? [' ', h('a', { href: '#waiting' }, 'Show them')] : null);
