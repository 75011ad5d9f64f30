#!/usr/bin/env bats
# `muster trace RUN -o FILE`: a picture of steps that the ranks have recorded.

load ../helpers

setup_file() {
	make_data
	make_tiny_job
	# Copies in memory come when enough time has passed, so a step may have one or not.
	words="parallel.tp=2 parallel.pp=2 batch.global=8 checkpoint.memory_every=0"
	export words
	# shellcheck disable=SC2086
	run_tiny drawn $words trace.steps=10-12 data.eval_every=11 data.eval_batches=1
}

# checked FILE CODE: runs Python code with the picture's events as `events`, those of a kind as of("X"), and the slices of a track as
# slices(pid, tid), by time.
checked() {
	python3 - "$1" <<-PY
		import json, sys
		events = json.load(open(sys.argv[1]))["traceEvents"]
		def ns(us): return round(us * 1000)
		def of(kind): return [e for e in events if e["ph"] == kind]
		def slices(pid, tid):
		    return sorted((e for e in of("X") if e["pid"] == pid and e["tid"] == tid), key=lambda e: (e["ts"], -e["dur"]))
		tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in of("M") if e["name"] == "thread_name"}
		training = {pid: tid for (pid, tid), name in tracks.items() if name == "training"}
		assert len({tid for _, tid in tracks}) == len(tracks)  # Perfetto knows a thread by its number alone
		$2
	PY
}

@test "every rank has its steps, and slices nest" {
	cd "$BATS_TEST_TMPDIR"
	run "$MUSTER" trace "$(run_folder drawn)" -o all.json
	echo "$output"
	[[ $status -eq 0 && $output == "all.json: steps 10 to 12 of 4 ranks"* && $(stat -c %a all.json) == 600 ]]
	checked all.json "
for rank in range(4):
    steps = [e for e in slices(rank, training[rank]) if e['cat'] == 'step']
    assert [e['name'] for e in steps] == ['step 10', 'step 11', 'step 12']
    phases = [e for e in slices(rank, training[rank]) if e['cat'] == 'phase']
    for s in steps:
        inside = [p for p in phases if ns(s['ts']) <= ns(p['ts']) < ns(s['ts']) + ns(s['dur'])]
        assert sum(ns(p['dur']) for p in inside) == ns(s['dur']), (s, inside)
        assert inside[0]['name'] == 'data' and inside[-1]['name'] == 'agree to go on'
        assert ('evaluation' in [p['name'] for p in inside]) == (s['name'] == 'step 11')
        for kind in 'forward', 'backward':
            assert [p['args']['micro'] for p in inside if p['name'] == kind and 'micro' in p['args']] == list(range(8))
for pid, tid in tracks:
    open = []
    for e in slices(pid, tid):
        while open and open[-1] <= ns(e['ts']): open.pop()
        assert not open or ns(e['ts']) + ns(e['dur']) <= open[-1], (tracks[pid, tid], e)
        open.append(ns(e['ts']) + ns(e['dur']))
assert min(e['ts'] for e in of('X')) == 0
"
}

@test "every message has an arrow from its sender to its receiver" {
	cd "$BATS_TEST_TMPDIR"
	"$MUSTER" trace "$(run_folder drawn)" -o all.json
	checked all.json "
sent, received = {e['id']: e for e in of('s')}, {e['id']: e for e in of('f')}
# Each of 8 micro-batches in 3 steps goes forward and its gradient back, between 2 pairs of stages; an evaluation goes forward.
assert len(of('s')) == len(sent) == 2 * 2 * 8 * 3 + 2 * 8 and sent.keys() == received.keys()
for id, s in sent.items():
    f = received[id]
    # The processes of a host share its clock, but their times are rounded: 1 ms is far more than that.
    assert s['pid'] != f['pid'] and s['ts'] <= f['ts'] + 1000, (s, f)
    assert tracks[s['pid'], s['tid']] == tracks[f['pid'], f['tid']]
    for end in s, f:
        assert any(e['ts'] <= end['ts'] <= e['ts'] + e['dur'] for e in slices(end['pid'], end['tid']))
"
}

