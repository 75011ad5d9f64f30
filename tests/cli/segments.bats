#!/usr/bin/env bats
# A run with a small bound on its JSON lines splits its files and thins old parts while it trains, and everything that reads them
# still works.

bats_require_minimum_version 1.5.0
load ../helpers

setup_file() {
	make_data
	make_tiny_job
}

# Prints the bytes of all JSON lines of the run that [metrics] keep bounds.
line_bytes() { cat "$(run_folder "$1")"/{metrics,events,health,time}.*jsonl 2>/dev/null | wc -c; }

@test "files are split and thinned within their bound, and a restart and all readers go over the parts" {
	local words="job.steps=1600 batch.global=2 model.layers=1 model.hidden=8 model.heads=1 model.seq=8 metrics.keep=0.001"
	local folder
	folder=$(run_folder long)
	# Rank 0 ends itself: a loaded machine might kill it only after the run.
	DRILL_MARK=segments DRILL_FAULT="exit 0 700 0" run_tiny long $words checkpoint.every=400
	ls -l "$folder"
	[[ -e $folder/metrics.1.jsonl && -e $folder/metrics.9.jsonl && ! -e $folder/metrics.1.jsonl.new ]]
	[[ $(line_bytes long) -le $((1073741824 / 1000)) ]]
	head -qn 1 "$folder"/metrics.*.jsonl | grep -q '"thinned":1}'
	run --separate-stderr "$MUSTER" diff "$folder" "$folder"
	[[ $status -eq 0 && $output == *", 1 to 1600"* && -z $stderr ]]
	[[ $("$MUSTER" events "$folder" | grep -c " restart ") -eq 1 ]]
	[[ $("$MUSTER" events "$folder" | tail -n 1) == *" done "* ]]
	run "$MUSTER" data audit "$folder"
	[[ $status -eq 0 ]]
	# The same command with more steps goes on.
	run_tiny long $words job.steps=1700
	[[ $(last_step long) -eq 1700 ]]
}
