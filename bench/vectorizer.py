"""bigmc.HashingVectorizer beside scikit-learn's: the same matrix from the same list of texts, one thread.

    python bench/vectorizer.py FILE.parquet... [--texts 10000] [--turns 5]

The files have a column called text, of which the first rows are taken. Both take turns of three calls,
and the medians of the processor time of a call count, the CSR matrix and its norms included. One JSON line a
file and a setting.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from sklearn.feature_extraction.text import HashingVectorizer

import bigmc

SETTINGS = (("word", (1, 1)), ("word", (1, 2)), ("char_wb", (1, 3)))


def cpu_ms(function: Callable[[Any], Any], texts: list[str]) -> float:
    """Return the processor time of one of three calls in a row."""
    started = time.process_time()
    for _ in range(3):
        function(texts)
    return 1e3 / 3 * (time.process_time() - started)


def equal(ours: Any, theirs: Any) -> bool:
    parts = ("indptr", "indices", "data")
    return all(np.array_equal(getattr(ours, part), getattr(theirs, part)) for part in parts)


def compare(texts: list[str], analyzer: str, ngrams: tuple[int, int], turns: int) -> dict[str, Any]:
    own = bigmc.HashingVectorizer(analyzer=analyzer, ngram_range=ngrams)
    peer = HashingVectorizer(analyzer=analyzer, ngram_range=ngrams)
    same = equal(own.transform(texts), peer.transform(texts))
    times = [(cpu_ms(own.transform, texts), cpu_ms(peer.transform, texts)) for _ in range(turns)]
    ours, theirs = np.median(times, axis=0)
    figures = {"bigmc_ms": round(ours, 2), "sklearn_ms": round(theirs, 1), "ratio": round(theirs / ours, 1)}
    return {"analyzer": analyzer, "ngrams": ngrams, "texts": len(texts), **figures, "equal": same}


def main(arguments: Sequence[str] | None = None) -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--texts", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=5)
    given = parser.parse_args(arguments)
    for path in given.files:
        texts = pq.read_table(path, columns=["text"]).column("text").to_pylist()[: given.texts]
        for analyzer, ngrams in SETTINGS:
            row = compare(texts, analyzer, ngrams, given.turns)
            print(json.dumps({"file": path.name, **row}), flush=True)


if __name__ == "__main__":
    main()
