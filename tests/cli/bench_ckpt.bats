#!/usr/bin/env bats
# muster bench ckpt: its places, its figures, and that it leaves nothing behind.

bats_require_minimum_version 1.5.0
load ../helpers
load s3

setup_file() {
	start_store
}

teardown_file() {
	stop_store
}

bench() { "$MUSTER" bench ckpt --size 6M --rounds 2 "$@"; }

# Fails unless a Python expression over d, the JSON object that the last command printed, is true.
holds() { python3 -c 'import json, sys; d = json.load(sys.stdin); sys.exit(not eval(sys.argv[1]))' "$1" <<<"$output"; }

@test "a folder is measured beside plain files and a memory copy, and nothing stays in it" {
	mkdir "$BATS_TEST_TMPDIR/dir"
	run -0 bench "$BATS_TEST_TMPDIR/dir" --ranks 2
	[[ $output == *"2 ranks, 6 MiB each, medians of 2 rounds"* ]]
	[[ $output =~ "$BATS_TEST_TMPDIR/dir"[[:space:]]+write\ +[0-9.]+\ GB/s\ +[0-9.]+\ ×\ plain\ files:\ [0-9.]+\ GB/s\ buffered ]]
	[[ $output =~ read\ +[0-9.]+\ GB/s\ +[0-9.]+\ ×\ plain ]]
	[[ $output =~ stall\ +[0-9.]+\ s\ +[0-9.]+\ ×\ memcpy:\ [0-9.]+\ s\;\ the\ first\ save\ [0-9.]+\ s ]]
	[[ -z $(ls -A "$BATS_TEST_TMPDIR/dir") ]]
}

@test "the default is the current folder; --json has every figure" {
	mkdir "$BATS_TEST_TMPDIR/here"
	cd "$BATS_TEST_TMPDIR/here"
	run -0 bench --ranks 1 --json
	holds '(d["ranks"], d["bytes"], d["rounds"]) == (1, 6 << 20, 2)'
	holds '[(p["place"], p["tier"]) for p in d["places"]] == [(".", "")]'
	holds 'all(d["places"][0][k] > 0 for k in ("write", "write_buffered", "write_ratio", "read", "read_buffered", "read_ratio", "stall_s", "memcpy_s", "stall_ratio", "first_stall_s"))'
	[[ -z $(ls -A .) ]]
}

@test "the faster kind of plain file is the measure of the ratio" {
	run -0 bench --rounds 1 --ranks 1 --json "$BATS_TEST_TMPDIR"
	holds 'all(abs(p[k + "_ratio"] - p[k] / max(p[k + "_buffered"], p[k + "_direct"] or 0)) < 1e-9 for p in d["places"] for k in ("write", "read"))'
	holds 'all(abs(p["stall_ratio"] - p["stall_s"] / p["memcpy_s"]) < 1e-9 for p in d["places"])'
}

@test "a job and a run are measured in each of their tiers, also in those that do not exist yet" {
	local ini=$BATS_TEST_TMPDIR/tiers.ini run=$BATS_TEST_TMPDIR/run
	make_data
	make_tiny_job
	cp "$tiny" "$ini"
	printf '[checkpoint]\ndir = %s\nlocal = %s\nremote = s3://bucket/bench\n' \
		"$BATS_TEST_TMPDIR/shared/at/all" "$BATS_TEST_TMPDIR/node-%N" >>"$ini"
	run -0 bench "$ini" --ranks 1 --json
	holds '[p["tier"] for p in d["places"]] == ["shared folder", "nodes", "remote"]'
	holds 'd["places"][0]["write_buffered"] > 0 and d["places"][2]["write_buffered"] is None and d["places"][2]["write_ratio"] is None'
	holds 'd["places"][2]["write"] > 0 and d["places"][2]["read"] > 0'
	[[ ! -e $BATS_TEST_TMPDIR/shared && -z $(find "$BATS_TEST_TMPDIR" -name ".muster-bench-*") ]]
	mkdir "$run"
	cp "$ini" "$run/job.ini"
	run -0 bench "$run" --ranks 2 --json
	holds 'len(d["places"]) == 3'
}

@test "an object store is left as it was" {
	run -0 bench s3://bucket/bench --ranks 2
	[[ $output == *"s3://bucket/bench"*"write "*"read "*"stall "* && $output != *"plain"* ]]
	[[ -z $("$MUSTER" ckpt ls s3://bucket/bench --json | grep '"path"') ]]
	[[ -z $(find "$store" -name "*shard*") ]]
}

@test "a place that cannot be written is named, and a save that fails leaves nothing" {
	run -1 bench --ranks 1 /proc/self
	[[ $output == *"/proc/self: cannot make a folder there: "* ]]
	run -1 bench --ranks 1 "$BATS_TEST_TMPDIR/none"
	[[ $output == *"$BATS_TEST_TMPDIR/none: cannot look at it: No such file"* ]]
	mkdir "$BATS_TEST_TMPDIR/small"
	run -1 bash -c "ulimit -f 30000; '$MUSTER' bench ckpt --size 40M --rounds 1 --ranks 2 '$BATS_TEST_TMPDIR/small'"
	[[ $output == *"$BATS_TEST_TMPDIR/small"*"raise the limit of file sizes"* ]]
	[[ -z $(ls -A "$BATS_TEST_TMPDIR/small") ]]
}

@test "wrong options of bench ckpt are refused" {
	run -2 "$MUSTER" bench ckpt --size 6X
	[[ $output == *"is not a size"* ]]
	run -2 "$MUSTER" bench ckpt --size 100
	run -2 "$MUSTER" bench ckpt --ranks 0
	run -2 "$MUSTER" bench ckpt --rounds 100
	[[ $output == *"--rounds is 1 to 99"* ]]
	run -2 "$MUSTER" bench ckpt --rounds 2x
	run -2 "$MUSTER" bench ckpt --fast
}
