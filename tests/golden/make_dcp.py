#!/usr/bin/env python3
"""Writes tests/golden/dcp.tar.gz: folders of torch.distributed.checkpoint and of Megatron-core's
dist_checkpointing, and the same weights as Hugging Face folders, for tests/cli/foreign.bats.

    tests/golden/make_dcp.py      (torch 2.15, megatron-core 0.16, safetensors, transformers 4.57,
                                  einops, psutil; no GPU)

No build runs this script. Everything in the folders is written by PyTorch's and Megatron's own
code, on CPUs with gloo, by several ranks where the name has a number:

    KIND/                 config.json and model.safetensors: the truth. Every number is exact in
                          bfloat16 and float16.
    torch-gpt2            1 rank: {"model", "optim", "step"}; a tied lm_head; a transposed tensor
    torch-llama-2         2 ranks: FSDP2 (fully_shard) in a torch.compile'd model, bfloat16, with
                          the state of an AdamW; the vocabulary does not divide by 2
    torch-mixtral-4       4 ranks: a 2 x 2 mesh of DTensors split in both dimensions, in a DDP-like
                          module, float16; norms in float64
    megatron-gpt2-2       2 ranks: tp = 2; the vocabulary is padded
    megatron-llama-2      2 ranks: pp = 2
    megatron-mixtral-2    2 ranks: ep = 2
    megatronflat-mixtral-2, megatronflat-llama-2
                          2 ranks: pp = 2; singleton_local_shards: nothing is stacked

Before they are saved, Megatron's models compute the logits of some tokens, and so do transformers'
models from the truth. The script fails if they differ: this proves that the weights mean the same
in both.
"""
import contextlib
import gzip
import io
import json
import os
import re
import shutil
import sys
import tarfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
import transformers
from safetensors.torch import load_file, save_file

VOCAB, SEQ, HIDDEN, LAYERS = 13, 16, 8, 2
rotary = dict(hidden_size=HIDDEN, num_attention_heads=4, num_key_value_heads=2, intermediate_size=12, num_hidden_layers=LAYERS,
              max_position_embeddings=SEQ, vocab_size=VOCAB)
CONFIGS = {
    "gpt2": transformers.GPT2Config(n_embd=HIDDEN, n_layer=LAYERS, n_head=2, n_positions=SEQ, vocab_size=VOCAB, resid_pdrop=0.0,
                                    embd_pdrop=0.0, attn_pdrop=0.0),
    "llama": transformers.LlamaConfig(**rotary, rms_norm_eps=1e-5),
    "mixtral": transformers.MixtralConfig(**rotary, num_local_experts=4, num_experts_per_tok=2, router_aux_loss_coef=0.0,
                                          rope_theta=10000.0, rms_norm_eps=1e-5),
}
TOKENS = torch.tensor([[1, 5, 3, 12, 0, 7, 7, 2]])


def numbers(shape, seed):
    """Random numbers with 6 bits: exact in every dtype."""
    g = torch.Generator().manual_seed(seed)
    return torch.randint(-63, 64, shape, generator=g).float() / 64


def write_truth(kind, folder):
    model = transformers.AutoModelForCausalLM.from_config(CONFIGS[kind])
    weights = {}
    for i, (name, p) in enumerate(sorted(model.named_parameters())):
        weights[name] = numbers(p.shape, i)
        p.data.copy_(weights[name])
    model.tie_weights()
    os.makedirs(folder)
    save_file(weights, f"{folder}/model.safetensors", {"format": "pt"})
    config = json.loads(CONFIGS[kind].to_json_string(use_diff=False))
    keep = ("model_type n_embd n_layer n_head n_positions n_inner activation_function layer_norm_epsilon vocab_size hidden_size "
            "intermediate_size num_hidden_layers num_attention_heads num_key_value_heads max_position_embeddings rms_norm_eps "
            "rope_theta rope_parameters num_local_experts num_experts_per_tok router_aux_loss_coef resid_pdrop embd_pdrop attn_pdrop "
            "hidden_act tie_word_embeddings")
    with open(f"{folder}/config.json", "w") as f:
        json.dump({k: config[k] for k in keep.split() if k in config}, f, indent=1)
    with torch.no_grad():
        return model.eval()(TOKENS).logits


