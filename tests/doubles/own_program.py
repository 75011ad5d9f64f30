"""A program that uses agent/client/muster_client.py, and does what own_program.c does."""

import os
import sys
import time

sys.path.insert(0, "agent/client")
sys.dont_write_bytecode = True
import muster_client  # noqa: E402


def train():
    for n in range(1, 1001):
        loss = {2: float("nan"), 3: float("-inf")}.get(n, 0.1)
        norm = float("inf") if n == 4 else 2
        muster_client.step(n, loss=loss, tokens=4096, samples=8.0, lr=1e-4, grad_norm=norm, **{"bad name": 1})
        if n == 3:
            muster_client.checkpoint_saved(b'ckpt/"a\\\n\xff\xc3\xbc', n)
        if muster_client.should_stop():
            return n == 20
    return False


def wait():
    while not muster_client.should_stop():
        time.sleep(0.001)
    return True


def fork():
    muster_client.step(1)
    child = os.fork()
    if child == 0:
        muster_client.step(99)
        muster_client.checkpoint_saved("/never", 99)
        os._exit(1 if muster_client.should_stop() or not muster_client.plan() else 0)
    status = os.waitpid(child, 0)[1]
    muster_client.step(2)
    return status == 0


def fill():
    for n in range(1, 5001):
        muster_client.step(n)
    muster_client.checkpoint_saved("/kept", 5000)
    os.write(1, b".")
    os.read(0, 1)
    return not muster_client.should_stop()


def lost():
    for n in range(1, 101):
        muster_client.step(n)
        muster_client.checkpoint_saved("a", n)
        if muster_client.should_stop():
            return False
    return True


def alone():
    return lost() and muster_client.plan() == {}


def plan():
    return muster_client.plan() == {"rank": 3}


modes = {"train": train, "wait": wait, "fork": fork, "fill": fill, "lost": lost, "alone": alone, "plan": plan}
sys.exit(0 if modes[sys.argv[1]]() else 1)
