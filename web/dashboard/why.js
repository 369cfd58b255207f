// why.js - Why: what became of a message or an action; Trace: watch one person, chat or instance;
// and what is slow.
import { h, set, put, when, clock, span, button, field, chip, table, act, notice, now } from './dom.js';
import { call, may, latest } from './api.js';

const KINDS = [['any', 'anything'], ['message', 'message id'], ['person', 'person'], ['chat', 'chat'], ['action', 'action'], ['delivery', 'delivery']];

// ---- one record ----

const STEP_STATE = { acked: 'good', settled: 'good', done: 'good', parked: 'bad', failed: 'bad', refused: 'bad', unknown: 'warn', resent: 'warn', retried: 'warn' };

function life(steps, names = new Map()) {
  if (!steps || !steps.length) return null;
  const first = steps[0].at;
  return h('ol', { class: 'life' }, steps.map((s) => h('li', { 'data-state': STEP_STATE[s.what] || 'idle' },
    h('b', {}, s.what), names.size > 1 && names.has(s.delivery) && h('span', { class: 'soft' }, ` ${names.get(s.delivery)}`), ' ', s.words || '',
    h('span', { class: 'soft' }, s.at > first ? ` +${s.at - first < 1000 ? `${s.at - first} ms` : span(s.at - first)}` : ` ${clock(s.at)}`))));
}

function summary(d) {
  if (d.refused) return ['bad', `The platform's adapter refused it: ${d.refused}`];
  if (d.consumed) return ['good', `It was a command to bellhop itself: ${d.consumed}`];
  const got = (d.verdicts || []).filter((v) => v.received);
  if (got.length) return ['good', `Received by ${got.map((v) => `${v.tenant}/${v.instance}`).join(', ')}`];
  if (!d.candidates && !(d.verdicts || []).length) return ['warn', 'Nobody received it: no route, link or scope leads anywhere.'];
  return ['warn', 'Nobody received it.'];
}

/** How far the message came: "delivered" once every instance that received it has acked. */
function progress(d) {
  const got = (d.verdicts || []).filter((v) => v.received);
  const last = new Map((d.steps || []).map((s) => [s.delivery, s.what]));
  const ends = got.filter((v) => v.delivery).map((v) => last.get(v.delivery));
  if (!ends.length) return ['idle', got[0].fate]; // a duplicate, or an edit of what was delivered
  for (const [what, state] of [['lost', 'bad'], ['parked', 'bad'], ['purged', 'warn']]) if (ends.includes(what)) return [state, what];
  if (ends.every((w) => w === 'acked' || w === 'settled')) return ['good', 'delivered'];
  return ['idle', ends.every((w) => w === 'sent' || w === 'resent') ? 'sent' : 'waits'];
}

export function decision(d) {
  const [found, words] = summary(d);
  const [state, word] = d.refused ? ['bad', 'refused'] : d.consumed ? ['good', 'command'] : found !== 'good' ? [found, 'not delivered'] : progress(d);
  const to = (query, text) => h('a', { href: `#why?${new URLSearchParams(query)}` }, text);
  return h('article', { class: 'record', 'data-state': state },
    h('p', { class: 'record-head' }, chip(state, word),
      h('b', {}, words), h('span', { class: 'right' }, when(d.at))),
    h('p', { class: 'soft ids' }, `${d.platform}${d.bot ? ` ${d.bot}` : ''}`,
      d.messageId && [' · message ', to({ q: d.messageId, kind: 'message' }, d.messageId)],
      d.userId && [' · person ', to({ q: d.userId, kind: 'person' }, d.userId)],
      d.chatId && [` · ${d.chatType || 'chat'} `, to({ q: d.chatId, kind: 'chat' }, d.chatId)]),
    h('ul', { class: 'verdicts' }, (d.verdicts || []).map((v) => h('li', { 'data-state': v.received ? 'good' : 'idle' },
      h('b', {}, `${v.tenant}/${v.instance}`), ` ${v.words || v.reason} `, h('code', {}, v.reason)))),
    d.candidates > (d.verdicts || []).length && h('p', { class: 'soft' }, `${d.candidates - d.verdicts.length} more were asked about.`),
    life(d.steps, new Map((d.verdicts || []).filter((v) => v.delivery).map((v) => [v.delivery, `${v.tenant}/${v.instance}`]))));
}

const ENDED = { done: 'good', refused: 'bad', failed: 'bad', expired: 'bad', dropped: 'idle', unknown: 'warn' };

export function action(a) {
  const state = ENDED[a.ended] || 'idle';
  return h('article', { class: 'record', 'data-state': state },
    h('p', { class: 'record-head' }, chip(state, a.ended || 'action'), h('b', {}, `${a.op || 'action'} by ${a.tenant || '?'}/${a.instance || '?'}`),
      h('span', { class: 'right' }, when(a.at))),
    h('p', { class: 'soft ids' }, [a.platform, a.bot, a.chat_id && `chat ${a.chat_id}`, a.message_id && `message ${a.message_id}`, a.id && `no. ${a.id}`, a.request && `request ${a.request}`,
      a.asked && a.at > a.asked && `took ${a.at - a.asked < 1000 ? `${a.at - a.asked} ms` : span(a.at - a.asked)}`, a.attempts > 1 && `${a.attempts} tries`, a.queued && 'queued'].filter(Boolean).join(' · ')),
    a.reason && h('p', {}, a.reason));
}

