#!/usr/bin/env python3
"""Writes tests/golden/balance_cases.json for tests/unit/agent/test_hf_balance.c: Mixtral's
balancing loss of given router logits, computed by transformers' own load_balancing_loss_func.

    tests/golden/make_balance_cases.py [FILE]      (torch, transformers 4 or 5)

A row has these members: name, layers, sequences, tokens (per sequence), experts, top;
coefficient: router_aux_loss_coef; logits [layers][sequences][tokens][experts], in 1/64 and without
ties; and

    joint        coefficient × the function of all layers and sequences. transformers adds this to
                 its loss
    separate     coefficient × the mean, over layers and sequences, of the function of one sequence
                 of one layer
    covariance   coefficient × experts × Σ over experts of the covariance of F and P over layers and
                 sequences
"""
import json
import sys

import torch
import transformers
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

torch.manual_seed(5)


def logits_of(layers, sequences, tokens, experts, spread):
    """The logits of one token are all different: a permutation in 1/64, plus a bias of each layer,
    sequence and expert in units of 2."""
    x = torch.stack([torch.randperm(128)[:experts] for _ in range(layers * sequences * tokens)]).view(layers, sequences, tokens, experts)
    bias = (torch.randn(layers, sequences, 1, experts) * spread).round() * 128
    return (x + bias) / 64


def alike(x):
    return x[:1, :1].expand_as(x).contiguous()


# name, layers, sequences, tokens, experts, top, coefficient, spread, whether sequences are equal
CASES = [
    ("one sequence of one layer", 1, 1, 16, 8, 2, 0.02, 1.0, False),
    ("all layers and sequences alike", 4, 3, 16, 8, 2, 0.02, 1.0, True),
    ("all alike, 3 of 5 experts", 3, 2, 9, 5, 3, 0.001, 0.5, True),
    ("all alike, 1 of 4 experts", 2, 4, 12, 4, 1, 0.01, 0.5, True),
    ("layers and sequences nearly alike", 4, 3, 64, 8, 2, 0.02, 0.0, False),
    ("each layer and sequence with a load of its own", 4, 3, 16, 8, 2, 0.02, 1.0, False),
    ("one layer, sequences with loads of their own", 1, 4, 16, 4, 2, 0.05, 0.7, False),
]


def row_of(name, layers, sequences, tokens, experts, top, coefficient, spread, same):
    x = logits_of(layers, sequences, tokens, experts, spread)
    x = alike(x) if same else x
    wide = x.double()
    joint = load_balancing_loss_func(tuple(wide.reshape(layers, -1, experts)), experts, top)
    each = [load_balancing_loss_func((s,), experts, top) for layer in wide for s in layer]
    probs = wide.softmax(-1)
    chosen = torch.zeros_like(wide).scatter_(-1, wide.topk(top, -1).indices, 1.0)
    f, p = chosen.mean(2).reshape(-1, experts), probs.mean(2).reshape(-1, experts)
    covariance = ((f * p).mean(0) - f.mean(0) * p.mean(0)).sum() * experts
    return dict(name=name, layers=layers, sequences=sequences, tokens=tokens, experts=experts, top=top, coefficient=coefficient,
                joint=coefficient * joint.item(), separate=coefficient * sum(e.item() for e in each) / len(each),
                covariance=coefficient * covariance.item(), logits=[round(v * 64) for v in x.flatten().tolist()])


if __name__ == "__main__":
    rows = [row_of(*c) for c in CASES]
    for r in rows:
        print(f"{r['name']:50} joint {r['joint']:.6f}  separate {r['separate']:.6f}  covariance {r['covariance']:.6f}")
        assert abs(r["joint"] + r["covariance"] - r["separate"]) < 1e-6 * r["separate"]
    with open(sys.argv[1] if len(sys.argv) > 1 else f"{sys.path[0]}/balance_cases.json", "w") as f:
        f.write('{"transformers": "%s",\n "cases": [\n%s\n]}\n' %
                (transformers.__version__, ",\n".join(json.dumps(r, separators=(",", ":")) for r in rows)))
