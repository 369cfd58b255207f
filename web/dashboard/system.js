// system.js - System: the server, its store, nodes, limits, audit log and backups.
import { h, set, count, bytes, when, clock, span, now, button, chip, table, act, notice, sure, warning } from './dom.js';
import { call, may, session } from './api.js';

const fact = (k, v) => (v === undefined || v === null || v === '' ? null : [h('dt', {}, k), h('dd', {}, v)]);

function serverPart(s) {
  return h('div', { class: 'pair' },
    h('section', {}, h('h2', {}, 'Server'), h('dl', { class: 'facts' },
      fact('Version', s.version), fact('Up since', [clock(s.startedAt), ` (${span(now() - s.startedAt)})`]), fact('Process', s.pid),
      fact('Listens on', s.listen), fact('Address', s.url), fact('Configuration', s.config || 'none: defaults and environment'),
      fact('State directory', s.stateDir), fact('Connections', count(s.connections)), fact('Gateways', count(s.gateways)),
      fact('Routes', count(s.routes)), fact('Links', count(s.links)), fact('Edges', s.edges ? `${s.edges} threads` : 'none: one thread does all'), fact('Sandbox', s.confined),
      s.draining && fact('State', chip('warn', 'going down')))),
    h('section', {}, h('h2', {}, 'Store'), h('dl', { class: 'facts' },
      fact('Kind', s.store.kind), fact('State', s.store.healthy ? chip('good', 'healthy') : chip('bad', s.store.problem || 'unhealthy')),
      fact('On disk', bytes(s.store.bytesOnDisk)), fact('Writes waiting', count(s.store.queued)), fact('Commits', count(s.store.commits)),
      fact('Failed', count(s.store.failed))),
    h('h2', {}, 'Backups'), h('p', {}, 'A backup is one file, made while the server runs. It leaves out the master key: keep that apart.'), h('pre', {}, 'bellhop backup /var/backups/bellhop.tar'),
    h('p', { class: 'soft' }, 'Back it up before an upgrade, and try a restore once: ', h('code', {}, 'bellhop restore'), '.')));
}

function nodesPart(box) {
  call('listNodes').then((a) => set(box, h('h2', {}, 'Nodes'), table('Nodes', [
    { head: 'Node', cell: (n) => n.name || n.node }, { head: 'State', cell: (n) => n.state || '' }, { head: 'Seen', cell: (n) => when(n.seenAt || n.lastSeenAt || n.at) },
    { head: 'Address', cell: (n) => n.address || n.url || '' },
  ], a.nodes, { none: 'One process serves; its store is not shared.' }))).catch(() => set(box));
}

function limitsPart(box) {
  call('listLimits').then((a) => {
    const rows = a.limits.map((l) => ({ ...l, part: l.most ? l.held / l.most : 0 })).sort((x, y) => y.part - x.part || y.refused - x.refused);
    const used = rows.filter((l) => l.part >= 0.01 || l.refused);
    const show = (caption, some) => table(caption, [
      { head: 'Limit', cell: (l) => h('code', {}, `limits.${l.name}`) },
      { head: 'Held', class: 'num', cell: (l) => (l.unit === 'bytes' ? bytes(l.held) : count(l.held)) },
      { head: 'Most', class: 'num', cell: (l) => (l.most ? (l.unit === 'bytes' ? bytes(l.most) : count(l.most)) : 'no limit') },
      { head: 'Full', cell: (l) => (l.most ? h('span', { class: 'meter' }, h('meter', { min: 0, max: 1, high: 0.8, value: l.part, 'aria-label': `${l.name} ${Math.round(l.part * 100)} %` }), ` ${Math.round(l.part * 100)} %`) : '') },
      { head: 'Refused', class: 'num', cell: (l) => (l.refused ? h('b', { class: 'badtext' }, count(l.refused)) : '0') },
    ], some);
    set(box, h('h2', {}, 'Limits'), used.length ? show('Limits, the fullest first', used) : null,
      h('details', {}, h('summary', {}, `${rows.length - used.length} limits are below 1 %`), show('Limits that are hardly used', rows.filter((l) => !used.includes(l)))));
  }).catch((e) => set(box, h('h2', {}, 'Limits'), h('p', { class: 'warning' }, e.message)));
}

