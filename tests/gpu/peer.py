#!/usr/bin/env python3
"""The models of tests/gpu/models.h in PyTorch, to be compared with muster on the same GPU in the same run.

They are written from the architectures: torch.compile, scaled_dot_product_attention, fused AdamW, the gradient clipped to norm 1. The
program reads commands from its standard input and answers each with a line of JSON, as tests/gpu/bench.c does:

    info                          {"torch": ..., "cuda": ..., "device": ...}
    open MODEL MODE               {"parameters": ..., "tokens": ..., "opened_s": ...}: compiles and runs three steps; closes the
                                  model before it
                                  MODE autocast: fp32 weights, moments and gradients, bf16 in the passes
                                  MODE pure: bf16 weights, moments and gradients, with no fp32 masters
    turn STEPS                    {"seconds": [...], "loss": ..., "peak_bytes": ...}: each step until the device has finished
    chose                         {"ops": [...], "kernels": [...]}: the attention that PyTorch chose in one more step:
                                  its ops, and the device's kernels of such names, longest first. Use it after the turns that
                                  count, since a profiler may slow later steps
    rest                          {}: frees the device memory that it holds but does not use
    close                         {}
    gemm N SECONDS                {"flops": ...}: bf16 products of random matrices
    attention B T H G D           {"forward_s": ..., "backward_s": ..., "chose": ...}: causal, H heads of D over G, in bf16

A command that fails answers {"error": ...}.

usage: peer.py [--device cuda|cpu] [--toy] [--no-compile] [COMMAND ...]
"""

import argparse
import json
import math
import re
import statistics
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

GPT2 = dict(family="gpt2", layers=12, hidden=768, heads=12, kv=12, dim=64, ffn=3072, seq=1024, batch=32)
MODELS = {
    "gpt2-50304": dict(GPT2, vocab=50304),
    "gpt2-50257": dict(GPT2, vocab=50257),
    "llama-1b": dict(family="llama", layers=16, hidden=2048, heads=32, kv=8, dim=64, ffn=8192, vocab=128256, seq=2048, batch=8,
                     theta=500000.0),
}
GPT2_TOY = dict(layers=2, hidden=64, heads=2, kv=2, dim=32, ffn=256, seq=32, batch=2)
TOYS = {
    "gpt2-50304": dict(GPT2_TOY, vocab=192),
    "gpt2-50257": dict(GPT2_TOY, vocab=177),
    "llama-1b": dict(layers=2, hidden=64, heads=4, kv=2, dim=16, ffn=96, vocab=160, seq=32, batch=2),
}
BATCHES = 4
WARMUP = 3


class Attention(nn.Module):
    def __init__(self, c, bias):
        super().__init__()
        self.heads, self.kv, self.dim = c["heads"], c["kv"], c["dim"]
        self.qkv = nn.Linear(c["hidden"], (self.heads + 2 * self.kv) * self.dim, bias=bias)
        self.out = nn.Linear(self.heads * self.dim, c["hidden"], bias=bias)

    def forward(self, x, cos=None, sin=None):
        b, t, _ = x.shape
        q, k, v = self.qkv(x).split([self.heads * self.dim, self.kv * self.dim, self.kv * self.dim], dim=2)
        q = q.view(b, t, self.heads, self.dim).transpose(1, 2)
        k = k.view(b, t, self.kv, self.dim).transpose(1, 2)
        v = v.view(b, t, self.kv, self.dim).transpose(1, 2)
        if cos is not None:
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.kv != self.heads)
        return self.out(y.transpose(1, 2).reshape(b, t, self.heads * self.dim))


def rotate(x, cos, sin):
    """Rotates the pairs (i, i + dim / 2) of each head."""
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)


class Gpt2Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.norm1 = nn.LayerNorm(c["hidden"])
        self.attention = Attention(c, True)
        self.norm2 = nn.LayerNorm(c["hidden"])
        self.up = nn.Linear(c["hidden"], c["ffn"])
        self.down = nn.Linear(c["ffn"], c["hidden"])

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.tokens = nn.Embedding(c["vocab"], c["hidden"])
        self.positions = nn.Embedding(c["seq"], c["hidden"])
        self.blocks = nn.ModuleList(Gpt2Block(c) for _ in range(c["layers"]))
        self.norm = nn.LayerNorm(c["hidden"])

    def forward(self, inputs, targets):
        x = self.tokens(inputs) + self.positions.weight[: inputs.shape[1]]
        for block in self.blocks:
            x = block(x)
        return loss_of(F.linear(self.norm(x), self.tokens.weight), targets)


class LlamaBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.norm1 = nn.RMSNorm(c["hidden"], eps=1e-5)
        self.attention = Attention(c, False)
        self.norm2 = nn.RMSNorm(c["hidden"], eps=1e-5)
        self.gate_up = nn.Linear(c["hidden"], 2 * c["ffn"], bias=False)
        self.down = nn.Linear(c["ffn"], c["hidden"], bias=False)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.norm1(x), cos, sin)
        gate, up = self.gate_up(self.norm2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Llama(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.tokens = nn.Embedding(c["vocab"], c["hidden"])
        self.blocks = nn.ModuleList(LlamaBlock(c) for _ in range(c["layers"]))
        self.norm = nn.RMSNorm(c["hidden"], eps=1e-5)
        half = c["dim"] // 2
        angles = torch.outer(torch.arange(c["seq"]).double(), c["theta"] ** (-torch.arange(half).double() / half))
        self.cos, self.sin = angles.cos().float(), angles.sin().float()

    def place(self, device):
        """The tables are fp32, whatever the weights are."""
        self.cos, self.sin = self.cos.to(device), self.sin.to(device)

    def forward(self, inputs, targets):
        x = self.tokens(inputs)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return loss_of(F.linear(self.norm(x), self.tokens.weight), targets)


def loss_of(logits, targets):
    return F.cross_entropy(logits.float().view(-1, logits.shape[-1]), targets.view(-1))


def start(model, c):
    """GPT-2's initialization, for both: normals of 0.02, smaller before the residual sums."""
    for name, p in model.named_parameters():
        if p.dim() == 2:
            residual = name.endswith(("out.weight", "down.weight"))
            nn.init.normal_(p, std=0.02 / (math.sqrt(2 * c["layers"]) if residual else 1))
        elif name.endswith("bias"):
            nn.init.zeros_(p)


class Peer:
    def __init__(self, device, toy, compiles):
        self.device, self.toy, self.compiles = device, toy, compiles
        self.model = None

    def finish(self):
        if self.device == "cuda":
            torch.cuda.synchronize()

    def info(self):
        on_gpu = self.device == "cuda"
        return {"torch": torch.__version__, "cuda": torch.version.cuda if on_gpu else None,
                "device": torch.cuda.get_device_name() if on_gpu else "cpu"}

    def close(self):
        self.model = self.run = self.optimizer = self.batches = None
        return self.rest()

    def rest(self):
        if self.device == "cuda":
            torch.cuda.empty_cache()
        return {}

    def open(self, name, mode):
        self.close()
        if name not in MODELS or mode not in ("autocast", "pure"):
            raise ValueError(f"there is no model {name} in mode {mode}")
        since = time.perf_counter()
        c = dict(MODELS[name], **(TOYS[name] if self.toy else {}))
        torch.manual_seed(7)
        self.autocast = mode == "autocast"
        model = (Gpt2 if c["family"] == "gpt2" else Llama)(c)
        start(model, c)
        model = model.to(self.device, dtype=torch.float32 if self.autocast else torch.bfloat16)
        if c["family"] == "llama":
            model.place(self.device)
        self.model = model
        self.run = torch.compile(model) if self.compiles else model
        matrices = [p for p in model.parameters() if p.dim() == 2]
        vectors = [p for p in model.parameters() if p.dim() != 2]
        self.optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
                                           lr=1e-4, betas=(0.9, 0.95), eps=1e-8, fused=True)
        self.batches = self.draw(c)
        self.at = 0
        for _ in range(WARMUP):
            self.step()
        self.finish()
        return {"parameters": sum(p.numel() for p in model.parameters()), "tokens": c["batch"] * c["seq"],
                "opened_s": time.perf_counter() - since}

    def draw(self, c):
        """Random tokens, of which low ones are more frequent."""
        batches = []
        for _ in range(BATCHES):
            a, b = (torch.randint(c["vocab"], (c["batch"], c["seq"] + 1)) for _ in range(2))
            tokens = a * b // c["vocab"]
            pair = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
            batches.append(tuple(t.pin_memory() for t in pair) if self.device == "cuda" else pair)
        return batches

    def step(self):
        inputs, targets = (t.to(self.device, non_blocking=True) for t in self.batches[self.at % BATCHES])
        self.at += 1
        with torch.autocast(self.device, dtype=torch.bfloat16, enabled=self.autocast):
            loss = self.run(inputs, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss

    def turn(self, steps):
        if self.model is None:
            raise ValueError("turn needs an open model")
        seconds = []
        if self.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        for _ in range(int(steps)):
            since = time.perf_counter()
            loss = self.step()
            self.finish()
            seconds.append(time.perf_counter() - since)
        peak = torch.cuda.max_memory_allocated() if self.device == "cuda" else 0
        return {"seconds": seconds, "loss": loss.item(), "peak_bytes": peak}

    def chose(self):
        if self.model is None:
            raise ValueError("chose needs an open model")
        return self.chosen(self.step)

    def timed(self, call, rounds=20, calls=5):
        """Seconds of a call: the median over rounds of a few calls each, after a warm-up."""
        for _ in range(3):
            call()
        times = []
        for _ in range(rounds):
            self.finish()
            since = time.perf_counter()
            for _ in range(calls):
                call()
            self.finish()
            times.append((time.perf_counter() - since) / calls)
        return statistics.median(times)

    def chosen(self, call):
        """The attention that a call uses, by PyTorch's own profiler."""
        try:
            from torch.profiler import ProfilerActivity, profile
            with profile(activities=[ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if self.device == "cuda" else [])) as p:
                call()
                self.finish()
            return attention_of(p.events())
        except Exception as e:  # without it the times still count
            return {"error": f"{type(e).__name__}: {e}"[:200]}

    def gemm(self, size, seconds):
        n = int(size)
        a, b = (torch.randn(n, n, device=self.device, dtype=torch.bfloat16) for _ in range(2))
        end, best = time.perf_counter() + float(seconds), 0.0
        while True:
            best = max(best, 2.0 * n**3 / self.timed(lambda: a @ b.t(), rounds=3))
            if time.perf_counter() > end:
                return {"flops": best}

    def attention(self, b, t, h, g, d):
        b, t, h, g, d = (int(x) for x in (b, t, h, g, d))
        q = torch.randn(b, t, h, d, device=self.device, dtype=torch.bfloat16).transpose(1, 2).requires_grad_()
        k, v = (torch.randn(b, t, g, d, device=self.device, dtype=torch.bfloat16).transpose(1, 2).requires_grad_() for _ in range(2))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=g != h)
        grad = torch.randn_like(out)

        def forward():
            with torch.no_grad():
                F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=g != h)

        def backward():
            torch.autograd.grad(out, (q, k, v), grad, retain_graph=True)

        return {"forward_s": self.timed(forward), "backward_s": self.timed(backward), "chose": self.chosen(lambda: (forward(), backward()))}


