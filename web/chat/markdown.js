// markdown.js - the Markdown agents write, as DOM nodes.
//
// Nothing here ever parses HTML: text becomes text nodes, structure becomes elements made by name,
// links are http(s) only.  Every pattern is linear in the length of the text, nesting is bounded.

const MAX_DEPTH = 8;

/** @param {string} text @returns {DocumentFragment} */
export function markdown(text) {
  const out = document.createDocumentFragment();
  blocks(out, text.replace(/\r\n?/g, '\n').split('\n'), 0);
  return out;
}

function el(name, parent, className) {
  const e = document.createElement(name);
  if (className) e.className = className;
  if (parent) parent.append(e);
  return e;
}

// ---- blocks ----

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)[^`]*$/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$/;
const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,11})([-*+]|\d{1,9}[.)])(?: +|$)(.*)$/;
const blank = (line) => line.trim() === '';

function blocks(parent, lines, depth) {
  for (let at = 0; at < lines.length;) {
    const line = lines[at];
    let m;
    if (blank(line)) at++;
    else if ((m = FENCE.exec(line))) at = fence(parent, lines, at, m);
    else if ((m = HEADING.exec(line))) { inline(el(`h${Math.min(6, m[1].length + 2)}`, parent), m[2], 0); at++; }
    else if (RULE.test(line)) { el('hr', parent); at++; }
    else if (QUOTE.test(line) && depth < MAX_DEPTH) at = quote(parent, lines, at, depth);
    else if (ITEM.test(line) && depth < MAX_DEPTH) at = list(parent, lines, at, depth);
    else at = paragraph(parent, lines, at, depth);
  }
}

function fence(parent, lines, at, [, mark, language]) {
  const body = [];
  const closes = (line) => line.trim().length >= mark.length && line.trim() === mark[0].repeat(line.trim().length);
  for (at++; at < lines.length && !closes(lines[at]); at++) body.push(lines[at]);
  code(parent, body.join('\n'), language);
  return at + 1; // a fence that is still being written has no end yet
}

function code(parent, text, language) {
  const figure = el('figure', parent, 'code');
  const bar = el('figcaption', figure);
  el('span', bar).textContent = language || 'code';
  const copy = el('button', bar, 'copy');
  copy.type = 'button';
  copy.textContent = 'Copy';
  copy.setAttribute('aria-label', 'Copy this code');
  const pre = el('pre', figure);
  pre.tabIndex = 0; // so that a keyboard can scroll it
  pre.setAttribute('aria-label', language ? `Code, ${language}` : 'Code');
  el('code', pre).textContent = text;
}

function quote(parent, lines, at, depth) {
  const inner = [];
  for (; at < lines.length && QUOTE.test(lines[at]); at++) inner.push(lines[at].replace(QUOTE, ''));
  blocks(el('blockquote', parent), inner, depth + 1);
  return at;
}

function list(parent, lines, at, depth) {
  const [, indent, firstMark] = ITEM.exec(lines[at]);
  const ordered = /\d/.test(firstMark);
  const out = el(ordered ? 'ol' : 'ul', parent);
  if (ordered && parseInt(firstMark, 10) !== 1) out.start = parseInt(firstMark, 10);
  while (at < lines.length) {
    const m = ITEM.exec(lines[at]);
    if (!m || m[1].length !== indent.length || /\d/.test(m[2]) !== ordered || RULE.test(lines[at])) break;
    const inner = [m[3]];
    const inset = m[1].length + 2;
    for (at++; at < lines.length; at++) { // what belongs to this item: indented deeper, or a lazy line of its paragraph
      const line = lines[at];
      const deeper = line.length - line.trimStart().length >= inset;
      if (blank(line)) {
        if (at + 1 >= lines.length || !/^\s{2,}\S/.test(lines[at + 1]) || lines[at + 1].search(/\S/) < inset) break;
        inner.push('');
      } else if (deeper) {
        inner.push(line.slice(Math.min(line.search(/\S/), m[1].length + m[2].length + 1)));
      } else if (ITEM.test(line) || FENCE.test(line) || QUOTE.test(line) || HEADING.test(line) || blank(lines[at - 1])) {
        break;
      } else {
        inner.push(line);
      }
    }
    item(out, inner, depth);
    let next = at;
    while (next < lines.length && blank(lines[next])) next++;
    const follows = next < lines.length && ITEM.exec(lines[next]);
    if (follows && follows[1].length === indent.length && /\d/.test(follows[2]) === ordered) at = next;
  }
  return at;
}

function item(parent, lines, depth) {
  const li = el('li', parent);
  const task = /^\[([ xX])\] +/.exec(lines[0]);
  if (task) {
    lines[0] = lines[0].slice(task[0].length);
    li.className = 'task';
    const box = el('input', li);
    box.type = 'checkbox';
    box.disabled = true;
    box.checked = task[1] !== ' ';
    box.setAttribute('aria-label', box.checked ? 'done' : 'to do');
  }
  blocks(li, lines, depth + 1);
  if (li.children.length === 1 && li.firstElementChild.tagName === 'P') li.firstElementChild.replaceWith(...li.firstElementChild.childNodes);
}

function paragraph(parent, lines, at, depth) {
  const p = el('p', parent);
  for (let first = true; at < lines.length && !blank(lines[at]); at++, first = false) {
    const line = lines[at];
    if (!first && (FENCE.test(line) || HEADING.test(line) || RULE.test(line) ||
        (depth < MAX_DEPTH && (QUOTE.test(line) || ITEM.test(line))))) break;
    if (!first) el('br', p); // people and agents break lines on purpose in a chat
    inline(p, line.trim(), 0);
  }
  return at;
}

// ---- inside a line ----

const LINK = /\[((?:[^[\]\\]|\\.)*)\]\(\s*<?((?:[^\s()<>]|\([^\s()<>]*\))+)>?(?:\s+"[^"]*")?\s*\)/y;
const BARE = /https?:\/\/[^\s<>"`]+/y;
const SPECIAL = /[\\`*_~[h]/g;
const word = (c) => c !== undefined && /[\p{L}\p{N}_]/u.test(c);

function inline(parent, text, depth) {
  const dead = new Set(); // marks that have no partner from here on
  let plain = '';
  const flush = () => { if (plain) parent.append(plain); plain = ''; };
  for (let at = 0; at < text.length;) {
    SPECIAL.lastIndex = at;
    const hit = SPECIAL.exec(text);
    if (!hit) { plain += text.slice(at); break; }
    plain += text.slice(at, hit.index);
    at = hit.index;
    const found = depth < MAX_DEPTH ? special(text, at, dead) : null;
    if (!found) { plain += text[at++]; continue; }
    if (found.text !== undefined) plain += found.text;
    else { flush(); found.add(parent, depth + 1); }
    at = found.end;
  }
  flush();
}

/** What starts at @at, or null when the character means itself. */
function special(text, at, dead) {
  switch (text[at]) {
    case '\\':
      return /[\\`*_~[\](){}#+\-.!>|]/.test(text[at + 1] || '') ? { text: text[at + 1], end: at + 2 } : null;
    case '`': return codeSpan(text, at, dead);
    case '[': return link(text, at);
    case 'h': return bareLink(text, at);
    default: return emphasis(text, at, dead);
  }
}

