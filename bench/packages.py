"""Package descriptions → archive section: bigmc beside LinearSVC, LIBLINEAR L1 and SGD, in one run.

    python bench/packages.py

The same rows (a split by source package, made by ``bigmc ingest``), the same features (words and pairs of
words hashed to 2^20 columns and weighted by tf-idf), each method in a process of its own. One JSON line a
run: seconds of the training alone, peak resident memory of the process, accuracy and macro F1 on the test
rows, features with weight and bytes of the saved model. bigmc trains from disk; the others have the matrix
in memory. With ``--features words`` the features are single words hashed to 2^18 columns, by their counts.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ALPHAS = (1e-5, 2e-5, 4e-5)
RIDGE = 1e-5
LOSSES = ("multitask_squared_hinge", "squared_hinge")
FEATURES: dict[str, dict[str, Any]] = {
    "pairs": {"ngrams": (1, 2), "hash_bits": 20, "weighting": "tfidf"},
    "words": {"ngrams": (1, 1), "hash_bits": 18, "weighting": "l2"},
}
METHODS: dict[str, tuple[str, Any]] = {
    f"bigmc {loss} alpha={alpha:g}": ("bigmc", (loss, alpha)) for loss in LOSSES for alpha in ALPHAS
} | {
    "LinearSVC": ("linear_svc", None),
    "LIBLINEAR L1": ("liblinear_l1", None),
    "SGD 3 passes": ("sgd", 3),
    "SGD 10 passes": ("sgd", 10),
}


def ingest(dataset: Path, data: Path, features: str) -> None:
    import bigmc

    started = time.monotonic()
    made = bigmc.ingest(
        data, dataset, text="text", label="section", group="source", on_bad_row="quarantine",
        **FEATURES[features],
    )  # fmt: skip
    seconds, info = time.monotonic() - started, made.info()
    print(json.dumps({"step": "ingest", "seconds": round(seconds, 2), **info}), flush=True)


def run_bigmc(dataset: Path, loss: str, alpha: float, tol: float, memory: str | None) -> dict[str, Any]:
    import bigmc

    model = dataset.with_suffix(f".{loss}-{alpha:g}.model")
    model.unlink(missing_ok=True)
    trained = bigmc.train(
        "sparse", dataset, model, loss=loss, alpha=alpha, ridge=RIDGE, fit_intercept=True, tol=tol,
        memory_limit=memory,
    )  # fmt: skip
    figures = bigmc.evaluate(model, dataset)
    return {
        "seconds": trained["seconds"],
        "passes": trained["n_passes"],
        "gap": trained["certificate"]["gap"],
        "accuracy": figures["accuracy"],
        "macro_f1": figures["macro_f1"],
        "features": trained["n_nonzero_features"],
        "model_bytes": model.stat().st_size,
        "bytes_read": trained["file_bytes_read"],
    }


def run_peer(kind: str, dataset: Path, data: Path, features: str, passes: int | None) -> dict[str, Any]:
    import numpy as np
    import pandas as pd
    from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
    from sklearn.linear_model import SGDClassifier
    from sklearn.metrics import accuracy_score, f1_score
    from sklearn.svm import LinearSVC

    import bigmc

    stored = bigmc.open_dataset(dataset)
    train, test = (np.sort(stored[split].row_ids()) for split in ("train", "test"))
    table = pd.read_csv(data, keep_default_na=False)
    labels = table["section"].to_numpy()
    made = FEATURES[features]
    hashing = HashingVectorizer(n_features=stored.n_features, ngram_range=made["ngrams"], norm=None)
    matrix = hashing.transform(table["text"])
    matrix = TfidfTransformer(use_idf=made["weighting"] == "tfidf").fit(matrix[train]).transform(matrix)
    model = {
        "linear_svc": lambda: LinearSVC(C=1.0),
        "liblinear_l1": lambda: LinearSVC(penalty="l1", dual=False, C=1.0),
        "sgd": lambda: SGDClassifier(max_iter=passes, tol=None, alpha=1e-5, random_state=0),
    }[kind]()
    started = time.monotonic()
    model.fit(matrix[train], labels[train])
    seconds = time.monotonic() - started
    predicted = model.predict(matrix[test])
    return {
        "seconds": seconds,
        "passes": passes,
        "accuracy": accuracy_score(labels[test], predicted),
        "macro_f1": f1_score(labels[test], predicted, average="macro", zero_division=0),
        "features": int((model.coef_ != 0).any(axis=0).sum()),
        "model_bytes": model.coef_.nbytes,
    }


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--features", choices=FEATURES, default="pairs")
    parser.add_argument("--folder", type=Path, default=HERE / "data")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each method; the medians count")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--tol", type=float, default=1e-3)
    parser.add_argument("--memory", default=None, help="memory limit of bigmc")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    folder, features = arguments.folder, arguments.features
    dataset = folder / f"packages-{features}.bigmc"
    data = folder / "packages.csv"
    if arguments.one:
        kind, value = METHODS[arguments.one]
        if kind == "bigmc":
            result = run_bigmc(dataset, *value, arguments.tol, arguments.memory)
        else:
            result = run_peer(kind, dataset, data, features, value)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({"method": arguments.one, **result, "peak_bytes": peak}))
        return
    if not data.exists():
        subprocess.run([sys.executable, HERE / "data.py", "packages", "--to", folder], check=True)
    ingest(dataset, data, features)
    for _ in range(arguments.repeat):
        for name in arguments.methods:
            subprocess.run([sys.executable, __file__, "--one", name, *_passed_on(arguments)], check=True)


def _passed_on(arguments: argparse.Namespace) -> list[str]:
    memory = ["--memory", arguments.memory] if arguments.memory else []
    shared = [
        "--folder",
        str(arguments.folder),
        "--features",
        arguments.features,
        "--tol",
        str(arguments.tol),
    ]
    return [*shared, *memory]


if __name__ == "__main__":
    main()
