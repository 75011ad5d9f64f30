#!/usr/bin/env bats
# muster report: the page of a run has the run's own values, and it can be looked at.

bats_require_minimum_version 1.5.0
load ../helpers

setup_file() {
	# A build may be outside the source tree.
	export MUSTER_TEMPLATES=$top/templates
	make_data
	make_tiny_job
	tiny_words=(parallel.pp=2 parallel.dp=2 job.steps=300 data.eval_every=100 checkpoint.every=75)
	start_and_kill rough "${tiny_words[@]}"
	run_tiny calm "${tiny_words[@]}" optimizer.lr=3e-3
	export rough=$BATS_FILE_TMPDIR/rough calm=$BATS_FILE_TMPDIR/calm
	"$MUSTER" report "$rough" -o "$BATS_FILE_TMPDIR/rough.html"
}

# Runs the tiny job, and kills rank 1 after some steps.
start_and_kill() { # name word...
	local pid
	run_tiny "$@" &
	pid=$!
	kill_ranks "$1" 1
	wait $pid
}

# Runs a Python program, whose assertions judge a page and its run: `page` is the text of the page, data(field) the exact values of
# the elements of that class, series(figure) the points of its lines, `metrics` and `events` the lines of the run's files.
judge() { # page run program
	python3 - "$1" "$2" "$3" <<-'PYTHON'
		import json, os, re, sys, textwrap
		page = open(sys.argv[1], encoding="utf-8").read()
		def data(field):
		    return [float(v) for v in re.findall(r'<data class="%s" value="([^"]*)">' % re.escape(field), page)]
		def series(figure):
		    found = re.search(r'<figure id="%s".*?<script type="application/json">(.*?)</script>' % figure, page, re.S)
		    return json.loads(found.group(1))["lines"]
		def lines(run, name):
		    with open(os.path.join(run, name), encoding="utf-8") as f:
		        return [v for v in map(json.loads, f) if "format" not in v]
		run = sys.argv[2]
		metrics, events = lines(run, "metrics.jsonl"), lines(run, "events.jsonl")
		exec(textwrap.dedent(sys.argv[3]))
	PYTHON
}

# Copies the run folder without what tells its state, and sets $run to the copy.
make_run() {
	run=$BATS_TEST_TMPDIR/$1
	cp -r "$rough" "$run"
	rm -f "$run/state.json" "$run/control"
}

# Succeeds if every agent of the run has ended.
has_no_agents() { # run
	local agent
	for agent in $(event "$1" hello | grep -oP '"pid":\K[0-9]+'); do
		has_ended "$agent" || return 1
	done
}

# Looks at a page in headless Chromium; skips if there is none.
look() {
	local status=0
	timeout 120 "$top/tests/look_at_page" "$1" || status=$?
	[[ $status -ne 77 ]] || skip "Chromium is not installed (apt-get install chromium)"
	return $status
}

@test "the values of the page are those of the run's files, bit for bit" {
	judge "$BATS_FILE_TMPDIR/rough.html" "$rough" '
		last = metrics[-1]
		steps = {m["step"]: m for m in metrics}
		assert data("step") == [300] and last["step"] == 300
		for field in ("loss", "grad_norm", "lr"):
		    assert data(field) == [last[field]], (field, data(field), last[field])
		assert data("last-loss") == [last["loss"]]
		assert data("tokens_s") == [last["tokens"] / last["step_s"]]
		assert data("eval_loss") == [[e for e in events if e["event"] == "eval"][-1]["loss"]]
		for figure, field in (("loss", "loss"), ("grad-norm", "grad_norm"), ("lr", "lr")):
		    assert series(figure)[0] == [[s, steps[s][field]] for s in sorted(steps)], figure
		assert len(series("loss")[1]) == 3'
}

