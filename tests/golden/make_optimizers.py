#!/usr/bin/env python3
"""Writes optimizer_cases.json: steps of Adafactor and Muon in float64, for
tests/unit/agent/test_optim_golden.c.

    tests/golden/make_optimizers.py [FILE]      (only Python's standard library)

No build runs this script. The formulas are written from the papers (arXiv 1804.04235, algorithms 4
and 5; Jordan's Muon with the scale of arXiv 2502.16982). They operate on lists of rows and share
nothing with the C code.
"""
import json
import math
import os
import random
import sys

STEPS, LR, DECAY, CLIP = 6, 0.02, 0.1, 0.0
BETA1, BETA2, EPS = 0.9, 0.95, 1e-8
# name, role, rows, columns (0: a vector)
PARAMS = [("embed", "embed", 7, 4), ("wide", "hidden", 3, 5), ("bias", "vector", 6, 0), ("tall", "hidden", 8, 3), ("square", "hidden", 4, 4)]


def product(a, b):
    return [[sum(x * y for x, y in zip(row, column)) for column in zip(*b)] for row in a]


def transposed(a):
    return [list(column) for column in zip(*a)]


def combined(*terms):
    return [[sum(c * m[i][j] for c, m in terms) for j in range(len(terms[0][1][0]))] for i in range(len(terms[0][1]))]


def adafactor(w, g, state, step, decays):
    rows, columns = len(w), len(w[0])
    beta = 1 - step ** -0.8
    square = [[x * x + 1e-30 for x in row] for row in g]
    if decays:
        r, c = state.setdefault("row", [0.0] * rows), state.setdefault("column", [0.0] * columns)
        for i in range(rows):
            r[i] = beta * r[i] + (1 - beta) * sum(square[i]) / columns
        for j in range(columns):
            c[j] = beta * c[j] + (1 - beta) * sum(row[j] for row in square) / rows
        total = sum(r)
        v = [[r[i] * c[j] * rows / total for j in range(columns)] for i in range(rows)]
    else:
        r = state.setdefault("row", [0.0] * rows)
        for i in range(rows):
            r[i] = beta * r[i] + (1 - beta) * square[i][0]
        v = [[x] for x in r]
    u = [[g[i][j] / math.sqrt(v[i][j]) for j in range(columns)] for i in range(rows)]
    rms = math.sqrt(sum(x * x for row in u for x in row) / (rows * columns))
    clipped = max(1.0, rms / 1.0)
    keep = 1 - LR * DECAY if decays else 1.0
    return [[keep * w[i][j] - LR * u[i][j] / clipped for j in range(columns)] for i in range(rows)]


def adamw(w, g, state, step, decays):
    m = state.setdefault("m", [[0.0] * len(w[0]) for _ in w])
    v = state.setdefault("v", [[0.0] * len(w[0]) for _ in w])
    out = [row[:] for row in w]
    for i, row in enumerate(w):
        for j, x in enumerate(row):
            m[i][j] = BETA1 * m[i][j] + (1 - BETA1) * g[i][j]
            v[i][j] = BETA2 * v[i][j] + (1 - BETA2) * g[i][j] ** 2
            mean, square = m[i][j] / (1 - BETA1 ** step), v[i][j] / (1 - BETA2 ** step)
            out[i][j] = x - LR * (mean / (math.sqrt(square) + EPS) + (DECAY * x if decays else 0))
    return out


def muon(w, g, state):
    m = state.get("m", [[0.0] * len(w[0]) for _ in w])
    state["m"] = m = combined((0.95, m), (1, g))
    x = combined((1, g), (0.95, m))
    size = math.sqrt(sum(a * a for row in x for a in row))
    x = [[a / (size + 1e-7) for a in row] for row in x]
    tall = len(w) > len(w[0])
    if tall:
        x = transposed(x)
    for _ in range(5):
        a = product(x, transposed(x))
        x = combined((3.4445, x), (1, product(combined((-4.7750, a), (2.0315, product(a, a))), x)))
    if tall:
        x = transposed(x)
    return combined((1 - LR * DECAY, w), (-LR * 0.2 * math.sqrt(max(len(w), len(w[0]))), x))


def update(kind, role, w, g, state, step):
    if kind == "muon" and role == "hidden":
        return muon(w, g, state)
    return (adafactor if kind == "adafactor" else adamw)(w, g, state, step, role != "vector")


def case(kind):
    dice = random.Random(kind)
    params = []
    for name, role, rows, columns in PARAMS:
        matrix = lambda: [[dice.gauss(0, 1) * 10 ** dice.uniform(-3, 0) for _ in range(max(columns, 1))] for _ in range(rows)]
        w, grads, state = matrix(), [matrix() for _ in range(STEPS)], {}
        begin = w
        for step in range(STEPS):
            w = update(kind, role, w, grads[step], state, step + 1)
        params.append({"name": name, "role": role, "rows": rows, "columns": columns, "begin": begin, "grads": grads, "end": w,
                       "state": state})
    return {"kind": kind, "params": params}


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "optimizer_cases.json")
    job = {"lr": LR, "weight_decay": DECAY, "clip": CLIP, "beta1": BETA1, "beta2": BETA2, "eps": EPS, "steps": STEPS}
    with open(path, "w") as f:
        json.dump({"job": job, "cases": [case("adafactor"), case("muon")]}, f)
        f.write("\n")


main()
