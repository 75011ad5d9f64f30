#!/usr/bin/env bats
# `muster status` and `muster ls`: runs that train, that have ended, that are lost, and files that are wrong.

load ../helpers

setup_file() {
	make_data
	make_tiny_job
	export MUSTER_RUNS=$BATS_FILE_TMPDIR
}

setup() { export MUSTER_RUNS=$BATS_FILE_TMPDIR; }

teardown() {
	[[ -z ${pid-} ]] || has_ended "$pid" || { kill -CONT "$pid" && kill -9 "$pid"; }
}

# long NAME WORD...: starts a run that does not end by itself in the background, and sets $pid to the launcher's.
long() {
	local name=$1
	shift
	"$MUSTER" run "$tiny" "job.name=$name" job.steps=1000000 parallel.tp=2 parallel.dp=2 "$@" \
		</dev/null >"$BATS_FILE_TMPDIR/$name.out" 2>&1 3>&- &
	pid=$!
	wait_for 60 step_reached "$name" 3
	wait_for 60 grep -q '"state": *"training"' "$(run_folder "$name")/state.json"
}

# Sets $answer to the `muster status --json` that the supervisor itself has given. On a busy host it may not answer in the time that
# muster status grants it, and the file answers.
answers() {
	answer=$("$MUSTER" status "$1" --json)
	[[ $answer == *'"live": true'* ]]
}

# Prints a member of `muster status --json`.
status_of() { "$MUSTER" status "$1" --json | python3 -c "import json, sys; print(json.load(sys.stdin)$2)"; }

is_state() { [[ $(status_of "$1" "['state']") == "$2" ]]; } # run state

@test "a run that trains: the supervisor answers, by name and by folder, as text and as JSON" {
	long trains checkpoint.every=10
	run "$MUSTER" status trains
	echo "$output"
	[[ $status -eq 0 && $output == "trains: training since "*"generation 1, 0 restarts"*"progress "*" of 1000000 "*", left: "* ]]
	[[ $output == *"times the predicted"*"ranks       4 on 1 node: tp 2 × dp 2"* && $output != *continue* ]]
	wait_for 60 eval 'status_of trains "[\"checkpoint\"][\"step\"]"'
	wait_for 60 answers "$(run_folder trains)"
	python3 -c '
import json, sys
s = json.load(sys.stdin)
assert s["live"] and s["state"] == "training" and s["world"] == 4 and s["version"] == 1, s
assert s["step"] >= s["checkpoint"]["step"] >= 10 and s["checkpoint"]["step"] % 10 == 0, s
assert s["next_checkpoint"]["step"] % 10 == 0 and s["next_checkpoint"]["step"] > s["step"], s
assert s["eta_s"] > 0 and s["step_s"] > 0 and s["predicted_s"] > 0 and s["loss"] < 6, s
assert isinstance(s["stand_out"], list) and isinstance(s["warnings"], list) and s["age_s"] == 0, s' <<<"$answer"
	run "$MUSTER" ls
	[[ $status -eq 0 && $output == *"trains "*" training "*"/1000000 "* ]]
	kill -TERM $pid
	wait $pid || [[ $? -eq 75 ]]
	run "$MUSTER" status trains
	echo "$output"
	[[ $status -eq 75 && $output == "trains: stopped since "*"reason "*Terminated*"continue "*"muster run $(run_folder trains)/job.ini"* ]]
	[[ ! -e $(run_folder trains)/control ]]
}