@test "the schedule of very many passes is drawn to its end" {
	many=$BATS_TEST_TMPDIR/many
	cp -r "$calm" "$many"
	python3 - "$many" <<-'PYTHON'
		import glob, json, os, sys
		plan = max(glob.glob(os.path.join(sys.argv[1], "plan-*.json")))
		doc = json.load(open(plan))
		doc["micros"] = 2200
		doc["replica_micros"] = [2200] * len(doc.get("replica_micros", [1, 1]))
		json.dump(doc, open(plan, "w"))
		# Rank 1 waits for the first pass of rank 0, and rank 0 for the last one of rank 1.
		for path in glob.glob(os.path.join(sys.argv[1], "trace", "gen-1", "timeline-*.json")):
		    line = json.load(open(path))
		    rank = line["events"][0][0]
		    line["start"] = 1000
		    line["events"] = [e for m in range(2200) for e in
		                      ([rank, "forward", 0, m, 3 * m + rank, 3 * m + rank + 1], [rank, "backward", 0, m, 3 * m + rank + 1, 3 * m + rank + 3])]
		    json.dump(line, open(path, "w"))
	PYTHON
	"$MUSTER" report "$many" -o "$BATS_TEST_TMPDIR/many.html"
	judge "$BATS_TEST_TMPDIR/many.html" "$many" '
	figure = re.search(r"<figure id=.r1-schedule.*?</figure>", page, re.S).group(0)
	assert "the colours of a column are the shares of its time" in figure and "cut at" not in figure, figure[:600]
	measured = figure[figure.index("measured in the last step"):]
	assert "bubble 0.0 %" in measured[:100], measured[:200]
	cells = re.findall(r"M([\d.]+) ([\d.]+)h([\d.]+)v([\d.]+)h-", measured)
	assert len(cells) > 900, len(cells)
	# Two thirds of the coloured area are backward passes, and the last column is at the right edge.
	area = [sum(float(w) * float(h) for _, _, w, h in re.findall(r"M([\d.]+) ([\d.]+)h([\d.]+)v([\d.]+)h-", d)) for d in re.findall(r"<path class=.pass. style=[^>]* d=.([^>]*)/>", measured)]
	assert len(area) == 4 and abs(area[1] / area[0] - 2) < 0.02 and abs(area[3] / area[2] - 2) < 0.02, area
	assert abs(max(float(x) + float(w) for x, _, w, _ in cells) - 1000) < 0.01, max(cells)'
}

@test "the loss, its restart and its repeated steps are told" {
	judge "$BATS_FILE_TMPDIR/rough.html" "$rough" '
		lost = [e for e in events if e["event"] == "rank-lost"]
		first = [e for e in events if e["event"] == "first-step"]
		ready = [e for e in events if e["event"] == "ready"]
		had = max(m["step"] for m in metrics if m["generation"] == 1)
		assert len(lost) == 1 and data("restarts") == [1]
		assert abs(data("restart_s")[0] - (first[1]["time"] - lost[0]["time"])) < 1e-5
		assert data("repeated") == [had - ready[1]["step"]]
		assert len(metrics) - len({m["step"] for m in metrics}) == had - ready[1]["step"]
		assert "agent-killed" in page and "beyond" not in page.split("</style>")[1].split("<section id=\"curves\"")[0]'
}

@test "the time of all ranks is that of time.jsonl, and its shares add up to 1" {
	judge "$BATS_FILE_TMPDIR/rough.html" "$rough" '
		time = lines(run, "time.jsonl")[-1]
		parts = [k[:-2] for k in time if k.endswith("_s") and k not in ("wall_s", "total_s")]
		table = page[page.index("class=\"time-all\""):]
		table = table[:table.index("</figure>")]
		shares = {k: float(v) for k, v in re.findall(r"<data class=\"(\w+)\" value=\"([^\"]*)\">", table)}
		assert abs(sum(shares.values()) - 1) < 1e-9, shares
		for part in parts:
		    assert abs(shares.get(part, 0) - time[part + "_s"] / time["total_s"]) < 1e-6, part
		assert abs(data("goodput")[0] - time["goodput"]) < 1e-12'
}

@test "the time of each generation is that of muster status, and adds up to that of all" {
	"$MUSTER" status "$rough" --json >"$BATS_TEST_TMPDIR/status.json"
	judge "$BATS_FILE_TMPDIR/rough.html" "$rough" "
		spent = json.load(open('$BATS_TEST_TMPDIR/status.json'))['time_spent']"'
		rows = spent["generations"] + [spent]
		assert len(rows) == 3
		for field, name in (("wall", "wall_s"), ("goodput", "goodput"), ("effective", "effective_s"), ("total", "total_s"), ("lost", "lost_s")):
		    assert data("generation-" + field) == [row[name] for row in rows], field
		    assert field == "goodput" or abs(sum(row[name] for row in rows[:-1]) - spent[name]) < 1e-5, field
		assert rows[0]["lost_s"] > 0 and rows[1]["lost_s"] == 0'
}

@test "every part of the page is there, and it needs nothing from elsewhere" {
	page=$(<"$BATS_FILE_TMPDIR/rough.html")
	for part in 'id="r1"' 'id="curves"' 'id="r1-time"' 'id="r1-story"' 'id="r1-ranks"' 'id="r1-schedule"' 'id="r1-contract"' \
		'id="r1-checkpoints"' 'id="r1-job"' 'simulated with the measured passes' 'measured in the last step'; do
		[[ $page == *"$part"* ]] || { echo "no $part"; false; }
	done
	run ! grep -oE '(src|href)="[^#"][^"]*"|https?://|@import|url\(' "$BATS_FILE_TMPDIR/rough.html"
	[[ $(stat -c %a "$BATS_FILE_TMPDIR/rough.html") == 600 ]]
}

