#!/usr/bin/env bats
# muster bench comm: its arguments, its columns, and what it does when a rank dies.

load ../helpers

comm() { "$MUSTER" bench comm "$@"; }
quick="--max-bytes 20000 --factor 13 --iters 2"

# Prints a Python expression over d, the JSON object that the last command printed.
holds() { python3 -c 'import json, sys; d = json.load(sys.stdin); sys.exit(not eval(sys.argv[1]))' "$1" <<<"$output"; }

@test "every operation gives right elements: with one rank, on one host, on several, over TCP" {
	local words
	for words in "--ranks 1" "--ranks 3" "--hosts 1+2" "--ranks 3 --backend tcp --sockets 2" "--ranks 2 --shared" "--ranks 3 --async" \
		"--ranks 4 --algorithm tree"; do
		local ops=all
		[[ $words == "--ranks 1" ]] && ops=all_reduce,reduce,broadcast,all_gather,reduce_scatter,all_to_all,gather,scatter,send_recv,barrier
		# shellcheck disable=SC2086 # lists of words
		run comm $words --ops $ops --min-bytes 0 $quick --json
		echo "$words: $output"
		[[ $status -eq 0 ]]
		holds 'd["wrong"] == 0 and all(p["time_s"] > 0 and p["best_s"] <= p["time_s"] for r in d["results"] for p in (r["out_of_place"], r["in_place"]) if p)'
	done
}

@test "every type and reduction gives the right bits" {
	local type redop
	for type in float double bfloat16 half int32 int64 uint8; do
		for redop in sum avg max min prod; do
			# shellcheck disable=SC2086
			run comm --ranks 3 --ops all_reduce,reduce_scatter --type $type --redop $redop $quick
			echo "$type $redop: $output"
			[[ $status -eq 0 && $output == *"# wrong elements: 0 OK"* ]]
		done
	done
}

@test "size counts all blocks, count one of them; the bus factors are those of nccl-tests" {
	run comm --ranks 4 --ops all_reduce,all_gather,broadcast --min-bytes 4096 --max-bytes 4096 --iters 3 --json
	[[ $status -eq 0 ]]
	holds '[(r["op"], r["bytes"], r["count"], r["root"]) for r in d["results"]] == [("all_reduce", 4096, 1024, -1), ("broadcast", 4096, 1024, 0), ("all_gather", 4096, 256, -1)]'
	holds 'all(abs(r["in_place"]["busbw"] / r["in_place"]["algbw"] - f) < 1e-9 for r, f in zip(d["results"], (1.5, 1, 0.75)))'
	holds 'd["results"][1]["out_of_place"] is None'
}

@test "a barrier does not lower the mean bandwidth" {
	run comm --ranks 2 --ops all_reduce,barrier --place in --min-bytes 4096 --max-bytes 4096 --iters 3 --json
	[[ $status -eq 0 ]]
	holds 'abs(d["mean_busbw"] / d["results"][0]["in_place"]["busbw"] - 1) < 1e-9'
}

@test "the table has one line per size" {
	run comm --ranks 2 --min-bytes 8 --max-bytes 1K --factor 4 --iters 2
	[[ $status -eq 0 ]]
	[[ $(grep -v '^#' <<<"$output" | awk '{ print $1, $2, $3, $4 }' | tr '\n' ';') == \
		"8 2 float sum;32 8 float sum;128 32 float sum;512 128 float sum;" ]]
}

