# Functions for tests that run the programs of templates/programs under muster. The tests are skipped, with the reason, if this host lacks
# what they need; with MUSTER_PROGRAMS=required (make check-programs) they fail.

programs=$top/templates/programs
disturbed=$top/tests/programs/disturbed.py
# A sum depends on the number of threads that share it.
export OMP_NUM_THREADS=1
# A folder of PyTorch that is otherwise in TMPDIR.
[[ -z ${BATS_FILE_TMPDIR-} ]] || export TORCHINDUCTOR_CACHE_DIR=$BATS_FILE_TMPDIR

# Sets $lacks to the reason why this host cannot run the tests of a file, or to "" if it can. For setup_file. A need is a Python package,
# or a program that begins with "/".
look_for() { # need...
	local need
	export lacks=""
	for need; do
		[[ -z $lacks ]] || return 0
		case $need in
		/*) command -v "${need#/}" >/dev/null || lacks="${need#/} is not installed" ;;
		*) python3 -c 'import importlib.util as u, sys; sys.exit(not u.find_spec(sys.argv[1]))' "$need" ||
			lacks="this python3 has no $need" ;;
		esac
	done
}

# For setup.
skip_if_lacking() {
	[[ -n $lacks ]] || return 0
	[[ -z ${MUSTER_PROGRAMS-} ]] || { echo "$lacks; make check-programs installs it"; return 1; }
	skip "$lacks"
}

# write_job NAME COMMAND: writes the job file NAME.ini of 2 ranks of that program.
write_job() {
	cat >"$BATS_FILE_TMPDIR/$1.ini" <<-INI
		[job]
		name = $1
		run_dir = $BATS_FILE_TMPDIR
		program = $2
		[parallel]
		dp = 2
		[restart]
		backoff = 0.1
	INI
}

# start NAME COMMAND WORD...: runs the program in place of this shell; NAME.out has what muster prints.
start() {
	local name=$1
	write_job "$1" "$2"
	shift 2
	exec timeout 300 "$MUSTER" run "$BATS_FILE_TMPDIR/$name.ini" "$@" </dev/null >"$BATS_FILE_TMPDIR/$name.out" 2>&1 3>&-
}

# launch NAME COMMAND WORD...: runs the program to its end, and has its exit status.
launch() {
	local status=0
	(start "$@") || status=$?
	[[ $status -eq 0 ]] || tail -n 40 "$BATS_FILE_TMPDIR/$1.out" "$(run_folder "$1")"/logs/*.log
	return $status
}

# The folder of a program's checkpoints.
state() { echo "$BATS_FILE_TMPDIR/$1.state"; }

# disturb WHAT RANK STEP: the programs that start from now on disturb themselves once (tests/programs/disturbed.py).
disturb() {
	mark=$BATS_TEST_TMPDIR/mark
	export DISTURB="$1 $2 $3 $mark"
}

# Prints the losses in the given files by step. A step that was repeated with another loss is there twice.
losses_in() { grep -ohE 'step [0-9]+ loss [^ ]+' "$@" | sort -u | sort -s -n -k 2,2; }
losses_of() { losses_in "$(run_folder "$1")"/logs/*-0.log; } # run

# run_torchrun PROGRAM STEPS: runs the program by torchrun with 2 ranks, and writes its losses into the file `losses`. For setup_file.
run_torchrun() {
	local file=$BATS_FILE_TMPDIR/losses
	# torchrun leaves folders in TMPDIR.
	TMPDIR=$BATS_FILE_TMPDIR torchrun --standalone --nproc-per-node 2 "$disturbed" "$programs/$1" --steps "$2" --every 8 --folder "$(state torchrun)" \
		</dev/null >"$BATS_FILE_TMPDIR/torchrun.out" 2>&1 3>&- || { tail -n 40 "$BATS_FILE_TMPDIR/torchrun.out"; return 1; }
	losses_in "$BATS_FILE_TMPDIR/torchrun.out" >"$file"
	[[ $(wc -l <"$file") -eq $2 ]]
}

# has_losses RUN FILE: the run printed the losses in the file, no other ones, and there are some.
has_losses() {
	[[ -s $2 ]] && diff "$2" <(losses_of "$1")
}

# restarted RUN RANK: the run lost this rank, restarted once, and printed both.
restarted() {
	[[ -e $mark ]] || { echo "nothing was disturbed"; return 1; }
	[[ $(event_field "$1" fault rank) -eq $2 ]] || { event "$1" fault; return 1; }
	[[ $(event "$1" restart | wc -l) -eq 1 ]] || { event "$1" restart; return 1; }
	grep -E "^.*lost +rank $2 " "$BATS_FILE_TMPDIR/$1.out" && grep -E "restart" "$BATS_FILE_TMPDIR/$1.out"
}
