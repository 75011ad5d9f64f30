#!/usr/bin/env bats
# `muster plan --schedule` draws a pipeline's schedule.

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

# Prints every value of parallel.schedule, as the error about a wrong one lists them.
schedules() { "$MUSTER" plan "$job" parallel.schedule=none 2>&1 | sed 's/.*is not //; s/ or auto.*//; s/,//g'; }

# draw WORD...: draws the job's schedule on a fixed machine.
draw() { "$MUSTER" plan --cluster dgx-h100:1 --schedule "$job" "$@"; }

@test "each schedule is drawn with one row per rank, and its bubble" {
	[[ $(schedules) == "1f1b gpipe naive interleaved "* ]]
	for schedule in $(schedules); do
		COLUMNS=100 run draw "parallel.schedule=$schedule"
		echo "$output"
		[[ $status -eq 0 && ${lines[0]} == "$schedule: 2 ranks × "* && ${lines[0]} == *", 3 micro-batches" ]]
		[[ ${lines[1]} =~ ^simulated:\ [0-9.]+\ ms\ of\ a\ step\ of\ [0-9.]+\ ms,\ bubble\ [0-9.]+\ %(,\ ranks\ idle\ [0-9.]+\ %)?$ ]]
		[[ ${lines[2]} == " 0 F0"* && ${lines[3]} == " 1 ·"*"F0"* && ${lines[4]} == *"F forward"*"· waiting" ]]
	done
}

@test "1f1b is drawn as expected" {
	run draw
	echo "$output"
	diff <(echo "$output") - <<-'PICTURE'
		1f1b: 2 ranks × 1 chunk, 3 micro-batches

		simulated: 9.51 ms of a step of 10.2 ms, bubble 23.2 %, ranks idle 25.5 %
		 0 F0---F1--···········B0--------F2---B1---------·····B2--------
		 1 ·····F0--B0---------F1---B1--------F2---B2--------···········
		   F forward   B backward   · waiting
	PICTURE
}

@test "zb-v is drawn as expected" {
	run draw parallel.schedule=zb-v
	echo "$output"
	diff <(echo "$output") - <<-'PICTURE'
		zb-v: 2 ranks × 2 chunks, 3 micro-batches

		simulated: 7.87 ms of a step of 8.58 ms, bubble 7.9 %, ranks idle 10.0 %
		 0 F0-F1-F2f0--b0--w0f1-b1---wB0---W0f2--b2--w2·B1---W1···B2--W2
		 1 ···F0-f0F1-f1-··b0---w0B0--W0F2-f2b1---w1B1--b2---B2---Ww2W2·
		   F forward   B backward, input   W backward, weights   · waiting
		   upper case: even chunks; lower case: odd ones
	PICTURE
}

@test "breadth-first is drawn as expected" {
	run draw parallel.schedule=breadth-first
	echo "$output"
	diff <(echo "$output") - <<-'PICTURE'
		breadth-first: 2 ranks × 2 chunks, 3 micro-batches

		simulated: 8.38 ms of a step of 9.09 ms, bubble 13.7 %, ranks idle 15.5 %
		 0 F0-F1F2-f0f1-f2-·········b0----b1----b2----B0----B1----B2----
		 1 ···F0F1-F2-f0f1-f2-b0----b1----b2----B0----B1----B2----······
		   F forward   B backward   · waiting
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
	# A mistake in --svg is found before one in --cluster, and so before anything is computed.
	run draw --svg "$BATS_TEST_TMPDIR/nowhere/it.svg" --cluster nothing
	echo "$output"
	[[ $status -eq 3 && $output == "muster: $BATS_TEST_TMPDIR/nowhere/it.svg: cannot create a file in its folder: "* ]]
}

# The passes of this job are less than a pixel wide.
@test "a large schedule is drawn to its end, with every pass in it" {
	run "$MUSTER" plan --schedule --svg "$BATS_TEST_TMPDIR/large.svg" --json templates/jobs/175b.ini
	[[ $status -eq 0 ]]
	"$MUSTER" plan --json templates/jobs/175b.ini >"$BATS_TEST_TMPDIR/plan.json"
	echo "$output" | python3 -c '
import collections, json, re, sys, xml.etree.ElementTree as tree
v = json.load(sys.stdin)["simulated"]
plan = json.load(open(sys.argv[2]))
svg = "{http://www.w3.org/2000/svg}"
root = tree.parse(sys.argv[1]).getroot()
words = [t.text for t in root.iter(svg + "text")]
caption = next(w for w in words if w.startswith("simulated: "))

# One formula for the bubble: the plan, the picture and the JSON say the same.
share = plan["step_seconds"]["pp"] / plan["step_seconds"]["total"]
assert abs(v["bubble"] - share) < 1e-9, (v["bubble"], share)
assert "bubble %.1f %%" % (100 * share) in caption, caption
assert not any("cut" in w for w in words), words

# The rows are as long as the pipeline, and the last mark of the axis is at their end.
rows = [(float(r.get("x")), float(r.get("x")) + float(r.get("width"))) for r in root.iter(svg + "rect") if r.get("fill") == "#eeeeee"][:16]
left, right = rows[0]
assert len(set(rows)) == 1 and right - left > 1400, rows
marks = [(float(t.get("x")), t.text) for t in root.iter(svg + "text") if t.get("class") == "axis"]
assert abs(max(marks)[0] - right) < 0.1 and max(marks)[1] == "%.2f s" % v["seconds"], marks

# The coloured area of a row is the time of its passes, from end to end.
busy = collections.Counter()
for e in v["timeline"]["events"]:
    busy[e[0]] += e[5] - e[4]
# The bubble is what the busiest rank of the picture waits.
assert abs(v["seconds"] - max(busy.values()) - plan["step_seconds"]["pp"]) < 1e-6, max(busy.values())
groups = list(root.iter(svg + "g"))
assert len(groups) == 16, len(groups)
for rank, g in enumerate(groups):
    area, first, last = 0, 1e9, 0
    for path in g.iter(svg + "path"):
        for x, w, h in re.findall(r"M([\d.]+) [\d.]+h([\d.]+)v([\d.]+)h-[\d.]+z", path.get("d")):
            area += float(w) * float(h)
            first, last = min(first, float(x)), max(last, float(x) + float(w))
    seconds = area / 34 / (right - left) * v["seconds"]
    assert abs(seconds / busy[rank] - 1) < 0.01, (rank, seconds, busy[rank])
    ends = [f(e[i] for e in v["timeline"]["events"] if e[0] == rank) * (right - left) / v["seconds"] + left for f, i in ((min, 4), (max, 5))]
    assert abs(first - ends[0]) < 8 and abs(last - ends[1]) < 8, (rank, first, last, ends)
' "$BATS_TEST_TMPDIR/large.svg" "$BATS_TEST_TMPDIR/plan.json"
}

@test "the umask decides who may read a picture" {
	for mask in 022 077 027; do
		(umask "$mask" && draw --svg "$BATS_TEST_TMPDIR/$mask.svg") >/dev/null
	done
	[[ $(stat -c %a "$BATS_TEST_TMPDIR"/{022,077,027}.svg | xargs) == "644 600 640" ]]
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

@test "a run without timelines, or with another layout, is refused by name" {
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

@test "a run's timelines are drawn beside the simulation" {
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
# The ranks are on one host: what the second one reads was written before.
at = {tuple(e[:4]): e for e in passes}
for m in range(4):
    assert at[1, "forward", 0, m][4] >= at[0, "forward", 0, m][5] - 1e-3
'
	done
}
