#!/usr/bin/env bats
# The files that come with a Hugging Face model stay with it: through an import, a run, its checkpoints and an export, and
# generation uses them. Folders, prompts and ids are those of transformers (tests/golden/make_carry.py).

load ../helpers

golden=$BATS_TEST_DIRNAME/../golden/carry
cases=$BATS_TEST_DIRNAME/../golden/carry_cases.py

setup_file() {
	data=$BATS_FILE_TMPDIR/text
	export data
	"$MUSTER" data pack /usr/share/common-licenses/Apache-2.0 -o "$data" --tokenizer "$BATS_TEST_DIRNAME/../golden/carry/llama"
}

setup() { cd "$BATS_TEST_TMPDIR"; }

# speaks MODEL NAME: succeeds if the model at that path generates the same ids as transformers' NAME.
speaks() {
	"$MUSTER" generate "$1" --prompt 'the old tree stood at the river' --temperature 0 --tokens 12 --threads 1 --json >said.json
	python3 - "$golden/expected.json" "$2" <<-'PY'
		import json, sys
		have, want = json.load(open("said.json")), json.load(open(sys.argv[1]))["models"][sys.argv[2]]
		assert have["ids"] == want["ids"] and have["ended"] == want["stopped"], (have, want)
		assert have["prompt_tokens"] == len(want["prompt_ids"]), have
	PY
}

# exported FOLDER NAME: succeeds if FOLDER has all files that came with NAME, and the ids of its special tokens.
exported() {
	local file
	for file in generation_config.json tokenizer.json tokenizer_config.json chat_template.jinja; do
		cmp "$golden/$2/$file" "$1/$file"
	done
	python3 - "$golden/$2/config.json" "$1/config.json" <<-'PY'
		import json, sys
		a, b = (json.load(open(p)) for p in sys.argv[1:])
		for key in "bos_token_id", "eos_token_id", "pad_token_id", "use_cache": assert a[key] == b[key], (key, b)
		assert a["architectures"] == b["architectures"] and a["vocab_size"] == b["vocab_size"]
		assert "transformers_version" not in b and "summary_type" not in b
	PY
	[[ $(head -n 3 "$1/README.md") == $'---\nlibrary_name: transformers\npipeline_tag: text-generation' ]]
	! grep -q "$BATS_TEST_TMPDIR\|$HOME/" "$1/README.md"
}

# rewrite CKPT PYTHON: changes the text of a manifest and corrects its digest.
rewrite() {
	python3 - "$1/MANIFEST.json" "$2" <<-'PY'
		import ctypes, sys
		class H(ctypes.Structure):
		    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]
		xxh = ctypes.CDLL("libxxhash.so.0")
		xxh.XXH3_128bits.restype, xxh.XXH3_128bits.argtypes = H, [ctypes.c_char_p, ctypes.c_size_t]
		def digest(data):
		    h = xxh.XXH3_128bits(data, len(data))
		    return "%016x%016x" % (h.high, h.low)
		line, text = open(sys.argv[1], "rb").read().split(b"\n", 1)
		assert line == b'{"digest": "%s",' % digest(text).encode(), line
		was, text = text, text.decode()
		exec(sys.argv[2])
		assert text.encode() != was
		open(sys.argv[1], "wb").write(b'{"digest": "%s",\n' % digest(text.encode()).encode() + text.encode())
	PY
}

@test "a model's files survive import and export, and it generates what transformers generates" {
	for name in gpt2 llama mixtral; do
		rm -rf in out
		speaks "$golden/$name" $name
		"$MUSTER" ckpt import "$golden/$name" -o in >said
		grep -q "with 5 files that came with it" said
		"$MUSTER" ckpt verify in
		cmp "$golden/$name/config.json" in/step-00000000/config.json
		[[ $(stat -c %a in/step-00000000/tokenizer.json) == 600 ]]
		speaks in $name
		"$MUSTER" ckpt export in -o out --dtype bf16
		exported out $name
		speaks out $name
	done
}