@test "how a run ended is the exit status, and the file says the same as the last events" {
	run_tiny good job.steps=6 data.eval_every=6 data.eval_batches=1
	run "$MUSTER" status good
	echo "$output"
	[[ $status -eq 0 && $output == "good: done since "*"step 6 of 6 (100.0 %)"*"held out "*"after step 6"* ]]
	[[ $(status_of good "['loss']") == "$(python3 -c '
import json, sys
print([json.loads(l) for l in open(sys.argv[1])][-1]["loss"])' "$(run_folder good)/metrics.jsonl")" ]]
	long bad restart.max_restarts=0
	kill -9 "$(agent_pid bad 1)"
	local rc=0
	wait $pid || rc=$?
	[[ $rc -eq 1 ]]
	run "$MUSTER" status bad
	echo "$output"
	[[ $status -eq 1 && $output == "bad: failed since "*"reason "*"continue "* ]]
}

@test "a supervisor that does not answer: stopped, then killed" {
	long quiet
	kill -STOP $pid
	run "$MUSTER" status quiet
	echo "$output"
	[[ $status -eq 0 && $output == "quiet: training since"*"process $pid is stopped (SIGSTOP); continue it with kill -CONT $pid"*"as of "* ]]
	[[ $(status_of quiet "['live']") == False ]]
	kill -CONT $pid
	wait_for 60 answers quiet
	kill -9 $pid
	wait $pid || true
	run "$MUSTER" status quiet
	echo "$output"
	[[ $status -eq 5 && $output == "quiet: lost, was training until "*"process $pid on this host, is gone"*"continue "* ]]
	run "$MUSTER" ls
	[[ $output == *"quiet "*" lost "* ]]
	# The stale file of the one that was killed leads nobody astray: the next one replaces it.
	[[ -e $(run_folder quiet)/control ]]
	run_tiny quiet job.steps=6 parallel.tp=2 parallel.dp=2 checkpoint.resume=none || true
	is_state quiet done || is_state quiet failed
	[[ ! -e $(run_folder quiet)/control ]]
}

@test "a run on another host, or on this one before it was restarted, is judged by what can be known" {
	run_tiny moved job.steps=6
	local file
	file=$(run_folder moved)/state.json
	edit() { python3 - "$file" "$@" <<-'PYTHON'
		import json, sys, time
		s = json.load(open(sys.argv[1]))
		s.update({k: eval(v) for k, v in (w.split("=", 1) for w in sys.argv[2:])})
		s.pop("status", None)
		json.dump(s, open(sys.argv[1], "w"))
	PYTHON
	}
	edit 'state="training"' 'boot="another"'
	run "$MUSTER" status moved
	echo "$output"
	[[ $status -eq 5 && $output == *"this host was restarted since"* ]]
	edit 'host="elsewhere"' 'time=time.time()'
	run "$MUSTER" status moved
	echo "$output"
	[[ $status -eq 0 && $output == "moved: training "*"on elsewhere cannot be reached from here"* ]]
	edit 'time=time.time()-100'
	run "$MUSTER" status moved
	echo "$output"
	[[ $status -eq 5 && $output == "moved: lost"*"has written nothing for 1"[0-9][0-9]" s"* ]]
}

@test "a state.json that is half-written, broken or of a newer version is named, and ls goes on" {
	run_tiny file job.steps=6
	run_tiny whole job.steps=6
	local file
	file=$(run_folder file)/state.json
	cp "$file" "$BATS_TEST_TMPDIR/good"
	check() { # text of the error
		run "$MUSTER" status file
		echo "$output"
		[[ $status -eq 3 && $output == "muster: $file: "*"$1"* ]]
		run "$MUSTER" ls
		[[ $status -eq 0 && $output == *"file "*" unknown "*"$1"* && $output == *"whole "*" done "* ]]
		"$MUSTER" ls --json | python3 -c '
import json, sys
runs = {r["run"].split("/")[-1]: r for r in json.load(sys.stdin)}
assert runs["file"]["state"] is None and runs["whole"]["state"] == "done", runs'
	}
	head -c 200 "$BATS_TEST_TMPDIR/good" >"$file"
	check "not a JSON object"
	sed 's/"version": 1/"version": 2/' "$BATS_TEST_TMPDIR/good" >"$file"
	check "a newer muster wrote it (version 2"
	sed 's/"steps": 6/"steps": "three"/' "$BATS_TEST_TMPDIR/good" >"$file"
	check 'field "steps" is invalid'
	sed 's/"state": "done"/"state": "merry"/' "$BATS_TEST_TMPDIR/good" >"$file"
	check 'the state "merry" does not exist'
	rm "$file"
	ln -s /dev/zero "$file"
	check "symbolic link"
}

@test "a name that does not exist is refused with the nearest one, and so is a wrong command line" {
	run_tiny alpha job.steps=6
	run "$MUSTER" status alhpa
	[[ $status -eq 3 && $output == *"did you mean alpha?"* ]]
	mkdir "$BATS_TEST_TMPDIR/evil"
	cp -r "$(run_folder alpha)" "$BATS_TEST_TMPDIR/evil/"$'be\e[2Jta'
	MUSTER_RUNS=$BATS_TEST_TMPDIR/evil run "$MUSTER" status $'be\e[2Jtb'
	[[ $status -eq 3 && $output == *"did you mean be [2Jta?"* && $output != *$'\e'* ]]
	run "$MUSTER" status
	[[ $status -eq 2 && $output == *"a run is missing"* ]]
	run "$MUSTER" status alpha beta
	[[ $status -eq 2 && $output == *'"beta" is one word too many'* ]]
	run "$MUSTER" ls "$BATS_FILE_TMPDIR/nothing"
	[[ $status -eq 3 && $output == *"cannot read the folder of runs"* ]]
	run "$MUSTER" ls "$(run_folder alpha)"
	[[ $status -eq 0 && ${#lines[@]} -eq 2 && ${lines[1]} == "alpha "*" done "* ]]
	MUSTER_RUNS=$(dirname "$(run_folder alpha)") run "$MUSTER" ls alpha
	[[ $status -eq 0 && ${#lines[@]} -eq 2 && ${lines[1]} == "alpha "*" done "* ]]
	mkdir "$BATS_TEST_TMPDIR/empty"
	run "$MUSTER" ls "$BATS_TEST_TMPDIR/empty"
	[[ $status -eq 0 && $output == *"there are no runs"* ]]
}

@test "another user's run is refused with the name of its owner" {
	[[ $(id -u) -eq 0 ]] || skip "needs root"
	run_tiny foreign job.steps=6
	chown -R nobody "$(run_folder foreign)"
	run "$MUSTER" status foreign
	echo "$output"
	[[ $status -eq 3 && $output == *"belongs to another user (nobody"* ]]
	rm -r "$(run_folder foreign)"
}

@test "the command that continues a run can be given to a shell: folders with blanks, signs and long names" {
	local run from long
	long=$(printf 'x%.0s' {1..250})
	from="$BATS_TEST_TMPDIR/it's \$HOME; a 'folder'"
	run="$BATS_TEST_TMPDIR/$long/$long/$long/$long/$long/my runs/a\$b"
	run_tiny ends job.steps=6
	mkdir -p "$from" "$run"
	cp "$(run_folder ends)/state.json" "$run"
	cp "$(run_folder ends)/job.ini" "$run"
	python3 - "$run/state.json" "$from/$long/$long/$long/$long/$long/end" <<-'PYTHON'
		import json, os, sys
		s = json.load(open(sys.argv[1]))
		s.update(state="stopped", folder=sys.argv[2])
		os.makedirs(sys.argv[2])
		json.dump(s, open(sys.argv[1], "w"))
	PYTHON
	"$MUSTER" status "$run" >"$BATS_TEST_TMPDIR/out" || [[ $? -eq 75 ]]
	muster() { printf '%s\n' "$PWD" "$@"; }
	eval "$(sed -n 's/^  continue  *//p' "$BATS_TEST_TMPDIR/out")" >"$BATS_TEST_TMPDIR/words"
	diff "$BATS_TEST_TMPDIR/words" <(printf '%s\n' "$from/$long/$long/$long/$long/$long/end" run "$run/job.ini")
}

@test "ls: the columns stand below each other, whatever characters the names have" {
	local name
	export MUSTER_RUNS=$BATS_TEST_TMPDIR/names
	run_tiny named job.steps=6
	for name in plain été 模型 $'e\u0301t' a-long-name-of-a-run; do
		mkdir -p "$MUSTER_RUNS/$name"
		cp "$(run_folder named)"/{job.ini,state.json} "$MUSTER_RUNS/$name"
	done
	"$MUSTER" ls | python3 -c '
import sys, unicodedata
def width(c): return 0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
lines = sys.stdin.read().splitlines()
at = {sum(map(width, l[:l.index(" state" if l.startswith("run ") else " done")])) for l in lines}
assert len(lines) == 6 and len(at) == 1, (at, lines)'
}

@test "ls: runs whose supervisors do not answer are asked at once" {
	export MUSTER_RUNS=$BATS_TEST_TMPDIR/silent
	local trains=$BATS_FILE_TMPDIR
	MUSTER_RUNS=$trains long silent
	# One listener for all of them, which accepts and never answers. It prints how many it has seen at once.
	python3 - "$(MUSTER_RUNS=$trains run_folder silent)" "$MUSTER_RUNS" >"$BATS_TEST_TMPDIR/most" 3>&- <<-'PYTHON' &
		import json, os, socket, sys
		listener = socket.create_server(("127.0.0.1", 0), backlog=64)
		state, control = [json.load(open(sys.argv[1] + "/" + name)) for name in ("state.json", "control")]
		state.update(host="elsewhere", boot="another")
		control["address"] = "127.0.0.1:%d" % listener.getsockname()[1]
		for i in range(40):
		    folder = "%s/run-%d" % (sys.argv[2], i)
		    os.makedirs(folder, 0o700)
		    for name, content in (("state.json", state), ("control", control), ("job.ini", {})):
		        with open(os.open("%s/%s" % (folder, name), os.O_CREAT | os.O_WRONLY, 0o600), "w") as f:
		            json.dump(content, f)
		os.rename(sys.argv[2] + "/run-39", sys.argv[2] + "/run-last")
		listener.settimeout(300)
		here, most = [], 0
		def gone(s):
		    try:
		        while s.recv(4096, socket.MSG_DONTWAIT):
		            pass
		        return True
		    except BlockingIOError:
		        return False
		    except ConnectionError:
		        return True
		for i in range(40):
		    new = listener.accept()[0]
		    here = [s for s in here if not gone(s)] + [new]
		    most = max(most, len(here))
		print(most)
	PYTHON
	local listener=$!
	wait_for 60 test -e "$MUSTER_RUNS/run-last/job.ini"
	run "$MUSTER" ls
	echo "$output"
	[[ $status -eq 0 && $(grep -c "on elsewhere cannot be reached from here" <<<"$output") -eq 40 ]]
	wait $listener
	echo "at once: $(<"$BATS_TEST_TMPDIR/most")"
	[[ $(<"$BATS_TEST_TMPDIR/most") -ge 2 ]]
	kill -TERM $pid
	wait $pid || [[ $? -eq 75 ]]
}

@test "the measured step is compared with what the plan held for likely, if it knows that" {
	run_tiny likely job.steps=6
	run "$MUSTER" status likely
	[[ $status -eq 0 && $output == *"times the predicted"* && $output != *" the likely "* ]]
	for range in "2 4 within" "3.5 4 below" "1 2 above"; do
		read -r least most word <<<"$range"
		python3 - "$(run_folder likely)/state.json" "$least" "$most" <<-'PYTHON'
			import json, sys
			s = json.load(open(sys.argv[1]))
			s.update(step_s=3.0, predicted_s=2.5, least_s=float(sys.argv[2]), most_s=float(sys.argv[3]))
			json.dump(s, open(sys.argv[1], "w"))
		PYTHON
		run "$MUSTER" status likely
		echo "$output"
		[[ $status -eq 0 && $output == *"3.00 s per step: 1.20 times the predicted 2.50 s, $word the likely "* ]]
	done
}

@test "words of a file cannot control the terminal" {
	run_tiny words job.steps=6
	python3 - "$(run_folder words)/state.json" <<-'PYTHON'
		import json, sys
		s = json.load(open(sys.argv[1]))
		s["warnings"] = [{"id": "x", "text": "\x1b]0;title\x07 and \u009b2J"}]
		s["name"] = "\x1b[31mred"
		json.dump(s, open(sys.argv[1], "w"))
	PYTHON
	run "$MUSTER" status words
	[[ $status -eq 0 && $output == *"warning "* && $output != *$'\x1b'* && $output != *$'\xc2\x9b'* ]]
}
