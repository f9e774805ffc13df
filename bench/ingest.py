"""Speed of ``bigmc ingest`` by kind of source: megabytes and non-zeros per core-second.

    python bench/ingest.py --folder bench/data/ingest [--only words categories] [--threads 1 2]

Sources are made once: the Python sources and documentation beside it in pieces of 2,000 characters as CSV,
JSON lines and Parquet; 30 columns of categories of Zipf's law as Parquet; sparse rows as svmlight; five
columns of numbers as CSV.
Each ingest is a process of its own; user and system time are the kernel's, imports included. Kernels are
compiled by an ingest of the first rows before, which is not counted: a machine does that once.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))  # bigmc need not be installed

from bigmc.store.files.layout import read_manifest  # noqa: E402

PIECE = 2000
N_CLASSES = 20
N_CATEGORIES = 30


@dataclass(frozen=True)
class Source:
    """A kind of source: how it is made for a size in bytes, its file's name and the options of the ingest."""

    make: Callable[[Path, int], None]
    file: str
    options: tuple[str, ...]


def pieces(n_bytes: int) -> Iterator[tuple[str, int]]:
    """Yield pieces of text of the files beside the interpreter, and a class; all of them again at the end."""
    roots = (Path(sysconfig.get_path("stdlib")), Path(sysconfig.get_path("purelib")), Path("/usr/share/doc"))
    files = [
        p for root in roots for end in ("*.py", "*.rst", "*.md", "*.txt") for p in sorted(root.rglob(end))
    ]
    done = 0
    while True:
        for number, path in enumerate(files):
            text = path.read_text(encoding="utf8", errors="replace") if path.is_file() else ""
            for start in range(0, len(text), PIECE):
                piece = text[start : start + PIECE].replace("\0", " ")
                done += len(piece)
                yield piece, number % N_CLASSES
                if done >= n_bytes:
                    return


