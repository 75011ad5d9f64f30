#!/usr/bin/env bats
# tests/run counts the results of tests, and what they leave behind.

load ../helpers

# runs LINE...: runs a test with these lines under tests/run, and sets $last to its last line.
runs() {
	printf '%s\n' '#!/bin/bash' "$@" >"$BATS_TEST_TMPDIR/test"
	chmod +x "$BATS_TEST_TMPDIR/test"
	run "$top/tests/run" "$BATS_TEST_TMPDIR/test"
	echo "$output"
	last=${lines[-1]}
}

@test "results are added up" {
	runs 'echo "ok 1 - a"' 'echo "not ok 2 - b"' 'exit 1'
	[[ $status -eq 1 && $last == "1 passed, 1 failed, 0 skipped" ]]
}

@test "a skipped test is not a failure, as bats and as cmocka print it" {
	runs 'echo "ok 1 - a"' 'echo "ok 2 b # skip why"' 'echo "not ok 3 # SKIP c"'
	[[ $status -eq 0 && $last == "1 passed, 0 failed, 2 skipped" ]]
}

@test "a test that breaks off is a failure" {
	runs 'echo "ok 1 - a"' 'exit 3'
	[[ $status -eq 1 && $last == "1 passed, 1 failed, 0 skipped" ]]
}

@test "a test that kills its process group is a failure" {
	runs 'echo "not ok 1 - a"' 'kill -KILL 0'
	[[ $status -eq 1 && $last == "0 passed, 1 failed, 0 skipped" ]]
}

@test "-j with less than one lane is refused" {
	run "$top/tests/run" -j 0 true
	[[ $status -eq 2 && $output == *'-j "0"'* ]]
}

@test "a file that is left behind is a failure" {
	runs 'touch "$TMPDIR/left"' 'echo "ok 1 - a"'
	[[ $status -eq 1 && $output == *"left in TMPDIR: left"* ]]
}

@test "what muster leaves in /dev/shm is a failure; what other programs put there is not" {
	other=$(mktemp -u /dev/shm/other.XXXXXX) own=$(mktemp -u /dev/shm/muster.XXXXXX)
	runs "touch $other" 'echo "ok 1 - a"'
	rm "$other"
	[[ $status -eq 0 ]]
	runs "touch $own" 'echo "ok 1 - a"'
	rm "$own"
	[[ $status -eq 1 && $output == *"left in /dev/shm: ${own##*/}"* ]]
}

@test "with -j 2, two tests run at the same time" {
	cd "$BATS_TEST_TMPDIR"
	mkfifo a.pipe b.pipe
	# Each opens a pipe that only the other one opens at its other end.
	printf '%s\n' '#!/bin/bash' "cd '$PWD'" 'echo here >a.pipe' 'read -r <b.pipe' >a
	printf '%s\n' '#!/bin/bash' "cd '$PWD'" 'read -r <a.pipe' 'echo here >b.pipe' >b
	chmod +x a b
	run timeout 120 "$top/tests/run" -j 2 ./a ./b
	echo "$output"
	[[ $status -eq 0 && ${lines[-1]} == "2 passed, 0 failed, 0 skipped" ]]
}

@test "a signal ends the tests that run, and what they started" {
	cd "$BATS_TEST_TMPDIR"
	printf '%s\n' '#!/bin/bash' "setsid sleep 1000 & echo \$! >'$PWD/id.new'; mv '$PWD/id.new' '$PWD/id'; wait" >sleeper
	chmod +x sleeper
	"$top/tests/run" ./sleeper 3>&- &
	wait_for 60 test -e id
	kill -TERM $!
	wait $! && status=0 || status=$?
	[[ $status -eq 130 ]]
	wait_for 60 has_ended "$(<id)"
}