@test "steps and ranks are chosen" {
	cd "$BATS_TEST_TMPDIR"
	run "$MUSTER" trace "$(run_folder drawn)" --steps 11 --ranks 1,3 -o some.json --json
	[[ $status -eq 0 ]]
	MUSTER_RUNS=$(dirname "$(run_folder drawn)") "$MUSTER" trace drawn --steps 11 --ranks 1,3 -o same.json
	cmp some.json same.json
	python3 -c 'import json, sys; v = json.load(sys.stdin); assert (v["ranks"], v["first"], v["last"], v["lost"]) == (2, 11, 11, 0) and v["events"] > 0' <<<"$output"
	checked some.json "
assert {e['pid'] for e in events} == {1, 3}
assert [e['name'] for e in of('X') if e['cat'] == 'step'] == ['step 11'] * 2
"
}

@test "recording changes no bit of the run" {
	# shellcheck disable=SC2086
	run_tiny plain $words data.eval_every=11 data.eval_batches=1
	run "$losses" compare "$(run_folder plain)/metrics.jsonl" "$(run_folder drawn)/metrics.jsonl" 0
	[[ $status -eq 0 ]]
}

@test "a run that ends within the steps keeps those that it has done" {
	cd "$BATS_TEST_TMPDIR"
	# shellcheck disable=SC2086
	run_tiny short $words trace.steps=18-30
	run "$MUSTER" trace "$(run_folder short)" -o short.json
	[[ $status -eq 0 && $output == *"steps 18 to 20 of 4 ranks"* ]]
	# One rank's file is of another recording.
	cp -r "$(run_folder drawn)" mixed
	cp "$(run_folder short)/trace/gen-1/steps-2.json" mixed/trace/gen-1/
	run "$MUSTER" trace mixed --steps 10-12 -o mixed.json
	[[ $status -eq 0 && $output == *"steps 10 to 12 of 3 ranks"*"1 rank is left out: the file holds other steps"* ]]
}

@test "what is missing or wrong is named, and an earlier picture stays" {
	cd "$BATS_TEST_TMPDIR"
	# shellcheck disable=SC2086
	run_tiny none $words job.steps=6
	run "$MUSTER" trace "$(run_folder none)" -o a.json
	[[ $status -eq 3 && $output == *"no steps were recorded; run the job with trace.steps=FIRST-LAST"* && ! -e a.json ]]
	echo earlier >a.json
	run "$MUSTER" trace "$(run_folder drawn)" --steps 40-44 -o a.json
	[[ $status -eq 3 && $output == *"the chosen steps were not recorded"* ]]
	run "$MUSTER" trace "$(run_folder drawn)" --ranks 9 -o a.json
	[[ $status -eq 3 && $output == *"none of the chosen ranks has a file there"* ]]
	run "$MUSTER" trace "$(run_folder drawn)" --steps 4-x -o a.json
	[[ $status -eq 2 ]]
	run "$MUSTER" trace "$(run_folder drawn)" --steps 4
	[[ $status -eq 2 && $output == *"--steps needs -o FILE"* ]]
	cp -r "$(run_folder drawn)" cut
	truncate -s 1000 cut/trace/gen-1/steps-2.json
	run "$MUSTER" trace cut -o a.json
	[[ $status -eq 3 && $output == *"steps-2.json is not a trace of steps"* && $(<a.json) == earlier ]]
	run "$MUSTER" trace "$(run_folder drawn)" -o nowhere/a.json
	[[ $status -eq 1 && $output == *"nowhere/a.json"* ]]
	[[ $(ls) == $'a.json\ncut' ]]
}

@test "Perfetto's trace processor reads it" {
	cd "$BATS_TEST_TMPDIR"
	python3 -c 'import perfetto' 2>/dev/null || skip "python3 has no module perfetto"
	"$MUSTER" trace "$(run_folder drawn)" -o all.json
	run python3 - <<-'PY'
		import signal, sys
		from perfetto.trace_processor import TraceProcessor
		def late(number, frame): raise TimeoutError("its download or its start takes too long")
		signal.signal(signal.SIGALRM, late)
		signal.alarm(40)
		try:
		    tp = TraceProcessor(trace="all.json")
		except Exception as why:
		    print(why); sys.exit(9)
		signal.alarm(0)
		def one(query): return next(iter(tp.query(query))).n
		assert one("select count(*) n from slice where category = 'step'") == 12
		assert one("select count(*) n from flow") == 112
		assert one("select count(*) n from stats where severity != 'info' and value > 0") == 0
	PY
	echo "$output"
	[[ $status -ne 9 ]] || skip "Perfetto's trace processor cannot be installed here"
	[[ $status -eq 0 ]]
}
