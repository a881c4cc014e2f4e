"""Coefficients of 2^r = 1 + c1 r + ... + cn r^n: least maximal relative error, by Lawson's reweighting.

    exp2_coefficients.py [DEGREE [LOW]]     on LOW <= r <= LOW + 1; 5 and -0.5 unless given (attention; vec.h has 5 and 0)

Needs mpmath. Prints the coefficients rounded to floats one after the other (each later one refitted), as hex floats, and the
largest relative error of the rounded polynomial evaluated without further rounding.
"""
import struct
import sys

import mpmath as mp

mp.mp.dps = 30


def to_float(x):
    return mp.mpf(struct.unpack("f", struct.pack("f", float(x)))[0])


def fit(grid, target, powers):
    """Minimax fit of target(r) by sum of c[p] r^p, relative to 2^r."""
    weight = [mp.mpf(1) / len(grid)] * len(grid)
    best = None
    for _ in range(60):
        n = len(powers)
        a = mp.zeros(n, n)
        b = mp.zeros(n, 1)
        for r, w in zip(grid, weight):
            s = mp.mpf(2) ** r
            row = [r ** p / s for p in powers]
            y = target(r) / s
            for i in range(n):
                b[i] += w * row[i] * y
                for j in range(n):
                    a[i, j] += w * row[i] * row[j]
        c = mp.lu_solve(a, b)
        err = [abs(sum(c[i] * r ** p for i, p in enumerate(powers)) - target(r)) / mp.mpf(2) ** r for r in grid]
        if best is None or max(err) < best[0]:
            best = (max(err), list(c))
        total = sum(w * e for w, e in zip(weight, err))
        weight = [w * e / total for w, e in zip(weight, err)]
    return best


def main(degree, low):
    grid = [low + (1 + mp.cos(mp.pi * (k + mp.mpf("0.5")) / 200)) / 2 for k in range(200)]
    fixed = {0: mp.mpf(1)}
    while len(fixed) <= degree:
        powers = [p for p in range(degree + 1) if p not in fixed]
        known = dict(fixed)
        _, c = fit(grid, lambda r: mp.mpf(2) ** r - sum(v * r ** p for p, v in known.items()), powers)
        fixed[powers[0]] = to_float(c[0])
    for p in range(degree + 1):
        print(f"c{p} = {float(fixed[p]).hex()}  {mp.nstr(fixed[p], 9)}")
    err = max(abs(sum(v * r ** p for p, v in fixed.items()) / mp.mpf(2) ** r - 1) for r in grid)
    print("largest relative error", mp.nstr(err, 3))


main(int(sys.argv[1]) if len(sys.argv) > 1 else 5, mp.mpf(sys.argv[2] if len(sys.argv) > 2 else "-0.5"))