@test "a run that begins with a model copies its files into every checkpoint, even if the first one is removed" {
	"$MUSTER" ckpt import "$golden/llama" -o in
	fine() {
		"$MUSTER" run in/model.ini job.name=fine job.run_dir="$PWD" job.seed=3 data.path="$data" batch.micro=1 batch.global=4 launch.threads=1 \
			checkpoint.every=2 checkpoint.keep=1 optimizer.lr=1e-3 "$@" </dev/null
	}
	fine job.steps=4 parallel.tp=2 parallel.dp=2
	[[ $(ls fine/ckpt) == step-00000004 ]]
	"$MUSTER" ckpt verify fine
	mv in/step-00000000 gone
	fine job.steps=6 parallel.pp=2 # goes on from its own, in another layout
	[[ $(ls fine/ckpt) == step-00000006 ]]
	"$MUSTER" ckpt verify fine
	"$MUSTER" ckpt ls fine
	"$MUSTER" ckpt show fine | grep -q '^carried *5'
	"$MUSTER" ckpt export fine -o out
	exported out llama
	grep -q '^| steps | 6 of 6 |$' out/README.md
	grep -q "^| tokens trained on | 1\.5[0-9]* k, in 24 samples of 64 |$" out/README.md
	loss=$(grep -oP '"loss":\K[0-9.]+' fine/metrics.jsonl | tail -n 1)
	grep -q "^| training loss of the last step | $(printf %.4f "$loss") |$" out/README.md
	# The model's own tokenizer is used; none is given.
	"$MUSTER" generate fine --prompt 'the river' --tokens 4 --threads 1 --json | grep -q '"prompt_tokens": '
	"$MUSTER" generate out --prompt 'the river' --temperature 0 --tokens 4 --threads 1 >a
	"$MUSTER" generate fine --prompt 'the river' --temperature 0 --tokens 4 --threads 1 --tokenizer "$golden/llama" >b
	cmp a b
}

@test "a changed file makes the checkpoint damaged, and the one before it is used" {
	"$MUSTER" ckpt import "$golden/llama" -o in
	fine() {
		"$MUSTER" run in/model.ini job.name=fine job.run_dir="$PWD" job.seed=3 data.path="$data" batch.micro=1 batch.global=4 launch.threads=1 \
			checkpoint.every=2 checkpoint.keep=3 "$@" </dev/null
	}
	fine job.steps=4
	printf x | dd of=fine/ckpt/step-00000004/chat_template.jinja bs=1 seek=3 conv=notrunc status=none
	run "$MUSTER" ckpt verify fine
	[[ $status -eq 1 && $output == *"step-00000004/chat_template.jinja: the digest differs"* && $output == *"step-00000002: ok"* ]]
	run "$MUSTER" ckpt export fine/ckpt/step-00000004 -o out
	[[ $status -eq 1 && $output == *"chat_template.jinja: the digest differs"* && ! -e out ]]
	fine job.steps=6
	[[ -d fine/ckpt/damaged-step-00000004 ]]
	cmp "$golden/llama/chat_template.jinja" fine/ckpt/step-00000006/chat_template.jinja
	rm fine/ckpt/step-00000006/tokenizer.json
	run "$MUSTER" ckpt ls fine
	[[ $status -eq 0 && ${lines[0]} == *"damaged: "*"tokenizer.json: a file of the checkpoint cannot be found"* ]]
}

