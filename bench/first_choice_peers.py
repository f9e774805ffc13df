"""A peer of ``bench/first_choice.py`` from the raw table to predictions, in this process.

    python bench/first_choice_peers.py TRAIN.parquet TEST.parquet "LinearSVC" char

Writes one JSON object: what the predictions are worth. Texts become tf-idf weighted words, or characters of
words for short texts (word, pair or char); the strength of the regularisation is the library's default, or
the best of five on a fifth of the rows to train on (of 20,000 of them at most), with a fit on all of them
after that. "Search" takes the better of LinearSVC and LogisticRegression, each with its best of five.
"""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

STRENGTHS = (0.1, 0.3, 1.0, 3.0, 10.0)
MOST_TUNING_ROWS = 20_000
SEARCH = "Search"
ANALYZERS: dict[str, dict[str, Any]] = {
    "word": {"sublinear_tf": False},
    "pair": {"ngram_range": (1, 2)},
    "char": {"analyzer": "char_wb", "ngram_range": (1, 3)},
}
N_BINS = 15
_VW_BITS = 24


@dataclass
class Rows:
    """One side of the split: texts or columns of numbers, and labels or sets of them."""

    texts: list[str]
    numbers: np.ndarray | None
    labels: list[Any]

    @staticmethod
    def read(path: str) -> Rows:
        table = pq.read_table(path)
        labels = table.column("label").to_pylist()
        if "text" in table.column_names:
            return Rows(table.column("text").to_pylist(), None, labels)
        columns = [column.to_numpy().astype(np.float64) for column in table.drop_columns("label").columns]
        return Rows([], np.column_stack(columns), labels)


def judged(truth: list[Any], said: Any, probability: np.ndarray | None, classes: Any) -> dict[str, float]:
    """Return accuracy, or micro F1 of sets, and with probabilities log loss and calibration error.

    The calibration error is the mean over rows of |accuracy − probability| of their bin, by 15 equal bins of
    the probability of the predicted class.
    """
    if isinstance(truth[0], list):
        pairs = [(set(a), set(b)) for a, b in zip(truth, said, strict=True)]
        hits = sum(len(a & b) for a, b in pairs)
        return {"micro_f1": 2 * hits / sum(len(a) + len(b) for a, b in pairs)}
    right = np.array([str(a) == str(b) for a, b in zip(truth, said, strict=True)])
    figures = {"accuracy": float(right.mean())}
    if probability is not None:
        code = {str(label): number for number, label in enumerate(classes)}
        own = np.array([code.get(str(label), -1) for label in truth])
        p = np.where(own < 0, 0.0, probability[np.arange(len(own)), own])
        top = probability.max(axis=1)
        bins = np.minimum((top * N_BINS).astype(int), N_BINS - 1)
        sums = np.bincount(bins, right - top, N_BINS)
        figures["log_loss"] = float(-np.log(np.clip(p, 1e-15, 1)).mean())
        figures["ece"] = float(np.abs(sums).sum() / len(top))
    return figures


def _linear(name: str, strength: float) -> Any:
    from sklearn.linear_model import LogisticRegression, SGDClassifier
    from sklearn.svm import LinearSVC

    if name == "SGD":
        return SGDClassifier(alpha=1e-5, random_state=0)
    if name == "LinearSVC":
        return LinearSVC(C=strength)
    return LogisticRegression(C=strength, max_iter=200)


