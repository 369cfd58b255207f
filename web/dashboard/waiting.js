// waiting.js - Waiting: parked deliveries and the outbox, to show, try again or drop, also in bulk.
import { h, set, count, bytes, when, button, chip, table, act, notice, sure, dialog } from './dom.js';
import { call, callAll, may, session } from './api.js';

/** A table whose rows can be chosen.  verbs: [{ label, run(rows), confirm, danger }] */
function choosing(caption, columns, rows, verbs, none) {
  const chosen = new Set();
  const said = h('span', { class: 'soft', role: 'status' });
  const boxes = [];
  const all = h('input', { type: 'checkbox', 'aria-label': 'Choose all', onchange: () => {
    boxes.forEach((b, i) => { b.checked = all.checked; if (all.checked) chosen.add(rows[i]); else chosen.delete(rows[i]); });
    draw();
  } });
  const buttons = verbs.map((v) => button(v.label, (e) => act(e, async () => {
    const list = [...chosen];
    if (v.confirm && !await sure(v.confirm(list), 'This cannot be undone.', v.label)) return;
    await v.run(list);
  }), { class: v.danger ? 'small danger' : 'small' }));
  const draw = () => {
    said.textContent = chosen.size ? `${chosen.size} chosen` : '';
    buttons.forEach((b) => { b.disabled = !chosen.size; });
    all.checked = rows.length > 0 && chosen.size === rows.length;
    all.indeterminate = chosen.size > 0 && chosen.size < rows.length;
  };
  draw();
  if (!rows.length) return h('p', { class: 'none' }, none);
  const pick = (r) => {
    const b = h('input', { type: 'checkbox', 'aria-label': `Choose ${r.label}`, onchange: () => {
      if (b.checked) chosen.add(r); else chosen.delete(r);
      draw();
    } });
    boxes.push(b);
    return b;
  };
  return [
    verbs.length > 0 && h('p', { class: 'bar' }, h('label', {}, all, ' all'), buttons, said),
    table(caption, verbs.length ? [{ head: 'Chosen', hide: true, cell: pick }, ...columns] : columns, rows, {}),
  ];
}

// ---- parked deliveries ----

async function showParked(r) {
  const body = h('div', {}, h('p', { class: 'soft' }, 'Reading…'));
  call('showMailbox', { tenant: r.tenant, instance: r.instance, limit: 500, bodies: '1' }).then((box) => {
    const e = box.entries.find((x) => String(x.id) === String(r.delivery)) || (r.delivery === undefined ? null : undefined);
    const list = e === null ? box.entries.filter((x) => x.parked) : e ? [e] : [];
    set(body, list.length ? list.map((x) => [h('p', {}, chip('bad', 'parked'), ' ', x.parked || '', ' ', when(x.at)), h('pre', { class: 'frame', tabindex: 0 }, JSON.stringify(x.frame, null, 2))])
      : h('p', { class: 'none' }, 'It is gone.'));
  }).catch((err) => set(body, h('p', { class: 'warning' }, err.message)));
  await dialog(`${r.tenant}/${r.instance}`, body, { ok: null, cancel: 'Close', wide: true });
}

/** Parked deliveries one by one, or, on a server without such a list, per instance. */
async function readParked() {
  if (may('listDead')) {
    const a = await callAll('listDead', {}, 4);
    return { rows: a.parked.map((r) => ({ ...r, label: `delivery ${r.delivery}` })), more: a.more, single: true };
  }
  const a = await callAll('status', { waiting: '1' }, 20);
  return { rows: a.instances.filter((r) => r.parked > 0).map((r) => ({ ...r, label: `${r.tenant}/${r.instance}` })), more: a.more, single: false };
}

const change = async (op, list) => {
  const groups = new Map();
  for (const r of list) {
    const key = JSON.stringify([r.tenant, r.instance]);
    groups.set(key, [...(groups.get(key) || []), r.delivery]);
  }
  let n = 0;
  for (const [key, deliveries] of groups) {
    const [tenant, instance] = JSON.parse(key);
    n += (await call(op, { tenant, instance, ...(deliveries[0] === undefined ? {} : { deliveries: deliveries.map(String) }) })).deliveries;
  }
  return n;
};

