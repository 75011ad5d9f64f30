#!/usr/bin/env bats
# muster logs, events and diff read the files of a run: complete, damaged, split, growing or foreign ones. One run is real; the
# others are written here.

bats_require_minimum_version 1.5.0
load ../helpers

setup_file() {
	make_data
	make_tiny_job
	run_tiny real parallel.dp=2 parallel.pp=2 checkpoint.every=10
	run_tiny again parallel.dp=2 parallel.pp=2 checkpoint.every=10
	run_tiny other parallel.dp=2 parallel.pp=2 checkpoint.every=10 optimizer.lr=2e-3
}

setup() {
	at=$BATS_TEST_TMPDIR/runs
	export MUSTER_RUNS=$at TZ=UTC
	mkdir -p "$at"
}

# make_run NAME: a run of two generations and three ranks, on the nodes a and b.
make_run() {
	local run=$at/$1
	mkdir -p "$run/logs"
	chmod 700 "$run"
	cat >"$run/events.jsonl" <<-'LINES'
		{"format":"muster/events","version":1,"time":1767225600,"mono":1,"generation":1}
		{"event":"generation-start","time":1767225600.5,"mono":1,"generation":1,"resume":"none","restarts":0,"auth":"secret"}
		{"event":"hello","time":1767225601,"mono":1,"generation":1,"node":"a","boot":"","pid_space":0,"agents":[{"rank":0,"pid":1,"start":0}]}
		{"event":"hello","time":1767225601,"mono":1,"generation":1,"node":"a","boot":"","pid_space":0,"agents":[{"rank":1,"pid":2,"start":0}]}
		{"event":"rank-lost","time":1767225700,"mono":1,"generation":1,"rank":1,"node":"a","step":7,"how":"closed","text":"connection closed"}
		{"event":"generation-start","time":1767225710,"mono":1,"generation":2,"resume":"auto","restarts":1,"auth":"secret"}
	LINES
	printf '%s\n' "2026-01-01 00:00:01.000 info  a:0: begin" "a line without time" "2026-01-01 00:01:59.000 info  a:0: second" \
		>"$run/logs/a-0.log"
	printf '%s\n' "2026-01-01 00:00:02.000 info  a:1: begin" "2026-01-01 00:01:38.000 error a:1: it breaks" >"$run/logs/a-1.log"
	printf '%s\n' "2026-01-01 00:00:01.500 info  b:2: begin" "2026-01-01 00:02:00.000 info  b:2: end" >"$run/logs/b-2.log"
	echo "srun: a task was killed" >"$run/logs/launch-2.log"
	echo "not a log" >"$run/logs/hosts-1"
}

# add_steps NAME LOSS FROM TO: lines of metrics.jsonl with this loss.
add_steps() {
	local step
	for ((step = $3; step <= $4; step++)); do
		echo "{\"time\":1,\"mono\":1,\"generation\":1,\"step\":$step,\"loss\":$2,\"grad_norm\":1.5}"
	done >>"$at/$1/metrics.jsonl"
}

@test "logs: lines of all ranks come in the order of their times" {
	make_run one
	run "$MUSTER" logs one
	[[ $status -eq 0 ]]
	diff <(echo "$output") - <<-'LINES'
		2026-01-01 00:00:01.000 info  a:0: begin
		a line without time
		2026-01-01 00:00:01.500 info  b:2: begin
		2026-01-01 00:00:02.000 info  a:1: begin
		2026-01-01 00:01:38.000 error a:1: it breaks
		launch-2: srun: a task was killed
		2026-01-01 00:01:59.000 info  a:0: second
		2026-01-01 00:02:00.000 info  b:2: end
	LINES
}

@test "logs: ranks, nodes, generations, times and patterns limit the lines" {
	make_run one
	while IFS='@' read -r words expected; do
		eval "run \"\$MUSTER\" logs one $words"
		echo "$words: $output"
		[[ $status -eq 0 ]]
		[[ $(grep -oE '[ab]:[0-9]: [a-z]+|launch|a line' <<<"$output" | paste -sd,) == "$expected" ]]
	done <<-'ROWS'
		--rank 1@a:1: begin,a:1: it
		--rank 0-1,7 --grep begin@a:0: begin,a:1: begin
		--node b@b:2: begin,b:2: end
		--generation 2@launch,a:0: second,b:2: end
		--generation 1 --rank 2@b:2: begin
		--since '2026-01-01 00:01:59'@a:0: second,b:2: end
		--since 2026-01-01T00:01 --grep 'break|end$'@a:1: it,b:2: end
	ROWS
	run "$MUSTER" logs one --since 1s
	[[ $status -eq 0 && -z $output ]]
}

