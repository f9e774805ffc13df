"""Compile the usual kernels before they are needed, for example while building an image."""

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

MEMORY = "200MB"
N_ROWS, N_CLASSES = 240, 3
N_OWN_WORDS = 10
"""Unique words per text; with so many features a fit uses dual coordinate descent."""
N_MANY_ROWS = 140_000
"""Rows whose scores a training keeps in single precision, for which it has kernels of their own
(`bigmc.solvers.sparse.memory_plan`)."""
N_LONG_WORDS = 140_000
"""Words of a text whose counts need a larger table than that of usual texts."""
OF_NUMBERS = {"alpha": 0.0, "ridge": 1e-4, "loss": "log_loss", "fit_intercept": True}
"""Options of the linear models of standardised numbers that a fit trains."""


class WarmResult(TypedDict):
    """Time of compiling, and the learners used."""

    seconds: float
    learners: list[str]


def warm(*, progress: ProgressCallback = silent) -> WarmResult:
    """Run every learner and some fits on artificial rows to compile and cache their usual kernels.

    Numba keeps compiled kernels in the folder ``NUMBA_CACHE_DIR``, or beside the package. Processes that
    find them there compile only what is left: mainly the training on data larger than memory, and of
    losses and penalties that are not used by default.

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
        make = functools.partial(ingest, rows, label="label", memory_limit=MEMORY, progress=progress)
        make(folder / "text", text="text")
        make(folder / "dense", dense=["x", "y"])
        for number, (learner, data, options) in enumerate(trainings):
            model = folder / f"{number}.model"
            train(learner, folder / data, model, memory_limit=MEMORY, progress=progress, **options)
            evaluate(model, folder / data, memory_limit=MEMORY, progress=progress)
            for source in (rows, folder / data):
                to = folder / f"{number}-{source.name}.parquet"
                predict(model, source, to, scores=True, memory_limit=MEMORY, progress=progress)
        _fit_all(folder, rows, progress)
        _train_on_many_rows(folder, progress)
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
        fit(source, target, label="label", memory_limit=MEMORY, progress=progress, **columns)
        model = load_model(target)
        if "text" in columns:
            model.predict(["word1 Word2 wörd3"])
            model.predict_proba(["word1 word2"])
            model.explain("word1 word2")
        else:
            model.predict(np.array([[0.5, 1.0]]))


def _train_on_many_rows(folder: Path, progress: ProgressCallback) -> None:
    """Train linear models whose scores are in single precision."""
    from bigmc.api.data import ingest
    from bigmc.api.training import train

    rows = _write_many_rows(folder / "many.csv")
    make = functools.partial(ingest, rows, label="label", memory_limit=MEMORY, progress=progress)
    make(folder / "many-texts", text="text")
    make(folder / "many-numbers", dense=["x", "y"], weighting="scaled")
    trainings: tuple[tuple[str, Mapping[str, Any]], ...] = (
        ("texts", {"alpha": 1e-3}),
        ("texts", {"alpha": 1e-3, "loss": "multitask_squared_hinge"}),
        ("texts", {}),
        ("numbers", {}),
        ("numbers", OF_NUMBERS),
    )
    for number, (data, options) in enumerate(trainings):
        model = folder / f"many-{number}.model"
        train("sparse", folder / f"many-{data}", model, memory_limit=MEMORY, progress=progress, **options)


def _write_many_rows(path: Path) -> Path:
    """Write many short rows whose classes overlap, one of them with a long text."""
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "x", "y", "label"])
        writer.writerow([" ".join(f"long{i}" for i in range(N_LONG_WORDS)), 0, 0, "class 0"])
        for i in range(N_MANY_ROWS):
            c = i * i % 7 % N_CLASSES
            words = f"word{(c + (i % 5 == 0)) % N_CLASSES} all word{i % 11} word{i % 257}"
            x, y = round(c + i % 1009 / 1009, 4), round(i % 997 / 499 - c, 4)  # not exact as float32
            writer.writerow([words, x, y, f"class {c}"])
    return path


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
