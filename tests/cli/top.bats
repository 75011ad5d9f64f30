#!/usr/bin/env bats
# `muster top` in a terminal of tmux: a run that trains, loses a rank, restarts and ends; sizes; and the terminal afterwards.

load ../helpers

setup_file() {
	make_data
	make_tiny_job
	export MUSTER_RUNS=$BATS_FILE_TMPDIR
}

setup() {
	command -v tmux >/dev/null || skip "tmux is not installed"
	export MUSTER_RUNS=$BATS_FILE_TMPDIR
	pid=
	# The path of its socket must be short.
	terminal=$(mktemp -d /tmp/top.XXXXXX)
}

teardown() {
	[[ -z ${terminal-} ]] || { on_terminal kill-server || true; rm -rf "$terminal"; }
	[[ -z $pid ]] || has_ended "$pid" || { kill -CONT "$pid" && kill -9 "$pid"; }
}

on_terminal() { tmux -S "$terminal/socket" -f /dev/null "$@" 2>/dev/null; }

# Opens a terminal of 80 x 24 with a shell that has no prompt.
open_terminal() {
	LC_ALL=C.UTF-8 PS1='' on_terminal new-session -d -x 80 -y 24 "exec sh 3>&-"
	on_terminal send-keys "cd '$BATS_FILE_TMPDIR'; stty -g >'$terminal/before'" Enter
	wait_for 60 test -s "$terminal/before"
}

keys() { on_terminal send-keys "$@"; }
screen() { on_terminal capture-pane -p; }
shows() { [[ $(screen) == *"$1"* ]]; }
cannot_see() { ! shows "$1"; }

# Succeeds if the screen has each of these texts. It is drawn in pieces, so a test waits for all of them.
shows_all() { # text...
	local now text
	now=$(screen)
	for text; do [[ $now == *"$text"* ]] || return 1; done
}

# Succeeds if the screen of 40 x 10 has the state in the first line and the keys in the last one.
shows_small() {
	local lines
	mapfile -t lines < <(screen)
	[[ ${#lines[@]} -eq 10 && ${lines[0]} == " sizes  training"* && ${lines[9]} == *"q quit" && $(screen | grep -c .) -ge 8 ]]
}

# Succeeds if the terminal shows its own screen and its cursor again.
is_given_back() { [[ $(on_terminal display-message -p '#{alternate_on} #{cursor_flag} #{keypad_cursor_flag}') == "0 1 0" ]]; }

# The last line that the shell has got is the status of the program before it.
has_left() { [[ -s $terminal/status ]]; }

# top_of NAME: starts `muster top` in the terminal.
top_of() {
	rm -f "$terminal/status" "$terminal/after"
	keys "clear; '$MUSTER' top $1; echo \$? >'$terminal/code'; stty -g >'$terminal/after'; mv '$terminal/code' '$terminal/status'" Enter
}

# The program has ended with this status, and the terminal is as it was: its settings, its screen and its cursor.
is_sane() { # status
	wait_for 60 has_left
	[[ $(<"$terminal/status") -eq $1 ]]
	cmp "$terminal/before" "$terminal/after"
	wait_for 60 is_given_back
	keys "echo still here" Enter
	wait_for 60 shows "still here"
}

long() { # name word...
	local name=$1
	shift
	"$MUSTER" run "$tiny" "job.name=$name" job.steps=1000000 parallel.tp=2 parallel.dp=2 "$@" \
		</dev/null >"$BATS_FILE_TMPDIR/$name.out" 2>&1 3>&- &
	pid=$!
	wait_for 60 step_reached "$name" 3
}

@test "a run that trains: state, curves and ranks; a rank that is killed shows, and the run goes on" {
	long live checkpoint.every=10
	open_terminal
	top_of live
	wait_for 60 shows_all " live  training" "training for" "generation 1, 0 restarts" "/ 1000000" "checkpoint step " \
		"ranks      4 on 1 node: tp 2 × dp 2" "tokens/s" "1-4 of 4" "tp.dp" "1.1"
	keys Down Down Enter
	wait_for 60 shows "rank 2 on"
	wait_for 60 shows "rank 2 of 4" # its log
	keys Escape
	wait_for 60 shows "1-4 of 4"
	kill -9 "$(agent_pid live 3)"
	wait_for 60 shows "generation 2, 1 restart"
	wait_for 60 shows "training"
	keys q
	is_sane 0
	kill -TERM $pid
	wait $pid || [[ $? -eq 75 ]]
}

@test "every size from 40 x 10 on keeps the state, the ranks and the keys; a smaller one does no harm" {
	long sizes
	open_terminal
	top_of sizes
	wait_for 60 shows "1-4 of 4"
	local size
	for size in "40 10" "130 50" "12 3" "80 24"; do
		on_terminal resize-window -x "${size% *}" -y "${size#* }"
		[[ $size == "12 3" ]] || wait_for 60 eval 'shows "of 4" && shows "q quit" && [[ $(screen | wc -l) -ge 10 ]]'
	done
	on_terminal resize-window -x 40 -y 10
	wait_for 60 shows_small
	keys C-c
	is_sane 0
	kill -9 $pid
	wait $pid || true
}

@test "the supervisor stops answering, goes away and comes back, and the screen says so" {
	long gone restart.max_restarts=0
	open_terminal
	top_of gone
	wait_for 60 shows "training for"
	kill -STOP $pid
	wait_for 60 shows_all "is stopped (SIGSTOP)" "1-4 of 4"
	kill -CONT $pid
	wait_for 60 cannot_see SIGSTOP
	kill -9 $pid
	wait $pid || true
	wait_for 60 shows "lost"
	wait_for 60 shows "is gone"
	screen
	"$MUSTER" run "$tiny" job.name=gone job.steps=1000000 parallel.tp=2 parallel.dp=2 checkpoint.resume=none \
		</dev/null >"$BATS_FILE_TMPDIR/gone2.out" 2>&1 3>&- &
	pid=$!
	wait_for 60 shows "training for"
	wait_for 60 shows "generation 2"
	kill -TERM $pid
	wait $pid || [[ $? -eq 75 ]]
	wait_for 60 shows " gone  stopped"
	keys q
	is_sane 0
}

@test "a run that has ended is shown from its files; signals give the terminal back" {
	run_tiny ended job.steps=6 parallel.tp=2
	open_terminal
	local signal
	for signal in TERM HUP; do
		top_of ended
		wait_for 60 shows_all " ended  done" "step 6 / 6  100.0 %" "1-2 of 2"
		kill -$signal "$(pgrep -P "$(on_terminal display-message -p '#{pane_pid}')" -x muster)"
		is_sane $((128 + $(kill -l $signal)))
	done
}

@test "without a terminal, without a run, or in an unknown kind of terminal it says what to do" {
	run_tiny words job.steps=6
	run "$MUSTER" top words </dev/null
	echo "$output"
	[[ $status -eq 2 && $output == *"muster status words"* ]]
	open_terminal
	keys "'$MUSTER' top nowhere" Enter
	wait_for 60 shows "nowhere: this is neither"
	keys "clear; TERM=nothing '$MUSTER' top words" Enter
	wait_for 60 shows "TERM=nothing: this kind of terminal is not known"
	keys "clear; TERM=dumb '$MUSTER' top words; echo status \$?" Enter
	wait_for 60 shows_all "TERM=dumb: this kind of terminal cannot move its cursor" "status 3"
}
