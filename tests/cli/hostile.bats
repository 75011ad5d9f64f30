#!/usr/bin/env bats
# Links, pipes and devices in place of files, and the signals and limits that a parent process leaves. Everything that these tests
# may harm is in the test's own folder.

load ../helpers

setup_file() {
	make_data
	make_tiny_job
	run_tiny made job.steps=6 checkpoint.every=3
}

setup() {
	cd "$BATS_TEST_TMPDIR"
	unset XDG_CONFIG_HOME
	export HOME=$BATS_TEST_TMPDIR
	precious >decoy
}

precious() { printf 'what must stay\n'; }

# brief WORD...: runs a command that must end by itself within two minutes.
brief() {
	run timeout -k 5 120 "$@"
	[[ $status -ne 124 && $status -ne 137 ]] || { echo "did not end: $*"; return 1; }
}

# copy NAME: copies the folder of the run "made".
copy() {
	cp -r "$(run_folder made)" "$(run_folder "$1")"
	rm "$(run_folder "$1")/job.ini"
	: >"$(run_folder "$1")/events.jsonl"
}

# replaced PATH KIND: replaces the file or folder by a link, a pipe or a device.
replaced() {
	rm -rf "$1"
	case $2 in
	link) ln -s "$BATS_TEST_TMPDIR/decoy" "$1" ;;
	pipe) mkfifo "$1" ;;
	device) mknod "$1" c 1 5 ;;
	sparse) truncate -s 100G "$1" ;;
	esac
}

untouched() { precious | cmp - decoy; }

teardown() {
	[[ -z ${pid-} ]] || kill -9 "$pid" 2>/dev/null || true
}

@test "a link or a pipe in place of a file that muster writes is refused at the start, and the linked file is kept" {
	local name kind
	for name in lock events.jsonl metrics.jsonl job.ini logs trace logs/launch-2.log; do
		for kind in link pipe; do
			rm -rf "$(run_folder laid)"
			copy laid
			replaced "$(run_folder laid)/$name" $kind
			brief "$MUSTER" run "$tiny" job.name=laid job.steps=6
			echo "$name $kind: $status $output"
			[[ $status -eq 3 && $output == *"/laid/$name: "* ]]
			untouched
		done
	done
}

@test "a link in place of the PMIx server's folder is refused, and the linked folder stays empty" {
	mkdir empty
	copy hidden
	ln -s "$BATS_TEST_TMPDIR/empty" "$(run_folder hidden)/.pmix"
	brief "$MUSTER" run "$tiny" job.name=hidden job.steps=9
	echo "$status $output"
	[[ $status -eq 3 && $output == *"/hidden/.pmix: is a symbolic link"* && -z $(ls -A empty) ]]
}

@test "a ledger or a log that cannot be used fails the run at once" {
	local name kind
	for name in ledger.jsonl "logs/$(hostname)-0.log"; do
		for kind in link pipe; do
			rm -rf "$(run_folder unusable)"
			copy unusable
			replaced "$(run_folder unusable)/$name" $kind
			brief "$MUSTER" run "$tiny" job.name=unusable job.steps=9
			echo "$name $kind: $status $output"
			[[ $status -eq 1 && $output == *"$name: is a "* ]]
			[[ $(event unusable generation-start | wc -l) -eq 1 ]]
			untouched
		done
	done
}

@test "the run folder and ckpt may be links to folders" {
	mkdir -m 700 scratch scratch/run scratch/ckpt
	ln -s "$BATS_TEST_TMPDIR/scratch/run" "$(run_folder linked)"
	ln -s ../ckpt scratch/run/ckpt
	run_tiny linked job.steps=6
	[[ -e scratch/ckpt/step-00000006/MANIFEST.json && -d scratch/run/logs && ! -L scratch/run/logs ]]
}

