#!/usr/bin/env bats
# muster bench node, and launch.preflight on one host.

bats_require_minimum_version 1.5.0
load ../helpers

setup_file() {
	make_data
	make_tiny_job
}

# Prints the values of a figure in the JSON of standard input.
values_of() { tr -d ' \n' | grep -oP "\"what\":\"$1\",[^}]*\"value\":\K[0-9.e+-]+"; } # what

@test "bench node measures products, memory and the folder, and leaves nothing behind" {
	mkdir "$BATS_TEST_TMPDIR/dir"
	run -0 "$MUSTER" bench node --seconds 0.2 --dir "$BATS_TEST_TMPDIR/dir" --json
	for what in product memory disk-write disk-read disk-sync; do
		awk '$1 > 0 { found = 1 } END { exit !found }' <(values_of $what <<<"$output")
	done
	[[ -z $(ls -A "$BATS_TEST_TMPDIR/dir") ]]
}

@test "a folder that does not exist yet is measured where it would be made" {
	run -0 "$MUSTER" bench node --seconds 0.1 --dir "$BATS_TEST_TMPDIR/none/at/all"
	[[ $output == *"write rate of the checkpoints"* ]]
	[[ ! -e $BATS_TEST_TMPDIR/none ]]
}

@test "a folder in which nothing can be written is named" {
	run -1 "$MUSTER" bench node --seconds 0.1 --dir /proc/self
	[[ $output == *"product rate"* && $output == *"/proc/self: a file cannot be written: "* ]]
}

@test "the calibration stands beside the product rate" {
	run -0 "$MUSTER" bench gemm --size 256 --seconds 0.1 --calibrate="$BATS_TEST_TMPDIR/c.json"
	run -0 "$MUSTER" bench node --seconds 0.1 --calibration "$BATS_TEST_TMPDIR/c.json"
	[[ $output == *"product rate "*", by its calibration "* ]]
	run -0 "$MUSTER" bench node --seconds 0.1 --calibration none
	[[ $output != *"by its calibration"* ]]
}

@test "wrong options of bench node are refused" {
	run -2 "$MUSTER" bench node --seconds 0
	run -2 "$MUSTER" bench node --seconds 1,5
	[[ $output == *"--seconds is 0.01 to 600"* ]]
	run -2 "$MUSTER" bench node --sockets 99
	run -2 "$MUSTER" bench node --sockets 2x
	run -2 "$MUSTER" bench node --devices all
	[[ $output == *"--devices is 0 to 64"* ]]
	run -2 "$MUSTER" bench node --integrity some
	run -2 "$MUSTER" bench node word
	run -2 "$MUSTER" bench node --backend none
}

@test "preflight = full measures one host, and keeps its figures" {
	run_tiny full launch.preflight=full
	grep -q '1 of 1 passed the burn-in, which took .*product rate' "$BATS_FILE_TMPDIR/full.out"
	values_of product <"$(run_folder full)/preflight.json"
	[[ $(event full burn-in) == *'"nodes":1,"failed":0'* ]]
}

@test "one host that is slower than its calibration says is told so, and trains" {
	"$MUSTER" bench gemm --size 256 --seconds 0.1 --calibrate="$BATS_TEST_TMPDIR/c.json"
	sed -i -E 's/("flops": ?)[0-9.e+-]+/\11e+18/' "$BATS_TEST_TMPDIR/c.json"
	run_tiny slower launch.preflight=full "launch.calibration=$BATS_TEST_TMPDIR/c.json"
	grep -q "product rate .*, its calibration is 1e+09" "$BATS_FILE_TMPDIR/slower.out"
	[[ $(event slower done) == *'"step":20'* ]]
}

@test "preflight = quick checks one host" {
	run_tiny quick launch.preflight=quick
	grep -q '1 of 1 passed the check' "$BATS_FILE_TMPDIR/quick.out"
	[[ ! -e $(run_folder quick)/preflight.json ]]
}

@test "preflight has three values" {
	run_tiny wrong launch.preflight=maybe && return 1
	grep -q 'launch.preflight' "$BATS_FILE_TMPDIR/wrong.out"
}