class Tree(torch.nn.Module):
    """A module whose parameters have the given names."""

    def __init__(self, weights):
        super().__init__()
        for name, w in weights.items():
            at = self
            *path, last = name.split(".")
            for word in path:
                if not hasattr(at, word):
                    at.add_module(word, torch.nn.Module())
                at = getattr(at, word)
            at.register_parameter(last, torch.nn.Parameter(w))


# --- torch ---

def torch_gpt2(weights, folder):
    weights = dict(weights)
    weights["lm_head.weight"] = weights["transformer.wte.weight"]
    turned = "transformer.h.0.mlp.c_fc.weight"
    weights[turned] = weights[turned].t().contiguous().t()
    dcp.save({"model": weights, "optim": {"exp_avg": {"transformer.wte.weight": torch.ones(VOCAB, HIDDEN)}}, "step": 7},
             checkpoint_id=folder, no_dist=True)


def torch_llama(weights, folder):
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    model = Tree({k: v.bfloat16() for k, v in weights.items()})
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    optimizer = torch.optim.AdamW(model.parameters())
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    params = {k: v.clone() for k, v in model.state_dict().items()}
    optimizer.step()  # makes its state
    _, optim = get_state_dict(model, optimizer, options=StateDictOptions())
    compiled = torch.compile(model)
    state = {k: params[k.removeprefix("_orig_mod.")] for k in compiled.state_dict()}
    assert all(k.startswith("_orig_mod.") for k in state)
    few = {"lm_head.weight", "model.norm.weight"}
    optim["state"] = {k: v for k, v in optim["state"].items() if k in few}
    dcp.save({**state, "optimizer": optim}, checkpoint_id=folder)


def torch_mixtral(weights, folder):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    mesh = init_device_mesh("cpu", (2, 2))
    state = {}
    for name, w in weights.items():
        w = w.double() if "norm" in name else w.half()
        places = [Shard(0), Shard(1)] if w.dim() == 2 else [Shard(0), Replicate()]
        state["module." + name] = distribute_tensor(w, mesh, places)
    dcp.save({"state_dict": state}, checkpoint_id=folder)


# --- Megatron ---

def interleave(weights, layer, heads, kv_heads, gpt2):
    """Megatron's linear_qkv: for each group, its q heads, k and v."""
    out = []
    for part in ("weight", "bias") if gpt2 else ("weight",):
        if gpt2:
            w = weights[f"transformer.h.{layer}.attn.c_attn.{part}"]
            q, k, v = (w.t() if w.dim() == 2 else w).chunk(3)
        else:
            q, k, v = (weights[f"model.layers.{layer}.self_attn.{x}_proj.{part}"] for x in "qkv")
        q, k, v = (x.unflatten(0, (n, -1)) for x, n in ((q, kv_heads), (k, kv_heads), (v, kv_heads)))
        out.append(torch.cat([q, k, v], dim=1).flatten(0, 1))
    return out


