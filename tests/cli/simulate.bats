#!/usr/bin/env bats
# muster simulate: how a job fares on a cluster whose parts fail.

load ../helpers

bats_require_minimum_version 1.5.0

# of EXPRESSION: prints a Python expression over d, the JSON document on stdin.
of() { python3 -c 'import json, sys; d = json.load(sys.stdin); print(eval(sys.argv[1]))' "$1"; }

setup() {
	cd "$top" || exit 1
	llama=templates/jobs/llama-405b.ini
}

@test "Llama 3's 54 days: at least 99 % effective training time, and nobody begins it again by hand" {
	"$MUSTER" simulate "$llama" --days 54 --json >"$BATS_TEST_TMPDIR/answer"
	run of 'd["devices"] == 16384 and d["sum"]["effective"] >= 0.99 and d["sum"]["by_hand"] == 0 and 400 < d["sum"]["faults"] < 530' <"$BATS_TEST_TMPDIR/answer"
	[[ $output == True ]]
	run of 'abs(sum(d["sum"]["parts_s"].values()) - 54 * 86400) < 1 and abs(d["sum"]["parts_s"]["trained"] / 54 / 86400 - d["sum"]["effective"]) < 1e-9' <"$BATS_TEST_TMPDIR/answer"
	[[ $output == True ]]
	# The others: each with the checkpoints that are best for it, and a person after each loss if there is no restart.
	run of '[(l["with"].split(",")[0], l["sum"]["by_hand"] > 300) for l in d["launchers"]]' <"$BATS_TEST_TMPDIR/answer"
	[[ $output == "[('torchrun', True), ('torchrun-restarts', False), ('nvrx', True), ('nvrx-restarts', False), ('nvrx-in-process', False)]" ]]
	run of 'all(l["sum"]["parts_s"]["detection"] > 2 * d["sum"]["parts_s"]["detection"] for l in d["launchers"] if "restarts" in l["with"])' <"$BATS_TEST_TMPDIR/answer"
	[[ $output == True ]]
}

@test "people see the share, where the time goes, a picture, comparisons, and what is best" {
	run "$MUSTER" simulate "$llama" --days 20 --runs 20
	echo "$output"
	[[ $status -eq 0 ]]
	[[ $output == "llama-405b on dgx-h100:2056: 16384 devices on 2048 nodes, 8 spares"* ]]
	[[ $output == *"effective training time"*" %"*"Where the time goes"*"trained"*"One of the runs (seed 1)"*"█"* ]]
	[[ $output == *"With another setting"*"checkpoint.memory_every = 0"*"If it took twice as long"*"hang="*"other launchers"*"torchrun"*"by hand"* ]]
	[[ $output =~ Best\ for\ these\ faults:.*checkpoint.every=[0-9]+\ checkpoint.memory_every=[0-9]+\ slurm.spares=[0-9]+\ restart.max_restarts=[0-9]+ ]]
}

@test "what it calls best is as good as it says, given as words" {
	"$MUSTER" simulate "$llama" --days 20 --json slurm.spares=0 health.slow_policy=warn >"$BATS_TEST_TMPDIR/bare"
	share=$(of 'd["best"]["sum"]["effective"]' <"$BATS_TEST_TMPDIR/bare")
	words=$(of '" ".join(f"{k}={v}" for k, v in d["best"].items() if k != "sum")' <"$BATS_TEST_TMPDIR/bare")
	# shellcheck disable=SC2086 # words
	again=$("$MUSTER" simulate "$llama" --days 20 --json $words | of 'd["sum"]["effective"]')
	echo "$words: $share and $again; $(of 'd["sum"]["effective"]' <"$BATS_TEST_TMPDIR/bare") without"
	python3 -c 'import sys; a, b = map(float, sys.argv[1:]); sys.exit(abs(a - b) > 1e-4)' "$share" "$again"
	[[ $(of 'd["spares"]' <"$BATS_TEST_TMPDIR/bare") == 0 && $(of 'd["best"]["slurm.spares"] > 0' <"$BATS_TEST_TMPDIR/bare") == True ]]
	run "$MUSTER" simulate "$llama" --days 5 --runs 2 slurm.spares=3
	[[ $output == *"on 2048 nodes, 3 spares"* ]]
}

