#!/usr/bin/env bats
# The agent that commits checkpoints is cut off from the supervisor. It trains on, because its ranks still reach each other, but commits
# nothing that the supervisor could not know of, until the connection is back. Each run is in a network namespace of its own, where the
# kernel delays the packets of one connection without end.

load ../helpers

setup_file() {
	make_data
	make_tiny_job
	cat >"$BATS_FILE_TMPDIR/run" <<-'BASH'
		set -eu
		ip link set lo up
		LD_PRELOAD=$folder/slow.so SLOW_MS=60000 SLOW_WHILE=$folder/slow \
			"$MUSTER" run "$tiny" job.name=cut parallel.dp=2 network.backend=shm job.steps=900000 checkpoint.every=300 \
			checkpoint.memory_every=0 </dev/null >"$folder/cut.out" 2>&1 3>&- &
		pid=$!
		trap 'kill -TERM $pid; wait $pid || true' EXIT
		run=$folder/cut
		wait_until() { # seconds command
			local i
			for ((i = 0; i < $1 * 10; i++)); do
				! eval "$2" || return 0
				sleep 0.1
			done
			echo "not within $1 s: $2"
			return 1
		}
		steps() { wc -l <"$run/metrics.jsonl"; }
		newest() { ls -d "$run"/ckpt/step-* 2>/dev/null | tail -n 1; }
		attempt() { ls -d "$run"/ckpt/.attempt-* 2>/dev/null; }
		wait_until 90 '[[ -n $(newest) ]]'
		agent=$(grep -oP '"event":"hello".*"rank":0,"pid":\K[0-9]+' "$run/events.jsonl")
		port=$(ss -Htnp state established | awk -v own="pid=$agent," 'index($0, own) { sub(/.*:/, "", $3); print $3 }')
		[[ $port =~ ^[0-9]+$ ]]
		# The checkpoint is being written, and the metrics up to its step are recorded.
		touch "$folder/slow"
		wait_until 90 '[[ -n $(attempt) ]]'
		recorded=$(steps)
		wait_until 90 '[[ $(steps) -gt $((recorded + 20)) ]]'
		before=$(newest)
		tc qdisc add dev lo root handle 1: htb default 10
		tc class add dev lo parent 1: classid 1:10 htb rate 10gbit burst 1m quantum 60000
		tc class add dev lo parent 1: classid 1:20 htb rate 8bit burst 1
		tc qdisc add dev lo parent 1:20 pfifo limit 1
		for end in sport dport; do
			tc filter add dev lo parent 1: protocol ip u32 match ip $end "$port" 0xffff flowid 1:20
		done
		cut=$EPOCHREALTIME
		since() { awk -v now="$EPOCHREALTIME" -v then="$cut" "BEGIN { exit !(now - then $1) }"; }
		# A third of restart.silent_timeout later it may not commit any more; then the writes end.
		wait_until 30 'since ">= 6"'
		rm "$folder/slow"
		wait_until 30 'since ">= 8.5"'
		[[ $(newest) == "$before" && -n $(attempt) ]]
		tc qdisc del dev lo root
		# The next packet that is sent again comes through, or the rank is lost. In both cases the run goes on.
		wait_until 60 '[[ $(newest) != "$before" ]]'
		"$MUSTER" ckpt verify "$run/ckpt" >"$folder/verified"
	BASH
}

@test "world rank 0 commits no checkpoint while it cannot reach the supervisor" {
	[[ $EUID -eq 0 ]] || skip "needs root, for a network namespace"
	command -v tc >/dev/null && command -v ss >/dev/null || skip "iproute2 is not installed"
	unshare -n true 2>/dev/null || skip "this host permits no network namespace"
	cc -shared -fPIC -o "$BATS_FILE_TMPDIR/slow.so" "$BATS_TEST_DIRNAME/slow_writes.c" -ldl || skip "needs a compiler"
	export MUSTER tiny folder=$BATS_FILE_TMPDIR
	unshare -n bash "$BATS_FILE_TMPDIR/run" || {
		tail -n 20 "$BATS_FILE_TMPDIR/cut.out"
		return 1
	}
	figure "the checkpoint was committed $(event cut ckpt | wc -l) times; lost ranks: $(event cut rank-lost | wc -l)"
}
