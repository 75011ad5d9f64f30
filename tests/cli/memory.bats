#!/usr/bin/env bats
# Copies of the state in the ranks' memory: a run that loses a rank goes on from there, with the same bits.
#
# On one node each process counts as a node of its own: rank r keeps the copy of rank r + 2 of 4.

load ../helpers

setup_file() {
	make_data
	make_tiny_job
	run_tiny undisturbed job.steps=120 parallel.tp=2 parallel.dp=2 checkpoint.memory_every=0
}

teardown() {
	[[ -z ${pid-} ]] || kill -9 "$pid" 2>/dev/null || true
}

# start_run NAME WORDS...: starts it in the background, and sets $pid.
start_run() {
	local name=$1
	shift
	"$MUSTER" run "$tiny" job.name="$name" job.steps=120 parallel.tp=2 parallel.dp=2 restart.backoff=0.1 "$@" \
		</dev/null >"$BATS_FILE_TMPDIR/$name.out" 2>&1 3>&- &
	pid=$!
}

# await_step NAME: waits for a random step of the run, and sets $step to the last one that is finished.
await_step() {
	draw_number 30
	wait_for 60 step_reached "$1" $((3 + drawn))
	step=$(last_step "$1")
}

# kill_now NAME RANK...: kills these ranks at the same moment.
kill_now() {
	local name=$1 rank pids=()
	shift
	for rank; do pids+=("$(agent_pid "$name" "$rank")"); done
	kill -9 "${pids[@]}"
}

# Prints how many generations went on from memory.
from_memory() { event "$1" ready | grep -c '"from":"memory"'; } # run

# lost_steps NAME: prints how many steps of the last loss were repeated.
lost_steps() {
	local reached
	reached=$(grep -oP '"generation":1,"step":\K[0-9]+' "$(run_folder "$1")/metrics.jsonl" | tail -n 1)
	echo $((reached - $(event_field "$1" ready step)))
}

# audited NAME: the ledger says what each rank has read.
audited() { "$MUSTER" data audit "$(run_folder "$1")" >"$BATS_TEST_TMPDIR/audit" || { cat "$BATS_TEST_TMPDIR/audit"; return 1; }; }

@test "a killed rank costs no more steps than memory_every, and the one in flight; the bits are the same" {
	for rank in 0 1 2 3; do
		start_run "one$rank" checkpoint.memory_every=1
		await_step "one$rank"
		kill_now "one$rank" "$rank"
		wait $pid
		has_same_bits "one$rank" undisturbed
		[[ $(from_memory "one$rank") -eq 1 ]]
		[[ $(lost_steps "one$rank") -le 2 ]]
		[[ $(event_field "one$rank" ready step) -ge $((step - 2)) ]]
		audited "one$rank"
	done
}

@test "one copy in so many steps: the run goes back to the last one" {
	start_run fifth checkpoint.memory_every=5
	wait_for 60 step_reached fifth 13
	await_step fifth
	kill_now fifth 3
	wait $pid
	has_same_bits fifth undisturbed
	[[ $(from_memory fifth) -eq 1 ]]
	[[ $(($(event_field fifth ready step) % 5)) -eq 0 ]]
	[[ $(lost_steps fifth) -le 10 ]]
	audited fifth
}

@test "two ranks that keep each other's copies: the run goes back to the last checkpoint" {
	start_run both checkpoint.memory_every=1 checkpoint.every=10
	wait_for 60 checkpoint_reached both 10
	await_step both
	kill_now both 1 3
	wait $pid
	has_same_bits both undisturbed
	[[ $(from_memory both) -eq 0 ]]
	[[ $(event_field both ready from) == */ckpt/step-* ]]
	audited both
}

@test "two ranks whose copies are elsewhere: memory is enough" {
	start_run apart checkpoint.memory_every=1 checkpoint.every=10
	wait_for 60 step_reached apart 13
	await_step apart
	kill_now apart 0 1
	wait $pid
	has_same_bits apart undisturbed
	[[ $(event_field apart ready step) -ge $((step - 2)) ]]
	audited apart
}

