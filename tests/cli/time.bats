#!/usr/bin/env bats
# time.jsonl accounts for all time of all ranks: its parts add up to wall time × ranks, over restarts and over several runs.

load ../helpers

setup_file() {
	make_data
	make_tiny_job
}

# whole RUN RANKS CONDITION...: succeeds if the parts of each line add up to wall time × RANKS, none of those that can only grow falls, and
# each condition holds for the last line. They are Python, with the line's fields as names.
whole() {
	python3 - "$(run_folder "$1")" "${@:2}" <<-'PY'
		import json, os, subprocess, sys
		folder, ranks, conditions = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
		parts = "start data compute recompute tp cp ep pp dp optimizer checkpoint other evaluation slowest unreported lost restart stop idle".split()
		steps = "data compute recompute tp cp ep pp dp optimizer other evaluation slowest".split()
		before = None
		# The first line names the format.
		def lines(name):
		    return [line for line in map(json.loads, open(folder + "/" + name)) if "format" not in line]
		for line in lines("time.jsonl"):
		    assert sorted(part + "_s" for part in parts) == sorted(set(key for key in line if key.endswith("_s")) - {"wall_s", "total_s"}), line
		    total = sum(line[part + "_s"] for part in parts)
		    assert min(line[part + "_s"] for part in parts) >= 0, line
		    assert abs(total - line["total_s"]) < 1e-5 and abs(total - line["wall_s"] * ranks) < 1e-5, (total, line)
		    assert abs(sum(line[part + "_s"] for part in steps) - line["goodput"] * total) < 1e-5, line
		    for name in "wall_s", "start_s", "lost_s", "restart_s", "stop_s", "idle_s":
		        assert not before or line[name] >= before[name], (name, before, line)
		    before = line
		names = {key.removesuffix("_s") if key != "wall_s" else key: value for key, value in line.items()}
		names["trained"] = sum(line[part + "_s"] for part in steps + ["checkpoint"])
		# muster status splits the last line's sums among the generations.
		status = json.loads(subprocess.run([os.environ["MUSTER"], "status", folder, "--json"], stdout=subprocess.PIPE).stdout)
		spent = status["time_spent"]
		for name, whole in ("wall_s", before["wall_s"]), ("total_s", before["total_s"]), ("lost_s", before["lost_s"]):
		    assert abs(spent[name] - whole) < 1e-5 and abs(sum(g[name] for g in spent["generations"]) - whole) < 1e-5, (name, whole, spent)
		assert abs(spent["goodput"] - before["goodput"]) < 1e-9 and abs(spent["device_hours"] * 3600 - before["total_s"]) < 1e-5, spent
		for g in spent["generations"]:
		    assert abs(g["effective_s"] - g["goodput"] * g["wall_s"]) < 1e-5 and 0 <= g["goodput"] <= 1 and g["ranks"] == ranks, g
		names["per"] = spent["generations"]
		# Seconds of the steps that count, and of those that were repeated, by the rank that reports them. A step has the wait for a
		# checkpoint before it; the step that is repeated first comes after one that counts.
		once, again, end = {}, 0, 0
		for m in lines("metrics.jsonl"):
		    if m["step"] in once:
		        again += once[m["step"]]["step_s"] - once[m["step"]]["checkpoint_s"]
		    once[m["step"]] = m
		# The wait for the last checkpoint is in no step.
		for event in lines("events.jsonl"):
		    if event["event"] == "ckpt":
		        end = max(0, event["mono"] - m["mono"])
		names.update(once=sum(m["step_s"] for m in once.values()), again=again, end=end)
		print({key: value if key == "per" else round(value, 3) for key, value in names.items()})
		for condition in conditions:
		    assert eval(condition, names), condition
	PY
}

# Every rank is in the same steps, so each of them has the times of the one that reports, and the wait for the last checkpoint. One may
# wait for the checkpoint while another one waits for it in the next step. Evaluations are not part of a step.
counted="abs(trained - evaluation - ranks * (once + end)) < 0.1 * ranks * once + ranks * 0.2"

