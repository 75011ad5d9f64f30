#!/usr/bin/env bats
# Ways in which a program under `muster run` fails, one test for each: what muster says, its exit status, how often it restarts, what the
# events say, and that nothing of the program is left behind.

load ../helpers

setup() {
	command -v python3 >/dev/null || skip "there is no python3"
	cd "$BATS_TEST_TMPDIR"
	mkdir tmp
	name=run-$BATS_TEST_NUMBER pid='' out=$PWD/out shm=$(list_shm)
	# The last ones of equal words count.
	muster_run=(env FAILURE_MARK="$PWD" TMPDIR="$PWD/tmp" "$MUSTER" run --quiet -n 2 job.name="$name" job.run_dir="$BATS_FILE_TMPDIR"
		restart.max_restarts=0 restart.backoff=0.1)
	cat >peers.py <<-'PY'
		"""The links of a rank: those of rank 0 go to all others."""
		import os, signal, socket, sys, time

		rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
		at = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])

		def links():
		    if rank == 0:
		        s = socket.socket()
		        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
		        s.bind(at)
		        s.listen()
		        return [s.accept()[0] for _ in range(world - 1)]
		    while True:
		        try:
		            return [socket.create_connection(at)]
		        except ConnectionRefusedError:
		            time.sleep(0.02)
	PY
	export PYTHONDONTWRITEBYTECODE=1
}

teardown() {
	[[ -z ${pid-} ]] || kill -9 "$pid" 2>/dev/null || true
}

list_shm() { ls -A /dev/shm | grep -iE 'muster|pmix' || true; }

# Names of other programs of this host may come and go.
no_new_shm() { [[ -z $(comm -13 <(sort <<<"$shm") <(list_shm | sort)) ]]; }

# Prints the processes of the test's run. All have the mark, whatever became of their parents.
list_marked() { grep -lzsxF "FAILURE_MARK=$BATS_TEST_TMPDIR" /proc/[0-9]*/environ; }
none_marked() { [[ -z $(list_marked) ]]; }

# begin WORD...: starts muster run with these words in the background, and sets $pid. It prints to $out.
begin() {
	"${muster_run[@]}" "$@" </dev/null >"$out" 2>&1 3>&- &
	pid=$!
}

# left_nothing: no process, no shared memory, no FIFO, no socket and no temporary file is left, and the run folder can be locked.
left_nothing() {
	local file
	wait_for 60 none_marked || {
		for file in $(list_marked); do
			echo "left: ${file//[!0-9]/} $(tr '\0' ' ' <"${file%environ}cmdline")"
		done
		return 1
	}
	wait_for 60 no_new_shm
	find "$BATS_TEST_TMPDIR" "$BATS_FILE_TMPDIR" \( -type p -o -type s \) -printf 'left: %p\n' >left
	find tmp -mindepth 1 -printf 'left: %p\n' >>left
	cat left
	[[ ! -s left ]] || return 1
	[[ ! -e $(run_folder "$name")/lock ]] || flock -n "$(run_folder "$name")/lock" true
}

# ends STATUS RESTARTS: waits for the end of the run, whose exit status and number of restarts these are.
ends() {
	local status=0
	wait "$pid" || status=$?
	pid=
	cut -c 1-400 "$out"
	echo "exit status $status"
	[[ $status -eq $1 ]] || return 1
	[[ $(event "$name" generation-start | wc -l) -eq $(($2 + 1)) ]] || return 1
	left_nothing
}

# fails STATUS RESTARTS WORD...: a run that ends so.
fails() {
	begin "${@:3}"
	ends "$1" "$2"
}

# lost RANK CAUSE FAULT: the last loss names the rank, the cause and the fault, on the terminal and in the events. Where all ranks fail,
# RANK is any.
lost() {
	local rank=$1
	[[ $rank != any ]] || rank=$(event_field "$name" fault rank)
	grep -E "^  lost " "$out" | tail -n 1 | grep -qE "^  lost +rank $rank on [^ ]+[ ,].*: $2" || return 1
	[[ $(event_field "$name" rank-lost rank) == "$rank" && $(event_field "$name" fault rank) == "$rank" ]] || return 1
	[[ $(event_field "$name" fault fault) == "$3" ]]
}

# Prints the lines of output that muster shows with the first loss.
shown() { sed -n '/^  lost /,$p' "$out" | sed -n 's/^  output \{5\}//p'; }