@test "nothing waits for a pipe in place of a shard or manifest" {
	local file
	for file in shard-00000.safetensors MANIFEST.json; do
		rm -rf "$(run_folder piped)"
		copy piped
		replaced "$(run_folder piped)/ckpt/step-00000006/$file" pipe
		for words in "generate CKPT --prompt a --tokens 2" "ckpt export CKPT -o hf-$file" "ckpt verify CKPT" "ckpt ls CKPT" "ckpt show CKPT"; do
			# shellcheck disable=SC2086 # a list of words
			brief "$MUSTER" ${words//CKPT/$(run_folder piped)\/ckpt\/step-00000006}
			echo "$words: $status $output"
			[[ $words == "ckpt ls"* || $words == "ckpt show"* || ($status -ne 0 && $output == *"$file: is "*) ]]
		done
		# Of its own run, it is passed over for the one before.
		brief "$MUSTER" run "$tiny" job.name=piped job.steps=7
		echo "resume: $status $output"
		[[ $status -eq 0 && $output == *"$file: is "* && $(event_field piped ready step) == 3 ]]
	done
	copy named
	replaced "$(run_folder named)/ckpt/step-00000006/shard-00001.safetensors" pipe
	brief "$MUSTER" run "$tiny" job.name=elsewhere job.steps=9 checkpoint.resume="$(run_folder named)/ckpt/step-00000006"
	echo "named: $status $output"
	[[ $status -eq 1 && $output == *"shard-00001.safetensors: is "* ]]
}

@test "a huge file or a device in place of a manifest or ledger is refused before it takes memory" {
	local file kind
	for kind in sparse device; do
		for file in ckpt/step-00000006/MANIFEST.json ledger.jsonl; do
			[[ $kind == sparse || $(id -u) -eq 0 ]] || continue
			rm -rf "$(run_folder giant)"
			copy giant
			replaced "$(run_folder giant)/$file" $kind 2>/dev/null || continue
			local words="data audit $(run_folder giant)"
			[[ $file == ledger.jsonl ]] || words="ckpt verify $(run_folder giant)/ckpt/step-00000006"
			# shellcheck disable=SC2086 # a list of words
			brief bash -c 'ulimit -v 300000; exec "$@"' bash "$MUSTER" $words
			echo "$file $kind: $status $output"
			[[ $status -ne 0 && ($output == *"larger than the"* || $output == *"such a file has at most"* || $output == *"is a device"*) ]]
		done
	done
}

@test "a job file may be a link or a pipe, but not a device or folder" {
	ln -s "$tiny" link.ini
	brief "$MUSTER" plan link.ini
	[[ $status -eq 0 ]]
	brief "$MUSTER" plan <(cat "$tiny")
	[[ $status -eq 0 ]]
	brief bash -c '"$1" plan /dev/stdin <"$2"' bash "$MUSTER" "$tiny"
	[[ $status -eq 0 ]]
	for odd in /dev/zero .; do
		brief "$MUSTER" plan $odd
		echo "$output"
		[[ $status -eq 2 && $output == *"$odd: is a "* ]]
	done
}

@test "a Hugging Face folder may consist of files and of links to files" {
	"$MUSTER" ckpt export "$(run_folder made)" -o plain
	mkdir links
	(cd plain && for f in *; do ln -s "../plain/$f" ../links/; done)
	brief "$MUSTER" ckpt import links -o imported
	echo "$output"
	[[ $status -eq 0 ]]
	rm links/model.safetensors
	mkfifo links/model.safetensors
	brief "$MUSTER" ckpt import links -o again
	echo "$output"
	[[ $status -ne 0 && $output == *"model.safetensors: is a pipe"* ]]
}

# --- What a parent process leaves ------------------------------------------------------------------------------------

@test "a parent that ignores SIGCHLD: the run ends, and continues after a lost rank" {
	brief env --ignore-signal=CHLD "$MUSTER" run "$tiny" job.name=childless job.steps=5
	echo "$output"
	[[ $status -eq 0 ]]
	start childless-long --ignore-signal=CHLD
	kill -KILL "$(agent_pid childless-long 0)"
	wait_for 60 restarted childless-long
	kill -TERM "$pid"
	ended 75
}

# start NAME OPTION-OF-ENV: starts a run that does not end by itself, and sets $pid.
start() {
	env "$2" "$MUSTER" run "$tiny" "job.name=$1" job.steps=1000000 parallel.dp=2 </dev/null >"$BATS_FILE_TMPDIR/$1.out" 2>&1 3>&- &
	pid=$!
	wait_for 60 step_reached "$1" 1 || { kill -KILL $pid; false; }
}

restarted() { [[ $(event "$1" first-step | wc -l) -eq 2 ]]; }

# Succeeds if the run ends within a minute with this status; otherwise it is killed.
ended() {
	local rc=0
	wait_for 60 has_ended "$pid" || kill -KILL "$pid"
	wait "$pid" || rc=$?
	echo "exit status $rc"
	[[ $rc -eq $1 ]]
}

@test "a parent that blocks every signal: SIGTERM stops the run" {
	start blocked --block-signal
	kill -TERM "$pid"
	ended 75
}

@test "processes that the launcher starts ignore and block only the signals that it chose" {
	start inherited --ignore-signal
	local agent
	agent=$(agent_pid inherited 0)
	# The numbers are SIGHUP 1, SIGPIPE 13 and SIGXFSZ 25; 32 and 33, which the C library reserves; SIGINT 2, SIGUSR1 10 and SIGTERM 15,
	# which a thread of the agent reads.
	grep -E '^Sig(Blk|Ign)' "/proc/$agent/status"
	[[ $((0x$(awk '/^SigIgn/ { print $2 }' "/proc/$agent/status") & ~(1 << 0 | 1 << 12 | 1 << 24 | 3 << 31))) -eq 0 ]]
	[[ $((0x$(awk '/^SigBlk/ { print $2 }' "/proc/$agent/status") & ~(1 << 1 | 1 << 9 | 1 << 14))) -eq 0 ]]
	kill -HUP "$pid" # nohup's: not heard
	kill -INT "$pid"
	ended 75
	[[ $(event_field inherited stop reason) == Interrupt ]]
}

@test "a umask that forbids everything: folders and files are private and usable" {
	(umask 0777 && run_tiny masked job.steps=6)
	[[ $(stat -c %a "$(run_folder masked)" "$(run_folder masked)/logs" "$(run_folder masked)/ckpt" | sort -u) == 700 ]]
	[[ $(find "$(run_folder masked)" -type f -printf '%m\n' | sort -u) == 600 ]]
}

@test "ulimit -v: a limit that is too low is reported before anything hangs" {
	brief bash -c 'ulimit -v 300000; exec "$@"' bash "$MUSTER" run "$tiny" job.name=narrow
	echo "$output"
	[[ $status -eq 3 && $output == *"ulimit -v"* && ! -e $(run_folder narrow) ]]
	brief bash -c 'ulimit -v 150000; exec "$@"' bash "$MUSTER" bench gemm --size 256 --threads 1
	echo "$output"
	[[ $status -eq 1 && $output == *"ulimit -v"* ]]
	# No limit in between lets the first matrix product hang.
	for kib in 60000 120000 180000 200000 220000 240000 300000; do
		brief bash -c 'ulimit -v "$0"; exec "$@"' $kib "$MUSTER" bench gemm --size 1024 --seconds 0.01 --threads 1
		echo "$kib: $status $output"
		[[ $status -eq 0 || $status -eq 1 ]]
	done
	run bash -c 'ulimit -v 300000; "$1" doctor' bash "$MUSTER"
	[[ $output == *"address space"*"ulimit -v"* ]]
}

@test "ulimit -f: a checkpoint that is too large fails with the limit's name, and no agent is killed" {
	# The last checkpoint is tried again for a minute; a stop ends this.
	(ulimit -f 8192 && exec "$MUSTER" run "$tiny" job.name=short job.steps=1000000 checkpoint.every=5 model.hidden=256 \
		</dev/null >"$BATS_FILE_TMPDIR/short.out" 2>&1 3>&-) &
	pid=$!
	wait_for 60 grep -q "training continues" "$BATS_FILE_TMPDIR/short.out" || { cat "$BATS_FILE_TMPDIR/short.out"; kill -KILL $pid; false; }
	kill -KILL $pid
	wait $pid || true
	grep "ulimit -f" "$BATS_FILE_TMPDIR/short.out"
	[[ -z $(event short rank-lost) ]]
	run bash -c 'ulimit -f 64; "$1" run "$2" job.name=shorter 2>&1 | cat' bash "$MUSTER" "$tiny"
	echo "$output"
	[[ $output == *"shared memory"*"ulimit -f"* && $(event shorter generation-start | wc -l) -eq 1 ]]
}

@test "ulimit -s 512: a calibration file is read" {
	"$MUSTER" bench gemm --size 64 --seconds 0.01 --calibrate=rates.json
	brief bash -c 'ulimit -s 512; exec "$@"' bash "$MUSTER" plan "$tiny" launch.calibration=rates.json
	echo "$status $output"
	[[ $status -eq 0 && $output == *"matrix products as measured"* ]]
	brief bash -c 'ulimit -s 512; exec "$@"' bash "$MUSTER" run "$tiny" job.name=flat job.steps=6 launch.calibration=rates.json
	echo "$status $output"
	[[ $status -eq 0 ]]
}

@test "without a loopback interface a run reports this, and how to bring it up" {
	unshare -n true 2>/dev/null || skip "needs the right to make a network namespace"
	brief unshare -n "$MUSTER" run "$tiny" job.name=alone
	echo "$output"
	[[ $status -eq 3 && $output == *"loopback interface is down"*"ip link set lo up"* ]]
}
