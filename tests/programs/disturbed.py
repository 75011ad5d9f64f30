"""Runs a program of templates/programs, and disturbs it once if there is DISTURB.

usage: disturbed.py PROGRAM ARG...

DISTURB="WHAT RANK STEP FILE": when rank RANK has done step STEP, and before it reports it, this does WHAT, unless FILE exists, which
it then creates: kill (SIGKILL to itself), hang (sleeps), exit (exit status 3), raise, or stop (sends SIGTERM to the launcher, whose process
id is in FILE.pid, and waits until it is asked to stop). The programs report each step by
muster_client.step(); this puts its own module in the place of that one and passes all calls on to the real module, if there is one.
"""
import os
import runpy
import signal
import sys
import time
import types

try:
    import muster_client as real
except ImportError:
    real = None

what, rank, at, file = os.environ.get("DISTURB", "nothing -1 0 /").split(" ", 3)


def stop():
    """Returns after the program's handler of SIGTERM has run, or its client knows that it is to stop."""
    asked, handler = [], signal.getsignal(signal.SIGTERM)

    def note(*words):
        asked.append(True)
        handler(*words)
    signal.signal(signal.SIGTERM, note)
    while not os.path.exists(file + ".pid"):
        time.sleep(0.01)
    with open(file + ".pid", encoding="ascii") as f:
        os.kill(int(f.read()), signal.SIGTERM)
    while not asked and not module.should_stop():
        time.sleep(0.01)


def disturb():
    os.close(os.open(file, os.O_CREAT | os.O_EXCL))
    print(f"disturbed: {what}, process {os.getpid()}", flush=True)
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "hang":
        while True:
            time.sleep(1000)
    elif what == "exit":
        os._exit(3)
    elif what == "stop":
        return stop()
    raise RuntimeError("a fault that the test causes")


def step(n, *words, **named):
    if n == int(at) and os.environ["RANK"] == rank and not os.path.exists(file):
        disturb()
    if real:
        real.step(n, *words, **named)


module = types.ModuleType("muster_client")
module.step = step
module.checkpoint_saved = real.checkpoint_saved if real else lambda path, n: None
module.should_stop = real.should_stop if real else lambda: False
sys.modules["muster_client"] = module
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
# PyTorch 2.15 sometimes aborts here on Python 3.11: a thread of Gloo that drops its last tensors wants the interpreter while it ends.
# So a program that has ended well with PyTorch skips the interpreter's end. JAX needs it.
if "torch" in sys.modules:
    sys.stdout.flush()
    os._exit(0)
