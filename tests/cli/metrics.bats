#!/usr/bin/env bats
# metrics.jsonl: one line a step whatever the layout, whose parts are the step's; fp16's loss scale.

load ../helpers

setup_file() {
	make_data
	make_tiny_job
}

# Every step once, in order, each second in one part.
parts_are_whole() {
	python3 - "$1" <<-'PY'
		import json, sys
		lines = [json.loads(line) for line in open(sys.argv[1])]
		assert [line["step"] for line in lines] == list(range(1, 21)), [line["step"] for line in lines]
		for line in lines:
		    parts = sum(line[part + "_s"] for part in ("data", "compute", "recompute", "tp", "cp", "ep", "pp", "dp", "optimizer", "checkpoint", "other"))
		    assert parts > 0 and abs(parts / line["step_s"] - 1) < 1e-6, (parts, line)
		    assert line["other_s"] < 0.5 * line["step_s"], line
	PY
}

@test "each step is told once, and its parts are the whole, under every strategy" {
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

@test "fp16: steps tell their loss scale; one that overflows halves it" {
	run_tiny fp16 parallel.dp=2 precision.dtype=fp16
	python3 - "$(run_folder fp16)/metrics.jsonl" <<-'PY'
		import json, sys
		lines = [json.loads(line) for line in open(sys.argv[1])]
		assert lines[0]["loss_scale"] == 65536, lines[0]
		for line, after in zip(lines, lines[1:]):
		    assert after["loss_scale"] == line["loss_scale"] / (2 if line["skipped"] else 1)
	PY
	run_tiny fp32 parallel.dp=1
	[[ -z $(grep loss_scale "$(run_folder fp32)/metrics.jsonl") ]]
}
