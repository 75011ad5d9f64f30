#!/usr/bin/env bats
# muster plan: the best layout, the sizes of a cluster, and the report about a plan that does not fit.

load ../helpers

# of EXPRESSION: prints a Python expression over d, the JSON document on stdin.
of() { python3 -c 'import json, sys; d = json.load(sys.stdin); print(eval(sys.argv[1]))' "$1"; }

setup() {
	cd "$top" || exit 1
	small=(model.layers=8 model.hidden=1024 model.heads=16 model.seq=1024 model.vocab=32000 batch.global=32 precision.dtype=bf16 job.device=cuda)
}

@test "--auto prints the lines of a job that has the predicted step" {
	run "$MUSTER" plan --auto --cluster dgx-h100:1 templates/jobs/demo.ini "${small[@]}"
	echo "$output"
	[[ $status -eq 0 ]]
	[[ $output == *"Best layout for "*" on dgx-h100:1, 8 devices"*"Other layouts, and the time they lose"*"Evaluated "*"[parallel]"* ]]
	# The printed lines, as a job.
	sed -n '/^The best layout as lines/,$p' <<<"$output" | tail -n +3 >"$BATS_TEST_TMPDIR/lines"
	words=()
	section=""
	while IFS= read -r line; do
		case $line in
		\[*\]) section=${line#[}; section=${section%]} ;;
		*=*) words+=("$section.$(tr -d ' ' <<<"$line")") ;;
		esac
	done <"$BATS_TEST_TMPDIR/lines"
	found=$("$MUSTER" plan --auto --json --cluster dgx-h100:1 templates/jobs/demo.ini "${small[@]}" | of 'd["best"]["step_seconds"]["total"]')
	planned=$("$MUSTER" plan --json --cluster dgx-h100:1 templates/jobs/demo.ini "${small[@]}" "${words[@]}" | of 'd["step_seconds"]["total"]')
	echo "found $found, planned $planned"
	[[ -n $found && $found == "$planned" ]]
}

@test "--auto keeps keys of the command line and searches those of the file; parallel.auto keeps those of the file" {
	tp=$("$MUSTER" plan --auto --json --cluster dgx-h100:1 templates/jobs/demo.ini "${small[@]}" parallel.tp=4 | of 'd["best"]["layout"]["tp"]')
	[[ $tp -eq 4 ]]
	printf '[parallel]\nauto = yes\ntp = 2\npp = 2\n' >"$BATS_TEST_TMPDIR/kept.ini"
	layout=$("$MUSTER" plan --json --cluster dgx-h100:1 "$BATS_TEST_TMPDIR/kept.ini" "${small[@]}" | of '[d["best"]["layout"][k] for k in ("tp", "pp")]')
	[[ $layout == "[2, 2]" ]]
	printf '[parallel]\ntp = auto\npp = 2\n' >"$BATS_TEST_TMPDIR/one.ini"
	layout=$("$MUSTER" plan --json --cluster dgx-h100:1 "$BATS_TEST_TMPDIR/one.ini" "${small[@]}" | of '[d["best"]["layout"][k] for k in ("pp", "zero", "micro")]')
	[[ $layout == "[2, 0, 4]" ]]
}

@test "a run decides the keys that its job leaves open, and its folder holds the decision" {
	printf 'a text to learn by heart, and then some more of it\n%.0s' {1..200} >"$BATS_TEST_TMPDIR/text"
	"$MUSTER" data pack "$BATS_TEST_TMPDIR/text" -o "$BATS_TEST_TMPDIR/data"
	printf '[parallel]\nauto = yes\ndp = 2\n[batch]\nglobal = 8\n[model]\nlayers = 2\nhidden = 32\nseq = 32\n' >"$BATS_TEST_TMPDIR/open.ini"
	run "$MUSTER" run "$BATS_TEST_TMPDIR/open.ini" job.steps=2 launch.devices=2 data.path="$BATS_TEST_TMPDIR/data" job.run_dir="$BATS_TEST_TMPDIR/runs"
	echo "$output"
	[[ $status -eq 0 ]]
	[[ $output == *"muster: chose tp 1 × dp 2 × pp 1"* ]]
	grep -qx 'dp = 2' "$BATS_TEST_TMPDIR/runs/open/job.ini"
	grep -qx 'auto = no' "$BATS_TEST_TMPDIR/runs/open/job.ini"
	! grep -E '= auto$' <(sed -n '/^\[parallel\]/,/^\[precision\]/p; /^\[batch\]/,/^\[optimizer\]/p' "$BATS_TEST_TMPDIR/runs/open/job.ini") || false
}

