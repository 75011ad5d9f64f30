"""The report of make check-gpu as Markdown, from what tests/gpu/report found."""

import statistics

GIB = 2.0**30

# The rows of kernel_rows.c for attention, as arguments of peer.py's command: batch, seq, heads, kv heads, dim.
ATTENTION = [
    ("gpt2-50304", "12 heads of 64", "32 1024 12 12 64"),
    ("llama-1b", "32 heads of 64 over 8", "8 2048 32 8 64"),
    ("llama-1b", "16 heads of 128 over 4", "8 2048 16 4 128"),
]


def table(head, rows):
    """A table. All columns except the first are right-aligned."""
    out = ["| " + " | ".join(head) + " |", "| --- |" + " ---: |" * (len(head) - 1)]
    return out + ["| " + " | ".join(str(x) for x in row) + " |" for row in rows] + [""]


def step_seconds(side):
    """The median over turns of a turn's median step, or None."""
    turns = [statistics.median(t["seconds"]) for t in side["turns"] if "error" not in t]
    return statistics.median(turns) if turns else None


def spread(side):
    turns = sorted(statistics.median(t["seconds"]) for t in side["turns"] if "error" not in t)
    return f"{1e3 * turns[0]:.2f} to {1e3 * turns[-1]:.2f}"


def limit_of(r):
    return max((r.get("limits", {}).get(side, {}).get("flops", 0) for side in ("muster", "PyTorch")), default=0)


def cell(text, most=600):
    return str(text).replace("|", "/").replace("\n", " ")[:most]


