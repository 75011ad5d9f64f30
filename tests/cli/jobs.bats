#!/usr/bin/env bats
# A broken job file is refused with one line that names file, line, section, key, cause and remedy. The exit status is 2, and
# nothing is started.

load ../helpers

setup() {
	cd "$top" || exit 1 # the expected lines name the files as seen from here
}

@test "each of the broken job files is refused with its line and exit 2" {
	count=0
	for job in tests/cli/jobs/bad/*.ini; do
		run "$MUSTER" run "$job" job.run_dir="$BATS_TEST_TMPDIR/runs"
		echo "$job: $output"
		[[ $status -eq 2 ]]
		[[ $output == "muster: $(cat "${job%.ini}.expect")" ]]
		count=$((count + 1))
	done
	[[ $count -ge 40 ]]
	[[ ! -e $BATS_TEST_TMPDIR/runs ]]
	figure "$count broken job files refused"
}

@test "plan and submit refuse them with the same line" {
	job=tests/cli/jobs/bad/bool.ini
	for command in plan submit; do
		run "$MUSTER" "$command" "$job"
		[[ $status -eq 2 ]]
		[[ $output == "muster: $(cat "${job%.ini}.expect")" || $output == "muster $command: $(cat "${job%.ini}.expect")" ]]
	done
}

@test "the example jobs can be planned" {
	for job in templates/jobs/*.ini; do
		run "$MUSTER" plan "$job"
		echo "$output"
		[[ $status -eq 0 ]]
		[[ $output == *"Predicted step"* ]]
	done
}

@test "a plan that does not fit is refused with the part that is too large and what would fit" {
	run "$MUSTER" plan templates/jobs/175b.ini parallel.pp=1 parallel.dp=1 parallel.schedule=1f1b parallel.chunks=0 parallel.zero=0
	echo "$output"
	[[ $status -eq 3 ]]
	[[ $output == *"needs "*" more than the "*": optimizer state "*"; nearest that fit"*": parallel."*" per step)"* ]]
}