/** A record of a search, or of a trace: { kind, event | step | action }. */
const record = (r) => (r.kind && r[r.kind] ? (r.kind === 'event' ? decision(r.event) : r.kind === 'action' ? action(r.action) : h('article', { class: 'record' }, life([r.step])))
  : r.kind === 'action' || (r.ended && !r.verdicts) ? action(r) : decision(r));

// ---- search ----

/** The server may know fewer filters than this page: keep only what fits. */
const FITS = { message: (d, q) => d.messageId === q, person: (d, q) => d.userId === q, chat: (d, q) => d.chatId === q };

async function search(q, kind, platform, who) {
  const number = /^[0-9]{1,19}$/.test(q);
  const kinds = !q ? [''] : kind === 'any' ? ['message', 'person', 'chat', 'action', ...(number ? ['delivery'] : [])] : [kind];
  const value = (k) => (k === 'delivery' && number && JSON.rawJSON ? JSON.rawJSON(BigInt(q).toString()) : k === 'delivery' ? Number(q) : q); // may exceed a double
  const answers = await Promise.all(kinds.map((k) => call('why', { platform, ...who, ...(k ? { [k]: value(k) } : {}) })
    .then((a) => ({ ...a, k })).catch((e) => ({ error: e }))));
  const failed = answers.filter((a) => a.error);
  if (failed.length === answers.length) throw failed[0].error;
  const seen = new Set();
  const found = [];
  for (const a of answers) {
    for (const d of a.decisions || []) {
      const key = d.id || `${d.platform} ${d.messageId} ${d.at}`;
      if (a.k === 'delivery' ? !d.id : a.k && !(FITS[a.k] && FITS[a.k](d, q))) continue;
      if (!seen.has(key)) { seen.add(key); found.push(d); }
    }
    for (const x of a.actions || []) {
      const key = `a${x.id} ${x.at}`;
      if ((a.k === '' || a.k === 'action' || a.k === 'chat' || a.k === 'delivery') && !seen.has(key)) { seen.add(key); found.push({ ...x, kind: 'action' }); }
    }
  }
  return { found: found.sort((x, y) => y.at - x.at), next: answers.length === 1 ? answers[0].next : null };
}

function platforms() {
  return [['', 'any platform'], ...new Set((latest.bots || []).map((b) => b.platform))].map((p) => (Array.isArray(p) ? p : [p, p]));
}

function searchPart(query) {
  const results = h('div', { class: 'records', 'aria-live': 'polite' });
  const q = h('input', { type: 'search', name: 'q', 'aria-label': 'An id, a person or a chat', placeholder: 'An id, a person or a chat; empty: the newest', value: query.get('q') || '' });
  const kind = h('select', { 'aria-label': 'Kind' }, KINDS.map(([v, t]) => h('option', { value: v }, t)));
  kind.value = query.get('kind') || 'any';
  const platform = h('select', { 'aria-label': 'Platform' }, platforms().map(([v, t]) => h('option', { value: v }, t)));
  const who = { tenant: query.get('tenant') || '', instance: query.get('instance') || '' };
  const run = async (e) => {
    if (e) e.preventDefault();
    set(results, h('p', { class: 'soft' }, 'Looking…'));
    try {
      const { found, next } = await search(q.value.trim(), kind.value, platform.value, who);
      set(results, found.length ? found.map(record) : h('p', { class: 'none' }, q.value.trim() || who.instance || platform.value
        ? 'Nothing is known about it. Verdicts are kept for a bounded time.' : 'No message has come yet. Every message appears here, with the reason why somebody received it or nobody did.'),
        next && h('p', { class: 'soft' }, 'Older ones exist: ask for one id, person or chat.'));
    } catch (err) {
      set(results, h('p', { class: 'warning' }, err.message));
    }
  };
  run();
  return h('section', { 'aria-label': 'Search' },
    h('form', { class: 'bar search', onsubmit: run }, q, kind, platform, h('button', { class: 'primary' }, 'Ask')),
    who.instance && h('p', { class: 'soft' }, `Only ${who.tenant}/${who.instance}. `, h('a', { href: '#why' }, 'Everything')),
    results);
}

// ---- trace ----

const trace = { running: false, records: [], until: 0, what: null };

