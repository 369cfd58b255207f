// now.js - Now: bots, instances, and the flow of messages.
import { h, set, count, bytes, span, when, now, button, chip, dialog, act, notice, sure, table, warning } from './dom.js';
import { call, live, latest, may, session } from './api.js';
import { Flow, Curves } from './charts.js';
import { Rows, STATE_WORDS } from './rows.js';

const KEEP = 300; // seconds of live curves
const CURVES = ['in', 'delivered', 'acked', 'out'];
const history = { stepMs: 1000, series: CURVES.map(() => []), latency: null };

/** Rates per second between two ticks; null at the first. */
function ratesOf(tick, before) {
  if (!before || tick.at <= before.at) return null;
  const s = (tick.at - before.at) / 1000;
  const per = (k) => Math.max(0, (tick.counters[k] - before.counters[k]) / s);
  return { in: per('accepted') + per('gated') + per('unrouted'), gated: per('gated'), unrouted: per('unrouted'), duplicates: per('duplicates'),
    delivered: per('delivered'), acked: per('acked'), out: per('out') };
}

let rates = null;
live.addEventListener('tick', ({ detail: { tick, before } }) => {
  if (!tick.counters) return;
  rates = ratesOf(tick, before && before.counters ? before : null);
  if (!rates) return;
  CURVES.forEach((k, i) => {
    history.series[i].push(rates[k]);
    if (history.series[i].length > KEEP) history.series[i].shift();
  });
});

/** What the server kept from before the page was opened. */
export async function readPast() {
  if (!may('flow')) return;
  const f = await call('flow');
  const points = f.series || [];
  if (points.length > 1 && history.series[0].length < 10) {
    const repeat = Math.max(1, Math.round(f.stepMs / 1000));
    CURVES.forEach((k, i) => {
      const old = points.slice(-Math.floor(KEEP / repeat)).flatMap((p) => Array(repeat).fill((p[k] * 1000) / f.stepMs));
      history.series[i] = [...old, ...history.series[i]].slice(-KEEP);
    });
  }
  const part = (k) => points.slice(-90).map((p) => (p[k] === undefined ? null : p[k]));
  history.latency = { stepMs: f.stepMs, p50: part('p50'), p99: part('p99') };
}

// ---- bots ----

function botState(b) {
  if (b.problem) return ['bad', 'problem'];
  if (b.deaf) return ['warn', 'deaf?'];
  return b.lastEventAt ? ['good', 'hears'] : ['idle', 'quiet'];
}

function botCard(b) {
  const [state, word] = botState(b);
  const heard = b.lastEventAt ? ['last heard ', when(b.lastEventAt)] : ['nothing heard since the start'];
  return h('li', { class: 'bot', 'data-state': state },
    h('p', { class: 'bot-name' }, h('b', {}, b.bot), h('span', { class: 'soft' }, ` ${b.platform}`), chip(state, word)),
    h('p', { class: 'soft' }, heard, b.usualGapMs ? (b.usualGapMs < 1000 ? ', usually several a second' : `, usually every ${span(b.usualGapMs)}`) : ''),
    (b.problem || b.deaf) && h('p', { class: 'words' }, b.problem || b.deaf));
}

// ---- one instance ----

function frameWords(e) {
  const ev = e.frame && e.frame.event;
  if (!ev) return e.frame ? e.frame.type || 'frame' : '';
  return `${ev.source && ev.source.user_name ? `${ev.source.user_name}: ` : ''}${ev.text || ev.message_type || ''}`;
}

function mailbox(box, again, r) {
  return table('Waiting deliveries, the oldest first', [
    { head: 'Since', cell: (e) => when(e.at) },
    { head: 'State', cell: (e) => (e.parked ? chip('bad', 'parked') : e.sent ? chip('warn', 'sent, no ack') : chip('idle', 'waits')) },
    { head: 'Tries', class: 'num', cell: (e) => e.attempts },
    { head: 'Message', class: 'wrap', cell: (e) => h('span', {}, frameWords(e), e.parked && h('small', { class: 'badtext' }, ` ${e.parked}`)) },
  ], box.entries, { none: 'The mailbox is empty.' });
}

