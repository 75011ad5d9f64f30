#!/usr/bin/env bats
# The demo's job: eight agents with tensor, pipeline and data parallelism; the time until the first step is a figure.

load ../helpers

@test "the demo's model learns on eight agents" {
	make_data
	run "$MUSTER" run "$top/templates/jobs/demo.ini" data.path="$data" job.run_dir="$BATS_TEST_TMPDIR" job.steps=80
	echo "$output"
	[[ $status -eq 0 ]]
	loss() { sed -n "/\"step\":$1,/p" "$BATS_TEST_TMPDIR/demo/metrics.jsonl" | grep -oE '"loss":[0-9.]+' | grep -oE '[0-9.]+'; }
	[[ $(grep -c '"step":' "$BATS_TEST_TMPDIR/demo/metrics.jsonl") -ge 80 ]]
	awk -v first="$(loss 1)" -v last="$("$losses" final "$BATS_TEST_TMPDIR/demo/metrics.jsonl" | cut -d' ' -f2)" \
		'BEGIN { exit !(first > 5.3 && first < 5.8 && last < 3.2) }'
	figure "demo: $(grep -oE '"since_open_s":[0-9.]+' "$BATS_TEST_TMPDIR/demo/events.jsonl" | cut -d: -f2) s from muster run" \
		"to the first finished step; loss $(loss 1) to $("$losses" final "$BATS_TEST_TMPDIR/demo/metrics.jsonl" | cut -d' ' -f2) in 80 steps"
}
