#!/usr/bin/env bats
# muster ckpt import and export: Hugging Face folders that an independent script writes go in and out to the bit; a run continues
# from one; wrong folders are refused.

load ../helpers

setup_file() {
	make_data
	make_tiny_job
}

setup() {
	cd "$BATS_TEST_TMPDIR"
	cat >hf.py <<-'PY'
		"""Writes and compares folders with nothing but Python's own library."""
		import json, os, random, struct, sys

		ROTARY = dict(hidden_size=16, num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=2, intermediate_size=22,
		              max_position_embeddings=32, vocab_size=256)
		CONFIGS = {
		    "gpt2": dict(model_type="gpt2", n_embd=16, n_layer=2, n_head=4, n_positions=32, vocab_size=256, n_inner=None,
		                 activation_function="gelu_new", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0),
		    "llama": dict(ROTARY, model_type="llama", rms_norm_eps=1e-5, rope_theta=500000.0, head_dim=8, tie_word_embeddings=True,
		                  rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
		                                    original_max_position_embeddings=16)),
		    "qwen2": dict(ROTARY, model_type="qwen2", tie_word_embeddings=True, use_sliding_window=False),
		    "qwen3": dict(ROTARY, model_type="qwen3", head_dim=6, attention_bias=False),
		    "mixtral": dict(ROTARY, model_type="mixtral", num_local_experts=4, num_experts_per_tok=2, sliding_window=None,
		                    router_aux_loss_coef=0.02, output_router_logits=True),
		}

		def shapes(kind):
		    if kind == "gpt2":
		        out = {"transformer.wte.weight": [256, 16], "transformer.wpe.weight": [32, 16]}
		        for i in range(2):
		            p = f"transformer.h.{i}."
		            for name, a, b in ("attn.c_attn", 16, 48), ("attn.c_proj", 16, 16), ("mlp.c_fc", 16, 64), ("mlp.c_proj", 64, 16):
		                out[p + name + ".weight"], out[p + name + ".bias"] = [a, b], [b]
		            for name in "ln_1", "ln_2":
		                out[p + name + ".weight"] = out[p + name + ".bias"] = [16]
		        out["transformer.ln_f.weight"] = out["transformer.ln_f.bias"] = [16]
		        return out
		    dim = CONFIGS[kind].get("head_dim", 4)
		    out = {"model.embed_tokens.weight": [256, 16], "model.norm.weight": [16]}
		    for i in range(2):
		        p = f"model.layers.{i}."
		        out[p + "input_layernorm.weight"] = out[p + "post_attention_layernorm.weight"] = [16]
		        out[p + "self_attn.q_proj.weight"], out[p + "self_attn.o_proj.weight"] = [4 * dim, 16], [16, 4 * dim]
		        out[p + "self_attn.k_proj.weight"] = out[p + "self_attn.v_proj.weight"] = [2 * dim, 16]
		        if kind == "qwen2":
		            out[p + "self_attn.q_proj.bias"] = [4 * dim]
		            out[p + "self_attn.k_proj.bias"] = out[p + "self_attn.v_proj.bias"] = [2 * dim]
		        if kind == "qwen3":
		            out[p + "self_attn.q_norm.weight"] = out[p + "self_attn.k_norm.weight"] = [dim]
		        if kind != "mixtral":
		            out[p + "mlp.gate_proj.weight"] = out[p + "mlp.up_proj.weight"] = [22, 16]
		            out[p + "mlp.down_proj.weight"] = [16, 22]
		        else:
		            out[p + "block_sparse_moe.gate.weight"] = [4, 16]
		            for x in range(4):
		                out[p + f"block_sparse_moe.experts.{x}.w1.weight"] = out[p + f"block_sparse_moe.experts.{x}.w3.weight"] = [22, 16]
		                out[p + f"block_sparse_moe.experts.{x}.w2.weight"] = [16, 22]
		    if kind in ("mixtral", "qwen3"):
		        out["lm_head.weight"] = [256, 16]
		    return out

		def number(kind):
		    x = random.gauss(0, 0.1)
		    if kind == "F32":
		        return struct.pack("<f", x)
		    return struct.pack("<e", x) if kind == "F16" else struct.pack("<f", x)[2:]

		def write(path, tensors, meta={"format": "pt"}):
		    header, body = {"__metadata__": meta}, b""
		    for name, (kind, shape, raw) in tensors.items():
		        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(body), len(body) + len(raw)]}
		        body += raw
		    text = json.dumps(header).encode()
		    open(path, "wb").write(struct.pack("<Q", len(text)) + text + body)

		def tensors_of(kind, dtype):
		    random.seed(kind)
		    out = {}
		    for name, shape in shapes(kind).items():
		        n = 1
		        for d in shape: n *= d
		        out[name] = (dtype, shape, b"".join(number(dtype) for _ in range(n)))
		    return out

		def make(folder, kind, dtype="F32", shards=1):
		    os.makedirs(folder)
		    json.dump(CONFIGS[kind], open(f"{folder}/config.json", "w"))
		    tensors = tensors_of(kind, dtype)
		    if shards == 1:
		        return write(f"{folder}/model.safetensors", tensors)
		    names, where = list(tensors), {}
		    for s in range(shards):
		        file = f"model-{s + 1:05}-of-{shards:05}.safetensors"
		        part = {n: tensors[n] for n in names[s::shards]}
		        where.update({n: file for n in part})
		        write(f"{folder}/{file}", part)
		    json.dump({"metadata": {"total_size": sum(len(t[2]) for t in tensors.values())}, "weight_map": where}, open(f"{folder}/model.safetensors.index.json", "w"))

		def read_file(path):
		    data = open(path, "rb").read()
		    (n,) = struct.unpack("<Q", data[:8])
		    head = json.loads(data[8:8 + n])
		    assert head.pop("__metadata__").get("format") == "pt", path
		    return {k: (v["dtype"], v["shape"], data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]]) for k, v in head.items()}

		def read(folder):
		    index = f"{folder}/model.safetensors.index.json"
		    if not os.path.exists(index):
		        return read_file(f"{folder}/model.safetensors")
		    index, out = json.load(open(index)), {}
		    for file in sorted(set(index["weight_map"].values())):
		        part = read_file(f"{folder}/{file}")
		        assert all(index["weight_map"][n] == file for n in part), file
		        out.update(part)
		    assert set(out) == set(index["weight_map"])
		    assert index["metadata"]["total_size"] == sum(len(t[2]) for t in out.values())
		    return out

		def same(a, b):
		    x, y = read(a), read(b)
		    assert set(x) == set(y), set(x) ^ set(y)
		    for name in x:
		        assert x[name] == y[name], f"{name}: {x[name][:2]} and {y[name][:2]}"
		    c, d = json.load(open(f"{a}/config.json")), json.load(open(f"{b}/config.json"))
		    for key in c.keys() - {"n_inner"}:
		        assert c[key] == d.get(key), (key, c[key], d.get(key))

		if __name__ == "__main__":
		    do, *words = sys.argv[1:]
		    if do == "make":
		        make(words[0], words[1], words[2], int(words[3]))
		    elif do == "same":
		        same(*words)
		    else:
		        folder, change = words
		        tensors = read(folder)
		        config = json.load(open(f"{folder}/config.json"))
		        meta = {"format": "pt"}
		        exec(change)
		        json.dump(config, open(f"{folder}/config.json", "w"))
		        write(f"{folder}/model.safetensors", tensors, meta)
	PY
}

