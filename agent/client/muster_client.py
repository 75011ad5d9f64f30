"""Tells muster what a training program does, and asks it when to stop.

    import muster_client

    for n in range(first, last + 1):
        loss = train_step()
        muster_client.step(n, loss=loss.item(), tokens=tokens)
        if muster_client.should_stop():
            break

The file is all there is: it needs Python 3.7 or newer and no other package. If muster did not start
the program, every call does nothing. If muster is lost, or does not read, the calls go on without it:
none waits, and none raises an exception. They may come from every thread. Only the process that calls
first speaks to muster; in the processes that it forks, such as those of a data loader, the calls do
nothing. The first should_stop() makes the program survive SIGTERM, unless it has a handler for it.

muster_client.h describes the protocol.
"""

import atexit
import errno
import json
import operator
import os
import signal
import socket
import sys
import threading

__all__ = ["step", "checkpoint_saved", "should_stop", "plan"]

VERSION = 1
PACKET = 16384  # bytes, at most
PATH = 4095  # bytes, at most
READS = 16  # packets in one call, at most
LARGEST = 2**53  # of an integer that every reader of JSON keeps exactly
COUNTS = ("tokens", "samples")
FLAGS = getattr(socket, "MSG_DONTWAIT", 0) | getattr(socket, "MSG_NOSIGNAL", 0)


def _refuse(value):
    """ValueError for what Python would convert to a number by mistake."""
    kind = type(value).__name__
    if kind in ("bool", "bool_", "str", "bytes", "bytearray"):  # numpy's bool has one of these names
        raise ValueError(f"it is a {kind}")


def _index(value):
    _refuse(value)
    try:
        return int(operator.index(value))
    except TypeError:
        real = float(value)
    number = int(real)  # fails for NaN and infinity
    if number != real:
        raise ValueError("it is not an integer")
    return number


def _count(value, least):
    """The value as an integer from `least` on. ValueError: it is none."""
    number = value if type(value) is int else _index(value)
    if not least <= number <= LARGEST:
        raise ValueError(f"it is not from {least} to 2**53")
    return number


def _number(value):
    """The JSON text of a number; one that is not finite is a string."""
    if type(value) is not float:
        _refuse(value)
        value = float(value)
    text = repr(value)
    return text if value - value == 0 else f'"{text}"'


def _let_pass(number, frame):
    """The handler of SIGTERM of a program that asks should_stop()."""


def _restore_sigterm():
    if signal.getsignal(signal.SIGTERM) is _let_pass:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _hold_sigterm():
    """When Slurm takes the nodes of a job, it sends SIGTERM to each process, which would end a program that asks should_stop()
    before it can save. So such a program survives the signal, unless it has a handler of its own. Its children do not."""
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return
    signal.signal(signal.SIGTERM, _let_pass)
    signal.siginterrupt(signal.SIGTERM, False)
    os.register_at_fork(after_in_child=_restore_sigterm)


def _location(path):
    """A path as muster can use it, whose current folder is another one."""
    path = os.fsdecode(path)
    if not path:
        raise ValueError("its path is empty")
    if "://" not in path:
        path = os.path.abspath(path)
    data = path.encode("utf-8", "replace")
    if len(data) > PATH:
        raise ValueError(f"its path has more than {PATH} bytes")
    return data.decode("utf-8")


def _socket_of(text):
    """The socket of MUSTER_CLIENT_FD, if it is what muster passes; otherwise None: a process may inherit the variable without
    the descriptor, and use its number for another file."""
    if not text or not (text.isascii() and text.isdigit()):
        return None
    try:
        channel = socket.socket(fileno=int(text))
    except (OSError, OverflowError, ValueError):
        return None
    if channel.family != socket.AF_UNIX or channel.type != socket.SOCK_SEQPACKET:
        channel.detach()
        return None
    channel.setblocking(False)
    channel.set_inheritable(False)
    atexit.register(channel.detach)  # without it, development mode reports a socket that nobody closed
    return channel