# static_file N IDS: a file for NCCL_TOPO_FILE, which leaves NVLink to the driver.
static_file() {
	echo '<system version="1"><cpu numaid="0" arch="x86_64">'
	for ((i = 0; i < $1; i++)); do
		printf '<pci busid="%04d:00:00.0" class="0x030200" link_speed="16.0 GT/s" link_width="16" %s/>\n' "$i" "$2"
	done
	echo '</cpu></system>'
}

@test "a plan names what is missing in the description of its machines, and what it assumes" {
	static_file 8 'vendor="0x10de" device="0x20b2"' >"$BATS_TEST_TMPDIR/p4de.xml"
	static_file 4 'vendor="0x10de" device="0x20b5"' >"$BATS_TEST_TMPDIR/pcie.xml"
	words=(parallel.tp=4 parallel.dp=1 parallel.pp=1 "${small[@]}")
	run "$MUSTER" plan --cluster "$BATS_TEST_TMPDIR/p4de.xml" templates/jobs/demo.ini "${words[@]}"
	echo "$output"
	[[ $status -eq 0 && $output == *"Missing in the description of the machines"* ]]
	[[ $output == *"  p4de  NVLink: it is taken to run through NVSwitches, as on boards of A100-SXM4-80GB"$'\n'* ]]
	[[ $output =~ tp\ +4\ +1\ +NVSwitch\ +300\ GB/s ]]
	[[ $("$MUSTER" plan --json --cluster "$BATS_TEST_TMPDIR/p4de.xml" templates/jobs/demo.ini "${words[@]}" | of '[m["kind"] for m in d["missing"] if "NVSwitches" in m["missing"]]') == "['p4de']" ]]
	run "$MUSTER" plan --auto --cluster "$BATS_TEST_TMPDIR/p4de.xml" templates/jobs/demo.ini "${small[@]}"
	[[ $status -eq 0 && $output == *"  p4de  NVLink: it is taken to run through NVSwitches"* ]]
	[[ $("$MUSTER" plan --auto --json --cluster "$BATS_TEST_TMPDIR/p4de.xml" templates/jobs/demo.ini "${small[@]}" | of '[m["kind"] for m in d["missing"]]') == "['p4de']" ]]
	run "$MUSTER" plan --cluster "$BATS_TEST_TMPDIR/pcie.xml" templates/jobs/demo.ini "${words[@]}"
	echo "$output"
	[[ $status -eq 0 && $output == *"  pcie  NVLink or xGMI links, which it leaves to the driver"$'\n'* && $output != *"is taken"* ]]
	run "$MUSTER" plan --cluster dgx-a100 templates/jobs/demo.ini "${words[@]}"
	[[ $status -eq 0 && $output != *"Missing in the description"* ]]
	[[ $("$MUSTER" plan --json --cluster dgx-a100 templates/jobs/demo.ini "${words[@]}" | of 'd["missing"]') == "[]" ]]
}

