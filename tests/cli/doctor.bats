#!/usr/bin/env bats
# `muster doctor` finds each simulated fault, and names its object and a remedy. It finds nothing on a complete machine, and never
# hangs.

load ../helpers

setup_file() {
	make_data
	make_tiny_job
	doubles=$(dirname "$(realpath "$MUSTER")")/tests/doubles
	export doubles
	# A folder with an agent and all that CUDA needs.
	whole=$BATS_FILE_TMPDIR/whole
	export whole
	mkdir -p "$whole"
	cp "$(dirname "$(realpath "$MUSTER")")/muster-agent" "$whole/"
	for name in libmuster-cuda.so libcuda.so.1 libcublasLt.so.13 libnccl.so.2 libcudnn.so.9; do
		cp "$doubles/cuda.so" "$whole/$name"
	done
	cp "$doubles/libnvidia-ml.so.1" "$whole/"
}

# Runs it as on a machine of that name, with a driver and libraries, outside any allocation.
doctor_as() { # machine word...
	local machine=$1
	shift
	run env -u SLURM_JOB_ID -u CUDA_VISIBLE_DEVICES HWLOC_XMLFILE="$BATS_TEST_DIRNAME/topo.xml" NVML_DOUBLE="$machine" LD_LIBRARY_PATH="$whole" \
		MUSTER_AGENT="$whole/muster-agent" "$MUSTER" doctor "$@"
	echo "$output"
}

# Prints the page without its line breaks and indentation.
said() { tr -s ' \n' ' ' <<<"$output"; }

@test "this host, without a GPU: nothing fails" {
	run env -u SLURM_JOB_ID "$MUSTER" doctor
	echo "$output"
	[[ $status -eq 0 && ${lines[0]} == "muster doctor: "* && ${lines[-1]} == *" 0 failures" ]]
	[[ $output == *"ok    muster-agent  "* && $output == *"ok    BLAS  "* && $output == *"ok    run folder  "* ]]
}

@test "a complete machine: versions, GPUs, distances to adapters" {
	doctor_as pair
	[[ $status -eq 0 && ${lines[-1]} == *" 0 warnings, 0 failures" ]]
	[[ $output == *"ok    CUDA driver             supports CUDA 13.0"* && $output == *"ok    NCCL                    2.28.3 (libnccl.so.2)"* ]]
	[[ $output == *"ok    cuDNN                   9.19.0 (libcudnn.so.9)"* ]]
	[[ $output == *"ok    cublasLt                13.1.0"* && $output == *"ok    libmuster-cuda.so       can be loaded; built with CUDA 13.0"* ]]
	[[ $(said) == *"ok 4 GPUs NVIDIA A100 80GB PCIe, 2 NVLinks each, 79 GiB free, driver 580.65.06"* ]]
	[[ $(said) == *"1 GPU with one on one PCIe switch (PIX)"* && $(said) == *"1 GPU with one on the same NUMA domain (NODE)"* ]]
}

@test "each fault of a GPU is found, with its remedy" {
	local row
	for row in "lost=2|fail|GPU2|GPU is lost" "remap-failed=2|fail|GPU2 (0000:39:00.0)|could not be remapped" "prohibited=2|fail|GPU2 (|-c DEFAULT" \
		"mig-empty=2|fail|GPU2 (|no instance" "remap-pending=2,uncorrected=2|fail|GPU2 (|--gpu-reset -i 2" "uncorrected=2|warn|GPU2 (|3 uncorrected" \
		"hot=2|warn|GPU2 (|89 °C" "brake=2|warn|GPU2 (|power brake" "capped=2|warn|GPU2 (|400 W" "narrow=2|warn|GPU2 (|8 of 16 lanes" \
		"link-down=2|warn|GPU2 (|17 of 18 NVLinks are up, but GPUs of the same model have 18: link 2 is down" "link-off=2|warn|GPU2 (|17 of 17 NVLinks are up, but GPUs of the same model have 18 →" "recover=2|warn|GPU2 (|nvlink -e -i 2" "ecc-off=2|warn|GPU2 (|ECC is off" \
		"busy=2|warn|GPU2 (|pid 4711 (somebody1), 20 GiB" "mig=2|warn|GPU2 (|2 instances" "no-links|warn|NVLink|fabricmanager"; do
		IFS='|' read -r word level object says <<<"$row"
		doctor_as "dgx-h100,$word" --quiet
		[[ $status -eq $([[ $level == fail ]] && echo 3 || echo 0) && $output == *"$level  $object"* && $(said) == *"$says"* && $output == *"→ "* ]]
	done
}

