#!/usr/bin/env python3
"""Writes tiny models with a tokenizer, as transformers saves them, and the results of transformers
for them, for tests/cli/carry.bats.

    tests/golden/make_carry.py [FOLDER]      (torch, transformers, tokenizers: see "versions" in
                                             expected.json)

No build runs this script. It writes

    NAME/                 gpt2, llama, mixtral: config.json, model.safetensors in bfloat16,
                          generation_config.json, tokenizer.json, tokenizer_config.json,
                          chat_template.jinja. save_pretrained writes all of them
    expected.json         for each model: the prompt's ids, the ids that generate() gives greedily,
                          whether it stopped at a token that ends a text, that token, and the ids of
                          the special tokens; for each case of carry_cases.py: what transformers
                          does with that folder

The weights are random. The script searches for a seed with which each greedy step has a margin
larger than any rounding error, and with which the llama stops by itself.
"""
import json
import os
import shutil
import sys
import tempfile
import traceback
import warnings

import safetensors
import tokenizers
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig, PreTrainedTokenizerFast

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import carry_cases

transformers.logging.set_verbosity_error()
warnings.simplefilter("ignore")

PROMPT, TOKENS, MARGIN = "the old tree stood at the river", 12, 0.02
TEXT = ["the river ran past the old tree", "a tree stood at the end of the road", "the road went on to the river and the sea"] * 20
TEMPLATE = "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"

rotary = dict(hidden_size=16, num_attention_heads=4, num_key_value_heads=2, intermediate_size=24, num_hidden_layers=2,
              max_position_embeddings=64, tie_word_embeddings=True)


def make_tokenizer():
    t = tokenizers.Tokenizer(tokenizers.models.BPE())
    t.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=284, special_tokens=["<|begin|>", "<|end|>", "<|pad|>"], show_progress=False,
                                             initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    t.train_from_iterator(TEXT, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=t, bos_token="<|begin|>", eos_token="<|end|>", pad_token="<|pad|>")
    fast.chat_template = TEMPLATE
    return fast


def configs(tokenizer):
    ids = dict(vocab_size=len(tokenizer), bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id,
               pad_token_id=tokenizer.pad_token_id)
    none = dict(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    return {
        "gpt2": transformers.GPT2Config(n_embd=16, n_layer=2, n_head=4, n_positions=64, **none, **ids),
        "llama": transformers.LlamaConfig(**rotary, **ids),
        "mixtral": transformers.MixtralConfig(**{**rotary, "intermediate_size": 16}, num_local_experts=3, num_experts_per_tok=2, sliding_window=None, **ids),
    }


def generate(model, ids, ends):
    """Generates greedily. Returns also the smallest margin of any step. generate() must give the
    same ids."""
    out, least = list(ids), 1e9
    for _ in range(TOKENS):
        with torch.no_grad():
            top = model(torch.tensor([out])).logits[0, -1].float().topk(2)
        least = min(least, (top.values[0] - top.values[1]).item())
        out.append(top.indices[0].item())
        if out[-1] in ends:
            break
    theirs = model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long), max_new_tokens=TOKENS, do_sample=False)[0].tolist()
    assert theirs == out, (theirs, out)
    return out[len(ids):], least


def make(folder, config, tokenizer, stops):
    ids = tokenizer(PROMPT)["input_ids"]
    for seed in range(10000):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config)
        with torch.no_grad():
            for p in model.parameters():
                if p.dim() > 1:
                    p.normal_(0, 0.35)
        model = model.to(torch.bfloat16).to(torch.float32).eval()
        drawn = None
        with torch.no_grad():
            first = [model(torch.tensor([ids])).logits[0, -1].argmax().item()]
        model.generation_config = GenerationConfig(bos_token_id=tokenizer.bos_token_id, pad_token_id=tokenizer.pad_token_id,
                                                   eos_token_id=[tokenizer.eos_token_id, stops] if stops else tokenizer.eos_token_id)
        ends = [tokenizer.eos_token_id, stops]
        drawn, least = generate(model, ids, ends)
        stopped = drawn[-1] in ends
        if least > MARGIN and len(set(drawn)) > 3 and stopped == bool(stops) and (not stops or len(drawn) > 3):
            break
    else:
        raise SystemExit("no seed")
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return {"prompt": PROMPT, "prompt_ids": ids, "ids": drawn, "stopped": stopped, "seed": seed, "margin": round(least, 4),
            "bos": config.bos_token_id, "eos": config.eos_token_id, "pad": config.pad_token_id,
            "generation_eos": model.generation_config.eos_token_id}


def beside(folder):
    """Returns one line about what transformers does with a folder."""
    try:
        AutoConfig.from_pretrained(folder)
        model, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    except BaseException as e:
        return f"{type(e).__name__}: {str(e).strip().splitlines()[0][:150] if str(e).strip() else ''}"
    said = [f"{k} {sorted(v)[:2]}" for k, v in info.items() if v]
    bad = sum(int((~torch.isfinite(p)).sum()) for p in model.parameters())
    return "loads" + (f", {bad} numbers are not finite" if bad else "") + (", says nothing" if not said else "; " + "; ".join(said))[:160]


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "carry")
    shutil.rmtree(out, ignore_errors=True)
    tokenizer = make_tokenizer()
    expected = {"versions": {m.__name__: m.__version__ for m in (torch, transformers, tokenizers, safetensors)}, "models": {}, "cases": {}}
    for name, config in configs(tokenizer).items():
        stops = tokenizer.convert_tokens_to_ids("e") if name == "llama" else None
        expected["models"][name] = make(os.path.join(out, name), config, tokenizer, stops)
    with tempfile.TemporaryDirectory() as work:
        for name, case in carry_cases.CASES.items():
            folder = os.path.join(work, name)
            carry_cases.make(out, name, folder)
            expected["cases"][name] = beside(folder).replace(work, "…")
    with open(os.path.join(out, "expected.json"), "w") as f:
        json.dump(expected, f, indent=1)
        f.write("\n")


main()
