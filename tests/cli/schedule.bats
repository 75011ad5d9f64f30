#!/usr/bin/env bats
# What `muster plan --schedule` draws.

load ../helpers

setup_file() {
	make_data
	make_tiny_job
}

setup() {
	job=$BATS_TEST_TMPDIR/pipe.ini
	cat >"$job" <<-INI
		[model]
		layers = 8
		hidden = 1024
		heads = 16
		vocab = 64
		seq = 1024
		[parallel]
		pp = 2
		dp = 1
		[batch]
		micro = 1
		global = 3
	INI
	export COLUMNS=64
}

# draw WORD...: the job's schedule on a machine that is always the same.
draw() { "$MUSTER" plan --cluster dgx-h100:1 --schedule "$job" "$@"; }

@test "each schedule is drawn, a row a rank, with its bubble" {
	for schedule in naive gpipe 1f1b interleaved zb-h1 zb-v; do
		COLUMNS=100 run draw "parallel.schedule=$schedule"
		echo "$output"
		[[ $status -eq 0 && ${lines[0]} == "$schedule: 2 ranks × "* && ${lines[0]} == *", 3 micro-batches" ]]
		[[ ${lines[1]} =~ ^simulated:\ [0-9.]+\ (s|ms|µs),\ bubble\ [0-9.]+\ %$ ]]
		[[ ${lines[2]} == " 0 F0"* && ${lines[3]} == " 1 ·"*"F0"* && ${lines[4]} == *"F forward"*"· waiting" ]]
	done
}

@test "the picture of 1f1b" {
	run draw
	echo "$output"
	diff <(echo "$output") - <<-'PICTURE'
		1f1b: 2 ranks × 1 chunk, 3 micro-batches

		simulated: 8.00 ms, bubble 25.6 %
		 0 F0---F1---··········B0--------F2---·B1--------·····B2--------
		 1 ·····F0---B0--------F1----B1--------F2---B2--------··········
		   F forward   B backward   · waiting
	PICTURE
}

@test "the picture of zb-v" {
	run draw parallel.schedule=zb-v
	echo "$output"
	diff <(echo "$output") - <<-'PICTURE'
		zb-v: 2 ranks × 2 chunks, 3 micro-batches

		simulated: 6.42 ms, bubble 7.3 %
		 0 F0-F1-F2-·f0-b0--w0f1--b1--w1B0--W0·f2--b2--w2B1---W1··B2--W2
		 1 ···F0-f0-F1-f1--·b0---w0B0--W0F2-f2-b1--w1B1--b2--B2---W1w2W2
		   F forward   B backward, input   W backward, weights   · waiting
		   upper case: even chunks; lower case: odd ones
	PICTURE
}

@test "--svg writes a drawing with a cell for every pass" {
	run draw parallel.schedule=zb-h1 --svg "$BATS_TEST_TMPDIR/it.svg"
	[[ $status -eq 0 && ${lines[0]} == zb-h1* ]]
	python3 - "$BATS_TEST_TMPDIR/it.svg" <<-'PY'
		import sys, xml.etree.ElementTree as tree
		root = tree.parse(sys.argv[1]).getroot()
		titles = [t.text for t in root.iter("{http://www.w3.org/2000/svg}title")]
		assert len(titles) == 2 * 3 * 3, titles
		assert sum(t.startswith("backward, weights, chunk 0, micro-batch 2") for t in titles) == 2
	PY
	run draw --svg "$BATS_TEST_TMPDIR/nowhere/it.svg"
	[[ $status -ne 0 && $output == *"nowhere/it.svg"* ]]
}

@test "--json has every pass with its times" {
	draw --json parallel.schedule=interleaved | python3 -c '
import json, sys
v = json.load(sys.stdin)
assert (v["schedule"], v["ranks"], v["chunks"], v["micros"]) == ("interleaved", 2, 2, 3)
s = v["simulated"]
events = s["timeline"]["events"]
assert len(events) == 2 * 2 * 2 * 3
assert abs(max(e[5] for e in events) - s["seconds"]) < 1e-12 and 0 < s["bubble"] < 1
'
}