function save() {
  const text = trace.records.map((r) => JSON.stringify(r)).join('\n') + '\n';
  const url = URL.createObjectURL(new Blob([text], { type: 'application/x-ndjson' }));
  const a = h('a', { href: url, download: `bellhop-trace-${new Date().toISOString().slice(0, 19).replace(/:/g, '')}.jsonl` });
  document.body.append(a);
  a.click();
  a.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

function tracePart() {
  if (!may('trace')) return h('p', { class: 'none' }, 'This server has no trace, or this sign-in may not use it.');
  const list = h('div', { class: 'records', role: 'log', 'aria-label': 'Trace' });
  const state = h('span', { class: 'soft', role: 'status' });
  const draw = () => {
    set(list, trace.records.length ? trace.records.slice(-200).reverse().map(record)
      : h('p', { class: 'none' }, 'A trace shows every message of a person, a chat or an instance while it happens. Start it, then let the person write.'));
    state.textContent = trace.running ? `${trace.records.length} records, ${span(trace.until - Date.now())} left` : trace.records.length ? `${trace.records.length} records` : '';
    stop.disabled = !trace.running;
    keep.disabled = !trace.records.length;
  };
  const run = async () => {
    let after;
    while (trace.running && Date.now() < trace.until) {
      try {
        const a = await call('trace', { ...trace.what, after, wait: 15000 });
        after = a.after;
        if (a.records.length) {
          trace.records.push(...a.records);
          if (trace.records.length > 5000) trace.records.splice(0, trace.records.length - 5000);
        }
      } catch (e) {
        notice(e.message, { bad: true });
        trace.running = false;
      }
      draw();
    }
    trace.running = false;
    draw();
  };
  const start = (e) => {
    e.preventDefault();
    const f = e.target.elements;
    const v = f.what.value.trim();
    if (!v) return;
    const [tenant, ...rest] = v.split('/');
    trace.what = f.kind.value === 'instance' ? { tenant: rest.length ? tenant : '', instance: rest.length ? rest.join('/') : tenant } : { [f.kind.value]: v };
    trace.records = [];
    trace.until = Date.now() + Number(f.minutes.value) * 60000;
    const fresh = !trace.running;
    trace.running = true;
    if (fresh) run();
    draw();
  };
  const stop = button('Stop', () => { trace.running = false; draw(); });
  const keep = button('Save to a file', save);
  draw();
  return h('section', { 'aria-label': 'Trace' },
    h('form', { class: 'bar', onsubmit: start },
      h('label', {}, 'Watch ', h('select', { name: 'kind' }, ['person', 'chat', 'instance'].map((k) => h('option', {}, k)))),
      h('input', { name: 'what', 'aria-label': 'Which', placeholder: 'its id, or tenant/instance', required: true }),
      h('label', {}, 'for ', h('select', { name: 'minutes' }, [1, 5, 15, 60].map((m) => h('option', { value: m }, `${m} min`)))),
      h('button', { class: 'primary' }, 'Start'), stop, keep, state),
    list);
}

// ---- slow ----

function slowPart() {
  if (!may('slow')) return h('p', { class: 'none' }, 'This server keeps no list of slow deliveries, or this sign-in may not read it.');
  const box = h('div', {});
  const draw = async () => {
    const s = await call('slow');
    set(box,
      h('h3', {}, 'Waiting longest'), table('Instances whose mail has waited longest', [
        { head: 'Instance', class: 'wrap', cell: (r) => h('a', { href: `#why?${new URLSearchParams({ tenant: r.tenant, instance: r.instance })}` }, `${r.tenant}/${r.instance}`) },
        { head: 'State', cell: (r) => chip(r.state) },
        { head: 'Age', class: 'num', cell: (r) => span(r.ageMs) },
        { head: 'Waiting', class: 'num', cell: (r) => r.waiting },
        { head: 'Unacked', class: 'num', cell: (r) => r.unacked },
        { head: 'Parked', class: 'num', cell: (r) => r.parked },
      ], s.unacked || [], { none: 'Nothing waits.' }),
      h('h3', {}, 'Slowest accept to ack'), table('Slowest from accept to ack', [
        { head: 'Instance', class: 'wrap', cell: (r) => `${r.tenant}/${r.instance}` },
        { head: 'Took', class: 'num', cell: (r) => (r.ms < 1000 ? `${r.ms} ms` : span(r.ms)) },
        { head: 'At', cell: (r) => when(r.at) },
        { head: 'Delivery', cell: (r) => h('a', { href: `#why?${new URLSearchParams({ q: r.delivery, kind: 'delivery' })}` }, String(r.delivery)) },
      ], s.slowest || [], { none: 'Nothing was acked yet.' }));
  };
  const again = (e) => act(e, draw);
  again();
  return h('section', { 'aria-labelledby': 'slow-title' }, h('div', { class: 'bar' }, h('h2', { id: 'slow-title' }, 'Slow'), button('Read again', again)), box);
}

const PARTS = { search: 'Search', trace: 'Trace', slow: 'Slow' };

export function mount(main, query) {
  const part = PARTS[query.get('part')] ? query.get('part') : 'search';
  const body = part === 'trace' ? tracePart() : part === 'slow' ? slowPart()
    : may('why') ? searchPart(query) : h('p', { class: 'none' }, 'This sign-in may not read verdicts.');
  set(main, h('h1', { class: 'hidden' }, 'Why'),
    h('div', { class: 'tabs', role: 'navigation', 'aria-label': 'Parts' }, Object.entries(PARTS).map(([k, t]) => h('a', { href: k === 'search' ? '#why' : `#why?part=${k}`, 'aria-current': k === part ? 'page' : null }, t))),
    body);
}