def make_text(path: Path, n_bytes: int) -> None:
    """Write pieces of text as CSV."""
    with path.open("w", encoding="utf8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        for piece, label in pieces(n_bytes):
            writer.writerow([piece, f"class {label}"])


def make_jsonl(path: Path, n_bytes: int) -> None:
    """Write pieces of text as JSON lines."""
    with path.open("w", encoding="utf8") as file:
        for piece, label in pieces(n_bytes):
            file.write(json.dumps({"text": piece, "label": f"class {label}"}, ensure_ascii=False) + "\n")


def make_text_parquet(path: Path, n_bytes: int) -> None:
    """Write pieces of text as Parquet."""
    texts, labels = zip(*pieces(n_bytes), strict=True)
    pq.write_table(pa.table({"text": texts, "label": [f"class {label}" for label in labels]}), path)


def make_categories(path: Path, n_bytes: int) -> None:
    """Write columns of categories of Zipf's law; a value counts as eight bytes."""
    rng = np.random.default_rng(0)
    n_rows = n_bytes // (8 * N_CATEGORIES)
    with pq.ParquetWriter(path, _categories(rng, 1).schema) as writer:
        for start in range(0, n_rows, 100_000):
            writer.write_table(_categories(rng, min(100_000, n_rows - start)))


def _categories(rng: np.random.Generator, n_rows: int) -> pa.Table:
    columns = {}
    for number in range(N_CATEGORIES):
        values = np.minimum(rng.zipf(1.3, n_rows), 50_000)
        columns[f"c{number:02d}"] = pa.array([f"v{value}" for value in values.tolist()])
    return pa.table({**columns, "label": rng.integers(0, 2, n_rows)})


def make_svmlight(path: Path, n_bytes: int) -> None:
    """Write rows of about 50 features out of 100,000, with small counts and fractions."""
    rng = np.random.default_rng(1)
    with path.open("w", encoding="utf8") as file:
        while file.tell() < n_bytes:
            features = np.unique(np.minimum(rng.zipf(1.2, 50), 100_000))
            values = rng.integers(1, 100, len(features)) / 4
            entries = " ".join(f"{j}:{v:g}" for j, v in zip(features.tolist(), values.tolist(), strict=True))
            file.write(f"{rng.integers(N_CLASSES)} {entries}\n")


def make_dense(path: Path, n_bytes: int) -> None:
    """Write five columns of numbers with six digits."""
    rng = np.random.default_rng(2)
    with path.open("w", encoding="utf8") as file:
        file.write("a,b,c,d,e,label\n")
        while file.tell() < n_bytes:
            block = rng.normal(size=(10_000, 5))
            labels = rng.integers(N_CLASSES, size=10_000).tolist()
            rows = (",".join(f"{x:.6g}" for x in row) for row in block.tolist())
            file.writelines(f"{row},{label}\n" for row, label in zip(rows, labels, strict=True))


TEXT = ("--text", "text", "--label", "label")
CATEGORIES = [option for k in range(N_CATEGORIES) for option in ("--categorical", f"c{k:02d}")]
SOURCES = {
    "words": Source(make_text, "text.csv", (*TEXT, "--ngrams", "1-1")),
    "jsonl": Source(make_jsonl, "text.jsonl", (*TEXT, "--ngrams", "1-1")),
    "parquet": Source(make_text_parquet, "text.parquet", (*TEXT, "--ngrams", "1-1")),
    "pairs": Source(make_text, "text.csv", (*TEXT, "--ngrams", "1-2")),
    "characters": Source(make_text, "text.csv", (*TEXT, "--analyzer", "char_wb", "--ngrams", "1-3")),
    "categories": Source(make_categories, "categories.parquet", (*CATEGORIES, "--label", "label")),
    "svmlight": Source(make_svmlight, "rows.svm", ()),
    "dense": Source(
        make_dense, "dense.csv", (*(o for c in "abcde" for o in ("--dense", c)), "--label", "label")
    ),
}


@dataclass(frozen=True)
class Figures:
    """What an ingest took: processor time, time, resident memory, non-zeros and bytes of the store."""

    cpu: float
    wall: float
    peak: int
    nnz: int
    stored: int


def ingest(source: Path, to: Path, options: tuple[str, ...], memory: str, n_threads: int) -> Figures:
    """Run ``bigmc ingest`` in a process of its own."""
    shutil.rmtree(to, ignore_errors=True)
    given = ("--to", str(to), "--memory", memory, "--threads", str(n_threads), "--quiet")
    begun = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "bigmc", "ingest", str(source), *given, *options], stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - begun
    if status:
        raise SystemExit(f"ingest of {source} failed")
    shards = read_manifest(to).shards
    stored, nnz = sum(shard.bytes for shard in shards), sum(shard.nnz for shard in shards)
    return Figures(usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss << 10, nnz, stored)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--folder", type=Path, default=HERE / "data" / "ingest")
    parser.add_argument("--only", nargs="+", choices=SOURCES, default=list(SOURCES))
    parser.add_argument("--threads", nargs="+", type=int, default=[1])
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--memory", default="1GB")
    parser.add_argument("--repeat", type=int, default=1, help="runs, of which the middle one is told")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    print("source      threads    MB  M nnz  CPU s  wall s  MB/CPU s  M nnz/CPU s  bytes/nnz  peak MB")
    for name in args.only:
        source = SOURCES[name]
        path, first = (args.folder / f"{prefix}{source.file}" for prefix in ("", "first-"))
        for file, n_bytes in ((path, args.megabytes * 10**6), (first, 500_000)):
            if not file.exists():
                source.make(file, n_bytes)
        to = args.folder / f"{name}.bigmc"
        for n_threads in args.threads:
            ingest(first, to, source.options, args.memory, n_threads)
            runs = [ingest(path, to, source.options, args.memory, n_threads) for _ in range(args.repeat)]
            middle = sorted(runs, key=lambda run: run.cpu)[len(runs) // 2]
            size, nnz = path.stat().st_size / 1e6, middle.nnz / 1e6
            row = f"{name:12}{n_threads:6}{size:7.0f}{nnz:7.1f}{middle.cpu:7.1f}{middle.wall:8.1f}"
            row += f"{size / middle.cpu:10.1f}{nnz / middle.cpu:13.2f}{middle.stored / middle.nnz:11.2f}"
            print(f"{row}{middle.peak / 1e6:9.0f}", flush=True)
        shutil.rmtree(to)


if __name__ == "__main__":
    main()
