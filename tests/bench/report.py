"""The table for people, and the picture."""

from xml.sax.saxutils import escape

COLOURS = {"bellhop": "#2563eb", "sink": "#9ca3af", "mosquitto": "#d97706", "sqlite": "#059669",
           "net_http": "#2563eb", "lws_http": "#d97706", "nats": "#7c3aed", "redis": "#dc2626", "node": "#65a30d"}


def number(n):
    if n is None:
        return "-"
    return f"{n / 1e3:,.1f}k" if n >= 10000 else f"{n:,.0f}" if n >= 100 else f"{n:.2f}"


def table(head, rows):
    """Columns as wide as their widest cell; the first is left-aligned."""
    rows = [head] + [[str(c) for c in row] for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    for row in rows:
        cells = [row[0].ljust(widths[0])] + [c.rjust(w) for c, w in zip(row[1:], widths[1:])]
        print("  " + "  ".join(cells).rstrip())


def ms(rounds_us):
    """The median of the rounds."""
    return f"{sorted(rounds_us)[len(rounds_us) // 2] / 1e3:.1f}" if rounds_us else "-"


def print_load(title, results, note=""):
    print(f"\n{title}{'  (' + note + ')' if note else ''}")
    ours = results.get("bellhop")
    rows = []
    for name, r in results.items():
        ratio = f"{ours['rate'] / r['rate']:.2f}" if ours and r["rate"] else "-"
        span = f"{number(min(r['rounds']))} - {number(max(r['rounds']))}"
        rows.append([name, number(r["rate"]), span, number(r["per_cpu_s"]), number(r.get("client_per_cpu_s")),
                     ms(r.get("p50_us")), ms(r.get("p99_us")), ratio])
    table(["", "events/s", "rounds, least - most", "per server CPU-s", "per client CPU-s", "receipt p50 ms", "p99 ms", "bellhop / it"],
          rows)


def print_targets(targets):
    print("\ntargets")
    table(["", "target", "measured", ""],
          [[t["what"], t["target"], t["measured"], "met" if t["met"] else "MISSED"] for t in targets])


def bars(panel, y, out):
    title, unit, values = panel
    out.append(f'<text x="16" y="{y + 16}" class="t">{escape(title)}</text>')
    top = max(v for _, v in values) or 1
    y += 28
    for name, v in values:
        width = max(1.0, v / top * 420)
        out.append(f'<text x="150" y="{y + 14}" class="l">{escape(name)}</text>'
                   f'<rect x="160" y="{y}" width="{width:.1f}" height="19" rx="2" '
                   f'fill="{COLOURS.get(name, "#6b7280")}"/>'
                   f'<text x="{166 + width:.1f}" y="{y + 14}" class="v">{number(v)}{unit}</text>')
        y += 25
    return y + 14


def svg(path, panels):
    """Horizontal bars, one panel per load; each panel has its own scale."""
    out, y = [], 8
    for panel in panels:
        y = bars(panel, y, out)
    with open(path, "w") as f:
        f.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 680 {y}" width="680" height="{y}">'
                '<style>text{font:13px system-ui,sans-serif;fill:#1f2937}.t{font-weight:600}'
                '.l{text-anchor:end}.v{fill:#4b5563}</style>'
                f'<rect width="680" height="{y}" fill="#fff"/>{"".join(out)}</svg>\n')
