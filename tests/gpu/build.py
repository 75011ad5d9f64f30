#!/usr/bin/env python3
"""Builds the programs of make check-gpu, for one GPU or over the emulator, without make.

The lists of files are in tests/gpu/sources.mk. The kernels' rules and the compilers' flags are read from kernels/kernels.mk,
kernels/cuda/cuda.mk and tests/gpu/emulator/emulator.mk. No Debian package is needed: tests/gpu/standin replaces libsodium's and
libjansson's headers.

OUT/build.json remembers what is built. Each output's key is a hash of its command and of the contents of its inputs, without
times and without the places of OUT and of CUDA. A program whose key is unchanged is not built again, even if its objects are
missing. So programs that were built on another machine can be copied together with that file. A file that does not compile stops
only the programs that need it.

usage: tests/gpu/build.py OUT [--arch 90 | --emulator] [--list] [TARGET ...]
  TARGET      ops, edges, train, bench, kernels, comm, libmuster-cuda.so (default: all)
  --list      print the files that would be compiled
"""

import argparse
import concurrent.futures
import glob
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, HERE)
import programs  # noqa: E402

CFLAGS = "-std=c11 -O2 -g -pthread -Itests/gpu/standin -I. -D_GNU_SOURCE".split()
LINK = "-pthread -Wl,--as-needed".split()
KERNEL_LIBS = "-fopenmp -lm -ldl".split()
DOUBLE_LINK = ["-Wl,--disable-new-dtags", "-Wl,-rpath,$ORIGIN", "-Wl,--no-as-needed"]
SO = "libmuster-cuda.so"
MAKEFILES = ("tests/gpu/sources.mk", "kernels/kernels.mk", "kernels/cuda/cuda.mk", "tests/gpu/emulator/emulator.mk")


def variables():
    """The words of each `NAME := words` in the makefiles."""
    found = {}
    for name in MAKEFILES:
        text = open(os.path.join(TOP, name)).read().replace("\\\n", " ")
        for variable, words in re.findall(r"^(\w+) *[:?]= *(.*)$", text, re.M):
            found[variable] = words.split()
    return found


def files_of(words):
    """The files of a list of paths, patterns and !exceptions, sorted, each once."""
    found = {path for word in words if word[0] != "!" for path in glob.glob(word, root_dir=TOP)}
    return sorted(found - {word[1:] for word in words if word[0] == "!"})


def cuda_home():
    homes = [os.environ.get("CUDA_HOME"), "/usr/local/cuda"]
    nvcc = shutil.which("nvcc")
    homes += [os.path.dirname(os.path.dirname(nvcc))] if nvcc else []
    return next((h for h in homes if h and os.path.exists(os.path.join(h, "include", "cuda_runtime_api.h"))), None)


def header_folder(name, home):
    """A folder with the header that compilers do not search, such as pip's. "": they search it; None: the header is not here."""
    if any(os.path.exists(os.path.join(h, "include", name)) for h in (home, "/usr", "/usr/local") if h):
        return ""
    pip = [h for p in sys.path for h in glob.glob(os.path.join(p, "nvidia", "*", "include", name))]
    return os.path.dirname(pip[0]) if pip else None


