#!/usr/bin/env bats
# Ranks are killed at random moments, one or two at once, also while the run recovers. The agents of the other ranks live on, and the
# run ends with the bits of an undisturbed run, in each of twelve layouts. WARM=no measures cold restarts in the same way,
# and MEMORY=1 takes copies in memory at each step.

load ../helpers
load ../random_kills

setup_file() {
	make_data
	make_tiny_job
	words="checkpoint.every=5 restart.backoff=0 restart.max_restarts=1000 restart.max_futile=1000 optimizer.decay_steps=100000"
	kills=4
	[[ -z ${MUSTER_LARGE-} ]] || kills=17
	[[ -z ${WARM-} ]] || words+=" restart.warm=$WARM"
	[[ -z ${MEMORY-} ]] || words+=" checkpoint.memory_every=$MEMORY"
	export words kills
}

teardown_file() { figure_of_recoveries; }

teardown() {
	[[ -z ${pid-} ]] || kill -9 "$pid" 2>/dev/null || true
}

# A run that takes so many kills computes the bits of an undisturbed one, and leaves no agent.
survives() { # name world word...
	local name=$1 world=$2 agents agent
	shift 2
	# shellcheck disable=SC2086 # a list of words
	"$MUSTER" run "$tiny" job.name="warm-$name" $words job.steps=1000000 "$@" </dev/null >"$BATS_FILE_TMPDIR/warm-$name.out" 2>&1 3>&- &
	pid=$!
	wait_for 60 step_reached "warm-$name" 2
	[[ $(pgrep -P $pid -x muster-agent | wc -l) -eq $world ]]
	kill_many "warm-$name" "$world" "$kills" || return 1
	[[ $world -eq 2 ]] || lived_on "warm-$name" # of two ranks, each kill may be of both
	agents=$(pgrep -P $pid -x muster-agent)
	kill -TERM $pid
	wait $pid || [[ $? -eq 75 ]]
	pid=
	for agent in $agents; do wait_for 60 has_ended "$agent"; done
	# shellcheck disable=SC2086
	run_tiny "calm-$name" $words job.steps="$(last_step "warm-$name")" "$@"
	has_same_bits "warm-$name" "calm-$name"
	[[ -z ${MEMORY-} ]] || figure "$name: $(event "warm-$name" ready | grep -c '"from":"memory"') of" \
		"$(($(event "warm-$name" ready | wc -l) - 1)) restarts continued from memory"
}

@test "dp 4" { survives dp4 4 parallel.dp=4; }
@test "dp 4, ZeRO 1" { survives zero1 4 parallel.dp=4 parallel.zero=1; }
@test "dp 4, ZeRO 2" { survives zero2 4 parallel.dp=4 parallel.zero=2; }
@test "dp 4, ZeRO 3" { survives zero3 4 parallel.dp=4 parallel.zero=3; }
@test "tp 2 × dp 2 with sequence parallelism" { survives tp2 4 parallel.tp=2 parallel.dp=2 parallel.sp=yes; }
@test "pp 4, 1f1b" { survives pp4 4 parallel.pp=4; }
@test "pp 2 × dp 2, interleaved" { survives interleaved 4 parallel.pp=2 parallel.dp=2 parallel.schedule=interleaved parallel.chunks=2; }
@test "pp 4, zb-h1" { survives zbh1 4 parallel.pp=4 parallel.schedule=zb-h1; }
@test "cp 2 × dp 2" { survives cp2 4 parallel.cp=2 parallel.dp=2; }
@test "ep 2 × dp 2 with experts" { survives ep2 2 parallel.dp=2 parallel.ep=2 model.family=mixtral model.experts=4 model.experts_per_token=2; }
@test "tp 2 × pp 2 × dp 2, ZeRO 1" { survives tp2pp2dp2 8 parallel.tp=2 parallel.pp=2 parallel.dp=2 parallel.zero=1; }
@test "tp 2 × cp 2 × pp 2" { survives tp2cp2pp2 8 parallel.tp=2 parallel.cp=2 parallel.pp=2; }
