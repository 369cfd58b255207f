// who.js - Who: people who wait to be let in, links, places, rules, gateways, agents and keys.
//
// A change that can be taken back offers an undo; one that cannot asks first.
import { h, set, count, when, button, chip, table, act, notice, sure, dialog, field, secret, person } from './dom.js';
import { call, callAll, may, session } from './api.js';

const canChange = (op) => may(op) && !session.readOnly;
const inst = (r) => h('span', {}, h('span', { class: 'soft' }, `${r.tenant}/`), r.instance || '*');
const whoFields = (r = {}) => [
  session.tenant === null && field('Tenant', 'tenant', { value: r.tenant || '', required: true }),
  field('Instance', 'instance', { value: r.instance || '', required: true })];
const list = (text) => text.split(/[,\s]+/).filter(Boolean);
const shorten = (items) => (items.length > 4 ? `${items.slice(0, 4).join(', ')} and ${items.length - 4} more` : items.join(', '));

/** Asks with a form, runs the change, says what happened. */
async function change(e, title, body, opts, run, said, undo) {
  const v = await dialog(title, body, opts);
  if (!v) return false;
  return act(e, async () => {
    const a = await run(v);
    if (said) notice(typeof said === 'function' ? said(a, v) : said, undo ? { undo: () => undo(v, a) } : {});
    for (const w of (a && a.warnings) || []) notice(w, { bad: true });
    return true;
  });
}

// ---- each list: { title, ops, read, draw } ----

/** Approve, deny, block: what can be taken back offers so, what cannot asks first. */
const decisions = (p, again) => {
  const name = p.userName || p.userId;
  const set = (op, said) => (e) => act(e, async () => {
    await call(op, { id: p.id });
    notice(said, op === 'restorePairing' ? {} : { undo: () => call('restorePairing', { id: p.id }).then(again) });
    await again();
  });
  const unlink = (v, r) => call('linkPerson', { tenant: r.tenant, instance: r.instance, platform: p.platform, userId: p.userId, bots: [p.bot], remove: true }).then(again);
  return [
    p.state === 'waiting' && button('Approve', async (e) => {
      if (await change(e, `Let ${name} in?`, [h('p', {}, `The person is linked to this instance, on the ${p.platform} bot ${p.bot}, and is heard from now on.`), whoFields({ tenant: p.tenant })], { ok: 'Approve' },
        (v) => call('approvePairing', { id: p.id, ...v }), (r) => (r.owner ? `Approved. ${name} is the owner of ${r.instance}.` : 'Approved.'), may('linkPerson') ? unlink : null)) await again();
    }, { class: 'small primary', 'aria-label': `Approve ${name}` }),
    p.state === 'waiting' && button('Deny', set('denyPairing', 'Denied.'), { 'aria-label': `Deny ${name}` }),
    p.state !== 'blocked' && button('Block', set('blockPairing', 'Blocked.'), { class: 'small danger', 'aria-label': `Block ${name}` }),
    p.state !== 'waiting' && button('Restore', set('restorePairing', 'The person waits again.'), { 'aria-label': `Restore ${name}` }),
    p.state !== 'waiting' && button('Forget', async (e) => {
      if (!await sure(`Forget ${name}?`, 'The entry is deleted. A further message lists the person again.', 'Forget')) return;
      await act(e, async () => { await call('forgetPairing', { id: p.id }); notice('Forgotten.'); await again(); });
    }, { 'aria-label': `Forget ${name}` }),
  ];
};

