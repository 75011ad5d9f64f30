#!/usr/bin/env bats
# muster bench calibrate on GPUs, over the emulator (tests/gpu/emulator): the times mean nothing, the path is whole. And what a plan says of a
# chip that was measured.

load ../helpers

setup_file() {
	built=$(dirname "$(realpath "$MUSTER")")
	place=$BATS_FILE_TMPDIR/place
	export built place file=$BATS_FILE_TMPDIR/here.json
	# An agent finds its libraries beside itself. NCCL's double works among processes only if it was loaded before they forked; where it is
	# not, transfers go through the host.
	mkdir -p "$place"
	cp "$built/muster-agent" "$built"/tests/gpu/lib*.so* "$place/" || true
	: >"$place/libnccl.so.2"
	[[ -e $place/libmuster-cuda.so ]] || return 0
	export nccl=$built/tests/gpu/libnccl.so.2 transfers=nccl
	[[ -e $nccl ]] || transfers=staged nccl=
	LD_PRELOAD=$nccl calibrate --device cuda --up-to 8192 --seconds 0.0001 "$file" >"$BATS_FILE_TMPDIR/out" 2>&1
}

calibrate() {
	env LD_LIBRARY_PATH="$place" MUSTER_AGENT="$place/muster-agent" "$MUSTER" bench calibrate "$@"
}

emulated() {
	[[ -e $place/libmuster-cuda.so ]] || skip "CUDA's headers are not here: there is no emulated GPU"
}

# Runs Python on the calibration `c`, which it may change, and writes it to $1.
edit() { # FILE
	python3 -c "
import json, sys
c = json.load(open('$file'))
$(cat)
json.dump(c, open('$1', 'w'))"
}

@test "a GPU's operations in each storage type, its copies and its exchanges are in the file, and nothing of the host is" {
	emulated
	grep -q "written to $file" "$BATS_FILE_TMPDIR/out"
	edit "$BATS_TEST_TMPDIR/same.json" <<-PY
		assert not c["links"] and not c["ranks"] and not {"machines", "exchanges", "gemm"} & set(c), c
		chip, = c["chips"]
		assert chip["name"] == "NVIDIA H200 (emulated)" and chip["units"] == 132 and chip["capability"] == 90
		assert chip["cuda"] >= 12000 and chip["driver"] >= 12000 and chip["cublaslt"] > 0
		assert chip["to_host"] > 0 and chip["from_host"] > 0
		assert set(chip["ops"]) == {"fp32", "bf16", "fp16", "fp8"}
		forms = {"product_fwd", "product_input", "product_weight"}
		for storage, ops in chip["ops"].items():
		    assert set(ops) == forms if storage == "fp8" else len(ops) == 16, ops
		    for word, sizes in ops.items():
		        assert all(len(s) == (4 if word in forms or "attention" in word else 2) and s[-1] > 0 for s in sizes), sizes
		words = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "message"}
		assert {(x["op"], x["group"]) for x in chip["exchanges"]} == {(w, g) for w in words for g in (2, 4)}
		assert {x["transport"] for x in chip["exchanges"]} == {"$transfers"}
		assert (chip["nccl"] > 0) == ("$transfers" == "nccl"), chip
	PY
}

@test "measuring the GPU again keeps the processors' half, and the other way round" {
	emulated
	both=$BATS_TEST_TMPDIR/both.json
	cp "$file" "$both"
	"$MUSTER" bench gemm --size 64 --seconds 0.01 --calibrate="$both"
	grep -q '"chips"' "$both"
	rate=$(python3 -c "import json; print(json.load(open('$both'))['gemm']['flops'])")
	calibrate --device cuda --up-to 8192 --seconds 0.0001 "$both"
	python3 - <<-PY
		import json
		c = json.load(open("$both"))
		assert c["gemm"]["flops"] == $rate and len(c["chips"]) == 1, c
		assert {x["transport"] for x in c["chips"][0]["exchanges"]} == {"staged"}
	PY
}

@test "a plan for that chip names what was measured and what is published; another chip's plan says that it is another" {
	emulated
	edit "$BATS_TEST_TMPDIR/h200.json" <<-'PY'
		chip = c["chips"][0]
		chip["memory"] = 139 * 2.0**30
		del chip["ops"]["bf16"]["optimizer"]
		for rows in chip["ops"]["bf16"].values():
		    for row in rows:
		        row[-1] = 1.0
	PY
	job=("$top/templates/jobs/demo.ini" job.device=cuda precision.dtype=bf16 --cluster)
	run "$MUSTER" plan "${job[@]}" dgx-h200:1 "launch.calibration=$BATS_TEST_TMPDIR/h200.json"
	echo "$output"
	[[ $status -eq 0 && $output == *"NVIDIA H200 (emulated), measured in bf16 on "*": products, attention, norms, activations, "* ]]
	[[ $output == *"; published: optimizer, transfers inside a node"* ]]
	# Every operation takes a second.
	run "$MUSTER" plan --json "${job[@]}" dgx-h200:1 "launch.calibration=$BATS_TEST_TMPDIR/h200.json"
	[[ $status -eq 0 ]]
	python3 -c 'import json, sys; p = json.load(sys.stdin); assert p["step_seconds"]["total"] > 10 and "measured in bf16" in p["chips"][0]' <<<"$output"
	run "$MUSTER" plan "${job[@]}" dgx-a100:1 "launch.calibration=$BATS_TEST_TMPDIR/h200.json"
	[[ $status -eq 0 && $output == *"published figures of A100-SXM4-80GB: the calibration has NVIDIA H200 (emulated), which is another chip"* ]]
	[[ $output != *"measured in"* ]]
	run "$MUSTER" plan "${job[@]}" dgx-h200:1 launch.calibration=none
	[[ $status -eq 0 && $output != *"measured in"* ]]
}

@test "without a GPU, --device cuda fails and says why; a damaged file is named" {
	run env MUSTER_AGENT="$built/muster-agent" CUDA_VISIBLE_DEVICES= "$MUSTER" bench calibrate --device cuda --up-to 8192 \
		"$BATS_TEST_TMPDIR/none.json"
	echo "$output"
	[[ $status -eq 1 && ($output == *"no CUDA device"* || $output == *"backend cuda: "*) && ! -e $BATS_TEST_TMPDIR/none.json ]]
	run "$MUSTER" bench calibrate --device tpu
	[[ $status -eq 2 && $output == *"--device is cpu or cuda, not tpu"* ]]
	run "$MUSTER" bench calibrate --up-to 10
	[[ $status -eq 2 && $output == *"--up-to is 8192 to"* ]]
	emulated
	run env CUDA_VISIBLE_DEVICES= LD_LIBRARY_PATH="$place" MUSTER_AGENT="$place/muster-agent" "$MUSTER" bench calibrate --device cuda \
		--up-to 8192 "$BATS_TEST_TMPDIR/none.json"
	echo "$output"
	[[ $status -eq 1 && $output == *"no CUDA device: "* ]]
	edit "$BATS_TEST_TMPDIR/bad.json" <<<'c["chips"][0]["ops"]["bf15"] = {}'
	run "$MUSTER" plan "$top/templates/jobs/demo.ini" --cluster dgx-h200:1 "launch.calibration=$BATS_TEST_TMPDIR/bad.json"
	[[ $status -eq 2 && $output == *"bad.json: an operation of \"chips\" lacks a field"* ]]
}