@test "verify compares the tensors with the model of the manifest" {
	"$MUSTER" ckpt import "$golden/llama" -o in
	wrong() { # CHANGE TEXT
		rm -rf changed && cp -r in changed
		rewrite changed/step-00000000 "$1"
		run "$MUSTER" ckpt verify changed
		echo "$output"
		[[ $status -eq 1 && $output == *"damaged: "*"$2"* ]]
	}
	wrong 'text = text.replace("\"ffn\":24", "\"ffn\":9999")' "tensor layers.0.mlp.gate.weight: is 24 × 16, and its model has 9999 × 16 there"
	wrong 'text = text.replace("\"hidden\":16", "\"hidden\":9999")' "tensor embed.tokens.weight: is 284 × 16, and its model has 284 × 9999 there"
	wrong 'text = text.replace("\"layers\":2", "\"layers\":1")' "tensor layers.1.norm1.weight: its model has no such tensor"
	wrong 'text = text.replace("\"tied\":true", "\"tied\":false")' "has no tensor head.weight, which its model needs"
	wrong 'text = text.replace("\"layers\":2", "\"layers\":900000")' "layers"
	wrong 'text = text.replace("\"optimizer\": \"none\"", "\"optimizer\": \"sgd\"")' "state_digest is not that of the tensors' sums"
	# The same in a manifest of an older version, which has no digest of the state.
	wrong 'import re; text = re.sub("\"state_digest\": \"[0-9a-f]+\",\n|, \"sums\": .[0-9]+, \"[0-9a-f]*\".", "", text)
text = text.replace("\"optimizer\": \"none\"", "\"optimizer\": \"sgd\"")' "has no tensor optim.m.embed.tokens.weight"
	rm -rf changed && cp -r in changed
	rewrite changed/step-00000000 'text = text.replace("\"generation\": 0", "\"generation\": 1")' # nothing that matters
	"$MUSTER" ckpt verify changed
}

