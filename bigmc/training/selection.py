"""Choosing one of several models: the path of the sparse learner, and models evaluated one by one.

Every point of a path is a training of its own that starts from the point before it (Blondel, Seki and
Uehara 2013, figure 5, draw accuracy against features along such a path), so that a killed path continues
where it was.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bigmc.engine import Engine
from bigmc.errors import BigmcError, DataError, ModelError
from bigmc.estimators import LEARNERS
from bigmc.inference.evaluate import evaluate
from bigmc.model import load_model
from bigmc.progress import ProgressCallback
from bigmc.solvers import largest_alpha
from bigmc.store import disk
from bigmc.store.atomic import replacing, write_atomic
from bigmc.store.dataset import Dataset
from bigmc.store.object_store import delivered, local_file, read_file
from bigmc.training.run import identity, train

TABLE, PLOT, BEST = "path.json", "path.png", "best.model"

_OF_SETS = "micro_f1"
FIGURES = ("accuracy", "macro_f1", _OF_SETS)
"""What models are compared by; the last only where labels are sets."""

EVALUATED = ("model", "model_sha256", "dataset", "split", "n_nonzero_features")
"""What a file of ``bigmc evaluate --to`` says besides the figures."""

_LARGEST = 0.99
"""The path begins at this share of the penalty that leaves no weight at all."""

_OBJECTIVE = ("loss", "penalty", "l1_ratio", "ridge", "fit_intercept", "random_state")


def sparse_path(
    data: Dataset,
    to: Path,
    *,
    n_alphas: int,
    alpha_ratio: float,
    alphas: Sequence[float] | None,
    split: str,
    validation: str,
    limit: int,
    engine: Engine,
    progress: ProgressCallback,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """Train along falling penalties and choose a model; see :func:`bigmc.api.sparse_path`."""
    if "alpha" in options:
        raise BigmcError("a path has many alphas", "give alphas, or n_alphas and alpha_ratio")
    if to.exists() and not to.is_dir():
        raise ModelError(f"{to} is a file", "give the path of a folder with --to")
    LEARNERS["sparse"](**options).check_params()
    held_out = data[validation]
    disk.make_folder(to)
    grid_asked = None if alphas is None else [float(alpha) for alpha in alphas]
    asked = {
        "dataset": identity(data), "split": split, "validation": validation, "n_alphas": n_alphas,
        "alpha_ratio": alpha_ratio, "alphas": grid_asked, **options,
    }  # fmt: skip
    asked = json.loads(json.dumps(asked))
    if (to / TABLE).exists():
        found = json.loads((to / TABLE).read_text())
        if found["asked"] != asked:
            raise ModelError(
                f"{to} has a path of other data or parameters", "delete it, or give another --to"
            )
        return {**found, "best_model": str(to / BEST)}
    if alphas is None:
        alphas = _spaced(data[split], n_alphas, alpha_ratio, limit, engine, options)
    grid = sorted({float(alpha) for alpha in alphas}, reverse=True)
    if not grid or not all(0 < alpha < math.inf for alpha in grid):
        raise BigmcError(f"the alphas are {list(alphas)}", "give numbers above 0")
    table: list[dict[str, Any]] = []
    before: Path | None = None
    for k, alpha in enumerate(grid):
        target = to / f"{k:03d}.model"
        seen = target.with_suffix(".json")
        if seen.exists() and target.exists():
            table.append(json.loads(seen.read_text()))
            before = target
            continue
        trained = train(
            "sparse", data, target, split=split, limit=limit, engine=engine, progress=progress,
            options={**options, "alpha": alpha}, start=before, keep_norms=True,
        )  # fmt: skip
        figures = evaluate(load_model(target), held_out, engine, progress=progress, memory_limit=limit)
        row = {name: trained[name] for name in ("n_nonzero_features", "objective", "n_passes", "seconds")}
        gap = trained["certificate"]["gap"]
        scores = {name: figures[name] for name in FIGURES if name in figures}
        table.append({"alpha": alpha, **row, "gap": gap, **scores, "model": target.name})
        write_atomic(seen, json.dumps(table[-1]).encode())
        before = target
    by = _OF_SETS if _OF_SETS in table[0] else "accuracy"
    best = max(table, key=lambda row: (row[by], -row["n_nonzero_features"]))
    with replacing(to / BEST) as file, (to / best["model"]).open("rb") as model:
        shutil.copyfileobj(model, file)
    _draw(table, best, by, to / PLOT)
    result = {"asked": asked, "table": table, "best": best}
    write_atomic(to / TABLE, json.dumps(result, indent=1).encode())
    return {**result, "best_model": str(to / BEST)}


def publish(evaluations: Sequence[str | Path], to: str | Path, by: str) -> dict[str, Any]:
    """Give the best of evaluated models a name of its own; see :func:`bigmc.api.publish`."""
    if by not in FIGURES:
        raise BigmcError(f"models cannot be compared by {by!r}", f"choose {' or '.join(FIGURES)}")
    table = [_evaluation(path) for path in evaluations]
    for path, row in zip(evaluations, table, strict=True):
        if (row["dataset"], row["split"]) != (table[0]["dataset"], table[0]["split"]):
            raise ModelError(
                f"{evaluations[0]} and {path} were measured on other data", "evaluate all models on one split"
            )
        if by not in row:
            raise ModelError(f"{path} has no {by}, which is for sets of labels", "choose by another figure")
    best = max(table, key=lambda row: (row[by], -row["n_nonzero_features"]))
    with local_file(best["model"]) as model:
        content = model.read_bytes()
    if hashlib.sha256(content).hexdigest() != best["model_sha256"]:
        raise ModelError(f"{best['model']} is not the model that was evaluated", "evaluate it again")
    if read_file(to) != content:
        with delivered(to) as target:
            write_atomic(target, content)
    return {"published": str(to), "best": best, "table": table}


def _evaluation(path: str | Path) -> dict[str, Any]:
    content = read_file(path)
    if content is None:
        raise DataError(f"there is no evaluation at {path}", "make it with bigmc evaluate --to")
    try:
        found = json.loads(content)
        figures = {name: found[name] for name in FIGURES if name in found or name != _OF_SETS}
        row = {name: found[name] for name in EVALUATED}
        if not (isinstance(row["model"], str) and all(isinstance(f, float) for f in figures.values())):
            raise TypeError
        return figures | row
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{path} is no evaluation", "make it with bigmc evaluate --to") from None


def _spaced(
    samples: Dataset, n_alphas: int, ratio: float, limit: int, engine: Engine, options: Mapping[str, Any]
) -> list[float]:
    """Return penalties evenly spaced in their logarithm, from the largest that leaves a weight."""
    if n_alphas < 1 or not 0 < ratio < 1:
        raise BigmcError(
            f"a path of {n_alphas} alphas over a ratio of {ratio}", "give 1 or more, and a ratio below 1"
        )
    passed_on = {name: options[name] for name in _OBJECTIVE if name in options}
    if "random_state" in passed_on:
        passed_on["seed"] = passed_on.pop("random_state")
    top = _LARGEST * largest_alpha(samples, memory_limit=limit, engine=engine, **passed_on)
    return np.geomspace(top, top * ratio, n_alphas).tolist()  # type: ignore[no-any-return]


def _draw(table: Sequence[Mapping[str, Any]], best: Mapping[str, Any], by: str, target: Path) -> None:
    """Draw what the model was chosen by against features with weight, if matplotlib is installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.add_subplot()
    axes.plot([row["n_nonzero_features"] for row in table], [row[by] for row in table], "o-")
    axes.plot([best["n_nonzero_features"]], [best[by]], "o", ms=12, mfc="none", label="chosen")
    for row in table:
        place = (row["n_nonzero_features"], row[by])
        axes.annotate(f"{row['alpha']:.2g}", place, xytext=(4, -10), textcoords="offset points", fontsize=7)
    axes.set_xscale("symlog")
    axes.set_xlabel("features with weight")
    axes.set_ylabel(f"{by.replace('_', ' ')} on the validation split")
    axes.legend(loc="lower right")
    with replacing(target) as file:
        figure.savefig(file, format="png", dpi=150, metadata={"Software": None})
