#!/usr/bin/env bats
# `muster submit` where Slurm's commands are doubles: what they are told, and what happens if they fail or lie. tests/slurm/mistakes.bats
# has the tests with a real cluster.

load ../helpers

setup_file() {
	make_data
	make_tiny_job
}

setup() {
	fakes=$BATS_TEST_TMPDIR/bin
	mkdir "$fakes"
	fake scontrol 'echo "PartitionName=main Default=YES MaxTime=UNLIMITED MaxNodes=UNLIMITED MinNodes=0 State=UP TotalNodes=4"'
	fake sinfo 'echo "main|4|idle|4|1000|gpu:2|(null)|n[1-4]"'
	fake sbatch "case \$1 in --test-only) echo 'sbatch: Job 7 to start at 2000-01-01T00:00:00 using' >&2 ;; *) cat >$BATS_TEST_TMPDIR/script; echo 7 ;; esac"
	PATH=$fakes:$PATH
}

fake() { # name commands
	printf '#!/bin/bash\n%s\n' "$2" >"$fakes/$1"
	chmod +x "$fakes/$1"
}

submit() { run "$MUSTER" submit "$tiny" job.name=sub "$@" && echo "$status: $output"; }

@test "the options of the job are lines of the script" {
	submit slurm.nodes=2 parallel.dp=2 slurm.mem=900M slurm.exclude=n4 "slurm.options=--nice=5 --spread-job" "slurm.comment=x y"
	[[ $status -eq 0 && $output == *"Slurm expects to start the job now"* ]]
	bash -n "$BATS_TEST_TMPDIR/script"
	for line in '--nodes=2' '--mem="900M"' '--exclude="n4"' '--nice="5"' '--spread-job' '--comment="x y"'; do
		grep -qxF -- "#SBATCH $line" "$BATS_TEST_TMPDIR/script"
	done
	[[ -e $(run_folder sub)/submit-1.ini ]]
}

@test "a program needs no data and no library of the built-in training" {
	printf '[job]\nname = own\nrun_dir = %s\nprogram = python3 train.py\ndevice = cuda\n[parallel]\ndp = 4\n' "$BATS_TEST_TMPDIR" >"$BATS_TEST_TMPDIR/own.ini"
	run "$MUSTER" submit "$BATS_TEST_TMPDIR/own.ini" slurm.nodes=2 slurm.gpus_per_node=2
	echo "$status: $output"
	[[ $status -eq 0 ]]
	grep -qxF -- "#SBATCH --nodes=2" "$BATS_TEST_TMPDIR/script"
	grep -q "^program = python3 train.py$" "$BATS_TEST_TMPDIR/own/submit-1.ini"
	# the job that runs is the one that was submitted
	run "$MUSTER" plan --cluster dgx-h100:2 "$BATS_TEST_TMPDIR/own/submit-1.ini"
	[[ $status -eq 0 && $output == *"4 ranks = tp 1 × dp 4"* ]]
}

# It prints its umask where it would run muster. Slurm starts it with the umask that sbatch has.
@test "the job gets the umask of the shell that submits" {
	for mask in 0022 0027 0000 0777; do
		(umask "$mask" && "$MUSTER" submit "$tiny" job.name="umask$mask")
		[[ $(umask 077 && sed 's/^exec .*/umask/' "$BATS_TEST_TMPDIR/script" | bash) == "$mask" ]]
	done
	[[ $(stat -c %a "$(run_folder umask0000)") == 700 ]]
}

@test "an account or a QOS that accounting does not permit is refused, with those that it permits" {
	fake scontrol 'case "$*" in *config*) echo "AccountingStorageEnforce = associations,limits,qos" ;; *)
		echo "PartitionName=main Default=YES MaxTime=UNLIMITED MaxNodes=UNLIMITED MinNodes=0 State=UP TotalNodes=4" ;; esac'
	fake sacctmgr "echo \"\$*\" >$BATS_TEST_TMPDIR/asked; echo 'lab||normal,high'; echo 'staff|main|normal'"
	rm -rf "$(run_folder sub)"
	submit slurm.account=other
	[[ $status -eq 3 && $output == *"[slurm] account = other: the cluster's accounting does not permit it to you; your accounts are lab, staff; use another account"* ]]
	[[ $(cat "$BATS_TEST_TMPDIR/asked") == "--readonly --noheader --parsable2 show association where user=$(id -un) format=account,partition,qos" ]]
	submit slurm.account=staff slurm.qos=high
	[[ $status -eq 3 && $output == *"[slurm] qos = high: "*"you may use qos normal; use another qos"* ]]
	[[ ! -e $(run_folder sub) ]]
	submit slurm.account=lab slurm.qos=high
	[[ $status -eq 0 ]]
	# Without an answer sbatch decides.
	fake sacctmgr 'echo "sacctmgr: error: slurm_persist_conn_open_without_init: failed to open persistent connection" >&2; exit 1'
	submit slurm.account=other
	[[ $status -eq 0 ]]
}

