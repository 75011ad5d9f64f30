#!/usr/bin/env bats
# Notifications: what is sent and when, errors that pass and that do not, services that hang, and secrets.

load ../helpers

# start_hook NAME [CERTIFICATE KEY]: starts a service; its folder is $BATS_FILE_TMPDIR/NAME.
start_hook() {
	local folder=$BATS_FILE_TMPDIR/$1
	mkdir "$folder"
	python3 "$top/tests/doubles/webhook.py" "$folder" "${@:2}" 3>&- &
	echo $! >"$folder/pid"
	until [[ -e $folder/port ]]; do kill -0 "$(<"$folder/pid")" && sleep 0.01; done
}

setup_file() {
	make_data
	make_tiny_job
	openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost \
		-keyout "$BATS_FILE_TMPDIR/key" -out "$BATS_FILE_TMPDIR/cert" 2>/dev/null
	start_hook plain
	start_hook sealed "$BATS_FILE_TMPDIR/cert" "$BATS_FILE_TMPDIR/key"
}

teardown_file() {
	kill "$(<"$BATS_FILE_TMPDIR/plain/pid")" "$(<"$BATS_FILE_TMPDIR/sealed/pid")"
}

setup() {
	hook=$BATS_FILE_TMPDIR/plain
	url=http://127.0.0.1:$(<"$hook/port")/runs
	: >"$hook/log"
	: >"$hook/plan"
	: >"$BATS_FILE_TMPDIR/sealed/log"
}

# answers LINE...: those of the next requests.
answers() { printf '%s\n' "$@" >"$hook/plan"; }

# The number of requests that the service got.
requests() { wc -l <"$hook/log"; }

# private FILE TEXT: a file that only its user can read.
private() { (umask 077 && printf '%s\n' "$2" >"$1"); }

# start_run NAME WORD...: as run_tiny, but it goes on; $pid is that of muster.
start_run() {
	"$MUSTER" run "$tiny" "job.name=$1" "${@:2}" </dev/null >"$BATS_FILE_TMPDIR/$1.out" 2>&1 3>&- &
	pid=$!
}

stop_run() {
	kill -INT "$pid"
	wait "$pid" || true
}

printed() { cat "$BATS_FILE_TMPDIR/$1.out"; } # run

@test "a run notifies of its start and its end, with the fields that the guide lists" {
	private "$BATS_TEST_TMPDIR/token" s3cret-token
	run_tiny whole notify.url="$url" notify.on="started, done" notify.secret_file="$BATS_TEST_TMPDIR/token" job.steps=7
	python3 - "$hook/log" "$(run_folder whole)" "$top/doc/guide/notifications.md" <<-'PY'
		import json, re, sys, time
		lines = [json.loads(line) for line in open(sys.argv[1])]
		assert [line["body"]["event"] for line in lines] == ["started", "done"], lines
		guide = open(sys.argv[3]).read()
		for number, line in enumerate(lines, 1):
		    body = line["body"]
		    assert line["path"] == "/runs" and line["type"] == "application/json" and line["authorization"] == "Bearer s3cret-token", line
		    assert body["format"] == "muster/notification" and body["version"] == 1 and body["number"] == number, body
		    assert body["run"] == "whole" and body["folder"] == sys.argv[2] and body["steps"] == 7 and body["dropped"] == 0, body
		    assert abs(body["time"] - time.time()) < 600, body
		    assert all("| `%s` |" % key in guide for key in body), body
		assert "step" not in lines[0]["body"] and lines[1]["body"]["step"] == 7, lines
		assert lines[1]["body"]["loss"] > 0 and "all 7 steps are done" in lines[1]["body"]["text"], lines
	PY
}

@test "without a word in on nothing is sent, and the default has no start" {
	run_tiny none notify.url="$url" notify.on=none
	[[ $(requests) -eq 0 ]]
	run_tiny usual notify.url="$url"
	[[ $(requests) -eq 1 ]]
	grep -q '"event": "done"' "$hook/log"
}

@test "a notification is sent again after 500, 429 and a cut connection, with the same number" {
	answers 500 "429 1" drop
	start_run again notify.url="$url" notify.on=started,stopped job.steps=1000000
	wait_for 60 grep -q '"answer": "200"' "$hook/log"
	stop_run
	python3 - "$hook/log" <<-'PY'
		import json, sys
		lines = [json.loads(line) for line in open(sys.argv[1])]
		assert [(line["answer"], line["body"]["number"]) for line in lines] == [("500", 1), ("429", 1), ("drop", 1), ("200", 1), ("200", 2)], lines
	PY
	run printed again
	[[ $output == *"it answers with status 500"* && $output != *"not delivered"* ]]
}