@test "wrong arguments are refused before anything starts" {
	refused() { # cause word...
		local cause=$1
		shift
		run comm "$@"
		echo "$* -> $output"
		[[ $status -eq 2 && $(wc -l <<<"$output") == 1 && $output == "muster bench comm: "*"$cause"* ]]
	}
	refused "is not an option" --rnks 2
	refused "is not an option" all_reduce
	refused "needs a value" --ranks
	refused "is not a whole number" --ranks 0
	refused "is not a whole number" --ranks 2x
	refused "1 to 256" --ranks 257
	refused "1 to 256" --ranks 0
	refused '"al_reduce" is not an operation' --ops al_reduce
	refused '"" is not an operation' --ops all_reduce,
	refused "is not a size" --min-bytes 4Q
	refused "is not a size" --max-bytes -1
	refused "is not a size" --max-bytes 99999999999G
	refused "is above" --min-bytes 64 --max-bytes 8
	refused "is not a number" --factor 1
	refused 'there is no "fp99"' --type fp99
	refused 'there is no "xor"' --redop xor
	refused "is not a list such as 1+7" --hosts 1+
	refused "is not a list such as 1+7" --hosts 200+200
	refused "omit --ranks" --hosts 1+1 --ranks 2
	refused "is none of the ranks" --ranks 2 --ops reduce --root 2
	refused "needs 2 ranks" --ranks 1 --ops ping_pong
	refused "nope" --ranks 2 --backend nope
	refused "nope" --ranks 2 --algorithm nope
	refused "omit --hosts" --calibrate --hosts 1+1
	refused "omit --max-bytes" --calibrate --max-bytes 1K
	refused "omit --backend" --backend tcp --calibrate
}

@test "when the reader of a pipe leaves, the ranks end silently" {
	"$MUSTER" bench comm --ranks 2 --seconds 1 2>"$BATS_TEST_TMPDIR/err" | head -n 1
	[[ ! -s $BATS_TEST_TMPDIR/err ]]
}

@test "a killed rank is named, and the others end" {
	"$MUSTER" bench comm --ranks 3 --seconds 600 >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
	local tool=$! status=0
	wait_for 60 grep -q "3 ranks" "$BATS_TEST_TMPDIR/out"
	local ranks
	ranks=$(pgrep -P "$tool")
	[[ $(wc -l <<<"$ranks") == 3 ]]
	kill -9 "$(tail -n 1 <<<"$ranks")"
	wait "$tool" || status=$?
	[[ $status -eq 1 ]]
	grep -q "rank 2 was killed by signal 9" "$BATS_TEST_TMPDIR/out"
	! pgrep -P "$tool"
}

@test "when the tool ends, its ranks end" {
	local signal
	for signal in INT TERM KILL; do
		# A shell without job control starts what runs beside it deaf to Ctrl-C.
		env --default-signal=INT "$MUSTER" bench comm --ranks 3 --seconds 600 >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
		local tool=$! ranks
		wait_for 60 grep -q "3 ranks" "$BATS_TEST_TMPDIR/out"
		ranks=$(pgrep -P "$tool" | tr '\n' ' ')
		kill -s $signal "$tool"
		wait_for 60 all_gone $ranks
		rm "$BATS_TEST_TMPDIR/out"
	done
}

all_gone() { ! kill -0 "$@" 2>/dev/null; }

@test "a plan reports that it uses what --calibrate measured, and refuses another machine's file" {
	export XDG_CONFIG_HOME=$BATS_TEST_TMPDIR
	local job=$top/templates/jobs/demo.ini file=$BATS_TEST_TMPDIR/muster/calibration.json
	run comm --calibrate --ranks 2
	[[ $status -eq 0 && $output == *"written to $file"* ]]
	[[ $output == *"all_reduce of 2 ranks over shm by each algorithm"*"fastest: "*"over tcp by each algorithm"*"fastest: "* ]]
	run "$MUSTER" plan "$job"
	[[ $status -eq 0 && $output == *"links inside a node with 2 ranks as measured on"* ]]
	run "$MUSTER" bench gemm --calibrate --size 256 --seconds 0.1
	[[ $status -eq 0 && $output == *"written to $file"* ]]
	run "$MUSTER" plan "$job"
	[[ $status -eq 0 && $output == *"links inside a node with 2 ranks and matrix products as measured on"* ]]
	run "$MUSTER" plan "$job" launch.calibration=none
	[[ $status -eq 0 && $output != *"as measured"* ]]
	sed -i 's/"cores": [0-9]*/"cores": 4093/' "$file"
	run "$MUSTER" plan "$job"
	[[ $status -eq 0 && $output == *"estimates, not measured"*"4093 cores"* ]]
	run "$MUSTER" plan "$job" "launch.calibration=$file"
	[[ $status -eq 2 && $output == *"[launch] calibration: $file was measured on"* ]]
}
