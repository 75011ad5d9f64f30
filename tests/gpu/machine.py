"""The report's description of the machine: the GPU, the driver, CUDA's libraries, the commit; and the folders of python3's libraries."""

import datetime
import glob
import hashlib
import importlib.metadata
import json
import os
import re
import sys

import build
from programs import lines_of

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))


def environment():
    """The programs' environment, with the folders of pip's libraries, which the loader does not search."""
    env = dict(os.environ)
    folders = [f for p in sys.path for f in sorted(glob.glob(os.path.join(p, "nvidia", "*", "lib")))]
    old = env.get("LD_LIBRARY_PATH")
    if folders:
        env["LD_LIBRARY_PATH"] = ":".join(folders + ([old] if old else []))
    return env


def gpu():
    """{} if nvidia-smi finds no GPU."""
    for program in ("nvidia-smi", "/usr/local/nvidia/bin/nvidia-smi"):
        rows = lines_of([program, "--query-gpu=name,driver_version,memory.total,compute_cap", "--format=csv,noheader"])
        if rows and rows[0].count(",") == 3:
            name, driver, memory, cc = (word.strip() for word in rows[0].split(","))
            return {"gpu": name, "gpus": len(rows), "driver": driver, "memory": memory, "arch": cc.replace(".", "")}
    return {}


def nvcc():
    home = build.cuda_home()
    lines = lines_of([os.path.join(home, "bin", "nvcc"), "--version"]) if home else []
    return next((line.strip() for line in lines if "release" in line), "none")


def packages():
    found = {}
    for d in importlib.metadata.distributions():
        name = (d.metadata["Name"] or "").lower()
        if re.match(r"(torch|triton|nvidia-(cublas|cudnn|nccl|cuda-runtime).*)$", name):
            found[name] = d.version
    return found


def sources():
    """A short hash of the tree's sources. It shows whether two parts ran on the same ones, also without git."""
    h = hashlib.sha256()
    for folder in ("base", "plan", "libcomm", "kernels", "agent", "tests"):
        for path in sorted(glob.glob(os.path.join(TOP, folder, "**", "*"), recursive=True)):
            if re.search(r"\.(c|h|cu|cuh|py|mk)$", path):
                h.update(os.path.relpath(path, TOP).encode() + b"\0" + open(path, "rb").read())
    return h.hexdigest()[:12]


def describe():
    commit = (lines_of(["git", "rev-parse", "HEAD"], cwd=TOP) or [os.environ.get("COMMIT", "unknown: no git here")])[0]
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"), "nvcc": nvcc(), "cores": len(os.sched_getaffinity(0)),
        "commit": commit, "changed": bool(lines_of(["git", "status", "--porcelain", "--untracked-files=no"], cwd=TOP)), "sources": sources(),
        "libraries": packages(), **gpu(),
    }


def versions(env, torch):
    lines = lines_of([sys.executable, os.path.join(HERE, "versions.py"), *(["--torch"] if torch else [])], env=env)
    try:
        return json.loads(lines[-1])
    except (IndexError, ValueError):
        return {}