def attention_of(events):
    """Ops with scaled_dot_product in their names that call no further such op, and kernels whose names are attention's."""
    ops = {e.name for e in events if "scaled_dot_product" in e.name or "_flash_attention" in e.name or "_cudnn_attention" in e.name}
    ops = {name for name in ops if re.search("flash|efficient|cudnn|math|overrideable", name)} or ops
    times = {}
    for e in events:
        if "CUDA" in str(e.device_type) and re.search("flash|fmha|attention|cudnn.*sdpa|sdpa", e.name, re.I):
            times[e.name] = times.get(e.name, 0) + e.device_time
    return {"ops": sorted(ops), "kernels": [name[:160] for name in sorted(times, key=times.get, reverse=True)[:4]]}


def obey(peer, line):
    name, *words = line.split()
    commands = ("info", "open", "turn", "chose", "rest", "close", "gemm", "attention")
    try:
        if name not in commands:
            raise ValueError(f"there is no command {name}")
        answer = getattr(peer, name)(*words)
    except Exception as e:  # whatever PyTorch raises is the answer
        answer = {"error": f"{type(e).__name__}: {e}"[:500]}
    print(json.dumps(answer), flush=True)
    return "error" not in answer


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--device", default="cuda")
    args.add_argument("--toy", action="store_true")
    args.add_argument("--no-compile", action="store_true")
    args.add_argument("commands", nargs="*")
    a = args.parse_args()
    torch.set_float32_matmul_precision("high")
    peer = Peer(a.device, a.toy, not a.no_compile)
    lines = a.commands or (line for line in sys.stdin if line.strip())
    return 0 if all([obey(peer, line) for line in lines]) else 1


if __name__ == "__main__":
    sys.exit(main())