@test "a node that is back is checked by one line, which names what is wrong" {
	local needs='{"job":false,"cuda":true,"slurm":false,"ranks":8,"memory":0,"host_memory":0,"checkpoint":0,"run_dir":"","ckpt_dir":"","data":"","interface":"","trouble":""}'
	doctor_as dgx-h100 --node "$needs"
	[[ $status -eq 0 && $output == "muster-check: $(hostname): ok" ]]
	doctor_as dgx-h100,lost=2 --node "$needs"
	[[ $status -eq 0 && ${#lines[@]} -eq 1 && $output == "muster-check: $(hostname): GPU2: "*"GPU is lost"*"; "* ]]
	# One GPU fewer than the ranks of a node need.
	doctor_as pair --node "$needs"
	[[ $output == "muster-check: $(hostname): GPUs: 4 "*"8 ranks"* ]]
	run "$MUSTER" doctor --node '{"rubbish":1}'
	[[ $status -eq 2 && $output == *"--node"* ]]
}

@test "a driver that hangs, crashes, fails or gives wrong answers is a finding, in time" {
	local before=$SECONDS
	doctor_as dgx-h100,hang --quiet
	[[ $status -eq 3 && $(said) == *"fail gpus the check did not answer within 15 s"* && $((SECONDS - before)) -lt 25 ]]
	doctor_as dgx-h100,crash --quiet
	[[ $status -eq 3 && $(said) == *"fail gpus the check was ended by signal 11"* ]]
	doctor_as dgx-h100,init --quiet
	[[ $status -eq 0 && $(said) == *"warn GPUs NVIDIA driver: start"* ]]
	doctor_as dgx-h100,stuck --quiet "$tiny" job.device=cuda
	[[ $status -eq 3 && $(said) == *"fail gpus the check did not answer within 15 s"* && $(said) == *"fail job the job cannot be planned: the check did not answer within 20 s"* ]]
	for trouble in wild endless rude mute; do
		doctor_as dgx-h100,$trouble --json
		python3 -m json.tool <<<"$output" >/dev/null
	done
}

@test "libraries that are missing or too old are found" {
	local bare=$BATS_TEST_TMPDIR/bare
	cp -r "$whole" "$bare"
	CUDA_DOUBLE=driver=12080 doctor_as pair --quiet
	[[ $status -eq 0 && $(said) == *"warn CUDA driver it supports CUDA 12.8, but muster was built with CUDA 13.0"* ]]
	CUDA_DOUBLE=driver=12080 doctor_as pair --quiet "$tiny" job.device=cuda
	[[ $status -eq 3 && $(said) == *"fail CUDA driver it supports CUDA 12.8"* ]]
	CUDA_DOUBLE=nccl=21405 doctor_as pair --quiet
	[[ $status -eq 0 && $(said) == *"warn NCCL libnccl.so.2 is version 2.14.5, but muster needs 2.18.0"* ]]
	CUDA_DOUBLE=nccl=2803 doctor_as pair --quiet
	[[ $(said) == *"warn NCCL libnccl.so.2 is version 2.8.3, but muster needs 2.18.0"* ]]
	CUDA_DOUBLE=cudnn=91001 doctor_as pair --quiet "$tiny" job.device=cuda
	[[ $status -eq 0 && $(said) != *cuDNN* ]]
	CUDA_DOUBLE=cudnn=91001 doctor_as pair --quiet "$tiny" job.device=cuda precision.dtype=bf16
	[[ $status -eq 0 && $(said) == *"warn cuDNN libcudnn.so.9 is version 9.10.1, but muster needs 9.15.1"* ]]
	whole=$bare
	: >"$bare/libnvidia-ml.so.1"
	doctor_as pair --quiet
	[[ $status -eq 0 && $(said) == *"warn GPUs NVIDIA driver: its library cannot be loaded: "* ]]
	cp "$doubles/libnvidia-ml.so.1" "$bare/"
	rm "$bare/libmuster-cuda.so" "$bare/libcuda.so.1"
	doctor_as pair --quiet "$tiny" job.device=cuda
	[[ $status -eq 3 && $(said) == *"fail libmuster-cuda.so it is not in the folder of muster-agent"* ]]
	echo rubbish >"$bare/libmuster-cuda.so"
	doctor_as pair --quiet
	[[ $status -eq 0 && $(said) == *"warn libmuster-cuda.so"*"build it on a node like this one"* ]]
	ln -sf /bin/true "$bare/muster-agent"
	doctor_as pair --quiet
	[[ $status -eq 3 && $(said) == *"fail muster-agent $bare/muster-agent is another program"* ]]
	rm "$bare/muster-agent"
	doctor_as pair --quiet
	[[ $status -eq 3 && $(said) == *"fail muster-agent"* ]]
}

@test "with a job, what the job needs and does not get is found" {
	run env -u SLURM_JOB_ID "$MUSTER" doctor "$tiny"
	echo "$output"
	[[ $status -eq 0 && $(said) == *"ok data $data can be read"* && $(said) == *"ok job "*"of its memory"* ]]
	run env -u SLURM_JOB_ID "$MUSTER" doctor --quiet "$tiny" data.path=/no/such job.run_dir=/proc/self/none network.interface=eth99 model.layers=4000 model.hidden=4096 model.heads=32
	echo "$output"
	[[ $status -eq 3 && $(said) == *"fail data /no/such.idx: no such file"* && $(said) == *"fail run folder "* && $(said) == *"fail eth99"* ]]
	[[ $(said) == *"fail job "* ]]
	run env -u SLURM_JOB_ID "$MUSTER" doctor --quiet "$tiny" job.run_dir="$tiny"
	[[ $status -eq 3 && $(said) == *"fail run folder $tiny is not a folder"* ]]
	doctor_as dgx-h100,full=2,remap-failed=1 --quiet "$tiny" job.device=cuda model.vocab=50304 model.hidden=2048 model.layers=24 model.heads=16 batch.global=8
	[[ $status -eq 3 && $(said) == *"fail GPU2 (0000:39:00.0) 1.0 GiB of 80 GiB are free, but a rank of this job needs"* ]]
	[[ $(said) == *"fail GPUs 6 of 8 can be used, but the job has 8 ranks on this node"* ]]
}

@test "GPUs that CUDA_VISIBLE_DEVICES hides are left out" {
	run env -u SLURM_JOB_ID NVML_DOUBLE=dgx-h100,remap-failed=3 CUDA_VISIBLE_DEVICES=0,1 LD_LIBRARY_PATH="$doubles" "$MUSTER" doctor
	echo "$output"
	[[ $status -eq 0 && $(said) == *"ok 2 GPUs NVIDIA H100"* && $(said) == *"CUDA_VISIBLE_DEVICES hides 6"* ]]
}

@test "--json prints JSON; wrong arguments are refused" {
	doctor_as dgx-h100,hot=1 --json
	[[ $status -eq 0 && $(python3 -c 'import json,sys; d=json.load(sys.stdin); print(d["format"], d["level"], len(d["nodes"]), [f["object"] for f in d["nodes"][0]["findings"] if f["level"]=="warn" and f["check"]=="gpus"])' \
		<<<"$output") == "muster doctor 1 warn 1 ['GPU1 (0000:36:00.0)']" ]]
	[[ $(python3 -c 'import json,sys; g=json.load(sys.stdin)["nodes"][0]["facts"]["gpus"]; d=g["gpus"][1]; print(g["driver"], d["temperature"], d["slow"], d["ecc"], d["retired"], d["processes"])' \
		<<<"$output") == "580.65.06 89 ['thermal'] True None []" ]]
	run "$MUSTER" doctor --jsn
	[[ $status -eq 2 && $output == *'"--jsn" is not an option'* ]]
	run "$MUSTER" doctor job.device=cuda
	[[ $status -eq 2 && $output == *"a job file is missing"* ]]
	run "$MUSTER" doctor /no/such.ini
	[[ $status -eq 2 && $output == *"/no/such.ini"* ]]
	run "$MUSTER" doctor "$tiny" --report x
	[[ $status -eq 2 && $output == *'"--report" is not an option'* ]]
	run "$MUSTER" doctor --report '{"rubbish":1}'
	[[ $status -eq 2 && $output == *"--report"* ]]
	run bash -c '"$1" doctor --quiet >/dev/full' - "$MUSTER"
	[[ $status -eq 1 && $output == "muster: cannot write to standard output: No space left"* ]]
	run "$MUSTER" doctor --help
	[[ $status -eq 0 && $output == *"EXIT STATUS"*"CHECKS"*"gpus "* ]]
}

# run_on_gpus NAME FAULT: runs a job on 4 GPUs with this fault. Its agents end where they need CUDA.
run_on_gpus() {
	run env -u SLURM_JOB_ID NVML_DOUBLE="pair,$2" LD_LIBRARY_PATH="$doubles" "$MUSTER" run --quiet "$tiny" job.device=cuda parallel.dp=4 \
		model.hidden=2048 model.heads=16 model.layers=12 restart.backoff=0 job.name="$1" </dev/null
	echo "$output"
}

@test "a run on a GPU that is full ends before its first step, by node and device" {
	run_on_gpus full full=1
	[[ $status -eq 1 && $output == *"device 1, GPU1 (0000:36:00.0): 1.0 GiB of its 80 GiB are free, but this rank needs"* ]]
	[[ $output == *"a restart does not fix"* ]]
	[[ $(grep -c '"event":"generation-start"' "$BATS_FILE_TMPDIR/full/events.jsonl") -eq 1 ]]
}

@test "a GPU that is broken is named and taken out, and the run is planned again for the others" {
	run_on_gpus broken remap-failed=2
	[[ $output == *"device 2, GPU2 (0000:39:00.0): a row of its memory is broken"* ]]
	[[ $output == *"decision   replan: "*" on 3 of 3 devices"* ]]
	# The agents of the next generation have passed the preflight: none of them has that GPU.
	[[ $(grep -c "a row of its memory is broken" <<<"$output") -eq 1 && $output == *"(open model)"* ]]
}

@test "a driver that hangs in an agent is named as the place where it hangs" {
	run env -u SLURM_JOB_ID NVML_DOUBLE=pair,hang LD_LIBRARY_PATH="$doubles" timeout 120 "$MUSTER" run --quiet "$tiny" job.device=cuda parallel.dp=2 job.name=hung \
		restart.hang_timeout=2 restart.max_restarts=0 </dev/null
	echo "$output"
	[[ $status -ne 0 && $status -ne 124 && $output == *"before its first step (preflight): no rank made progress"* ]]
}

# Doubles of Slurm's commands.
slurm_commands() { # folder, of sinfo
	mkdir -p "$1"
	printf '#!/bin/sh\n%s\n' "$2" >"$1/sinfo"
	printf '#!/bin/sh\necho "Slurmctld(primary) at c1 is $PRIMARY"\necho "Slurmctld(backup) at c2 is DOWN"\n' >"$1/scontrol"
	printf '#!/bin/sh\nprintf "MPI plugin types are...\\n\\tnone\\n\\tpmix\\n" >&2\n' >"$1/srun"
	chmod +x "$1"/*
}

@test "a controller that is down is a warning if another one answers" {
	slurm_commands "$BATS_TEST_TMPDIR/bin" "echo slurm 24.05"
	PRIMARY=UP PATH=$BATS_TEST_TMPDIR/bin:$PATH run env -u SLURM_JOB_ID "$MUSTER" doctor
	echo "$output"
	[[ $status -eq 0 && $(said) == *"warn slurmctld Slurmctld(primary) at c1 is UP Slurmctld(backup) at c2 is DOWN"* && $(said) == *"ok srun --mpi=pmix available"* ]]
	PRIMARY=DOWN PATH=$BATS_TEST_TMPDIR/bin:$PATH run env -u SLURM_JOB_ID "$MUSTER" doctor
	[[ $status -eq 3 && $(said) == *"fail slurmctld "* ]]
}

@test "when it is ended, the processes that it started end" {
	local pid=$BATS_TEST_TMPDIR/pid doctor
	slurm_commands "$BATS_TEST_TMPDIR/bin" "echo \$\$ >$pid; exec sleep 300"
	PATH=$BATS_TEST_TMPDIR/bin:$PATH env -u SLURM_JOB_ID "$MUSTER" doctor >/dev/null 3>&- &
	doctor=$!
	until [[ -s $pid ]]; do sleep 0.05; done
	kill "$doctor"
	wait "$doctor" || true
	wait_for 60 has_ended "$(<"$pid")" || {
		kill "$(<"$pid")"
		return 1
	}
}
