#!/usr/bin/env bats
# `muster topo` in an allocation of a real Slurm: four nodes on two switches. A double of NVIDIA's library provides the GPUs.

load ../helpers

setup_file() {
	CLUSTER_TOPOLOGY=$'SwitchName=leaf0 Nodes=n[1-2]\nSwitchName=leaf1 Nodes=n[3-4]\nSwitchName=spine Switches=leaf[0-1]' start_cluster 4
}

teardown_file() { stop_cluster; }

setup() {
	[[ -z $lacking ]] || skip "$lacking"
	export XDG_CACHE_HOME=$BATS_TEST_TMPDIR/cache
}

# allocated VARIABLE=VALUE... COMMAND...: runs it in an allocation of all nodes.
allocated() {
	run salloc --quiet --nodes=4 --exclusive env "$@"
	echo "$output"
}

# with_gpus: the same, with the GPUs of NVML_DOUBLE=MACHINE on every node, or of NVML_DOUBLE_<node>=MACHINE on that node.
with_gpus() { allocated LD_LIBRARY_PATH="$doubles" "$@"; }

@test "an allocation without drivers shows switches, nodes, and GPUs that only Slurm reports" {
	allocated "$MUSTER" topo
	[[ $status -eq 0 && ${lines[0]} == "slurm: 4 nodes, "*" 3 switches" && ${lines[1]} == "figures: each node, examined in one job step" ]]
	[[ $output == *"leaf0  2 nodes"*"n[1-2]  2 × slurm"*"leaf1  2 nodes"*"n[3-4]  2 × slurm"* ]]
	[[ $output == *"2 GPUs that Slurm reports and no driver shows"* && $output != *"outliers"* ]]
}

@test "equal nodes are one kind" {
	with_gpus NVML_DOUBLE=dgx-1 "$MUSTER" topo
	[[ $status -eq 0 && ${lines[0]} == "slurm: 4 nodes, 32 devices, 3 switches" ]]
	[[ $output == *"4 nodes of 8 × V100-SXM2-32GB"* && $output != *"outliers"* ]]
}

@test "nodes that differ from the others are named with what differs" {
	with_gpus NVML_DOUBLE=dgx-1 NVML_DOUBLE_n3=dgx-1,weak=0-3 "$MUSTER" topo
	[[ $status -eq 0 && $output == *"outliers"*"n3: NVLink GPU0-GPU3 has 1 lane where others have 2"* ]]
	with_gpus NVML_DOUBLE=pair NVML_DOUBLE_n2=pair,lost=2 "$MUSTER" topo
	[[ $status -eq 0 && $output == *"n2: 3 GPUs where 3 similar nodes have 4: GPU at 0000:39:00.0 is missing"* ]]
	with_gpus NVML_DOUBLE=dgx-h100 NVML_DOUBLE_n4=dgx-h100,init "$MUSTER" topo
	[[ $status -eq 0 && $output == *"n4: no GPU where 3 similar nodes have 8"* ]]
}

@test "a job that has some of the GPUs shows those" {
	run salloc --quiet --nodes=4 --gpus-per-node=2 env LD_LIBRARY_PATH="$doubles" NVML_DOUBLE=dgx-1 "$MUSTER" topo
	echo "$output"
	[[ $status -eq 0 && ${lines[0]} == "slurm: 4 nodes, 8 devices, 3 switches" && $output == *"4 nodes of 2 × V100"* ]]
}

@test "NVLink fabrics over several nodes are domains" {
	with_gpus NVML_DOUBLE=gb200 NVML_DOUBLE_n3=gb200,clique=2 NVML_DOUBLE_n4=gb200,clique=2 "$MUSTER" topo
	[[ $status -eq 0 && $output == *"leaf0"*"NVLink domain 0  2 nodes, 8 devices"*"n[1-2]"*"leaf1"*"NVLink domain 1  2 nodes, 8 devices"*"n[3-4]"* ]]
	with_gpus NVML_DOUBLE=gb200 "$MUSTER" topo --json
	[[ $status -eq 0 && $(grep -c '"domain": 0' <<<"$output") -ge 1 && $output != *'"domain": 1'* ]]
}

