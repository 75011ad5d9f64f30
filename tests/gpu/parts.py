"""The parts of make check-gpu.

A part is a row of PARTS: its name, its limit in seconds, the programs that it needs (tests/gpu/build.py builds only those), and a
function of (run, fragment). To add one, write the function and the row. `run` (class Run) has the programs, the environment and the
remaining time. Findings go into the fragment at once (record.py), so that a part that is ended has written what it found.
"""

import glob
import importlib.util
import json
import os
import re
import shutil
import sys
import threading
import time
from dataclasses import dataclass
from typing import Callable

import tables
from programs import LATE, Talk, at_once, run_logged

HERE = os.path.dirname(os.path.abspath(__file__))
SO = "libmuster-cuda.so"
GEMM = 8192
COPY = 1 << 30
ROUNDS = 5
MODES = ("autocast", "pure")
WAITS, EIGHT, ANY_ORDER = "muster, a wait after each step", "muster, 8 bits", "muster, any order"
HAZARDS = 9  # compute-sanitizer's exit status if it reports something
OPEN_SECONDS = 150  # for a model in PyTorch, compiled


class Run:
    """What the parts of one call of the report share."""

    def __init__(self, args, folder, env, builder):
        self.args, self.dir, self.env, self.builder = args, folder, env, builder
        self.logs = os.path.join(folder, "logs")
        self.toy = args.emulator or args.toy
        self.end = time.monotonic() + args.seconds
        self.modes = args.modes.split(",") if args.modes else MODES
        self.peers, self.opened, self.opening, self.pending = {}, {}, [], set()
        self.missing = {}

    def left(self, most=1e9):
        """Seconds that the part has left. Over the emulator a program may take ten times as long."""
        return max(min(self.end - time.monotonic(), 10 * most if self.toy else most), 0)

    def log(self, name):
        return os.path.join(self.logs, re.sub(r"[^\w.-]+", "-", name) + ".log")

    # --- Programs ----------------------------------------------------------------------------------

    def program(self, name):
        """The path of a program. In a folder that make built, the program for collectives has its source's name."""
        folder = self.args.programs or self.dir
        if name == "comm" and not os.path.exists(os.path.join(folder, name)):
            name = "conform"
        return os.path.join(os.path.abspath(folder), name)

    def build(self, fragment, names):
        """Builds programs. `missing` remembers why a program could not be built."""
        since = time.monotonic()
        if self.args.programs:
            why = {n: None if os.path.exists(self.program(n)) else f"{self.program(n)} is not here" for n in names}
        else:
            why = self.builder.build(names, self.left(), os.path.join("logs", "build.log"))
        self.missing.update(why)
        seconds = round(time.monotonic() - since, 1)
        if seconds > 1 or fragment.found["part"] == "build":
            fragment.found["each"]["build"] = seconds
        fragment.save()
        return why

    def here(self, fragment, name, *programs):
        """Whether the programs are available; a check without them fails."""
        why = [self.missing[p] for p in programs if self.missing.get(p)]
        if why:
            fragment.count(name, 0, 1, 0, why[0])
        return not why

    def check(self, fragment, name, command, seconds, slow=False):
        """Runs a program that prints a line per check and then the counts. slow: exceeding the limit is no failure."""
        if self.left() < 3:
            return fragment.skip(name, "no time was left")
        since, log = time.monotonic(), self.log(name)
        code = run_logged(command, log, self.left(seconds), env=self.env, cwd=self.dir)
        fragment.found["each"][name] = round(time.monotonic() - since, 1)
        fragment.count(name, *verdict(open(log, errors="replace").read(), code, slow, self.toy))

    # --- PyTorch --------------------------------------------------------------------------------------

    def peer_command(self):
        toy = ["--toy", "--device", "cpu", "--no-compile"] if self.toy else []
        return [*(self.args.peer.split() if self.args.peer else [sys.executable, os.path.join(HERE, "peer.py")]), *toy]

    def peer_here(self):
        return bool(self.args.peer or importlib.util.find_spec("torch"))

    def talk_to_peer(self, log):
        # PyTorch's compiled code stays in the folder, for the next call.
        env = dict(os.environ, TORCHINDUCTOR_CACHE_DIR=os.path.join(self.dir, "torch"), TRITON_CACHE_DIR=os.path.join(self.dir, "triton"))
        return Talk(self.peer_command(), self.log(log), env)

    def open_peer(self, model, mode, until):
        talk = self.talk_to_peer(f"peer-{model}-{mode}")
        answer = talk.ask(f"open {model} {mode}", min(OPEN_SECONDS, until - time.monotonic()))
        if "error" not in answer:
            talk.ask("rest", 30)
            self.peers[model, mode] = talk
        else:
            talk.end()
        self.opened[model, mode] = answer
        print(f"       PyTorch {model} {mode}: {answer.get('error') or 'opened in %.0f s' % answer.get('opened_s', 0)}", flush=True)

    def to_open(self, pair):
        """Whether to open a model: not if it is open or being opened, or failed for good. Lack of memory or time is tried again."""
        why = self.opened.get(pair, {}).get("error", "no answer")
        return pair not in self.peers and pair not in self.pending and bool(re.search("out ?of ?memory|ALLOC_FAILED|no answer", why, re.I))

    def open_peers(self, models, until):
        """Opens and compiles each model in PyTorch, in threads. The large model's modes go one after the other: both may not fit in memory."""
        def chain(pairs):
            for model, mode in pairs:
                self.open_peer(model, mode, until)
                self.pending.discard((model, mode))

        chains = []
        for model in models:
            pairs = [p for p in ((model, mode) for mode in self.modes) if self.to_open(p)]
            self.pending.update(pairs)
            chains += [pairs] if model.startswith("llama") else [[p] for p in pairs]
        new = [threading.Thread(target=chain, args=(c,), daemon=True) for c in chains if c]
        self.opening += new
        for t in new:
            t.start()

    def wait_peers(self, seconds):
        until = time.monotonic() + seconds
        for t in self.opening:
            t.join(max(until - time.monotonic(), 0))