@test "logs: --json has an object per line" {
	make_run one
	printf 'bad \377 bytes\n' >>"$at/one/logs/b-2.log"
	"$MUSTER" logs one --json | python3 -c '
import json, sys
lines = [json.loads(line) for line in sys.stdin]
assert len(lines) == 9, lines
assert lines[0] == {"time": 1767225601.0, "node": "a", "rank": 0, "line": "2026-01-01 00:00:01.000 info  a:0: begin"}, lines[0]
assert [l for l in lines if "file" in l] == [{"time": 1767225710.0, "file": "launch-2", "line": "srun: a task was killed"}]
assert lines[-1]["line"] == "bad ? bytes"
'
}

@test "logs: what does not exist is refused with what does" {
	make_run one
	while IFS='|' read -r status_is words text; do
		eval "run \"\$MUSTER\" logs $words"
		echo "$words: $status $output"
		[[ $status -eq $status_is && $output == *"$text"* ]]
	done <<-'ROWS'
		3|one --rank 9|there are logs of ranks 0 to 2
		3|one --node c|on nodes such as
		3|one --generation 5|the run has no generation 5; its generations are 1 to 2
		2|one --generation x|not the number of a generation
		2|one --since soon|is not a time
		2|one --grep '('|not a regular expression
		2|one --rank x|--rank
		2|one two|one word too many
		2||a run is missing
		2|one --color|is not an option
		3|oen|did you mean one?
		3|nothing-such|neither a run folder nor the name of a run
	ROWS
}

@test "logs: --follow prints new lines of old and new files, and only whole ones" {
	make_run one
	"$MUSTER" logs one --follow >"$BATS_TEST_TMPDIR/out" 3>&- &
	local follower=$!
	wait_for 60 grep -q "b:2: end" "$BATS_TEST_TMPDIR/out"
	printf '2026-01-01 00:03:00.000 info  b:2: half' >>"$at/one/logs/b-2.log"
	echo '2026-01-01 00:03:01.000 info  b:3: new' >"$at/one/logs/b-3.log"
	wait_for 60 grep -q "b:3: new" "$BATS_TEST_TMPDIR/out"
	run ! grep -q half "$BATS_TEST_TMPDIR/out"
	echo ' and half' >>"$at/one/logs/b-2.log"
	wait_for 60 grep -q "b:2: half and half" "$BATS_TEST_TMPDIR/out"
	kill -TERM $follower
	wait $follower
}