@test "a refusal is told once, is not repeated, and the next notification counts what was lost" {
	answers 404 404
	run_tiny refused notify.url="$url" notify.on=started,warning,done warn.memory=1e-9 warn.data=0
	python3 - "$hook/log" <<-'PY'
		import json, sys
		lines = [json.loads(line) for line in open(sys.argv[1])]
		assert [(line["answer"], line["body"]["event"], line["body"]["dropped"]) for line in lines] == [
		    ("404", "started", 0), ("404", "warning", 1), ("200", "done", 2)], lines
	PY
	[[ $(printed refused | grep -c "status 404; correct the address") -eq 2 ]] # when it happens, and at the end
	printed refused | grep -q "2 notifications were not delivered"
}

@test "a service that never answers does not delay the run, and what is lost is said" {
	answers hang hang hang
	run_tiny hangs notify.url="$url" notify.on=started,done
	local started ended after
	after=$(span "$(event_field hangs done time)" "$EPOCHREALTIME")
	[[ ${after%.*} -lt 20 ]] # one attempt alone would take 20 s, and there are 8
	[[ $(event_field hangs done status) -eq 0 ]]
	printed hangs | grep -q "2 notifications were not delivered: http://127.0.0.1:[0-9]*: it has not answered in time"
	started=$(event_field hangs started mono)
	ended=$(event_field hangs done mono)
	figure "20 steps beside a service that hangs: $(span "$started" "$ended") s, and $after s until muster has ended"
}

@test "https is used if the certificate is trusted and valid for the name, and not otherwise" {
	local port
	port=$(<"$BATS_FILE_TMPDIR/sealed/port")
	run_tiny tls notify.url="https://localhost:$port/x" notify.ca_file="$BATS_FILE_TMPDIR/cert" notify.on=done
	[[ $(wc -l <"$BATS_FILE_TMPDIR/sealed/log") -eq 1 ]]
	run_tiny unknown notify.url="https://localhost:$port/x" notify.on=done
	printed unknown | grep -q "1 notification was not delivered: https://localhost:$port: .*certificate"
	run_tiny other notify.url="https://127.0.0.1:$port/x" notify.ca_file="$BATS_FILE_TMPDIR/cert" notify.on=done
	printed other | grep -q "1 notification was not delivered: https://127.0.0.1:$port: .*certificate"
	[[ $(wc -l <"$BATS_FILE_TMPDIR/sealed/log") -eq 1 ]]
}

@test "neither the address nor the token is in the run folder, in what is printed, or on a command line" {
	private "$BATS_TEST_TMPDIR/address" "$url/T0P/s3cret-path"
	private "$BATS_TEST_TMPDIR/token" s3cret-token
	answers 404
	start_run secrets notify.url_file="$BATS_TEST_TMPDIR/address" notify.secret_file="$BATS_TEST_TMPDIR/token" notify.preset=slack \
		notify.on=started,stopped job.steps=1000000 checkpoint.every=20
	wait_for 60 step_reached secrets 1
	cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' ' ' >"$BATS_TEST_TMPDIR/cmdlines"
	wait_for 60 eval '[[ $(requests) -eq 1 ]]'
	stop_run
	[[ $(requests) -eq 2 ]]
	grep -q '"path": "/runs/T0P/s3cret-path", "authorization": "Bearer s3cret-token"' "$hook/log"
	grep -q muster-agent "$BATS_TEST_TMPDIR/cmdlines"
	run grep -rla s3cret "$(run_folder secrets)" "$BATS_FILE_TMPDIR/secrets.out" "$BATS_TEST_TMPDIR/cmdlines"
	echo "$output"
	[[ $status -eq 1 ]]
	printed secrets | grep -q "http://127.0.0.1:[0-9]*: it answers with status 404"
}

@test "the address and the token may be in the environment" {
	MUSTER_NOTIFY_URL=$url/env MUSTER_NOTIFY_TOKEN=from-env run_tiny env notify.on=done
	grep -q '"path": "/runs/env", "authorization": "Bearer from-env"' "$hook/log"
	run grep -rla from-env "$(run_folder env)"
	[[ $status -eq 1 ]]
}

@test "Slack gets a text without markup of its own" {
	run_tiny slack notify.url="$url" notify.preset=slack notify.on=warning warn.memory=1e-9 warn.data=0
	python3 - "$hook/log" <<-'PY'
		import json, sys
		[line] = [json.loads(line) for line in open(sys.argv[1])]
		assert list(line["body"]) == ["text"], line
		assert line["body"]["text"].startswith("*slack* warning, step 1 of 20: rank 0 on "), line
		assert "\na little more and the run ends without memory" in line["body"]["text"], line
	PY
}

@test "a warning is an event, a line and a notification, once" {
	run_tiny warned notify.url="$url" notify.on=warning warn.memory=1e-9 warn.data=0
	[[ $(event warned warning | wc -l) -eq 1 ]]
	[[ $(event_field warned warning id) == memory && $(event_field warned warning holds) == true ]]
	[[ $(printed warned | grep -c "^  warning    rank .* of memory; a little more") -eq 1 ]]
	[[ $(requests) -eq 1 ]]
	grep -q '"warning": "memory", "holds": true' "$hook/log"
	grep -q '"remedy": "a little more' "$hook/log"
}