def verdict(text, code, slow, toy):
    """From a program's output and exit status: how many checks passed, failed and were skipped, and why."""
    last = re.findall(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$", text, re.M)
    begun = [len(re.findall(rf"^{word} ", text, re.M)) for word in ("ok", "FAILED", "skip")]
    passed, failed, skipped = (int(x or 0) for x in last[-1]) if last else begun
    failures = [line for line in text.splitlines() if line.startswith("FAILED")]
    why = "; ".join(failures[:3]) or "; ".join(re.findall(r"^skip +(.*)$", text, re.M)[:2])
    # From any of its processes, whatever the status of the first.
    found = re.findall(r"ERROR SUMMARY: [1-9].*|RACECHECK SUMMARY: .*\([1-9]\d* error.*", text)
    theirs = len(re.findall(r"Error: Race reported between \w+ access at cudnn_", text))
    races = [line for line in found if line.startswith("RACECHECK")]
    if theirs and theirs == sum(int(n) for n in re.findall(r"\((\d+) error", "\n".join(races))):
        found = [line for line in found if line not in races]
        code, why = 0 if code == HAZARDS else code, f"racecheck: {theirs} in cuDNN's own kernels, none in others"
    if found:
        failed, why = failed + 1, found[0] + ("; " + why if why else "")
    elif slow and code == LATE and not failed:
        skipped, why = skipped + 1, LATE
    elif not last or (code != 0 and not failed):
        failed, why = failed + 1, f"ended with {code}: " + (text.strip().splitlines() or [""])[-1]
    if skipped and not passed and not failed and why != LATE and not toy and "NCCL" not in why.upper():
        failed, skipped = 1, 0  # the GPU is here, so a backend that cannot be opened is a failure
    return passed, failed, skipped, why


# --- build, ops, comm, train -----------------------------------------------------------------------


def build_all(run, fragment):
    for name in dict.fromkeys(n for p in PARTS for n in p.needs):
        why = run.missing.get(name)
        fragment.count("build " + name, int(not why), int(bool(why)), 0, why or "")


def ops(run, fragment):
    """Runs all at once, since none is timed."""
    b = run.args.backend
    few = ["--few", "--only", "rms"] if run.toy else []
    if run.here(fragment, "ops", "ops", SO):
        jobs = [(run.check, (fragment, "ops " + s, [run.program("ops"), *few, s], 200)) for s in (b, b + ":bf16", b + ":fp16")]
        # The emulator needs minutes for the longest rows; tests/gpu/test_cuda_ops runs them.
        if not run.toy and run.here(fragment, "edges", "edges"):
            jobs.append((run.check, (fragment, "edges", [run.program("edges"), b, b + ":bf16", b + ":fp16"], 150)))
        at_once(jobs)


def comm(run, fragment):
    if run.here(fragment, "comm", "comm", SO):
        run.check(fragment, "comm", [run.program("comm"), run.program(SO)], 200)


def train(run, fragment):
    few = ["--few", "--steps", "2"] if run.toy else []
    if run.here(fragment, "train", "train", SO):
        at_once([(run.check, (fragment, "train " + m, [run.program("train"), "--backend", run.args.backend, *few, "--only", m], 220))
                 for m in (["gpt2, dropout"] if run.toy else ["gpt2", "llama", "mixtral"])])


# --- The step beside PyTorch ---------------------------------------------------------------------------


def limits(run, fragment, bench, peer=None):
    """The chip's limits, measured in this part by both sides."""
    size, copy, seconds = (128, 1 << 20, 0.05) if run.toy else (GEMM, COPY, 1)
    found = fragment.found["limits"]
    found.update({"gemm": size, "muster": bench.ask(f"gemm {size} {seconds}", run.left(30)), "copy": bench.ask(f"copy {copy}", run.left(30))})
    if peer:
        found["PyTorch"] = peer.ask(f"gemm {size} {seconds}", run.left(30))
        peer.ask("rest", 30)
    fragment.save()


def calibration(run):
    """Seconds for each operation and size of the planner's calibration, and the elements of the largest array."""
    return "0.0001 8192" if run.toy else f"0.02 {64 << 20}"


def open_bench(run):
    return Talk([run.program("bench"), "--backend", run.args.backend, *(["--toy"] if run.toy else [])], run.log("bench"), run.env, cwd=run.dir)


def take_turns(run, fragment, talks):
    """Runs the sides by turns. Two steps before each turn do not count, and give the number of steps of the turn.
    A talk is a side, its program, whether it rests after its turn, and words for its turns."""
    for _ in range(1 if run.toy else ROUNDS):
        for side, talk, rests, *words in talks:
            if run.left() < 8:
                return
            warm = talk.ask(" ".join(["turn 2", *words]), run.left(60))
            steps = 2 if run.toy or "error" in warm else max(4, min(20, int(1.2 / warm["seconds"][-1])))
            side["turns"].append(warm if "error" in warm else talk.ask(" ".join([f"turn {steps}", *words]), run.left(60)))
            if rests:
                talk.ask("rest", 30)
            fragment.save()


def judge(fragment, model, side):
    """Checks that the step runs, that its loss is a number, and that its memory agrees with the plan within 5 %."""
    good = [t for t in side["turns"] if "error" not in t and t["loss"] == t["loss"]]
    bad = [t["error"] for t in side["turns"] if "error" in t]
    fragment.count("step " + model, int(bool(good and not bad)), int(bool(bad) or not good), 0, bad[0] if bad else "" if good else "no time was left")
    if good:
        planned, had = side["opened"]["planned"]["total"], max(t["peak_bytes"] for t in good)
        fits = abs(planned - had) <= 0.05 * had
        fragment.count("memory " + model, int(fits), int(not fits), 0, f"planned {planned / 2**30:.2f} GiB, had {had / 2**30:.2f}")


def used(run, bench):
    """The algorithms that bench chose, and what its backend reported."""
    answer = bench.ask("choices", run.left(10))
    return {k: answer.get(k, []) for k in ("choices", "notices")}


def variant(run, fragment, model, sides, bench, name, words):
    """The same step with other keys of its job, in the time that is left, after the turns of the sides."""
    if run.left() < 30:
        return
    side = sides[name] = {"opened": bench.ask(f"open {model} {words}", run.left(90)), "turns": []}
    if "error" not in side["opened"]:
        take_turns(run, fragment, [(side, bench, False)])
        judge(fragment, f"{model}, {name.removeprefix('muster, ')}", side)
        side.update(used(run, bench))


def step(model):
    def part(run, fragment):
        if run.peer_here():
            run.open_peers([model], run.end - 60)
            run.wait_peers(run.left() - 60)
        else:
            fragment.skip(f"PyTorch {model}", "python3 here has no torch")
        if not run.here(fragment, "step " + model, "bench", SO):
            return
        peers = [(mode, run.peers[model, mode]) for mode in run.modes if (model, mode) in run.peers]
        sides = fragment.found["step"].setdefault(model, {})
        for mode in run.modes if run.peer_here() else ():
            sides[f"PyTorch, {mode}"] = {"opened": run.opened.get((model, mode), {"error": "it did not open in time"}), "turns": []}
        bench = open_bench(run)
        try:
            limits(run, fragment, bench, peers[0][1] if peers else None)
            calibrated = bench.ask("calibrate " + calibration(run), run.left(60))
            mine = sides["muster"] = {"opened": bench.ask("open " + model, run.left(90)), "turns": [], "calibrated": calibrated}
            if "error" in mine["opened"]:
                return fragment.count("step " + model, 0, 1, 0, mine["opened"]["error"])
            mine["predicted"] = bench.ask("predict", run.left(10))
            waits = sides[WAITS] = {"opened": mine["opened"], "turns": []}
            take_turns(run, fragment, [(mine, bench, False), (waits, bench, False, "waits")]
                       + [(sides[f"PyTorch, {mode}"], talk, True) for mode, talk in peers])
            judge(fragment, model, mine)
            mine.update(used(run, bench))
            variant(run, fragment, model, sides, bench, ANY_ORDER, "job.deterministic=any-order")
            variant(run, fragment, model, sides, bench, EIGHT, "precision.fp8=hybrid")
            for mode, talk in peers:
                sides[f"PyTorch, {mode}"]["chose"] = talk.ask("chose", run.left(30))
        finally:
            for mode, talk in peers:
                run.peers.pop((model, mode)).end()
            bench.end()
    return part


# --- Kernels ------------------------------------------------------------------------------------------


def kernels(run, fragment):
    if run.here(fragment, "kernels", "kernels", SO):
        if not run.missing.get("bench"):
            bench = open_bench(run)
            limits(run, fragment, bench)
            bench.end()
        command = [run.program("kernels"), "--backend", run.args.backend + ":bf16", "--calibrate", calibration(run).split()[0],
                   *(["--toy"] if run.toy else [])]
        log = run.log("kernels")
        code = run_logged(command, log, run.left(130), env=run.env, cwd=run.dir)
        for line in open(log, errors="replace"):
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if isinstance(row, dict) and {"op", "model", "what"} <= set(row):
                fragment.found["kernels"].append(row)
        bad = [r["op"] + ": " + r["error"] for r in fragment.found["kernels"] if "error" in r]
        ok = code == 0 and not bad
        fragment.count("kernels", int(ok), int(not ok), 0, "" if ok else f"ended with {code}; " + "; ".join(bad)[:300])
    attention(run, fragment)


def attention(run, fragment):
    """Measures PyTorch's attention at the sizes of the kernels' table, and reports which one it chose."""
    if not run.peer_here():
        return fragment.skip("PyTorch's attention", "python3 here has no torch")
    talk = run.talk_to_peer("peer-attention")
    for model, what, sizes in tables.ATTENTION:
        if run.left() < 5:
            break
        answer = talk.ask("attention " + ("1 16 2 2 16" if run.toy else sizes), run.left(60))
        fragment.found["attention"].append({"model": model, "what": what, **answer})
        fragment.save()
    talk.end()


# --- compute-sanitizer ------------------------------------------------------------------------------------


def sanitizer(run, fragment):
    """Runs a small subset, since everything is some hundred times slower under compute-sanitizer."""
    tool = shutil.which("compute-sanitizer") or next(iter(glob.glob("/usr/local/cuda/bin/compute-sanitizer")), None)
    if not tool:
        return fragment.skip("sanitizer", "compute-sanitizer is not installed")
    if not run.here(fragment, "sanitizer", "ops", SO):
        return
    b, log = run.args.backend, run.log("sanitizer")
    code = run_logged([tool, "--target-processes", "all", run.program("ops"), "--few", "--here", "--only", "gelu_fwd", b], log, run.left(60), env=run.env,
                      cwd=run.dir)
    text = open(log, errors="replace").read()
    if "not supported" in text or "passed" not in text:
        return fragment.skip("sanitizer", f"compute-sanitizer refuses this device (it ended with {code})")
    # The ops check their calls themselves, and CUDA's libraries make failing calls to probe features.
    base = [tool, "--target-processes", "all", "--error-exitcode", str(HAZARDS), "--report-api-errors", "no"]
    jobs = [("memcheck " + b, base + ["--tool", "memcheck", run.program("ops"), "--few", "--here", b + ":bf16"])]
    jobs += [("racecheck " + word, base + ["--tool", "racecheck", run.program("ops"), "--few", "--here", "--only", word, b + ":bf16"])
             for word in ("attention", "norm", "xent", "embed", "route", "fp8_cast")]
    at_once([(run.check, (fragment, name, command, 220, True)) for name, command in jobs])


# --- The table ----------------------------------------------------------------------------------------------


@dataclass
class Part:
    name: str
    limit: int
    needs: tuple
    run: Callable


PROGRAMS = ("ops", "edges", "bench", "kernels", "comm", "train", SO)
# The most important answers come first, since a machine may be available only for minutes.
PARTS = [
    Part("build", 240, PROGRAMS, build_all),
    Part("ops", 220, ("ops", "edges", SO), ops),
    Part("step-gpt2-50304", 240, ("bench", SO), step("gpt2-50304")),
    Part("step-llama-1b", 240, ("bench", SO), step("llama-1b")),
    Part("kernels", 200, ("kernels", "bench", SO), kernels),
    Part("comm", 120, ("comm", SO), comm),
    Part("train", 240, ("train", SO), train),
    Part("step-gpt2-50257", 240, ("bench", SO), step("gpt2-50257")),
    Part("sanitizer", 240, ("ops", SO), sanitizer),
]
# Models that PyTorch compiles while programs are built and ops are checked.
AHEAD = ("gpt2-50304", "llama-1b")


def chosen(words):
    """The parts of comma-separated words, in that order: a part's name, or `step` for all of that kind. ValueError: no such part."""
    if not words:
        return PARTS
    found = []
    for word in words.split(","):
        some = [p for p in PARTS if p.name == word or p.name.startswith(word + "-")]
        if not some:
            raise ValueError(f"there is no part {word}; there are {', '.join(p.name for p in PARTS)}, and step for all of its kind")
        found += [p for p in some if p not in found]
    return found
