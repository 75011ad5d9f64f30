#!/usr/bin/env bats
# An MPI program in C: its ranks find each other through muster's PMIx, and compute what they compute under mpirun.

load ../helpers
load programs

setup_file() {
	local ranks
	look_for /mpicc /mpirun
	[[ -z $lacks ]] || return 0
	ring=$BATS_FILE_TMPDIR/mpi_ring
	export ring
	mpicc -O2 -Wall -Wextra -Werror "-I$top/tests/programs/disturb" "-I$top/agent/client" -o "$ring" "$programs/mpi_ring.c"
	# Ranks that wait give their core away: there are more of them than cores.
	export OMPI_MCA_mpi_yield_when_idle=1
	for ranks in 2 4; do
		mkdir "$(state "mpirun-$ranks")"
		OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 120 mpirun --oversubscribe --bind-to none -n $ranks \
			"$ring" 6000 "$(state "mpirun-$ranks")" >"$BATS_FILE_TMPDIR/mpirun-$ranks.out" 2>&1 3>&-
		losses_in "$BATS_FILE_TMPDIR/mpirun-$ranks.out" >"$BATS_FILE_TMPDIR/losses-$ranks"
		[[ $(wc -l <"$BATS_FILE_TMPDIR/losses-$ranks") -eq 6 ]]
	done
}

setup() { skip_if_lacking; }

# ring_of NAME RANKS: runs the ring of so many ranks, and compares its numbers with those under mpirun.
ring_of() {
	mkdir "$(state "$1")"
	launch "$1" "$ring 6000 $(state "$1")" "parallel.dp=$2"
	has_losses "$1" "$BATS_FILE_TMPDIR/losses-$2"
}

@test "a ring of 2 ranks has the numbers that mpirun gives it" { ring_of two 2; }

@test "a ring of 4 ranks has the numbers that mpirun gives it" { ring_of four 4; }

@test "a rank of 4 is killed: the run restarts from the program's checkpoint and has the same numbers" {
	disturb kill 2 3500
	ring_of killed 4
	restarted killed 2
}
