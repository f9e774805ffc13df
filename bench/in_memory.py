"""Labels for texts in memory: a model of ``bigmc fit`` beside pipelines of scikit-learn, one thread each.

    python bench/in_memory.py m.model train.parquet test.parquet

The columns are called text and label. The peers are a TfidfVectorizer and a HashingVectorizer with the
n-grams of the model, and a TfidfVectorizer with ``--kind`` (word: single words; char: characters of words, 1
to 3), before a linear model fitted to 20,000 rows in one epoch: which one makes no difference to the time of
its predictions. Model and peer take turns, and the medians of their processor time count. One JSON line a
peer.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from first_choice_peers import ANALYZERS
from sklearn.feature_extraction.text import HashingVectorizer, TfidfVectorizer
from sklearn.linear_model import SGDClassifier
from sklearn.pipeline import make_pipeline

import bigmc

FITTED_ROWS = 20_000


def cpu_ms(function: Callable[[Any], Any], texts: list[str]) -> float:
    started = time.process_time()
    function(texts)
    return 1e3 * (time.process_time() - started)


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    for name in ("model", "train", "test"):
        parser.add_argument(name)
    parser.add_argument("--kind", choices=["word", "char"], default="word")
    parser.add_argument("--texts", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=7)
    given = parser.parse_args()
    model = bigmc.load_model(given.model)
    hashing = model.model_.feature_spec["hasher"]
    own = {"analyzer": hashing["analyzer"], "ngram_range": tuple(hashing["ngrams"])}
    rows = pq.read_table(given.train).slice(0, FITTED_ROWS)
    texts = pq.read_table(given.test).column("text").to_pylist()[: given.texts]
    peers = {
        "tf-idf, n-grams of the model": TfidfVectorizer(**own, dtype=np.float32),
        "hashed, n-grams of the model": HashingVectorizer(**own, n_features=1 << hashing["hash_bits"]),
        f"tf-idf, {given.kind}": TfidfVectorizer(**ANALYZERS[given.kind], dtype=np.float32),
    }
    for name, vectorizer in peers.items():
        peer = make_pipeline(vectorizer, SGDClassifier(alpha=1e-5, max_iter=1, tol=None))
        peer.fit(rows.column("text").to_pylist(), rows.column("label").to_pylist())
        model.predict(texts)
        turns = [(cpu_ms(model.predict, texts), cpu_ms(peer.predict, texts)) for _ in range(given.turns)]
        ours, theirs = np.median(turns, axis=0)
        figures = {"bigmc_ms": round(ours, 1), "peer_ms": round(theirs, 1), "ratio": round(theirs / ours, 1)}
        print(json.dumps({"texts": len(texts), "own": own, "peer": name, **figures}), flush=True)


if __name__ == "__main__":
    main()
