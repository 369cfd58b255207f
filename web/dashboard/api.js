// api.js - the line to bellhop: the session, calls of operations, and the stream of live numbers.

const BASE = '/dashboard/api/';

export class CallError extends Error {
  constructor(message, { code = 'unreachable', status = 0 } = {}) {
    super(message);
    this.code = code;
    this.status = status;
  }
}

export const session = { signedIn: false, ops: [] };
let onSignedOut = () => {};

/** Calls fn() once the server says that the session is over. */
export function whenSignedOut(fn) { onSignedOut = fn; }

/** May this sign-in call the operation?  False also where the server does not have it. */
export const may = (op) => session.ops.includes(op);

async function ask(name, body) {
  const options = body === undefined ? {} : {
    method: 'POST', body: JSON.stringify(body),
    headers: { 'Content-Type': 'application/json', 'X-Bellhop-Csrf': session.csrf || '' },
  };
  let answer;
  let said = {};
  try {
    answer = await fetch(BASE + name, { cache: 'no-store', credentials: 'same-origin', ...options });
  } catch {
    throw new CallError('bellhop cannot be reached.');
  }
  try { said = await answer.json(); } catch { /* not JSON: the status says enough */ }
  if (answer.status === 401 && said.code === 'signed_out') onSignedOut();
  if (!answer.ok) throw new CallError(said.error || `bellhop answered ${answer.status}.`, { code: said.code, status: answer.status });
  return said;
}

function adopt(said) {
  for (const k of Object.keys(session)) delete session[k];
  Object.assign(session, { ops: [] }, said);
  return session;
}

export const readSession = async () => adopt(await ask('session'));
export const signIn = async (how) => { await ask('signin', how); return readSession(); };
export const signOut = async () => adopt(await ask('signout', {}));

/** Runs an operation of the server.  Arguments that are undefined, null or '' are left out. */
export function call(op, args = {}) {
  return ask(op, Object.fromEntries(Object.entries(args).filter(([, v]) => v !== undefined && v !== null && v !== '')));
}

/** All pages of a list; each page's lists are joined.  At most `most` pages, then `more` is true. */
export async function callAll(op, args = {}, most = 20) {
  const all = await call(op, args);
  let last = all;
  for (let i = 1; last.next && i < most; i++) {
    last = await call(op, { ...args, after: last.next });
    for (const [k, v] of Object.entries(last)) if (Array.isArray(v)) all[k] = [...(all[k] || []), ...v];
  }
  all.more = Boolean(last.next);
  return all;
}

// ---- live numbers ----
//
//   open --> up --lost--> waiting (the browser reconnects) --> up ...
//                 '--over--> signed out        '--rest--> resting --(somebody looks)--> open

export const live = new EventTarget(); // events: tick, bots, rows, changes, up, down
export const latest = { tick: null, bots: null, tally: null };
let source = null;
let stream = '';
let looking = { count: 0 };
let sendingLook = false;
let lookAgain = false;

function tell(type, detail) { live.dispatchEvent(new CustomEvent(type, { detail })); }

export function connect() {
  disconnect();
  source = new EventSource(`${BASE}events`);
  const on = (type, fn) => source.addEventListener(type, (e) => fn(JSON.parse(e.data)));
  on('hello', (d) => { stream = d.stream; sendLook(); tell('up'); });
  on('tick', (d) => { const before = latest.tick; latest.tick = d; tell('tick', { tick: d, before }); });
  on('bots', (d) => { latest.bots = d.platforms; tell('bots', d.platforms); });
  on('rows', (d) => { latest.tally = d.tally; tell('rows', d); });
  on('changes', (d) => tell('changes', d.rows));
  on('over', (d) => { disconnect(); if (d.why === 'draining') { tell('down'); setTimeout(connect, 3000); } else onSignedOut(); });
  on('rest', () => { disconnect(); tell('down'); });
  source.onerror = () => {
    tell('down');
    if (source && source.readyState === EventSource.CLOSED) {
      disconnect();
      setTimeout(() => readSession().then((s) => (s.signedIn ? connect() : onSignedOut())).catch(() => connect()), 2000);
    }
  };
}

export function disconnect() {
  if (source) source.close();
  source = null;
  stream = '';
}

document.addEventListener('visibilitychange', () => {
  if (!document.hidden && !source && session.signedIn) connect();
});

/** Which instances the page shows: { filter, state, waiting, sort, offset, count }. */
export function look(what) {
  looking = what;
  sendLook();
}

/** One request at a time: two at once may arrive in another order, and the older window would stay. */
async function sendLook() {
  lookAgain = true;
  if (sendingLook) return;
  sendingLook = true;
  while (lookAgain && stream) {
    lookAgain = false;
    await ask('look', { stream, ...looking }).catch(() => {});
  }
  sendingLook = false;
}
