#!/usr/bin/env python3
"""Writes the results of PyTorch and transformers for tiny models, for
tests/unit/agent/test_model_golden.c.

    tests/golden/make_golden.py [FOLDER]      (torch, transformers 4.51 or later: `pip install
                                              transformers` beside python3-torch)

No build runs this script. The versions that made the files are in their metadata ("torch",
"transformers"). The models are transformers' own code in float64. Some of that code widens to
float32 by itself (norms, rotary positions, softmax). Before it is loaded, its text is changed to
widen to float64, so the files contain the true values without a further rounding. Weights are exact
in float32. Tensors are stored as float32; losses, norms and rates are stored as float64.

    NAME/config.json, model.safetensors      the model, as transformers would save it
    NAME/gradients/model.safetensors         gradients of step 0, before clipping, under the same
                                             names
    NAME/trained/model.safetensors           weights after STEPS steps of AdamW
    NAME/values.safetensors                  logits of step 0 [batch, seq, vocab]; inputs, targets
                                             [STEPS, batch, seq]; losses, norms, rates [STEPS]

mixtral-aux and mixtral-loss have the balancing loss (output_router_logits, router_aux_loss_coef).
agent/engine/hf/balance.h relates transformers' loss and muster's. mixtral-loss has one layer, and
its batches contain one sequence four times. There the two losses are equal, and its loss is the sum
that transformers' model computes. In mixtral-aux they differ. There the script calls transformers'
own function for one sequence and one layer at a time, and takes the mean.

    tests/golden/make_golden.py FOLDER NAME...     makes only these
"""
import importlib
import inspect
import json
import math
import os
import struct
import sys

import torch
import torch.nn.functional as F
import transformers

STEPS, LR, MIN_LR, WARMUP, DECAY_STEPS = 20, 3e-3, 1e-3, 3, 16
BETAS, EPS, DECAY, CLIP = (0.9, 0.95), 1e-8, 0.1, 1.0
BATCH, SEQ = 4, 12
MARGIN = 1e-4  # a router's choice that could differ in float32 would prove nothing

torch.set_default_dtype(torch.float64)


def widen(name):
    module = importlib.import_module(name)
    text = inspect.getsource(module).replace("torch.float32", "torch.float64").replace(".float()", ".double()")
    exec(compile(text, module.__file__, "exec"), module.__dict__)
    return module


widen("transformers.modeling_rope_utils")
GPT2 = widen("transformers.models.gpt2.modeling_gpt2").GPT2LMHeadModel
LLAMA = widen("transformers.models.llama.modeling_llama").LlamaForCausalLM
QWEN2 = widen("transformers.models.qwen2.modeling_qwen2").Qwen2ForCausalLM
QWEN3 = widen("transformers.models.qwen3.modeling_qwen3").Qwen3ForCausalLM
mixtral = widen("transformers.models.mixtral.modeling_mixtral")
MIXTRAL = mixtral.MixtralForCausalLM

rotary = dict(hidden_size=16, num_attention_heads=4, num_key_value_heads=2, intermediate_size=22, max_position_embeddings=SEQ)
MODELS = {
    "gpt2": (GPT2, transformers.GPT2Config(
        n_embd=16, n_layer=2, n_head=4, n_inner=37, n_positions=SEQ, vocab_size=29, resid_pdrop=0.0, embd_pdrop=0.0,
        attn_pdrop=0.0)),
    "llama": (LLAMA, transformers.LlamaConfig(**rotary, num_hidden_layers=2, vocab_size=31, rms_norm_eps=1e-5)),
    "llama3": (LLAMA, transformers.LlamaConfig(
        **rotary, num_hidden_layers=2, vocab_size=31, head_dim=8, tie_word_embeddings=True, rope_theta=100.0,
        rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                          original_max_position_embeddings=32))),
    "linear": (LLAMA, transformers.LlamaConfig(
        **rotary, num_hidden_layers=1, vocab_size=31, rope_scaling=dict(rope_type="linear", factor=4.0))),
    "qwen2": (QWEN2, transformers.Qwen2Config(**rotary, num_hidden_layers=2, vocab_size=31)),
    "qwen3": (QWEN3, transformers.Qwen3Config(**rotary, num_hidden_layers=2, vocab_size=31, head_dim=10)),
    "mixtral": (MIXTRAL, transformers.MixtralConfig(
        **rotary, num_hidden_layers=2, vocab_size=31, num_local_experts=4, num_experts_per_tok=2, rope_theta=10000.0,
        router_aux_loss_coef=0.0)),
    "mixtral-aux": (MIXTRAL, transformers.MixtralConfig(
        **rotary, num_hidden_layers=2, vocab_size=31, num_local_experts=4, num_experts_per_tok=2, rope_theta=10000.0,
        router_aux_loss_coef=0.05, output_router_logits=True)),
    "mixtral-loss": (MIXTRAL, transformers.MixtralConfig(
        **rotary, num_hidden_layers=1, vocab_size=31, num_local_experts=5, num_experts_per_tok=3, rope_theta=10000.0,
        router_aux_loss_coef=0.2, output_router_logits=True)),
}
ALIKE = {"mixtral-loss"}  # all sequences of a batch are equal
# With these seeds, training does not amplify float32's rounding. Some others amplify it to 1e-5
# in 20 steps.
SEEDS = {"gpt2": 1, "llama": 2, "llama3": 12, "linear": 4, "mixtral": 5, "mixtral-aux": 6, "mixtral-loss": 7, "qwen2": 8, "qwen3": 9}


