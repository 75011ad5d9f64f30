# What the bats files share. MUSTER is the program under test; every run lives in the test's own folder.

top=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
MUSTER=${MUSTER:-$top/build/muster}
losses=$top/build/tests/tools/losses

# $lacking: why no cluster of one's own can be started here, by which tests skip; empty when one can.
look_for_slurm() {
	export lacking=""
	local program
	for program in slurmctld slurmd munged; do
		command -v $program >/dev/null || lacking="$program is not installed"
	done
	[[ $(id -u) -eq 0 ]] || lacking="slurmd needs root"
}

# Packs a small text once a file: $data is its prefix.
make_data() {
	data=$BATS_FILE_TMPDIR/text
	export data
	"$MUSTER" data pack /usr/share/common-licenses/GPL-3 /usr/share/common-licenses/Apache-2.0 -o "$data"
}

# A job that takes a second: $tiny, to be varied by words on the command line.
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

# run_tiny NAME WORD...: runs the tiny job as NAME; its folder is $BATS_FILE_TMPDIR/NAME.
run_tiny() {
	local name=$1
	shift
	"$MUSTER" run "$tiny" "job.name=$name" "$@" </dev/null >"$BATS_FILE_TMPDIR/$name.out" 2>&1
}

run_folder() { echo "$BATS_FILE_TMPDIR/$1"; }

# The lines of one kind of event of a run.
event() { # run event
	grep "\"event\":\"$2\"" "$(run_folder "$1")/events.jsonl"
}

# A field of the last event of a kind (and rank).
event_field() { # run event field [rank]
	event "$1" "$2" | { [[ -z ${4-} ]] && cat || grep "\"rank\":$4[,}]"; } | tail -n 1 | grep -oP "\"$3\":\"?\K[^,\"}]+"
}

# The run has metrics of that step or a later one.
step_reached() { # run step
	local last
	last=$(tail -n 1 "$(run_folder "$1")/metrics.jsonl" 2>/dev/null | grep -oP '"step":\K[0-9]+')
	[[ ${last:-0} -ge $2 ]]
}

# Seconds from one time to another.
span() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.3f", b - a }'; }

# wait_for SECONDS COMMAND...: polls until the command succeeds.
wait_for() {
	local end=$((SECONDS + $1))
	shift
	until "$@"; do
		[[ $SECONDS -lt $end ]] || return 1
		sleep 0.02
	done
}

# The process has ended, though perhaps nobody has taken its exit status yet.
has_ended() { [[ ! -e /proc/$1/stat || $(sed 's/.*) //' "/proc/$1/stat") == Z* ]]; }

# A figure that the test runner shows.
figure() { echo "# figure: $*" >&3; }

# survived NAME REFERENCE RANK STEP KILLED: the run lost RANK at the time KILLED, once, went on by itself, and computed
# what REFERENCE did, to the bit, also in the steps that it did twice.
survived() {
	local name=$1
	run "$losses" compare "$(run_folder "$2")/metrics.jsonl" "$(run_folder "$name")/metrics.jsonl" 0
	echo "$output"
	[[ $status -eq 0 ]] || return 1
	[[ $(event_field "$name" first-step generation) == 2 ]] || return 1
	"$losses" repeats "$(run_folder "$name")/metrics.jsonl" || return 1
	figure "rank $3 killed after step $4: seen after $(span "$5" "$(event_field "$name" rank-lost time)") s," \
		"first step of the next generation after $(span "$5" "$(event_field "$name" first-step time)") s; $output"
}
