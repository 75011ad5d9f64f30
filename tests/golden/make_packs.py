#!/usr/bin/env python3
"""Writes tests/golden/packs: files of text and tokens of the kinds that people have, made by the
programs and libraries that usually make them. Also writes documents.json: what the own reader of
each kind returns. `muster data pack` must give the same, or refuse the file by name.

usage: pip install numpy pyarrow zstandard && tests/golden/make_packs.py [DIR]
"""
import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import sys
import tarfile
import zipfile

import numpy
import pyarrow
import pyarrow.feather
import pyarrow.parquet
import zstandard

OUT = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "packs")
TEXTS = ["Hello, world!", "two\nlines\n", "naïve café 中文 😀", "", "quotes \" and \\ and \u0000 and \t", "the last one"]
IDS = [15496, 11, 995, 50256, 1, 2, 50256, 65535, 0]


def path(name):
    return os.path.join(OUT, name)


def write(name, data):
    with open(path(name), "wb") as f:
        f.write(data)


def lines(texts, **more):
    return "".join(json.dumps({"id": i, "big": 10**30, **more, "text": t, "meta": {"body": t.upper()}}) + "\n" for i, t in enumerate(texts)).encode()


def make_texts():
    half = lines(TEXTS[:3]), lines(TEXTS[3:])
    gz = [gzip.compress(h, mtime=0) for h in half]
    zst = [zstandard.ZstdCompressor(write_checksum=True).compress(h) for h in half]
    skippable = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"skip"
    write("lines.jsonl", half[0] + b"\n \r\n" + half[1][:-1])           # blank lines; no newline at the end
    write("escaped.ndjson", b"\xef\xbb\xbf" + lines(TEXTS).decode().replace("\n", "\r\n").encode())
    write("lines.json", lines(TEXTS))
    write("lines.json.gz", gz[0] + gz[1] + bytes(512))                   # two members, a tape's padding
    write("lines.jsonl.zst", skippable + zst[0] + skippable + zst[1])    # two frames, and skipped ones
    write("text.txt.gz", gzip.compress("\n".join(TEXTS).encode(), mtime=0))
    write("text.zst", zstandard.ZstdCompressor().compress("\n".join(TEXTS).encode()))


def make_refused():
    table = pyarrow.table({"text": TEXTS, "id": list(range(len(TEXTS)))})
    pyarrow.parquet.write_table(table, path("table.parquet"))
    with pyarrow.ipc.new_file(path("file.arrow"), table.schema) as w:
        w.write_table(table)
    with pyarrow.ipc.new_stream(path("stream.arrow"), table.schema) as w:  # as Hugging Face's datasets stores it
        w.write_table(table)
    pyarrow.feather.write_feather(table, path("table.feather"), compression="uncompressed")
    numpy.save(path("ids.npy"), numpy.array(IDS))
    numpy.savez(path("ids.npz"), ids=numpy.array(IDS))
    write("text.xz", lzma.compress(b"text"))
    write("text.bz2", bz2.compress(b"text"))
    write("text.gz.gz", gzip.compress(gzip.compress(b"text", mtime=0), mtime=0))
    write("text.utf16", "text".encode("utf-16"))
    write("list.json", json.dumps([{"text": t} for t in TEXTS]).encode())
    write("object.pkl", pickle.dumps(TEXTS, protocol=4))
    with zipfile.ZipFile(path("text.zip"), "w") as z:
        z.writestr(zipfile.ZipInfo("text.txt"), "text")
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w", format=tarfile.USTAR_FORMAT) as t:
        info = tarfile.TarInfo("text.txt")
        info.size = 4
        t.addfile(info, io.BytesIO(b"text"))
    write("text.tar.gz", gzip.compress(tar.getvalue(), mtime=0))


def make_ids():
    write("train.bin", numpy.array(IDS, dtype="<u2").tobytes())
    write("train.u32", numpy.array(IDS, dtype="<u4").tobytes())
    write("train.i64", numpy.array(IDS, dtype="<i8").tobytes())


def read_lines(name, field="text"):
    """Reads lines as Python's own readers do."""
    data = open(path(name), "rb").read()
    if name.endswith(".gz"):
        data = gzip.decompress(data)
    if name.endswith(".zst"):
        data = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data), read_across_frames=True).read()
    if ".json" not in name and ".ndjson" not in name:
        return [data.decode()]
    objects = [json.loads(line) for line in data.decode("utf-8-sig").splitlines() if line.strip()]
    for key in field.split("."):
        objects = [o[key] for o in objects]
    return objects


def main():
    os.makedirs(OUT, exist_ok=True)
    make_texts()
    make_refused()
    make_ids()
    texts = {n: read_lines(n) for n in ("lines.jsonl", "escaped.ndjson", "lines.json", "lines.json.gz", "lines.jsonl.zst", "text.txt.gz", "text.zst")}
    ids = {n: numpy.fromfile(path(n), dtype=d).tolist() for n, d in (("train.bin", "<u2"), ("train.u32", "<u4"), ("train.i64", "<i8"))}
    with open(path("documents.json"), "w") as f:
        json.dump({"texts": texts, "bodies": read_lines("lines.jsonl", "meta.body"), "ids": ids}, f, separators=(",", ":"))
        f.write("\n")


main()