@test "the nodes' answers are kept in a private file, and used when that is asked for" {
	with_gpus NVML_DOUBLE=dgx-1 "$MUSTER" topo
	[[ $status -eq 0 ]]
	local kept
	kept=$(echo "$XDG_CACHE_HOME"/muster/topo-*.json)
	[[ $(stat -c %a "$kept") == 600 && $(stat -c %a "$XDG_CACHE_HOME/muster") == 700 ]]
	# The GPUs change: the kept answers do not have the new ones, a new look does.
	with_gpus NVML_DOUBLE=pair "$MUSTER" topo --cached
	[[ $status -eq 0 && ${lines[1]} == "figures: each node, examined before; none has rebooted since" && $output == *"8 × V100"* ]]
	with_gpus NVML_DOUBLE=pair "$MUSTER" topo
	[[ $status -eq 0 && ${lines[1]} == "figures: each node, examined in one job step" && $output == *"4 × A100-PCIe-80GB"* ]]
	# An allocation of other nodes has answers of its own.
	run salloc --quiet --nodes=4 --ntasks-per-node=1 env LD_LIBRARY_PATH="$doubles" NVML_DOUBLE=dgx-1 "$MUSTER" topo --cached
	echo "$output"
	[[ $status -eq 0 && ${lines[1]} == "figures: each node, examined in one job step" ]]
	# A damaged file is reported, and the nodes are asked.
	truncate -s 300 "$kept"
	with_gpus NVML_DOUBLE=dgx-1 "$MUSTER" topo --cached
	[[ $status -eq 0 && ${lines[1]} == "figures: each node, examined in one job step; the stored result is damaged and was not used: $kept"* ]]
	with_gpus NVML_DOUBLE=dgx-1 "$MUSTER" topo --cached
	[[ $status -eq 0 && ${lines[1]} == "figures: each node, examined before"* ]]
}

@test "nodes that cannot be asked are shown as Slurm describes them, and this is reported" {
	mkdir "$BATS_TEST_TMPDIR/bin"
	ln -s "$(command -v scontrol)" "$BATS_TEST_TMPDIR/bin"
	allocated PATH="$BATS_TEST_TMPDIR/bin" "$(realpath "$MUSTER")" topo
	[[ $status -eq 0 && ${lines[0]} == "slurm: 4 nodes, "*" 3 switches" ]]
	[[ ${lines[1]} == "figures: Slurm; the nodes could not be examined: srun: cannot be executed"* ]]
	[[ ! -e $XDG_CACHE_HOME ]]
	# The node's features give the model of the GPUs.
	scontrol update nodename=n[1-4] AvailableFeatures=ib,h100 ActiveFeatures=ib,h100
	allocated PATH="$BATS_TEST_TMPDIR/bin" "$(realpath "$MUSTER")" topo
	scontrol update nodename=n[1-4] AvailableFeatures= ActiveFeatures=
	[[ $status -eq 0 && $output == *"4 nodes of 2 × H100-SXM5-80GB"*"missing   everything that Slurm does not report: the node was not examined"* ]]
	# There is no controller either.
	mkdir "$BATS_TEST_TMPDIR/none"
	allocated PATH="$BATS_TEST_TMPDIR/none" "$(realpath "$MUSTER")" topo
	[[ $status -eq 0 && ${lines[0]} == "slurm: 4 nodes, "*" devices" ]]
	# A job step that fails, one with an unknown answer, and one silent node.
	printf '#!/bin/sh\necho srun: error: the step is not for you >&2\nexit 1\n' >"$BATS_TEST_TMPDIR/bin/srun"
	chmod +x "$BATS_TEST_TMPDIR/bin/srun"
	allocated PATH="$BATS_TEST_TMPDIR/bin" "$(realpath "$MUSTER")" topo
	[[ $status -eq 0 && ${lines[1]} == *"the nodes could not be examined: srun failed: srun: error: the step is not for you" ]]
	printf '#!/bin/sh\n%s "$@" | %s -v "muster-topo n3 "\n' "$(command -v srun)" "$(command -v grep)" >"$BATS_TEST_TMPDIR/bin/srun"
	allocated PATH="$BATS_TEST_TMPDIR/bin" LD_LIBRARY_PATH="$doubles" NVML_DOUBLE=dgx-1 "$(realpath "$MUSTER")" topo
	[[ $status -eq 0 && ${lines[1]} == "figures: each node, examined in one job step; n3 did not answer: what Slurm reports of it" ]]
	[[ $output == *"n3: no GPU where 3 similar nodes have 8"* ]]
}

@test "a plan for GPUs uses those of the allocation, and the kept answers" {
	make_data
	make_tiny_job
	with_gpus NVML_DOUBLE=dgx-1 "$MUSTER" topo
	with_gpus NVML_DOUBLE=none "$MUSTER" plan "$tiny" job.device=cuda parallel.dp=8
	[[ $status -eq 0 && $output == *V100* ]]
	# A plan for the CPU asks no node.
	rm -r "$XDG_CACHE_HOME"
	with_gpus NVML_DOUBLE=dgx-1 "$MUSTER" plan "$tiny" parallel.dp=8
	[[ $status -eq 0 && $output != *V100* && ! -e $XDG_CACHE_HOME ]]
}