const pairing = {
  title: 'Pairing', op: 'listPairings',
  words: 'People who wrote to a bot and are linked to nobody. What they wrote is not kept. An approval links the person to an instance; the first one makes the owner.',
  read: async () => {
    const all = (await callAll('listPairings', {}, 8)).people;
    return { waiting: all.filter((p) => p.state === 'waiting'), rest: all.filter((p) => p.state !== 'waiting') };
  },
  draw: (a, again) => {
    const actions = canChange('approvePairing') ? (p) => decisions(p, again) : null;
    const columns = (state) => [
      { head: 'Person', class: 'wrap', cell: (p) => h('span', {}, h('b', { dir: 'auto' }, p.userName || p.userId), ' ', p.userName && h('span', { class: 'soft' }, p.userId)) },
      { head: 'Bot', cell: (p) => `${p.platform} ${p.bot}` },
      { head: 'In', cell: (p) => (p.chatType === 'dm' ? 'direct chat' : p.chatType) },
      state && { head: 'State', cell: (p) => chip(p.state === 'blocked' ? 'bad' : 'idle', p.state) },
      { head: 'Messages', class: 'num', cell: (p) => count(p.messages) },
      !state && { head: 'First', cell: (p) => when(p.firstAt) }, { head: 'Last', cell: (p) => when(p.lastAt) },
    ].filter(Boolean);
    return [
      table('People who wait', columns(false), a.waiting, { none: 'Nobody waits.', actions }),
      a.rest.length > 0 && [h('h3', {}, 'Denied and blocked'), table('Denied and blocked people', columns(true), a.rest, { actions })],
    ];
  },
};

const links = {
  title: 'Links', op: 'listGrants', words: 'A linked person reaches the instance from every place, on the bots of the link.',
  read: (q) => callAll('listGrants', q, 4),
  add: { label: 'Link', run: (e, again) => addLink(e, again) },
  draw: (a, again) => table('Links', [
    { head: 'Person', cell: (b) => person(b.platform, b.userId) }, { head: 'Instance', class: 'wrap', cell: inst },
    { head: 'Bots', cell: (b) => (b.bots.length ? shorten(b.bots) : 'every bot') }, { head: 'Since', cell: (b) => when(b.createdAt) },
  ], a.bindings, { none: 'Nobody is linked.', actions: canChange('linkPerson') ? (b) => button('Unlink', async (e) => {
    if (!await sure(`Unlink ${b.userId}?`, `${b.tenant}/${b.instance} no longer hears this person, unless a place is open to everybody.`, 'Unlink')) return;
    const args = { tenant: b.tenant, instance: b.instance, platform: b.platform, userId: b.userId };
    await act(e, async () => {
      await call('linkPerson', { ...args, remove: true });
      notice('Unlinked.', { undo: () => call('linkPerson', { ...args, bots: b.bots.length ? b.bots : ['*'] }).then(again) });
      await again();
    });
  }) : null }),
};

async function addLink(e, again) {
  const operator = may('linkPerson');
  await change(e, 'Link a person', [
    h('p', {}, operator ? 'Name the person, or leave the person empty to get a code that the person sends to the bot.' : 'You get a code; the person who sends it to the bot is linked.'),
    whoFields(), field('Platform', 'platform', { hint: 'discord, telegram, …' }),
    operator && field('Person (user id)', 'userId'), field('Bot', 'bot', { hint: operator ? 'Empty: the platform’s only bot. *: every bot.' : 'Empty: the bot that the code is sent to.' }),
  ], { ok: 'Link' }, async (v) => {
    const who = { tenant: v.tenant, instance: v.instance, platform: v.platform };
    if (v.userId) return call('linkPerson', { ...who, userId: v.userId, ...(v.bot ? { bots: [v.bot] } : {}) });
    const a = await call('link', { ...who, bot: v.bot });
    await secret('Send this to the bot', 'Whoever sends this message to the bot within ten minutes is linked. It works once.', `/link ${a.code}`);
    return a;
  }, 'Done.');
  await again();
}