@test "--gpus shows each size as text, as JSON and as a drawing" {
	run "$MUSTER" plan --gpus 8..32 --cluster dgx-h100 --svg "$BATS_TEST_TMPDIR/s.svg" templates/jobs/demo.ini "${small[@]}"
	echo "$output"
	[[ $status -eq 0 ]]
	[[ $(grep -cE '^ +(8|16|32) ' <<<"$output") -eq 3 ]]
	[[ $output == *" 100 % "* ]]
	head -c 4 "$BATS_TEST_TMPDIR/s.svg" | grep -q '<svg'
	[[ $(grep -c '<circle' "$BATS_TEST_TMPDIR/s.svg") -eq 3 ]]
	tail -1 "$BATS_TEST_TMPDIR/s.svg" | grep -qx '</svg>'
	# The axis of rates has round numbers, which differ.
	sed -n 's/.*class="side">\([^<]*\)<.*/\1/p' "$BATS_TEST_TMPDIR/s.svg" >"$BATS_TEST_TMPDIR/marks"
	cat "$BATS_TEST_TMPDIR/marks"
	[[ $(sort -u "$BATS_TEST_TMPDIR/marks" | wc -l) -ge 4 && $(sort -u "$BATS_TEST_TMPDIR/marks" | wc -l) -eq $(wc -l <"$BATS_TEST_TMPDIR/marks") ]]
	! grep -vE '^(1|1\.[24568]|2|2\.5|[3-8]|1[0-9]|[2-8]0|25|1[0-9]0|[2-8]00|250)( [kMG])?$' "$BATS_TEST_TMPDIR/marks" || false
	sizes=$("$MUSTER" plan --gpus 8..32 --json --cluster dgx-h100 templates/jobs/demo.ini "${small[@]}" | of '[p["devices"] for p in d["points"]]')
	[[ $sizes == "[8, 16, 32]" ]]
}

@test "invalid ranges, and machines of a fixed size, are refused" {
	for range in 0..8 8..4 x 8.. 8...16 9999999; do
		run "$MUSTER" plan --gpus "$range" --cluster dgx-h100 templates/jobs/demo.ini
		[[ $status -eq 2 ]]
		[[ $output == "muster: --gpus "*": write numbers of devices such as 64..4096"* ]]
	done
	run "$MUSTER" plan --gpus 8..16 --cluster local templates/jobs/demo.ini
	[[ $status -eq 2 && $output == *"is a machine of one size"* ]]
	run "$MUSTER" plan --auto --schedule templates/jobs/demo.ini
	[[ $status -eq 2 ]]
}

@test "a plan that does not fit names the excess, the rank, the cause and three plans that fit" {
	run "$MUSTER" plan templates/jobs/175b.ini parallel.pp=4 parallel.dp=32 parallel.zero=0
	echo "$output"
	[[ $status -eq 3 ]]
	[[ $output == "muster: rank 0 (tp 0, dp 0, pp 0) needs "*" GiB, "*" GiB more than the 76 GiB that a device of dgx-h100:128 leaves it: "*"optimizer state "*"; nearest that fit: "*" per step); or "*" per step); or "*" per step)" ]]
}

@test "a plan that would fit another program names it, and what is smaller there" {
	words=(precision.dtype=bf16 parallel.tp=1 parallel.pp=1 parallel.dp=8 parallel.zero=1 batch.micro=4 recompute.mode=none)
	run "$MUSTER" plan --cluster dgx-a100:1 templates/jobs/llama-7b.ini "${words[@]}"
	echo "$output"
	[[ $status -eq 3 && $output =~ \ gradients\ 25\ GiB.*"; Megatron-Core would fit with "([0-9]+)" GiB (gradients 13 GiB less); nearest that fit: " ]]
	fits=${BASH_REMATCH[1]}
	most=$("$MUSTER" plan --json --cluster dgx-a100:1 templates/jobs/llama-7b.ini "${words[@]}" plan.engine=megatron-core | of 'round(max(s["bytes"]["total"] for s in d["stages"]) / 2**30)')
	[[ $fits -eq $most ]]
	# Too large for all, and a job of another program.
	run "$MUSTER" plan --cluster dgx-a100:1 templates/jobs/llama-7b.ini "${words[@]}" batch.micro=64
	[[ $status -eq 3 && $output != *"would fit"* ]]
	run "$MUSTER" plan --cluster dgx-a100:1 templates/jobs/llama-7b.ini "${words[@]}" plan.engine=fsdp-eager
	[[ $status -eq 3 && $output != *"would fit"* ]]
}

