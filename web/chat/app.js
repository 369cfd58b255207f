// app.js - the chat page: what happens when.

import { Tray } from './files.js';
import { CallError, Link } from './link.js';
import { Thread, copyText } from './thread.js';

const MAX_BYTES = 16 * 1024;
const NEAR_BOTTOM_PX = 90;
const $ = (id) => document.getElementById(id);
const bot = document.querySelector('meta[name=bellhop-bot]').content;
const api = `/chat/${encodeURIComponent(bot)}/api`;
const title = document.title;
const store = (area) => ({ // storage may be forbidden: the page works without
  get(key) { try { return area().getItem(`bellhop:${bot}:${key}`); } catch { return null; } },
  set(key, value) { try { area().setItem(`bellhop:${bot}:${key}`, value); } catch { /* then not */ } },
});
const tab = store(() => sessionStorage);

const link = new Link(api, { event: onEvent, up: onUp, down: onDown });
const thread = new Thread($('log'), { retry: deliver, press, fileUrl: (file) => link.fileUrl(file) });

// ---- the agent's state ----

const STATES = {
  live: { presence: 'Online' },
  asleep: { presence: 'Asleep', icon: 'moon', note: 'The agent is asleep. Your message is kept until it wakes.' },
  waking: { presence: 'Waking up…', icon: 'sun', note: 'The agent is waking up. Your message is kept.' },
  away: { presence: 'Away', icon: 'cloud', note: 'The agent is away. Your message is kept until it returns.' },
  never: { presence: 'Not here yet', icon: 'bell', note: 'The agent has not arrived yet. Your message is kept until it does.' },
  none: { presence: 'Nobody here', icon: 'wrench', note: 'No agent is attached to this page yet, so nobody reads what you write here.' },
};
const STILL_ASLEEP = 'The agent is still asleep. Your message is kept and waits for it.';
const WAKING_MS = 60000; // after this long nobody believes in "waking up"
let state = 'unknown';
let noteTimer = 0;

// The reader is at the end and wants to stay there.  Only moving up ends that: on its way down a smooth
// scroll is not at the end either, and messages that arrive meanwhile must not leave it behind.
let stick = true;
let lastTop = 0;

function setState(next) {
  if (!STATES[next]) return;
  const slept = ['asleep', 'waking', 'away', 'never'].includes(state);
  state = next;
  $('presence').dataset.state = next;
  $('presence-text').textContent = STATES[next].presence;
  clearTimeout(noteTimer);
  if (next === 'live' && slept) {
    showNote('sun', 'The agent is awake.');
    noteTimer = setTimeout(() => showNote(), 4000);
  } else {
    showNote(STATES[next].icon, STATES[next].note);
    if (next === 'none') $('note-text').append(operatorHelp());
    if (next === 'waking') noteTimer = setTimeout(() => { setState('asleep'); showNote('moon', STILL_ASLEEP); }, WAKING_MS);
  }
  if (next !== 'live') setTyping(false);
}

function showNote(icon, text) {
  const stuck = stick;
  $('note').hidden = !text;
  $('note').dataset.state = state;
  $('note-text').textContent = text || '';
  if (icon) $('note-icon').setAttribute('href', `#i-${icon}`);
  if (stuck) toBottom();
}

/** Whoever runs this bellhop may be looking at their own empty page. */
function operatorHelp() {
  const help = document.createElement('p');
  const command = document.createElement('code');
  const copy = document.createElement('button');
  command.textContent = `bellhop gateway add --tenant demo --platform web --bot ${bot}`;
  copy.type = 'button';
  copy.className = 'inline';
  copy.textContent = 'Copy';
  copy.setAttribute('aria-label', 'Copy the command');
  copy.addEventListener('click', async () => { copy.textContent = (await copyText(command.textContent)) ? 'Copied' : 'Select it by hand'; });
  help.append('If you run it, attach one: ', command, ' ', copy);
  return help;
}

// ---- typing ----

let typingTimer = 0;

function setTyping(on, forMs = 6000, status = '') {
  const stuck = stick;
  clearTimeout(typingTimer);
  if (on) typingTimer = setTimeout(() => setTyping(false), forMs);
  $('typing-status').textContent = on ? status : '';
  if (on === !$('typing').hidden) return;
  $('typing').hidden = !on;
  $('typing-said').textContent = on ? 'The agent is typing' : '';
  $('stop').hidden = !on;
  if (stuck) toBottom();
}

// ---- scrolling ----

const scroller = $('scroller');
let unseen = 0;

function atBottom() {
  return scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < NEAR_BOTTOM_PX;
}

function toBottom(smooth = false) {
  const calm = matchMedia('(prefers-reduced-motion: reduce)').matches;
  scroller.scrollTo({ top: scroller.scrollHeight, behavior: smooth && !calm ? 'smooth' : 'instant' });
  setUnseen(0);
}

function setUnseen(n) {
  unseen = n;
  $('newer').hidden = n === 0;
  $('newer-text').textContent = n === 1 ? '1 new message' : `${n} new messages`;
}