const scopes = {
  title: 'Places', op: 'listGrants', words: 'A place (scope) belongs to one instance: its messages go there, and it may speak there.',
  read: (q) => callAll('listGrants', q, 4),
  add: { label: 'Claim', needs: 'claimScope', run: async (e, again) => {
    if (await change(e, 'Give a place to an instance', [whoFields(), field('Platform', 'platform', { required: true }), field('Guild or group', 'guildId', { required: true }), field('Channel', 'channelId', { required: true, value: '*', hint: '*: all others of the guild' })],
      { ok: 'Claim' }, (v) => call('claimScope', v), 'Claimed.', (v) => call('releaseScope', v).then(again))) await again();
  } },
  draw: (a, again) => table('Places', [
    { head: 'Place', cell: (s) => `${s.platform} ${s.guildId} ${s.channelId}` }, { head: 'Instance', class: 'wrap', cell: inst }, { head: 'By', cell: (s) => s.by }, { head: 'Since', cell: (s) => when(s.createdAt) },
  ], a.scopes, { none: 'No place is claimed.', actions: canChange('releaseScope') ? (s) => button('Release', (e) => act(e, async () => {
    const args = { tenant: s.tenant, instance: s.instance, platform: s.platform, guildId: s.guildId, channelId: s.channelId };
    await call('releaseScope', args);
    notice('Released.', { undo: () => call('claimScope', args).then(again) });
    await again();
  })) : null }),
};

function setPrincipal(e, again, p = {}) {
  return change(e, 'Whom does the instance listen to?', [whoFields(p), field('Platform', 'platform', { value: p.platform || '', hint: 'Empty: where nothing else is set' }),
    field('Listens to', 'mode', { options: [['owner-only', 'linked people only'], ['allow-list', 'a list of people'], ['any', 'everybody']], value: p.mode || 'owner-only' }),
    field('People of the list', 'allow', { value: (p.allow || []).join(', '), hint: 'user ids, separated by commas' })],
  { ok: 'Set' }, (v) => call('setPrincipal', { ...v, allow: list(v.allow) }), 'Set.',
  p.mode ? () => call('setPrincipal', { tenant: p.tenant, instance: p.instance, platform: p.platform, mode: p.mode, allow: p.allow }).then(again) : null).then((ok) => ok && again());
}

function setPolicy(e, again, p = {}) {
  const box = (name, on) => (on ? { checked: true } : {});
  return change(e, 'Which messages are for the instance?', [whoFields(p), field('Platform', 'platform', { value: p.platform || '', required: true }),
    field('Only messages that address the bot', 'requireAddress', { type: 'checkbox', ...box('', p.requireAddress) }),
    field('Messages of other bots, too', 'allowOtherBots', { type: 'checkbox', ...box('', p.allowOtherBots) }),
    field('Except in', 'freeResponseScopes', { value: (p.freeResponseScopes || []).join(', '), hint: 'channels where the bot need not be addressed' })],
  { ok: 'Set' }, (v) => call('setPolicy', { ...v, freeResponseScopes: list(v.freeResponseScopes) }), 'Set.',
  p.platform ? () => call('setPolicy', { tenant: p.tenant, instance: p.instance, platform: p.platform, requireAddress: p.requireAddress, allowOtherBots: p.allowOtherBots, freeResponseScopes: p.freeResponseScopes }).then(again) : null).then((ok) => ok && again());
}

function setAllowance(e, again, p = {}) {
  const was = p.instance ? { tenant: p.tenant, instance: p.instance, turns: p.turns, per: p.per, reply: p.reply } : null;
  return change(e, 'How many messages may a person or a chat send?', [whoFields(p), field('Turns', 'turns', { value: p.turns || '', required: true, hint: '50/day; also hour, week, month' }),
    field('Shared by', 'per', { options: [['person', 'each person'], ['chat', 'each chat']], value: p.per || 'person' }),
    field('Reply to what is over it', 'reply', { value: p.reply || '', hint: 'Sent once per period. Empty: a sentence of bellhop’s own.' })],
  { ok: 'Set' }, (v) => call('setAllowance', v), 'Set.',
  (v) => call('setAllowance', was || { tenant: v.tenant, instance: v.instance, remove: true }).then(again)).then((ok) => ok && again());
}