function parkedPart() {
  const box = h('div', {}, h('p', { class: 'soft' }, 'Reading…'));
  const draw = async () => {
    const { rows, more, single } = await readParked();
    const verbs = session.readOnly ? [] : [
      may(single ? 'redriveDead' : 'redriveMailbox') && { label: 'Redrive', run: async (l) => { const n = await change(single ? 'redriveDead' : 'redriveMailbox', l); notice(`${n} put back in line.`); await draw(); } },
      single && may('dropDead') && { label: 'Drop', danger: true, confirm: (l) => `Drop ${l.length} parked ${l.length === 1 ? 'message' : 'messages'}?`, run: async (l) => { const n = await change('dropDead', l); notice(`${n} dropped.`); await draw(); } },
    ].filter(Boolean);
    const columns = [
      { head: 'Instance', class: 'wrap', cell: (r) => h('span', {}, h('span', { class: 'soft' }, `${r.tenant}/`), r.instance) },
      single ? { head: 'Since', cell: (r) => when(r.at) } : { head: 'Parked', class: 'num', cell: (r) => count(r.parked) },
      single && { head: 'Tries', class: 'num', cell: (r) => r.attempts },
      single && { head: 'Delivery', cell: (r) => h('a', { href: `#why?${new URLSearchParams({ q: r.delivery, kind: 'delivery' })}` }, r.delivery) },
      { head: 'Size', class: 'num', cell: (r) => bytes(r.bytes) },
      { head: 'Show', hide: true, class: 'actions', cell: (r) => button('Show', () => showParked(r), { 'aria-label': `Show ${r.label}` }) },
    ].filter(Boolean);
    set(box, choosing('Parked deliveries', columns, rows, verbs, 'Nothing is parked.'), more && h('p', { class: 'soft' }, 'There are more; these are the first.'));
  };
  const again = (e) => act(e, draw);
  again();
  return h('section', { 'aria-labelledby': 'parked-title' }, h('div', { class: 'bar' }, h('h2', { id: 'parked-title' }, 'Parked'), button('Read again', again, { id: 'parked-again' })),
    h('p', { class: 'soft' }, 'Messages that no gateway acked after many tries. They wait here until somebody decides.'), box);
}

// ---- outbox ----

const OUT_STATE = { unknown: 'warn', trying: 'good', waiting: 'idle' };

async function showOutgoing(r) {
  const body = h('div', {}, h('p', { class: 'soft' }, 'Reading…'));
  call('showOutbox', { id: r.id }).then((a) => set(body, h('pre', { class: 'frame', tabindex: 0 }, JSON.stringify(a.entries[0], null, 2))))
    .catch((err) => set(body, h('p', { class: 'warning' }, err.message)));
  await dialog(`Outbox ${r.id}`, body, { ok: null, cancel: 'Close', wide: true });
}

async function eachOf(op, list) {
  let done = 0;
  let last = null;
  for (let i = 0; i < list.length; i += 8) {
    await Promise.all(list.slice(i, i + 8).map((r) => call(op, { id: r.id }).then(() => { done++; }).catch((e) => { last = e; })));
  }
  if (last && !done) throw last;
  return last ? `${done} done; of the others: ${last.message}` : `${done} done.`;
}

function outboxPart() {
  if (!may('showOutbox')) return null;
  const box = h('div', {}, h('p', { class: 'soft' }, 'Reading…'));
  const draw = async () => {
    const a = await call('showOutbox');
    const verbs = session.readOnly || !may('retryOutgoing') ? [] : [
      { label: 'Try again', run: async (l) => { notice(await eachOf('retryOutgoing', l)); await draw(); } },
      { label: 'Drop', danger: true, confirm: (l) => `Give up ${l.length} ${l.length === 1 ? 'answer' : 'answers'}?`, run: async (l) => { notice(await eachOf('dropOutgoing', l)); await draw(); } },
    ];
    set(box, choosing('Outbox', [
      { head: 'State', cell: (r) => chip(OUT_STATE[r.state] || 'idle', r.state) },
      { head: 'From', class: 'wrap', cell: (r) => h('span', {}, h('span', { class: 'soft' }, `${r.tenant}/`), r.instance) },
      { head: 'To', cell: (r) => `${r.platform} ${r.chat_id || ''}` },
      { head: 'What', cell: (r) => r.op },
      { head: 'Since', cell: (r) => when(r.since) },
      { head: 'Tries', class: 'num', cell: (r) => r.attempts },
      { head: 'Next', cell: (r) => (r.next_try ? when(r.next_try) : '–') },
      { head: 'Last error', class: 'wrap', cell: (r) => r.last_error || '' },
      { head: 'Show', hide: true, class: 'actions', cell: (r) => button('Show', () => showOutgoing(r), { 'aria-label': `Show ${r.id}` }) },
    ], a.entries.map((r) => ({ ...r, label: r.id })), verbs, 'The outbox is empty.'), a.more > 0 && h('p', { class: 'soft' }, `${count(a.more)} more are not shown.`));
  };
  const again = (e) => act(e, draw);
  again();
  return h('section', { 'aria-labelledby': 'outbox-title' }, h('div', { class: 'bar' }, h('h2', { id: 'outbox-title' }, 'Outbox'), button('Read again', again, { id: 'outbox-again' })),
    h('p', { class: 'soft' }, 'What agents said that is not delivered yet. “unknown” may or may not have arrived.'), box);
}

export function mount(main) {
  set(main, h('h1', { class: 'hidden' }, 'Waiting'), parkedPart(), outboxPart());
}
