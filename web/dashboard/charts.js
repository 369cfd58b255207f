// charts.js - the flow picture and the curves over time, in HTML and SVG.
import { h, svg, set, rate, count } from './dom.js';

const STAGES = [
  { key: 'in', label: 'In', what: 'messages from platforms' },
  { key: 'gate', label: 'Gate', what: 'passed to somebody' },
  { key: 'delivered', label: 'Delivered', what: 'sent to agents' },
  { key: 'acked', label: 'Acked', what: 'taken by agents' },
  { key: 'out', label: 'Out', what: 'actions of agents' },
];

/** The way of a message as five stages; the line between two grows with the rate. */
export class Flow {
  constructor() {
    this.cells = {};
    this.node = h('ol', { class: 'flow', 'aria-label': 'Messages per second, from platforms to agents and back' },
      STAGES.map((s) => {
        const value = h('b', {}, '–');
        const side = h('span', { class: 'side' });
        const item = h('li', {}, h('span', { class: 'label' }, s.label), h('span', { class: 'value' }, value, h('small', {}, '/s')),
          h('span', { class: 'soft what' }, s.what), side);
        this.cells[s.key] = { value, side, item };
        return item;
      }));
  }

  /** r: rates per second; waiting: gauges. */
  show(r, waiting) {
    const values = { in: r.in, gate: r.in - r.gated - r.unrouted, delivered: r.delivered, acked: r.acked, out: r.out };
    for (const [key, v] of Object.entries(values)) {
      const c = this.cells[key];
      c.value.textContent = rate(Math.max(0, v));
      c.item.style.setProperty('--flow', `${Math.min(10, 1 + Math.log2(1 + Math.max(0, v)) * 1.2)}px`);
      c.item.classList.toggle('moving', v > 0);
    }
    set(this.cells.in.side, r.duplicates > 0 && `${rate(r.duplicates)}/s repeated`);
    set(this.cells.gate.side, [r.gated > 0 && `${rate(r.gated)}/s not for anybody`, r.unrouted > 0 && ` ${rate(r.unrouted)}/s unrouted`]);
    set(this.cells.delivered.side, waiting.entries > 0 && `${count(waiting.entries)} waiting`);
    set(this.cells.acked.side, waiting.unacked > 0 && `${count(waiting.unacked)} unacked`);
    set(this.cells.out.side, waiting.outbox > 0 && `${count(waiting.outbox)} in the outbox`);
  }
}

const H = 108; // px, as in dashboard.css
const PAD = { left: 36, right: 2, top: 8, bottom: 18 };

/** Curves over time.  series: [{ name, values }], the newest value last; null is a gap. */
export class Curves {
  constructor(title, unit, names) {
    this.unit = unit;
    this.title = title;
    this.names = names;
    this.svg = svg('svg', { role: 'img', 'aria-label': title });
    this.latest = names.map(() => h('b', {}, '–'));
    this.node = h('figure', { class: 'curves' },
      h('figcaption', {}, h('span', { class: 'title' }, title),
        names.map((n, i) => h('span', { class: `key k${i}` }, n, ' ', this.latest[i]))),
      this.svg);
  }

  show(series, stepMs) {
    const W = Math.max(160, this.svg.clientWidth || 560); // its own pixels: texts keep their shape
    this.svg.setAttribute('viewBox', `0 0 ${W} ${H}`);
    const n = Math.max(2, ...series.map((s) => s.length));
    const top = nice(Math.max(0, ...series.flat()));
    const x = (i) => PAD.left + ((W - PAD.left - PAD.right) * i) / (n - 1);
    const y = (v) => H - PAD.bottom - ((H - PAD.top - PAD.bottom) * v) / top;
    const line = (values) => {
      let d = '';
      let pen = false;
      values.forEach((v, i) => {
        if (v === null) { pen = false; return; }
        d += `${pen ? 'L' : 'M'}${x(i + n - values.length).toFixed(1)} ${y(v).toFixed(1)}${pen ? '' : 'h0'}`; // a lone value is a dot
        pen = true;
      });
      return d;
    };
    const minutes = ((n - 1) * stepMs) / 60000;
    const parts = [0, 0.5, 1].map((f) => svg('g', { class: 'grid' },
      svg('line', { x1: PAD.left, x2: W - PAD.right, y1: y(top * f), y2: y(top * f) }),
      svg('text', { x: PAD.left - 6, y: y(top * f) + 3.5, 'text-anchor': 'end' }, short(top * f))));
    parts.push(svg('text', { x: PAD.left, y: H - 4 }, minutes >= 1 ? `${Math.round(minutes)} min ago` : `${Math.round(minutes * 60)} s ago`),
      svg('text', { x: W - PAD.right, y: H - 4, 'text-anchor': 'end' }, 'now'));
    series.forEach((values, i) => {
      if (i === 0 && values.length > 1 && values.every((v) => v !== null)) {
        parts.push(svg('path', { class: 'area', d: `${line(values)}L${x(n - 1)} ${y(0)}L${x(n - values.length)} ${y(0)}Z` }));
      }
      parts.push(svg('path', { class: `line k${i}`, d: line(values) }));
      const last = values.findLast((v) => v !== null) ?? null;
      this.latest[i].textContent = last === null ? '–' : `${short(last)}${this.unit}`;
    });
    set(this.svg, ...parts);
    this.svg.setAttribute('aria-label', `${this.title}: ${this.names.map((name, i) => `${name} ${this.latest[i].textContent}`).join(', ')}`);
  }
}

/** The next round number; nothing yet: 1. */
function nice(v) {
  if (v <= 0) return 1;
  const e = 10 ** Math.floor(Math.log10(v));
  return [1, 2, 5, 10].map((f) => f * e).find((f) => f >= v * 0.999);
}

function short(v) {
  if (v === 0) return '0';
  if (v < 1) return v.toPrecision(1);
  return v < 10 && v % 1 ? v.toFixed(1) : count(Math.round(v));
}