export async function showInstance(r) {
  const body = h('div', { class: 'detail' }, h('p', { class: 'soft' }, 'Reading…'));
  const who = { tenant: r.tenant, instance: r.instance };
  const fill = async () => {
    const [info, box] = await Promise.all([
      may('showInstance') ? call('showInstance', who) : null,
      may('showMailbox') ? call('showMailbox', { ...who, limit: 50, bodies: '1' }).catch(() => ({ entries: [], more: 0 })) : { entries: [], more: 0 },
    ]);
    set(body,
      info && h('dl', { class: 'facts' },
        h('dt', {}, 'State'), h('dd', {}, chip(info.state, STATE_WORDS[info.state])),
        h('dt', {}, 'Gateway'), h('dd', {}, info.gatewayId || '–'),
        h('dt', {}, 'Mailbox'), h('dd', {}, `${count(info.mailbox.entries)} (${bytes(info.mailbox.bytes)})`),
        h('dt', {}, 'Unacked'), h('dd', {}, count(info.unacked)),
        h('dt', {}, 'Last in'), h('dd', {}, when(info.lastInboundAt)),
        h('dt', {}, 'Last out'), h('dd', {}, when(info.lastOutboundAt)),
        h('dt', {}, 'Wake URL'), h('dd', {}, info.wakeUrl || 'none')),
      r.pokeProblem && h('p', { class: 'warning' }, `Waking it failed: ${r.pokeProblem}`),
      h('p', { class: 'buttons left' },
        button('Why?', () => { body.closest('dialog').close(); location.hash = `#why?tenant=${encodeURIComponent(r.tenant)}&instance=${encodeURIComponent(r.instance)}`; }),
        may('redriveMailbox') && !session.readOnly && button('Redrive parked', (e) => act(e, async () => {
          const a = await call('redriveMailbox', who);
          notice(`${a.deliveries} put back in line.`);
          await fill();
        })),
        may('purgeMailbox') && !session.readOnly && button('Delete all', (e) => act(e, async () => {
          if (!await sure(`Delete what waits for ${r.instance}?`, 'Every waiting and parked message is deleted. This cannot be undone.', 'Delete')) return;
          const a = await call('purgeMailbox', who);
          notice(`${a.deliveries} deleted.`);
          await fill();
        }), { class: 'small danger' })),
      h('h3', {}, 'Waiting'), mailbox(box, fill, r),
      box.more > 0 && h('p', { class: 'soft' }, `${count(box.more)} more are not shown.`));
  };
  fill().catch((e) => set(body, h('p', { class: 'warning' }, e.message)));
  await dialog(`${r.tenant}/${r.instance}`, body, { ok: null, cancel: 'Close', wide: true });
}

// ---- the section ----

