#!/usr/bin/env bats
# muster ckpt reports on checkpoints that a run wrote, whole and damaged.

load ../helpers

setup_file() {
	make_data
	make_tiny_job
	run_tiny made job.steps=6 checkpoint.every=2 checkpoint.keep=2 parallel.tp=2 parallel.pp=2 parallel.dp=2
}

setup() {
	cd "$BATS_TEST_TMPDIR"
	cp -r "$(run_folder made)/ckpt" ckpt
}

flip() { # FILE BYTE: changes one bit
	local byte
	byte=$(od -An -tu1 -j "$2" -N 1 "$1")
	printf "\\x$(printf %x $((byte ^ 16)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

# damaged TEXT: succeeds if verify exits 1 and reports TEXT for step 6, and step 4 is whole.
damaged() {
	run "$MUSTER" ckpt verify ckpt
	echo "$output"
	[[ $status -eq 1 ]]
	grep -F 'step-00000006: damaged: ' <<<"$output" | grep -qF -- "$1"
	grep -qF 'step-00000004: ok' <<<"$output"
}

@test "a run keeps its newest checkpoints, whole and private" {
	run "$MUSTER" ckpt verify "$(run_folder made)"
	[[ $status -eq 0 && ${#lines[@]} -eq 2 ]]
	[[ ${lines[0]} == *step-00000006:\ ok && ${lines[1]} == *step-00000004:\ ok ]]
	[[ $(ls -A ckpt) == $'step-00000004\nstep-00000006' ]]
	[[ $(stat -c %a ckpt/step-00000006) == 700 ]]
	[[ $(stat -c %a ckpt/step-00000006/* | sort -u) == 600 ]]
	# Each of the eight ranks wrote its shard.
	[[ $(cd ckpt/step-00000006 && echo shard-*) == *shard-00000.safetensors*shard-00007.safetensors ]]
	[[ $(ls ckpt/step-00000006 | wc -l) -eq 9 ]]
}

@test "a run's folder, its ckpt folder and a checkpoint are all understood" {
	run "$MUSTER" ckpt ls "$(run_folder made)"
	[[ $status -eq 0 && ${#lines[@]} -eq 2 && ${lines[0]} == *" 6 "* && ${lines[1]} == *" 4 "* ]]
	run "$MUSTER" ckpt ls ckpt
	[[ $status -eq 0 && ${#lines[@]} -eq 2 ]]
	run "$MUSTER" ckpt ls ckpt/step-00000004
	[[ $status -eq 0 && ${#lines[@]} -eq 1 ]]
	cd ckpt/step-00000004
	run "$MUSTER" ckpt verify .
	[[ $status -eq 0 && ${lines[0]} == */step-00000004:\ ok ]]
}

@test "ls and show print JSON" {
	run "$MUSTER" ckpt ls ckpt --json
	[[ $status -eq 0 ]]
	python3 -c 'import json, sys; d = json.load(sys.stdin)["checkpoints"]
assert [c["step"] for c in d] == [6, 4] and all(c["valid"] and c["samples"] == 8 * c["step"] for c in d), d
assert d[0]["layout"] == {"tp": 2, "cp": 1, "pp": 2, "dp": 2}, d' <<<"$output"
	run "$MUSTER" ckpt show ckpt --json
	[[ $status -eq 0 ]]
	python3 -c 'import json, sys; d = json.load(sys.stdin)
assert d["step"] == 6 and d["seed"] == "7" and d["model"]["hidden"] == 32, d
assert len(d["state_digest"]) == 32 and int(d["state_digest"], 16), d["state_digest"]
assert d["data"]["path"] and d["data"]["samples"] > 0 and 0 <= d["data"]["validation"] < 1, d["data"]
names = [t["name"] for t in d["tensors"]]
for n in "embed.tokens.weight", "layers.3.attn.q.weight", "norm.bias": assert n in names and "optim.m." + n in names and "optim.v." + n in names, n
for t in d["tensors"]:
    volume = 0
    for s in t["slices"]:
        n = 1
        for lo, hi in zip(s["lo"], s["hi"]): n *= hi - lo
        volume += n
    want = 1
    for n in t["shape"]: want *= n
    assert volume == want, t' <<<"$output"
	run "$MUSTER" ckpt show ckpt/step-00000004
	[[ $status -eq 0 && $output == *"embed.tokens.weight"*"256 × 32"* ]]
	[[ $(sed -n 's/^digest  *//p' <<<"$output") =~ ^[0-9a-f]{32}$ ]]
}

@test "an independent reader accepts the shards as safetensors" {
	python3 - ckpt/step-00000006/shard-*.safetensors <<-'PY'
		import json, struct, sys
		for path in sys.argv[1:]:
		    data = open(path, "rb").read()
		    (n,) = struct.unpack("<Q", data[:8])
		    head = json.loads(data[8:8 + n])
		    assert (8 + n) % 8 == 0 and head.pop("__metadata__")["format"] == "pt"
		    at = 0
		    for t in sorted(head.values(), key=lambda t: t["data_offsets"]):
		        size = 4
		        for d in t["shape"]: size *= d
		        assert t["dtype"] == "F32" and t["data_offsets"] == [at, at + size], t
		        at += size
		    assert 8 + n + at == len(data)
	PY
}

@test "a truncated shard is named" {
	truncate -s -1 ckpt/step-00000006/shard-00001.safetensors
	damaged "shard-00001.safetensors"
	run "$MUSTER" ckpt ls ckpt
	[[ $status -eq 0 && ${lines[0]} == *"damaged: "*"shard-00001.safetensors"* && ${lines[1]} != *damaged* ]]
	run "$MUSTER" ckpt show ckpt --json
	[[ $status -eq 0 && $output == *'"step": 4'* ]]
}

@test "a missing shard is named" {
	rm ckpt/step-00000006/shard-00003.safetensors
	damaged "shard-00003.safetensors: a shard of the checkpoint cannot be found"
}

@test "one flipped bit in a tensor is found, and the tensor is named" {
	flip ckpt/step-00000006/shard-00000.safetensors $(($(stat -c %s ckpt/step-00000006/shard-00000.safetensors) - 3))
	damaged "the digest differs"
	run "$MUSTER" ckpt verify ckpt/step-00000006
	[[ $status -eq 1 && $output == *"shard-00000.safetensors: tensor optim."* ]]
}

@test "one flipped bit in a shard's header is found" {
	flip ckpt/step-00000006/shard-00002.safetensors 40
	damaged "shard-00002.safetensors: the digest of its header differs"
}

@test "one flipped bit in a manifest is found" {
	flip ckpt/step-00000006/MANIFEST.json 500
	damaged "MANIFEST.json: its digest does not fit its contents"
}

@test "shards of another step are found" {
	cp ckpt/step-00000004/shard-00001.safetensors ckpt/step-00000006/
	damaged "shard-00001.safetensors"
}

@test "a file that is not in the manifest is found" {
	echo x >ckpt/step-00000006/shard-00009.safetensors
	damaged "shard-00009.safetensors: the manifest does not list this file"
}

@test "a checkpoint under another step's name is found" {
	mv ckpt/step-00000006 ckpt/step-00000007
	run "$MUSTER" ckpt verify ckpt
	[[ $status -eq 1 && ${lines[0]} == *"step-00000007: damaged: "*"its manifest is of step 6"* ]]
}

@test "wrong arguments are refused with the reason" {
	run "$MUSTER" ckpt verify nowhere
	[[ $status -eq 1 && $output == *"nowhere: no such file; name a checkpoint"* ]]
	mkdir "$BATS_TEST_TMPDIR"/$'not\xffutf8'
	run "$MUSTER" ckpt ls "$BATS_TEST_TMPDIR"/$'not\xffutf8'
	[[ $status -eq 2 && $output == *"the path is not UTF-8"* ]]
	mkdir empty
	run "$MUSTER" ckpt verify empty
	[[ $status -eq 1 && $output == *"empty: no checkpoints"* ]]
	run "$MUSTER" ckpt ls empty
	[[ $status -eq 0 && $output == *"empty: no checkpoints"* ]]
	run "$MUSTER" ckpt show
	[[ $status -eq 2 && $output == *"one PATH is needed"* ]]
	run "$MUSTER" ckpt ls ckpt --all
	[[ $status -eq 2 && $output == *"--all is not an option"* ]]
	run "$MUSTER" ckpt frobnicate
	[[ $status -eq 2 ]]
}