@test "the contract names the likely time of a step where the run does" {
	grep -q 'Means over [0-9]* measured steps.</p>' "$BATS_FILE_TMPDIR/rough.html"
	make_run likely
	sed -i '/"event":"contract"/s/"steps":/"least_s":1e-9,"most_s":2e-9,"steps":/' "$run/events.jsonl"
	"$MUSTER" report "$run" -o "$BATS_TEST_TMPDIR/page.html"
	grep -q 'measured steps. The step is above the likely 1.00 ns to 2.00 ns.</p>' "$BATS_TEST_TMPDIR/page.html"
}

@test "runs side by side: one table of what differs, and the step in which the losses part" {
	run "$MUSTER" report "$calm" "$rough" -o "$BATS_TEST_TMPDIR/both.html"
	[[ $status -eq 0 && $output == "$BATS_TEST_TMPDIR/both.html" ]]
	judge "$BATS_TEST_TMPDIR/both.html" "$rough" '
		calm = {m["step"]: m for m in lines(os.environ["calm"], "metrics.jsonl")}
		rough = {m["step"]: m for m in metrics}
		part = min(s for s in rough if rough[s]["loss"] != calm[s]["loss"])
		assert data("parts-at") == [part]
		assert "<th scope=\"row\">optimizer.lr</th><td>0.003</td><td>0.001</td>" in page
		assert "<th scope=\"row\">job.steps" not in page
		assert len(series("loss")) == 4 and data("loss") == [calm[300]["loss"], rough[300]["loss"]]'
	look "$BATS_TEST_TMPDIR/both.html"
}

@test "in Chromium: no error, nothing overlaps at three widths in light and dark, values under the pointer, print" {
	look "$BATS_FILE_TMPDIR/rough.html"
}

@test "names and texts from the files cannot become part of the page" {
	make_run '<img src=x onerror=alert(1)>'
	cat >>"$run/events.jsonl" <<-'LINES'
		{"event":"warning","time":1795000000.0,"mono":1.0,"generation":2,"text":"</script><script>alert(2)</script>"}
		{"event":"rank-lost","time":1795000001.0,"mono":1.0,"generation":2,"rank":1,"node":"\"><svg onload=alert(3)>","how":"closed","code":"x","text":"<b>\u202e\u0007&amp;</b>","fault":"'onmouseover='alert(4)","owner":"node"}
		{"event":"ckpt","time":1795000002.0,"mono":1.0,"generation":2,"step":1,"path":"</td><script>alert(5)</script>","bytes":1,"seconds":1,"stall_s":0}
		{"event":"failed","time":1795000003.0,"mono":1.0,"generation":2,"reason":"<script>alert(6)</script>","status":1,"step":1,"restarts":0}
	LINES
	sed -i 's/^name = .*/name = <script>alert(7)<\/script>/' "$run/job.ini"
	"$MUSTER" report "$run" "$rough" -o "$BATS_TEST_TMPDIR/page.html"
	[[ $(grep -oc '<script' "$BATS_TEST_TMPDIR/page.html") -eq $(grep -oE '<script( nonce| type="application/json")' "$BATS_TEST_TMPDIR/page.html" | wc -l) ]]
	run ! grep -E '<img|<svg onload|<b>.*&amp;|onmouseover=.alert' "$BATS_TEST_TMPDIR/page.html"
	grep -q '&#60;script&#62;alert(6)' "$BATS_TEST_TMPDIR/page.html"
	look "$BATS_TEST_TMPDIR/page.html"
}

@test "damaged and missing files leave a page that says so" {
	make_run broken
	rm "$run"/plan-*.json "$run/job.ini" "$run/time.jsonl"
	size=$(stat -c %s "$run/metrics.jsonl")
	truncate -s $((size / 2)) "$run/metrics.jsonl"
	printf '\n\x80\xff{{{\n{"step":\n' >>"$run/events.jsonl"
	"$MUSTER" report "$run" -o "$BATS_TEST_TMPDIR/page.html"
	for words in 'damaged, and are left out' 'has no time.jsonl' 'plan of generation 2 is missing' 'no job.ini that can be read'; do
		grep -q "$words" "$BATS_TEST_TMPDIR/page.html"
	done
	look "$BATS_TEST_TMPDIR/page.html"
	: >"$run/metrics.jsonl"
	: >"$run/events.jsonl"
	"$MUSTER" report "$run" -o "$BATS_TEST_TMPDIR/page.html"
	grep -q 'not started' "$BATS_TEST_TMPDIR/page.html"
	grep -q 'No step is done yet' "$BATS_TEST_TMPDIR/page.html"
	look "$BATS_TEST_TMPDIR/page.html"
}