@test "a seed gives the same answer; without --days the run ends with its steps" {
	small=(templates/jobs/llama-70b.ini job.steps=5000 --runs 10)
	[[ $("$MUSTER" simulate "${small[@]}" --seed 4 --json) == "$("$MUSTER" simulate "${small[@]}" --seed 4 --json)" ]]
	[[ $("$MUSTER" simulate "${small[@]}" --seed 4 --json) != "$("$MUSTER" simulate "${small[@]}" --seed 5 --json)" ]]
	run of 'd["sum"]["steps"]' <<<"$("$MUSTER" simulate "${small[@]}" --json)"
	[[ $output == 5000.0 ]]
}

@test "a list of faults can be printed, changed and given back" {
	"$MUSTER" simulate --show-faults llama3 >"$BATS_TEST_TMPDIR/ours.json"
	same=$("$MUSTER" simulate "$llama" --days 9 --runs 5 --json --faults "$BATS_TEST_TMPDIR/ours.json" | of 'd["sum"]["effective"]')
	[[ $same == "$("$MUSTER" simulate "$llama" --days 9 --runs 5 --json | of 'd["sum"]["effective"]')" ]]
	sed -i '0,/"per_node_year": [0-9.]*/s//"per_node_year": 50/' "$BATS_TEST_TMPDIR/ours.json"
	worse=$("$MUSTER" simulate "$llama" --days 9 --runs 5 --json --faults "$BATS_TEST_TMPDIR/ours.json" | of 'd["sum"]["effective"]')
	python3 -c 'import sys; a, b = map(float, sys.argv[1:]); sys.exit(b > a - 0.1)' "$same" "$worse"
}

@test "what never happens, and what happens too often, is said" {
	printf '{"name": "äöüäöüäöüäöüäöüäöüäöü", "faults": [{"name": "a", "per_node_year": %s, "shows": "closed", "node_out_h": 0}]}' 0 >"$BATS_TEST_TMPDIR/none.json"
	run "$MUSTER" simulate "$llama" --days 3 --runs 2 --faults "$BATS_TEST_TMPDIR/none.json" restart.hang_timeout=0
	[[ $status -eq 0 && $output == *"Faults as äöü"*": none;"*"hang never"*"too few faults to tell"* ]]
	"$MUSTER" simulate --show-faults "$BATS_TEST_TMPDIR/none.json" | of 'd["faults"][0]["name"]'
	sed -i 's/"per_node_year": 0/"per_node_year": 9999/' "$BATS_TEST_TMPDIR/none.json"
	run "$MUSTER" simulate "$llama" --runs 2 --faults "$BATS_TEST_TMPDIR/none.json"
	[[ $status -eq 0 && $output == *"A run would not end: faults come faster than it recovers from them."* ]]
}

@test "limits after faults end the run, and spare its bad nodes" {
	cat >"$BATS_TEST_TMPDIR/ours.json" <<-'JSON'
		{"faults": [{"name": "crash", "per_node_year": 1.5, "shows": "closed", "node_out_h": 0, "blames_node": true}]}
	JSON
	ours() { "$MUSTER" simulate "$llama" --days 20 --runs 5 --faults "$BATS_TEST_TMPDIR/ours.json" "$@"; }
	run ours restart.exclude_after=1
	echo "$output"
	[[ $output =~ nodes\ +replaced\ [0-9]+.*\;\ [0-9]+\ were\ excluded\ after\ several\ faults ]]
	[[ $output == *"restart.exclude_after = 0"* ]]
	run of 'd["sum"]["excluded"], d["sum"]["futile"]' <<<"$(ours restart.exclude_after=0 --json)"
	[[ $output == "(0.0, 0.0)" ]]
	# A step takes longer than there is between two faults.
	run ours --costs step=4000 restart.exclude_after=0 restart.max_futile=2
	echo "$output"
	[[ $output =~ begun\ again\ by\ hand\ +([0-9]+)\ times,\ ([0-9]+)\ of\ them\ after\ restarts\ without\ progress && ${BASH_REMATCH[1]} -gt 5 ]]
	[[ $output == *"restart.max_futile = 1000000"* ]]
}