const rules = {
  title: 'Rules', op: 'listGrants', words: 'Principals: whom an instance listens to. Policies: which messages of a place are for it. Allowances: how many it takes.',
  read: (q) => callAll('listGrants', q, 4),
  add: { label: 'Set a principal', needs: 'setPrincipal', run: (e, again) => setPrincipal(e, again) },
  more: { label: 'Set a policy', needs: 'setPolicy', run: (e, again) => setPolicy(e, again) },
  third: { label: 'Set an allowance', needs: 'setAllowance', run: (e, again) => setAllowance(e, again) },
  draw: (a, again) => [
    h('h3', {}, 'Principals'), table('Principals', [
      { head: 'Instance', class: 'wrap', cell: inst }, { head: 'Platform', cell: (p) => (p.platform === '*' ? 'any' : p.platform) }, { head: 'Listens to', cell: (p) => p.mode },
      { head: 'List', class: 'wrap', cell: (p) => shorten(p.allow || []) },
    ], a.principals, { none: 'Every instance listens to the people who are linked to it.', actions: canChange('setPrincipal') ? (p) => button('Change', (e) => setPrincipal(e, again, p)) : null }),
    h('h3', {}, 'Policies'), table('Policies', [
      { head: 'Instance', class: 'wrap', cell: inst }, { head: 'Platform', cell: (p) => p.platform }, { head: 'Must be addressed', cell: (p) => (p.requireAddress ? 'yes' : 'no') },
      { head: 'Other bots', cell: (p) => (p.allowOtherBots ? 'yes' : 'no') }, { head: 'Except in', class: 'wrap', cell: (p) => shorten(p.freeResponseScopes || []) },
    ], a.policies, { none: 'No policy is set.', actions: canChange('setPolicy') ? (p) => button('Change', (e) => setPolicy(e, again, p)) : null }),
    a.allowances && [h('h3', {}, 'Allowances'), table('Allowances', [
      { head: 'Instance', class: 'wrap', cell: inst }, { head: 'Turns', cell: (p) => p.turns }, { head: 'Of each', cell: (p) => p.per }, { head: 'Reply', class: 'wrap', cell: (p) => p.reply || '' },
    ], a.allowances, { none: 'No allowance is set.', actions: canChange('setAllowance') ? (p) => [button('Change', (e) => setAllowance(e, again, p)),
      button('Remove', (e) => act(e, async () => {
        await call('setAllowance', { tenant: p.tenant, instance: p.instance, remove: true });
        notice('Removed.', { undo: () => call('setAllowance', { tenant: p.tenant, instance: p.instance, turns: p.turns, per: p.per, reply: p.reply }).then(again) });
        await again();
      }))] : null })],
    a.dmDefaults.length > 0 && [h('h3', {}, 'Direct messages'), table('Direct messages', [
      { head: 'Person', cell: (d) => person(d.platform, d.userId) }, { head: 'Go to', class: 'wrap', cell: inst }], a.dmDefaults)],
  ],
};

const routes = {
  title: 'Routes', op: 'listRoutes', words: 'A route says which tenant a place belongs to; an open one lets everybody there reach the instance.',
  read: (q) => callAll('listRoutes', q, 4),
  add: { label: 'Add', needs: 'addRoute', run: async (e, again) => {
    if (await change(e, 'Add a route', [field('Platform', 'platform', { required: true }), field('Place or bot', 'key', { required: true }), field('Tenant', 'tenant', { required: true }), field('Instance', 'instance', { hint: 'Empty: any of the tenant' }), field('Open to everybody', 'open', { type: 'checkbox' })],
      { ok: 'Add' }, (v) => call('addRoute', v), 'Added.', (v) => call('removeRoute', v).then(again))) await again();
  } },
  draw: (a, again) => table('Routes', [
    { head: 'Place', cell: (r) => `${r.platform} ${r.key}` }, { head: 'Leads to', class: 'wrap', cell: inst }, { head: 'Heard', cell: (r) => (r.open ? chip('warn', 'everybody') : 'linked people') }, { head: 'By', cell: (r) => r.origin },
  ], a.routes, { none: 'No route: only linked people are heard.', actions: canChange('removeRoute') ? (r) => button('Remove', async (e) => {
    if (!await sure('Remove the route?', `${r.platform} ${r.key} no longer leads to ${r.tenant}.`, 'Remove')) return;
    const args = { platform: r.platform, key: r.key, tenant: r.tenant, instance: r.instance, open: r.open };
    await act(e, async () => { await call('removeRoute', args); notice('Removed.', { undo: () => call('addRoute', args).then(again) }); await again(); });
  }) : null }),
};