def machine(r):
    m = r["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in m.get("versions", {}).items())
    libraries = ", ".join(f"{name} {version}" for name, version in sorted(m.get("libraries", {}).items()))
    toy = any(p.get("toy") for p in r["parts"])
    return [
        f"- date {m.get('date')}, commit {m.get('commit')}{' with local changes' if m.get('changed') else ''}, sources {m.get('sources')}",
        f"- {m.get('gpus', 0)} × {m.get('gpu', 'no GPU')}, {m.get('memory', '')}, driver {m.get('driver', 'none')}, {m.get('cores')} cores",
        f"- versions: {versions or 'unknown'}; nvcc: {m.get('nvcc')}",
        f"- packages of python3: {libraries or 'none'}",
        f"- command: `make check-gpu` or `tests/gpu/report`{' (toy sizes: no figure below is one)' if toy else ''}",
        "",
    ]


def parts(r):
    """All parts of the table, run or not, marked if they ran on other sources than the last one."""
    rows = []
    for p in r["parts"]:
        other = p.get("sources") and p["sources"] != r["machine"].get("sources")
        rows.append((p["part"], p.get("passed", ""), p.get("failed", ""), p.get("skipped", ""), p.get("seconds", ""), p.get("limit", ""),
                     cell(p["state"]) + (f", of sources {p['sources']}" if other else ""), p.get("date", "")))
    return ["## Parts", ""] + table(("part", "passed", "failed", "skipped", "s", "limit, s", "state", "when"), rows)


def checks(r):
    rows = [(c["name"], c["passed"], c["failed"], c["skipped"], r["each"].get(c["name"], ""), cell(c["why"])) for c in r["checks"]]
    return ["## Checks", ""] + table(("what", "passed", "failed", "skipped", "s", "why"), rows) if rows else []


def limits(r):
    found = r.get("limits", {})
    if not found:
        return []
    rows = [(f"bf16 product of {found['gemm']}², {side}", f"{found[side]['flops'] / 1e12:.1f} TFLOP/s") for side in ("muster", "PyTorch")
            if "flops" in found.get(side, {})]
    if "bytes_s" in found.get("copy", {}):
        rows.append(("copy on the device, read and written", f"{found['copy']['bytes_s'] / 1e12:.3f} TB/s"))
    return ["## Limits measured in this run", ""] + table(("what", "rate"), rows)


def steps(r):
    out = ["## A step", "",
           "The sides took turns, five rounds; those with sums of attention in any order (`job.deterministic = any-order`) and in 8 bits came after them. A step ends when the device has finished; muster's own, as in the trainer, "
           "when its numbers are read, which is during the next step. Step: the median over turns of a turn's median. "
           "Model FLOPs per token: 6 × the weights of matrix products + causal attention counted as half (`plan/spec/model/model.h`), the same for every side. "
           "Limit: the faster of the two sides' matrix products above.", ""]
    for model, sides in sorted(r["step"].items()):
        per_token = sides.get("muster", {}).get("opened", {}).get("flops_token")
        best = min((s for name, side in sides.items() if name.startswith("PyTorch") and (s := step_seconds(side))), default=None)
        rows = []
        for name, side in sorted(sides.items()):
            s = step_seconds(side)
            if not s:
                rows.append((name, "", "", "", "", "", "", first_error(side)))
                continue
            tokens = side["opened"]["tokens"] / s
            flops = tokens * per_token if per_token else 0
            peak = max(t["peak_bytes"] for t in side["turns"] if "error" not in t)
            rows.append((name, f"{1e3 * s:.2f}", spread(side), f"{tokens:,.0f}", f"{flops / 1e12:.1f}",
                         f"{100 * flops / limit_of(r):.1f} %" if limit_of(r) else "", f"{best / s:.3f}" if best else "", f"{peak / GIB:.2f}"))
        out += [f"### {model}", ""] + table(("side", "step, ms", "turns, ms", "tokens/s", "model TFLOP/s", "of the limit", "× the faster PyTorch",
                                             "peak GiB"), rows)
    return out + notices(r) + choices(r) + chosen(r) if r["step"] else []


def notices(r):
    rows = [(model, name, text) for model, sides in sorted(r["step"].items()) for name, side in sorted(sides.items()) for text in side.get("notices", [])]
    return ["What muster's backend reported:", ""] + [f"- {model}, {name}: {cell(text)}" for model, name, text in rows] + [""] if rows else []


def choices(r):
    rows = [(model, c["key"], c["note"]) for model, sides in sorted(r["step"].items()) for c in sides.get("muster", {}).get("choices", [])]
    head = ["Algorithms that muster chose by measurement:", ""]
    return head + [f"- {model}, {cell(key)}: {cell(note)}" for model, key, note in rows] + [""] if rows else []


def names_of(chose):
    """The attention that PyTorch chose, as peer.py names it."""
    if not chose:
        return ""
    return cell(chose.get("error") or ", ".join(chose.get("ops", []) + [f"`{k}`" for k in chose.get("kernels", [])]) or "none that has a name", 400)


def chosen(r):
    rows = [(model, name, names_of(side.get("chose"))) for model, sides in sorted(r["step"].items()) for name, side in sorted(sides.items())
            if side.get("chose")]
    return ["Attention that PyTorch chose in its step:", ""] + [f"- {model}, {name}: {what}" for model, name, what in rows] + [""] if rows else []


def first_error(side):
    errors = [t["error"] for t in [side["opened"]] + side["turns"] if "error" in t]
    return cell(errors[0], 160) if errors else "no time was left"


def memory(r):
    rows = []
    for model, sides in sorted(r["step"].items()):
        mine = sides.get("muster", {})
        peaks = {name: max((t["peak_bytes"] for t in side["turns"] if "error" not in t), default=0) for name, side in sides.items()}
        if not peaks.get("muster") or "planned" not in mine["opened"]:
            continue
        p, had = mine["opened"]["planned"], peaks["muster"]
        others = ", ".join(f"{name[9:]} {peak / GIB:.2f}" for name, peak in sorted(peaks.items()) if name.startswith("PyTorch") and peak)
        parts = ", ".join(f"{k} {p[k] / GIB:.2f}" for k in ("params", "grads", "optimizer", "activations", "buffers"))
        rows.append((model, f"{p['total'] / GIB:.2f}", f"{had / GIB:.2f}", f"{100 * (p['total'] / had - 1):+.1f} %", others, parts))
    return ["## Memory, GiB", "", "The most that each side's allocator gave out, without CUDA's own memory.", ""] + table(
        ("model", "planned", "muster", "plan's error", "PyTorch", "planned parts"), rows) if rows else []


def beside(predicted, measured):
    """A prediction in milliseconds or microseconds is printed by its caller; this is its error."""
    return f"{100 * (predicted / measured - 1):+.1f} %" if predicted and measured else ""


def predictions(r):
    rows = []
    for model, sides in sorted(r["step"].items()):
        mine = sides.get("muster", {})
        found, measured = mine.get("predicted", {}), step_seconds(mine) if mine.get("turns") else None
        if "published_s" not in found or not measured:
            continue
        published, calibrated = found["published_s"], found.get("calibrated_s")
        rows.append((model, f"{1e3 * measured:.2f}", f"{1e3 * published:.2f}", beside(published, measured),
                     f"{1e3 * calibrated:.2f}" if calibrated else cell(mine.get("calibrated", {}).get("error", ""), 80), beside(calibrated, measured)))
    return ["## Predicted beside measured", "",
            "A step as the planner predicts it: by its published constants, and by a calibration of this device that was measured before the step.",
            ""] + table(("model", "measured, ms", "published, ms", "error", "calibrated, ms", "error"), rows) if rows else []


def kernels(r):
    limit, copy = limit_of(r), r.get("limits", {}).get("copy", {}).get("bytes_s", 0)
    rows = []
    for k in r["kernels"]:
        if "error" in k:
            rows.append((k["op"], k["model"], k["what"], "", "", "", cell(k["error"], 80), "", ""))
            continue
        by = max((k["bytes"] / copy if copy else 0, "copy"), (k["flops"] / limit if limit else 0, "products"))
        rows.append((k["op"], k["model"], k["what"], f"{1e6 * k['seconds']:.1f}", f"{k['bytes'] / 1e6:.1f}", f"{k['flops'] / 1e9:.1f}" if k["flops"] else "",
                     f"{100 * by[0] / k['seconds']:.0f} % of {by[1]}",
                     *(f"{1e6 * k[s]:.1f} ({beside(k[s], k['seconds'])})" if s in k else "" for s in ("published_s", "calibrated_s"))))
    reported = [f"- {k['op']}, {k['model']}, {k['what']}: {cell(text)}" for k in r["kernels"] for text in k.get("notices", [])]
    return ["## Kernels, bf16", "",
            "Bytes: inputs once, outputs once. Share: the larger of the bytes' time at the copy's rate and the FLOPs' time at the products' rate, divided "
            "by the measured time. Predicted: by the planner, from published constants and from a calibration in the same program.", ""] + table(
                ("op", "model", "what", "µs", "MB", "GFLOP", "share of its limit", "published, µs", "calibrated, µs"), rows) + (
                    ["What muster's backend reported:", ""] + reported + [""] if reported else []) if rows else []


def attention(r):
    mine = {(k["model"], k["op"], k["what"]): k for k in r["kernels"] if "error" not in k}
    rows = []
    for a in r["attention"]:
        for way, op in (("forward", "attention_fwd"), ("backward", "attention_bwd")):
            k, theirs = mine.get((a["model"], op, a["what"])), a.get(way + "_s")
            if k:
                both = [f"{1e6 * k[form]:.1f}" if k.get(form) else "" for form in ("own", "cudnn", "any_order")]
                rows.append((f"{a['what']}, {way}", f"{1e6 * k['seconds']:.1f}", *both, f"{k['flops'] / k['seconds'] / 1e12:.1f}",
                             f"{1e6 * theirs:.1f}" if theirs else a.get("error", "")[:80], f"{theirs / k['seconds']:.3f}" if theirs else ""))
    if not rows:
        return []
    out = ["## Attention beside scaled_dot_product_attention", ""] + table(("attention", "muster, µs", "own, µs", "cuDNN, µs", "cuDNN, any order, µs", "TFLOP/s", "PyTorch, µs", "× PyTorch"), rows)
    chose = [f"- PyTorch chose for {a['what']}: {names_of(a['chose'])}" for a in r["attention"] if a.get("chose")]
    chose += [f"- muster chose {k['chose']} for `{k['key']}`: {k['note']}" for k in r["kernels"] if k.get("chose")]
    return out + chose + ([""] if chose else [])


def markdown(r):
    head = [f"# {r['machine'].get('gpu', 'Toys')}, {r['machine'].get('date', '')}", ""]
    return "\n".join(head + machine(r) + parts(r) + checks(r) + limits(r) + steps(r) + predictions(r) + memory(r) + kernels(r) + attention(r)).rstrip() + "\n"
