// app.js - the frame of the page: sign-in, sections, health, keys.
import { $, h, set, notice, field, refreshTimes, setNow, dialog, count } from './dom.js';
import { session, readSession, signIn, signOut, whenSignedOut, connect, disconnect, live, latest, call, may } from './api.js';
import * as now from './now.js';
import * as why from './why.js';
import * as waiting from './waiting.js';
import * as who from './who.js';
import * as system from './system.js';
import * as chat from './chat.js';

const SECTIONS = { now, why, waiting, who, system, chat };
const TITLES = { now: 'Now', why: 'Why', waiting: 'Waiting', who: 'Who', system: 'System', chat: 'Test chat' };
const main = $('main');
let leave = null;   // ends the section that is shown
let shown = '';

// ---- sections ----

/** "#why?person=7" -> ['why', URLSearchParams] */
function place() {
  const [name, query] = location.hash.slice(1).split('?');
  return [SECTIONS[name] ? name : 'now', new URLSearchParams(query || '')];
}

function show(focus) {
  const [name, query] = place();
  if (leave) leave();
  leave = null;
  shown = name;
  document.title = `${TITLES[name]} · bellhop`;
  for (const a of document.querySelectorAll('#nav a')) {
    if (a.getAttribute('href') === `#${name}`) a.setAttribute('aria-current', 'page');
    else a.removeAttribute('aria-current');
  }
  try {
    leave = SECTIONS[name].mount(main, query) || null;
  } catch (e) {
    set(main, h('p', { class: 'warning' }, `This section could not be shown: ${e.message}`));
  }
  if (focus) main.focus({ preventScroll: true });
  scrollTo(0, 0);
}

// ---- sign-in ----

function signInPage(said) {
  disconnect();
  if (leave) leave();
  leave = null;
  shown = '';
  document.title = 'Sign in · bellhop';
  $('nav').hidden = true;
  $('signout').hidden = true;
  $('role').hidden = true;
  health('unknown', 'Signed out');
  set($('toasts')); // an undo needs the session
  const wrong = h('p', { class: 'warning', role: 'alert', hidden: !said }, said || '');
  const token = field('Token', 'token', { type: 'password', required: true, autocomplete: 'current-password' });
  set(main, h('div', { class: 'signin' },
    h('h1', {}, 'Dashboard'), wrong,
    h('form', {
      onsubmit: async (e) => {
        e.preventDefault();
        try {
          await signIn({ token: e.target.elements.token.value.trim() });
          begin();
        } catch (err) {
          wrong.textContent = err.message;
          wrong.hidden = false;
          e.target.elements.token.select();
        }
      },
    }, token, h('p', { class: 'buttons' }, h('button', { class: 'primary' }, 'Sign in'))),
    h('p', { class: 'soft' }, 'On the machine that runs bellhop, a link signs you in without a token:'),
    h('pre', {}, 'bellhop dashboard'),
    h('p', { class: 'soft' }, 'The token is admin.token of the configuration, or one that the operator made with '),
    h('pre', {}, 'bellhop token dashboard [--tenant T] [--read-only]')));
  main.querySelector('input').focus();
}

// ---- health ----

function health(state, text) {
  if ($('health-text').textContent === text && $('health').dataset.state === state) return;
  $('health').dataset.state = state;
  $('health-text').textContent = text;
}

function judge() {
  const t = latest.tick;
  const bots = latest.bots || [];
  const ill = bots.filter((b) => b.problem).length;
  const deaf = bots.filter((b) => !b.problem && b.deaf).length;
  if (t && t.store && !t.store.healthy) health('bad', `Store: ${t.store.problem || 'unhealthy'}`);
  else if (ill) health('bad', ill === 1 ? 'A bot has a problem' : `${ill} bots have a problem`);
  else if (latest.tally && latest.tally.parked) health('warn', `${count(latest.tally.parked)} parked`);
  else if (deaf) health('warn', deaf === 1 ? 'A bot may be deaf' : `${deaf} bots may be deaf`);
  else health('good', 'All well');
  const n = (latest.tally ? latest.tally.parked : 0) + (t && t.outbox ? t.outbox.unknown : 0);
  $('nav-waiting').hidden = !n;
  $('nav-waiting').textContent = count(n);
  $('nav-waiting').setAttribute('aria-label', `, ${n} need attention`);
}

live.addEventListener('tick', ({ detail: { tick } }) => { setNow(tick.at); refreshTimes(); judge(); });
live.addEventListener('rows', judge);
live.addEventListener('down', () => health('bad', 'Connection lost, trying again…'));

async function countPeople() {
  if (!may('listPairings')) return;
  try {
    const { waiting } = await call('listPairings', { limit: 1 });
    $('nav-who').hidden = !waiting;
    $('nav-who').textContent = count(waiting);
    $('nav-who').setAttribute('aria-label', `, ${waiting} wait to be let in`);
  } catch { /* the section says so */ }
}

// ---- keys ----

const HELP = [['1 … 6', 'go to a section'], ['/', 'find'], ['?', 'this list'], ['Esc', 'close a dialog']];

document.addEventListener('keydown', (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || !session.signedIn) return;
  if (e.target.closest('input, textarea, select, dialog')) return;
  const names = Object.keys(SECTIONS);
  if (e.key >= '1' && e.key <= String(names.length)) {
    location.hash = `#${names[Number(e.key) - 1]}`;
  } else if (e.key === '/') {
    const find = main.querySelector('input[type=search]');
    if (find) { e.preventDefault(); find.focus(); }
  } else if (e.key === '?') {
    dialog('Keys', h('dl', { class: 'facts' }, HELP.map(([k, v]) => [h('dt', {}, h('kbd', {}, k)), h('dd', {}, v)])), { ok: null, cancel: 'Close' });
  }
});

// ---- start ----

function begin() {
  $('nav').hidden = false;
  $('signout').hidden = false;
  $('where').textContent = location.host;
  const role = [session.tenant !== null ? `tenant ${session.tenant}` : 'operator', session.readOnly ? 'read-only' : ''].filter(Boolean).join(', ');
  $('role').textContent = role;
  $('role').hidden = false;
  connect();
  show(false);
  countPeople();
}

whenSignedOut(() => { session.signedIn = false; if (!$('nav').hidden) signInPage('Your session is over. Sign in again.'); });
window.addEventListener('hashchange', () => { if (session.signedIn) show(true); });
window.addEventListener('pageshow', (e) => { if (e.persisted && session.signedIn) connect(); });
setInterval(() => { if (session.signedIn && !document.hidden) countPeople(); }, 15000);
$('signout').addEventListener('click', async () => {
  try { await signOut(); } catch { /* the cookie may be gone already */ }
  session.signedIn = false;
  signInPage('');
});

async function start() {
  const link = location.hash.startsWith('#link=') ? location.hash.slice(6) : '';
  if (link) history.replaceState(null, '', location.pathname); // the secret leaves the address bar
  try {
    if (link) await signIn({ link });
    else await readSession();
  } catch (e) {
    if (link) { await readSession().catch(() => {}); }
    if (!session.signedIn) { signInPage(e.message); return; }
    notice(e.message, { bad: true });
  }
  if (session.signedIn) begin();
  else signInPage('');
}

start();
