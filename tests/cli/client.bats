#!/usr/bin/env bats
# muster_client.py by itself: what it sends for which values, and that nothing that muster does or omits can disturb a program.
# tests/unit/agent/test_task_programs.c runs it against the agent's end.

load ../helpers

setup() {
	command -v python3 >/dev/null || skip "there is no python3"
	cd "$BATS_TEST_TMPDIR"
	cat >agent.py <<-'PY'
		"""The agent's end of the channel, and a client that was imported anew."""
		import atexit, json, os, socket, sys

		sys.dont_write_bytecode = True
		ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
		ours.setblocking(False)
		atexit.register(ours.close)
		os.set_inheritable(theirs.fileno(), True)
		os.environ["MUSTER_CLIENT_FD"] = str(theirs.detach())
		import muster_client

		def heard():
		    """The packets that are there, but hello."""
		    packets = []
		    while True:
		        try:
		            packet = json.loads(ours.recv(20000).decode(), parse_constant=lambda word: sys.exit(f"{word} is not JSON"))
		        except BlockingIOError:
		            return packets
		        if "hello" not in packet:
		            packets.append(packet)

		def stop(**members):
		    ours.send(json.dumps({"stop": members}).encode())
	PY
	export PYTHONPATH=$top/agent/client PYTHONDONTWRITEBYTECODE=1
}

# Runs the program on standard input. One that blocks is ended after a time that none comes near.
python() { timeout 600 python3 -X dev -W error "$@"; }

@test "numbers of many kinds arrive, and what is no number is left out with one line" {
	python - 2>said <<-'PY'
		from agent import *
		from decimal import Decimal
		from fractions import Fraction

		class Index:
		    def __index__(self): return 7
		class Float:
		    def __float__(self): return 0.25
		class Broken:
		    def __float__(self): raise RuntimeError("a tensor of several elements")

		def sent(n, **numbers):
		    muster_client.step(n, **numbers)
		    packets = heard()
		    return packets[0]["step"] if packets else None

		inf, nan = float("inf"), float("nan")
		assert sent(1) == {"n": 1}
		assert sent(2, loss=0.1, tokens=4096, samples=2.0, lr=1e-20, grad_norm=3) == \
		    {"n": 2, "loss": 0.1, "tokens": 4096, "samples": 2, "lr": 1e-20, "grad_norm": 3.0}
		assert sent(3, loss=nan, lr=inf, grad_norm=-inf) == {"n": 3, "loss": "nan", "lr": "inf", "grad_norm": "-inf"}
		assert sent(Index(), loss=Float(), lr=Decimal("0.5"), accuracy=Fraction(1, 4), tokens=Index()) == \
		    {"n": 7, "loss": 0.25, "lr": 0.5, "accuracy": 0.25, "tokens": 7}
		assert sent(8.0, loss=None, tokens=None, lr=None) == {"n": 8}
		assert sent(9, loss=True, tokens=True, lr="0.5", grad_norm=Broken(), samples=1.5) == {"n": 9}
		assert sent(10, loss=[1], tokens=-1, lr=10**400, samples=nan, grad_norm=1j) == {"n": 10}
		assert sent(11, tokens=2**53, samples=2**53 + 1) == {"n": 11, "tokens": 2**53}
		assert sent(12, **{'"': 1, "a b": 1, "": 1, "é": 2}) == {"n": 12, "é": 2}
		for bad in (0, -1, 1.5, True, "1", None, nan, inf, 2**53 + 1, [], Broken()):
		    assert sent(bad) is None, bad
		assert sent(13, **{f"y{i}": 1.0 for i in range(2000)}) is None
		assert sent(14) == {"n": 14}
	PY
	cat said
	[[ $(grep -c "^muster_client: .* is left out: " said) -eq $(wc -l <said) ]]
	[[ $(grep -c "'loss' of a step is left out: it is a bool" said) -eq 1 && $(grep -c "^muster_client: a step is left out: it is not from 1 to" said) -eq 1 ]]
}