@test "if nothing fits, this is reported with the nearest layout" {
	run "$MUSTER" plan --auto --cluster dgx-h100:1 templates/jobs/175b.ini
	echo "$output"
	[[ $status -eq 3 ]]
	[[ $output == "muster: nothing fits dgx-h100:1: even tp "*" needs "*", and a device leaves a rank 77 GiB; "* ]]
}

@test "times for unknown devices are reported as guesses" {
	cat >"$BATS_TEST_TMPDIR/smi.txt" <<-'EOF'
	        GPU0    GPU1    CPU Affinity    NUMA Affinity
	GPU0     X      NV4     0-7     0
	GPU1    NV4      X      0-7     0
	EOF
	for words in "" --auto; do
		run "$MUSTER" plan $words --cluster "$BATS_TEST_TMPDIR/smi.txt" templates/jobs/demo.ini parallel.tp=1 parallel.pp=1 data.path=x job.device=cuda
		echo "$output"
		[[ $status -eq 0 ]]
		[[ $output == *"Warning: nothing is known of how fast smi's devices (GPU) compute: all times are guesses"* ]]
	done
	run "$MUSTER" plan templates/jobs/demo.ini data.path=x
	[[ $output != *guesses* ]]
}

@test "plan predicts the steps of other programs, which run refuses" {
	words=(parallel.tp=4 parallel.dp=2 parallel.pp=1 "${small[@]}")
	ours=$("$MUSTER" plan --json --cluster dgx-h100:1 templates/jobs/demo.ini "${words[@]}" | of 'd["step_seconds"]["total"]')
	theirs=$("$MUSTER" plan --json --cluster dgx-h100:1 templates/jobs/demo.ini "${words[@]}" plan.engine=fsdp-eager | of 'd["step_seconds"]["total"]')
	echo "ours $ours, theirs $theirs"
	[[ -n $ours && -n $theirs && $ours != "$theirs" ]]
	for command in run submit drill "plan --measured runs/x"; do
		run "$MUSTER" $command templates/jobs/demo.ini "${small[@]}" plan.engine=fsdp-eager
		echo "$output"
		[[ $status -eq 2 && $output == *"[plan] engine: muster plan predicts other programs' steps, but muster runs only its own engine; leave the key out"* ]]
	done
	run "$MUSTER" plan templates/jobs/demo.ini plan.engine=fsdp-eager
	echo "$output"
	[[ $status -eq 0 && $output == *"Warning: PyTorch FSDP is known on GPUs only: "* ]]
}

