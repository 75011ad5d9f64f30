#!/usr/bin/env bats
# Many agents share this host: they start and train, and nothing is lost. One is killed, and the others live on, so that they meet
# through the supervisor.

load ../helpers

setup_file() {
	make_data
	make_tiny_job
}

teardown() {
	[[ -z ${pid-} ]] || kill -9 "$pid" 2>/dev/null || true
}

# lost NAME: prints how many ranks the run has lost.
lost() { event "$1" rank-lost | wc -l; }

survives() { # agents
	local n=$1 name=many-$1 words="parallel.dp=$1 batch.global=$1 checkpoint.every=5 restart.backoff=0 optimizer.decay_steps=100000"
	# shellcheck disable=SC2086 # a list of words
	"$MUSTER" run "$tiny" job.name="$name" $words job.steps=1000000 </dev/null >"$BATS_FILE_TMPDIR/$name.out" 2>&1 3>&- &
	pid=$!
	wait_for 60 step_reached "$name" 2
	[[ $(pgrep -P $pid -x muster-agent | wc -l) -eq $n ]]
	[[ $(lost "$name") -eq 0 ]]
	kill_ranks "$name" $((n - 1))
	[[ $(lost "$name") -eq 1 ]]
	[[ $(event "$name" regrouped) == *"\"kept\":$((n - 1)),"* ]]
	kill -TERM $pid
	wait $pid || [[ $? -eq 75 ]]
	pid=
	# shellcheck disable=SC2086
	run_tiny "calm-$name" $words job.steps="$(last_step "$name")"
	has_same_bits "$name" "calm-$name"
}

@test "48 agents" { survives 48; }
@test "256 agents" { large; survives 256; }