@test "a run that never stepped, one that trains, and one whose muster is gone" {
	make_run never
	: >"$run/metrics.jsonl"
	sed -i '/"ready"/,$d' "$run/events.jsonl"
	"$MUSTER" report "$run" -o "$BATS_TEST_TMPDIR/page.html"
	grep -q 'class="state bad">lost<' "$BATS_TEST_TMPDIR/page.html"
	grep -q 'No step is done yet' "$BATS_TEST_TMPDIR/page.html"
	flock "$run/lock" "$MUSTER" report "$run" -o "$BATS_TEST_TMPDIR/page.html"
	grep -q 'class="state busy">starting<' "$BATS_TEST_TMPDIR/page.html"
	make_run going
	sed -i '/"event":"contract"/,$d' "$run/events.jsonl"
	sed -i '$d' "$run/metrics.jsonl"
	flock "$run/lock" "$MUSTER" report "$run" -o "$BATS_TEST_TMPDIR/page.html"
	grep -q 'class="state busy">training<' "$BATS_TEST_TMPDIR/page.html"
	grep -q ' left</small>' "$BATS_TEST_TMPDIR/page.html"
	look "$BATS_TEST_TMPDIR/page.html"
}

@test "a run that goes on has its supervisor's state, and a killed one is lost" {
	run_tiny live "${tiny_words[@]}" job.steps=100000 &
	pid=$!
	wait_for 60 step_reached live 10
	"$MUSTER" report "$(run_folder live)" -o "$BATS_TEST_TMPDIR/page.html"
	grep -q 'class="state busy">training<' "$BATS_TEST_TMPDIR/page.html"
	kill -9 "$(cat "$(run_folder live)/lock")"
	wait $pid || true
	wait_for 60 has_no_agents live
	"$MUSTER" report "$(run_folder live)" -o "$BATS_TEST_TMPDIR/page.html"
	grep -q 'class="state bad">lost<' "$BATS_TEST_TMPDIR/page.html"
	grep -q 'is gone without a word' "$BATS_TEST_TMPDIR/page.html"
}

@test "the file goes where it is asked for, and mistakes are told" {
	make_run here
	run "$MUSTER" report "$run/"
	[[ $status -eq 0 && $output == */here/report.html && -s $run/report.html ]]
	"$MUSTER" report "$run" -o - | grep -q '</html>'
	run "$MUSTER" report
	[[ $status -eq 2 && $output == *"a run is missing"* ]]
	run "$MUSTER" report "$run" --nothing
	[[ $status -eq 2 && $output == *'"--nothing" is not an option'* ]]
	run "$MUSTER" report "$BATS_TEST_TMPDIR/nowhere"
	[[ $status -eq 3 && $output == *nowhere* ]]
	run "$MUSTER" report "$run" -o "$BATS_TEST_TMPDIR/no/such/folder.html"
	[[ $status -eq 1 && $output == *"no/such/folder.html"* ]]
	echo '{"format":"muster/metrics","version":999,"time":1,"mono":1,"generation":1}' >"$run/metrics.jsonl"
	run "$MUSTER" report "$run"
	[[ $status -eq 3 && $output == *999* ]]
}

@test "30 days of 1,024 ranks: at most 5 s of computing and 5 MB, and no spike is lost" {
	large
	run=$BATS_TEST_TMPDIR/long
	"$top/build/tests/tools/long_run" "$run" 518400 1024 8000
	"$MUSTER" plan "$top/templates/jobs/175b.ini" --cluster dgx-h100:128 --json >"$run/plan-65.json"
	sed 's/^steps.*/steps = 518400/' "$top/templates/jobs/175b.ini" >"$run/job.ini"
	TIMEFORMAT='%U %S'
	used=$({ time "$MUSTER" report "$run" -o "$BATS_TEST_TMPDIR/page.html" >/dev/null; } 2>&1)
	size=$(stat -c %s "$BATS_TEST_TMPDIR/page.html")
	figure "metrics.jsonl of $(stat -c %s "$run/metrics.jsonl") bytes: $used s of user and system time, $size bytes of page"
	awk -v used="$used" 'BEGIN { split(used, t, " "); exit !(t[1] + t[2] <= 5) }'
	[[ $size -le 5000000 ]]
	judge "$BATS_TEST_TMPDIR/page.html" "$run" '
		assert data("step") == [518400] and data("restarts") == [64]
		assert max(p[-1] for p in series("loss")[0]) == 99
		assert "beyond the scale: training 99 at step 1,000" in page
		low = min(m["tokens"] / m["step_s"] for m in metrics)
		assert abs(min(p[3] if len(p) > 2 else p[1] for p in series("speed")[0]) / low - 1) < 1e-5
		assert data("repeated").count(40) == 64'
	look "$BATS_TEST_TMPDIR/page.html"
}