function run(text, at) {
  let n = 1;
  while (text[at + n] === text[at]) n++;
  return n;
}

function codeSpan(text, at, dead) {
  const n = run(text, at);
  const mark = '`'.repeat(n);
  if (dead.has(mark)) return { text: mark, end: at + n };
  for (let end = at + n; (end = text.indexOf(mark, end)) >= 0;) {
    const m = run(text, end);
    if (m === n) {
      let body = text.slice(at + n, end);
      if (body.length > 2 && body.startsWith(' ') && body.endsWith(' ')) body = body.slice(1, -1);
      return { end: end + n, add: (parent) => { el('code', parent).textContent = body; } };
    }
    end += m;
  }
  dead.add(mark);
  return { text: mark, end: at + n };
}

function emphasis(text, at, dead) {
  const c = text[at];
  const n = Math.min(run(text, at), c === '~' ? 2 : 3);
  if (c === '~' && n < 2) return null;
  const mark = c.repeat(n);
  const after = text[at + n];
  if (after === undefined || /\s/.test(after) || (c === '_' && word(text[at - 1])) || dead.has(mark)) return { text: mark, end: at + n };
  for (let end = at + n; (end = text.indexOf(mark, end)) >= 0; end++) {
    if (end === at + n || /\s/.test(text[end - 1]) || text[end - 1] === '\\') continue;
    if (n < 3 && (text[end + n] === c || text[end - 1] === c)) { end += run(text, end) - 1; continue; }
    if (c === '_' && word(text[end + n])) continue;
    const body = text.slice(at + n, end);
    const names = c === '~' ? ['del'] : [['em'], ['strong'], ['strong', 'em']][n - 1];
    return { end: end + n, add: (parent, depth) => inline(names.reduce((p, name) => el(name, p), parent), body, depth) };
  }
  dead.add(mark);
  return { text: mark, end: at + n };
}

function safeUrl(url) {
  try {
    const u = new URL(url);
    return u.protocol === 'http:' || u.protocol === 'https:' ? u.href : null;
  } catch {
    return null;
  }
}

function anchor(parent, href) {
  const a = el('a', parent);
  a.href = href;
  a.target = '_blank';
  a.rel = 'noopener noreferrer nofollow';
  return a;
}

function link(text, at) {
  LINK.lastIndex = at;
  const m = LINK.exec(text);
  const href = m && safeUrl(m[2]);
  if (!href) return null; // what we do not link stays readable as it was written
  return { end: at + m[0].length, add: (parent, depth) => inline(anchor(parent, href), m[1] || m[2], Math.max(depth, MAX_DEPTH - 2)) };
}

function bareLink(text, at) {
  BARE.lastIndex = at;
  if (word(text[at - 1])) return null;
  const m = BARE.exec(text);
  if (!m) return null;
  let url = m[0].replace(/[.,;:!?'*_~\]]+$/, '');
  while (url.endsWith(')') && url.split('(').length < url.split(')').length) url = url.slice(0, -1);
  const href = safeUrl(url);
  if (!href) return null;
  return { end: at + url.length, add: (parent) => { anchor(parent, href).textContent = url; } };
}
