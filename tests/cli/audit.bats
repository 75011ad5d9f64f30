#!/usr/bin/env bats
# muster data audit proves which samples a run was trained on, across kills, stops and changes of layout.

load ../helpers

setup_file() {
	make_data
	make_tiny_job
}

# audited NAME: audits the run, and sets $output and $status.
audited() {
	run "$MUSTER" data audit "$(run_folder "$1")"
	echo "$output"
}

@test "a run of one generation is proven, with its tokens" {
	run_tiny plain job.steps=12 parallel.dp=2 parallel.tp=2 checkpoint.every=5
	audited plain
	[[ $status -eq 0 ]]
	[[ ${lines[0]} == *": the samples that count are 0 to 95 of the order, each once, after 12 steps" ]]
	[[ $output == *"newest checkpoint: after step 12, 96 samples"* ]]
	[[ $output == *"every rank read exactly these tokens"* ]]
	run "$MUSTER" data audit "$(run_folder plain)" --json
	[[ $status -eq 0 && $(tr -d ' \n' <<<"$output") == *'"proven":true,"first":0,"samples":96,"step":12,'* ]]
}

@test "after a killed rank, a stop and two changes of layout, each sample counts once" {
	"$MUSTER" run "$tiny" job.name=moved job.steps=400 parallel.dp=2 parallel.pp=2 checkpoint.every=7 \
		</dev/null >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
	pid=$!
	wait_for 60 step_reached moved 24
	kill -KILL "$(agent_pid moved 1)"
	wait_for 60 event moved restart
	wait_for 60 eval '[[ $(event moved first-step | wc -l) -eq 2 ]]' # of each generation
	kill -TERM $pid
	rc=0
	wait $pid || rc=$?
	[[ $rc -eq 75 ]]
	# The next generation continues from the checkpoint before, so that the steps after it are taken back.
	rm -r "$(find "$(run_folder moved)/ckpt" -maxdepth 1 -name 'step-*' | sort | tail -n 1)"
	run_tiny moved job.steps=410 parallel.dp=4 batch.micro=2 batch.global=16
	run_tiny moved job.steps=420 parallel.tp=2 parallel.dp=1
	audited moved
	[[ $status -eq 0 ]]
	[[ $output == *"generation 4: tp 2 × cp 1 × pp 1 × dp 1"* ]]
	[[ $output == *"taken back"* ]]
	samples=$(tail -n 1 "$(run_folder moved)/metrics.jsonl" | grep -oP '"samples":\K[0-9]+')
	[[ ${lines[0]} == *": the samples that count are 0 to $((samples - 1)) of the order, each once, after 420 steps" ]]
	[[ $output == *"every rank read exactly these tokens"* ]]
}

@test "a ledger with a lost, repeated or changed line is not proven" {
	run_tiny bent job.steps=12 parallel.dp=2 checkpoint.every=4
	ledger=$(run_folder bent)/ledger.jsonl
	cp "$ledger" "$BATS_TEST_TMPDIR/whole"
	sed -i 4d "$ledger"
	audited bent
	[[ $status -eq 1 && $output == *"samples 32 to 63 are missing"* ]]
	sed -n '1,4p; 4,5p' "$BATS_TEST_TMPDIR/whole" >"$ledger"
	audited bent
	[[ $status -eq 1 && $output == *"samples 32 to 63 come twice"* ]]
	sed 4q "$BATS_TEST_TMPDIR/whole" >"$ledger"
	audited bent
	[[ $status -eq 1 && $output == *"the newest checkpoint is of step 12 and holds 96 samples, the ledger ends with step 8 and 64"* ]]
	sed -E '4s/(\[0,4,")(.{31})./\1\20/; 4s/(\[4,4,")(.{31})./\1\20/; 5s/(\[4,4,")(.{31})./\1\21/' "$BATS_TEST_TMPDIR/whole" >"$ledger"
	audited bent
	[[ $status -eq 1 && $output == *"read tokens that differ from the data"* ]]
	run "$MUSTER" data audit "$(run_folder bent)" --no-data
	[[ $status -eq 0 && $output == *"the data was not read: --no-data"* ]]
	cp "$BATS_TEST_TMPDIR/whole" "$ledger"
	audited bent
	[[ $status -eq 0 ]]
}

@test "a blend is proven source by source, also with masked documents and without prefetch" {
	"$MUSTER" data pack /usr/share/common-licenses/GPL-2 -o "$BATS_FILE_TMPDIR/second"
	for ahead in 0 3; do
		run_tiny "blend$ahead" job.steps=10 parallel.dp=2 "data.path=0.75 $data 0.25 $BATS_FILE_TMPDIR/second" \
			data.documents=mask data.prefetch=$ahead data.eval_every=5
		audited "blend$ahead"
		[[ $status -eq 0 ]]
		[[ $output == *"60 samples of $data"* && $output == *"20 samples of $BATS_FILE_TMPDIR/second"* ]]
	done
	run "$losses" compare "$(run_folder blend0)/metrics.jsonl" "$(run_folder blend3)/metrics.jsonl" 0
	[[ $status -eq 0 ]]
	run "$MUSTER" data show "0.75 $data 0.25 $BATS_FILE_TMPDIR/second"
	[[ $status -eq 0 && $output == *" 75.00 %  $data: 2 documents"* ]]
}

@test "data that was moved or removed is reported" {
	"$MUSTER" data pack /usr/share/common-licenses/GPL-3 -o "$BATS_FILE_TMPDIR/here"
	run_tiny gone job.steps=6 "data.path=$BATS_FILE_TMPDIR/here"
	mv "$BATS_FILE_TMPDIR/here.bin" "$BATS_FILE_TMPDIR/there.bin"
	mv "$BATS_FILE_TMPDIR/here.idx" "$BATS_FILE_TMPDIR/there.idx"
	audited gone
	[[ $status -eq 0 && $output == *"the data was not read: "*"here.idx: no such file"* ]]
	run "$MUSTER" data audit "$(run_folder gone)" --data "$BATS_FILE_TMPDIR/there"
	[[ $status -eq 0 && $output == *"every rank read exactly these tokens"* ]]
	run "$MUSTER" data audit "$(run_folder gone)" --data "$data"
	[[ $status -eq 1 && $output == *"the data was changed"* ]]
}

@test "a folder that is not a run and wrong arguments are refused" {
	run "$MUSTER" data audit "$BATS_TEST_TMPDIR"
	[[ $status -eq 1 && $output == *"ledger.jsonl: no such file; name the folder of a run that has trained"* ]]
	run "$MUSTER" data audit
	[[ $status -eq 2 && $output == *"one RUN is needed"* ]]
	run "$MUSTER" data audit x --data a --no-data
	[[ $status -eq 2 && $output == *"exclude each other"* ]]
	run "$MUSTER" data audit --help
	[[ $status -eq 0 && $output == *"EXIT STATUS"* ]]
}