def as_megatron(kind, weights):
    """All tensors as dist_checkpointing's keys and global shapes have them."""
    out, layers = {}, range(LAYERS)
    gpt2 = kind == "gpt2"
    heads, kv_heads = (2, 2) if gpt2 else (4, 2)
    base = "transformer.h.{}." if gpt2 else "model.layers.{}."

    def stack(key, name, turn=False):
        out[key] = torch.stack([weights[base.format(i) + name].t() if turn else weights[base.format(i) + name] for i in layers])

    qkv = [interleave(weights, i, heads, kv_heads, gpt2) for i in layers]
    for j, part in enumerate(("weight", "bias")[:len(qkv[0])]):
        out[f"decoder.layers.self_attention.linear_qkv.{part}"] = torch.stack([x[j] for x in qkv])
    if gpt2:
        out["embedding.word_embeddings.weight"] = weights["transformer.wte.weight"]
        out["embedding.position_embeddings.weight"] = weights["transformer.wpe.weight"]
        for part in "weight", "bias":
            stack(f"decoder.layers.self_attention.linear_qkv.layer_norm_{part}", f"ln_1.{part}")
            stack(f"decoder.layers.mlp.linear_fc1.layer_norm_{part}", f"ln_2.{part}")
            stack(f"decoder.layers.self_attention.linear_proj.{part}", f"attn.c_proj.{part}", part == "weight")
            stack(f"decoder.layers.mlp.linear_fc1.{part}", f"mlp.c_fc.{part}", part == "weight")
            stack(f"decoder.layers.mlp.linear_fc2.{part}", f"mlp.c_proj.{part}", part == "weight")
            out[f"decoder.final_layernorm.{part}"] = weights[f"transformer.ln_f.{part}"]
        return out
    out["embedding.word_embeddings.weight"] = weights["model.embed_tokens.weight"]
    out["output_layer.weight"] = weights["lm_head.weight"]
    out["decoder.final_layernorm.weight"] = weights["model.norm.weight"]
    stack("decoder.layers.self_attention.linear_qkv.layer_norm_weight", "input_layernorm.weight")
    stack("decoder.layers.self_attention.linear_proj.weight", "self_attn.o_proj.weight")
    if kind == "llama":
        stack("decoder.layers.mlp.linear_fc1.layer_norm_weight", "post_attention_layernorm.weight")
        out["decoder.layers.mlp.linear_fc1.weight"] = torch.stack([
            torch.cat([weights[f"model.layers.{i}.mlp.{x}_proj.weight"] for x in ("gate", "up")]) for i in layers])
        stack("decoder.layers.mlp.linear_fc2.weight", "mlp.down_proj.weight")
        return out
    stack("decoder.layers.mlp.linear_fc1.layer_norm_weight", "post_attention_layernorm.weight")
    stack("decoder.layers.mlp.router.weight", "block_sparse_moe.gate.weight")

    def experts(names):
        return torch.stack([torch.stack([torch.cat([weights[f"model.layers.{i}.block_sparse_moe.experts.{x}.{n}.weight"] for n in names])
                                         for x in range(4)]) for i in layers])
    out["decoder.layers.mlp.experts.experts.linear_fc1.weight"] = experts(("w1", "w3"))
    out["decoder.layers.mlp.experts.experts.linear_fc2.weight"] = experts(("w2",))
    return out


def megatron_model(kind, tp, pp, ep):
    from megatron.core import parallel_state
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer import TransformerConfig
    gpt2, moe = kind == "gpt2", kind == "mixtral"
    more = dict(num_moe_experts=4, moe_router_topk=2, moe_router_load_balancing_type="none", moe_token_dispatcher_type="allgather",
                expert_model_parallel_size=ep) if moe else {}
    config = TransformerConfig(
        num_layers=LAYERS, hidden_size=HIDDEN, num_attention_heads=2 if gpt2 else 4, num_query_groups=2, ffn_hidden_size=4 * HIDDEN if gpt2 else 12,
        normalization="LayerNorm" if gpt2 else "RMSNorm", gated_linear_unit=not gpt2, add_bias_linear=gpt2, add_qkv_bias=gpt2,
        activation_func=(lambda x: torch.nn.functional.gelu(x, approximate="tanh")) if gpt2 else torch.nn.functional.silu,
        layernorm_epsilon=1e-5, hidden_dropout=0.0, attention_dropout=0.0, use_cpu_initialization=True, tensor_model_parallel_size=tp,
        pipeline_model_parallel_size=pp, pipeline_dtype=torch.float32, bias_activation_fusion=False, bias_dropout_fusion=False,
        masked_softmax_fusion=False, apply_rope_fusion=False, gradient_accumulation_fusion=False, **more)
    first, last = parallel_state.is_pipeline_first_stage(), parallel_state.is_pipeline_last_stage()
    return GPTModel(config, get_gpt_layer_local_spec(num_experts=4 if moe else None, moe_grouped_gemm=False, normalization=config.normalization),
                    vocab_size=PADDED if gpt2 else VOCAB, max_sequence_length=SEQ, pre_process=first, post_process=last,
                    share_embeddings_and_output_weights=gpt2, position_embedding_type="learned_absolute" if gpt2 else "rope",
                    rotary_base=10000)