@test "logs: a log that cannot be read is named once, and the others are printed" {
	make_run one
	mkfifo "$at/one/logs/c-3.log"
	mkdir "$at/one/logs/c-4.log"
	ln -s a-0.log "$at/one/logs/c-5.log"
	run --separate-stderr timeout 60 "$MUSTER" logs one
	echo "$status $stderr"
	[[ $status -eq 3 && ${#lines[@]} -eq 8 && ${#stderr_lines[@]} -eq 3 ]]
	for name in c-3.log c-4.log c-5.log; do grep -q "one/logs/$name: .*regular file" <<<"$stderr"; done
	run --separate-stderr timeout 60 "$MUSTER" logs one --rank 0-2
	[[ $status -eq 0 && -z $stderr ]]
	"$MUSTER" logs one --rank 2-5 --follow >"$BATS_TEST_TMPDIR/out" 2>"$BATS_TEST_TMPDIR/words" 3>&- &
	local follower=$!
	wait_for 60 grep -q "b:2: end" "$BATS_TEST_TMPDIR/out"
	rmdir "$at/one/logs/c-4.log"
	echo '2026-01-01 00:03:01.000 info  c:4: new' >"$at/one/logs/c-4.log"
	wait_for 60 grep -q "c:4: new" "$BATS_TEST_TMPDIR/out"
	kill -TERM $follower
	local rc=0
	wait $follower || rc=$?
	[[ $rc -eq 3 && $(wc -l <"$BATS_TEST_TMPDIR/words") -eq 3 ]]
}

@test "logs: 3,000 files need few descriptors" {
	local run=$at/many
	mkdir -p "$run/logs"
	: >"$run/events.jsonl"
	python3 - "$run/logs" <<-'PY'
		import sys
		for rank in range(3000):
		    with open("%s/n%d-%d.log" % (sys.argv[1], rank // 8, rank), "w") as f:
		        for k in range(4):
		            at = k * 3000 + (rank * 7919) % 3000
		            f.write("2026-01-01 00:%02d:%02d.%03d info  n:%d: line\n" % (at // 60000, at // 1000 % 60, at % 1000, rank))
	PY
	(ulimit -n 16 && "$MUSTER" logs many >"$BATS_TEST_TMPDIR/out")
	[[ $(wc -l <"$BATS_TEST_TMPDIR/out") -eq 12000 ]]
	LC_ALL=C sort -c -k2,2 "$BATS_TEST_TMPDIR/out"
}

@test "logs of a real run have every rank and a time on each line" {
	run "$MUSTER" logs "$(run_folder real)" --json
	[[ $status -eq 0 ]]
	python3 - "$(run_folder real)" <<-PY
		import json, sys
		lines = [json.loads(line) for line in """$(sed 's/\\/\\\\/g' <<<"$output")""".splitlines()]
		started = next(json.loads(line)["time"] for line in open(sys.argv[1] + "/events.jsonl") if "generation-start" in line)
		ranks = [l for l in lines if "rank" in l]
		assert {l["rank"] for l in ranks} == {0, 1, 2, 3}, ranks
		assert all(started - 1 < l["time"] < started + 600 for l in ranks), (started, ranks)
	PY
}

@test "events: a table for people, the lines themselves for programs" {
	make_run one
	run "$MUSTER" events one
	[[ $status -eq 0 ]]
	diff <(echo "$output") - <<-'LINES'
		TIME                 GEN  EVENT             WHAT
		2026-01-01 00:00:00    1  generation-start  resume none, restarts 0, auth secret
		2026-01-01 00:00:01    1  hello             2 agents have connected
		2026-01-01 00:01:40    1  rank-lost         rank 1 on a, step 7: connection closed (how closed)
		2026-01-01 00:01:50    2  generation-start  resume auto, restarts 1, auth secret
	LINES
	"$MUSTER" events one --json >"$BATS_TEST_TMPDIR/out"
	diff "$BATS_TEST_TMPDIR/out" <(tail -n +2 "$at/one/events.jsonl")
	"$MUSTER" events "$(run_folder real)" | grep -qE " 1  ckpt +step 10, path /.*, bytes [0-9.]+ [KM]iB, seconds [0-9.]+ m?s"
	"$MUSTER" events "$(run_folder real)" | tail -n 1 | grep -qE " 1  done +step 20, status 0, restarts 0"
}

@test "events: segments come first, and damaged lines are skipped and counted" {
	make_run one
	mv "$at/one/events.jsonl" "$at/one/events.9.jsonl"
	printf '%s\n' '{"format":"muster/events","version":1,"time":1,"mono":1,"generation":2}' '{"event":"stop","ti' \
		'{"event":"done","time":1767225800,"mono":1,"generation":2,"step":9}' >"$at/one/events.10.jsonl"
	printf '\0\0\n[]\n{"event":"eval","time":1767225900,"mono":1,"generation":2,"step":10,"loss":2.5}\n{"half' >"$at/one/events.jsonl"
	run --separate-stderr "$MUSTER" events one --json
	[[ $status -eq 0 && ${#lines[@]} -eq 7 && ${lines[5]} == *'"done"'* && ${lines[6]} == *'"eval"'* ]]
	[[ $stderr == *"4 damaged lines were skipped"* ]]
}

@test "events: a cut last line is shown if it is whole, and counted if it is not and nobody writes" {
	make_run one
	printf '{"event":"done","time":1767225800,"mono":1,"generation":2,"step":9}' >>"$at/one/events.jsonl"
	run --separate-stderr "$MUSTER" events one
	[[ $status -eq 0 && ${lines[-1]} == *" 2  done "*"step 9"* && -z $stderr ]]
	printf '\n{"event":"stop","time":17672' >>"$at/one/events.jsonl"
	run --separate-stderr "$MUSTER" events one
	[[ $status -eq 0 && ${lines[-1]} == *" 2  done "* && $stderr == *"1 damaged line was skipped"* ]]
}

@test "events: a line without a generation or a time is damaged" {
	make_run one
	printf '{"event":"a","time":1767225800,"mono":1,"generation":%s}\n' -1 '"2"' 2.5 >>"$at/one/events.jsonl"
	printf '{"event":"a",%s}\n' '"generation":2' '"generation":2,"time":"now"' '"time":1767225800' >>"$at/one/events.jsonl"
	for words in "" --json; do
		run --separate-stderr "$MUSTER" events one $words
		echo "$output"
		[[ $status -eq 0 && ${#lines[@]} -eq 5 && $stderr == *"6 damaged lines were skipped"* ]]
	done
}

@test "events: a line that a supervisor has begun is not damaged" {
	make_run one
	printf '{"event":"stop","time":17672' >>"$at/one/events.jsonl"
	python3 - "$(run_folder real)/state.json" "$at/one/state.json" <<-'PYTHON'
		import json, sys, time
		state = json.load(open(sys.argv[1]))
		state.update(state="training", host="elsewhere", boot="another", time=time.time() + 3600)
		json.dump(state, open(sys.argv[2], "w"))
	PYTHON
	chmod 600 "$at/one/state.json"
	run --separate-stderr "$MUSTER" events one
	[[ $status -eq 0 && ${#lines[@]} -eq 5 && -z $stderr ]]
	sed -i 's/"state": *"training"/"state":"done"/' "$at/one/state.json"
	run --separate-stderr "$MUSTER" events one
	[[ $status -eq 0 && ${#lines[@]} -eq 5 && $stderr == *"1 damaged line was skipped"* ]]
}

@test "logs and events: --follow ends when nobody reads its output any more" {
	make_run one
	for command in logs events; do
		run timeout 60 bash -o pipefail -c "'$MUSTER' $command one --follow | head -n 1"
		[[ $status -ne 124 && ${#lines[@]} -eq 1 ]]
	done
}

@test "events: --follow goes on when the file is split" {
	make_run one
	"$MUSTER" events one --follow >"$BATS_TEST_TMPDIR/out" 3>&- &
	local follower=$!
	wait_for 60 grep -q " 2  generation-start" "$BATS_TEST_TMPDIR/out"
	echo '{"event":"stop","time":1767225800,"mono":1,"generation":2,"reason":"a"}' >>"$at/one/events.jsonl"
	mv "$at/one/events.jsonl" "$at/one/events.1.jsonl"
	echo '{"event":"done","time":1767225801,"mono":1,"generation":2,"reason":"b"}' >"$at/one/events.jsonl"
	wait_for 60 grep -q " 2  done" "$BATS_TEST_TMPDIR/out"
	kill -TERM $follower
	wait $follower
	[[ $(grep -c " stop " "$BATS_TEST_TMPDIR/out") -eq 1 && $(wc -l <"$BATS_TEST_TMPDIR/out") -eq 7 ]]
}

@test "a file of a newer muster is refused" {
	make_run one
	sed -i 's/"version":1/"version":2/' "$at/one/events.jsonl"
	run "$MUSTER" events one
	[[ $status -eq 3 && $output == *"a newer muster wrote the file (version 2 of events.jsonl"* ]]
	add_steps one 1.5 1 3
	sed -i '1i {"format":"muster/metrics","version":7,"time":1,"mono":1,"generation":1}' "$at/one/metrics.jsonl"
	run "$MUSTER" diff one one
	[[ $status -eq 3 && $output == *"a newer muster wrote the file (version 7"* ]]
}

@test "another user's run says whose it is" {
	[[ $EUID -eq 0 ]] || skip "only root can give a folder to another user"
	make_run theirs
	chmod 755 "$BATS_TEST_TMPDIR" "$at"
	chmod 700 "$at/theirs"
	for above in "$BATS_RUN_TMPDIR" "$BATS_RUN_TMPDIR"/* "$BATS_FILE_TMPDIR"; do chmod a+x "$above" 2>/dev/null || true; done
	setpriv --reuid=65534 --regid=65534 --clear-groups test -x "$at" || skip "the folder of the tests is closed to other users"
	setpriv --reuid=65534 --regid=65534 --clear-groups test -x "$MUSTER" || skip "muster is closed to other users"
	run setpriv --reuid=65534 --regid=65534 --clear-groups "$MUSTER" logs "$at/theirs"
	echo "$output"
	[[ $status -eq 3 && $output == *"the run belongs to root"* ]]
}

@test "diff: two runs of one job agree in every bit; another rate parts them at the second step" {
	run "$MUSTER" diff "$(run_folder real)" "$(run_folder again)"
	echo "$output"
	[[ $status -eq 0 && $output == *"job: no difference"* && $output == *"losses: agree"* && $output == *"20 in common, 1 to 20"* ]]
	run "$MUSTER" diff "$(run_folder real)" "$(run_folder other)"
	echo "$output"
	[[ $status -eq 1 && $output == *"optimizer.lr"*"0.001"*"0.002"* && $output == *"losses: part at step 2: "* ]]
	run "$MUSTER" diff "$(run_folder real)" "$(run_folder other)" --tolerance 0.99
	[[ $status -eq 0 && $output == *"losses: agree; they differ most at step "* ]]
}

@test "diff: the last line of a step counts, and steps of one run only are counted" {
	make_run a
	make_run b
	add_steps a 2.5 1 10
	add_steps a 2 6 12
	add_steps b 2.5 1 5
	add_steps b 2 6 20
	echo '{"step":21,"lo' >>"$at/b/metrics.jsonl"
	run --separate-stderr "$MUSTER" diff a b
	echo "$output"
	[[ $status -eq 0 && $output == *"steps: 12 in common, 1 to 12; 8 only in b"* ]]
	[[ $stderr == *"metrics.jsonl: 1 damaged line was skipped"* ]]
	sed -i 's/"step":9,"loss":2,/"step":9,"loss":2.00002,/' "$at/b/metrics.jsonl"
	run --separate-stderr "$MUSTER" diff a b
	[[ $status -eq 1 && $output == *"losses: part at step 9: 2 and 2.00002, which differ by 1e-05"* ]]
	run --separate-stderr "$MUSTER" diff a b --tolerance 1e-4 --json
	[[ $status -eq 0 ]]
	python3 -c '
import json, sys
d = json.loads(sys.argv[1])
assert d["steps"] == {"common": 12, "first": 1, "last": 12, "only_a": 0, "only_b": 8}, d
assert d["loss"]["first"] == {"step": -1} and d["loss"]["largest"]["step"] == 9, d
assert d["job"] == [] and d["plan"] == [] and d["damaged"] == 1, d
' "$output"
}

@test "diff: a run without a plan or a job is named in one line, and the rest is compared" {
	make_run a
	make_run b
	add_steps a 2.5 1 10
	add_steps b 2.5 1 10
	echo '{"params":842000001,"step_s":0.12345671}' >"$at/b/plan-1.json"
	printf '[train]\nseed = 1\n' | tee "$at/a/job.ini" >"$at/b/job.ini"
	run "$MUSTER" diff a b
	echo "$output"
	[[ $status -eq 0 && $output == *"job: no difference"*"plan: a has no plan-N.json"*"losses: agree"* && $output != *params* ]]
	rm "$at/b/job.ini"
	run "$MUSTER" diff a b
	[[ $status -eq 0 && $output == *"job: b has no job.ini"*"losses: agree"* && $output != *seed* ]]
	"$MUSTER" diff a b --json | python3 -c '
import json, sys
d = json.load(sys.stdin)
assert d["without_plan"] == ["a"] and d["without_job"] == ["b"] and d["plan"] == [] and d["job"] == [], d'
}

@test "diff: values that differ at their end are printed in full" {
	make_run a
	make_run b
	local long=/scratch/a/project/with/many/folders/and/a/corpus/whose/path/is/longer/than/a/line
	printf '[data]\npath = %s-1\n' "$long" >"$at/a/job.ini"
	printf '[data]\npath = %s-2\n' "$long" >"$at/b/job.ini"
	echo '{"params":842000001,"step_s":0.12345671}' >"$at/a/plan-1.json"
	echo '{"params":842000002,"step_s":0.12345672}' >"$at/b/plan-1.json"
	run "$MUSTER" diff a b
	echo "$output"
	[[ $output == *"$long-1"*"$long-2"* && $output == *" 842000001 "*" 842000002 "* ]]
	[[ $output == *" 0.12345671 "*" 0.12345672 "* ]]
}

@test "diff: wrong words, a damaged plan and runs without steps are refused or said" {
	make_run a
	make_run b
	run "$MUSTER" diff a
	[[ $status -eq 2 && $output == *"two runs are needed"* ]]
	run "$MUSTER" diff a b --tolerance much
	[[ $status -eq 2 && $output == *"not a share"* ]]
	run "$MUSTER" diff a b
	[[ $status -eq 1 && $output == *"none in common (a has 0, b has 0)"* ]]
	echo '{"layout":' >"$at/b/plan-3.json"
	run "$MUSTER" diff a b
	[[ $status -eq 3 && $output == *"plan-3.json: the plan is damaged"* ]]
}

@test "no control character of the files reaches the terminal, neither in a text nor in JSON" {
	make_run one
	cp "$(run_folder real)/state.json" "$at/one"
	python3 - "$at/one" <<-'PYTHON'
		import json, sys
		bad = "x\x1b[2J\x7f\u009b2J\u0085é"
		with open(sys.argv[1] + "/events.jsonl", "a") as f:
		    print(json.dumps({"event": "warn" + bad, "time": 1767225800, "mono": 1, "generation": 2, "text": bad}, ensure_ascii=False), file=f)
		with open(sys.argv[1] + "/logs/a-0.log", "ab") as f:
		    f.write(("2026-01-01 00:03:00.000 info  a:0: " + bad + "\n").encode() + b"lone \x9b2J\n")
		state = json.load(open(sys.argv[1] + "/state.json"))
		state["warnings"] = [{"id": bad, "text": bad}]
		json.dump(state, open(sys.argv[1] + "/state.json", "w"), ensure_ascii=False)
	PYTHON
	for words in "logs one" "events one" "status one" "ls"; do
		"$MUSTER" $words >"$BATS_TEST_TMPDIR/text"
		"$MUSTER" $words --json >"$BATS_TEST_TMPDIR/json"
		echo "$words"
		python3 - "$BATS_TEST_TMPDIR/text" "$BATS_TEST_TMPDIR/json" <<-'PYTHON'
			import sys
			for name in sys.argv[1:]:
			    data = open(name, "rb").read()
			    text = data.decode()
			    assert not [c for c in text if (c < " " and c != "\n") or "\x7f" <= c < "\xa0"], text
		PYTHON
	done
	"$MUSTER" events one --json | tail -n 1 | python3 -c '
import json, sys
assert json.loads(sys.stdin.read())["text"] == "x\x1b[2J\x7f\u009b2J\u0085é"'
	grep -qF '\u001B[2J\u007F\u009B2J\u0085é' "$BATS_TEST_TMPDIR/json"
}

@test "all reading commands refuse a run that does not exist with status 3, and a wrong option with status 2" {
	local words
	while IFS= read -r words; do
		run "$MUSTER" $words
		echo "$words: $status $output"
		[[ $status -eq 3 && $output == *no-such-run* ]]
		run "$MUSTER" $words --no-such-option
		[[ $status -eq 2 && $output == *"--no-such-option"* ]]
	done <<-'ROWS'
		ls no-such-run
		status no-such-run
		logs no-such-run
		events no-such-run
		diff no-such-run no-such-run
		report no-such-run
		export --csv no-such-run
		export --tensorboard boards no-such-run
		trace no-such-run
		trace -o a.json no-such-run
		stop no-such-run
		checkpoint no-such-run
	ROWS
}

@test "a full disk ends with status 1 and words, and a reader that has gone with status 141 and none" {
	make_run one
	local words
	export MUSTER_TEMPLATES=$BATS_TEST_DIRNAME/../../templates
	for words in "logs one" "logs one --json" "events one" "events one --json" "diff one one" "diff one one --json" \
		"status $(run_folder real)" "status $(run_folder real) --json" "ls" "ls --json" "events --help" \
		"export $(run_folder real) --csv" "report $(run_folder real) -o -" "trace --help"; do
		run bash -c "'$MUSTER' $words >/dev/full"
		echo "$words: $status $output"
		[[ $status -eq 1 && $output =~ "cannot write to standard output"|"cannot print: " ]]
		# The reader has ended before the command begins.
		run bash -c "exec 9> >(:); wait \$!; '$MUSTER' $words >&9"
		echo "$words: $status $output"
		[[ $status -eq 141 && -z $output ]]
	done
}

@test "the log of a rank stays below its bound, and its parts are read as one" {
	local n
	for n in 1 2 3 4; do
		run_tiny short job.steps=$((20 + 2 * n)) log.keep=0.001
	done
	logs=$(run_folder short)/logs
	ls -l "$logs"
	find "$logs" -name "$(hostname)-0.[0-9]*.log" | grep .
	[[ $(cat "$logs/$(hostname)"-0*.log | wc -c) -le 1048 ]]
	run "$MUSTER" logs "$(run_folder short)" --rank 0
	echo "$output"
	[[ $status -eq 0 && $output == *"generation 4"* ]] # older ones may have gone
	[[ $(wc -l <<<"$output") -eq $(cat "$logs/$(hostname)"-0*.log | wc -l) ]]
}