scroller.addEventListener('scroll', () => {
  const top = scroller.scrollTop;
  if (atBottom()) stick = true;
  else if (top < lastTop) stick = false;
  lastTop = top;
  if (stick && unseen) setUnseen(0);
}, { passive: true });
new ResizeObserver(() => { if (stick) toBottom(); }).observe(scroller);
new ResizeObserver(() => { if (stick) toBottom(); }).observe($('log'));
$('newer').addEventListener('click', () => { toBottom(true); $('text').focus(); });

// ---- unread in the title ----

let unread = 0;

function setUnread(n) {
  unread = n;
  document.title = n ? `(${n}) ${title}` : title;
}
document.addEventListener('visibilitychange', () => { if (!document.hidden) setUnread(0); });

// ---- events ----

function onEvent(type, data) {
  if (type === 'state') setState(data.state === 'asleep' && state === 'waking' ? 'waking' : data.state);
  else if (type === 'typing') setTyping(data.on, data.for_ms, data.text);
  else if (type === 'reset') loadHistory();
  else if (type === 'pressed') thread.pressed(data.id, data.option);
  else if (type === 'delta') grown(data);
  else show(type, data);
}

/** An answer that is being written: its text has changed from a place on. */
function grown(delta) {
  const stuck = stick;
  if (!thread.grow(delta)) return;
  setTyping(false);
  $('welcome').hidden = true;
  if (stuck) toBottom(true);
}

function show(type, message) {
  const stuck = stick;
  if (message.from === 'agent' && type === 'message') setTyping(false);
  if (type === 'interrupt') setTyping(false);
  const { entry, isNew } = type === 'edit' ? thread.edit(message) : thread.put(message);
  forget(entry.client_id);
  $('welcome').hidden = thread.size > 0;
  if (message.from === 'visitor' && isNew && state === 'asleep') setState('waking');
  if (stuck) toBottom(true);
  else if (isNew && message.from === 'agent') setUnseen(unseen + 1);
  if (isNew && message.from === 'agent' && document.hidden) setUnread(unread + 1);
}

let isUp = false;
let firstUp = true;
let bannerTimer = 0;

function onUp() {
  clearTimeout(bannerTimer);
  $('banner').hidden = true;
  if (firstUp) loadHistory();
  else if (!isUp) resendUnreached();
  firstUp = false;
  isUp = true;
}

/** What failed because nobody could be reached goes out by itself; what was refused waits for its writer. */
function resendUnreached() {
  for (const entry of waiting.values()) if (entry.status === 'failed' && entry.unreachable) deliver(entry);
}

function onDown() {
  isUp = false;
  setTyping(false);
  clearTimeout(bannerTimer);
  bannerTimer = setTimeout(() => {
    banner('The connection is lost. Trying again…', 'Try now');
    $('presence').dataset.state = 'unknown';
    $('presence-text').textContent = 'Reconnecting…';
  }, 1200);
  if (firstUp) checkVisitor();
}

function banner(text, button) {
  $('banner-text').textContent = text;
  $('banner-button').textContent = button;
  $('banner').hidden = false;
}
$('banner-button').addEventListener('click', () => link.open());

/** A stream that never opens does not say why; a plain call does. */
async function checkVisitor() {
  try {
    await link.history();
  } catch (e) {
    if (e.status !== 401) return;
    clearTimeout(bannerTimer);
    banner('This page keeps your place with a cookie. Allow cookies for this site, then reload.', 'Try now');
  }
}

// ---- history ----

async function loadHistory(before) {
  const log = $('log');
  try {
    const got = await link.history(before);
    const height = scroller.scrollHeight;
    const stuck = stick;
    log.setAttribute('aria-live', 'off'); // old messages are not news
    for (const message of got.messages) {
      const { entry } = thread.put(message);
      forget(entry.client_id);
    }
    if (before || !$('earlier').dataset.known) $('earlier').hidden = !got.more;
    $('earlier').dataset.known = 'yes';
    $('welcome').hidden = thread.size > 0;
    setName(got.name);
    if (before) scroller.scrollTop += scroller.scrollHeight - height;
    else if (stuck) toBottom();
  } catch (e) {
    if (e instanceof CallError && e.status === 401) checkVisitor();
    else setTimeout(() => loadHistory(before), 3000);
  } finally {
    log.setAttribute('aria-busy', 'false');
    setTimeout(() => log.setAttribute('aria-live', 'polite'), 200);
  }
}
$('earlier').addEventListener('click', () => loadHistory(thread.oldestId));

// ---- sending ----

const waiting = new Map(); // client_id -> entry the server has not confirmed

function remember() {
  const list = [...waiting.values()].map(({ client_id, text, at, files }) => ({ client_id, text, at, files }));
  tab.set('outbox', JSON.stringify(list));
}

function forget(clientId) {
  if (clientId && waiting.delete(clientId)) remember();
}

function newId() {
  return [...crypto.getRandomValues(new Uint8Array(12))].map((b) => b.toString(16).padStart(2, '0')).join('');
}

