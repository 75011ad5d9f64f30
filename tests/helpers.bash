# Functions that the bats files share. MUSTER is the program under test. Every run is in the test's own folder.

top=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
MUSTER=${MUSTER:-$top/build/muster}
losses=$top/build/tests/tools/losses
# Each test has a list of suspect nodes of its own.
export MUSTER_NODES_DIR=${BATS_TEST_TMPDIR:-${BATS_FILE_TMPDIR:-/nonexistent}}/suspects

# Sets $lacking to the reason why this host cannot start a Slurm cluster for the tests, or to "" if it can. Tests skip with it.
look_for_slurm() {
	export lacking=""
	local program
	for program in slurmctld slurmd munged; do
		command -v $program >/dev/null || lacking="$program is not installed"
	done
	[[ $(id -u) -eq 0 ]] || lacking="slurmd needs root"
}

# start_cluster NODES: starts a Slurm cluster of that many nodes for this file (tests/slurm/cluster), if this host can. For
# setup_file. Slurm's commands find it through the environment; $cluster is its folder, $doubles that of the drivers' doubles.
start_cluster() {
	look_for_slurm
	[[ -z $lacking ]] || return 0
	# Its sockets need a short path.
	cluster=$(mktemp -d /tmp/slurm.XXXXXX)
	export cluster
	"$top/tests/slurm/cluster" start "$cluster" "$1"
	. "$cluster/env"
	doubles=$(dirname "$(realpath "$MUSTER")")/tests/doubles
	export doubles
}

# Ends the cluster of start_cluster. For teardown_file.
stop_cluster() {
	[[ -n ${cluster-} ]] || return 0
	"$top/tests/slurm/cluster" stop "$cluster"
	rm -rf "$cluster"
}

# Skips a test whose cases are large; `make check-all` runs it, and `make check-faults` if it is a fault test.
large() { [[ -n ${MUSTER_LARGE-} ]] || skip "large: make check-all runs it"; }

# draw_number BELOW: sets $drawn to a random number below BELOW. It prints the seed, which SEED sets.
draw_number() {
	local seed=${SEED:-$((RANDOM * 32768 + RANDOM))}
	echo "# SEED=$seed $BATS_TEST_DESCRIPTION" >&3
	RANDOM=$seed
	drawn=$((RANDOM % $1))
}

# Packs a small text, and sets $data to its prefix. For setup_file.
make_data() {
	data=$BATS_FILE_TMPDIR/text
	export data
	"$MUSTER" data pack /usr/share/common-licenses/GPL-3 /usr/share/common-licenses/Apache-2.0 -o "$data"
}

# Writes a job that takes a second, and sets $tiny to its path. Tests change it by words on the command line.
make_tiny_job() {
	tiny=$BATS_FILE_TMPDIR/tiny.ini
	export tiny
	cat >"$tiny" <<-INI
		[job]
		name = tiny
		run_dir = $BATS_FILE_TMPDIR
		steps = 20
		seed = 7
		[model]
		family = gpt2
		layers = 4
		hidden = 32
		heads = 4
		vocab = 256
		seq = 32
		[batch]
		micro = 1
		global = 8
		[optimizer]
		lr = 1e-3
		warmup = 5
		[data]
		path = $data
		validation = 0.1
		[checkpoint]
		every = 0
		[launch]
		threads = 1
	INI
}

# run_tiny NAME WORD...: runs the tiny job as NAME, in the folder $BATS_FILE_TMPDIR/NAME.
run_tiny() {
	local name=$1
	shift
	"$MUSTER" run "$tiny" "job.name=$name" "$@" </dev/null >"$BATS_FILE_TMPDIR/$name.out" 2>&1
}

run_folder() { echo "$BATS_FILE_TMPDIR/$1"; }

# Prints a run's events of one kind.
event() { # run event
	grep "\"event\":\"$2\"" "$(run_folder "$1")/events.jsonl"
}

# Prints a field of the last event of a kind, or of a kind and rank.
event_field() { # run event field [rank]
	event "$1" "$2" | { [[ -z ${4-} ]] && cat || grep "\"rank\":$4[,}]"; } | tail -n 1 | grep -oP "\"$3\":\"?\K[^,\"}]+"
}

# Prints the process of a rank's last agent.
agent_pid() { # run rank
	event "$1" hello | grep -oP "\{\"rank\":$2,\"pid\":\K[0-9]+" | tail -n 1
}

# Prints how many agents have connected.
count_agents() { # run
	event "$1" hello | grep -o '"pid":' | wc -l
}

