#!/usr/bin/env bats
# A PyTorch program with FSDP2 and distributed checkpoints: it computes under muster what it computes under torchrun.

load ../helpers
load programs

setup_file() {
	look_for torch numpy
	[[ -z $lacks ]] || return 0
	run_torchrun fsdp.py 30
}

setup() { skip_if_lacking; }

command_of() { echo "python3 $disturbed $programs/fsdp.py --steps ${2-30} --every 8 --folder $(state "$1")"; }

same() { has_losses "$1" "$BATS_FILE_TMPDIR/losses"; }

@test "two ranks train to the end, and have the losses that torchrun gives them" {
	launch plain "$(command_of plain)"
	same plain
	[[ -e $(state plain)/step-30/.metadata ]]
}

@test "a rank is killed: the run restarts from the distributed checkpoint and has the same losses" {
	disturb kill 1 21
	launch killed "$(command_of killed)"
	restarted killed 1
	same killed
}

@test "another number of ranks continues from the checkpoint" {
	launch two "$(command_of two 16)"
	launch four "$(command_of two 24)" parallel.dp=4
	[[ $(losses_of four | cut -d ' ' -f 2 | tr '\n' ' ') == "17 18 19 20 21 22 23 24 " ]]
	# The model is the one that two ranks trained.
	awk 'NR == FNR { last = $4; next } FNR == 1 { exit !($4 < last * 1.2) }' <(losses_of two) <(losses_of four)
}
