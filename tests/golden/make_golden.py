#!/usr/bin/python3
"""Writes gpt2.safetensors and llama.safetensors: what PyTorch makes of two tiny
models, for tests/unit/agent/test_model_golden.c.

    tests/golden/make_golden.py [FOLDER]      (Debian: python3-torch)

Everything is computed in float64 from weights that are exact in float32, and
stored as float32 (losses and norms as float64), so the files hold the true values and not
one more rounding. Per file:

    init.NAME, grad.NAME, final.NAME   weights, gradients of step 0 (before clipping), weights after STEPS steps
    logits                             of step 0 [batch, seq, vocab]
    inputs, targets                    [STEPS, batch, seq] int32
    losses, norms, rates               [STEPS]
"""
import json
import math
import struct
import sys

import torch
import torch.nn.functional as F

STEPS, LR, MIN_LR, WARMUP, DECAY_STEPS = 10, 1e-2, 1e-3, 3, 8
BETAS, EPS, DECAY, CLIP = (0.9, 0.95), 1e-8, 0.1, 1.0

MODELS = {
    "gpt2": dict(llama=False, layers=2, hidden=16, heads=4, kv=4, dim=4, ffn=37, vocab=29, seq=12, batch=4, tied=True),
    "llama": dict(llama=True, layers=2, hidden=16, heads=4, kv=2, dim=4, ffn=22, vocab=31, seq=12, batch=4, tied=False),
}


def weights(c):
    """The global names and shapes of plan/model.h, drawn at a scale at which every part matters."""
    shapes = {"embed.tokens.weight": (c["vocab"], c["hidden"])}
    if not c["llama"]:
        shapes["embed.positions.weight"] = (c["seq"], c["hidden"])
    q, kv = c["heads"] * c["dim"], c["kv"] * c["dim"]
    linears = {"attn.q": (q, c["hidden"]), "attn.k": (kv, c["hidden"]), "attn.v": (kv, c["hidden"]),
               "attn.o": (c["hidden"], q), "mlp.up": (c["ffn"], c["hidden"]), "mlp.down": (c["hidden"], c["ffn"])}
    if c["llama"]:
        linears["mlp.gate"] = (c["ffn"], c["hidden"])
    norms = ["norm"]
    for i in range(c["layers"]):
        for name, shape in linears.items():
            shapes[f"layers.{i}.{name}.weight"] = shape
            if not c["llama"]:
                shapes[f"layers.{i}.{name}.bias"] = shape[:1]
        norms += [f"layers.{i}.norm1", f"layers.{i}.norm2"]
    for name in norms:
        shapes[name + ".weight"] = (c["hidden"],)
        if not c["llama"]:
            shapes[name + ".bias"] = (c["hidden"],)
    if not c["tied"]:
        shapes["head.weight"] = (c["vocab"], c["hidden"])
    out = {}
    for name, shape in shapes.items():
        w = torch.randn(shape, dtype=torch.float32) * (0.25 if len(shape) == 2 else 0.2)
        if "norm" in name and name.endswith("weight"):
            w = w + 1
        out[name] = w.double().requires_grad_()
    return out


def rotate(x):
    """x [batch, heads, seq, dim]: RoPE over the pairs (i, i + dim/2)."""
    dim, seq = x.shape[-1], x.shape[-2]
    angle = torch.arange(seq).double()[:, None] * 10000.0 ** (-torch.arange(0, dim, 2).double() / dim)
    a, b = x[..., : dim // 2], x[..., dim // 2:]
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


def forward(c, w, tokens):
    def linear(name, x):
        return F.linear(x, w[name + ".weight"], w.get(name + ".bias"))

    def norm(name, x):
        if c["llama"]:
            return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * w[name + ".weight"]
        return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], 1e-5)

    def heads(x, n):
        return x.view(*x.shape[:2], n, c["dim"]).transpose(1, 2)

    x = F.embedding(tokens, w["embed.tokens.weight"])
    if not c["llama"]:
        x = x + w["embed.positions.weight"]
    hidden = torch.full((c["seq"], c["seq"]), -math.inf, dtype=torch.float64).triu(1)
    for i in range(c["layers"]):
        p = f"layers.{i}."
        y = norm(p + "norm1", x)
        q, k, v = (heads(linear(p + "attn." + n, y), c["heads" if n == "q" else "kv"]) for n in "qkv")
        if c["llama"]:
            q, k = rotate(q), rotate(k)
        k, v = (t.repeat_interleave(c["heads"] // c["kv"], 1) for t in (k, v))
        o = (q @ k.transpose(-1, -2) / math.sqrt(c["dim"]) + hidden).softmax(-1) @ v
        x = x + linear(p + "attn.o", o.transpose(1, 2).flatten(2))
        y = norm(p + "norm2", x)
        up = linear(p + "mlp.up", y)
        # torch 1.13 has this formula as gelu(approximate="tanh").
        y = F.silu(linear(p + "mlp.gate", y)) * up if c["llama"] else F.gelu(up, approximate="tanh")
        x = x + linear(p + "mlp.down", y)
    return F.linear(norm("norm", x), w["embed.tokens.weight" if c["tied"] else "head.weight"])


def rate(step):
    if step < WARMUP:
        return LR * (step + 1) / WARMUP
    t = min(1.0, (step - WARMUP) / (DECAY_STEPS - WARMUP))
    return MIN_LR + (LR - MIN_LR) * 0.5 * (1 + math.cos(math.pi * t))


def train(c):
    w = weights(c)
    text = torch.randint(0, c["vocab"], (STEPS, c["batch"], c["seq"] + 1))
    out = {"init." + n: t.detach().clone() for n, t in w.items()}
    out["inputs"], out["targets"] = text[..., :-1].int(), text[..., 1:].int()
    optimizer = torch.optim.AdamW(
        [{"params": [t for t in w.values() if t.dim() == 2], "weight_decay": DECAY},
         {"params": [t for t in w.values() if t.dim() == 1], "weight_decay": 0.0}], betas=BETAS, eps=EPS)
    losses, norms = [], []
    for step in range(STEPS):
        logits = forward(c, w, text[step, :, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), text[step, :, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            out["logits"] = logits.detach()
            out.update({"grad." + n: t.grad.clone() for n, t in w.items()})
        norm = math.sqrt(sum((t.grad ** 2).sum().item() for t in w.values()))
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        for t in w.values():
            t.grad *= min(1.0, CLIP / norm)
        optimizer.step()
        losses.append(loss.item())
        norms.append(norm)
    out.update({"final." + n: t.detach() for n, t in w.items()})
    for name, values in (("losses", losses), ("norms", norms), ("rates", [rate(s) for s in range(STEPS)])):
        out[name] = values
    return out


def write(path, tensors):
    header, body = {}, b""
    # Doubles first, so that each lies at a multiple of its size.
    for name, t in sorted(tensors.items(), key=lambda item: not isinstance(item[1], list)):
        if isinstance(t, list):
            kind, shape, raw = "F64", [len(t)], struct.pack(f"<{len(t)}d", *t)
        elif t.dtype == torch.int32:
            kind, shape, raw = "I32", list(t.shape), t.contiguous().numpy().astype("<i4").tobytes()
        else:
            kind, shape, raw = "F32", list(t.shape), t.contiguous().float().numpy().astype("<f4").tobytes()
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + body)


if __name__ == "__main__":
    folder = sys.argv[1] if len(sys.argv) > 1 else sys.path[0]
    for number, (name, config) in enumerate(MODELS.items()):
        torch.manual_seed(number + 1)
        write(f"{folder}/{name}.safetensors", train(config))