@test "--svg draws the run, its faults and the other launchers" {
	"$MUSTER" simulate "$llama" --days 54 --runs 5 --svg "$BATS_TEST_TMPDIR/run.svg" --json >"$BATS_TEST_TMPDIR/answer"
	python3 - "$BATS_TEST_TMPDIR/run.svg" "$BATS_TEST_TMPDIR/answer" <<-'PY'
		import json, sys, xml.etree.ElementTree as tree
		svg = "{http://www.w3.org/2000/svg}"
		root = tree.parse(sys.argv[1]).getroot()
		answer = json.load(open(sys.argv[2]))
		words = [t.text for t in root.iter(svg + "text")]
		share = f"{100 * answer['sum']['effective']:.2f} %"
		assert root[0].text == f"llama-405b on dgx-h100:2056: {share} effective training time", root[0].text
		groups = [(g[0].text, g) for g in root.iter(svg + "g") if g[0].tag == svg + "title"]
		days = [(title, g) for title, g in groups if title.startswith("days ")]
		assert len(days) == 54 and all("trained" in title for title, g in days)
		# The parts of a day are on top of one another, and fill it.
		for title, g in days:
		    boxes = sorted((float(r.get("y")), float(r.get("height"))) for r in g.iter(svg + "rect"))
		    assert all(abs(a[0] + a[1] - b[0]) < 0.2 for a, b in zip(boxes, boxes[1:])), title
		    assert abs(sum(h for y, h in boxes) - 340) < 0.5, title
		faults = {f["name"]: f for f in answer["faults"]["faults"]}
		rows = [(g.find(svg + "text").text, g) for title, g in groups if g.find(svg + "path") is not None]
		assert rows and all(name in faults for name, g in rows)
		counts = [int(t.text) for name, g in rows for t in g.iter(svg + "text") if t.get("class") == "count"]
		marks = [g.find(svg + "path").get("d").count("M") for name, g in rows]
		assert len(counts) == len(marks) and all(0.8 * c <= m <= c for c, m in zip(counts, marks)), (counts, marks)
		figures = [t.text.split(" %")[0] for t in root.iter(svg + "text") if t.get("class") == "figure"]
		sums = [answer["sum"]] + [line["sum"] for line in answer["launchers"]]
		assert figures == [f"{100 * s['effective']:.2f}" for s in sums], figures
		assert all(line["with"] in words for line in answer["launchers"])
		for part in ("trained", "lost steps", "detection", "restarts", "saving", "by hand"):
		    assert part in words, part
		for box in root.iter(svg + "rect"):
		    x, wide = float(box.get("x", 0)), float(box.get("width"))
		    assert x >= 0 and wide >= 0 and x + wide <= 1600, box.attrib
	PY
	# What is printed is the same without it.
	[[ $(<"$BATS_TEST_TMPDIR/answer") == "$("$MUSTER" simulate "$llama" --days 54 --runs 5 --json)" ]]
}

