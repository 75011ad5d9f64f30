#!/usr/bin/env bats
# muster ckpt diff, prune, copy and repair on the checkpoints of real runs.

load ../helpers

setup_file() {
	make_data
	make_tiny_job
	run_tiny made job.steps=6 checkpoint.every=1 checkpoint.keep=5 parallel.tp=2 parallel.pp=2
	run_tiny other job.steps=6 checkpoint.every=6 parallel.dp=2
}

setup() {
	cd "$BATS_TEST_TMPDIR"
	cp -r "$(run_folder made)/ckpt" ckpt
}

flip() { # FILE BYTE: changes one bit
	local byte
	byte=$(od -An -tu1 -j "$2" -N 1 "$1")
	printf "\\x$(printf %x $((byte ^ 16)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

last_byte() { echo $(($(stat -c %s "$1") - 1)); }

digest() { "$MUSTER" ckpt show "$1" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["state_digest"])'; }

@test "a checkpoint equals its copy, which is made once" {
	run "$MUSTER" ckpt copy ckpt/step-00000006 backup --json
	[[ $status -eq 0 ]]
	python3 -c 'import json, sys; d = json.load(sys.stdin)
assert d["step"] == 6 and d["sent"] == d["bytes"] > 0 and d["reused"] == 0 and not d["there_already"], d' <<<"$output"
	run "$MUSTER" ckpt diff ckpt/step-00000006 backup
	[[ $status -eq 0 && ${lines[-1]} == "same: 0 of "*" tensors differ; 0 B read, "* ]]
	run "$MUSTER" ckpt copy ckpt/step-00000006 backup
	[[ $status -eq 0 && $output == *"step-00000006: is there already" ]]
	run "$MUSTER" ckpt copy "$(run_folder made)" backup2
	[[ $status -eq 0 ]]
	[[ $(digest backup2/step-00000006) == "$(digest ckpt)" ]]
}

@test "a damaged checkpoint is not copied, and another one is not overwritten" {
	flip ckpt/step-00000006/shard-00001.safetensors "$(last_byte ckpt/step-00000006/shard-00001.safetensors)"
	run "$MUSTER" ckpt copy ckpt/step-00000006 backup
	[[ $status -eq 1 && $output == *shard-00001.safetensors* && ! -e backup/step-00000006 ]]
	"$MUSTER" ckpt copy "$(run_folder other)/ckpt/step-00000006" third
	run "$MUSTER" ckpt copy "$(run_folder made)/ckpt/step-00000006" third
	[[ $status -eq 2 && $output == *"another checkpoint of this step is there"* ]]
	"$MUSTER" ckpt copy --replace "$(run_folder made)/ckpt/step-00000006" third
	[[ $(digest third/step-00000006) == "$(digest "$(run_folder made)")" ]]
}

@test "diff names fields and tensors, with their figures" {
	run "$MUSTER" ckpt diff ckpt/step-00000005 ckpt/step-00000006
	[[ $status -eq 1 && $output == *"step "*"5, 6"* ]]
	grep -E '^layers\.3\.attn\.q\.weight +[0-9]+ of 1024, max [0-9.e-]+, relative [0-9.e-]+, first \[[0-9]+, [0-9]+\]' <<<"$output"
	[[ ${lines[-1]} == "different: "* ]]
	run "$MUSTER" ckpt diff ckpt/step-00000006 "$(run_folder other)" --json
	[[ $status -eq 1 ]]
	python3 -c 'import json, sys; d = json.load(sys.stdin)
assert not d["same"] and d["a"]["state_digest"] != d["b"]["state_digest"], d
assert all(t["what"] == "values" and 0 < t["count"] <= t["elements"] and t["max_abs"] < 0.1 for t in d["tensors"]), d
assert d["compared"] >= len(d["tensors"]) > 0 and d["read"] > 0, d' <<<"$output"
}

@test "diff calls a damaged file an error and no difference" {
	flip ckpt/step-00000005/shard-00001.safetensors "$(last_byte ckpt/step-00000005/shard-00001.safetensors)"
	run "$MUSTER" ckpt diff ckpt/step-00000005 ckpt/step-00000006
	[[ $status -eq 2 && $output == *shard-00001.safetensors* ]]
	run "$MUSTER" ckpt diff ckpt
	[[ $status -eq 2 && $output == *"A and B are needed"* ]]
	run "$MUSTER" ckpt diff ckpt nowhere
	[[ $status -eq 2 && $output == *"nowhere: no such file"* ]]
}

@test "prune keeps the last and every so many, and says so before" {
	run "$MUSTER" ckpt prune ckpt --keep 1 --keep-every 2 --dry-run --json
	[[ $status -eq 0 && $(ls ckpt | wc -l) -eq 5 ]]
	python3 -c 'import json, sys; d = json.load(sys.stdin)
assert [(c["step"], c["verdict"]) for c in d["checkpoints"]] == [(6, "kept"), (5, "removed"), (4, "kept"), (3, "removed"), (2, "kept")], d
assert d["dry_run"] and d["freed"] == sum(c["bytes"] for c in d["checkpoints"] if c["verdict"] == "removed") > 0, d' <<<"$output"
	run "$MUSTER" ckpt prune ckpt --keep 1 --keep-every 2
	[[ $status -eq 0 && $(ls ckpt) == $'step-00000002\nstep-00000004\nstep-00000006' ]]
	"$MUSTER" ckpt verify ckpt
	"$MUSTER" ckpt prune ckpt --keep 2
	[[ $(ls ckpt) == $'step-00000004\nstep-00000006' ]]
}

@test "prune never removes the last valid checkpoint, nor what is newer" {
	truncate -s -1 ckpt/step-00000006/shard-00001.safetensors
	rm ckpt/step-00000005/MANIFEST.json
	truncate -s -1 ckpt/step-00000003/shard-00001.safetensors
	mkdir ckpt/.attempt-00000007-1-0123456789abcdef
	"$MUSTER" ckpt prune ckpt --keep 1
	[[ $(ls -A ckpt) == $'.attempt-00000007-1-0123456789abcdef\nstep-00000004\nstep-00000005\nstep-00000006' ]]
	run "$MUSTER" ckpt prune ckpt --keep 0
	[[ $status -eq 2 && $output == *"--keep 0 is not a whole number of 1 or more"* && -e ckpt/step-00000004 ]]
	run "$MUSTER" ckpt prune ckpt
	[[ $status -eq 2 && $output == *"--keep N is missing"* ]]
	run "$MUSTER" ckpt prune ckpt/step-00000004 --keep 1
	[[ $status -eq 2 && $output == *"is a checkpoint; name its folder"* ]]
}

@test "prune leaves a checkpoint that is being read" {
	mkfifo started end
	python3 - <<-'PY' &
		import fcntl, struct
		f = open("ckpt/step-00000002/MANIFEST.json")
		fcntl.fcntl(f, 37, struct.pack("hhqqi4x", fcntl.F_RDLCK, 0, 0, 0, 0))  # F_OFD_SETLK
		open("started", "w").close()
		open("end").close()
	PY
	reader=$!
	: <started
	run "$MUSTER" ckpt prune ckpt --keep 1
	: >end
	wait "$reader"
	[[ $status -eq 0 && $(ls ckpt) == $'step-00000002\nstep-00000006' ]]
	[[ $output == *"in use "*"step-00000002"* ]]
	"$MUSTER" ckpt prune ckpt --keep 1
	[[ $(ls ckpt) == step-00000006 ]]
}

# with_remote: makes the folder `run` with the checkpoints of the run, whose copies go to `copies`.
with_remote() {
	cp -r "$(run_folder made)" run
	sed -i "s,^remote =.*,remote = $PWD/copies," run/job.ini
	grep -q "^remote = $PWD/copies" run/job.ini
}

@test "prune leaves what is still to be copied" {
	with_remote
	for dir in run run/ckpt; do # checkpoint.remote_keep = 3: older ones are not wanted there
		run "$MUSTER" ckpt prune $dir --keep 1
		echo "$output"
		[[ $status -eq 0 && $(echo run/ckpt/step-*) == *4*5*6 && $output == *"not copied to checkpoint.remote yet"* ]]
	done
	for _ in 1 2 3; do "$MUSTER" ckpt upload run; done
	"$MUSTER" ckpt prune run --keep 1
	[[ $(echo run/ckpt/step-*) == run/ckpt/step-00000006 && $(ls -d copies/step-* | wc -l) -eq 3 ]]
}

@test "verify --remote reads the copies of a run" {
	with_remote
	run "$MUSTER" ckpt verify run --remote
	[[ $status -eq 1 && $output == *"copies: no checkpoints"* ]]
	"$MUSTER" ckpt copy run/ckpt/step-00000005 copies
	"$MUSTER" ckpt copy run/ckpt/step-00000006 copies
	flip copies/step-00000006/shard-00001.safetensors "$(last_byte copies/step-00000006/shard-00001.safetensors)"
	run "$MUSTER" ckpt verify run --remote
	[[ $status -eq 1 && $output == *"copies/step-00000006: damaged: "*shard-00001.safetensors* && $output == *"copies/step-00000005: ok"* ]]
	"$MUSTER" ckpt repair copies/step-00000006 --from run
	"$MUSTER" ckpt verify run --remote
	"$MUSTER" ckpt verify run
	run "$MUSTER" ckpt verify run/ckpt --remote
	[[ $status -eq 2 && $output == *"is not a run's folder"* ]]
	run "$MUSTER" ckpt verify "$(run_folder made)" --remote
	[[ $status -eq 2 && $output == *"the run has no checkpoint.remote"* ]]
}

@test "repair makes a damaged checkpoint what it was" {
	before=$(cd ckpt/step-00000006 && sha256sum *)
	flip ckpt/step-00000006/shard-00001.safetensors "$(last_byte ckpt/step-00000006/shard-00001.safetensors)"
	rm ckpt/step-00000006/shard-00002.safetensors
	run "$MUSTER" ckpt repair ckpt/step-00000006 --from "$(run_folder made)" --dry-run
	[[ $status -eq 1 && $output == *"1 headers"* && $(ls ckpt | wc -l) -eq 5 ]]
	run "$MUSTER" ckpt repair ckpt/step-00000006 --from "$(run_folder made)" --json
	[[ $status -eq 0 ]]
	python3 -c 'import json, os, sys; d = json.load(sys.stdin)
assert not d["whole"] and d["slices"] > d["fetched"] > 1 and d["headers"] == 1, d
assert os.path.basename(d["kept"]).startswith("damaged-step-00000006."), d' <<<"$output"
	"$MUSTER" ckpt verify ckpt/step-00000006
	[[ $(cd ckpt/step-00000006 && sha256sum *) == "$before" ]]
	run "$MUSTER" ckpt repair ckpt/step-00000006 --from "$(run_folder made)"
	[[ $status -eq 0 && $output == *"whole, nothing to repair" ]]
	run "$MUSTER" ckpt ls ckpt
	[[ $status -eq 0 && $output != *damaged* ]]
}

@test "repair refuses another state" {
	flip ckpt/step-00000006/shard-00001.safetensors "$(last_byte ckpt/step-00000006/shard-00001.safetensors)"
	run "$MUSTER" ckpt repair ckpt/step-00000006 --from "$(run_folder other)"
	[[ $status -eq 2 && $output == *"its state digest is not that of"* ]]
	run "$MUSTER" ckpt repair ckpt/step-00000006 --from ckpt/step-00000005
	[[ $status -eq 2 && $output == *"of step 5"* ]]
	run "$MUSTER" ckpt repair ckpt --from ckpt/step-00000005
	[[ $status -eq 2 && $output == *"is not a checkpoint"* ]]
	run "$MUSTER" ckpt repair ckpt/step-00000006
	[[ $status -eq 2 && $output == *"--from GOOD is missing"* ]]
	[[ $(ls -A ckpt | wc -l) -eq 5 ]]
}

@test "each tool has a help page" {
	for tool in diff prune copy repair; do
		run "$MUSTER" ckpt $tool --help
		[[ $status -eq 0 ]]
		for part in SYNOPSIS OPTIONS EXAMPLES "EXIT STATUS"; do
			[[ $output == *"$part"* ]]
		done
	done
}

@test "copy does not put a checkpoint into a checkpoint" {
	cp -r "$(run_folder made)/ckpt" ckpt
	mv ckpt/step-00000004 whole
	for to in ckpt/step-00000005 ckpt/step-00000005/ ckpt/step-00000009 whole; do
		run "$MUSTER" ckpt copy ckpt/step-00000006 "$to"
		echo "$output"
		[[ $status -eq 2 && $output == *"$to: this is a checkpoint, or has the name of one; name the folder above it" ]]
	done
	"$MUSTER" ckpt verify ckpt
	[[ ! -e ckpt/step-00000009 ]]
}
