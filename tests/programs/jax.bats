#!/usr/bin/env bats
# A JAX program over two processes: it computes under muster what it computes without a launcher.

load ../helpers
load programs

setup_file() {
	local rank port
	look_for jax numpy
	[[ -z $lacks ]] || return 0
	port=$(python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])')
	for rank in 0 1; do
		JAX_COORDINATOR_ADDRESS=127.0.0.1:$port JAX_NUM_PROCESSES=2 JAX_PROCESS_ID=$rank LOCAL_RANK=$rank timeout 120 \
			python3 "$programs/jax_train.py" --steps 40 --every 8 --folder "$(state alone)" \
			>"$BATS_FILE_TMPDIR/alone-$rank.out" 2>&1 3>&- &
	done
	wait
	losses_in "$BATS_FILE_TMPDIR/alone-0.out" >"$BATS_FILE_TMPDIR/losses"
	[[ $(wc -l <"$BATS_FILE_TMPDIR/losses") -eq 40 ]]
}

setup() { skip_if_lacking; }

command_of() { echo "python3 $disturbed $programs/jax_train.py --steps 40 --every 8 --folder $(state "$1")"; }

same() { has_losses "$1" "$BATS_FILE_TMPDIR/losses"; }

@test "two processes train to the end, and have the losses that they have without a launcher" {
	launch plain "$(command_of plain)"
	same plain
}

@test "a process is killed: the run restarts from the program's checkpoint and has the same losses" {
	disturb kill 1 21
	launch killed "$(command_of killed)"
	restarted killed 1
	same killed
}

@test "process 0, which coordinates the others, is killed: the run restarts and has the same losses" {
	disturb kill 0 21
	launch first "$(command_of first)"
	restarted first 0
	same first
}