@test "a picture is for all whom the umask permits, is replaced at once, and is XML for any names" {
	small=(templates/jobs/llama-70b.ini job.steps=5000 --runs 2)
	for mask in 022 077; do
		(umask $mask && "$MUSTER" simulate "${small[@]}" --svg "$BATS_TEST_TMPDIR/$mask.svg") >/dev/null
	done
	[[ $(stat -c %a "$BATS_TEST_TMPDIR"/{022,077}.svg | xargs) == "644 600" ]]
	[[ $(ls "$BATS_TEST_TMPDIR") == $'022.svg\n077.svg' ]]
	before=$(stat -c %i "$BATS_TEST_TMPDIR/022.svg")
	printf '{"name": "<b>&\\u0001\\"]]>", "faults": [{"name": "</svg>", "per_node_year": 900, "shows": "hang", "node_out_h": 1, "doc": "<!--"}]}' \
		>"$BATS_TEST_TMPDIR/<odd>.json"
	"$MUSTER" simulate "${small[@]}" --faults "$BATS_TEST_TMPDIR/<odd>.json" --svg "$BATS_TEST_TMPDIR/022.svg" >/dev/null
	python3 -c 'import sys, xml.etree.ElementTree as tree; assert "</svg>" in [t.text for t in tree.parse(sys.argv[1]).iter("{http://www.w3.org/2000/svg}text")]' \
		"$BATS_TEST_TMPDIR/022.svg"
	[[ $(stat -c %i "$BATS_TEST_TMPDIR/022.svg") != "$before" ]]
	# An error leaves the picture of before. The answer is printed all the same.
	sed -i 's/900/90000/' "$BATS_TEST_TMPDIR/<odd>.json"
	sum=$(sha256sum "$BATS_TEST_TMPDIR/022.svg")
	run --separate-stderr "$MUSTER" simulate "${small[@]}" --runs 1 --faults "$BATS_TEST_TMPDIR/<odd>.json" --svg "$BATS_TEST_TMPDIR/022.svg"
	echo "$stderr"
	[[ $status -eq 1 && $output == *"A run would not end"* && $stderr == *"022.svg: a run would not end, so there is nothing to draw; give --days, or rarer faults" ]]
	[[ $(sha256sum "$BATS_TEST_TMPDIR/022.svg") == "$sum" ]]
	run --separate-stderr "$MUSTER" simulate "${small[@]}" --runs 1 --faults "$BATS_TEST_TMPDIR/<odd>.json"
	[[ $status -eq 0 && $output == *"A run would not end"* && -z $stderr ]]
}

@test "a drawing that cannot be written is found before the simulation, or costs no answer" {
	# A mistake in --svg is found before one in --faults, which is found before the simulation.
	draw() { run --separate-stderr "$MUSTER" simulate "$llama" --days 3 --runs 2 --svg "$@"; }
	bad() { # STATUS TEXT: of draw, which began nothing
		echo "$status: $output$stderr"
		[[ $status -eq $1 && -z $output && $stderr == *"$2"* ]]
	}
	draw "$BATS_TEST_TMPDIR/nowhere/run.svg" --faults nothing
	bad 1 "muster: $BATS_TEST_TMPDIR/nowhere/run.svg: cannot create a file in its folder: No such file"
	draw "$BATS_TEST_TMPDIR" --faults nothing
	bad 1 "muster: $BATS_TEST_TMPDIR: is a folder"
	draw "$BATS_TEST_TMPDIR/" --faults nothing
	bad 1 "is a folder"
	draw "$BATS_TEST_TMPDIR/new/" --faults nothing
	bad 1 "cannot create a file in its folder"
	touch "$BATS_TEST_TMPDIR/file"
	draw "$BATS_TEST_TMPDIR/file/run.svg" --faults nothing
	bad 1 "cannot create a file in its folder: Not a directory"
	draw /dev/full --faults nothing
	bad 1 "muster: /dev/full: is a device or pipe"
	draw '' --faults nothing
	bad 2 "the name after --svg is empty"
	draw "$BATS_TEST_TMPDIR/run.svg" --faults nothing
	bad 2 "there is no such list of faults"
	if [[ $(id -u) -ne 0 ]]; then
		mkdir -m 500 "$BATS_TEST_TMPDIR/closed"
		draw "$BATS_TEST_TMPDIR/closed/run.svg" --faults nothing
		bad 1 "cannot create a file in its folder: Permission denied"
	fi
	# The file becomes too large while it is written.
	"$MUSTER" simulate "$llama" --days 3 --runs 2 >"$BATS_TEST_TMPDIR/answer"
	run bash -c 'ulimit -f 1; "$MUSTER" simulate "$1" --days 3 --runs 2 --svg "$2/run.svg" 2>"$2/stderr" | cat; exit "${PIPESTATUS[0]}"' - "$llama" "$BATS_TEST_TMPDIR"
	cat "$BATS_TEST_TMPDIR/stderr"
	[[ $status -eq 1 && $output == "$(<"$BATS_TEST_TMPDIR/answer")" ]]
	grep -q "run.svg.*: cannot write: File too large" "$BATS_TEST_TMPDIR/stderr"
	[[ ! -e $BATS_TEST_TMPDIR/run.svg ]]
}