def build(kind, config):
    """Returns the model, with weights of a scale at which every component matters."""
    config._attn_implementation = "eager"
    model = kind(config)
    for name, p in model.named_parameters():
        w = torch.randn(p.shape, dtype=torch.float32) * (0.25 if p.dim() == 2 else 0.2)
        if p.dim() == 1 and name.endswith("weight"):  # the weight of a norm
            w = w + 1
        p.data = w.double()
    model.tie_weights()
    return model.train()


def stored(model, of):
    """Returns the contents of the model's file, under its names: `of` each parameter. A tied head
    is not stored."""
    return {name: of(p).detach().clone() for name, p in model.named_parameters()}


def rate(step):
    if step < WARMUP:
        return LR * (step + 1) / WARMUP
    t = min(1.0, (step - WARMUP) / (DECAY_STEPS - WARMUP))
    return MIN_LR + (LR - MIN_LR) * 0.5 * (1 + math.cos(math.pi * t))


def check_margin(model, out):
    for logits in out.router_logits or []:
        ranked = logits.sort(-1, descending=True).values
        k = model.config.num_experts_per_tok
        assert (ranked[:, k - 1] - ranked[:, k]).min() > MARGIN, "a close choice of experts: take another seed"


def balance(config, router_logits):
    k, experts = config.num_experts_per_tok, config.num_local_experts
    each = [mixtral.load_balancing_loss_func((sequence,), experts, k) for layer in router_logits
            for sequence in layer.view(BATCH, SEQ, experts)]
    return sum(each) / len(each)


def loss_of(model, tokens, targets, alike):
    moe = isinstance(model, MIXTRAL)
    out = model(tokens, use_cache=False, **(dict(output_router_logits=True) if moe else {}))
    loss = F.cross_entropy(out.logits.flatten(0, 1), targets.flatten())
    if moe:
        check_margin(model, out)
        loss = loss + model.config.router_aux_loss_coef * (out.aux_loss if alike else balance(model.config, out.router_logits))
    return out.logits, loss


def train(model, alike):
    vocab = model.config.vocab_size
    text = torch.randint(0, vocab, (STEPS, BATCH, SEQ + 1))
    text = text[:, :1].repeat(1, BATCH, 1) if alike else text
    values = {"inputs": text[..., :-1].int(), "targets": text[..., 1:].int()}
    params = list(model.parameters())
    optimizer = torch.optim.AdamW(
        [{"params": [p for p in params if p.dim() == 2], "weight_decay": DECAY},
         {"params": [p for p in params if p.dim() == 1], "weight_decay": 0.0}], betas=BETAS, eps=EPS)
    losses, norms, grads = [], [], None
    for step in range(STEPS):
        logits, loss = loss_of(model, text[step, :, :-1], text[step, :, 1:], alike)
        optimizer.zero_grad()
        loss.backward()
        for p in params:  # an expert that no token chose has no gradient
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        if step == 0:
            values["logits"] = logits.detach()
            grads = stored(model, lambda p: p.grad)
        norm = math.sqrt(sum((p.grad ** 2).sum().item() for p in params))
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        for p in params:
            p.grad *= min(1.0, CLIP / norm)
        optimizer.step()
        losses.append(loss.item())
        norms.append(norm)
    values.update(losses=losses, norms=norms, rates=[rate(s) for s in range(STEPS)])
    return values, grads


def write(path, tensors):
    made = {"format": "pt", "torch": torch.__version__, "transformers": transformers.__version__}
    header, body = {"__metadata__": made}, b""
    # Doubles come first, so that each tensor starts at a multiple of its element size.
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
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + body)


def make(folder, kind, config, alike):
    model = build(kind, config)
    write(f"{folder}/model.safetensors", stored(model, lambda p: p.data))
    config.torch_dtype = "float32"
    config.save_pretrained(folder)
    values, grads = train(model, alike)
    write(f"{folder}/gradients/model.safetensors", grads)
    write(f"{folder}/trained/model.safetensors", stored(model, lambda p: p.data))
    write(f"{folder}/values.safetensors", values)


if __name__ == "__main__":
    top = sys.argv[1] if len(sys.argv) > 1 else sys.path[0]
    for name, (kind, config) in MODELS.items():
        if name in (sys.argv[2:] or MODELS):
            torch.manual_seed(SEEDS[name])
            make(f"{top}/{name}", kind, config, name in ALIKE)
            print(name)