class _Client:
    def __init__(self):
        self._lock = threading.RLock()  # a signal handler may call while the same thread is in here
        self._pid = None  # of the process that called first
        self._opening = False  # the first call has begun
        self._found = False  # muster was there at the first call
        self._channel = None  # None: no muster, or it is lost
        self._kept = {}  # kind: packet that is to be sent, in the order of sending
        self._last = 0  # step
        self._stop_at = None  # the step of the last stop; 0: at once; None: there was none
        self._stopped = False
        self._held = False  # SIGTERM was looked at
        self._buffer = bytearray(PACKET)
        self._warned = set()

    def _enter(self):
        """False: this process was forked from the one that speaks to muster."""
        if self._pid is None:
            with self._lock:
                if self._pid is None:
                    self._open()
        return self._pid == os.getpid()

    def _open(self):
        if self._opening:
            return  # a signal handler came in between
        self._opening = True
        pid = os.getpid()
        try:
            channel = _socket_of(os.environ.get("MUSTER_CLIENT_FD"))
        except Exception:  # a platform without such sockets
            channel = None
        if channel is not None:
            self._kept["hello"] = b'{"hello":{"version":%d,"pid":%d}}' % (VERSION, pid)
        self._channel = channel
        self._found = channel is not None
        self._pid = pid
        self._flush()

    def _warn(self, what, why):
        """Once for each kind of mistake: training must not end for it."""
        if self._channel is None or what in self._warned:
            return
        self._warned.add(what)
        try:
            sys.stderr.write(f"muster_client: {what} is left out: {why}\n")
        except Exception:
            pass

    def _put(self, kind, text):
        """Sends a packet, or keeps it until the socket has room. One of the same kind that was kept is lost."""
        if self._channel is None:
            return
        data = text.encode()
        if len(data) > PACKET:
            self._warn(f"a {kind}", f"it is larger than {PACKET} bytes")
            return
        with self._lock:
            self._kept[kind] = data
            self._flush()

    def _flush(self):
        """A signal handler may come between any two lines, and send and replace what is kept."""
        for kind in list(self._kept):
            data = self._kept.get(kind)
            channel = self._channel
            if channel is None:
                return
            if data is None:
                continue
            try:
                channel.send(data, FLAGS)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno not in (errno.ENOBUFS, errno.ENOMEM):
                    self._channel = None
                return
            sent = self._kept.pop(kind, None)
            if sent is not None and sent is not data:
                self._kept.setdefault(kind, sent)  # it was not this one

    def _receive(self):
        for _ in range(READS):
            channel = self._channel
            if channel is None:
                return
            try:
                n = channel.recv_into(self._buffer, PACKET, FLAGS)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                n = 0
            if n == 0:
                self._channel = None
                return
            self._take(bytes(self._buffer[:n]))

    def _take(self, packet):
        try:
            stop = json.loads(packet.decode())["stop"]
            at = stop.get("at_step", 0)
            self._stop_at = at if type(at) is int else 0
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            pass

    def step(self, n, loss=None, tokens=None, **numbers):
        """Reports that step n is done; n counts the finished steps of the whole run, from 1. After a resume from step 500 the
        first call is step(501). Every rank calls it. tokens and samples are those of the whole step, on all ranks together. A
        rank that does not know a number leaves it out. muster uses loss, tokens, samples, lr and grad_norm; the numbers may be
        NaN or infinite."""
        if not self._enter():
            return
        try:
            n = _count(n, 1)
        except Exception as error:
            self._warn("a step", error)
            return
        self._last = n
        if self._channel is None:
            return
        text = '{"step":{"n":%d' % n
        if loss is not None:
            text += self._member("loss", loss)
        if tokens is not None:
            text += self._member("tokens", tokens)
        for name, value in numbers.items():
            if value is not None:
                text += self._member(name, value)
        self._put("step", text + "}}")

    def _member(self, name, value):
        try:
            if not name.isidentifier():
                raise ValueError("its name is not an identifier")
            return ',"%s":%s' % (name, _count(value, 0) if name in COUNTS else _number(value))
        except Exception as error:
            self._warn(f"{name!r} of a step", error)
            return ""

    def checkpoint_saved(self, path, step):
        """Reports that a checkpoint is complete; step: the finished steps that it holds. The rank that completes the checkpoint
        calls it."""
        if not self._enter():
            return
        try:
            path = _location(path)
            step = _count(step, 0)
        except Exception as error:
            self._warn("a checkpoint", error)
            return
        self._put("checkpoint", '{"checkpoint":{"path":%s,"step":%d}}' % (json.dumps(path), step))

    def should_stop(self):
        """True: the program is to end now, after this step. All ranks get True after the same step."""
        if not self._enter():
            return False
        if self._found and not self._held and threading.current_thread() is threading.main_thread():
            self._held = True
            _hold_sigterm()
        with self._lock:
            if self._kept:
                self._flush()
            self._receive()
            if self._stop_at is not None and (self._last == 0 or self._last >= self._stop_at):
                self._stopped = True
            return self._stopped

    def plan(self):
        """The place of this rank in the run: its coordinates, its node and its device. {} without muster."""
        self._enter()
        if not self._found:
            return {}
        try:
            plan = json.loads(os.environ.get("MUSTER_PLAN", "{}"))
        except (ValueError, RecursionError):
            return {}
        return plan if isinstance(plan, dict) else {}


_client = _Client()
step = _client.step
checkpoint_saved = _client.checkpoint_saved
should_stop = _client.should_stop
plan = _client.plan