make_hf() { # folder kind dtype shards
	python3 hf.py make "$@"
}

# refused CHANGE TEXT: succeeds if the folder `in`, changed by the Python code CHANGE, is refused with TEXT and nothing is left
# behind.
refused() {
	rm -rf in out
	make_hf in "${3:-llama}" F32 1
	python3 hf.py change in "$1"
	run "$MUSTER" ckpt import in -o out
	echo "$output"
	[[ $status -eq 1 && $output == *"$2"* ]] || return 1
	[[ ! -e out || -z $(ls -A out) ]]
}

@test "Hugging Face to muster to Hugging Face is the same to the bit, for each family, type and number of files" {
	local type
	declare -A dtype=([F32]=fp32 [BF16]=bf16 [F16]=fp16)
	for kind in gpt2 llama qwen2 qwen3 mixtral; do
		for type in F32 BF16 F16; do
			for shards in 1 3; do
				rm -rf in out back
				make_hf in $kind $type $shards
				"$MUSTER" ckpt import in -o out
				"$MUSTER" ckpt verify out
				"$MUSTER" ckpt export out -o back --dtype ${dtype[$type]} --shard-size $((shards == 1 ? 1000000 : 9000))
				python3 hf.py same in back
				[[ $(ls back | grep -c safetensors$) -eq 1 || $shards -eq 3 ]]
			done
		done
	done
}