class Rules:
    """What to build: objects {path under OUT: (source, command)} and targets {name: (objects, archives, command)}."""

    def __init__(self, arch, emulator):
        self.v = variables()
        self.home = cuda_home()
        self.emulator = emulator
        self.objects, self.archives, self.targets = {}, {}, {}
        self.cc, self.cxx = os.environ.get("CC", "gcc"), os.environ.get("CXX", "g++")
        include = ["-isystem", os.path.join(self.home or "", "include")]
        nccl, lt, dnn = (header_folder(name, self.home) for name in ("nccl.h", "cublasLt.h", "cudnn_graph.h"))
        self.nccl, self.cudnn = nccl is not None, dnn is not None
        # After the toolkit's, since pip's folders have other headers of CUDA too.
        self.cuda = include + [w for folder in (nccl, lt, dnn) if folder for w in ("-isystem", folder)] + (["-DHAVE_NCCL"] if self.nccl else [])
        self.device = self.device_compiler(arch, include)
        self.archive("check", files_of(self.v["GPU_CHECK_FILES"]))
        self.kernels()
        self.library()
        if emulator:
            self.doubles()
        self.programs()

    def device_compiler(self, arch, include):
        if self.emulator:
            tls = "gnu2" if platform.machine() == "x86_64" else "desc"
            return [self.cxx, *self.v["EMULATED_FLAGS"], "-mtls-dialect=" + tls, *include]
        # The makefile's name of this architecture, such as 90a.
        word = next((w for w in self.v["CUDA_ARCH"] if w.rstrip("af") == arch), arch)
        host = os.environ.get("CUDA_HOST_CXX")
        return [os.path.join(self.home or "", "bin", "nvcc"), "-I.", "-D_GNU_SOURCE", *self.cuda, *self.v["NVCC_FLAGS"],
                f"-gencode=arch=compute_{word},code=sm_{word}", *(["-ccbin", host] if host else []), *self.v["NVCC_HOST"]]

    def object(self, out, source, flags, compiler=None):
        self.objects[out] = (source, [*(compiler or [self.cc, *CFLAGS]), *flags])
        return out

    def host(self, source):
        """An object for the host. libcomm's loops over bytes get -O3."""
        flags = ["-O3"] if source.startswith("libcomm/") else []
        return self.object(f"obj/{source}.o", source, flags)

    def archive(self, name, sources):
        self.archives[name] = [self.host(s) for s in sources]

    def kernels(self):
        """kernels.a, by the rules of kernels/kernels.mk."""
        isas = self.v.get("cpu_isas_" + platform.machine(), ["base"])
        ops = self.v["CPU_OP_FLAGS"]
        flags = {isa: self.v.get("cpu_isa_" + isa, []) for isa in ["base", *isas]}
        members = [self.host(s) for s in files_of(["kernels/*.c", "kernels/reference/*.c"])]
        members += [self.object(f"obj/reference64-{os.path.basename(s)}.o", s, ["-DREFERENCE64"]) for s in files_of(["kernels/reference/*.c"])]
        for source in files_of(["kernels/cpu/*.c"]):
            name = os.path.basename(source)
            if name[:-2] in self.v["cpu_once"]:
                members.append(self.object(f"obj/cpu-{name}.o", source, [f"-DCPU_HAVE_{i}" for i in isas]))
            else:
                members += [self.object(f"obj/cpu-{i}-{name}.o", source, [*ops, *flags[i], f"-DCPU_ISA={i}"]) for i in isas]
        for source in files_of(["kernels/low_precision/*.c"]):
            name = os.path.basename(source)
            if name == "convert.c":
                members += [self.object(f"obj/low_precision-{i}-{name}.o", source, [*ops, *flags[i], f"-DLOW_PRECISION_ISA={i}"]) for i in flags]
            else:
                members.append(self.object(f"obj/low_precision-{name}.o", source, ["-fopenmp"]))
        self.archives["kernels"] = members

    def cuda_object(self, source, *flags):
        if source.endswith(".cu"):
            return self.object(f"obj/cuda/{source}.o", source, [], self.device)
        return self.object(f"obj/cuda/{source}.o", source, [*self.cuda, "-fPIC", "-fvisibility=hidden", *flags])

    def library(self):
        sources = files_of(self.v["CUDA_FILES"] + (self.v["CUDA_NCCL_FILES"] if self.nccl else []))
        objects = [self.cuda_object(s) for s in sources]
        if self.emulator:
            return self.shared(SO, objects, ["libcudart-double.so"])
        static = [p for p in (os.path.join(self.home or "", lib, "libcudart_static.a") for lib in ("lib64", "lib")) if os.path.exists(p)]
        self.targets[SO] = (objects, [], ["-shared", "-Wl,-z,defs", "-Wl,--exclude-libs,ALL"], [*static[:1], "-ldl", "-lrt", "-lm"], [])

    def shared(self, name, objects, needs):
        self.targets[name] = (objects, [], ["-shared", "-Wl,-z,defs", "-Wl,-soname," + name, *DOUBLE_LINK], ["-ldl", "-lm"], needs)

    def doubles(self):
        version = re.search(r"#define CUDART_VERSION +(\d+)", open(os.path.join(self.home, "include", "cuda_runtime_api.h")).read())
        blaslt = f"libcublasLt.so.{int(version[1]) // 1000}"
        visible = "-fvisibility=default"
        self.shared("libcudart-double.so", [self.cuda_object(s, visible, "-O3" if "/emulator/" in s else "-O2") for s in
                                            files_of(self.v["DOUBLE_CUDART_FILES"])], [])
        self.shared(blaslt, [self.cuda_object(s, visible, "-O3") for s in files_of(self.v["DOUBLE_BLASLT_FILES"])], ["libcudart-double.so"])
        self.stand = ["libcudart-double.so", blaslt]
        if self.cudnn:
            self.shared("libcudnn.so.9", [self.cuda_object(s, visible, "-O3") for s in files_of(self.v["DOUBLE_CUDNN_FILES"])], ["libcudart-double.so"])
            self.stand.append("libcudnn.so.9")
        if self.nccl:
            self.shared("libnccl.so.2", [self.cuda_object(s, visible) for s in files_of(self.v["DOUBLE_NCCL_FILES"])], ["libcudart-double.so"])

    def programs(self):
        more = DOUBLE_LINK if self.emulator else []
        stand = self.stand if self.emulator else []
        for name in self.v["GPU_PARTS"]:
            self.targets[name] = ([self.host(f"tests/gpu/{name}.c")], ["check", "kernels"], more, KERNEL_LIBS, stand)
        sources = files_of(self.v["GPU_COMM_FILES"])
        main = "tests/gpu/conform.c"
        objects = [self.object("obj/comm-main.o", main, self.cuda)] + [self.host(s) for s in sources if s != main]
        if self.emulator:
            stand = stand + (["libnccl.so.2"] if self.nccl else [])
            static = []
        else:
            static = self.targets[SO][3][:-3]
        self.targets["comm"] = (objects, [], more, [*static, "-ldl", "-lrt", "-lm"], stand)

    def needs(self, names):
        """The targets, each after those that it needs."""
        order = []
        for name in names:
            for n in [*self.targets[name][4], name]:
                order += [] if n in order else [n]
        return order

    def members(self, name):
        objects, archives = self.targets[name][:2]
        return objects + [o for a in archives for o in self.archives[a]]


