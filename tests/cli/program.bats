#!/usr/bin/env bats
# Programs of the user: what muster prints and records of one that reports nothing, of one that reports its steps, and of one that
# fails, and which commands say that they know nothing of it.

load ../helpers

setup() {
	cd "$BATS_TEST_TMPDIR"
	command -v python3 >/dev/null || skip "there is no python3"
	cat >steps.py <<-'PY'
		"""Reports 6 steps, with losses if there is an argument. Rank 0 saves every second one, and all continue from the last one."""
		import os, sys, time
		import muster_client

		rank = os.environ["RANK"]
		saved = "saved"
		first = int(open(saved).read()) if os.path.exists(saved) else 0
		for n in range(first + 1, 7):
		    time.sleep(0.02)
		    values = {"loss": 3.0 / n, "tokens": 1000} if len(sys.argv) > 1 else {}
		    muster_client.step(n, **values)
		    if n % 2 == 0 and rank == "0":
		        with open(saved, "w") as out:
		            out.write(str(n))
		        muster_client.checkpoint_saved(saved, n)
		    if n == 5 and rank == "0" and os.path.exists("fail"):
		        os.remove("fail")
		        sys.exit("this rank fails once")
	PY
}

# Runs the program on two cores of this host.
launch() { run "$MUSTER" run -n 2 job.device=cpu restart.backoff=0 "$@"; }

# No view of the run shows a number that nobody knows.
views() { # run
	"$MUSTER" ls runs
	"$MUSTER" status "$1" || true
	"$MUSTER" status --json "$1" || true
	"$MUSTER" events "$1"
	"$MUSTER" report "$1" >/dev/null
	sed 's/<script.*//; s/<[^>]*>/ /g' "runs/$1/report.html"
}

knows_nothing_else() { # text
	echo "$1"
	[[ ! $1 =~ (^|[^a-z])nan && $1 != *"0/0"* && $1 != *"of 0 is done"* && $1 != *"step 0 s"* && $1 != *"predicted 0"* && $1 != *"inf"[,\ ]* ]]
}