export function mount(main) {
  const operator = session.tenant === null;
  const flow = new Flow();
  const curves = new Curves('Messages per second', '/s', CURVES);
  const slow = new Curves('Accept to ack', ' ms', ['p50', 'p99']);
  const bots = h('ul', { class: 'bots' });
  const tiles = h('ul', { class: 'tiles' });
  const warnings = h('div', { class: 'warnings', 'aria-live': 'polite' });
  const rows = new Rows(showInstance, () => h('p', { class: 'none' }, 'No instance yet. ', may('addGateway') && !session.readOnly
    ? [h('a', { href: '#who?list=gateways' }, 'Add a gateway'), ', or run ', h('code', {}, 'bellhop setup'), ' on this machine.'] : 'It appears here once it has a gateway.'));
  const chips = h('div', { class: 'filters', role: 'group', 'aria-label': 'States' });
  const total = h('p', { class: 'soft total', 'aria-live': 'off' });
  let typing = 0;

  const states = [['', 'all'], ['problem', 'need attention'], ['live', 'live'], ['away', 'away'], ['asleep', 'asleep'], ['never', 'never connected']];
  const marks = states.map(([key, word]) => {
    const n = h('b', {});
    const b = h('button', { type: 'button', class: 'filter', 'aria-pressed': key === '' ? 'true' : 'false', onclick: () => {
      rows.set({ state: key });
      marks.forEach((m) => m.b.setAttribute('aria-pressed', m.key === key ? 'true' : 'false'));
    } }, `${word} `, n);
    return { key, b, n };
  });
  set(chips, marks.map((m) => m.b));

  const sort = h('select', { 'aria-label': 'Order', onchange: () => rows.set({ sort: sort.value }) },
    [['attention', 'what needs attention first'], ['name', 'by name'], ['waiting', 'most waiting'], ['oldest', 'longest waiting'], ['heard', 'heard last']]
      .map(([v, t]) => h('option', { value: v }, t)));
  const filter = h('input', { id: 'filter', type: 'search', placeholder: 'Find a tenant or instance', 'aria-label': 'Find a tenant or instance', oninput: () => {
    clearTimeout(typing);
    typing = setTimeout(() => rows.set({ filter: filter.value.trim() }), 150);
  } });

  const tile = (label, value, state) => h('li', { 'data-state': state }, h('span', { class: 'label' }, label), h('b', {}, value));

  const drawBots = () => set(bots, (latest.bots || []).map(botCard), latest.bots && !latest.bots.length
    ? h('li', { class: 'none' }, operator ? 'No bot is configured. Add one under platforms: in the configuration.' : 'No bot belongs to this tenant alone.') : null);

  const drawRows = (e) => {
    const { tally, total: all, found } = e.detail;
    marks.forEach((m) => { m.n.textContent = count(m.key === '' ? all : m.key === 'problem' ? tally.problems : tally[m.key]); });
    const what = all === 1 ? 'instance' : 'instances';
    total.textContent = found === all ? `${count(all)} ${what}` : `${count(found)} of ${count(all)} ${what}`;
    const outbox = latest.tick && latest.tick.outbox;
    set(tiles,
      tile('Live', count(tally.live)), tile('Away', count(tally.away), tally.away ? 'warn' : null), tile('Asleep', count(tally.asleep)),
      tile('Waiting', count(tally.entries)), tile('Oldest', tally.oldestAt ? span(now() - tally.oldestAt) : '–'),
      tile('Parked', count(tally.parked), tally.parked ? 'bad' : null),
      outbox && tile('Outbox', count(outbox.waiting + outbox.trying)), outbox && tile('Unknown', count(outbox.unknown), outbox.unknown ? 'warn' : null));
  };

  const drawFlow = () => {
    if (!rates) return;
    const t = latest.tally || { entries: 0, unacked: 0 };
    const outbox = latest.tick.outbox || { waiting: 0, trying: 0 };
    flow.show(rates, { entries: t.entries, unacked: t.unacked, outbox: outbox.waiting + outbox.trying });
    curves.show(history.series, history.stepMs);
  };

  const drawLatency = () => {
    slow.node.hidden = !history.latency || history.latency.p50.length < 2;
    if (!slow.node.hidden) slow.show([history.latency.p50, history.latency.p99], history.latency.stepMs);
  };

  const readMore = async () => {
    try { await readPast(); } catch { /* the curves show what this page saw */ }
    drawFlow();
    drawLatency();
    if (!may('status')) return;
    try { // an instance that cannot exist: the answer is what the server says about itself
      const s = await call('status', { tenant: '-', instance: '-' });
      set(warnings, (s.warnings || []).filter((w) => w.what !== 'bot' && w.what !== 'deaf').map(warning)); // bots have cards of their own
    } catch { set(warnings); }
  };

  set(main, h('h1', { class: 'hidden' }, 'Now'), warnings, tiles,
    operator && h('section', { 'aria-label': 'Flow' }, flow.node, h('div', { class: 'pair' }, curves.node, slow.node)),
    h('section', { 'aria-labelledby': 'bots-title' }, h('h2', { id: 'bots-title' }, 'Bots'), bots),
    h('section', { 'aria-labelledby': 'inst-title' },
      h('div', { class: 'bar' }, h('h2', { id: 'inst-title' }, 'Instances'), total, filter, sort), chips, rows.node));
  drawBots();
  drawLatency();
  const timer = setInterval(readMore, 5000);
  readMore();
  live.addEventListener('bots', drawBots);
  live.addEventListener('rows', drawRows);
  live.addEventListener('tick', drawFlow);
  rows.start();
  return () => {
    clearInterval(timer);
    rows.stop();
    live.removeEventListener('bots', drawBots);
    live.removeEventListener('rows', drawRows);
    live.removeEventListener('tick', drawFlow);
  };
}