@test "a run without a fault: no time is lost, and nearly all of it is reported" {
	run_tiny quiet parallel.dp=2 checkpoint.every=10 data.eval_every=10 data.eval_batches=2
	whole quiet 2 "lost == 0 and restart == 0 and idle == 0" "step == 20" "start > 0 and stop > 0 and evaluation > 0 and checkpoint > 0" \
		"unreported < 0.1 * total" "len(per) == 1" "$counted"
	grep -qE "goodput +[0-9.]+ % of [0-9.e-]+ rank hours; .*start [0-9.]+ %" "$BATS_FILE_TMPDIR/quiet.out"
}

# What is repeated is lost by both ranks. The killed one takes its last report with it: these steps are not reported.
repeated=("lost >= again * 0.9" "lost + unreported >= 2 * again * 0.9")

# kill_once NAME WORD...: a run of two ranks whose rank 1 is killed.
kill_once() {
	"$MUSTER" run "$tiny" "job.name=$1" job.steps=300 parallel.dp=2 checkpoint.every=25 checkpoint.memory_every=0 restart.backoff=0 "${@:2}" \
		</dev/null >"$BATS_FILE_TMPDIR/$1.out" 2>&1 3>&- &
	local run=$!
	wait_for 60 step_reached "$1" 60
	kill -9 "$(agent_pid "$1" 1)"
	wait $run
}

@test "a rank is killed: what the others repeat is lost, and the way back is a restart" {
	kill_once warm
	whole warm 2 "lost > 0 and restart > 0" "len(per) == 2 and per[0]['lost_s'] > 0 and per[1]['lost_s'] == 0" "step == 300" "unreported < 0.25 * total" "${repeated[@]}" "$counted"
	# Of the parts, the line at the end names only the largest ones.
	grep -qE "goodput +[0-9.]+ % of [0-9.e-]+ rank hours; " "$BATS_FILE_TMPDIR/warm.out"
	run "$MUSTER" status "$(run_folder warm)"
	echo "$output"
	[[ $output =~ goodput\ +[0-9.]+\ %:\ .*\ of\ effective\ training\ in\ .*,\ [0-9.e-]+\ rank\ hours,\ lost\ steps\ [0-9.]+\ % ]]
	[[ $output =~ generation\ +1:\ .*\ lost\ steps\ .*generation\ +2:\ [0-9.]+\ % && ! $output =~ generation\ +2:\ [^$'\n']*lost ]]
	kill_once cold restart.warm=no
	whole cold 2 "lost > 0 and restart > 0" "unreported < 0.25 * total" "${repeated[@]}" "$counted"
}

@test "the same with parameter servers" {
	kill_once server parallel.sync=server
	whole server 2 "lost > 0 and restart > 0" "step == 300" "unreported < 0.25 * total"
}

agents_ended() { local pid; for pid; do has_ended "$pid" || return 1; done; } # pid...

# What the ranks had not reported when muster was killed is not known to be lost, so that on a fast machine nothing may be.
@test "muster itself is killed: the next run in the folder goes on with the sums" {
	local words=(job.steps=300 parallel.dp=2 checkpoint.every=25 checkpoint.memory_every=0 checkpoint.keep=12) run before agents
	"$MUSTER" run "$tiny" job.name=again "${words[@]}" </dev/null >"$BATS_FILE_TMPDIR/again.out" 2>&1 3>&- &
	run=$!
	wait_for 60 step_reached again 1
	agents=$(pgrep -P $run -x muster-agent)
	wait_for 60 checkpoint_reached again 50
	kill -9 $run
	wait $run || true
	# shellcheck disable=SC2086 # a list of pids
	wait_for 60 agents_ended $agents # they may be writing a checkpoint
	before=$(wc -l <"$(run_folder again)/time.jsonl")
	printf '{"step":' >>"$(run_folder again)/time.jsonl" # it was killed while it wrote
	find "$(run_folder again)/ckpt" -mindepth 1 -maxdepth 1 ! -name step-00000025 -exec rm -r {} +
	run_tiny again "${words[@]}"
	grep -q "continuing from step 25" "$BATS_FILE_TMPDIR/again.out"
	[[ $(wc -l <"$(run_folder again)/time.jsonl") -gt $before ]]
	whole again 2 "step == 300" "len(per) == 2" "restart == 0 and start > 0 and stop > 0" "lost >= 0"
}
