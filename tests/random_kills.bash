# Random kills of a run's agents, for a bats file that has loaded helpers. RANDOM is seeded by draw_number.

# Kills these ranks of the run at once, and notes when.
kill_at_once() { # run rank...
	local name=$1 rank pids=()
	shift
	for rank; do pids+=("$(agent_pid "$name" "$rank")"); done
	echo "$EPOCHREALTIME" >>"$(run_folder "$name")/kills"
	kill -9 "${pids[@]}" || true # the second one may have ended with its generation
}

# The generation of the last first step.
trained() { event_field "$1" first-step generation; } # run
trained_after() { [[ $(trained "$1") -gt $2 ]]; } # run generation
restarts_after() { [[ $(event_field "$1" restart generation) -ge $2 ]]; } # run generation

# One kill: of one rank, of two at once, or of one and then of another while the run recovers from it. It waits for the next step.
kill_randomly() { # run world
	local name=$1 world=$2 rank other before
	rank=$((RANDOM % world))
	other=$(((rank + 1 + RANDOM % (world - 1)) % world))
	before=$(trained "$name")
	case $((RANDOM % 4)) in
	0 | 1) kill_at_once "$name" $rank ;;
	2) kill_at_once "$name" $rank $other ;;
	3)
		kill_at_once "$name" $rank
		wait_for 60 restarts_after "$name" "$before"
		kill_at_once "$name" $other
		;;
	esac
	wait_for 60 trained_after "$name" "$before" || {
		echo "no step follows generation $before after the kill of rank $rank or $other"
		return 1
	}
}

# kill_many RUN WORLD N: kills N times, each some steps after the last recovery. Then the run goes on at least to step 10: kills before
# the first checkpoint make it begin again, and an undisturbed run of as many steps must be longer than the tiny job's warmup.
kill_many() {
	local name=$1 world=$2 i
	draw_number 1
	wait_for 60 step_reached "$name" 2
	for ((i = 0; i < $3; i++)); do
		kill_randomly "$name" "$world" || return 1
		wait_for 60 step_reached "$name" $(($(last_step "$name") + 1 + RANDOM % 4))
	done
	wait_for 60 step_reached "$name" 10
}

# Succeeds if some agents of the run have outlived a generation; with WARM=no: if none has.
lived_on() { # run
	if [[ ${WARM-} == no ]]; then ! event "$1" regrouped; else event "$1" regrouped | grep -q '"kept":[1-9]'; fi
}

# Prints the parts of the recoveries of all runs of this file.
figure_of_recoveries() {
	local runs=("$BATS_FILE_TMPDIR"/*/kills) line
	"$BATS_TEST_DIRNAME/../recovery_times" "${runs[@]%/kills}" | while read -r line; do figure "$line"; done
}