@test "paths of checkpoints arrive as absolute ones" {
	python - 2>said <<-'PY'
		from agent import *
		import pathlib
		here = os.getcwd()
		for path, want in ((pathlib.Path("ckpt/a"), f"{here}/ckpt/a"), ("./b/../c", f"{here}/c"), ('/q/"\\\n', '/q/"\\\n'),
		                   (b"/x\xff", "/x?"), ("s3://bucket/run//a", "s3://bucket/run//a"), ("/ü", "/ü")):
		    muster_client.checkpoint_saved(path, 500)
		    assert heard() == [{"checkpoint": {"path": want, "step": 500}}], path
		for path, step in (("", 1), (None, 1), (7, 1), ("/a", -1), ("/a", None), ("/" + "a" * 4095, 1)):
		    muster_client.checkpoint_saved(path, step)
		    assert heard() == [], path
		muster_client.checkpoint_saved("/" + "a" * 4094, 1)
		assert len(heard()[0]["checkpoint"]["path"]) == 4095
	PY
	cat said
	[[ $(cat said) == "muster_client: a checkpoint is left out: its path is empty" ]]
}

@test "should_stop becomes true after the step of the last stop, and stays true" {
	python - <<-'PY'
		from agent import *
		assert muster_client.should_stop() is False
		for n in range(1, 4):
		    muster_client.step(n)
		stop(reason="preempted", at_step=5)
		assert muster_client.should_stop() is False
		muster_client.step(4)
		stop(reason="\"at_step\": 1", at_step=6)
		assert muster_client.should_stop() is False
		muster_client.step(5)
		assert muster_client.should_stop() is False
		muster_client.step(6)
		assert muster_client.should_stop() is True
		stop(at_step=100)
		assert muster_client.should_stop() is True
	PY
}

@test "a program that asks should_stop survives SIGTERM, its children do not, and a handler of its own stays" {
	python - <<-'PY'
		from agent import *
		import signal

		assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
		muster_client.step(1)
		assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
		muster_client.should_stop()
		os.kill(os.getpid(), signal.SIGTERM)
		child = os.fork()
		if not child:
		    os.kill(os.getpid(), signal.SIGTERM)
		    os._exit(0)
		assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGTERM
	PY
	python - <<-'PY'
		from agent import *
		import signal

		own = lambda number, frame: None
		signal.signal(signal.SIGTERM, own)
		muster_client.should_stop()
		assert signal.getsignal(signal.SIGTERM) is own
	PY
}

@test "what is no stop is ignored" {
	python - <<-'PY'
		from agent import *
		muster_client.step(1)
		for packet in (b"[]", b"{", b"7", b"\xff", b'{"stop": 7}', b'{"stop": null}', b'{"stop": [1]}', b'{"phase": {"stop": {}}}', b"[" * 16000):
		    ours.send(packet)
		    assert muster_client.should_stop() is False, packet
		stop()
		assert muster_client.should_stop() is True
	PY
}

@test "a full socket, a default timeout and threads do not hold up or break a program" {
	python - <<-'PY'
		import socket
		socket.setdefaulttimeout(3600)
		from agent import *
		import threading
		for n in range(1, 100001):
		    muster_client.step(n)
		packets = heard()
		assert 0 < len(packets) < 100000 and packets[0] == {"step": {"n": 1}}
		muster_client.should_stop()
		assert heard() == [{"step": {"n": 100000}}]

		def work(first):
		    for n in range(first, first + 1000):
		        muster_client.step(n)
		        muster_client.checkpoint_saved("/a", n)
		        muster_client.should_stop()
		threads = [threading.Thread(target=work, args=(1000 * i + 1,)) for i in range(8)]
		for t in threads: t.start()
		while any(t.is_alive() for t in threads): heard()
		for t in threads: t.join()
	PY
}

