#!/usr/bin/env bats
# A PyTorch program with DistributedDataParallel: it computes under muster what it computes under torchrun, whatever happens to a rank.

load ../helpers
load programs

setup_file() {
	look_for torch numpy
	[[ -z $lacks ]] || return 0
	run_torchrun ddp.py 40
}

setup() { skip_if_lacking; }

teardown() { [[ -z ${pid-} ]] || kill -9 "$pid" 2>/dev/null || true; }

# The command line of the run NAME, which disturbs itself if DISTURB is set.
command_of() { echo "python3 $disturbed $programs/ddp.py --steps ${2-40} --every 8 --folder $(state "$1")"; }

same() { has_losses "$1" "$BATS_FILE_TMPDIR/losses"; }

@test "two ranks train to the end, and have the losses that torchrun gives them" {
	launch plain "$(command_of plain)"
	same plain
	[[ $(event_field plain "done" status) == 0 ]]
	[[ -z $(event plain restart) ]]
}

@test "the template's job file runs as it is" {
	cd "$top"
	run "$MUSTER" run templates/programs/ddp.ini "job.run_dir=$BATS_TEST_TMPDIR" \
		"job.program=python3 templates/programs/ddp.py --steps 10 --folder $BATS_TEST_TMPDIR/state"
	echo "$output"
	[[ $status -eq 0 && -s $BATS_TEST_TMPDIR/state/checkpoint.pt ]]
}

@test "a rank is killed: the run restarts from the program's checkpoint and has the same losses" {
	disturb kill 1 21
	launch killed "$(command_of killed)"
	restarted killed 1
	same killed
	grep -h "lost" "$BATS_FILE_TMPDIR/killed.out" | grep -iE "SIGKILL|signal 9|killed"
}

@test "rank 0, to which the others connect, is killed: the run restarts and has the same losses" {
	disturb kill 0 21
	launch first "$(command_of first)"
	restarted first 0
	same first
}

@test "a rank ends with status 3: the status is printed, and the run has the same losses" {
	disturb exit 1 21
	launch ended "$(command_of ended)"
	restarted ended 1
	same ended
	grep -E "lost +rank 1 .*status 3" "$BATS_FILE_TMPDIR/ended.out"
}

@test "a rank raises an exception: its log has the traceback, and the run has the same losses" {
	disturb raise 1 21
	launch raised "$(command_of raised)"
	restarted raised 1
	same raised
	grep -q "RuntimeError: a fault that the test causes" "$(run_folder raised)"/logs/*-1.log
}

@test "a rank hangs: it is found and named, and the run has the same losses" {
	disturb hang 1 5
	launch hung "$(command_of hung)" restart.hang_timeout=8
	restarted hung 1
	same hung
	[[ $(event_field hung hang rank) -eq 1 ]]
}

@test "a rank is lost before the first checkpoint: the run begins again from step 1" {
	disturb kill 1 3
	launch early "$(command_of early)"
	restarted early 1
	same early
}

@test "a run that is stopped writes a checkpoint and exits 75, and the same command goes on with the same losses" {
	local status=0
	disturb stop 0 21
	start stopped "$(command_of stopped)" &
	pid=$!
	echo $pid >"$mark.new" && mv "$mark.new" "$mark.pid"
	wait $pid || status=$?
	pid=""
	[[ $status -eq 75 && -e $mark && $(losses_of stopped | wc -l) -lt 40 && -s $(state stopped)/checkpoint.pt ]]
	launch stopped "$(command_of stopped)"
	same stopped
	[[ -z $(event stopped restart) ]]
}