@test "a program is started once per task, and what it prints is shown" {
	launch -- sh -c 'echo "hello from $RANK of $WORLD_SIZE"'
	[[ $status -eq 0 && $output == *"hello from 0 of 2"* && $output != *"hello from 1"* && $output == *"2 tasks ended with status 0"* ]]
	grep -q "hello from 1 of 2" runs/sh/logs/*-1.log
	launch program.show=all job.name=all -- sh -c 'echo "hello from $RANK"'
	[[ $output == *"[0] hello from 0"* && $output == *"[1] hello from 1"* ]]
}

@test "of a program that reports nothing no step, loss or goodput is shown" {
	launch -- sh -c 'exit 0'
	[[ $status -eq 0 && $output != *goodput* ]]
	run views sh
	[[ $output == *"no step is reported"* && $output == *"The program has reported no step."* ]]
	[[ $output != *"goodput     "* && $output != *"no step of"* ]]
	knows_nothing_else "$output"
	run "$MUSTER" export --csv sh
	[[ $status -eq 3 && $output == *"has finished no step"* ]]
}

@test "a program's steps, losses and checkpoints are shown as far as it reports them" {
	launch -- python3 steps.py
	[[ $status -eq 0 && $output == *"checkpoint step 2: $PWD/saved"* && $output != *" loss "* && $output == *"s per step"* ]]
	run views steps
	[[ $output == *"progress    step 6"* && $output == *"checkpoint  step 6, "*"saved"* && $output == *"per step"* ]]
	knows_nothing_else "$output"
	rm saved
	launch job.name=losses -- python3 steps.py with
	[[ $output == *"3.0000 after step 1, 0.5000 after step 6"* ]]
	run views losses
	[[ $output == *"loss        0.5000"* ]]
	knows_nothing_else "$output"
	run "$MUSTER" diff steps losses
	[[ $output == *"steps: 6 in common, 1 to 6"* && $output == *"losses: a has reported none"* && $output == *"gradient norms: both runs have reported none"* ]]
}

@test "a program that fails is started again, and continues from what it has saved" {
	touch fail
	launch -- python3 steps.py
	[[ $status -eq 0 && $output == *"lost "*"rank 0 on "*"after step 5"*"the task exited with status 1"* ]]
	[[ $output == *"this rank fails once"* && $output == *"continuing from step 4"* ]]
	[[ $(grep -c '"event":"rank-lost"' runs/steps/events.jsonl) -eq 1 ]]
	grep -q '"fault":"task-failed"' runs/steps/events.jsonl
}

@test "restart.retry_on ends a run at once" {
	launch "restart.retry_on=any, !3" -- sh -c 'exit 3'
	[[ $status -eq 1 && $output == *"retry_on = any, !3 permits no restart after that"* ]]
	[[ $(grep -c '"event":"generation-start"' runs/sh/events.jsonl) -eq 1 ]]
}

@test "neither schedules nor searches are planned for a program" {
	printf '[job]\nprogram = train\n[launch]\ncluster = dgx-h100:2\n' >job.ini
	run "$MUSTER" plan job.ini parallel.tp=8
	[[ $status -eq 0 && $output == *"program   train"* && $output == *"16 ranks = tp 8 × dp 2"* && $output != *memory* ]]
	for option in --schedule "--svg x.svg" "--measured x"; do
		run "$MUSTER" plan $option job.ini
		[[ $status -eq 2 && $output == *"muster knows neither the steps nor the memory of a program (job.program)"* ]]
	done
	for option in --auto "--gpus 8..16"; do
		run "$MUSTER" plan $option job.ini
		[[ $status -eq 2 && $output == *"muster cannot choose the degrees of a program of your own"* ]]
	done
	[[ ! -e x.svg ]]
}

@test "drill and requests to the trainer are refused" {
	printf '[job]\nprogram = sleep 60\n' >job.ini
	run "$MUSTER" drill job.ini
	[[ $status -eq 2 && $output == *"a program (job.program) has none that muster knows"* ]]
	"$MUSTER" run -n 1 job.device=cpu -- sleep 600 >out 2>&1 3>&- &
	local pid=$!
	wait_for 30 grep -q '"event":"ready"' runs/sleep/events.jsonl
	run timeout 20 "$MUSTER" checkpoint sleep
	[[ $status -ne 0 && $status -ne 124 && $output == *program* ]]
	run timeout 20 "$MUSTER" trace --next 2 sleep
	[[ $status -ne 0 && $status -ne 124 && $output == *program* ]]
	"$MUSTER" stop sleep
	wait $pid || [[ $? -eq 75 ]]
	grep -q "the same command starts the program again" out
}

@test "--like-torchrun writes a job file that muster reads" {
	"$MUSTER" run --like-torchrun --nproc-per-node 8 --max-restarts=3 train.py --lr "1 2" >job.ini
	run "$MUSTER" plan --json job.ini launch.cluster=dgx-h100:1
	[[ $status -eq 0 && $output == *'"program": "python3 -u train.py --lr '*'"world": 8'* || $output == *'"world": 8'*'"program": "python3 -u train.py --lr '* ]]
	grep -q '^max_restarts = 3$' job.ini
	run "$MUSTER" run --like-torchrun
	[[ $status -eq 2 ]]
	run "$MUSTER" run --like-torchrun --no-such-option x.py
	[[ $status -eq 2 && $output == *"--no-such-option"* ]]
}

@test "doctor needs neither data nor libraries of the built-in training" {
	printf '[job]\nprogram = train\n' >job.ini
	run "$MUSTER" doctor job.ini parallel.dp=2
	[[ $output == *"the program reads its own"* && $output == *"tasks per node; muster does not know"* && $output != *"data.path is not set"* ]]
}

@test "long lines come to the terminal in part, and none is lost without a word" {
	run "$MUSTER" run --quiet -n 1 job.device=cpu -- python3 -c 'for i in range(300): print(f"line {i} " + "é\"" * 7000)'
	[[ $status -eq 0 ]]
	shown=$(grep -c "^line [0-9]* é" <<<"$output")
	left=$(grep -oP '^\(\K\d+(?= lines are only in the log)' <<<"$output" | awk "{ sum += \$1 } END { print sum }")
	[[ $((shown + left)) -eq 300 ]]
}

@test "-n counts the tasks of a program that a job file names, and of no other job" {
	printf '[job]\nname = filed\nprogram = sh -c "echo of $WORLD_SIZE"\n' >p.ini
	run "$MUSTER" run --quiet -n 3 p.ini job.device=cpu
	[[ $status -eq 0 && $output == *"of 3"* && $output == *"3 tasks ended with status 0"* ]]
	run "$MUSTER" run -n 3 "$top/templates/jobs/demo.ini"
	[[ $status -eq 2 && $output == *"-n is for a program; set the degrees in [parallel]"* ]]
}

@test "--like-torchrun behind another option is refused by name" {
	run "$MUSTER" run -n 2 --like-torchrun train.py
	[[ $status -eq 2 && $output == *"--like-torchrun must be the first word"* ]]
	run "$MUSTER" run --quiet -n 1 job.device=cpu -- echo --like-torchrun
	[[ $status -eq 0 && $output == *"--like-torchrun"* ]]
}