@test "muster to Hugging Face to muster is the same to the bit, for each layout" {
	run_tiny made job.steps=2 optimizer.warmup=1 parallel.tp=2 parallel.pp=2 parallel.dp=1 model.tie_head=no
	"$MUSTER" ckpt export "$(run_folder made)" -o hf
	"$MUSTER" ckpt import hf -o back
	"$MUSTER" ckpt export back -o again
	python3 hf.py same hf again
	# A run's checkpoint differs only by the layout and the optimizer's moments.
	"$MUSTER" ckpt show back --json >b.json
	"$MUSTER" ckpt show "$(run_folder made)" --json >a.json
	python3 - <<-'PY'
		import json
		a, b = json.load(open("a.json")), json.load(open("b.json"))
		assert a["model"] == b["model"], (a["model"], b["model"])
		of = lambda d: {t["name"]: t["shape"] for t in d["tensors"] if not t["name"].startswith("optim.")}
		assert of(a) == of(b) and b["step"] == 0
		assert not [t for t in b["tensors"] if t["name"].startswith("optim.")]
	PY
}

@test "the names of a bare model are understood, and buffers that old versions stored are left out" {
	make_hf in gpt2 F32 1
	python3 hf.py change in 'tensors = {n.removeprefix("transformer."): t for n, t in tensors.items()}
tensors["h.0.attn.bias"] = ("U8", [1, 1, 4, 4], bytes(16)); tensors["h.1.attn.masked_bias"] = ("F32", [], bytes(4))'
	"$MUSTER" ckpt import in -o out
	"$MUSTER" ckpt export out -o back
	rm -r in
	make_hf in gpt2 F32 1
	python3 hf.py same in back
}

@test "a tied head that is stored must be the embedding" {
	make_hf in gpt2 F32 1
	python3 hf.py change in 'tensors["lm_head.weight"] = tensors["transformer.wte.weight"]'
	"$MUSTER" ckpt import in -o out
	refused 'k, s, raw = tensors["transformer.wte.weight"]; tensors["lm_head.weight"] = (k, s, raw[:-1] + b"x")' \
		"tensor lm_head.weight: differs from the embedding" gpt2
}

@test "a tensor that the model does not have, or that is missing, is refused by name" {
	refused 'del tensors["model.layers.1.mlp.up_proj.weight"]' "has no tensor model.layers.1.mlp.up_proj.weight"
	refused 'tensors["model.layers.1.self_attn.q_proj.bias"] = ("F32", [1], bytes(4))' "tensor model.layers.1.self_attn.q_proj.bias"
	refused 'tensors["model.layers.2.input_layernorm.weight"] = ("F32", [16], bytes(64))' "tensor model.layers.2.input_layernorm.weight"
	refused 'config["head_dim"] = 4' "tensor model.layers.0.self_attn.q_proj.weight: its shape is not [16, 16]"
	refused 'config["tie_word_embeddings"] = False' "has no tensor lm_head.weight"
	refused 'tensors["model.norm.weight"] = ("F64", [16], bytes(128))' "tensor model.norm.weight is F64"
	refused 'meta["DCP_SHARDING_INFO"] = "{}"' "model.safetensors: holds parts of tensors"
}