@test "the job does not inherit the variables of a step, an array or a heterogeneous job" {
	fake sbatch "[[ \$1 == --test-only ]] || env >$BATS_TEST_TMPDIR/env; echo 7"
	SLURM_STEP_NUM_TASKS=2 SLURM_STEP_ID=0 SLURM_NTASKS=2 SLURM_HET_SIZE=2 SLURM_ARRAY_TASK_ID=3 PMIX_RANK=1 SLURM_CONF_MINE=x MUSTER_AUTH=secret submit
	[[ $status -eq 0 ]]
	[[ -z $(grep -E '^(SLURM_(STEP|NTASKS|HET|ARRAY)|PMIX)' "$BATS_TEST_TMPDIR/env") ]]
	[[ $(grep -cE '^(SLURM_CONF_MINE=x|MUSTER_AUTH=secret)$' "$BATS_TEST_TMPDIR/env") -eq 2 ]]
}

@test "no value becomes a command of the script" {
	for value in '$(touch mark)' '`touch mark`' '";touch mark;"' "';touch mark;'" 'x\'; do
		for key in comment options mem partition exclude mail_user gres; do
			submit "slurm.$key=$value"
			[[ $status -eq 2 && ! -e mark && ! -e $BATS_TEST_TMPDIR/script ]]
		done
	done
}

@test "--help lists the keys with the options of sbatch" {
	run "$MUSTER" submit --help
	for line in "  slurm.nodes            --nodes" "  slurm.mail_user        --mail-user" "  job.name               --job-name"; do
		grep -qxF -- "$line" <<<"$output"
	done
}

@test "a refusal by sbatch leaves no run folder, and keeps one that was there" {
	fake sbatch 'echo "sbatch: error: Batch job submission failed: Invalid license specification" >&2; exit 1'
	rm -rf "$(run_folder sub)"
	submit
	[[ $status -eq 3 && $output == *"Invalid license specification; check [slurm] licenses"* ]]
	[[ ! -e $(run_folder sub) ]]
	mkdir -p "$(run_folder sub)/ckpt"
	submit
	[[ $status -eq 3 && -d $(run_folder sub)/ckpt ]]
	[[ ! -e $(run_folder sub)/submit-1.ini ]]
	rm -rf "$(run_folder sub)"
}

@test "without Slurm's commands it says so" {
	rm "$fakes"/*
	ln -s "$(command -v cat)" "$fakes"
	PATH=$fakes submit
	[[ $status -eq 3 && $output == *"scontrol: cannot be executed"*"are Slurm's commands in PATH?"* ]]
	[[ ! -e $(run_folder sub) ]]
}

@test "answers that say nothing refuse nothing" {
	for answer in 'echo' 'head -c 3000000 /dev/zero' 'echo "PartitionName=main Default=YES TotalNodes=-3 MaxTime=never State="' \
		'yes "main|9|idle|4|1|||n[1-99999999]" | head -n 50000'; do
		fake scontrol "$answer"
		fake sinfo "$answer"
		submit
		[[ $status -eq 0 ]]
	done
	fake sbatch 'case $1 in --test-only) exit 1 ;; *) cat >/dev/null; echo 8 ;; esac'
	submit
	[[ $status -eq 0 && $output == *"no reason is known"* ]]
}

@test "a controller that is away is not the job's fault" {
	fake scontrol 'echo "slurm_load_partitions error: Unable to contact slurm controller (connect failure)" >&2; exit 1'
	submit
	[[ $status -eq 3 && $output == *"Slurm's controller does not answer, so the job was neither checked nor submitted; submit again when"* ]]
}

@test "a run folder that other nodes cannot see is a warning" {
	[[ $(stat -f -c %T /dev/shm) == tmpfs ]] || skip "/dev/shm is no tmpfs"
	local dir
	dir=$(mktemp -d /dev/shm/k.XXXXXX)
	submit slurm.nodes=2 parallel.dp=2 "job.run_dir=$dir/runs"
	[[ $status -eq 0 && $output == *"warning: [job] run_dir = $dir/runs is on a file system of this host alone (tmpfs)"* ]]
	submit slurm.nodes=1 "job.run_dir=$dir/runs"
	rm -rf "$dir"
	[[ $status -eq 0 && $output != *warning* ]]
}