function say(text, files = []) {
  const entry = thread.putLocal({ client_id: newId(), text, files, at: Date.now(), status: 'sending' });
  waiting.set(entry.client_id, entry);
  remember();
  $('welcome').hidden = true;
  toBottom(true);
  deliver(entry);
}

async function deliver(entry) {
  thread.sending(entry);
  entry.unreachable = false;
  try {
    const { id } = await link.send(entry.text, entry.client_id, entry.files);
    thread.settle(entry, { id });
    forget(entry.client_id);
    if (state === 'asleep') setState('waking');
  } catch (e) {
    if (entry.id) return; // its echo arrived: it was taken
    entry.unreachable = e.status === 0;
    thread.settle(entry, { error: `Not sent. ${e.message}` });
    if (stick) toBottom();
  }
}

function restoreOutbox() {
  let list = [];
  try {
    list = JSON.parse(tab.get('outbox') || '[]');
  } catch { /* somebody else wrote it */ }
  for (const { client_id, text, at, files } of list) {
    const entry = thread.putLocal({ client_id, text, files, at, status: 'failed' });
    thread.settle(entry, { error: 'Not sent.' });
    waiting.set(client_id, entry);
  }
}

// ---- questions ----

async function press(entry, option) {
  thread.pressing(entry, true);
  try {
    await link.press(entry.prompt.id, option);
    thread.pressed(entry.id, option);
  } catch (e) {
    if (e.code === 'answered') entry.prompt.over = true; // by another page, or before bellhop was restarted
    thread.pressing(entry, false, e.code === 'answered' ? e.message : `Not taken. ${e.message}`);
  }
}

// ---- files ----

const tray = new Tray($('tray'), {
  upload: (file, progress) => link.upload(file, progress),
  changed: () => grow(),
  refused: (why) => {
    showNote('cloud', why);
    clearTimeout(noteTimer);
    noteTimer = setTimeout(() => showNote(STATES[state]?.icon, STATES[state]?.note), 6000);
  },
});

$('attach').addEventListener('click', () => $('picker').click());
$('picker').addEventListener('change', () => {
  tray.add($('picker').files);
  $('picker').value = '';
  $('text').focus();
});
document.addEventListener('paste', (e) => {
  const files = [...(e.clipboardData?.files || [])];
  if (!files.length) return;
  e.preventDefault();
  tray.add(files);
});
document.addEventListener('dragover', (e) => {
  if (![...(e.dataTransfer?.types || [])].includes('Files')) return;
  e.preventDefault();
  document.body.classList.add('dropping');
});
document.addEventListener('dragleave', (e) => { if (!e.relatedTarget) document.body.classList.remove('dropping'); });
document.addEventListener('drop', (e) => {
  document.body.classList.remove('dropping');
  if (!e.dataTransfer?.files.length) return;
  e.preventDefault(); // else the browser would leave the page for the file
  tray.add(e.dataTransfer.files);
});

// ---- the composer ----

const text = $('text');
const touch = matchMedia('(hover: none) and (pointer: coarse)');

function grow() {
  if (!CSS.supports('field-sizing', 'content')) {
    text.style.height = 'auto';
    text.style.height = `${text.scrollHeight}px`;
  }
  const bytes = new TextEncoder().encode(text.value).length;
  const over = bytes > MAX_BYTES;
  $('length').textContent = bytes > MAX_BYTES * 0.9 ? `${over ? 'Too long: ' : ''}${bytes.toLocaleString()} of ${MAX_BYTES.toLocaleString()} bytes` : '';
  $('length').classList.toggle('over', over);
  $('send').disabled = over || tray.busy || (text.value.trim() === '' && tray.empty);
  tab.set('draft', text.value);
}

text.addEventListener('input', grow);
text.addEventListener('keydown', (e) => {
  if (e.key !== 'Enter' || e.shiftKey || e.altKey || e.ctrlKey || e.metaKey) return;
  if (e.isComposing || e.keyCode === 229 || touch.matches) return; // an input method's Enter is its own
  e.preventDefault();
  $('composer').requestSubmit();
});
$('composer').addEventListener('submit', (e) => {
  e.preventDefault();
  if ($('send').disabled) return;
  const words = text.value.trim();
  const files = tray.take();
  text.value = '';
  grow();
  say(words, files);
  text.focus();
});
$('stop').addEventListener('click', () => { say('/stop'); text.focus(); });
document.addEventListener('keydown', (e) => {
  if (e.key === 'Escape' && !$('stop').hidden && !$('name-dialog').open) $('stop').click();
});

// ---- the name ----

function setName(name) {
  $('name-label').textContent = name || 'Your name';
  $('name').value = name || '';
}
$('name-button').addEventListener('click', () => $('name-dialog').showModal());
$('name-cancel').addEventListener('click', () => $('name-dialog').close());
$('name-form').addEventListener('submit', async () => {
  try {
    setName((await link.rename($('name').value)).name);
  } catch (e) {
    showNote('cloud', `Your name was not kept. ${e.message}`);
  }
});

// ---- start ----

text.value = tab.get('draft') || '';
grow();
restoreOutbox();
link.open();
if (!touch.matches) text.focus();