@test "a second rank dies during the recovery, and later the one that holds its copy" {
	start_run again checkpoint.memory_every=1 checkpoint.every=10
	await_step again
	kill_now again 1
	wait_for 60 generation_known again 2
	kill_now again 2
	wait_for 60 generation_steps again 3 || wait_for 60 generation_steps again 4
	kill_now again 0
	wait $pid
	has_same_bits again undisturbed
	audited again
}

# generation_known NAME GENERATION: succeeds when the supervisor has sent its welcomes.
generation_known() { grep -q "\"event\":\"hello\".*\"generation\":$2,.*{\"rank\":1," "$(run_folder "$1")/events.jsonl"; }

@test "each rank in turn, again and again: memory carries the run from one generation to the next" {
	run_tiny long job.steps=300 parallel.tp=2 parallel.dp=2 checkpoint.memory_every=0
	start_run turns checkpoint.memory_every=1 job.steps=300
	kill_ranks turns 2 0 3 1
	wait $pid
	has_same_bits turns long
	event turns ready
	event turns regrouped
	[[ $(from_memory turns) -eq 4 ]]
	audited turns
}

@test "without copies the run goes back to the last checkpoint" {
	start_run none checkpoint.memory_every=0 checkpoint.every=4
	wait_for 60 step_reached none 6
	kill_now none 2
	wait $pid
	has_same_bits none undisturbed
	[[ $(from_memory none) -eq 0 ]]
}

@test "copies = 0: what a dead rank had is lost with it" {
	start_run own checkpoint.memory_every=1 checkpoint.copies=0 checkpoint.every=4
	wait_for 60 step_reached own 6
	kill_now own 2
	wait $pid
	has_same_bits own undisturbed
	[[ $(from_memory own) -eq 0 ]]
}

@test "a pipeline and sharded optimizers continue from memory" {
	run_tiny piped-ref job.steps=120 parallel.pp=2 parallel.dp=2 parallel.zero=2 checkpoint.memory_every=0
	"$MUSTER" run "$tiny" job.name=piped job.steps=120 parallel.pp=2 parallel.dp=2 parallel.zero=2 restart.backoff=0.1 \
		checkpoint.memory_every=2 </dev/null >"$BATS_FILE_TMPDIR/piped.out" 2>&1 3>&- &
	pid=$!
	wait_for 60 step_reached piped 5
	await_step piped
	kill_now piped 3
	wait $pid
	has_same_bits piped piped-ref
	[[ $(from_memory piped) -eq 1 ]]
	audited piped
}

@test "wrong numbers: nothing of what the ranks have in memory is used" {
	DRILL_FAULT="flip 2 12 0" DRILL_MARK=1 run_tiny flipped job.steps=30 parallel.dp=4 restart.backoff=0.1 \
		checkpoint.memory_every=1 checkpoint.every=5
	[[ -n $(event flipped regrouped) ]]
	[[ $(from_memory flipped) -eq 0 && $(event_field flipped ready step) -eq 10 ]]
}

# Prints the bytes that the plan has for what a rank copies.
planned() { "$MUSTER" plan "$tiny" "$@" --json | grep -oP '"snapshot": ?\K[0-9.]+' | head -n 1; }

@test "the plan counts the copies" {
	awk -v none="$(planned checkpoint.memory_every=0)" -v both="$(planned checkpoint.memory_every=1)" \
		-v own="$(planned checkpoint.memory_every=1 checkpoint.copies=0)" \
		'BEGIN { exit !(none > 0 && both == 5 * none && own == 3 * none) }'
	[[ $(planned) == "$(planned checkpoint.memory_every=0)" ]]
}

@test "a parameter server's shards are copied, too" {
	local server="job.steps=400 parallel.sync=server parallel.staleness=0 parallel.dp=3 batch.global=9"
	# shellcheck disable=SC2086 # a list of words
	run_tiny server-ref $server checkpoint.memory_every=0
	# shellcheck disable=SC2086
	"$MUSTER" run "$tiny" job.name=server $server restart.backoff=0.1 checkpoint.memory_every=2 \
		</dev/null >"$BATS_FILE_TMPDIR/server.out" 2>&1 3>&- &
	pid=$!
	wait_for 60 step_reached server 7
	kill_now server 1
	wait $pid
	has_same_bits server server-ref
	[[ $(from_memory server) -eq 1 ]]
	audited server
}