const env = (a) => `GATEWAY_RELAY_URL=${a.url || ''}\nGATEWAY_RELAY_ID=${a.id}\nGATEWAY_RELAY_SECRET=${a.secret}`;

async function addGateway(e, again) {
  const v = await dialog('Add a gateway', [h('p', {}, 'You get the three lines for the agent’s environment.'),
    field('Tenant', 'tenant', { required: true }), field('Id', 'id', { hint: 'Empty: one is made' }), field('Instance', 'instance', { hint: 'Empty: its id' }),
    field('Platform', 'platform'), field('Bot', 'bot'), field('Wake URL', 'wakeUrl', { type: 'url' }), field('Open: everybody who writes to the bot is heard', 'open', { type: 'checkbox' })], { ok: 'Add' });
  if (!v) return;
  await act(e, async () => {
    const a = await call('addGateway', v);
    await secret(`Gateway ${a.id}`, 'Put these lines into the agent’s environment. The secret is shown only once.', env(a));
    for (const w of a.warnings) notice(w, { bad: true });
    await again();
  });
}

async function enroll(e) {
  const v = await dialog('Make an enrollment token', [h('p', {}, 'A gateway that is set up by hand exchanges it for its secret, once.'),
    field('Tenant', 'tenant', { required: true }), field('Instance', 'instance'), field('Wake URL', 'wakeUrl', { type: 'url' })], { ok: 'Make' });
  if (!v) return;
  await act(e, async () => { const a = await call('makeToken', { kind: 'enroll', ...v }); await secret('Enrollment token', 'Good for one hour. It is shown only once.', a.token); });
}

const gateways = {
  title: 'Gateways', op: 'listGateways', words: 'A gateway is the agent’s end of the connection.',
  read: (q) => callAll('listGateways', q, 2),
  add: { label: 'Add', needs: 'addGateway', run: addGateway }, more: { label: 'Enrollment token', needs: 'makeToken', run: enroll },
  draw: (a, again) => table('Gateways', [
    { head: 'Id', cell: (g) => h('b', {}, g.id) }, { head: 'Instance', class: 'wrap', cell: inst },
    { head: 'For', class: 'wrap', cell: (g) => shorten(((g.bots && g.bots.length ? g.bots : g.identities) || []).map((b) => `${b.platform}/${b.bot}`)) },
    { head: 'Wake URL', class: 'wrap', cell: (g) => g.wakeUrl || '' },
    { head: 'State', cell: (g) => [g.revokedAt ? chip('bad', 'revoked') : chip('good', g.acks ? 'ok' : 'ok, no acks'), g.secrets > 1 && h('small', { class: 'soft' }, ` ${g.secrets} secrets`)] }, { head: 'Since', cell: (g) => when(g.createdAt) },
  ], a.gateways, { none: 'No gateway yet.', actions: canChange('rotateGateway') ? (g) => !g.revokedAt && [
    button('Rotate', async (e) => {
      if (!await sure(`Make a new secret for ${g.id}?`, 'The old secret stays good for one hour.', 'Rotate', false)) return;
      await act(e, async () => { const r = await call('rotateGateway', { id: g.id }); await secret(`Gateway ${g.id}`, 'The new secret is shown only once.', env(r)); await again(); });
    }, { 'aria-label': `Rotate ${g.id}` }),
    button('Wake URL', async (e) => {
      if (await change(e, `Wake URL of ${g.id}`, field('Wake URL', 'wakeUrl', { type: 'url', value: g.wakeUrl || '', hint: 'Empty: none' }), { ok: 'Set' },
        (v) => call('setGateway', { id: g.id, ...v }), 'Set.', () => call('setGateway', { id: g.id, wakeUrl: g.wakeUrl }).then(again))) await again();
    }, { 'aria-label': `Wake URL of ${g.id}` }),
    button('Revoke', async (e) => {
      if (!await sure(`Revoke ${g.id}?`, 'Its sockets are closed at once and it is refused from now on. This cannot be undone.', 'Revoke')) return;
      await act(e, async () => { await call('revokeGateway', { id: g.id }); notice(`${g.id} is revoked.`); await again(); });
    }, { class: 'small danger', 'aria-label': `Revoke ${g.id}` })] : null }),
};