/** A value of a record in words; a number that is a time in milliseconds becomes that time. */
function text(v) {
  if (v === undefined || v === null) return 'nothing';
  if (typeof v === 'number' && v > 1e12) return clock(v);
  if (typeof v === 'string' || typeof v !== 'object') return String(v);
  if (Array.isArray(v)) return v.length ? v.map(text).join(', ') : 'none';
  return Object.entries(v).map(([k, x]) => `${k}: ${Array.isArray(x) && x.length > 1 ? `(${text(x)})` : text(x)}`).join(', ');
}

/** The records that a change wrote: only the members that differ. */
function changes(e) {
  const list = e.records || [];
  if (!list.length) return e.note || '';
  const of = (r) => {
    if (r.before && r.after && typeof r.before === 'object' && typeof r.after === 'object') {
      const keys = [...new Set([...Object.keys(r.before), ...Object.keys(r.after)])].filter((k) => JSON.stringify(r.before[k]) !== JSON.stringify(r.after[k]));
      return keys.map((k) => `${k}: ${text(r.before[k])} → ${text(r.after[k])}`).join(', ');
    }
    return r.after ? `new, ${text(r.after)}` : r.before ? `gone, ${text(r.before)}` : 'gone';
  };
  const words = list.map((r) => `${r.record || ''} ${(r.key || '').trim()}: ${of(r)}`.trim()).join('; ');
  return words.length < 160 ? words : h('details', {}, h('summary', {}, `${words.slice(0, 140)}…`), words);
}

function auditPart() {
  if (!may('audit')) return h('section', {}, h('h2', {}, 'Audit log'), h('p', { class: 'none' }, 'This server keeps no audit log, or this sign-in may not read it.'));
  const box = h('div', {});
  const said = h('span', { role: 'status', class: 'soft' });
  let entries = [];
  const draw = async (after) => {
    const a = await call('audit', { after, limit: 100 });
    entries = after ? [...entries, ...a.entries] : a.entries;
    set(box, table('Changes, the newest first', [
      { head: 'No.', class: 'num', cell: (e) => e.seq }, { head: 'When', cell: (e) => when(e.at) },
      { head: 'Who', cell: (e) => [e.by || '', e.who && e.who !== e.by ? h('span', { class: 'soft' }, ` ${e.who}`) : null] }, { head: 'From', cell: (e) => e.from || '' },
      { head: 'What', cell: (e) => [e.what, e.failed && chip('bad', 'failed')] }, { head: 'Whose', class: 'wrap', cell: (e) => [e.tenant, e.instance].filter(Boolean).join('/') },
      { head: 'Changed', class: 'wrap much', cell: changes },
    ], entries, { none: 'Nothing has been changed yet.' }), a.next && h('p', {}, button('Older', (e) => act(e, () => draw(a.next)))));
  };
  const verify = (e) => act(e, async () => {
    const v = await call('verifyAudit');
    said.textContent = v.ok ? `The chain of ${count(v.entries)} entries is unbroken.` : `The chain is broken: ${v.problem}`;
    said.className = v.ok ? 'soft' : 'badtext';
  });
  act(null, () => draw());
  return h('section', { 'aria-labelledby': 'audit-title' }, h('div', { class: 'bar' }, h('h2', { id: 'audit-title' }, 'Audit log'),
    button('Read again', (e) => act(e, () => draw())), may('verifyAudit') && button('Verify', verify), said), box);
}

export function mount(main) {
  if (!may('status') || session.tenant !== null) {
    set(main, h('h1', {}, 'System'), h('p', { class: 'none' }, 'Only the operator sees the server itself.'), may('audit') ? auditPart() : null);
    return;
  }
  const server = h('div', {}, h('p', { class: 'soft' }, 'Reading…'));
  const nodes = h('section', {});
  const limits = h('section', {});
  const draw = async () => {
    const s = await call('status', { tenant: '-', instance: '-' });
    set(server, (s.warnings || []).map(warning), serverPart(s));
    if (may('listNodes')) nodesPart(nodes);
    if (may('listLimits')) limitsPart(limits);
  };
  act(null, draw);
  set(main, h('h1', { class: 'hidden' }, 'System'),
    h('div', { class: 'bar' }, button('Read again', (e) => act(e, draw)),
      may('reload') && !session.readOnly && button('Reload the configuration', (e) => act(e, async () => {
        if (!await sure('Reload the configuration?', 'bellhop reads its configuration file again. Settings that need a restart are named.', 'Reload', false)) return;
        notice((await call('reload')).said);
        await draw();
      }))),
    server, nodes, limits, auditPart());
}
