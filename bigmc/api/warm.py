"""Compile all kernels before they are needed, for example while building an image."""

from __future__ import annotations

import csv
import functools
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypedDict

import numpy as np

from bigmc.progress import ProgressCallback, silent

N_ROWS, N_CLASSES = 240, 3
N_OWN_WORDS = 10
"""Unique words per text; with so many features a fit uses dual coordinate descent."""


class WarmResult(TypedDict):
    """Time of compiling, and the learners used."""

    seconds: float
    learners: list[str]


def warm(*, progress: ProgressCallback = silent) -> WarmResult:
    """Run every learner and some fits on a few artificial rows to compile and cache their kernels.

    Numba keeps compiled kernels in the folder ``NUMBA_CACHE_DIR``, or beside the package. Processes that
    find them there start without compiling.

    Parameters
    ----------
    progress : callable, optional
        Called with :class:`bigmc.progress.Progress`.

    Returns
    -------
    dict
        ``seconds`` it took and the ``learners`` used.
    """
    from bigmc.api.data import ingest
    from bigmc.api.evaluation import evaluate
    from bigmc.api.inference import predict
    from bigmc.api.training import train

    started = time.monotonic()
    trainings: tuple[tuple[str, str, Mapping[str, Any]], ...] = (
        ("sparse", "text", {"alpha": 1e-3}),
        ("sparse", "text", {}),
        ("sparse", "text", {"alpha": 1e-3, "loss": "log_loss", "penalty": "l1", "fit_intercept": True}),
        ("boost", "text", {"n_rounds": 2}),
        ("boost", "dense", {"n_rounds": 2, "max_depth": 1}),
        ("boost", "dense", {"n_rounds": 2, "max_depth": 2}),
        ("mrc", "dense", {"k_max": 2}),
    )
    with TemporaryDirectory(prefix="bigmc-warm-") as name:
        folder = Path(name)
        rows = write_rows(folder / "rows.csv")
        make = functools.partial(ingest, rows, label="label", memory_limit="200MB", progress=progress)
        make(folder / "text", text="text")
        make(folder / "dense", dense=["x", "y"])
        for number, (learner, data, options) in enumerate(trainings):
            model = folder / f"{number}.model"
            train(learner, folder / data, model, memory_limit="200MB", progress=progress, **options)
            evaluate(model, folder / data, memory_limit="200MB", progress=progress)
            for source in (rows, folder / data):
                to = folder / f"{number}-{source.name}.parquet"
                predict(model, source, to, scores=True, memory_limit="200MB", progress=progress)
        _fit_all(folder, rows, progress)
    used = sorted({learner for learner, _, _ in trainings})
    return {"seconds": time.monotonic() - started, "learners": used}


def _fit_all(folder: Path, rows: Path, progress: ProgressCallback) -> None:
    """Fit models of few and many features, of numbers and of label sets, and predict with them."""
    from bigmc.api.fitting import fit
    from bigmc.api.training import load_model

    fits: tuple[tuple[Path, Mapping[str, Any]], ...] = (
        (rows, {"text": "text"}),
        (rows, {"dense": ["x", "y"]}),
        (write_texts(folder / "labels.jsonl"), {"text": "text"}),
        (write_texts(folder / "sets.jsonl", lambda c: [f"class {c}", "all"][: 1 + c % 2]), {"text": "text"}),
    )
    for number, (source, columns) in enumerate(fits):
        target = folder / f"fit-{number}.model"
        fit(source, target, label="label", memory_limit="200MB", progress=progress, **columns)
        model = load_model(target)
        if "text" in columns:
            model.predict(["word1 Word2 wörd3"])
            model.predict_proba(["word1 word2"])
            model.explain("word1 word2")
        else:
            model.predict(np.array([[0.5, 1.0]]))


def write_texts(path: Path, label: Callable[[int], str | list[str]] = "class {}".format) -> Path:
    """Write texts with words of their class and unique words, and the label of each class number."""
    with open(path, "w") as file:
        for i in range(N_ROWS):
            own = " ".join(f"own{N_OWN_WORDS * i + k}" for k in range(N_OWN_WORDS))
            c = i % N_CLASSES
            row = {"text": f"word{c} word{i % 7} Wörd{i % 11} {own}", "label": label(c)}
            file.write(json.dumps(row) + "\n")
    return path


def write_rows(path: Path) -> Path:
    """Write rows of words and numbers that depend on their class."""
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "x", "y", "label"])
        for i in range(N_ROWS):
            c = i % N_CLASSES
            words = f"word{c} Word{i % 7} wörd{i % 5} word{i % 11}"
            writer.writerow([words, c + i % 5 / 4, i % 13 / 7 - c, f"class {c}"])
    return path
