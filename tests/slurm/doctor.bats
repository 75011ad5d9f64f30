#!/usr/bin/env bats
# `muster doctor` in an allocation of a real Slurm checks every node, and names the node of each finding.

load ../helpers

setup_file() { start_cluster 3; }
teardown_file() { stop_cluster; }

setup() {
	[[ -z $lacking ]] || skip "$lacking"
}

allocated() {
	run salloc --quiet --nodes=3 --exclusive env LD_LIBRARY_PATH="$doubles" "$@"
	echo "$output"
}

said() { tr -s ' \n' ' ' <<<"$output"; }

@test "nodes that have what they need pass" {
	allocated NVML_DOUBLE=none "$MUSTER" doctor
	[[ $status -eq 0 && ${lines[0]} == "muster doctor: n1 and 2 other nodes" && ${lines[-1]} == *" 0 failures; 3 of 3 nodes can be used" ]]
	[[ $output == *"ok    Slurm  "* && $output == *"ok    slurmctld  "* && $output == *"ok    MUNGE                   credentials can be made"* ]]
	[[ $output == *"ok    srun --mpi=pmix         available"* ]]
}

@test "each finding names its node" {
	allocated NVML_DOUBLE=dgx-h100 NVML_DOUBLE_n2=dgx-h100,remap-failed=1 NVML_DOUBLE_n3=dgx-h100,hang "$MUSTER" doctor --quiet
	[[ $status -eq 3 && $(said) == *"fail GPU1 (0000:36:00.0) n2: a row of its memory"* && $(said) == *"fail gpus n3: the check did not answer within 15 s"* ]]
	[[ ${lines[-1]} == *"1 of 3 nodes can be used" ]]
	allocated NVML_DOUBLE=dgx-h100 NVML_DOUBLE_n2=dgx-h100,hot=1 "$MUSTER" doctor --json
	[[ $status -eq 0 && $(python3 -c 'import json,sys; d=json.load(sys.stdin); print([(n["name"], n["level"]) for n in d["nodes"] if any(f["object"].startswith("GPU1 ") for f in n["findings"])])' \
		<<<"$output") == "[('n2', 'warn')]" ]]
}

@test "a cluster that does not answer is reported" {
	run env SLURM_JOB_ID=4711 SLURM_JOB_NODELIST=n[1-3] SLURM_CONF=/no/such/slurm.conf "$MUSTER" doctor --quiet
	echo "$output"
	[[ $status -eq 3 && $output != *"other node"* && $output != *"nodes can be used"* && $(said) == *"fail nodes they cannot be checked: srun failed"* && $(said) == *"fail Slurm "* ]]
}
