#!/usr/bin/env bats
# `muster trace` reads flight recorders and names the rank that holds up the others.

load ../helpers

# dump RANK STATE OP: writes a rank's flight recorder, in a world of two.
dump() {
	echo "{\"muster_comm_dump\": 1, \"rank\": $1, \"size\": 2, \"host\": \"h\", \"time_us\": 20000000, \"groups\": [{\"name\": \"world\"," \
		"\"id\": \"0000000000000001\", \"backend\": \"shm\", \"rank\": $1, \"members\": [0, 1], \"seq\": 1, \"messages\": 0, \"ops\":" \
		"[{\"number\": 1, \"op\": \"$3\", \"state\": \"$2\", \"seq\": 1, \"type\": \"f32\", \"redop\": \"sum\", \"bytes\": 8," \
		"\"start_us\": 10000000}]}]}"
}

setup() {
	dir=$BATS_TEST_TMPDIR/dumps
	mkdir -p "$dir"
}

@test "ranks that disagree are reported in one sentence, exit 1" {
	dump 0 running all_reduce >"$dir/comm-0.json"
	dump 1 running all_gather >"$dir/comm-1.json"
	run "$MUSTER" trace "$dir"
	echo "$output"
	[[ $status -eq 1 && $output == "group world: rank 1 called all_gather of 8 bytes as number 1 where rank 0 called all_reduce of 8 bytes" ]]
	run "$MUSTER" trace --json "$dir"/comm-*.json
	[[ $status -eq 1 ]]
	python3 -c 'import json, sys; v = json.load(sys.stdin); assert v["finding"] == "mismatch" and v["ranks"] == [1] and v["missing"] == []' <<<"$output"
}

@test "ranks that agree: exit 0" {
	dump 0 done all_reduce >"$dir/comm-0.json"
	dump 1 done all_reduce >"$dir/comm-1.json"
	run "$MUSTER" trace "$dir"
	[[ $status -eq 0 && $output == "no disagreement: every operation that was begun has ended" ]]
}

@test "the newest generation of a run counts" {
	mkdir -p "$dir/trace/gen-9" "$dir/trace/gen-10"
	dump 0 running all_reduce >"$dir/trace/gen-9/comm-0.json"
	dump 0 running barrier >"$dir/trace/gen-10/comm-0.json"
	run "$MUSTER" trace "$dir"
	echo "$output"
	[[ $status -eq 1 && $output == "rank 0 has been waiting for 10 s in barrier number 1 of group world for rank 1, of which there is no dump" ]]
}

@test "dumps of PyTorch's flight recorder are judged in the same way" {
	local golden=$BATS_TEST_DIRNAME/../golden/flight
	run "$MUSTER" trace "$golden/different"
	echo "$output"
	[[ $status -eq 1 && $output == "group default_pg: rank 3 called broadcast of 16 bytes as number 2 where ranks 0-2 called barrier" ]]
	mkdir -p "$dir/trace/gen-1"
	cp "$golden"/absent/torch-* "$dir/trace/gen-1/"
	printf '\200\002}' >"$dir/trace/gen-1/torch-3"
	run "$MUSTER" trace --json "$dir"
	echo "$output"
	[[ $status -eq 1 ]]
	python3 -c 'import json, sys; v = json.load(sys.stdin); assert v["finding"] == "missing" and sorted(v["ranks"]) == [2, 3]
assert v["missing"] == [3] and "torch-3: damaged pickle" in v["text"]' <<<"$output"
	for r in 0 1 2 3; do cp "$golden/absent/torch-$r" "$dir/my_dump_$r"; done
	run "$MUSTER" trace "$dir"/my_dump_*
	echo "$output"
	[[ $status -eq 1 && $output == "rank 2 never reached all_reduce number 2 of group default_pg; ranks 0-1, 3 have "* ]]
}

@test "a later generation that only measured its steps does not count" {
	mkdir -p "$dir/trace/gen-1" "$dir/trace/gen-2"
	dump 0 running barrier >"$dir/trace/gen-1/comm-0.json"
	echo '{}' >"$dir/trace/gen-2/timeline-0.json"
	run "$MUSTER" trace "$dir"
	echo "$output"
	[[ $status -eq 1 && $output == "rank 0 has been waiting for 10 s in barrier number 1"* ]]
}

@test "a file that cannot be read is named, exit 3" {
	run "$MUSTER" trace
	[[ $status -eq 2 && $output == *"--help"* ]]
	run "$MUSTER" trace "$dir"
	[[ $status -eq 3 && $output == *"$dir"* ]]
	run "$MUSTER" trace "$dir/nothing.json"
	[[ $status -eq 3 && $output == *"nothing.json"* ]]
	echo '{"rank": 0}' >"$dir/comm-0.json"
	run "$MUSTER" trace "$dir"
	[[ $status -eq 3 && $output == *"comm-0.json is not a flight recorder dump"* ]]
	dump 0 done barrier >"$dir/comm-0.json"
	run "$MUSTER" trace "$dir" "$dir/comm-0.json"
	[[ $status -eq 3 && $output == *"a second dump of rank 0"* ]]
}