# On a busy host a step is rightly called slow, so the warnings about speed do not count here.
@test "an ordinary run has no warning" {
	run_tiny ordinary job.steps=400 parallel.dp=2 checkpoint.every=50 data.eval_every=50
	run grep -E '"event":"warning".*"id":"(loss-spike|gradient-norm|memory)"' "$(run_folder ordinary)/events.jsonl"
	echo "$output"
	[[ $status -eq 1 ]]
}

@test "a command gets the JSON on its input, without a shell, and one that hangs is killed with its children" {
	cat >"$BATS_TEST_TMPDIR/take" <<-'END'
		#!/bin/bash
		printf '%s\n' "$@" >"$1"
		cat >>"$1"
		[[ $# -lt 4 ]] || { sleep 600 & echo $! >"$1.child"; sleep 600; }
	END
	chmod 755 "$BATS_TEST_TMPDIR/take"
	run_tiny told notify.command="$BATS_TEST_TMPDIR/take $BATS_TEST_TMPDIR/got *" notify.on=done
	[[ $(sed -n 2p "$BATS_TEST_TMPDIR/got") == "*" ]]
	sed -n 3p "$BATS_TEST_TMPDIR/got" | python3 -c 'import json, sys; assert json.load(sys.stdin)["event"] == "done"'
	run_tiny stuck notify.command="$BATS_TEST_TMPDIR/take $BATS_TEST_TMPDIR/stuck a b c" notify.on=done
	printed stuck | grep -q "1 notification was not delivered: $BATS_TEST_TMPDIR/take: .* was killed"
	wait_for 60 has_ended "$(<"$BATS_TEST_TMPDIR/stuck.child")"
	run_tiny absent notify.command=/no/such/program notify.on=done
	printed absent | grep -q "/no/such/program: cannot be executed.*; notify.command is the path"
	[[ $(event_field absent done status) -eq 0 ]]
}

@test "a rank that is killed is a restart, and without restarts a failure with its remedy" {
	start_run killed notify.url="$url" notify.on=restarted,failed,done job.steps=100000 parallel.dp=2 checkpoint.every=10
	wait_for 60 step_reached killed 12
	kill -KILL "$(agent_pid killed 1)"
	wait_for 60 grep -q '"event": "restarted"' "$hook/log"
	grep -q 'ranks train again from step [0-9]* on; before that: rank 1 on .*SIGKILL' "$hook/log"
	stop_run
	: >"$hook/log"
	start_run failed notify.url="$url" notify.on=restarted,failed job.steps=100000 parallel.dp=2 restart.max_restarts=0
	wait_for 60 step_reached failed 2
	kill -KILL "$(agent_pid failed 1)"
	wait "$pid" || true
	[[ $(requests) -eq 1 ]]
	grep -q '"event": "failed"' "$hook/log"
}

@test "an agent that stands still is a stall, and bad numbers are a divergence" {
	start_run still notify.url="$url" notify.on=stalled job.steps=100000 parallel.dp=2 restart.silent_timeout=6
	wait_for 60 step_reached still 2
	kill -STOP "$(agent_pid still 1)"
	wait_for 60 grep -q '"event": "stalled"' "$hook/log"
	stop_run
	grep -q '"text": "rank 1 on .*: ' "$hook/log"
	: >"$hook/log"
	run_tiny bad notify.url="$url" notify.on=diverged,failed health.bad_numbers=stop job.steps=1000 optimizer.lr=100 \
		optimizer.weight_decay=1 optimizer.clip=0 optimizer.warmup=0 optimizer.schedule=constant optimizer.decay_steps=0 || true
	python3 - "$hook/log" <<-'PY'
		import json, sys
		lines = [json.loads(line)["body"] for line in open(sys.argv[1])]
		assert [line["event"] for line in lines] == ["diverged", "failed"], lines
		assert all("NaN or infinite" in line["text"] for line in lines), lines
	PY
}

@test "files with secrets that cannot be used are named, and the run goes on without notifications" {
	private "$BATS_TEST_TMPDIR/open" "$url"
	chmod 644 "$BATS_TEST_TMPDIR/open"
	private "$BATS_TEST_TMPDIR/empty" ""
	private "$BATS_TEST_TMPDIR/http" "http://example.com/s3cret"
	while IFS='|' read -r name words text; do
		# shellcheck disable=SC2086
		run_tiny "$name" $words
		printed "$name" | grep -q "nobody is notified: $text"
		[[ $(event_field "$name" done status) -eq 0 ]]
	done <<-END
		missing|notify.url_file=$BATS_TEST_TMPDIR/none|notify.url_file: .*/none
		readable|notify.url_file=$BATS_TEST_TMPDIR/open|notify.url_file: .*chmod 600 it
		hollow|notify.url_file=$BATS_TEST_TMPDIR/empty|notify.url_file: .*is empty
		exposed|notify.url_file=$BATS_TEST_TMPDIR/http|notify.url_file: over http:// anyone on the way could read it
		token|notify.url=$url notify.secret_file=$BATS_TEST_TMPDIR/open|notify.secret_file: .*chmod 600 it
	END
	[[ $(requests) -eq 0 ]]
}