@test "a configuration that muster does not support is refused by key and value" {
	refused 'config["model_type"] = "falcon"' "model_type is falcon"
	refused 'config["hidden_act"] = "relu"' "hidden_act is relu"
	refused 'config["attention_bias"] = True' "attention_bias is true"
	refused 'config["rope_scaling"]["rope_type"] = "yarn"' "rope_scaling is of type yarn"
	refused 'del config["rope_scaling"]["factor"]' "factor is missing"
	refused 'del config["intermediate_size"]' "intermediate_size is missing"
	refused 'config["hidden_size"] = 16.5' "hidden_size is 16.5, not a whole number"
	refused 'config["head_dim"] = 7' "even widths"
	refused 'config["embd_pdrop"] = 0.5' "resid_pdrop is 0 and embd_pdrop is 0.5" gpt2
	refused 'config["use_sliding_window"] = True' "use_sliding_window is true" qwen2
	refused 'config["attention_bias"] = True' "attention_bias is true" qwen3
	refused 'config["sliding_window"] = 4096' "sliding_window is 4096" mixtral
	refused 'config["router_jitter_noise"] = 0.1' "router_jitter_noise is 0.1" mixtral
	refused 'config["rope_parameters"] = dict(config["rope_scaling"], rope_theta=10000.0)' "rope_parameters.rope_theta is 10000"
}

# balance FOLDER: prints the keys of its balancing loss.
balance() {
	python3 -c 'import json, sys; c = json.load(open(sys.argv[1] + "/config.json")); print(c["output_router_logits"], c["router_aux_loss_coef"])' "$1"
}

@test "the balancing loss is imported if transformers adds it, and exported as the run trained with it" {
	make_hf in mixtral F32 1
	python3 hf.py change in 'config["num_experts_per_tok"] = 1'
	"$MUSTER" ckpt import in -o on
	grep -qx 'aux_loss = 0.01' on/model.ini
	"$MUSTER" ckpt export on -o on-hf
	[[ $(balance on-hf) == "True 0.02" ]]
	python3 hf.py change in 'config["output_router_logits"] = False'
	"$MUSTER" ckpt import in -o off
	grep -qx 'aux_loss = 0' off/model.ini && grep -q '^# .*output_router_logits is not true' off/model.ini
	"$MUSTER" ckpt export off -o off-hf
	[[ $(balance off-hf) == "False 0.0" ]]
	for aux in 0 0.5; do
		"$MUSTER" run off/model.ini job.name="aux-$aux" job.run_dir="$BATS_TEST_TMPDIR" job.steps=1 data.path="$data" batch.micro=1 batch.global=2 \
			launch.threads=1 parallel.dp=1 model.aux_loss="$aux" </dev/null
		"$MUSTER" ckpt export "aux-$aux" -o "hf-$aux"
	done
	[[ $(balance hf-0) == "False 0.0" && $(balance hf-0.5) == "True 1.0" ]]
}

@test "an index that points out of its folder, or to wrong files, is refused" {
	make_hf in llama F32 3
	sed -i 's,"model-00002-of-00003.safetensors","../in/model-00002-of-00003.safetensors",' in/model.safetensors.index.json
	run "$MUSTER" ckpt import in -o out
	[[ $status -eq 1 && $output == *"weight_map: tensor model."*" is not in a file of this folder by its plain name"* ]]
	rm -r in && make_hf in llama F32 3
	sed -i 's,"model.norm.weight": "[^"]*"\, ,,' in/model.safetensors.index.json
	run "$MUSTER" ckpt import in -o out
	[[ $status -eq 1 && $output == *"contains tensor model.norm.weight, but model.safetensors.index.json names another file for it"* ]]
	rm in/model-00003-of-00003.safetensors
	run "$MUSTER" ckpt import in -o out
	[[ $status -eq 1 && $output == *"model-00003-of-00003.safetensors: cannot open"* ]]
	rm -r in && mkdir in && echo '{"model_type": "llama"' >in/config.json
	run "$MUSTER" ckpt import in -o out
	[[ $status -eq 1 && $output == *"config.json: is not JSON"* && ! -e out ]]
}