@test "--auto and --gpus print the warnings of the layouts that they choose" {
	for words in "dgx-1 precision.dtype=bf16" "dgx-a100 precision.dtype=bf16 precision.fp8=e4m3"; do
		machine=${words%% *} words=${words#* } says="has no products in bf16"
		[[ $machine == dgx-1 ]] || says="has no products of 8-bit numbers"
		run "$MUSTER" plan --auto --cluster $machine:1 templates/jobs/demo.ini "${small[@]}" $words
		echo "$output"
		[[ $status -eq 0 && $output == *"Warning: "*" $says"* ]]
		[[ $("$MUSTER" plan --auto --json --cluster $machine:1 templates/jobs/demo.ini "${small[@]}" $words | of 'd["best"]["warning"]') == *" $says"* ]]
		run "$MUSTER" plan --gpus 8..16 --cluster $machine templates/jobs/demo.ini "${small[@]}" $words
		[[ $status -eq 0 && $output == *"Warning, at 8 devices: "*" $says"* ]]
	done
	run "$MUSTER" plan --auto --cluster dgx-a100:1 templates/jobs/demo.ini "${small[@]}"
	[[ $status -eq 0 && $output != *Warning* ]]
	# Groups across nodes are the fastest here, and are not advised against.
	run "$MUSTER" plan --auto --cluster dgx-h100:8 templates/jobs/llama-70b.ini batch.global=1
	[[ $status -eq 0 && $output == *$'\n'"  tp 16 "* && $output != *Warning* ]]
}

@test "--auto chooses schedules that the program of plan.engine has" {
	words=(--cluster dgx-h100:8 templates/jobs/llama-70b.ini precision.dtype=bf16 parallel.tp=2 parallel.pp=8)
	schedules() { "$MUSTER" plan --auto --json "${words[@]}" "$@" | of '[l["layout"]["schedule"] for l in [d["best"]] + d["runners_up"] + d["too_large"] + d["front"]]'; }
	[[ $(schedules) == *"'zb-"* ]]
	for program in megatron-2021 megatron-core deepspeed; do
		tried=$(schedules plan.engine=$program)
		echo "$program $tried"
		[[ $tried == *"'interleaved'"* && $tried != *"'zb-"* ]]
	done
	# One that is given stays.
	tried=$(schedules plan.engine=megatron-core parallel.schedule=zb-v)
	[[ $tried == *"'zb-v'"* && $tried != *"'1f1b'"* ]]
}

@test "--auto as JSON holds the speeds of unlike devices" {
	words=(--cluster dgx-h100:1+dgx-a100:1 templates/jobs/demo.ini "${small[@]}" batch.global=512)
	"$MUSTER" plan --auto --json "${words[@]}" >"$BATS_TEST_TMPDIR/auto.json"
	speeds=$(of 'd["best"]["layout"]["speeds"]' <"$BATS_TEST_TMPDIR/auto.json")
	echo "$speeds"
	[[ $speeds == *"*8,"*"*8" ]]
	run "$MUSTER" plan --auto "${words[@]}"
	[[ $output == *$'\n'"speeds = $speeds"* ]]
	[[ $("$MUSTER" plan --auto --json --cluster dgx-h100:1 templates/jobs/demo.ini "${small[@]}" | of 'repr(d["best"]["layout"]["speeds"])') == "''" ]]
}

@test "--gpus lists each size of a cluster once" {
	run "$MUSTER" plan --gpus 1..32 --json --cluster dgx-h100 templates/jobs/demo.ini "${small[@]}"
	[[ $status -eq 0 && $(of '[p["devices"] for p in d["points"]]' <<<"$output") == "[8, 16, 32]" ]]
}

@test "each form of a plan names the program that it speaks of, if that is not muster" {
	words=(parallel.tp=2 parallel.dp=2 parallel.pp=2 "${small[@]}")
	plan() { run "$MUSTER" plan "$@"; echo "$output"; [[ $status -eq 0 ]]; }
	engine_of() { "$MUSTER" plan --json "$@" | of 'd["engine"]'; }
	name="  program   PyTorch FSDP (plan.engine = fsdp-eager), which muster does not run"
	for form in "" --auto "--gpus 8..16"; do
		[[ -z $form ]] && keys=("${words[@]}") || keys=("${small[@]}")
		plan $form --cluster dgx-h100 templates/jobs/demo.ini "${keys[@]}"
		[[ $output != *"  program "* && $(engine_of $form --cluster dgx-h100 templates/jobs/demo.ini "${keys[@]}") == muster ]]
		plan $form --cluster dgx-h100 templates/jobs/demo.ini "${keys[@]}" plan.engine=fsdp-eager
		[[ $output == *"$name"$'\n'* && $(engine_of $form --cluster dgx-h100 templates/jobs/demo.ini "${keys[@]}" plan.engine=fsdp-eager) == fsdp-eager ]]
	done
	plan --schedule --cluster dgx-h100 templates/jobs/demo.ini "${words[@]}"
	[[ $output != *" by "* ]]
	plan --schedule --cluster dgx-h100 templates/jobs/demo.ini "${words[@]}" plan.engine=deepspeed
	[[ ${lines[0]} == *" micro-batches, by DeepSpeed of 2021" ]]
	[[ $(engine_of --schedule --cluster dgx-h100 templates/jobs/demo.ini "${words[@]}" plan.engine=deepspeed) == deepspeed ]]
	plan --gpus 8..16 --svg "$BATS_TEST_TMPDIR/s.svg" --cluster dgx-h100 templates/jobs/demo.ini "${small[@]}" plan.engine=megatron-core
	grep -q 'class="title">demo on dgx-h100 by Megatron-Core: tokens per second' "$BATS_TEST_TMPDIR/s.svg"
}

@test "a warning names each kind of device that lacks a type" {
	words=(parallel.tp=4 parallel.dp=4 parallel.pp=1 "${small[@]}" precision.fp8=hybrid)
	run "$MUSTER" plan --cluster dgx-h100:1+dgx-1:1 templates/jobs/demo.ini "${words[@]}"
	echo "$output"
	[[ $status -eq 0 && $output == *"V100-SXM2-32GB has no products of 8-bit numbers"* && $output != *"H100-SXM5-80GB has no"* ]]
}

@test "times of unknown devices have no interval" {
	echo '<system version="1"><cpu numaid="0" arch="x86_64"><pci busid="0000:00:00.0" class="0x030200"/></cpu></system>' >"$BATS_TEST_TMPDIR/odd.xml"
	run "$MUSTER" plan --auto --cluster "$BATS_TEST_TMPDIR/odd.xml" templates/jobs/demo.ini "${small[@]}"
	echo "$output"
	[[ $status -eq 0 && $output == *"all times are guesses"* && $output != *"likely between"* ]]
}

@test "the JSON of a plan has the interval of a step, where the text has one" {
	words=(parallel.tp=4 parallel.dp=2 parallel.pp=1 "${small[@]}")
	within=$("$MUSTER" plan --json --cluster dgx-h100:1 templates/jobs/demo.ini "${words[@]}" | of 'round(d["step_seconds"]["total"] / d["sureness"]["least_seconds"] - 1, 9) == round(1 - d["step_seconds"]["total"] / d["sureness"]["most_seconds"], 9) == d["sureness"]["worst_error"] > 0')
	[[ $within == True ]]
	[[ $("$MUSTER" plan --json templates/jobs/demo.ini data.path=x | of 'd["sureness"]') == None ]]
	# No steps in fp32 are published.
	[[ $("$MUSTER" plan --json --cluster dgx-h100:1 templates/jobs/demo.ini "${words[@]}" precision.dtype=fp32 | of 'd["sureness"]') == None ]]
	[[ $("$MUSTER" plan --json --cluster dgx-h100:1 templates/jobs/demo.ini "${words[@]}" precision.dtype=fp16 | of 'd["sureness"] != None') == True ]]
	[[ $("$MUSTER" plan --auto --json --cluster dgx-h100:1 templates/jobs/demo.ini "${small[@]}" | of 'd["best"]["sureness"]["least_seconds"] < d["best"]["step_seconds"]["total"] < d["best"]["sureness"]["most_seconds"]') == True ]]
}

@test "--auto prints a device's whole limit, and names the hosts that cannot hold what is offloaded" {
	run "$MUSTER" plan --auto --cluster dgx-a100:1 templates/jobs/demo.ini "${small[@]}"
	echo "$output"
	[[ $status -eq 0 && $output == *" of 78 GiB on the fullest device"* ]]
	"$MUSTER" topo --json --cluster dgx-a100:1 | python3 -c 'import json, sys; d = json.load(sys.stdin); d["kinds"][0]["memory"] = 2**30; json.dump(d, sys.stdout)' >"$BATS_TEST_TMPDIR/small.json"
	run "$MUSTER" plan --auto --cluster "$BATS_TEST_TMPDIR/small.json" templates/jobs/llama-7b.ini offload.optimizer=yes
	echo "$output"
	[[ $status -eq 3 && $output == *"in its node's memory, which leaves a rank "* && $output == *"offload less"* ]]
}
