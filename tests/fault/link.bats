#!/usr/bin/env bats
# A slow link between two ranks is named. Each run is in a network namespace of its own, where the kernel slows down the connections
# between two ranks.

load ../helpers

setup_file() {
	make_data
	make_tiny_job
	# run WORD...: trains over TCP in this namespace, slows down what rank 1 sends to rank 2 once the run trains, and waits for the
	# event slow-link for 60 s.
	cat >"$BATS_FILE_TMPDIR/run" <<-'BASH'
		set -eu
		ip link set lo up
		"$MUSTER" run "$tiny" "job.name=$name" parallel.dp=4 network.backend=tcp job.steps=90000 model.hidden=128 batch.global=4 \
			health.slow_window=2 </dev/null >"$folder/$name.out" 2>&1 3>&- &
		pid=$!
		trap 'kill -TERM $pid; wait $pid || true' EXIT
		events=$folder/$name/events.jsonl
		wait_until() { # seconds command
			local i
			for ((i = 0; i < $1 * 10; i++)); do
				! eval "$2" || return 0
				sleep 0.1
			done
			echo "not within $1 s: $2"
			return 1
		}
		pid_of() { grep -oP "\"event\":\"hello\".*\"rank\":$1,\"pid\":\K[0-9]+" "$events"; }
		# Prints the connections of a rank, each with the two ends in an order that both ranks agree on.
		connections() { ss -Htnp state established | grep "pid=$(pid_of "$1")," | awk -v own=$2 '{ print $(own), $(7 - own) }' | sort; }
		wait_until 90 '[[ $(wc -l 2>/dev/null <"$folder/$name/metrics.jsonl") -ge 30 ]]'
		tc qdisc add dev lo root handle 1: htb default 10 2>/dev/null
		tc class add dev lo parent 1: classid 1:10 htb rate 10gbit burst 1m quantum 60000
		tc class add dev lo parent 1: classid 1:20 htb rate 4mbit burst 16k
		comm -12 <(connections 1 3) <(connections 2 4) >"$folder/$name.connections"
		[[ -s $folder/$name.connections ]]
		while read -r from to; do
			tc filter add dev lo parent 1: protocol ip u32 match ip sport "${from##*:}" 0xffff match ip dport "${to##*:}" 0xffff \
				flowid 1:20
		done <"$folder/$name.connections"
		wait_until 60 "grep -q '\"event\":\"slow-link\".*\"rank\":1,.*\"peer\":2,' $events"
	BASH
}

setup() {
	[[ $EUID -eq 0 ]] || skip "needs root, for a network namespace"
	command -v tc >/dev/null && command -v ss >/dev/null || skip "iproute2 is not installed"
	unshare -n true 2>/dev/null || skip "this host permits no network namespace"
	export MUSTER tiny folder=$BATS_FILE_TMPDIR
}

# Runs as NAME in a namespace, and shows what went wrong.
run_slowed() { # name
	name=$1 unshare -n bash "$BATS_FILE_TMPDIR/run" || {
		tail -n 20 "$BATS_FILE_TMPDIR/$1.out"
		return 1
	}
}

@test "a link that is slower than the others is named with both ranks, and the run goes on" {
	run_slowed slowed
	grep -E "slow +the link from rank (1 on [^ ]+ to rank 2|2 on [^ ]+ to rank 1) on [^ ]+ \(group dp\) is slow: .*B/s, the others' median is" \
		"$BATS_FILE_TMPDIR/slowed.out"
	event slowed slow-link | grep '"rank":1,' | grep '"group":"dp","slow":true'
	# No other link, and no rank, is to blame.
	[[ -z $(event slowed slow-link | grep -v -e '"rank":1,.*"peer":2,' -e '"rank":2,.*"peer":1,') ]]
	[[ -z $(event slowed rank-lost) ]]
}