said() { grep -qE -- "$1" "$out"; }
log_of() { cat "$(run_folder "$name")"/logs/*-"$1".log; }
logged() { log_of "$1" | grep -qE -- "$2"; } # rank pattern
# The generation trains.
generation_ready() { event "$name" ready | grep -q "\"generation\":$1[,}]"; }
here() { [[ -s here-0 && -s here-1 ]]; }     # both tasks have written their process id there

# Prints the parent of a process.
parent_of() { sed -n 's/^PPid:\t//p' "/proc/$1/status"; }

# --- Programs that do not start -------------------------------------------------------------------

@test "a program that is not there: one start" {
	fails 1 0 restart.max_restarts=5 -- ./no-such-program --lr 1
	lost any 'job.program: ./no-such-program: not found on this node; every node needs it under this path' file-missing
	said '^  failed +.* for a reason that a restart does not fix'
}

@test "a program that PATH does not have: PATH is printed" {
	fails 1 0 restart.max_restarts=5 -- no-such-program
	lost any 'job.program: no-such-program: not found in PATH; .*\(PATH is .*bin' file-missing
}

@test "a program without the x bit: one start, and the remedy" {
	echo 'print("hello")' >train.py
	fails 1 0 restart.max_restarts=5 -- ./train.py
	lost any 'job.program: ./train.py: may not be executed; set its x bit \(chmod \+x\), or give it to its interpreter, as in `python' not-permitted
}

@test "a script whose interpreter is not there: one start, and the cause" {
	printf '#!/no/such/python\n' >train.py
	chmod +x train.py
	fails 1 0 restart.max_restarts=5 -- ./train.py
	lost any 'job.program: ./train.py: the interpreter that it names is not on this node' file-missing
}

@test "a script without #! runs in a shell, as in every shell" {
	printf 'echo "rank $RANK of $WORLD_SIZE"; exit 3\n' >train
	chmod +x train
	fails 1 0 -- ./train
	lost any 'the task exited with status 3' task-failed
	logged 1 'rank 1 of 2'
}

@test "a syntax error on all ranks: the restarts are bounded, and the error is shown once" {
	echo 'def train(:' >train.py
	fails 4 2 restart.max_restarts=10 restart.max_futile=2 program.show=none -- python3 train.py
	lost any 'the task exited with status 1' task-failed
	[[ $(shown | grep -c 'SyntaxError: ') -eq 1 && $(grep -c 'the same .* as at the last loss' "$out") -eq 2 ]]
	said '^  gave up +.*2 restarts in a row made no progress, as many as \[restart\] max_futile permits'
	[[ $(event_field "$name" gave-up restarts) -eq 2 ]]
}

# --- Programs that fail ---------------------------------------------------------------------------

@test "an import error on one rank, while the other waits: restarts exhausted" {
	cat >train.py <<-'PY'
		from peers import *
		if rank == 1:
		    import no_such_module
		links()
	PY
	fails 4 1 restart.max_restarts=1 -- python3 train.py
	lost 1 'the task exited with status 1' task-failed
	[[ $(shown | head -n 1) == "Traceback (most recent call last):" ]]
	[[ $(shown | sed -n 5p) == *"No module named 'no_such_module'" || $(shown | sed -n 4p) == *"No module named 'no_such_module'" ]]
	said '^  gave up +.*max_restarts = 1'
}

@test "a rank whose victim fails first: the cause is shown, not the victim's error" {
	cat >train.py <<-'PY'
		from peers import *
		link = links()[0]
		if rank == 0:
		    link.send(b"%d" % os.getpid())
		    link.recv(1)
		victim = int(link.recv(100))
		link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
		link.close()
		while os.path.exists(f"/proc/{victim}"):
		    time.sleep(0.01)
		raise ValueError("the real cause")
	PY
	fails 1 0 program.show=none -- python3 train.py
	lost 1 'the task exited with status 1' task-failed
	[[ $(shown | tail -n 1) == "ValueError: the real cause" ]]
	! shown | grep -q 'Connection reset by peer' || return 1
	logged 0 'ConnectionResetError: .*Connection reset by peer'
}

@test "a rank that leaves a daemon, whose victim reports its end earlier: the cause is shown" {
	cat >train.py <<-'PY'
		from peers import *
		import glob, subprocess
		link = links()[0]
		if rank == 1:
		    subprocess.Popen(["sleep", "1000"], start_new_session=True)
		    sys.exit("the real cause")
		link.recv(1)
		while "the task has ended with exit status 1" not in open(glob.glob(sys.argv[1])[0]).read():
		    time.sleep(0.01)
		sys.exit("an end of file")
	PY
	fails 1 0 program.show=none -- python3 train.py "$(run_folder "$name")/logs/*-1.log"
	lost 1 'the task exited with status 1' task-failed
	[[ $(shown) == "the real cause" ]]
}

@test "a server that refuses all ranks is not called a fault of the network between them" {
	cat >train.py <<-'PY'
		import socket, sys
		s = socket.socket()
		s.bind(("127.0.0.1", 0)) # and does not listen
		socket.create_connection(s.getsockname())
	PY
	fails 1 0 program.show=none -- python3 train.py
	lost any 'the task exited with status 1' task-connection
	[[ $(shown | tail -n 1) == "ConnectionRefusedError: "*"Connection refused" ]]
	said '^  remedy +Find the other end in its last lines above'
}

@test "all ranks exit with 0 but one, which exits with 3 at the end" {
	fails 1 0 -- sh -c '[ $RANK = 0 ] || { until [ -e ended ]; do sleep 0.02; done; echo late >&2; exit 3; }; touch ended'
	lost 1 'the task exited with status 3' task-failed
	[[ $(shown) == late ]]
}

@test "MASTER_PORT is rank 0's, and a fixed port that is taken is shown" {
	cat >train.py <<-'PY'
		from peers import *
		link = links()[0]
		if rank == 0:
		    link.send(b"%d" % at[1])
		    time.sleep(1000)
		assert int(link.recv(100)) == at[1]
		taken = socket.socket()
		taken.bind(("127.0.0.1", 0))
		socket.socket().bind(taken.getsockname())
	PY
	fails 1 0 program.show=none -- python3 train.py
	lost 1 'the task exited with status 1' task-failed
	[[ $(shown | tail -n 1) == "OSError: "*"Address already in use" ]]
}

@test "no memory: MemoryError is shown" {
	fails 1 0 -- sh -c '[ $RANK = 0 ] && exec sleep 1000; ulimit -v 300000; exec python3 -c "bytearray(1 << 30)"'
	lost 1 'the task exited with status 1' task-failed
	[[ $(shown | tail -n 1) == MemoryError* ]]
}

# As the kernel's OOM killer does it. Its counter shows whether it was that.
@test "SIGKILL to a task" {
	begin -- sh -c 'echo working >&2; echo $$ >here-$RANK; exec sleep 1000'
	wait_for 60 here
	kill -9 "$(<here-1)"
	ends 1 0
	lost 1 'the task was killed by SIGKILL' task-killed
	[[ $(shown) == working && $(event_field "$name" fault signal) -eq 9 ]]
}

@test "a segmentation fault" {
	fails 1 0 -- sh -c '[ $RANK = 0 ] && exec sleep 1000; ulimit -c 0; echo before >&2; kill -SEGV $$'
	lost 1 'the task was killed by SIGSEGV' task-crashed
	[[ $(shown) == before && $(event_field "$name" fault signal) -eq 11 ]]
}

@test "abort(): the stack that Python prints is shown" {
	fails 1 0 -- sh -c '[ $RANK = 0 ] && exec sleep 1000; ulimit -c 0; exec python3 -X faulthandler -c "import os; os.abort()"'
	lost 1 'the task was killed by SIGABRT' task-crashed
	[[ $(shown | head -n 1) == "Fatal Python error: Aborted" ]]
}

@test "restart.retry_on: one status is tried again, another is not" {
	fails 1 1 restart.max_restarts=5 'restart.retry_on=any, !2' -- sh -c \
		'[ $RANK = 0 ] && exec sleep 1000; [ $TORCHELASTIC_RESTART_COUNT = 0 ] && exit 5; exit 2'
	lost 1 'the task exited with status 2' task-failed
	said '^  failed +\[restart\] retry_on = any, !2 permits no restart after that'
}

@test "a restart that helps: exit status 0" {
	fails 0 1 restart.max_restarts=5 -- sh -c '[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 5'
	lost any 'the task exited with status 5' task-failed
	said '^  done +2 tasks ended with status 0'
}

# --- Programs that hang ---------------------------------------------------------------------------

@test "one rank exits with 0 too early (program.exit_timeout)" {
	fails 1 0 program.exit_timeout=0.5 -- sh -c '[ $RANK = 0 ] && exec sleep 1000; exit 0'
	lost 1 'the task exited with status 0, and 1 of 1 others still run .* raise program.exit_timeout' task-ended-early
}

@test "all ranks wait (restart.hang_timeout)" {
	fails 1 0 restart.hang_timeout=1 restart.stacks_timeout=0 -- sleep 1000
	lost any 'no rank made progress for ' task-hang
	[[ $(event_field "$name" rank-lost how) == hung ]]
}

@test "one rank sleeps while the others wait for it: the sleeper is named" {
	command -v gdb >/dev/null || command -v eu-stack >/dev/null || skip "there is neither gdb nor eu-stack"
	cat >train.py <<-'PY'
		from peers import *
		peers = links()
		if rank == 1:
		    time.sleep(1000)
		for peer in peers:
		    peer.recv(1)
	PY
	fails 1 0 -n 3 restart.hang_timeout=5 restart.stacks_timeout=60 -- python3 train.py
	said '^  lost +rank 1 on .*: no rank made progress for .*; its main thread sleeps in the system call clock_nanosleep'
	[[ $(event_field "$name" fault rank) -eq 1 && $(event_field "$name" fault fault) == task-hang ]]
}

@test "a hang of a program with PyTorch's flight recorder: the dumps are asked for, and judged" {
	# As PyTorch does: a thread looks into the FIFO, and writes the dump when a byte has come.
	cat >train.py <<-'PY'
		import os, sys, threading, time
		rank = os.environ["RANK"]
		fifo = os.environ["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"] + rank + ".pipe"
		dump = open(sys.argv[1] + "/nccl/torch-" + rank, "rb").read()
		os.mkfifo(fifo, 0o600)
		def answer():
		    with open(fifo, "rb") as f:
		        assert f.read(1)
		    with open(os.environ["TORCH_FR_DUMP_TEMP_FILE"] + rank, "wb") as out:
		        for at in range(0, len(dump), 1000):
		            out.write(dump[at:at + 1000])
		            out.flush()
		            time.sleep(0.01)
		    os.remove(fifo)
		threading.Thread(target=answer, daemon=True).start()
		time.sleep(1000)
	PY
	fails 1 0 -n 4 restart.hang_timeout=5 restart.stacks_timeout=0 -- python3 train.py "$top/tests/golden/flight"
	for rank in 0 1 2 3; do
		cmp "$(run_folder "$name")/trace/gen-1/torch-$rank" "$top/tests/golden/flight/nccl/torch-$rank"
	done
	run "$MUSTER" trace "$(run_folder "$name")"
	[[ $output == *"rank 2"* ]]
	said '^  verdict +rank 2 never reached _all_gather_base number 1 of group mesh_tp'
}

@test "a task that was stopped by SIGSTOP: it is named, and takes the request to stop" {
	begin restart.hang_timeout=4 program.stop_grace=60 -- sh -c \
		'echo $$ >here-$RANK; [ $RANK = 0 ] && while :; do :; done; kill -STOP $$; exec sleep 1000'
	wait_for 60 said '^  idle +rank 1 on .* has used no CPU and printed nothing for .* while others work'
	kill -TERM "$pid"
	ends 75 0
	! said 'and is killed'
}

# --- Output ---------------------------------------------------------------------------------------

@test "a flood of output: the program goes on, the log is bounded, and what is dropped is said" {
	cat >train.py <<-'PY'
		import os
		lines = (b"a" * 99 + b"\n") * 10000
		if os.environ["RANK"] == "1":
		    for _ in range(250):
		        os.write(2, lines)
		    raise SystemExit("last words")
	PY
	fails 1 0 log.keep=16 -- python3 train.py
	lost 1 'the task exited with status 1' task-failed
	[[ $(shown | tail -n 1) == "last words" ]]
	logged 1 '\.\.\. .*B of output were dropped: more than '
	[[ $(du -cb "$(run_folder "$name")"/logs | tail -n 1 | cut -f 1) -lt 30000000 ]]
}

@test "rank 0 prints more than the terminal gets, and fails: its last lines are there" {
	cat >train.py <<-'PY'
		import os, time
		if os.environ["RANK"] == "0":
		    os.write(1, b"a line\n" * 20000)
		    raise SystemExit("last words")
		time.sleep(1000)
	PY
	fails 1 0 -- python3 train.py
	lost 0 'the task exited with status 1' task-failed
	[[ $(shown | tail -n 1) == "last words" ]]
	said '^\([0-9]+ lines are only in the log of the rank\)$'
	[[ $(log_of 0 | grep -c ": a line$") -eq 20000 ]]
}

@test "a line of 10 MB, binary output, and no newline at the end" {
	cat >train.py <<-'PY'
		import os, sys
		if os.environ["RANK"] == "1":
		    os.write(1, b"x" * 10000000 + b"\n")
		    os.write(2, bytes(range(256)) * 3 + b"\xff\n")
		    os.write(2, b"\x1b]0;title\7\x1b[31mno newline")
		    sys.exit(7)
	PY
	fails 1 0 -- python3 train.py
	lost 1 'the task exited with status 7' task-failed
	[[ $(shown | tail -n 1) == "no newline" ]]
	logged 1 'x{1000} … \(.*B more\)$'
	# Nothing that a terminal obeys is printed.
	! LC_ALL=C grep -qP '[\x00-\x08\x0b-\x1f\x7f]' "$out" "$(run_folder "$name")"/logs/*-1.log
}

@test "closed stdout and stderr" {
	fails 1 0 -- sh -c 'exec >&- 2>&-; [ $RANK = 0 ] && exec sleep 1000; exit 9'
	lost 1 'the task exited with status 9' task-failed
	[[ $(shown) == "the task has printed nothing" ]]
}

@test "the disk of the log is full: the program goes on, and muster says that lines are missing" {
	unshare -m true 2>/dev/null || skip "needs the right to mount"
	cat >train.py <<-'PY'
		import os, sys
		if os.environ["RANK"] == "1":
		    for _ in range(200):
		        sys.stderr.write("y" * 4000 + "\n")
		    sys.stderr.flush()
		    open("all-written", "w").close()
	PY
	mkdir "$(run_folder small)"
	unshare -m sh -c 'mount -t tmpfs -o size=300k none "$1" && shift && exec "$@"' sh "$(run_folder small)" \
		"${muster_run[@]}" job.run_dir="$(run_folder small)" -- python3 train.py >"$out" 2>&1 </dev/null 3>&-
	cat "$out"
	[[ -e all-written ]]
	said '^  warn +.*:1: the log of the rank cannot be written, and output of the task is missing in it: No space left on device; free'
	said '^  done +2 tasks ended with status 0'
	left_nothing
}

# --- What programs leave behind -------------------------------------------------------------------

@test "hundreds of children, daemons with sessions of their own, and zombies: all end with the program" {
	cat >train.py <<-'PY'
		from peers import *
		def leave(daemon):
		    if os.fork():
		        return
		    if daemon:
		        os.setsid()
		        if os.fork():
		            os._exit(0)
		    signal.signal(signal.SIGTERM, signal.SIG_IGN)
		    time.sleep(1000)
		    os._exit(0)
		if rank == 0:
		    time.sleep(1000)
		for i in range(200):
		    leave(i % 4 == 0)
		sys.exit("last words") # the daemons hold stderr
	PY
	fails 1 0 -- python3 train.py
	lost 1 'the task exited with status 1' task-failed
	[[ $(shown) == "last words" ]]
	said '^  warn +.*:1: 200 processes of the task outlived it and had to be killed, the first one python3'
}

@test "a program that ends well but leaves a daemon: exit status 0, and the daemon is named" {
	fails 0 0 -- sh -c '(setsid sleep 1000 &) ; exit 0'
	[[ $(grep -cE '^  warn +.*: 1 process of the task outlived it and had to be killed, the first one s' "$out") -eq 2 ]]
}

@test "the agent killed by SIGKILL: its task ends with it" {
	begin -- sh -c 'sleep 1000 & (setsid sleep 1000 &); echo $$ >here-$RANK; wait'
	wait_for 60 here
	kill -9 "$(agent_pid "$name" 1)"
	ends 1 0
	lost 1 'killed by SIGKILL; a signal from outside ended the agent' agent-killed
}

@test "the keeper of a task killed by SIGKILL: the task ends with it, and the cause is no other rank" {
	begin -- sh -c 'echo working >&2; sleep 1000 & (setsid sleep 1000 &); echo $$ >here-$RANK; wait'
	wait_for 60 here
	kill -9 "$(parent_of "$(<here-1)")"
	ends 1 0
	lost 1 'job.program: sh: .* was killed, and the program with it' task-killed
	[[ $(shown) == working ]]
}

@test "muster itself killed by SIGKILL: nothing of the tasks survives, and the run can start again" {
	begin -- sh -c '[ -e again ] && exit 0; trap "" TERM HUP INT; sleep 1000 & (setsid sleep 1000 &); echo $$ >here-$RANK; wait'
	wait_for 60 here
	kill -9 "$pid"
	wait "$pid" || true
	left_nothing
	touch again
	begin -- sh -c '[ -e again ] && exit 0; trap "" TERM HUP INT; sleep 1000 & (setsid sleep 1000 &); echo $$ >here-$RANK; wait'
	ends 0 1
}

# --- The client channel -----------------------------------------------------------------------------

@test "a program that closes all descriptors" {
	fails 1 0 -- python3 -c 'import os, time
os.closerange(0, 4096)
if os.environ["RANK"] == "1":
    os._exit(9)
time.sleep(1000)'
	lost 1 'the task exited with status 9' task-failed
}

@test "a flood on MUSTER_CLIENT_FD: the program is slowed, the run ends well, and the last checkpoint is known" {
	cat >train.py <<-'PY'
		import json, os, socket
		s = socket.socket(fileno=int(os.environ["MUSTER_CLIENT_FD"]))
		s.setblocking(True)
		def send(kind, **members):
		    s.send(json.dumps({kind: members}).encode())
		send("hello", version=1, pid=os.getpid())
		for n in range(1, 20001):
		    if n % 100 == 0:
		        send("step", n=n)
		    send("checkpoint", path="/" + "a" * 3000, step=n)
	PY
	fails 0 0 -n 1 -- python3 train.py
	[[ $(event "$name" ckpt | wc -l) -lt 2000 && $(event_field "$name" ckpt step) -eq 20000 ]]
}

@test "garbage on MUSTER_CLIENT_FD: one warning, and the program goes on" {
	cat >train.py <<-'PY'
		import os, socket
		s = socket.socket(fileno=int(os.environ["MUSTER_CLIENT_FD"]))
		for packet in b"\0\1\2", b"{", b"", b"x" * 30000, b"[]", b'{"step":{"n":-1}}', b'{"step":5}', b'{"checkpoint":{"step":1e99,"path":3}}':
		    for _ in range(20):
		        s.send(packet)
	PY
	fails 0 0 -- python3 train.py
	[[ $(grep -cE '^  warn +.*:[01]: client channel: the program sent muster what it cannot read, and it is ignored' "$out") -eq 2 ]]
	said '^  done +2 tasks ended with status 0'
}

@test "a loss that is NaN, health.bad_numbers = retry: the next generation goes on" {
	cat >train.py <<-'PY'
		import os, time, muster_client
		muster_client.step(1, loss=2.0)
		if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
		    muster_client.step(2, loss=float("nan"))
		    time.sleep(1000)
		muster_client.step(2, loss=1.0)
	PY
	fails 0 1 restart.max_restarts=5 -- python3 train.py
	lost any 'the loss of step 2 is NaN; see health.bad_numbers' task-numeric
}

@test "a loss that is NaN, health.bad_numbers = stop: the run fails" {
	fails 1 0 restart.max_restarts=5 health.bad_numbers=stop -- python3 -c 'import muster_client, time
muster_client.step(1, loss=float("inf")); time.sleep(1000)'
	lost any 'the loss of step 1 is infinite' task-numeric
	said '^  failed +step 1: the loss is NaN or infinite; health.bad_numbers = stop ends the run$'
}

# --- Requests to stop -------------------------------------------------------------------------------

@test "Ctrl-C on a terminal: each task gets one SIGTERM, saves and exits with 0" {
	cat >train.py <<-'PY'
		import os, signal, sys, time
		rank, seen = os.environ["RANK"], []
		def note(number, frame):
		    open("got-" + rank, "a").write(signal.Signals(number).name + "\n")
		    seen.append(number)
		for number in signal.SIGTERM, signal.SIGINT, signal.SIGHUP:
		    signal.signal(number, note)
		open("here-" + rank, "w").write(str(os.getpid()))
		while not seen:
		    time.sleep(0.02)
		open("saved-" + rank, "w").close()
	PY
	cat >terminal.py <<-'PY'
		"""Runs muster in the foreground of a terminal, and types Ctrl-C there."""
		import os, pty, sys, time
		pid, terminal = pty.fork()
		if not pid:
		    os.execvp(sys.argv[2], sys.argv[2:])
		events = sys.argv[1]
		while not all(os.path.exists(f) and os.path.getsize(f) for f in ("here-0", "here-1")) or '"event":"ready"' not in open(events).read():
		    time.sleep(0.02)
		os.write(terminal, b"\3")
		try:
		    while data := os.read(terminal, 65536):
		        os.write(1, data)
		except OSError: # the terminal's other end is closed
		    pass
		sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
	PY
	python3 terminal.py "$(run_folder "$name")/events.jsonl" "${muster_run[@]}" -- python3 train.py >"$out" </dev/null 3>&- &
	pid=$!
	ends 75 0
	# The live line is gone once they run.
	[[ $(grep -o 'starting 2 agents' "$out" | wc -l) -eq 1 ]]
	[[ -e saved-0 && -e saved-1 && $(<got-0) == SIGTERM && $(<got-1) == SIGTERM ]]
	[[ $(event_field "$name" stop reason) == Interrupt ]]
}

@test "SIGTERM that the program ignores: it is killed after program.stop_grace" {
	begin program.stop_grace=0.3 -- sh -c 'trap "" TERM; echo $$ >here-$RANK; while :; do sleep 1; done'
	wait_for 60 here
	kill -INT "$pid"
	ends 75 0
	said '^  warn +.*:0: the task did not end within 0.3 s \(program.stop_grace\) and is killed'
	said '^  warn +.*:1: the task did not end within 0.3 s \(program.stop_grace\) and is killed'
	said '^  stopped +.*the same command starts the program again'
}

@test "steps longer than program.stop_grace: the program still does the step, saves and ends by itself" {
	cat >train.py <<-'PY'
		import os, time, muster_client
		for n in range(1, 100):
		    time.sleep(1.5)
		    muster_client.step(n, loss=1.0)
		    open(f"here-{os.environ['RANK']}", "w").write(str(n))
		    if muster_client.should_stop():
		        open(f"saved-{os.environ['RANK']}", "w").write(str(n))
		        break
	PY
	begin program.stop_grace=0.4 -- python3 train.py
	wait_for 60 here
	kill -INT "$pid"
	ends 75 0
	[[ -s saved-0 && $(<saved-0) == "$(<saved-1)" ]]
	! said 'is killed'
}

@test "a second Ctrl-C ends tasks at once that ignore the first" {
	begin program.stop_grace=600 -- sh -c 'trap "" TERM INT; echo $$ >here-$RANK; while :; do sleep 1; done'
	wait_for 60 here
	kill -INT "$pid"
	wait_for 60 said '^  stop +Interrupt: the tasks are asked to save and exit'
	kill -INT "$pid"
	ends 75 0
	said '^  stop +Interrupt: stopping at once'
}

@test "Ctrl-C between two generations" {
	begin restart.max_restarts=5 restart.backoff=60 -- sh -c 'exit 5'
	wait_for 60 event "$name" restart # the second one is in 60 s
	wait_for 60 said '^  restart +in 60 s'
	kill -INT "$pid"
	ends 75 1
}

# --- Surroundings -----------------------------------------------------------------------------------

@test "the reader of muster's output goes away: the run goes on" {
	{
		status=0
		"${muster_run[@]}" -- sh -c 'echo first; until [ -e gone ]; do sleep 0.02; done; seq 1000; touch ended-$RANK' \
			2>&1 </dev/null 3>&- || status=$?
		echo $status >status
	} | {
		head -n 1 >first
		exec <&-
		touch gone
	}
	[[ $(<first) == first && $(<status) -eq 0 && -e ended-0 && -e ended-1 ]]
	[[ $(event_field "$name" done status) -eq 0 ]]
	left_nothing
}

# begin_unread WORD...: as begin, but the output goes to a FIFO that nobody reads until read_output.
begin_unread() {
	mkfifo fifo
	exec 7<>fifo
	"${muster_run[@]}" "$@" </dev/null >fifo 2>&1 3>&- 7>&- &
	pid=$!
}

# As good as full: the pages of a pipe may have gaps.
fifo_is_full() {
	python3 -c 'import fcntl, struct, sys, termios; sys.exit(struct.unpack("i", fcntl.ioctl(7, termios.FIONREAD, b"0000"))[0] < 32768)'
}

read_output() {
	cat <fifo >"$out" 3>&- 7>&- &
	reader=$!
	wait_for 60 test -e "$out" # it has opened both
	exec 7>&-
	rm fifo
}

# The first process id that the task of the rank has written; it is another one than that of the last generation.
new_task() { [[ -s here-$1 && $(<here-"$1") != "${before-}" ]]; } # rank

@test "a reader of muster's output that does not read stops nothing: losses, restarts and requests to stop" {
	cat >train.py <<-'PY'
		import os, time
		rank = os.environ["RANK"]
		if rank == "0": # much more than a pipe holds, also of what the agent passes on
		    os.write(1, (b"a line" + b" that nobody reads" * 100 + b"\n") * 1000)
		open("new-" + rank, "w").write(str(os.getpid()))
		os.rename("new-" + rank, "here-" + rank)
		time.sleep(1000)
	PY
	begin_unread restart.max_restarts=5 -- python3 train.py
	wait_for 60 here
	wait_for 60 fifo_is_full
	before=$(<here-1)
	kill -9 "$before"
	wait_for 60 event "$name" rank-lost
	wait_for 60 new_task 1
	wait_for 60 generation_ready 2
	kill -TERM "$pid"
	wait_for 60 event "$name" stop
	read_output
	ends 75 1
	wait "$reader"
	lost 1 'the task was killed by SIGKILL' task-killed
	[[ $(event_field "$name" stop reason) == Terminated ]]
	# In this order.
	[[ $(grep -oE '^  (lost|restart|stop|stopped) ' "$out" | tr -d ' \n') == lostrestartstopstopped ]]
	[[ $(grep -c '^a line that nobody reads' "$out") -gt 20 ]]
}

@test "a reader of muster's output that never reads: the run ends all the same" {
	begin_unread -- python3 -c 'import os; os.environ["RANK"] == "0" and os.write(1, (b"a line" * 200 + b"\n") * 1000)'
	wait_for 60 fifo_is_full
	wait_for 60 has_ended "$pid"
	wait "$pid" && status=0 || status=$?
	pid=
	exec 7>&-
	[[ $status -eq 0 && $(event_field "$name" done status) -eq 0 ]]
	rm fifo
	left_nothing
}

@test "no descriptor for output at all: the run goes on" {
	"${muster_run[@]}" -- sh -c 'echo hello; [ $RANK = 0 ] || touch ended' <&- >&- 2>&- 3>&-
	[[ -e ended ]] && logged 0 hello
	left_nothing
}

@test "the working folder is deleted meanwhile: the restart still finds the program" {
	mkdir folder
	cd folder
	begin restart.max_restarts=1 -- sh -c 'rmdir ../folder 2>/dev/null; [ $RANK = 0 ] && exec sleep 1000; exit 4'
	cd ..
	ends 4 1
	lost 1 'the task exited with status 4' task-failed
}

@test "the run folder is deleted meanwhile: muster says so, and ends" {
	begin restart.max_restarts=1 -- sh -c 'echo $$ >here-$RANK; until [ -e gone ]; do sleep 0.02; done; exit 4'
	wait_for 60 here
	kill -STOP "$pid" # it must not write there meanwhile
	wait_for 60 rm -rf "$(run_folder "$name")"
	kill -CONT "$pid"
	touch gone
	wait "$pid" && status=0 || status=$?
	cat "$out"
	[[ $status -eq 4 ]] && said 'the run folder was deleted or moved while the run used it'
	wait_for 60 none_marked
}

@test "a run folder that may not be written: nothing starts" {
	if [[ $(id -u) -eq 0 ]]; then
		command -v setpriv >/dev/null || skip "needs setpriv"
		# The test's own folder may be closed to other users.
		place=$(mktemp -d /tmp/muster-denied.XXXXXX)
		as=(env HOME="$place" setpriv --reuid=nobody --regid=nogroup --clear-groups)
	else
		place=$(mktemp -d) as=()
	fi
	chmod 555 "$place"
	cd "$place"
	run "${as[@]}" "$MUSTER" run --quiet -n 2 -- sh -c 'exit 0'
	cd "$BATS_TEST_TMPDIR"
	rm -rf "$place"
	echo "$output"
	[[ $status -eq 3 && $output == *"muster: runs: cannot make the folder: Permission denied; choose another [job] run_dir or name"* ]]
}

@test "lines of tasks that the terminal does not show are no silence" {
	run "${muster_run[@]}" program.silence=3 -- sh -c '[ $RANK = 0 ] && exec sleep 5; for i in 1 2 3 4 5 6 7 8 9 10; do echo $i; sleep 0.5; done'
	[[ $status -eq 0 && $output == *"2 tasks ended with status 0"* && $output != *silence* ]]
}