# Prints the last step that the run has metrics of; 0: none. It runs no program, because a run trains many steps while a loaded
# machine starts a program.
last_step() { # run
	local lines=()
	[[ ! -e $BATS_FILE_TMPDIR/$1/metrics.jsonl ]] || mapfile -t lines <"$BATS_FILE_TMPDIR/$1/metrics.jsonl"
	if [[ ${#lines[@]} -gt 0 && ${lines[-1]} =~ \"step\":([0-9]+) ]]; then
		echo "${BASH_REMATCH[1]}"
	else
		echo 0
	fi
}

# Succeeds if the run has metrics of that step or of a later one.
step_reached() { [[ $(last_step "$1") -ge $2 ]]; } # run step

# Succeeds if the last checkpoint that was committed is of that step or of a later one: in the folder that all share, or on the nodes
# (ckpt-local). A checkpoint is written while training continues, so the run's step alone does not tell. It runs no program, as last_step.
checkpoint_reached() { # run step [ckpt-local]
	local events="" kind="\"event\":\"${3-ckpt}\","
	[[ ! -e $BATS_FILE_TMPDIR/$1/events.jsonl ]] || events=$(<"$BATS_FILE_TMPDIR/$1/events.jsonl")
	[[ $events == *"$kind"* && ${events##*"$kind"} =~ \"step\":([0-9]+) && ${BASH_REMATCH[1]} -ge $2 ]]
}

# Prints the seconds from one time to another.
span() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.3f", b - a }'; }

# wait_for SECONDS COMMAND...: polls until the command succeeds, and fails after that time.
wait_for() {
	local end=$((SECONDS + $1))
	shift
	until "$@"; do
		[[ $SECONDS -lt $end ]] || return 1
		sleep 0.02
	done
}

# Succeeds if the process has ended, also if its parent has not yet waited for it.
has_ended() { [[ ! -e /proc/$1/stat || $(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null) == Z* ]]; }

# Prints a figure that tests/run shows.
figure() { echo "# figure: $*" >&3; }

# Succeeds if the generation of the run has finished a step.
generation_steps() { # run generation
	local events=""
	[[ ! -e $BATS_FILE_TMPDIR/$1/events.jsonl ]] || events=$(<"$BATS_FILE_TMPDIR/$1/events.jsonl")
	[[ $events =~ \"event\":\"first-step\",[^\}]*\"generation\":$2[,\}] ]]
}

# kill_ranks NAME RANK...: kills these ranks of the run NAME, which trains, by kill -9, one after the other, each a few steps after
# the restart from the last kill. SEED sets the steps. It fails, and prints the rank, if the run does not restart by itself.
kill_ranks() {
	local name=$1 rank step killed generation=1
	shift
	draw_number 8
	for rank; do
		step=$(($(last_step "$name") + 2 + drawn))
		drawn=$((RANDOM % 8))
		wait_for 60 step_reached "$name" "$step" || {
			echo "rank $rank: the run does not reach step $step, in which the rank is to be killed"
			return 1
		}
		killed=$EPOCHREALTIME
		kill -9 "$(agent_pid "$name" "$rank")"
		generation=$((generation + 1))
		wait_for 60 generation_steps "$name" $generation || {
			echo "rank $rank was killed after step $step, and generation $generation has not finished a step"
			return 1
		}
		figure "rank $rank killed after step $step: seen after $(span "$killed" "$(event_field "$name" rank-lost time)") s," \
			"first step of the next generation after $(span "$killed" "$(event_field "$name" first-step time)") s"
	done
}

# Succeeds if the run has accounted for its time: in each line of time.jsonl the parts add up to the whole, and no total falls.
time_adds_up() { # run
	python3 - "$(run_folder "$1")/time.jsonl" <<-'PY'
		import json, sys
		wall = total = 0
		for text in open(sys.argv[1]):
		    line = json.loads(text)
		    if "format" in line:
		        continue
		    parts = [s for name, s in line.items() if name.endswith("_s") and name not in ("wall_s", "total_s")]
		    assert min(parts) >= 0 and abs(sum(parts) - line["total_s"]) < 1e-4, line
		    assert line["wall_s"] >= wall and line["total_s"] >= total, line
		    wall, total = line["wall_s"], line["total_s"]
		assert total > 0, "it has no line"
	PY
}

# has_same_bits NAME REFERENCE: succeeds if the run NAME computed the same bits as REFERENCE, also in the steps that it repeated,
# and has accounted for its time.
has_same_bits() {
	run "$losses" compare "$(run_folder "$2")/metrics.jsonl" "$(run_folder "$1")/metrics.jsonl" 0
	echo "$output"
	[[ $status -eq 0 ]] || return 1
	figure "$1: $output"
	"$losses" repeats "$(run_folder "$1")/metrics.jsonl" && time_adds_up "$1"
}