class Builder:
    """Builds targets of the rules into `out`, with its own threads. Only one build runs at a time."""

    def __init__(self, out, arch=None, emulator=False):
        self.out = os.path.abspath(out)
        self.rules = Rules(arch, emulator)
        self.lock = threading.Lock()
        self.hashes = {}
        self.compiled = 0
        self.memory = os.path.join(self.out, "build.json")
        try:
            known = json.load(open(self.memory))
        except (OSError, ValueError):
            known = {}
        self.known = known if isinstance(known, dict) else {}

    def hash_of(self, path):
        """The hash of a file's contents; "" if there is no such file."""
        if path not in self.hashes:
            try:
                self.hashes[path] = hashlib.sha256(open(os.path.join(TOP, path), "rb").read()).hexdigest()
            except OSError:
                self.hashes[path] = ""
        return self.hashes[path]

    def key(self, command, paths):
        return hashlib.sha256("\n".join(portable(command) + [self.hash_of(p) for p in paths]).encode()).hexdigest()

    def object_key(self, name):
        """None if its inputs are unknown, or have changed."""
        source, command = self.rules.objects[name]
        was = self.known.get(name)
        if not was or self.key(command, [source, *was["made_from"]]) != was["key"]:
            return None
        return was["key"]

    def target_key(self, name):
        keys = [self.object_key(o) for o in self.rules.members(name)]
        if None in keys:
            return None
        _, _, flags, libs, needs = self.rules.targets[name]
        return hashlib.sha256("\n".join([*flags, *portable(libs), *keys, *(self.target_key(n) or "" for n in needs)]).encode()).hexdigest()

    def current(self, name):
        path = os.path.join(self.out, name)
        key = self.target_key(name)
        return bool(key and os.path.exists(path) and self.known.get("target " + name) == key and starts(path))

    def remember(self):
        part = self.memory + ".part"
        with open(part, "w") as f:
            json.dump(self.known, f)
        os.replace(part, self.memory)

    # --- One output -------------------------------------------------------------------------------

    def run(self, command, log):
        """Whether the command succeeds within the time."""
        left = self.until - time.monotonic()
        if left <= 0:
            return False
        process = programs.start(command, cwd=TOP, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        try:
            said = process.communicate(timeout=left)[0]
        except subprocess.TimeoutExpired:
            said = programs.LATE + "\n"
            process.returncode = None
        programs.end_group(process)
        with self.lock:
            log.write(" ".join(command) + "\n" + said)
            log.flush()
        return process.returncode == 0

    def compile(self, name, log):
        """None, or what failed."""
        source, command = self.rules.objects[name]
        path = os.path.join(self.out, name)
        if os.path.exists(path) and self.object_key(name):
            return None
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self.known.pop(name, None)
        if os.path.exists(path):
            os.remove(path)
        try:
            done = self.run([*command, "-MMD", "-MF", path + ".d", "-c", source, "-o", path], log)
        except OSError as e:
            return f"{source}: {e}"
        if not done:
            return source
        text = open(path + ".d").read().replace("\\\n", " ").split(":", 1)[1]
        made_from = sorted({os.path.normpath(w) for w in text.split() if not w.startswith("/")} - {source})
        with self.lock:
            self.known[name] = {"key": self.key(command, [source, *made_from]), "made_from": made_from}
            self.compiled += 1
        return None

    def link(self, name, log):
        """None, or what failed."""
        objects, archives, flags, libs, needs = self.rules.targets[name]
        path = os.path.join(self.out, name)
        words = [self.rules.cc, *LINK, *flags, "-o", path + ".part", *(os.path.join(self.out, o) for o in objects)]
        for a in archives:
            words.append(os.path.join(self.out, f"lib{a}.a"))
        if archives:
            words[-len(archives):] = ["-Wl,--start-group", *words[-len(archives):], "-Wl,--end-group"]
        words += [os.path.join(self.out, n) for n in needs]
        if not self.run(words + libs, log):
            return f"{name} does not link"
        os.replace(path + ".part", path)
        key = self.target_key(name)
        if key:
            self.known["target " + name] = key
        return None

    def pack(self, name, log):
        path = os.path.join(self.out, f"lib{name}.a")
        there = [p for p in (os.path.join(self.out, o) for o in self.rules.archives[name]) if os.path.exists(p)]
        if os.path.exists(path):
            os.remove(path)
        return self.run(["ar", "rcsD", path, *there], log)

    # --- All ----------------------------------------------------------------------------------------

    def build(self, names, seconds=1e6, log="build.log", cores=None):
        """{name: None or why it could not be built}. Objects that take longest are compiled first."""
        self.until = time.monotonic() + seconds
        self.hashes = {}
        os.makedirs(self.out, exist_ok=True)
        wanted = [n for n in self.rules.needs(names) if not self.current(n)]
        objects = {o: None for n in wanted for o in self.rules.members(n)}
        cost = lambda o: (not self.rules.objects[o][0].endswith(".cu"), -os.path.getsize(os.path.join(TOP, self.rules.objects[o][0])))  # noqa: E731
        with open(os.path.join(self.out, log), "a") as out:
            for o in objects:
                if not os.path.exists(os.path.join(self.out, o)):
                    self.known.pop(o, None)
            with concurrent.futures.ThreadPoolExecutor(cores or len(os.sched_getaffinity(0))) as pool:
                ordered = sorted(objects, key=cost)
                failed = dict(zip(ordered, pool.map(lambda o: self.compile(o, out), ordered)))
            for a in {a for n in wanted for a in self.rules.targets[n][1]}:
                self.pack(a, out)
            why = {n: self.link_or_why(n, failed, out) for n in wanted}
        if wanted:
            self.remember()
        return {n: next((why[m] for m in self.rules.needs([n]) if why.get(m)), None) for n in names}

    def link_or_why(self, name, failed, log):
        bad = [failed[o] for o in self.rules.members(name) if failed.get(o)]
        said = self.link(name, log) if not any(failed.get(o) for o in self.rules.targets[name][0]) else name
        if said and time.monotonic() > self.until:
            return f"{sum(map(bool, failed.values()))} of {len(failed)} files are not compiled: {programs.LATE}; the next call continues"
        return said and (f"{', '.join(bad[:3])} does not compile; build.log has why" if bad else said)


def portable(command):
    """The command without absolute paths: other machines have CUDA elsewhere."""
    return [w for w in command if not w.startswith("/") and w != "-isystem"]


def starts(path):
    """Whether this machine has the libraries that a program, which may come from another machine, was linked with."""
    if path.endswith(".so"):
        return True
    try:
        done = subprocess.run([path], env=dict(os.environ, LD_TRACE_LOADED_OBJECTS="1", LD_BIND_NOW="1"), capture_output=True, text=True, timeout=20)
        return done.returncode == 0 and "not found" not in done.stdout + done.stderr
    except (OSError, subprocess.TimeoutExpired):
        return False


def main():
    a = argparse.ArgumentParser(usage=__doc__)
    a.add_argument("out")
    a.add_argument("--arch", default="90")
    a.add_argument("--emulator", action="store_true")
    a.add_argument("--list", action="store_true")
    a.add_argument("--seconds", type=float, default=1e6)
    a.add_argument("targets", nargs="*")
    args = a.parse_intermixed_args()
    b = Builder(args.out, args.arch, args.emulator)
    names = args.targets or [n for n in [*b.rules.v["GPU_PARTS"], "comm", SO] if n in b.rules.targets]
    if args.list:
        for o in sorted({o for n in b.rules.needs(names) for o in b.rules.members(n)}):
            print(b.rules.objects[o][0], o)
        return 0
    since = time.monotonic()
    why = b.build(names, args.seconds)
    for name, reason in why.items():
        print(f"{'FAILED' if reason else 'ok':6} {name}{': ' if reason else ''}{reason or ''}")
    print(f"{b.compiled} files compiled in {time.monotonic() - since:.1f} s; {os.path.join(b.out, 'build.log')}")
    return 1 if any(why.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
