"""What it costs to keep the names of hashed features: the same ingest with and without, in turn.

    python bench/names.py [FILE] [--runs 5] [--megabytes 24]

The text is that of bench/hashing.py. One JSON line per setting: CPU seconds of the ingest (median; the
libraries are imported already, the kernels compiled), their ratio, and the bytes of the table of names.
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import pyarrow.parquet as pq
from hashing import python_sources, read, take

from bigmc import api

SETTINGS = [("word", (1, 1)), ("word", (1, 2)), ("char_wb", (1, 3))]


def ingest(source: Path, to: Path, analyzer: str, ngrams: tuple[int, int], names: bool) -> float:
    """Run one ingest anew; CPU seconds of all threads."""
    shutil.rmtree(to, ignore_errors=True)
    start = time.process_time()
    api.ingest(source, to, text="text", label="label", analyzer=analyzer, ngrams=ngrams, names=names)
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--megabytes", type=float, default=24)
    given = parser.parse_args()
    texts = take(read(given.file) if given.file else filter(None, python_sources()), given.megabytes * 1e6)
    with tempfile.TemporaryDirectory() as folder:
        source, to = Path(folder) / "rows.csv", Path(folder) / "rows.bigmc"
        with source.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["text", "label"])
            writer.writerows((text.replace("\0", ""), k % 7) for k, text in enumerate(texts))
        for analyzer, ngrams in SETTINGS:
            seconds: dict[bool, list[float]] = {True: [], False: []}
            ingest(source, to, analyzer, ngrams, True)  # the first may have to compile
            for _ in range(given.runs):
                for names in (False, True):
                    seconds[names].append(ingest(source, to, analyzer, ngrams, names))
            table = to / "names.parquet"
            without, with_names = statistics.median(seconds[False]), statistics.median(seconds[True])
            result = {
                "analyzer": analyzer, "ngrams": ngrams, "MB": round(source.stat().st_size / 1e6, 1),
                "cpu_without": round(without, 2), "cpu_with": round(with_names, 2),
                "ratio": round(with_names / without, 3), "names": pq.read_metadata(table).num_rows,
                "names_bytes": pq.read_table(table).nbytes, "file_bytes": table.stat().st_size,
            }  # fmt: skip
            print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
