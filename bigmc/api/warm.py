"""Compiling all kernels before they are needed, as when an image is built."""

from __future__ import annotations

import csv
import functools
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bigmc.api.results import WarmResult
from bigmc.progress import ProgressCallback, silent

N_ROWS, N_CLASSES = 240, 3


def warm(*, progress: ProgressCallback = silent) -> WarmResult:
    """Use every learner on a few made-up rows, so that the kernels they need are compiled and kept.

    Numba keeps compiled kernels in the folder that ``NUMBA_CACHE_DIR`` names, or beside the package; the
    processes that find them there start at once.

    Parameters
    ----------
    progress : callable, optional
        Called with :class:`bigmc.progress.Progress`.

    Returns
    -------
    dict
        ``seconds`` it took and the ``learners`` that were used.
    """
    from bigmc.api.data import ingest
    from bigmc.api.inference import evaluate, predict
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
        rows = _write_rows(folder / "rows.csv")
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
    used = sorted({learner for learner, _, _ in trainings})
    return {"seconds": time.monotonic() - started, "learners": used}


def _write_rows(path: Path) -> Path:
    """Write rows of words and numbers that depend on their class."""
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "x", "y", "label"])
        for i in range(N_ROWS):
            c = i % N_CLASSES
            words = f"word{c} Word{i % 7} wörd{i % 5} word{i % 11}"
            writer.writerow([words, c + i % 5 / 4, i % 13 / 7 - c, f"class {c}"])
    return path
