#!/usr/bin/env bats
# A full disk: a checkpoint is written when room appears.

load ../helpers

setup_file() {
	make_data
	make_tiny_job
}

@test "all ranks wait when the disk is full at the last checkpoint" {
	unshare -m true 2>/dev/null || skip "needs the right to mount"
	mkdir "$BATS_FILE_TMPDIR/small"
	small=$BATS_FILE_TMPDIR/small out=$BATS_FILE_TMPDIR/full.out
	export small out
	export -f run_tiny wait_for
	unshare -m bash -c '
		mount -t tmpfs -o size=100k none "$small" || exit 1
		run_tiny full parallel.dp=4 checkpoint.dir="$small" &
		wait_for 60 grep -q "tried again for" "$out" && mount -o remount,size=64m "$small"
		wait $! && test -e "$small/step-00000020/MANIFEST.json"'
	[[ $(grep -c "tried again for" "$out") -eq 1 ]]
	# No step was repeated.
	[[ $(grep -c '"step":' "$(run_folder full)/metrics.jsonl") -eq 20 ]]
}
