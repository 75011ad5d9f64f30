#!/usr/bin/env bats
# Checkpoints on nodes that do not see each other's folders: a real Slurm with four nodes on the loopback address, and a folder for
# each of them by the node's name.

load ../helpers
load jobs

setup_file() {
	start_cluster 4
	[[ -z $lacking ]] || return 0
	make_data
	make_tiny_job
	local=$BATS_FILE_TMPDIR/nodes
	words="slurm.gpus_per_node=2 slurm.cpus_per_task=1 restart.backoff=0.1 job.steps=600 checkpoint.every=100 checkpoint.local=$local/%N/ckpt checkpoint.local_every=4"
	# A newer copy in the memory of another node must not take the folders' place.
	words+=" checkpoint.memory_every=0"
	export local words
	run_tiny alone job.steps=600 parallel.tp=2 parallel.pp=2 launch.launcher=local
}

teardown_file() { stop_cluster; }
setup() { [[ -z $lacking ]] || skip "$lacking"; }
teardown() { end_jobs; }

# has_same_losses RUN: the losses of the undisturbed run.
has_same_losses() {
	run "$losses" compare "$(run_folder alone)/metrics.jsonl" "$(run_folder "$1")/metrics.jsonl" 1e-5
	echo "$output"
	[[ $status -eq 0 ]]
}

# saved RUN EVENT STEP: a checkpoint after this step was committed; $saved is its step. A checkpoint may be left out while another one
# is being written, so that the run's step alone does not tell.
saved() {
	saved=$(event_field "$1" "$2" step) && [[ $saved -ge $3 ]]
}

@test "a rank is killed: two nodes hold the checkpoint together, and the run goes back to it" {
	submit both parallel.tp=2 parallel.pp=2 slurm.nodes=2
	wait_for 60 saved both ckpt-local 101
	killed_at=$(last_step both)
	kill -9 "$(agent_pid both 3)"
	ends_with 0
	has_same_losses both
	# It lost a few steps, and not those since the checkpoint of step 100 in the shared folder.
	at=$(event both ready | sed -n 2p | grep -oP '"step":\K[0-9]+')
	figure "killed after step $killed_at, continued from step $at, a checkpoint of step $saved was there"
	[[ $at -ge $saved ]]
	[[ -d $local/n1/ckpt/step-00000600 && -d $local/n2/ckpt/step-00000600 ]]
	[[ -e $local/n1/ckpt/step-00000600/shard-00000.safetensors && ! -e $local/n1/ckpt/step-00000600/shard-00003.safetensors ]]
}

@test "a node dies: its part is lost, and a spare goes on from the shared folder" {
	submit spare parallel.tp=2 parallel.pp=2 slurm.nodes=2 slurm.spares=1 checkpoint.local="$local/%N/spare"
	wait_for 60 saved spare ckpt 100
	kill_host n2
	ends_with 0
	has_same_losses spare
	at=$(event spare ready | sed -n 2p | grep -oP '"step":\K[0-9]+')
	[[ $((at % 100)) -eq 0 && $at -ge $saved ]]
}
