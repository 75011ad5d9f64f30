# For tests that ask a run which does not end by itself.

setup_file() {
	make_data
	make_tiny_job
}

setup() { export MUSTER_RUNS=$BATS_FILE_TMPDIR; }

teardown() {
	[[ -z ${pid-} ]] || has_ended "$pid" || { kill -CONT "$pid" && kill -9 "$pid"; }
}

# long NAME WORD...: starts a run that does not end by itself in the background, and sets $pid to the launcher's.
long() {
	local name=$1
	shift
	"$MUSTER" run "$tiny" "job.name=$name" job.steps=1000000 restart.silent_timeout=300 "$@" \
		</dev/null >"$BATS_FILE_TMPDIR/$name.out" 2>&1 3>&- &
	pid=$!
	wait_for 60 step_reached "$name" 3
}

ended() { # expected exit status of $pid
	local rc=0
	wait "$pid" || rc=$?
	echo "exit status $rc"
	[[ $rc -eq $1 ]]
}