PADDED = 16


def without_cuda():
    """Megatron asks for the current device in places where any device would do."""
    torch.cuda.current_device = lambda: torch.device("cpu")
    torch.cuda.synchronize = lambda *args: None
    torch.Tensor.cuda = lambda self, *args, **kwargs: self
    from megatron.core.tensor_parallel import random
    random.CudaRNGStatesTracker.fork = lambda self, name=None: contextlib.nullcontext()  # no dropout
    from megatron.core.transformer.moe import moe_utils
    moe_utils.te_general_gemm = None  # Transformer Engine is not installed


def tensor_of(tensors, key):
    """The tensor of a key, which may be one layer, one expert or one half of a stacked one."""
    layer = re.search(r"decoder\.layers\.(\d+)\.", key)
    expert = re.search(r"experts\.experts\.(\d+)\.", key)
    half = {"_w": 0, "_v": 1}.get(key[-2:])
    plain = re.sub(r"(layers|experts\.experts)\.\d+\.", r"\1.", key).removesuffix("_w").removesuffix("_v")
    full = tensors[plain]
    full = full[int(layer[1])] if layer else full
    full = full[int(expert[1])] if expert else full
    return full if half is None else full.chunk(2, -2)[half]


def fill(model, tensors, metadata):
    """Copies each tensor's box into the model's parameters; returns the sharded state dict."""
    from megatron.core.dist_checkpointing.mapping import ShardedTensor, apply_factories
    from megatron.core.dist_checkpointing.dict_utils import nested_values
    boxes = model.sharded_state_dict(metadata=metadata)
    apply_factories(boxes)
    for t in nested_values(boxes):
        if not isinstance(t, ShardedTensor):
            continue
        full = tensor_of(tensors, t.key)
        if "word_embeddings" in t.key and full.shape[0] != t.global_shape[0]:
            full = torch.cat([full, torch.full((t.global_shape[0] - VOCAB, HIDDEN), 99.0)])
        assert tuple(full.shape) == tuple(t.global_shape), (t.key, full.shape, t.global_shape)
        for dim, (at, n) in enumerate(zip(t.global_offset, (1,) * t.prepend_axis_num + tuple(t.local_shape))):
            full = full.narrow(dim, at, n)
        with torch.no_grad():
            t.data.copy_(full.reshape(t.data.shape))
    return model.sharded_state_dict(metadata=metadata)


def megatron(kind, weights, folder, tp, pp, ep, flat, logits):
    from megatron.core import dist_checkpointing, parallel_state
    without_cuda()
    parallel_state.initialize_model_parallel(tp, pp, expert_model_parallel_size=ep)
    model = megatron_model(kind, tp, pp, ep)
    state = fill(model, as_megatron(kind, weights), {"singleton_local_shards": True} if flat else {})
    if tp * pp * ep == 1:
        with torch.no_grad():
            mask = torch.ones(1, 1, TOKENS.shape[1], TOKENS.shape[1]).triu(1).bool()
            have = model.eval()(TOKENS, torch.arange(TOKENS.shape[1])[None], mask)[..., :VOCAB]
        worst = (have - logits).abs().max().item()
        print(f"{kind}: Megatron's logits differ from transformers' by at most {worst:.2g}")
        assert worst < 1e-4, "the weights mean something else in Megatron"
        return
    if dist.get_rank() == 0:
        os.makedirs(folder)
    dist.barrier()
    dist_checkpointing.save({"model": state, "iteration": 7}, folder)


