"""The findings of make check-gpu on disk: one file per part, and the report and the archive of logs from all of them.

    DIR/parts/NAME.json    a part's findings; written again with each finding, so that they survive any end of the part
    DIR/logs/*.log         the programs' output
    DIR/report.json, .md   all parts, including those of earlier calls
    DIR/logs.tar.gz        the logs and the parts' files

The last three are written again after each part, and copied to `out` if one is given. Every file is replaced atomically, so that a
reader never sees half a file.
"""

import glob
import io
import json
import os
import shutil
import tarfile
import threading
import time

import tables

# Of a longer log, the archive contains the beginning and the end.
LOG_HEAD, LOG_TAIL = 1 << 18, 3 << 18


def replace(path, data):
    part = path + ".part"
    with open(part, "wb") as f:
        f.write(data)
    os.replace(part, path)


class Fragment:
    """The findings of one part. Several threads may add to them."""

    def __init__(self, path, part, limit, **more):
        self.path, self.lock, self.since = path, threading.RLock(), time.monotonic()
        self.found = {"part": part, "limit": limit, "state": "under way", "seconds": 0, "checks": [], "each": {}, "limits": {}, "step": {}, "kernels": [],
                      "attention": [], **more}
        self.save()

    def save(self):
        with self.lock:
            self.found["seconds"] = round(time.monotonic() - self.since, 1)
            replace(self.path, json.dumps(self.found, indent=1).encode())

    def count(self, name, passed, failed, skipped, why=""):
        with self.lock:
            self.found["checks"].append({"name": name, "passed": passed, "failed": failed, "skipped": skipped, "why": why[:600]})
            word = "FAILED" if failed else "ok" if passed else "skip"
            print(f"{word:6} {name}: {passed} passed, {failed} failed, {skipped} skipped{': ' if why else ''}{why[:600]}", flush=True)
            self.save()

    def skip(self, name, why):
        self.count(name, 0, 0, 1, why)

    def end(self, state):
        with self.lock:
            self.found["state"] = state
            self.save()


class Record:
    def __init__(self, folder, out, names):
        self.dir, self.out, self.names = folder, out, names
        self.logs = os.path.join(folder, "logs")
        for path in (self.logs, os.path.join(folder, "parts"), *([out] if out else [])):
            os.makedirs(path, exist_ok=True)

    def path(self, part):
        return os.path.join(self.dir, "parts", part + ".json")

    def begin(self, part, limit, **more):
        return Fragment(self.path(part), part, limit, **more)

    def fragments(self):
        """The fragments of all parts that ever began here, in the order of the table."""
        found = []
        for name in self.names:
            try:
                f = json.load(open(self.path(name)))
                found.append(f if isinstance(f, dict) and f.get("part") == name else {"part": name, "state": "its file belongs to another part"})
            except FileNotFoundError:
                pass
            except (OSError, ValueError) as e:
                found.append({"part": name, "state": f"its file cannot be read: {e}"})
        return found

    def merged(self):
        """All findings together, with the last description of the machine."""
        r = {"machine": {}, "parts": [], "checks": [], "each": {}, "limits": {}, "step": {}, "kernels": [], "attention": []}
        parts = self.fragments()
        for f in sorted(parts, key=lambda f: f.get("began", 0)):
            r["machine"].update(f.get("machine", {}))
        for f in parts:
            sums = {k: sum(c[k] for c in f.get("checks", [])) for k in ("passed", "failed", "skipped")}
            r["parts"].append({**{k: f.get(k) for k in ("part", "state", "seconds", "limit", "date", "toy")},
                               "sources": f.get("machine", {}).get("sources"), **sums})
            for key in ("checks", "kernels", "attention"):
                r[key] += f.get(key, [])
            for key in ("each", "step"):
                r[key].update(f.get(key, {}))
            if "flops" not in r["limits"].get("muster", {}):
                r["limits"] = f.get("limits") or r["limits"]
        r["parts"] += [{"part": n, "state": "not run"} for n in self.names if n not in [f["part"] for f in parts]]
        return r

    def archive(self):
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w:gz", compresslevel=6) as tar:
            for path in sorted(glob.glob(os.path.join(self.logs, "*")) + glob.glob(os.path.join(self.dir, "parts", "*.json"))):
                text = open(path, "rb").read()
                if len(text) > LOG_HEAD + LOG_TAIL:
                    text = text[:LOG_HEAD] + b"\n... left out here ...\n" + text[-LOG_TAIL:]
                info = tarfile.TarInfo(os.path.relpath(path, self.dir))
                info.size, info.mtime = len(text), int(os.path.getmtime(path))
                tar.addfile(info, io.BytesIO(text))
        return data.getvalue()

    def write(self):
        r = self.merged()
        replace(os.path.join(self.dir, "report.json"), json.dumps(r, indent=1).encode())
        try:
            text = tables.markdown(r)
        except (KeyError, TypeError, ValueError, AttributeError) as e:
            text = f"The tables cannot be made from a program's answers: {type(e).__name__}: {e}. report.json has the answers.\n"
            print("FAILED " + text, end="", flush=True)
        replace(os.path.join(self.dir, "report.md"), text.encode())
        replace(os.path.join(self.dir, "logs.tar.gz"), self.archive())
        for name in ("report.json", "report.md", "logs.tar.gz") if self.out else ():
            shutil.copyfile(os.path.join(self.dir, name), os.path.join(self.out, name))
        return r
