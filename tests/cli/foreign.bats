#!/usr/bin/env bats
# muster ckpt import of folders that torch.distributed.checkpoint and Megatron's dist_checkpointing wrote (tests/golden/make_dcp.py):
# the checkpoint has the same bits as that of the Hugging Face folder with the same weights; hostile folders are refused.

load ../helpers

setup() {
	cd "$BATS_TEST_TMPDIR"
	tar -xzf "$top/tests/golden/dcp.tar.gz"
	cat >pickles.py <<-'PY'
		"""Changes the files of a DCP folder with nothing but Python's own library."""
		import struct, sys

		def put(path, old, new):
		    """Replaces bytes by as many others, at the only place where they are."""
		    data = open(path, "rb").read()
		    assert data.count(old) == 1 and len(old) == len(new), (data.count(old), old, new)
		    open(path, "wb").write(data.replace(old, new))

		exec(sys.argv[1])
	PY
}

# import_as KIND FOLDER OUT WORD…: imports a folder with the config.json of KIND.
import_as() {
	local kind=$1 folder=$2 out=$3
	shift 3
	"$MUSTER" ckpt import "$folder" --config "$kind" -o "$out" "$@"
}

# refused KIND FOLDER TEXT…: the import fails with one line, apart from notes, that has each TEXT, and leaves nothing behind.
refused() {
	rm -rf out
	run import_as "$1" "$2" out
	echo "$output"
	[[ $status -eq 1 && $(grep -vc ": note: " <<<"$output") -eq 1 ]] || return 1
	local text
	for text in "${@:3}"; do
		[[ ${lines[-1]} == "muster ckpt import: "*"$text"* ]] || return 1
	done
	[[ ! -e out || -z $(ls -A out) ]]
}

# hostile FROM CODE KIND TEXT: a copy of the folder FROM that CODE changed is refused with TEXT.
hostile() {
	rm -rf bad
	cp -r "$1" bad
	python3 pickles.py "$2"
	refused "$3" bad "$4"
}