# The handler comes once at each instruction of the call, with and without room in the socket.
@test "a signal handler that reports a step disturbs no call that it interrupts" {
	python - <<-'PY'
		from agent import *

		def interrupted(client, call, at, handler):
		    """Calls it, and the handler at its instruction of this number. False: it has fewer."""
		    left = at
		    def trace(frame, event, arg):
		        nonlocal left
		        frame.f_trace_opcodes = True
		        if event == "opcode":
		            left -= 1
		            if left == 0:
		                sys.settrace(None)
		                handler()
		        return trace if left > 0 and frame.f_code.co_filename == muster_client.__file__ else None
		    sys.settrace(trace)
		    try:
		        call()
		    finally:
		        sys.settrace(None)
		    return left <= 0

		def packets(ours):
		    try:
		        while True:
		            yield json.loads(ours.recv(20000).decode())
		    except BlockingIOError:
		        pass

		def check(begin, call, fill, at):
		    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
		    ours.setblocking(False)
		    os.environ["MUSTER_CLIENT_FD"] = str(theirs.detach())
		    client = muster_client._Client()
		    n = 0
		    if begin:
		        client.step(1)
		        n = 1
		    while fill and "step" not in client._kept:
		        n += 1
		        client.step(n)
		    went_on = interrupted(client, lambda: call(client, n), at, lambda: client.step(n + 2))
		    heard = list(packets(ours))
		    client.step(n + 3)
		    heard += list(packets(ours))
		    client.should_stop()
		    heard += list(packets(ours))
		    assert "hello" in heard[0], (at, heard[0])
		    assert [p for p in heard if "step" in p][-1]["step"]["n"] == n + 3, (at, heard[-1])
		    assert any("checkpoint" in p for p in heard) == (call is calls[2]), at  # it may come twice
		    channel = client._channel
		    if channel is not None:
		        channel.close()
		    ours.close()
		    return went_on

		calls = [lambda c, n: c.step(n + 1, loss=0.5), lambda c, n: c.should_stop(), lambda c, n: c.checkpoint_saved("/a", n)]
		for call in calls:
		    for begin, fill in ((False, False), (True, False), (True, True)):
		        at = 1
		        while check(begin, call, fill, at):
		            at += 1
		        assert at > 40, at
	PY
}

@test "a lost agent does not end a program, and it still stops where the others do" {
	python - <<-'PY'
		from agent import *
		import signal
		signal.signal(signal.SIGPIPE, signal.SIG_DFL)
		muster_client.step(1)
		stop(at_step=3)
		assert muster_client.should_stop() is False
		ours.close()
		for n in (2, 3):
		    assert muster_client.should_stop() is False
		    muster_client.step(n)
		    muster_client.checkpoint_saved("/a", n)
		assert muster_client.should_stop() is True
	PY
}

@test "processes that were spawned, and programs without muster, do nothing" {
	python - <<-'PY'
		from agent import *
		import subprocess
		os.environ["MUSTER_PLAN"] = '{"rank": 3}'
		assert muster_client.plan() == {"rank": 3}
		script = "import muster_client as m; m.step(1); m.checkpoint_saved('a', 1); assert m.plan() == {} and m.should_stop() is False"
		heard()
		for close in (True, False):  # the descriptor is not inherited once the client has used it
		    subprocess.run([sys.executable, "-c", script], close_fds=close, check=True)
		assert heard() == []
		for plan in ("[1]", "{", "", "[" * 100000):
		    os.environ["MUSTER_PLAN"] = plan
		    assert muster_client.plan() == {}
	PY
	local fd
	for fd in "" 0 1 999 -1 x 3x ٣ 99999999999999999999; do
		MUSTER_CLIENT_FD=$fd python -c 'import muster_client as m; m.step(1, loss="x"); assert m.plan() == {} and m.should_stop() is False' 2>said
		[[ ! -s said ]]
	done
}

@test "the client leaves a socket alone that is not muster's" {
	python - <<-'PY'
		import os, socket
		other, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
		os.environ["MUSTER_CLIENT_FD"] = str(theirs.fileno())
		import muster_client
		muster_client.step(1)
		assert muster_client.should_stop() is False
		assert theirs.send(b"x") == 1 and other.recv(10) == b"x" and theirs.getblocking()
		other.close()
		theirs.close()
	PY
}

@test "the client is Python 3.7, and uses only Python's library" {
	python - "$top/agent/client/muster_client.py" <<-'PY'
		import ast, pathlib, sys
		tree = ast.parse(pathlib.Path(sys.argv[1]).read_text(), feature_version=(3, 7))
		names = {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
		assert names <= {"atexit", "errno", "json", "operator", "os", "signal", "socket", "sys", "threading"}, names
		assert not any(isinstance(node, ast.ImportFrom) for node in ast.walk(tree))
	PY
}
