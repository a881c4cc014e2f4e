#!/usr/bin/env python3
"""Growth curves as SVG from the JSON lines of bench_growth.

    python3 bench/growth/curves.py FOLDER RESULTS.jsonl...

Writes FOLDER/growth-<curve>.svg for each of the curves size, seq, threads and document that has points. The vertical axis ends
at 100 % of the register-only rate; each precision has its own colour and mark. The line runs through mfu_causal (document
curve: mfu_document) of the median step, a thin bar reaches to the best one. mfu, which counts the pairs that causal attention
never computes, is dashed and ends where it leaves the picture: at long rows it exceeds 100 %. Colours, fonts and the way the picture adapts to dark pages and narrow
screens are those of the roofline (src/report/roofline_svg.c). Standard library only.
"""

import json
import math
import sys
from html import escape
from pathlib import Path

WIDE, HIGH, X0, X1, Y0, Y1 = 960, 600, 84, 922, 104, 476
STYLE = """<style>
:root{--ground:#fff;--ink:#1b1f24;--soft:#5b6570;--grid:#e4e7eb;--roof:#3d4650;--p:#0072b2;--a:#d55e00;--e:#008a63}
@media (prefers-color-scheme:dark){:root{--ground:#14181d;--ink:#e8ebef;--soft:#a3adb8;--grid:#2a3139;--roof:#c3cad2;--p:#56b4e9;--a:#ff9a4d;--e:#3ecf9f}}
text{font:15px system-ui,sans-serif;fill:#1b1f24;fill:var(--ink)}.ground{fill:#fff;fill:var(--ground)}
.title{font-size:21px;font-weight:600}.soft{fill:#5b6570;fill:var(--soft)}.grid{stroke:#e4e7eb;stroke:var(--grid)}
.roof{stroke:#3d4650;stroke:var(--roof);stroke-width:2.5}.end{text-anchor:end}.mid{text-anchor:middle}
.p{--c:var(--p);stroke:#0072b2}.a{--c:var(--a);stroke:#d55e00}.e{--c:var(--e);stroke:#008a63}
.line{stroke:var(--c);stroke-width:2.2;fill:none}.bar{stroke:var(--c);stroke-width:1.2}
.thin{stroke-dasharray:5 5}.m{stroke:var(--c);stroke-width:2;fill:#fff;fill:var(--ground)}
.narrow{display:none}
@media (max-width:640px){text{font-size:28px}.title{font-size:30px}.tick{transform:translateY(9px)}.wide{display:none}.narrow{display:inline}
.line{stroke-width:4}.bar{stroke-width:2}.m{stroke-width:3.5}.roof{stroke-width:4}}
</style>
"""
CURVES = {
    "size": ("parameters", "MFU against model size", "parameters"),
    "seq": ("seq", "MFU against sequence length", "tokens of a row"),
    "threads": ("threads", "MFU against threads", "threads"),
    "document": ("document", "MFU against the length of packed documents", "tokens of a document"),
}
CLASSES = "pae"


def short(x):
    """1024 -> 1k, 134105856 -> 134M; lengths by powers of two, counts by powers of ten."""
    if x < 1000:
        return f"{x:g}"
    if x < 1e6:
        return f"{x / 1024:g}k" if x % 1024 == 0 else f"{x / 1000:.3g}k"
    return f"{x / 1e6:.3g}M" if x < 1e9 else f"{x / 1e9:.2g}B"


def text(cls, x, y, s):
    return f'<text class="{cls}" x="{x:.1f}" y="{y:.1f}">{escape(s)}</text>\n'


def mark(cls, x, y, size=5):
    """Circle, diamond, triangle: told apart without colour as well."""
    if cls == "p":
        return f'<circle class="m p" cx="{x:.1f}" cy="{y:.1f}" r="{size}"/>\n'
    if cls == "a":
        s = size * 1.3
        return f'<path class="m a" d="M{x:.1f} {y - s:.1f}l{s} {s}l-{s} {s}l-{s} -{s}z"/>\n'
    return f'<path class="m e" d="M{x:.1f} {y - 1.3 * size:.1f}l{1.2 * size} {2.1 * size:.1f}h-{2.4 * size}z"/>\n'