@test "a folder of DCP or Megatron becomes the same checkpoint as the Hugging Face folder with its weights" {
	local kind name folder
	for kind in gpt2 llama mixtral; do
		"$MUSTER" ckpt import $kind -o truth-$kind
		"$MUSTER" ckpt show truth-$kind --json >$kind.json
	done
	for folder in torch-gpt2 torch-llama-2 torch-mixtral-4 megatron-gpt2-2 megatron-llama-2 megatron-mixtral-2 \
		megatronflat-llama-2 megatronflat-mixtral-2; do
		kind=${folder#*-} kind=${kind%-[0-9]}
		import_as $kind $folder $folder.out
		"$MUSTER" ckpt verify $folder.out
		"$MUSTER" ckpt show $folder.out --json >show.json
		python3 - $kind.json show.json <<-'PY'
			import json, sys
			a, b = (json.load(open(p)) for p in sys.argv[1:])
			assert a["model"] == b["model"] and b["step"] == 0
			assert len(a["tensors"]) > 20 and a["tensors"] == b["tensors"]
		PY
		cmp truth-$kind/step-00000000/shard-00000.safetensors $folder.out/step-00000000/shard-00000.safetensors
		cmp <(grep -v ^resume truth-$kind/model.ini) <(grep -v ^resume $folder.out/model.ini)
	done
}

@test "the import tells what it leaves out, cuts off and rounds" {
	import_as llama torch-llama-2 a --json >a.json
	python3 -c 'import json; n = json.load(open("a.json"))["notes"]; assert len(n) == 1 and n[0].startswith("6 tensors of the optimizer"), n'
	run import_as gpt2 megatron-gpt2-2 b
	[[ $output == *"note: 3 rows that pad the vocabulary are cut off"* ]]
	run import_as mixtral torch-mixtral-4 c
	[[ $output == *"note: 5 tensors in float64 are rounded to fp32"* ]]
}

@test "a config.json may be in the folder, and its absence is answered with --config" {
	run "$MUSTER" ckpt import torch-llama-2 -o out
	[[ $status -eq 2 && $output == *"torch-llama-2: has no config.json"*"name a Hugging Face folder of the model with --config"* ]]
	cp llama/config.json torch-llama-2
	"$MUSTER" ckpt import torch-llama-2 -o out
	"$MUSTER" ckpt verify out
}

@test "padding rows are cut off, but missing rows of the vocabulary are not made up" {
	sed -i 's/"vocab_size": 13/"vocab_size": 17/' gpt2/config.json
	refused gpt2 megatron-gpt2-2 "tensor embedding.word_embeddings.weight: its shape is not [17, 8], as config.json has it"
}

@test "tensors that are missing, unknown or of another shape are refused by name" {
	refused llama megatron-gpt2-2 "tensor decoder.layers.self_attention.linear_qkv.weight: its shape is not [2, 16, 8], as config.json has it"
	refused gpt2 torch-llama-2 "has no tensor transformer.wte.weight"
	refused gpt2 megatron-llama-2 "has no tensor embedding.position_embeddings.weight"
	refused mixtral torch-llama-2 "has no tensor model.layers.0.block_sparse_moe.gate.weight"
	refused mixtral megatron-llama-2 "has no tensor decoder.layers.mlp.router.weight"
	refused llama megatron-mixtral-2 "has no tensor decoder.layers.mlp.linear_fc1.weight"
	sed -i 's/"num_hidden_layers": 2/"num_hidden_layers": 1/' llama/config.json
	refused llama torch-llama-2 "tensor _orig_mod.model.layers.1." ": the model of config.json has no such tensor"
	refused llama megatron-llama-2 "tensor decoder.layers.self_attention." ": its shape is not [1, "
}

@test "a tied head that is stored must be the embedding" {
	# Its archive holds the same storage as the embedding's; one bit of the head's copy changes with its CRC.
	cat >untie.py <<-'PY'
		import re, struct, zlib
		data = bytearray(open("torch-gpt2/__0_0.distcp", "rb").read())
		weights = open("gpt2/model.safetensors", "rb").read()
		(n,) = struct.unpack("<Q", weights[:8])
		import json
		a, b = json.loads(weights[8:8 + n])["transformer.wte.weight"]["data_offsets"]
		table = weights[8 + n + a:8 + n + b]
		at = data.rindex(table)
		assert data.count(table) == 2
		old = struct.pack("<I", zlib.crc32(table))
		data[at] ^= 1
		new = struct.pack("<I", zlib.crc32(data[at:at + len(table)]))
		c = data.index(old, at)
		while c >= 0:
		    data[c:c + 4] = new
		    c = data.find(old, c + 4, at + len(table) + 1200)
		open("torch-gpt2/__0_0.distcp", "wb").write(data)
	PY
	python3 untie.py
	refused gpt2 torch-gpt2 "differs from the embedding, and config.json says that they are tied"
}

@test "a pickle that would run code runs none, and is refused by the name that it calls" {
	cat >evil.py <<-'PY'
		import os, pickle, sys
		class Evil:
		    def __reduce__(self): return os.system, ("touch ran",)
		pickle.dump(Evil(), open(sys.argv[1] + "/.metadata", "wb"), protocol=int(sys.argv[2]))
	PY
	local protocol
	for protocol in 0 2 4 5; do
		mkdir -p evil
		python3 evil.py evil $protocol
		refused gpt2 evil "evil/.metadata: its pickle names posix.system, which no tensor needs; nothing of it was run"
		[[ ! -e ran ]]
	done
}

@test "damaged and hostile folders are refused with the file and the cause" {
	hostile torch-gpt2 'd = open("bad/.metadata", "rb").read(); open("bad/.metadata", "wb").write(d[:-40])' gpt2 ".metadata: damaged pickle: it ends early"
	hostile torch-gpt2 'd = open("bad/.metadata", "rb").read(); open("bad/.metadata", "wb").write(d + b".")' gpt2 ".metadata: damaged pickle: bytes follow its end"
	hostile torch-gpt2 'put("bad/.metadata", b"__0_0.distcp", b"../x0.distcp")' gpt2 "the file of one of its chunks is not a plain name"
	hostile torch-gpt2 'import os; os.remove("bad/__0_0.distcp")' gpt2 "bad/__0_0.distcp: cannot open"
	hostile torch-gpt2 'd = open("bad/__0_0.distcp", "rb").read(); open("bad/__0_0.distcp", "wb").write(d[:20000])' gpt2 "bad/__0_0.distcp"
	hostile torch-gpt2 'd = open("bad/__0_0.distcp", "rb").read(); open("bad/__0_0.distcp", "wb").write(bytes(x ^ (1 if i % 97 == 0 else 0) for i, x in enumerate(d)))' \
		gpt2 "bad/__0_0.distcp: damaged archive"
	hostile megatron-gpt2-2 'put("bad/metadata.json", b"torch_dist", b"zarr_dist_")' gpt2 "bad/metadata.json: sharded_backend is zarr_dist_; muster reads torch_dist"
	hostile torch-gpt2 'import os; os.remove("bad/.metadata")' gpt2 "bad: holds files of torch.distributed.checkpoint without .metadata"
	rm -rf many && mkdir many && echo 7 >many/latest_checkpointed_iteration.txt
	refused gpt2 many "many: holds Megatron's checkpoints of several iterations; name the folder of one of them"
}

@test "one changed bit in a tensor's bytes is found by the CRC of its archive" {
	hostile torch-gpt2 'import struct, json
w = open("gpt2/model.safetensors", "rb").read(); (n,) = struct.unpack("<Q", w[:8])
a, b = json.loads(w[8:8 + n])["transformer.wpe.weight"]["data_offsets"]
put("bad/__0_0.distcp", w[8 + n + a:8 + n + b], bytes([w[8 + n + a] ^ 1]) + w[8 + n + a + 1:8 + n + b])' gpt2 "__0_0.distcp: the CRC of archive/data/0 is not that of its directory"
}
