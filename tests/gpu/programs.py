"""Runs the programs of make check-gpu, each with its own limit.

Every program leads a process group, so that the processes that it forked end with it. It stays in the report's session: ending that
ends it too. If a driver keeps a process from ending, the report continues after a moment, so that the remaining parts still run.
"""

import json
import os
import queue
import signal
import subprocess
import threading

LATE = "ended by its time limit"
GRACE = 5  # seconds for a killed program to end

running = set()
lock = threading.Lock()


def start(command, **more):
    with lock:
        process = subprocess.Popen(command, process_group=0, **more)
        running.add(process)
    return process


def end_group(process):
    """Ends a program and the processes that it forked."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    try:
        process.wait(timeout=GRACE)
    except subprocess.TimeoutExpired:
        pass
    running.discard(process)


def end_all():
    for process in list(running):
        end_group(process)


def lines_of(command, **more):
    """The lines that a command prints; [] if it cannot run."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=30, **more)
        return done.stdout.splitlines() if done.returncode == 0 else []
    except (OSError, subprocess.TimeoutExpired):
        return []


def run_logged(command, log, seconds, **more):
    """Runs a command with its output in a file. Returns its exit status, or why there is none."""
    with open(log, "w") as out:
        try:
            process = start(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, **more)
        except OSError as e:
            out.write(f"{e}\n")
            return str(e)
        try:
            return process.wait(timeout=max(seconds, 0.1))
        except subprocess.TimeoutExpired:
            return LATE
        finally:
            end_group(process)


def at_once(calls):
    """Runs calls of (function, arguments), each in a thread, until all have returned. Then raises the first exception, if any."""
    raised = []

    def guarded(function, arguments):
        try:
            function(*arguments)
        except Exception as e:
            raised.append(e)

    threads = [threading.Thread(target=guarded, args=call) for call in calls]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if raised:
        raise raised[0]


class Talk:
    """A program that answers each line with a line of JSON."""

    def __init__(self, command, log, env, **more):
        self.answers = queue.Queue()
        self.process = None
        try:
            with open(log, "a") as errors:
                self.process = start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=env, **more)
        except OSError as e:
            self.why = str(e)
            return
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.answers.put(line)
        self.answers.put(None)

    def ask(self, line, seconds):
        """The answer, or {"error": ...}. A program that exceeds its time is ended."""
        if not self.process:
            return {"error": self.why}
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
            answer = self.answers.get(timeout=max(seconds, 0.1))
            found = json.loads(answer) if answer else {"error": "the program ended; its log says why"}
            return found if isinstance(found, dict) else {"error": f"an answer to '{line}' that is no object"}
        except queue.Empty:
            self.end()
            return {"error": f"no answer to '{line}' within {seconds:.0f} s"}
        except BrokenPipeError:
            return {"error": "the program ended; its log says why"}
        except (OSError, ValueError) as e:
            return {"error": str(e)}

    def end(self):
        if self.process:
            end_group(self.process)
