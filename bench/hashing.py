"""Feature hashing against scikit-learn: same text, one thread, runs in turn; a JSON line per set and setting.

    python bench/hashing.py [FILE...] [--runs 5] [--megabytes 8] [--names]

Without files the text is the Python sources installed beside bigmc: their paragraphs, and those with letters
beyond ASCII. A FILE is a .json list of strings, a gettext .po file or a folder of them, else one document per
line.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import sysconfig
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from sklearn.feature_extraction.text import HashingVectorizer

from bigmc.ingestion.hashing.feature_names import NameCounter
from bigmc.ingestion.hashing.hasher import TextHasher

SETTINGS = [("word", (1, 1)), ("word", (1, 2)), ("char_wb", (1, 3)), ("char", (2, 5))]


def python_sources() -> Iterator[str]:
    roots = [sysconfig.get_path("purelib"), sysconfig.get_path("stdlib")]
    for root in roots:
        for path in sorted(Path(root).rglob("*.py")):
            yield from path.read_text("utf-8", errors="replace").split("\n\n")


def po_strings(path: Path) -> Iterator[str]:
    """Translations in a gettext file, without the header."""
    quoted = r'"(?:[^"\\]|\\.)*"'
    for match in re.finditer(rf"^msgstr(?:\[\d\])? ({quoted}(?:\n{quoted})*)", path.read_text("utf-8"), re.M):
        text = "".join(json.loads(line) for line in match[1].split("\n"))
        if text and "Content-Type:" not in text:
            yield text


def read(path: Path) -> list[str]:
    if path.is_dir():
        return [text for po in sorted(path.rglob("*.po")) for text in po_strings(po)]
    if path.suffix == ".po":
        return list(po_strings(path))
    if path.suffix == ".json":
        return list(map(str, json.loads(path.read_text("utf-8"))))
    return path.read_text("utf-8").splitlines()


def take(texts: Iterable[str], n_bytes: float) -> list[str]:
    taken: list[str] = []
    for text in texts:
        n_bytes -= len(text.encode())
        if n_bytes < 0:
            break
        taken.append(text)
    return taken


def seconds(function, argument) -> float:
    """CPU time of this thread, so that a busy machine does not blur the ratio."""
    start = time.thread_time()
    function(argument)
    return time.thread_time() - start


def compare(name: str, texts: list[str], runs: int) -> None:
    array = pa.array(texts)
    for analyzer, ngrams in SETTINGS:
        # scikit-learn would take minutes over what it makes of characters.
        n = len(texts) if analyzer == "word" else max(len(texts) // 8, 1)
        part, documents = array[:n], texts[:n]
        megabytes = sum(len(t.encode()) for t in documents) / 1e6
        hasher = TextHasher(analyzer, ngrams, 18)
        theirs = HashingVectorizer(n_features=2**18, norm=None, analyzer=analyzer, ngram_range=ngrams)
        rows, expected = hasher.transform(part), theirs.transform(documents)
        equal = all(
            np.array_equal(a, b)
            for a, b in zip(rows[:3], (expected.indptr, expected.indices, expected.data), strict=True)
        )
        ours_s, theirs_s = [], []
        for _ in range(runs):
            ours_s.append(seconds(hasher.transform, part))
            theirs_s.append(seconds(theirs.transform, documents))
        ours, sklearn = statistics.median(ours_s), statistics.median(theirs_s)
        result = {
            "set": name, "analyzer": analyzer, "ngrams": ngrams, "documents": n, "MB": round(megabytes, 2),
            "ascii": round(np.mean([t.isascii() for t in documents]), 3),
            "nnz_per_row": round(len(rows.data) / n, 1),
            "ours_MB_s": round(megabytes / ours, 1), "sklearn_MB_s": round(megabytes / sklearn, 2),
            "ratio": round(sklearn / ours, 1), "equal": equal,
        }  # fmt: skip
        print(json.dumps(result), flush=True)


def cost_of_names(name: str, texts: list[str], runs: int) -> None:
    array = pa.array(texts)
    for analyzer, ngrams in SETTINGS:
        hasher = TextHasher(analyzer, ngrams, 18)
        hashing, counting = [], []
        for _ in range(runs + 1):
            counter = NameCounter(hasher)
            hashing.append(seconds(hasher.transform, array))
            counting.append(seconds(counter.update, array))
        a, b = statistics.median(hashing[1:]), statistics.median(counting[1:])
        result = {
            "set": name, "analyzer": analyzer, "ngrams": ngrams, "MB": round(array.nbytes / 1e6, 1),
            "hashing_s": round(a, 3), "names_s": round(b, 3),
            "table_s": round(seconds(NameCounter.table, counter), 3),
            "names_per_hashing": round(b / a, 3), "names_nbytes": counter.nbytes,
        }  # fmt: skip
        print(json.dumps(result), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--megabytes", type=float, default=8)
    parser.add_argument("--names", action="store_true", help="measure what counting names costs instead")
    arguments = parser.parse_args()
    sets = {str(path): read(path) for path in arguments.files}
    if not sets:
        paragraphs = [text for text in python_sources() if text]
        sets = {"python": paragraphs, "python non-ascii": [t for t in paragraphs if not t.isascii()]}
    for name, texts in sets.items():
        texts = take(texts, arguments.megabytes * 1e6)
        if not texts:
            sys.exit(f"{name}: no texts")
        (cost_of_names if arguments.names else compare)(name, texts, arguments.runs)


if __name__ == "__main__":
    main()