@test "a run begins from an imported checkpoint, at step 0, in any layout and with any optimizer" {
	make_hf in llama F32 1
	"$MUSTER" ckpt import in -o out --seq 16 >said
	grep -q '^rope_scaling = llama3$' said && grep -q '^seq = 16$' said
	cmp <(sed -n '/^\[model\]/,$p' said) out/model.ini
	fine() { # name word…: four steps of fine-tuning
		local name=$1
		shift
		"$MUSTER" run out/model.ini "job.name=$name" job.run_dir="$BATS_FILE_TMPDIR" job.steps=4 job.seed=3 data.path="$data" batch.micro=1 \
			batch.global=4 launch.threads=1 checkpoint.every=2 "$@" </dev/null
	}
	fine one
	fine many parallel.tp=2 parallel.pp=2
	run "$losses" compare "$(run_folder one)/metrics.jsonl" "$(run_folder many)/metrics.jsonl" 1e-5
	echo "$output"
	[[ $status -eq 0 ]]
	fine sgd optimizer.kind=sgd
	# The first loss is that of the imported model, not of a new one.
	fine fresh checkpoint.resume=none
	run "$losses" compare "$(run_folder one)/metrics.jsonl" "$(run_folder fresh)/metrics.jsonl" 1e-3 1 1
	[[ $status -ne 0 ]]
	run "$losses" compare "$(run_folder one)/metrics.jsonl" "$(run_folder sgd)/metrics.jsonl" 0 1 1
	[[ $status -eq 0 ]]
	# The run's own checkpoints hold moments, and are preferred to the imported one.
	fine one job.steps=6
	"$MUSTER" ckpt show "$(run_folder one)/ckpt/step-00000004" | grep -q optim.v.embed.tokens.weight
	grep -q 'resuming from .*step-00000004' "$(run_folder one)"/logs/* "$(run_folder one)/events.jsonl"
}

@test "wrong arguments are refused with the reason, and nothing is overwritten" {
	make_hf in llama F32 1
	run "$MUSTER" ckpt import in
	[[ $status -eq 2 && $output == *"-o CKPT_DIR is missing"* ]]
	run "$MUSTER" ckpt import -o out
	[[ $status -eq 2 && $output == *"one FOLDER is needed"* ]]
	run "$MUSTER" ckpt import in -o out --seq long
	[[ $status -eq 2 && $output == *"--seq long"* ]]
	run "$MUSTER" ckpt import nowhere -o out
	[[ $status -eq 1 && $output == *"nowhere/config.json"* ]]
	"$MUSTER" ckpt import in -o out
	run "$MUSTER" ckpt import in -o out
	[[ $status -eq 2 && $output == *"step-00000000: already exists"* ]]
	run "$MUSTER" ckpt export out -o in
	[[ $status -eq 2 && $output == *"in: already exists"* ]]
	run "$MUSTER" ckpt export out -o x --dtype int8
	[[ $status -eq 2 && $output == *"--dtype int8 is none of fp32, bf16, fp16"* ]]
	run "$MUSTER" ckpt export out -o x --shard-size big
	[[ $status -eq 2 && $output == *"--shard-size big"* ]]
	mkdir empty
	"$MUSTER" ckpt export out -o empty/ --shard-size 1Gi --json | grep -q '"files": 1'
	python3 hf.py same in empty
	[[ $(stat -c %a empty) == 700 && $(stat -c %a empty/* | sort -u) == 600 && -z $(ls -d *.tmp.* 2>/dev/null) ]]
}

@test "a number too large for fp16 is refused with its tensor, a damaged checkpoint with its digest" {
	make_hf in llama F32 1
	python3 hf.py change in 'k, s, raw = tensors["model.norm.weight"]; tensors["model.norm.weight"] = (k, s, struct.pack("<f", 1e5) + raw[4:])'
	"$MUSTER" ckpt import in -o out
	run "$MUSTER" ckpt export out -o half --dtype fp16
	[[ $status -eq 1 && $output == *"tensor model.norm.weight has numbers beyond fp16"* && ! -e half ]]
	"$MUSTER" ckpt export out -o half --dtype bf16
	printf x | dd of=out/step-00000000/shard-00000.safetensors bs=1 seek=$(($(stat -c %s out/step-00000000/shard-00000.safetensors) - 5)) conv=notrunc status=none
	run "$MUSTER" ckpt export out/step-00000000 -o whole
	[[ $status -eq 1 && $output == *"the digest differs"* && ! -e whole && -z $(ls -d *.tmp.* 2>/dev/null) ]]
}
