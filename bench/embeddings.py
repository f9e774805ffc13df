"""`bigmc fit` on embeddings of texts, beside scikit-learn's linear models.

    python bench/embeddings.py docstrings packages words --to embeddings

Texts become dense unit vectors, the first components of tf-idf (latent semantic analysis): package
descriptions and their sections, words of 18 languages by their letters, docstrings and the package that they
are from. A fifth of the rows, by whole groups where there are some, is for testing. Prints accuracy, log loss
and CPU seconds of each method in a process of its own, on one thread, without reading the file for the peers.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from data import packages, words
from text_columns import SETS as TEXTS

HERE = Path(__file__).parent
N_COMPONENTS, MOST_ROWS, TEST_SHARE, FEWEST_OF_A_CLASS = 1024, 25_000, 0.2, 20
ALONE = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "BIGMC")} | {"BIGMC_THREADS": "1"}


def _texts(name: str, data: Path) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return columns text, label and group, and the parameters of a vectorizer."""
    if name == "packages":
        table = pd.read_csv(packages(data), keep_default_na=False)
        table = table.rename(columns={"section": "label", "source": "group"})
        return table, {"min_df": 3, "sublinear_tf": True}
    if name == "words":
        table = pd.read_csv(words(data), keep_default_na=False).sample(MOST_ROWS, random_state=0)
        table = table.rename(columns={"word": "text", "language": "label"})
        return table.assign(group=table["text"]), {"analyzer": "char_wb", "ngram_range": (1, 3), "min_df": 3}
    table = TEXTS["functions"]()
    return table.assign(text=table["name"] + " " + table["doc"]), {"min_df": 3, "sublinear_tf": True}


def make(name: str, data: Path, to: Path) -> None:
    """Write the vectors of a set's training and test rows."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.utils.extmath import randomized_svd

    table, vectorizer = _texts(name, data)
    table = table[table["label"] != ""].drop_duplicates("text")
    table = table[table["label"].map(table["label"].value_counts()) >= FEWEST_OF_A_CLASS]
    table = table.sample(min(len(table), MOST_ROWS), random_state=0)
    groups = np.random.default_rng(0).permutation(table["group"].unique())
    for_test = table["group"].isin(groups[: int(TEST_SHARE * len(groups))]).to_numpy()
    counts = TfidfVectorizer(**vectorizer).fit(table["text"][~for_test]).transform(table["text"])
    components = randomized_svd(counts[~for_test], N_COMPONENTS, n_iter=1, random_state=0)[2]
    vectors = (counts @ components.T).astype(np.float32)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    for part, rows in (("train", ~for_test), ("test", for_test)):
        values = pa.FixedSizeListArray.from_arrays(pa.array(vectors[rows].ravel()), N_COMPONENTS)
        pq.write_table(
            pa.table({"vector": values, "label": table["label"][rows]}), to / f"{name}.{part}.parquet"
        )
    counted = f"{(~for_test).sum():,} rows and {for_test.sum():,} to test"
    print(f"{name}: {counted}, {table['label'].nunique()} classes", flush=True)


def fitted(name: str, to: Path) -> str:
    """Return accuracy, log loss and CPU seconds of `bigmc fit`."""
    command, model = [sys.executable, "-m", "bigmc"], to / f"{name}.model"
    asked = [*command, "fit", to / f"{name}.train.parquet", "--label", "label", "--to", model, "--overwrite"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*asked, "--quiet", "--json"], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    measured = [*command, "evaluate", model, to / f"{name}.test.parquet", "--quiet", "--json"]
    figures = json.loads(subprocess.run(measured, check=True, capture_output=True).stdout)
    return f"{figures['accuracy']:.4f} | {figures['log_loss']:.3f} | {seconds:.0f}"


def peer(name: str, to: Path, model: Any) -> str:
    """Return the same of an estimator of scikit-learn."""
    from sklearn.metrics import log_loss

    def read(part: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        table = pq.read_table(to / f"{name}.{part}.parquet")
        values = table["vector"].combine_chunks().flatten().to_numpy().reshape(-1, N_COMPONENTS)
        return values, table["label"].to_numpy(zero_copy_only=False)

    (X, y), (X_test, y_test) = read("train"), read("test")
    before = time.process_time()
    model.fit(X, y)
    seconds, loss = time.process_time() - before, "–"
    if hasattr(model, "predict_proba"):
        loss = f"{log_loss(y_test, model.predict_proba(X_test), labels=model.classes_):.3f}"
    return f"{model.score(X_test, y_test):.4f} | {loss} | {seconds:.0f}"


def main() -> None:
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import LinearSVC

    peers = {f"LinearSVC, C={c:g}": LinearSVC(C=c) for c in (0.1, 1.0)}
    peers |= {f"LogisticRegression, C={c:g}": LogisticRegression(C=c, max_iter=300) for c in (3.0, 30.0)}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sets", nargs="+", choices=("packages", "words", "docstrings"))
    parser.add_argument("--data", type=Path, default=HERE / "data")
    parser.add_argument("--to", type=Path, default=Path("embeddings"))
    parser.add_argument("--method", choices=peers, help="one set and one peer alone, in this process")
    given = parser.parse_args()
    if given.method:
        print(f"| {given.sets[0]} | {given.method} | {peer(given.sets[0], given.to, peers[given.method])} |")
        return
    given.to.mkdir(parents=True, exist_ok=True)
    os.environ.update(ALONE)
    for name in given.sets:
        make(name, given.data, given.to)
        print(f"| {name} | bigmc fit | {fitted(name, given.to)} |", flush=True)
        for method in peers:
            again = [sys.executable, __file__, name, "--to", given.to, "--method", method]
            subprocess.run(again, check=True)


if __name__ == "__main__":
    main()