@test "who waits for longer than a second on a terminal sees how far it is" {
	command -v script >/dev/null || skip "script is not installed"
	show() { # TERM WORD...: prints what a terminal on stderr gets
		local term=$1
		shift
		TERM=$term script -qec "$(printf '%q ' "$MUSTER" simulate "$llama" --days 54 "$@") >/dev/null" /dev/null
	}
	out=$(show xterm --runs 250)
	printf '%q\n' "$out" | head -c 400
	[[ $out =~ ^$'\r'"simulating: "+[0-9]+" %"$'\r' && $out == *$'\r\e[K' ]]
	[[ -z $(tr '\r' '\n' <<<"$out" | grep -v -e '^simulating: *[0-9]* %$' -e $'^\e\[K$' -e '^$') ]]
	# Not for short waits, other terminals and files.
	[[ -z $(show xterm --runs 1) && -z $(show dumb --runs 250) ]]
	run --separate-stderr "$MUSTER" simulate "$llama" --days 54 --runs 250
	[[ -z $stderr ]]
}

@test "mistakes are named, with a remedy" {
	printf '{"faults": [{"name": "a", "per_node_year": 1, "shows": "fire", "node_out_h": 0}]}' >"$BATS_TEST_TMPDIR/bad.json"
	for case in "--days 0|--days 0: write a number from 0.001 to 36525" "--runs 1.5|--runs 1.5: write a whole number from 1 to" \
		"--faults lama|lama: there is no such list of faults, and no such file; write llama3, rsc1, rsc2, or" "--faults $BATS_TEST_TMPDIR/bad.json|bad.json: fault 1: shows is \"fire\"" \
		"--costs hang|--costs hang: write NAME=SECONDS" \
		"--costs hang=1,|--costs hang=1,: it ends with a comma" "--costs hang=1,,load=2|--costs \"\": write NAME=SECONDS" "--costs hang=x|must be a number from 0 to 1e9" "--cluster moon:3|--cluster" "--days 36525|give fewer --runs"; do
		# shellcheck disable=SC2086 # words
		run "$MUSTER" simulate "$llama" ${case%%|*}
		echo "$output"
		[[ $status -eq 2 && $output == *"${case#*|}"* && $(wc -l <<<"$output") -eq 1 ]]
	done
	run "$MUSTER" simulate --show-faults nothing
	[[ $status -eq 2 && $output == *"nothing"* ]]
	run "$MUSTER" simulate "$llama" --show-faults llama3
	[[ $status -eq 2 && $output == *"stands alone"* ]]
	run bash -c '"$MUSTER" simulate "$1" --days 3 --runs 2 --json >/dev/full' - "$llama"
	[[ $status -eq 1 && -n $output ]]
	run "$MUSTER" simulate "$llama" --cluster dgx-h100:4
	[[ $status -eq 3 && $output == *"16384 ranks"* ]]
	run "$MUSTER" simulate templates/programs/ddp.ini
	[[ $status -eq 2 && $output == *"job.program"* ]]
	run "$MUSTER" simulate "$llama" --costs ""
	[[ $status -eq 2 && $output == *"--costs \"\": write NAME=SECONDS"* ]]
	run "$MUSTER" simulate
	[[ $status -eq 2 ]]
}