@test "a run that measured nothing, or something else, is refused by name" {
	run "$MUSTER" plan --cluster dgx-h100:1 --measured "$BATS_TEST_TMPDIR" "$job"
	echo "$output"
	[[ $status -ne 0 && $output == *"$BATS_TEST_TMPDIR: no rank has written a timeline there"* ]]
	mkdir -p "$BATS_TEST_TMPDIR/trace/gen-1" "$BATS_TEST_TMPDIR/trace/gen-3"
	echo '{"version":1,"ranks":3,"chunks":1,"start":5,"events":[[0,"forward",0,2,0,1]]}' >"$BATS_TEST_TMPDIR/trace/gen-1/timeline-0.json"
	run "$MUSTER" plan --cluster dgx-h100:1 --measured "$BATS_TEST_TMPDIR" "$job"
	echo "$output"
	[[ $status -eq 2 && $output == *"the run had 3 ranks × 1 chunks with 3 micro-batches, but the job has 2 × 1 with 3"* ]]
	echo 'nonsense' >"$BATS_TEST_TMPDIR/trace/gen-3/timeline-0.json"
	run "$MUSTER" plan --cluster dgx-h100:1 --measured "$BATS_TEST_TMPDIR" "$job"
	[[ $status -ne 0 && $output == *"gen-3/timeline-0.json: line 1"* ]]
}

@test "what a run measured is drawn beside the simulation" {
	mkdir -p "$BATS_TEST_TMPDIR/trace/gen-1"
	for rank in 0 1; do
		echo "{\"version\":1,\"ranks\":2,\"chunks\":1,\"start\":$((7 + rank)),\"events\":[[$rank,\"forward\",0,0,0,1],[$rank,\"forward\",0,1,1,2]," \
			"[$rank,\"forward\",0,2,2,3],[$rank,\"backward\",0,0,4,6],[$rank,\"backward\",0,1,6,8],[$rank,\"backward\",0,2,8,10]]}" \
			>"$BATS_TEST_TMPDIR/trace/gen-1/timeline-$((4 * rank)).json"
	done
	run "$MUSTER" plan --cluster dgx-h100:1 --measured "$BATS_TEST_TMPDIR" "$job" parallel.schedule=gpipe
	echo "$output"
	[[ $status -eq 0 && ${lines[1]} == "simulated with the measured passes: 12.0 s, bubble 25.0 %" ]]
	[[ ${lines[4]} == "measured: 11.0 s, bubble 18.2 %" && ${lines[6]} == " 1 ····"*"F0"* ]]
	"$MUSTER" plan --cluster dgx-h100:1 --measured "$BATS_TEST_TMPDIR" --json "$job" parallel.schedule=gpipe |
		python3 -c 'import json, sys; v = json.load(sys.stdin); assert abs(v["measured"]["bubble"] - (1 - 18 / 22)) < 1e-9'
}

@test "a run leaves the timeline of its last step, which is drawn beside the simulation" {
	for schedule in 1f1b zb-v; do
		run_tiny "$schedule" "parallel.schedule=$schedule" parallel.pp=2 parallel.dp=2 job.steps=3 optimizer.warmup=0
		folder=$(run_folder "$schedule")
		ls "$folder/trace/gen-1"
		[[ $(ls "$folder/trace/gen-1") == "timeline-0.json"*$'\n'"timeline-2.json" ]]
		run "$MUSTER" plan --measured "$folder" "$folder/job.ini"
		echo "$output"
		[[ $status -eq 0 && ${lines[0]} == "$schedule: 2 ranks × "*", 4 micro-batches" ]]
		[[ ${lines[1]} == "simulated with the measured passes: "*", bubble "* && $output == *$'\n'"measured: "*", bubble "* ]]
		"$MUSTER" plan --measured "$folder" "$folder/job.ini" --json | python3 -c '
import json, sys
v = json.load(sys.stdin)
passes = [e for e in v["measured"]["timeline"]["events"] if e[1] != "reduce"]
expected = [e for e in v["simulated"]["timeline"]["events"]]
assert sorted(e[:4] for e in passes) == sorted(e[:4] for e in expected), passes
assert 0 <= v["measured"]["bubble"] < 1
# The ranks lie right beside one another: what the second one reads was written before.
at = {tuple(e[:4]): e for e in passes}
for m in range(4):
    assert at[1, "forward", 0, m][4] >= at[0, "forward", 0, m][5] - 1e-3
'
	done
}