def scikit(name: str, kind: str, train: Rows, test: Rows) -> dict[str, Any]:
    """Fit a linear model of scikit-learn on tf-idf; "tuned" chooses C from five, "Search" the model too."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.preprocessing import MultiLabelBinarizer

    sets = isinstance(train.labels[0], list)
    binarizer = MultiLabelBinarizer() if sets else None
    labels = binarizer.fit_transform(train.labels) if binarizer else np.array(train.labels)

    def model(learner: str, strength: float) -> Any:
        linear = _linear(learner, strength)
        return OneVsRestClassifier(linear) if sets else linear

    vectorizer = TfidfVectorizer(**ANALYZERS[kind], dtype=np.float32)
    X = vectorizer.fit_transform(train.texts)
    learners = ("LinearSVC", "LogisticRegression") if name == SEARCH else (name.removesuffix(" tuned"),)
    learner, strength = learners[0], 1.0
    if name == SEARCH or name.endswith("tuned"):
        learner, strength = _best_setting(learners, model, X, labels)
    fitted = model(learner, strength).fit(X, labels)
    Z = vectorizer.transform(test.texts)
    said = fitted.predict(Z)
    probability = fitted.predict_proba(Z) if hasattr(fitted, "predict_proba") and not sets else None
    parts = fitted.estimators_ if sets else [fitted]
    figures = judged(test.labels, _sets(binarizer, said), probability, getattr(fitted, "classes_", ()))
    size = sum(part.coef_.nbytes for part in parts)
    return figures | {"learner": learner, "strength": strength, "model_bytes": size}


def _best_setting(
    learners: Sequence[str], model: Callable[..., Any], X: Any, labels: Any
) -> tuple[str, float]:
    """Return the learner and strength that are right most often on a fifth of the rows to tune on."""
    order = np.random.default_rng(0).permutation(X.shape[0])[:MOST_TUNING_ROWS]
    held, kept = np.split(order, [len(order) // 5])
    scores = {}
    for setting in itertools.product(learners, STRENGTHS):
        scores[setting] = model(*setting).fit(X[kept], labels[kept]).score(X[held], labels[held])
        print(*setting, f"{scores[setting]:.4f} after {time.process_time():.1f} CPU s", file=sys.stderr)
    return max(scores, key=lambda setting: scores[setting])


def _sets(binarizer: Any, said: Any) -> Any:
    return said if binarizer is None else binarizer.inverse_transform(said)


def lightgbm(name: str, kind: str, train: Rows, test: Rows) -> dict[str, Any]:
    """Boost trees with the defaults of LightGBM."""
    from lightgbm import LGBMClassifier

    model = LGBMClassifier(n_jobs=1, verbose=-1).fit(train.numbers, train.labels)
    probability = model.predict_proba(test.numbers)
    said = model.classes_[probability.argmax(axis=1)]
    figures = judged(test.labels, said, probability, model.classes_)
    return figures | {"model_bytes": len(model.booster_.model_to_string())}


_WORD = re.compile(r"(?u)\b\w\w+\b")


def _pieces(text: str, kind: str) -> str:
    """Return words, or characters of words, with a space between, without the two signs VW reserves."""
    if kind != "char":
        return " ".join(_WORD.findall(text.lower()))
    words = [f"_{word}_" for word in text.lower().split()]
    grams = [word[i : i + n] for word in words for n in (1, 2, 3) for i in range(len(word) - n + 1)]
    return " ".join(grams).replace(":", "。").replace("|", "。")


def vowpal_wabbit(name: str, kind: str, train: Rows, test: Rows) -> dict[str, Any]:
    """Train one against all; the passes are in the name. Sets: one learner a label, threshold 0."""
    known = sorted({label for labels in train.labels for label in _as_list(labels)})
    code = {label: number for number, label in enumerate(known)}
    sets = isinstance(train.labels[0], list)

    def lines(rows: Rows) -> str:
        said = []
        for text, labels in zip(rows.texts, rows.labels, strict=True):
            numbers = [code[label] + (not sets) for label in _as_list(labels) if label in code]
            said.append(f"{','.join(map(str, numbers))} | {_pieces(text, kind)}")
        return "\n".join(said) + "\n"

    passes = int(name.split()[1])
    with tempfile.TemporaryDirectory() as scratch:
        path = {part: str(Path(scratch) / part) for part in ("train", "test", "model", "cache", "said")}
        Path(path["train"]).write_text(lines(train))
        Path(path["test"]).write_text(lines(test))
        vw = [sys.executable, "-m", "vowpalwabbit", "--quiet"]
        several = (
            ["--passes", str(passes), "-k", "--holdout_off", "--cache_file", path["cache"]]
            if passes > 1
            else []
        )
        learner = "--multilabel_oaa" if sets else "--oaa"
        pairs = ["--ngram", "2"] if kind == "pair" else []
        options = [learner, str(len(known)), "--loss_function", "logistic", "-b", str(_VW_BITS), *pairs]
        subprocess.run([*vw, "-d", path["train"], *options, *several, "-f", path["model"]], check=True)
        reading = ["-t", "-d", path["test"], "-i", path["model"], "-p", path["said"]]
        subprocess.run([*vw, *reading], check=True)
        said = [line.strip() for line in Path(path["said"]).read_text().splitlines()]
        size = Path(path["model"]).stat().st_size
    if sets:
        named = [[known[int(number)] for number in line.split(",") if number] for line in said]
    else:
        named = [known[int(float(line)) - 1] for line in said]
    return judged(test.labels, named, None, ()) | {"model_bytes": size}


def _as_list(labels: Any) -> list[Any]:
    return labels if isinstance(labels, list) else [labels]


def fasttext(name: str, kind: str, train: Rows, test: Rows) -> dict[str, Any]:
    """Ten epochs at rate .5, pairs of words; characters of words for short texts."""
    import fasttext as ft

    known = sorted({label for labels in train.labels for label in _as_list(labels)})
    code = {label: number for number, label in enumerate(known)}
    sets = isinstance(train.labels[0], list)
    characters = {"minn": 1, "maxn": 3} if kind == "char" else {"wordNgrams": 2}
    with tempfile.TemporaryDirectory() as scratch:
        file, saved = Path(scratch) / "train", Path(scratch) / "model"
        with file.open("w") as out:
            for text, labels in zip(train.texts, train.labels, strict=True):
                marks = " ".join(f"__label__{code[label]}" for label in _as_list(labels))
                words = text.lower() if kind == "char" else _pieces(text, kind)
                out.write(f"{marks} {' '.join(words.split())}\n")
        loss = "ova" if sets else "softmax"
        model = ft.train_supervised(
            str(file), lr=0.5, epoch=10, loss=loss, thread=1, verbose=0, bucket=1 << 18, **characters,
        )  # fmt: skip
        model.save_model(str(saved))
        size = saved.stat().st_size
    probability = np.zeros((len(test.texts), len(known)))
    for row, text in enumerate(test.texts):
        words = text.lower() if kind == "char" else _pieces(text, kind)
        for p, label in model.f.predict(" ".join(words.split()) + "\n", -1, 0.0, "strict"):
            probability[row, int(label.removeprefix("__label__"))] = p
    if sets:
        named = [[known[j] for j in np.flatnonzero(row > 0.5)] for row in probability]
        return judged(test.labels, named, None, ()) | {"model_bytes": size}
    said = [known[j] for j in probability.argmax(axis=1)]
    return judged(test.labels, said, np.minimum(probability, 1), known) | {"model_bytes": size}


PEERS: dict[str, Callable[[str, str, Rows, Rows], dict[str, Any]]] = {
    "SGD": scikit,
    "LinearSVC": scikit,
    "LinearSVC tuned": scikit,
    "LogisticRegression": scikit,
    "LogisticRegression tuned": scikit,
    SEARCH: scikit,
    "VW 1": vowpal_wabbit,
    "VW 5": vowpal_wabbit,
    "fastText": fasttext,
    "LightGBM": lightgbm,
}


def main() -> None:
    train, test, name, kind = sys.argv[1:]
    print(json.dumps(PEERS[name](name, kind, Rows.read(train), Rows.read(test))))


if __name__ == "__main__":
    main()