# state.py DIR: computes the state digest of a checkpoint of one shard from its bytes, as agent/engine/ckpt/format/sum.h and
# state_digest.h specify it, and compares it with the manifest. With a word more, it changes a sum and what follows from it.
state_py() {
	cat >state.py <<-'PY'
		import ctypes, json, struct, sys
		class H(ctypes.Structure):
		    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]
		xxh = ctypes.CDLL("libxxhash.so.0")
		xxh.XXH3_128bits.restype, xxh.XXH3_128bits.argtypes = H, [ctypes.c_char_p, ctypes.c_size_t]
		def digest(data):
		    h = xxh.XXH3_128bits(data, len(data))
		    return "%016x%016x" % (h.high, h.low)
		def splitmix(seed, i):
		    x = seed + (i + 1) * 0x9e3779b97f4a7c15 & 2**64 - 1
		    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9 & 2**64 - 1
		    x = (x ^ x >> 27) * 0x94d049bb133111eb & 2**64 - 1
		    return x ^ x >> 31
		def sums(shape, data):
		    rows, columns = ([1] + shape)[-2:]
		    bits = struct.unpack("<%dI" % (rows * columns), data)
		    per_row, per_block = -(-columns // 2048), 2**22 // min(columns, 2048)
		    out = [0] * -(-rows * per_row // per_block)
		    for i, x in enumerate(bits):
		        row, column = divmod(i, columns)
		        segment, word = row * per_row + column // 2048, column % 2048
		        key = splitmix(0x6d75737465722d41, 2 * segment + 1) << 64 | splitmix(0x6d75737465722d41, 2 * segment) | 1
		        out[segment // per_block] += key * (x << 32 * (word % 2)) * (splitmix(0x6d75737465722d42, word // 2) | 1)
		    return [s % 2**128 for s in out]
		path = sys.argv[1] + "/MANIFEST.json"
		text = open(path, "rb").read().split(b"\n", 1)[1]
		m = json.loads(b"{" + text)
		def root(m):
		    s = "muster-state 1\nstep %d\nsamples %d\ntotal_steps %d\nseed %s\noptimizer %s\n" % (
		        m["step"], m["samples"], m["total_steps"], m["seed"], m["optimizer"])
		    assert "data" not in m
		    s += "".join("number %s %.17g\n" % n for n in sorted(m.get("numbers", {}).items()))
		    for t in sorted(m["tensors"], key=lambda t: t["name"]):
		        s += "tensor %s %d %d %s\n" % (t["name"], *(t["shape"] + [1])[:2], digest(bytes.fromhex(t["sums"][1])))
		    return digest(s.encode())
		for t in m["tensors"]:
		    (file, offset, lo, hi, _), = t["slices"]
		    data = open(sys.argv[1] + "/" + m["files"][file]["name"], "rb").read()[m["files"][file]["header"] + offset:]
		    n = 4
		    for d in t["shape"]: n *= d
		    assert t["sums"] == [0, "".join("%032x" % s for s in sums(t["shape"], data[:n]))], t["name"]
		assert m["state_digest"] == root(m)
		if len(sys.argv) > 2:
		    t = next(t for t in m["tensors"] if t["name"] == sys.argv[2])
		    old, new = t["sums"][1], "%032x" % (int(t["sums"][1], 16) ^ 1)
		    was = m["state_digest"]
		    t["sums"][1] = new
		    text = text.replace(old.encode(), new.encode()).replace(was.encode(), root(m).encode())
		    open(path, "wb").write(b'{"digest": "%s",\n' % digest(text).encode() + text)
	PY
}

@test "an independent reader computes the state digest; export and verify compare the elements with it" {
	"$MUSTER" ckpt import "$golden/llama" -o in
	state_py
	python3 state.py in/step-00000000 layers.1.attn.q.weight
	run "$MUSTER" ckpt verify in
	[[ $status -eq 1 && $output == *"tensor layers.1.attn.q.weight: the sums of its blocks differ"* ]]
	run "$MUSTER" ckpt export in -o out
	[[ $status -eq 1 && $output == *"tensor layers.1.attn.q.weight: the sums of its blocks are not those that were saved"* && ! -e out ]]
	run "$MUSTER" run in/model.ini job.name=fine job.run_dir="$PWD" job.steps=1 data.path="$data" batch.micro=1 batch.global=1 launch.threads=1
	echo "$output"
	[[ $status -eq 1 && $output == *"tensor layers.1.attn.q.weight: its digest in memory is not the one that was saved"* ]]
	[[ -d in/step-00000000 ]] # not called damaged
}

@test "a renamed tensor in a shard's header is found by verify, and by a run that would continue from it" {
	"$MUSTER" ckpt import "$golden/llama" -o in
	shard=in/step-00000000/shard-00000.safetensors
	sed -i 's/layers\.1\.attn\.q\.weight/layers.9.attn.q.weight/' $shard
	refused() {
		run "$MUSTER" ckpt verify in
		[[ $status -eq 1 && $output == *"$1"* ]]
		run "$MUSTER" run in/model.ini job.name=fine job.run_dir="$PWD" job.steps=1 data.path="$data" batch.micro=1 batch.global=1 launch.threads=1
		echo "$output"
		[[ $status -eq 1 && $output == *"$1"* ]]
		rm -rf fine
	}
	refused "the digest of its header differs"
	size=$(python3 -c 'import struct, sys; print(8 + struct.unpack("<Q", open(sys.argv[1], "rb").read(8))[0])' $shard)
	head -c "$size" $shard >header
	rewrite in/step-00000000 'import re; text = re.sub(r"(\"header\": [0-9]+, \"digest\": \")[0-9a-f]+", lambda m: m[1] + digest(open("header", "rb").read()), text)'
	refused "its header has the tensor layers.9.attn.q.weight where the manifest has layers.1.attn.q.weight"
}

@test "each wrong folder is refused or read as transformers does" {
	local i want text name theirs n=0
	python3 "$cases" all "$golden" cases >list
	while IFS=$'\t' read -r i want text name theirs; do
		rm -rf out
		run "$MUSTER" ckpt import "cases/$i" -o out
		echo "$name: $output"
		echo "    transformers: $theirs"
		[[ $status -eq $want && $output == *"$text"* ]]
		n=$((n + 1))
		[[ $want -ne 0 ]] || continue
		[[ ! -e out || -z $(ls -A out) ]] # nothing is left behind
		run "$MUSTER" generate "cases/$i" --prompt x --tokens 1 </dev/null
		[[ $status -eq 1 && $output == *"$text"* ]]
	done <list
	[[ $n -ge 20 ]]
}

@test "a remedy is a command with the folder in it, quoted for a shell" {
	mkdir bin && cp "$golden/gpt2/config.json" bin && touch bin/pytorch_model.bin
	run "$MUSTER" ckpt import bin -o out
	[[ $output == *": python3 -c \"from transformers import AutoModelForCausalLM as M; M.from_pretrained('bin').save_pretrained('bin')\" writes "* ]]
	"$MUSTER" ckpt import "$golden/gpt2" -o own
	run "$MUSTER" ckpt import own/step-00000000 -o out
	[[ $status -eq 1 && $output == *"own/step-00000000: holds a checkpoint of muster; it needs no import, name it in checkpoint.resume"* ]]
	mkdir "it's" && touch "it's/adapter_config.json"
	run "$MUSTER" ckpt import "it's" -o out
	[[ $output == *"AutoPeftModelForCausalLM as M; M.from_pretrained('FOLDER').merge_and_unload().save_pretrained('FOLDER-merged')"* ]]
}

@test "invalid ids are not exported, and notes are in the JSON" {
	python3 "$cases" make "$golden" "ids that are none" in
	"$MUSTER" ckpt import in -o out
	"$MUSTER" ckpt export out -o back
	python3 -c 'import json; c = json.load(open("back/config.json")); assert "bos_token_id" not in c and "eos_token_id" not in c and c["pad_token_id"] == -1, c'
	python3 "$cases" make "$golden" NaN nan
	"$MUSTER" ckpt import nan -o numbers --json >said
	python3 -c 'import json; o = json.load(open("said")); assert o["notes"] == ["tensor model.norm.weight: 1 NaN and 0 infinite of its 16 numbers"] and o["carried"] == 5, o'
}

@test "a link out of a model's folder does not copy a private file" {
	cp -r "$golden/llama" model
	echo mine >private
	ln -s ../private model/LICENSE
	run "$MUSTER" ckpt import model -o linked
	echo "$output"
	[[ $status -eq 0 && $output == *"note: model/LICENSE is a link out of the folder and does not go along"* ]]
	[[ ! -e linked/step-00000000/LICENSE && -e linked/step-00000000/config.json ]]
}

@test "the model card names the model of the Hub's cache as its base model" {
	mkdir -p models--an-org--a-model/blobs models--an-org--a-model/snapshots/0123
	for file in "$golden"/llama/*; do
		cp "$file" "models--an-org--a-model/blobs/${file##*/}"
		ln -s "../../blobs/${file##*/}" "models--an-org--a-model/snapshots/0123/${file##*/}"
	done
	"$MUSTER" ckpt import models--an-org--a-model/snapshots/0123 -o in
	[[ -f in/step-00000000/tokenizer.json && ! -L in/step-00000000/tokenizer.json ]]
	"$MUSTER" ckpt verify in
	"$MUSTER" ckpt export in -o out
	grep -q '^base_model: an-org/a-model$' out/README.md
	exported out llama
}

@test "a tokenizer can be given by its folder" {
	"$MUSTER" data pack /usr/share/common-licenses/Apache-2.0 -o file --tokenizer "$golden/gpt2/tokenizer.json"
	"$MUSTER" data pack /usr/share/common-licenses/Apache-2.0 -o folder --tokenizer "$golden/gpt2/"
	cmp file.bin folder.bin
	mkdir none
	run "$MUSTER" data pack /usr/share/common-licenses/Apache-2.0 -o x --tokenizer none
	[[ $status -eq 1 && $output == *"none: has no tokenizer.json; name the file, or a folder that has one"* ]]
	touch none/tokenizer.model
	run "$MUSTER" data pack /usr/share/common-licenses/Apache-2.0 -o x --tokenizer none
	[[ $status -eq 1 && $output == *"none: has tokenizer.model, but no tokenizer.json"*"save_pretrained"* ]]
	cp -r "$golden/llama" bare && rm bare/tokenizer.json
	run "$MUSTER" generate bare --prompt x --tokens 1
	[[ $status -eq 1 && $output == *"bare: has no tokenizer.json"* ]]
	"$MUSTER" generate bare --prompt x --tokens 1 --threads 1 --tokenizer "$golden/llama"
}

@test "--end replaces the model's own end tokens" {
	"$MUSTER" generate "$golden/llama" --prompt 'the old tree stood at the river' --temperature 0 --tokens 12 --threads 1 --end '<|end|>' --json >said
	python3 -c 'import json; o = json.load(open("said")); assert len(o["ids"]) == 12 and not o["ended"], o'
}
