// chat.js - Test chat: write to a web bot as a visitor and see what comes back.
//
// It is the API of the chat page.  The visitor's token is made here and sent as a header, so the
// stream is read with fetch().
import { h, set, put, field, notice } from './dom.js';
import { latest, session } from './api.js';

const state = { bot: '', token: '', log: [], abort: null };
const PRESENCE = { never: 'no agent has connected yet', none: 'no agent answers here' };

function token() {
  const raw = crypto.getRandomValues(new Uint8Array(16));
  return `dashboard-${[...raw].map((b) => b.toString(16).padStart(2, '0')).join('')}`;
}

const api = (path) => `/chat/${encodeURIComponent(state.bot)}/api/${path}`;

async function post(path, body) {
  const a = await fetch(api(path), { method: 'POST', credentials: 'omit', body: JSON.stringify(body),
    headers: { 'Content-Type': 'application/json', 'X-Bellhop-Visitor': state.token } });
  const said = await a.json().catch(() => ({}));
  if (!a.ok) throw new Error(said.error || `bellhop answered ${a.status}.`);
  return said;
}

/** Reads server-sent events until the signal aborts. */
async function read(signal, got) {
  const a = await fetch(api('events'), { signal, credentials: 'omit', headers: { 'X-Bellhop-Visitor': state.token } });
  const reader = a.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split('\n\n');
    rest = blocks.pop();
    for (const b of blocks) {
      const type = /^event: (.*)$/m.exec(b);
      const data = /^data: (.*)$/m.exec(b);
      if (type && data) got(type[1], JSON.parse(data[1]));
    }
  }
}

export function mount(main) {
  const bots = (latest.bots || []).filter((b) => b.platform === 'web').map((b) => b.bot);
  if (!bots.length) {
    set(main, h('h1', {}, 'Test chat'), session.tenant === null
      ? [h('p', {}, 'The test chat writes to a web bot, and this server has none. Add one to the configuration and restart:'),
        h('pre', {}, 'platforms:\n  - {platform: web, bot: lobby}')]
      : h('p', { class: 'none' }, 'The test chat writes to a web bot, and none belongs to this tenant alone.'));
    // The list of bots may not have come yet.
    const timer = setInterval(() => { if ((latest.bots || []).some((b) => b.platform === 'web')) { clearInterval(timer); mount(main); } }, 300);
    return () => { clearInterval(timer); if (state.abort) state.abort.abort(); };
  }
  if (!bots.includes(state.bot)) Object.assign(state, { bot: bots[0], token: token(), log: [] });
  const log = h('div', { class: 'chatlog', role: 'log', 'aria-label': 'Conversation', tabindex: 0 });
  const presence = h('span', { class: 'soft', role: 'status' });
  const draw = () => {
    set(log, state.log.length ? state.log.map((m) => h('p', { class: `said ${m.from}` }, h('span', { class: 'hidden' }, m.from === 'agent' ? 'Agent: ' : 'You: '), m.text))
      : h('p', { class: 'none' }, 'Nothing was said yet.'));
    log.scrollTop = log.scrollHeight;
  };
  const got = (type, d) => {
    if (type === 'state') presence.textContent = PRESENCE[d.state] || `the agent is ${d.state}`;
    if (type === 'message' || type === 'edit') {
      const old = state.log.find((m) => m.id === d.id || (d.client_id && m.client === d.client_id));
      if (old) Object.assign(old, { id: d.id, text: d.text });
      else state.log.push({ id: d.id, from: d.from, text: d.text });
      draw();
    }
    if (type === 'delta') {
      const m = state.log.find((x) => x.id === d.id);
      if (m && m.text.length >= d.from) { m.text = m.text.slice(0, d.from) + d.text; draw(); }
    }
  };
  const open = async () => {
    if (state.abort) state.abort.abort();
    const abort = state.abort = new AbortController();
    while (!abort.signal.aborted) {
      try { await read(abort.signal, got); } catch { /* ended or lost: below */ }
      if (!abort.signal.aborted) await new Promise((r) => { setTimeout(r, 1500); });
    }
  };
  const choose = h('select', { 'aria-label': 'Bot', onchange: () => { Object.assign(state, { bot: choose.value, token: token(), log: [] }); draw(); open(); } },
    bots.map((b) => h('option', {}, b)));
  choose.value = state.bot;
  const box = h('input', { name: 'text', 'aria-label': 'Message', placeholder: 'Write to the agent', autocomplete: 'off' });
  set(main, h('h1', { class: 'hidden' }, 'Test chat'),
    h('p', { class: 'bar' }, h('label', {}, 'Bot ', choose), presence,
      h('button', { type: 'button', class: 'small', onclick: () => { Object.assign(state, { token: token(), log: [] }); draw(); open(); } }, 'New visitor')),
    log,
    h('form', { class: 'bar say', onsubmit: async (e) => {
      e.preventDefault();
      const text = box.value.trim();
      if (!text) return;
      box.value = '';
      const client = token().slice(-16);
      state.log.push({ client, from: 'visitor', text });
      draw();
      try { await post('message', { text, client_id: client }); } catch (err) { notice(err.message, { bad: true }); }
    } }, box, h('button', { class: 'primary' }, 'Send')));
  draw();
  open();
  return () => { if (state.abort) state.abort.abort(); };
}
