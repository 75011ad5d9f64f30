#!/usr/bin/env bats
# Programs of other frameworks in a Slurm job over two nodes: they compute what they compute on one host, also after a rank was killed.

load ../helpers
load ../programs/programs
load jobs

setup_file() {
	start_cluster 2
	words="slurm.nodes=2 slurm.cpus_per_task=2 parallel.dp=2"
	export words
}

teardown_file() { stop_cluster; }
setup() { [[ -z $lacking ]] || skip "$lacking"; }
teardown() { cancel_all; }

# needs NEED...: skips the test unless this host has what it needs.
needs() {
	look_for "$@"
	skip_if_lacking
}

# submit_program NAME COMMAND WORD...: submits the program, waits until the job ends, and succeeds if it ends with 0 on two nodes.
submit_program() {
	local name=$1
	write_job "$name" "$2"
	tiny=$BATS_FILE_TMPDIR/$name.ini
	shift 2
	submit "$name" "$@"
	ends_with 0
	[[ $(nodes_of "$name") == "n1 n2 " ]]
	wait_for 60 no_agent
}

# is_undisturbed PROGRAM: runs it on one host and in the cluster, where rank 1 is killed once, and compares the losses.
is_undisturbed() {
	local words_of="$programs/$1.py --steps 30 --every 8 --folder"
	launch "$1-alone" "python3 $disturbed $words_of $(state "$1-alone")" launch.launcher=local
	losses_of "$1-alone" >"$BATS_FILE_TMPDIR/losses"
	[[ $(wc -l <"$BATS_FILE_TMPDIR/losses") -eq 30 ]]
	disturb kill 1 21
	submit_program "$1" "python3 $disturbed $words_of $(state "$1")"
	has_losses "$1" "$BATS_FILE_TMPDIR/losses"
	[[ -e $mark && $(event_field "$1" fault rank) -eq 1 && $(event "$1" restart | wc -l) -eq 1 ]]
}

@test "DistributedDataParallel over two nodes: a rank is killed, and the losses are those of one host" {
	needs torch numpy
	is_undisturbed ddp
}

@test "FSDP2 over two nodes: a rank is killed, and the losses are those of one host" {
	needs torch numpy
	is_undisturbed fsdp
}

@test "JAX over two nodes: a process is killed, and the losses are those of one host" {
	needs jax numpy
	is_undisturbed jax_train
}

@test "an MPI ring over two nodes: a rank is killed, and the numbers are those of one host" {
	local ring=$BATS_FILE_TMPDIR/mpi_ring
	needs /mpicc
	mpicc -O2 -Wall -Wextra -Werror "-I$top/tests/programs/disturb" "-I$top/agent/client" -o "$ring" "$programs/mpi_ring.c"
	export OMPI_MCA_mpi_yield_when_idle=1
	# The two nodes are one host here: their files of shared memory would have the same names, and only the loopback address of a
	# node can be reached.
	export OMPI_MCA_btl=tcp,self OMPI_MCA_btl_tcp_if_include=lo
	# Slurm's PMIx plugin does not remove the session folder of a job that was killed, and muster removes nothing in TMPDIR.
	export OMPI_MCA_orte_tmpdir_base=$BATS_FILE_TMPDIR
	mkdir "$(state ring-alone)" "$(state ring)"
	launch ring-alone "$ring 6000 $(state ring-alone)" launch.launcher=local
	losses_of ring-alone >"$BATS_FILE_TMPDIR/losses"
	[[ $(wc -l <"$BATS_FILE_TMPDIR/losses") -eq 6 ]]
	disturb kill 1 3500
	submit_program ring "$ring 6000 $(state ring)"
	has_losses ring "$BATS_FILE_TMPDIR/losses"
	[[ -e $mark && $(event_field ring fault rank) -eq 1 ]]
}