# --- all of them ---

JOBS = {
    "torch-llama-2": (2, torch_llama), "torch-mixtral-4": (4, torch_mixtral),
    "logits-gpt2": (1, ("gpt2", 1, 1, 1, False)), "logits-llama": (1, ("llama", 1, 1, 1, False)),
    "logits-mixtral": (1, ("mixtral", 1, 1, 1, False)), "megatron-gpt2-2": (2, ("gpt2", 2, 1, 1, False)),
    "megatron-llama-2": (2, ("llama", 1, 2, 1, False)), "megatron-mixtral-2": (2, ("mixtral", 1, 1, 2, False)),
    "megatronflat-llama-2": (2, ("llama", 1, 2, 1, True)), "megatronflat-mixtral-2": (2, ("mixtral", 1, 2, 1, True)),
}


def rank_main(rank, ranks, port, name, top, logits):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank))
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    make = JOBS[name][1]
    kind = name.split("-")[1]
    weights = load_file(f"{top}/{kind}/model.safetensors")
    if callable(make):
        make(weights, f"{top}/{name}")
    else:
        megatron(make[0], weights, f"{top}/{name}", *make[1:], logits[kind])
    dist.barrier()
    dist.destroy_process_group()


def pack(top, out):
    with open(out, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, 0) as zipped, tarfile.open(fileobj=zipped, mode="w") as tar:
        for folder, _, files in sorted(os.walk(top)):
            for name in sorted(files):
                path = os.path.join(folder, name)
                info = tarfile.TarInfo(os.path.relpath(path, top))
                info.size, info.mode = os.path.getsize(path), 0o644
                tar.addfile(info, open(path, "rb"))


def write_seeds(top):
    """The corpora of tests/fuzz/fuzz_dcp_metadata.c and fuzz_dcp_archive.c."""
    corpus = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fuzz", "corpus")
    dcp.save({"a": numbers((8, 8), 0), "b": numbers((3,), 1).bfloat16(), "step": 3}, checkpoint_id=f"{top}/seeds", no_dist=True)
    for name in "dcp_metadata", "dcp_archive":
        os.makedirs(f"{corpus}/{name}", exist_ok=True)
    shutil.copy(f"{top}/seeds/.metadata", f"{corpus}/dcp_metadata/tiny")
    shutil.rmtree(f"{top}/seeds")
    for name, tensor in ("plain", numbers((8, 8), 0)), ("turned", numbers((8, 8), 1).t()):
        torch.save(tensor, f"{top}/archive")
        shutil.move(f"{top}/archive", f"{corpus}/dcp_archive/{name}")


def main():
    top = "/tmp/make_dcp"  # the files contain its path
    os.mkdir(top)
    logits = {kind: write_truth(kind, f"{top}/{kind}") for kind in CONFIGS}
    torch_gpt2(load_file(f"{top}/gpt2/model.safetensors"), f"{top}/torch-gpt2")
    for i, (name, (ranks, _)) in enumerate(JOBS.items()):
        if len(sys.argv) > 1 and name not in sys.argv[1:]:
            continue
        mp.spawn(rank_main, (ranks, 29511 + i, name, top, logits), nprocs=ranks)
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    import megatron.core
    versions["megatron-core"] = megatron.core.__version__
    with open(f"{top}/versions.json", "w") as f:
        json.dump(versions, f)
    if len(sys.argv) == 1:
        write_seeds(top)
        pack(top, os.path.join(os.path.dirname(os.path.abspath(__file__)), "dcp.tar.gz"))
        shutil.rmtree(top)
    else:
        print(top)


if __name__ == "__main__":
    main()