// What an entry needs besides its id: the first lines of a new one.
const SUBSTRATES = {
  webhook: 'url: https://', file: 'dir: /', pipe: 'path: /', exec: 'command: ["/usr/local/bin/agent"]', tmux: 'target: work:0.1',
  program: 'command: ["/usr/local/bin/agent"]', acp: 'command: ["npx", "@agentclientprotocol/claude-agent-acp"]', responses: 'url: http://127.0.0.1:8080/v1\nmodel: ',
  chat: 'url: http://127.0.0.1:8080/v1\nmodel: ', relay: 'instance: ', none: '',
};
const OWN = ['id', 'tenant', 'substrate', 'secrets', 'created_at', 'changed_at'];

/** Lines of "key: value"; a value that is JSON is taken as JSON, any other as text. */
function readKeys(text) {
  const entry = {};
  for (const line of text.split('\n').map((l) => l.trim()).filter(Boolean)) {
    const at = line.indexOf(':');
    if (at < 1) throw new Error(`“${line}” is no line of the form key: value.`);
    const value = line.slice(at + 1).trim();
    let v = value;
    if (/^[[{"]|^(true|false|null)$/.test(value)) { try { v = JSON.parse(value); } catch { throw new Error(`The value of ${line.slice(0, at)} is no valid JSON.`); } }
    entry[line.slice(0, at).trim()] = v;
  }
  return entry;
}
const writeKeys = (entry) => Object.entries(entry).filter(([k]) => !OWN.includes(k)).map(([k, v]) => `${k}: ${typeof v === 'string' ? v : JSON.stringify(v)}`).join('\n');
const keysField = (value, hint) => field('Keys', 'keys', { type: 'lines', value, hint });

async function addAgent(e, again) {
  const keys = keysField(SUBSTRATES.webhook, 'One “key: value” on each line, as in an entry of agents: in the configuration.');
  const area = keys.querySelector('textarea');
  const kind = field('Substrate', 'substrate', { options: Object.keys(SUBSTRATES), value: 'webhook' });
  kind.querySelector('select').addEventListener('change', (x) => { if (Object.values(SUBSTRATES).includes(area.value)) area.value = SUBSTRATES[x.target.value]; });
  if (await change(e, 'Add an agent', [field('Tenant', 'tenant', { required: true }), field('Id', 'id', { required: true }), kind, keys], { ok: 'Add', wide: true },
    (v) => call('addAgent', { entry: { ...readKeys(v.keys), id: v.id, tenant: v.tenant, substrate: v.substrate } }), 'Added.',
    (v) => call('removeAgent', { id: v.id, tenant: v.tenant }).then(again))) await again();
}

async function changeAgent(e, again, g) {
  const { entry } = await call('showAgent', { id: g.agent_id, tenant: g.tenant });
  const secrets = entry.secrets.length ? ` Kept and not shown: ${entry.secrets.join(', ')}.` : '';
  await change(e, `Change ${g.agent_id}`, keysField(writeKeys(entry), `A line that is deleted removes the key.${secrets}`), { ok: 'Change', wide: true }, async (v) => {
    const now = readKeys(v.keys);
    const gone = Object.keys(entry).filter((k) => !OWN.includes(k) && !(k in now));
    await call('setAgent', { id: g.agent_id, tenant: g.tenant, entry: { ...now, ...Object.fromEntries(gone.map((k) => [k, null])) } });
    const back = Object.fromEntries(Object.keys(now).filter((k) => !(k in entry)).map((k) => [k, null]));
    for (const [k, x] of Object.entries(entry)) if (!OWN.includes(k)) back[k] = x;
    const unsafe = Object.keys(now).some((k) => entry.secrets.includes(k)); // the old secret is not known here
    notice('Changed.', unsafe ? {} : { undo: () => call('setAgent', { id: g.agent_id, tenant: g.tenant, entry: back }).then(again) });
  });
  await again();
}

async function removeAgent(e, again, g) {
  const { entry } = await call('showAgent', { id: g.agent_id, tenant: g.tenant });
  const lost = entry.secrets.length ? ' Its secrets cannot be brought back.' : '';
  if (!await sure(`Remove ${g.agent_id}?`, `Mail that waits for it stays in its mailbox.${lost}`, 'Remove')) return;
  const plain = Object.fromEntries(Object.entries(entry).filter(([k]) => !['secrets', 'created_at', 'changed_at'].includes(k)));
  await act(e, async () => {
    await call('removeAgent', { id: g.agent_id, tenant: g.tenant });
    notice('Removed.', lost ? {} : { undo: () => call('addAgent', { entry: plain }).then(again) });
    await again();
  });
}

const agents = {
  title: 'Agents', op: 'showAgents', words: 'What programs deliver to, at /v1/agents. Those of the configuration file are changed in the file.',
  read: async () => ({ agents: await call('showAgents') }),
  add: { label: 'Add', needs: 'addAgent', run: addAgent },
  draw: (a, again) => table('Agents', [
    { head: 'Agent', cell: (g) => h('span', {}, h('span', { class: 'soft' }, g.tenant ? `${g.tenant}/` : ''), h('b', {}, g.agent_id)) }, { head: 'Name', cell: (g) => g.agent_name || '' },
    { head: 'Substrate', cell: (g) => g.substrate }, { head: 'Target', class: 'wrap', cell: (g) => g.target || '' }, { head: 'State', cell: (g) => g.state },
    { head: 'Waiting', class: 'num', cell: (g) => count(g.waiting) }, { head: 'Parked', class: 'num', cell: (g) => count(g.parked) }, { head: 'Source', cell: (g) => g.source || '' },
  ], a.agents, { none: 'No agent is configured.', actions: (g) => [
    may('showAgent') && g.source !== 'gateway' && button('Show', (e) => act(e, async () => {
      const x = await call('showAgent', { id: g.agent_id, tenant: g.tenant });
      await dialog(g.agent_id, h('pre', { class: 'frame', tabindex: 0 }, JSON.stringify(x, null, 2)), { ok: null, cancel: 'Close', wide: true });
    }), { 'aria-label': `Show ${g.agent_id}` }),
    canChange('setAgent') && g.source === 'added' && button('Change', (e) => act(null, () => changeAgent(e, again, g)), { 'aria-label': `Change ${g.agent_id}` }),
    canChange('removeAgent') && g.source === 'added' && button('Remove', (e) => act(null, () => removeAgent(e, again, g)), { class: 'small danger', 'aria-label': `Remove ${g.agent_id}` })] }),
};

async function makeKey(e, again) {
  const v = await dialog('Make a key', [
    field('Kind', 'kind', { options: [['agent', 'program at /v1 and /mcp'], ['provision', 'gateways that provision themselves'], ['dashboard', 'sign-in at this dashboard']] }),
    field('Tenant', 'tenant', { hint: 'A dashboard key without one is the operator’s' }), field('Identity', 'identity', { hint: 'program: the author of what it writes' }),
    field('Instance', 'instance', { hint: 'program: reads and answers its chats' }), field('Read-only', 'readOnly', { type: 'checkbox' })], { ok: 'Make' });
  if (!v) return;
  await act(e, async () => {
    const a = await call('makeToken', { ...v, readOnly: v.kind === 'dashboard' ? v.readOnly : undefined });
    await secret('Key', 'It is shown only once.', a.token);
    await again();
  });
}

const keys = {
  title: 'Keys', op: 'listTokens', words: 'Keys of programs and people. The keys themselves are not kept.',
  read: async () => ({ keys: await call('listTokens') }),
  add: { label: 'Make a key', needs: 'makeToken', run: makeKey },
  draw: (a, again) => table('Keys', [
    { head: 'Id', cell: (k) => h('code', {}, k.id) }, { head: 'Kind', cell: (k) => [k.kind, k.readOnly && h('span', { class: 'soft' }, ' read-only')] }, { head: 'Tenant', cell: (k) => k.tenant || 'operator' },
    { head: 'Identity', cell: (k) => k.identity || '' }, { head: 'Bound to', cell: (k) => [k.agent, k.instance].filter(Boolean).join(', ') }, { head: 'Made', cell: (k) => when(k.madeAt) },
    { head: 'Used', cell: (k) => when(k.usedAt) }, { head: 'State', cell: (k) => (k.revokedAt ? chip('bad', 'revoked') : k.expiresAt && k.expiresAt < Date.now() ? chip('idle', 'expired') : chip('good', 'good')) },
  ], a.keys, { none: 'No key yet.', actions: canChange('revokeToken') ? (k) => !k.revokedAt && button('Revoke', async (e) => {
    if (!await sure(`Revoke the key ${k.id}?`, 'It is refused from now on. This cannot be undone.', 'Revoke')) return;
    await act(e, async () => { await call('revokeToken', { id: k.id }); notice('Revoked.'); await again(); });
  }, { class: 'small danger', 'aria-label': `Revoke ${k.id}` }) : null }),
};

const LISTS = { pairing, links, places: scopes, rules, routes, gateways, agents, keys };

// ---- the section ----

export function mount(main, query) {
  const names = Object.keys(LISTS).filter((n) => may(LISTS[n].op));
  if (!names.length) { set(main, h('h1', {}, 'Who'), h('p', { class: 'none' }, 'This sign-in may not see any of it.')); return; }
  const name = names.includes(query.get('list')) ? query.get('list') : names[0];
  const l = LISTS[name];
  const box = h('div', {}, h('p', { class: 'soft' }, 'Reading…'));
  const tenant = h('input', { type: 'search', 'aria-label': 'Only this tenant', placeholder: 'Only this tenant', onchange: () => act(null, again) });
  const filtered = ['listGrants', 'listRoutes', 'listGateways'].includes(l.op) && session.tenant === null;
  const again = async () => {
    const a = await l.read(filtered ? { tenant: tenant.value.trim() } : {});
    set(box, l.draw(a, again), a.more && h('p', { class: 'soft' }, 'There are more: name a tenant.'));
  };
  const doing = [l.add, l.more, l.third].filter((x) => x && !session.readOnly && (!x.needs || may(x.needs)));
  set(main, h('h1', { class: 'hidden' }, 'Who'),
    h('div', { class: 'tabs', role: 'navigation', 'aria-label': 'Lists' }, names.map((n) => h('a', { href: `#who?list=${n}`, 'aria-current': n === name ? 'page' : null }, LISTS[n].title))),
    h('section', {}, h('div', { class: 'bar' }, h('h2', {}, l.title), filtered && tenant, button('Read again', (e) => act(e, again)), doing.map((d) => button(d.label, (e) => d.run(e, again), { class: 'small primary' }))),
      h('p', { class: 'soft' }, l.words), box));
  again().catch((e) => set(box, h('p', { class: 'warning' }, e.message)));
}
