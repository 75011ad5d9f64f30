#!/usr/bin/env bats
# metrics.jsonl has one line per step in every layout, and the parts of a step add up to it. A run compares them with the prediction.

load ../helpers

setup_file() {
	make_data
	make_tiny_job
}

# Succeeds if every step is there once, in order, and its parts add up to it.
parts_are_whole() {
	python3 - "$1" <<-'PY'
		import json, sys
		lines = [json.loads(line) for line in open(sys.argv[1])][1:]
		assert [line["step"] for line in lines] == list(range(1, 21)), [line["step"] for line in lines]
		for line in lines:
		    parts = sum(line[part + "_s"] for part in ("data", "compute", "recompute", "tp", "cp", "ep", "pp", "dp", "optimizer", "checkpoint", "other"))
		    assert parts > 0 and abs(parts / line["step_s"] - 1) < 1e-6, (parts, line)
	PY
}

@test "each step is reported once, and its parts add up to it, under every strategy" {
	while read -r name words; do
		# shellcheck disable=SC2086
		run_tiny "$name" $words
		parts_are_whole "$(run_folder "$name")/metrics.jsonl"
	done <<-'END'
		cp parallel.dp=1 parallel.cp=2
		grid parallel.dp=1 parallel.tp=2 parallel.pp=2
		zero3 parallel.dp=2 parallel.zero=3
		experts model.family=mixtral model.experts=4 parallel.dp=2 parallel.ep=2
		server parallel.dp=2 parallel.sync=server
		again parallel.dp=1 parallel.tp=2 recompute.mode=full checkpoint.every=5
	END
	for part in cp/cp_s again/recompute_s again/tp_s again/checkpoint_s grid/tp_s grid/pp_s zero3/dp_s experts/ep_s server/dp_s; do
		grep -qE "\"${part#*/}\":[0-9.e-]*[1-9]" "$(run_folder "${part%/*}")/metrics.jsonl"
	done
}

@test "a run ends with the predicted and measured step and memory, part by part" {
	run_tiny promised parallel.dp=2 parallel.tp=2 checkpoint.every=10
	python3 - "$(run_folder promised)" <<-'PY'
		import json, sys
		events = [json.loads(line) for line in open(sys.argv[1] + "/events.jsonl")][1:]
		[contract] = [event for event in events if event["event"] == "contract"]
		assert contract["steps"] == 19, contract
		for side in "predicted", "measured":
		    parts = contract[side]
		    assert abs(sum(s for name, s in parts.items() if name != "step_s") / parts["step_s"] - 1) < 1e-9, parts
		    assert parts["tp_s"] > 0 and parts["dp_s"] > 0 and parts["optimizer_s"] > 0 and parts["checkpoint_s"] > 0, parts
		memory = contract["memory"]
		assert abs(memory["predicted_bytes"] / memory["measured_bytes"] - 1) < 0.05, memory
		lines = [json.loads(line) for line in open(sys.argv[1] + "/metrics.jsonl")][1:]
		assert all(line["predicted_s"] <= contract["predicted"]["step_s"] for line in lines)
	PY
	grep -qE "step +total +[0-9.]+ s predicted +[0-9.]+ s measured" "$BATS_FILE_TMPDIR/promised.out"
	grep -qE "^ +tensor parallel +[0-9.e-]+ +[0-9.e-]+ +[0-9]+ %" "$BATS_FILE_TMPDIR/promised.out"
	grep -qE "memory +[0-9.]+ [KM]iB predicted" "$BATS_FILE_TMPDIR/promised.out"
}

@test "fp16: steps report their loss scale, and an overflow halves it" {
	run_tiny fp16 parallel.dp=2 precision.dtype=fp16
	python3 - "$(run_folder fp16)/metrics.jsonl" <<-'PY'
		import json, sys
		lines = [json.loads(line) for line in open(sys.argv[1])][1:]
		assert lines[0]["loss_scale"] == 65536, lines[0]
		for line, after in zip(lines, lines[1:]):
		    assert after["loss_scale"] == line["loss_scale"] / (2 if line["skipped"] else 1)
	PY
	run_tiny fp32 parallel.dp=1
	[[ -z $(grep loss_scale "$(run_folder fp32)/metrics.jsonl") ]]
}

@test "experts: the loss is reported as cross-entropy, balancing loss and z-loss in every layout; an evaluation has cross-entropy only" {
	while read -r name words; do
		# shellcheck disable=SC2086
		run_tiny "$name" model.family=mixtral model.experts=4 model.aux_loss=0.3 model.z_loss=0.01 data.eval_every=20 $words
	done <<-'END'
		routed-1 parallel.dp=1
		routed-tp-pp parallel.dp=1 parallel.tp=2 parallel.pp=2
		routed-ep-cp parallel.dp=2 parallel.ep=2 parallel.cp=2
	END
	run_tiny routed-free model.family=mixtral model.experts=4 model.aux_loss=0 parallel.dp=1
	run_tiny routed-none parallel.dp=1
	python3 - "$(run_folder routed-1)" "$(run_folder routed-tp-pp)" "$(run_folder routed-ep-cp)" "$(run_folder routed-free)" "$(run_folder routed-none)" <<-'PY'
		import json, sys
		runs = [[l for l in map(json.loads, open(run + "/metrics.jsonl")) if "grad_norm" in l] for run in sys.argv[1:]]
		near = lambda a, b: abs(a - b) <= 1e-5 * abs(b)
		for run in runs[:3]:
		    for line, first in zip(run, runs[0], strict=True):
		        assert abs(line["cross_entropy"] + line["balance_loss"] + line["z_loss"] - line["loss"]) < 1e-12 * line["loss"], line
		        assert all(near(line[k], first[k]) for k in ("loss", "cross_entropy", "balance_loss", "z_loss")), (line, first)
		        # aux_loss × layers at an even load, and not much more than that at the beginning
		        assert 0.9 * 0.3 * 4 < line["balance_loss"] < 2 * 0.3 * 4 and line["z_loss"] > 0, line
		for line in runs[3]:
		    assert line["balance_loss"] == 0 and line["z_loss"] == 0 and line["cross_entropy"] == line["loss"], line
		assert not any("cross_entropy" in line or "balance_loss" in line for line in runs[4])
		evals = [l["loss"] for l in map(json.loads, open(sys.argv[1] + "/events.jsonl")) if l.get("event") == "eval"]
		assert evals and abs(evals[-1] / runs[0][-1]["cross_entropy"] - 1) < 0.1, (evals, runs[0][-1])
	PY
	grep -qE "loss [0-9.]+ \(cross-entropy [0-9.]+\)" "$BATS_FILE_TMPDIR/routed-1.out"
}