def draw(curve, points):
    key, title, unit = CURVES[curve]
    rule = "mfu_document" if curve == "document" else "mfu_causal"
    xs = sorted({p[key] for p in points})
    low, high = math.log(xs[0]), math.log(xs[-1])
    pad = 60

    def across(x):
        share = (math.log(x) - low) / (high - low) if high > low else 0.5
        return X0 + pad + (X1 - X0 - 2 * pad) * share

    def down(y):
        return Y1 - (Y1 - Y0) * y

    first = points[0]
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {HIGH}" role="img" aria-labelledby="t d">\n',
        f'<title id="t">{escape(title)}</title>\n<desc id="d">',
        "; ".join(
            f"{p['precision']}, {short(p[key])}: {rule} {100 * p['median'][rule]:.0f} %"
            for p in sorted(points, key=lambda p: (p["precision"], p[key]))
        ),
        "</desc>\n",
        STYLE,
        f'<clipPath id="c"><rect x="{X0}" y="{Y0}" width="{X1 - X0}" height="{Y1 - Y0}"/></clipPath>\n',
        f'<rect class="ground" width="{WIDE}" height="{HIGH}"/>\n',
        text("title", 18, 36, title),
        text("soft wide", 18, 66, f"{rule} and, dashed, mfu: median of {first['rounds']} steps, the bar reaches to the best"),
        text("soft narrow", 18, 70, f"{rule}; dashed: mfu"),
    ]
    if curve == "document":
        out[-2:] = [text("soft", 18, 68, f"{rule}: median of the steps, the bar reaches to the best")]
    for percent in range(0, 101, 20):
        y = down(percent / 100)
        out.append(f'<path class="{"roof" if percent == 100 else "grid"}" d="M{X0} {y:.1f}H{X1}"/>\n')
        out.append(text("soft end wide", X0 - 10, y + 6, f"{percent} %"))
        out.append(text("soft end narrow", X0 - 10, y + 10, f"{percent}%" if percent < 100 else "100"))
    out.append(text("end wide", X1, Y0 - 10, "100 %: the register-only rate of the same threads"))
    out.append(text("end narrow", X1, Y0 - 6, "register-only rate"))
    for i, x in enumerate(xs):
        at = across(x)
        out.append(f'<path class="grid" d="M{at:.1f} {Y0}V{Y1}"/>\n')
        out.append(text("soft mid tick" if i % 2 == 0 or len(xs) < 4 else "soft mid wide", at, Y1 + 26, short(x)))
    out.append(text("soft end tick", X1, Y1 + 54, unit))
    kinds = sorted({p["precision"] for p in points})
    for i, kind in enumerate(kinds):
        cls = CLASSES[i % 3]
        mine = sorted((p for p in points if p["precision"] == kind), key=lambda p: p[key])
        for name in [rule] if curve == "document" else [rule, "mfu"]:
            path = "L".join(f"{across(p[key]):.1f} {down(p['median'][name]):.1f}" for p in mine)
            out.append(f'<path class="line {cls}{"" if name == rule else " thin"}" clip-path="url(#c)" d="M{path}"/>\n')
        for p in mine:
            x, y = across(p[key]), down(p["median"][rule])
            out.append(f'<path class="bar {cls}" d="M{x:.1f} {y:.1f}V{down(p["best"][rule]):.1f}"/>\n')
            tip = f"{kind}, {short(p[key])}: {rule} {100 * p['median'][rule]:.1f} %, {p['tokens_per_second_median']:.0f} tokens/s"
            out.append(mark(cls, x, y).replace("/>", f"><title>{escape(tip)}</title></{'circle' if cls == 'p' else 'path'}>"))
        at = X0 + 170 * i
        out.append(mark(cls, at + 8, HIGH - 24))
        out.append(text("", at + 24, HIGH - 18, kind))
    out.append("</svg>\n")
    return "".join(out)


def main():
    if len(sys.argv) < 3:
        sys.exit("usage: curves.py FOLDER RESULTS.jsonl...")
    points = []
    for name in sys.argv[2:]:
        for line in Path(name).read_text(encoding="utf-8").splitlines():
            p = json.loads(line)
            if p.get("bench") != "growth" or p.get("schema") != 1:
                sys.exit(f"{name}: a line that bench_growth (schema 1) did not write")
            points.append(p)
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for curve in CURVES:
        mine = [p for p in points if p["curve"] == curve]
        if mine:
            at = folder / f"growth-{curve}.svg"
            at.write_text(draw(curve, mine), encoding="utf-8")
            print(f"{at}: {len(mine)} points")


if __name__ == "__main__":
    main()
