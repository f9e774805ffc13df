"""Courses of runs as commands ask for them: by the functions of a learner, which choose how to go about it.

Those of `courses.py` are of one solver each, on a plan of its own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import scipy.sparse
import test_row_blocks as blocks
from course import Course
from instances import far_columns, table
from sparse_runs import largest_alpha, run_of
from test_chunk_rounds import made
from test_workers import Apart

import bigmc
from bigmc.engine import ThreadEngine
from bigmc.solvers import boosting
from bigmc.solvers.minimax import MinimaxParameters, solve_minimax
from bigmc.solvers.sparse import Start, in_memory, solve
from bigmc.store.dataset import Dataset
from bigmc.store.weighting import Weighting

TFIDF = Weighting(l2=True, idf=True)

#: What decides the way of a sparse run: of ridge problems dual coordinates, also of blocks; of others chunks,
#: or a sample, where it has many rows for each feature.
RIDGE: dict[str, Any] = {"alpha": 0.0, "ridge": 2e-3, "loss": "multitask_squared_hinge"}
LARGER: dict[str, Any] = {"chunk_bytes": 40_000, "memory_limit": 64 << 20}

#: Name, data and options of `bigmc.solvers.sparse.solve`, by what it comes to.
SPARSE: dict[str, dict[str, tuple[str, dict[str, Any]]]] = {
    "by a sample": {
        "a sample": ("texts", {**LARGER, "alpha": 1e-3}),
        "weights": ("weighted texts", {**LARGER, "alpha": 2e-3, "fit_intercept": True}),
        "a start": ("texts", {**LARGER, "alpha": 2e-3, "fit_intercept": True, "start": "some"}),
        "tasks": (
            "texts",
            {**LARGER, "alpha": 1e-3, "loss": "multitask_squared_hinge", "penalty": "sparse_group"}
            | {"l1_ratio": 0.3, "ridge": 1e-3, "fit_intercept": True},
        ),
        "log loss": ("texts", {**LARGER, "alpha": 0.0, "ridge": 1e-2, "loss": "log_loss"}),
    },
    "by chunks": {
        "chunks": ("few", {**LARGER, "alpha": 5e-3, "fit_intercept": True}),
        "weights": ("weighted few", {**LARGER, "alpha": 4e-3, "max_passes": 3, "penalty": "l1", "tol": 1e-2}),
        "constant steps": (
            "texts",
            {**LARGER, "alpha": 5e-3, "step": "constant", "tol": 1e-2, "max_passes": 8},
        ),
        "columns far from 0": ("far", {**LARGER, "alpha": 1e-2, "fit_intercept": True}),
    },
    "many shards": {
        "a sample": ("texts in shards", {**LARGER, "alpha": 2e-3}),
        "chunks": ("few in shards", {**LARGER, "alpha": 5e-3, "fit_intercept": True, "tol": 1e-2}),
        "in memory": ("few in shards", {"alpha": 2e-3, "fit_intercept": True}),
    },
    "in memory": {
        "columns further from 0": ("further", {"alpha": 1e-2, "fit_intercept": True}),
        "a start": ("few", {"alpha": 2e-3, "fit_intercept": True, "start": "some"}),
        "a start further from 0": ("further", {"alpha": 1e-2, "fit_intercept": True, "start": "some"}),
        "a rough start": ("texts", {"alpha": 1e-3, "fit_intercept": True, "is_large": True}),
        "a rough start with weights": ("weighted texts", {"alpha": 1e-3, "is_large": True}),
        "along a path": ("few", {"alpha": 2e-3, "before": 4e-3}),
        "few stages": ("few", {"alpha": 1e-3, "max_passes": 4}),
    },
    "ridge": {
        "dual coordinates": ("words", RIDGE),
        "an intercept": ("weighted words", {**RIDGE, "fit_intercept": True}),
        "blocks": ("words", {**RIDGE, "tol": 1e-2, "memory_limit": 22_000_000, "chunk_bytes": 1 << 20}),
        "parts of shards": (
            "words",
            {**RIDGE, "tol": 1e-2, "memory_limit": 20_700_000, "chunk_bytes": 1 << 20},
        ),
        "blocks, then chunks": ("weighted words", {**RIDGE, **LARGER, "fit_intercept": True}),
        "a dense matrix": ("texts", {**RIDGE, "fit_intercept": True, "factorises": True}),
        "a weighted dense matrix": ("weighted texts", {**RIDGE, "loss": "log_loss", "factorises": True}),
    },
}

#: Name and options of the boosted learner; those of which there are several models are averaged.
BOOSTED: dict[str, dict[str, Any]] = {
    "averaged": {"max_depth": 2, "column_share": 0.5, "validation_fraction": 0.2, "n_models": 2},
    "averaged, best cuts": {"max_depth": 2, "best_cuts": 3, "n_rounds": 3, "n_models": 3},
    "weighted": {"max_depth": 2, "min_frequency": 0.6, "max_bins": 16, "weights": True},
    "one at a time": {"max_sweeps": 1, "pool": 1, "n_rounds": 8, "learning_rate": 0.5, "seed": 3},
    "impatient": {"inner_rounds": 3, "patience": 2, "validation_fraction": 0.3, "n_rounds": 20},
    "rays with the log loss": {"family": "ray", "loss": "log_loss", "C": 300.0},
    "shared trees": {"learners": "shared", "max_depth": 3, "pool": 4, "max_bins": 8},
    "stumps of workers": {"n_workers": 2},
    "rays of workers": {"family": "ray", "n_workers": 3},
    "trees of workers": {"max_depth": 3, "pool": 6, "min_frequency": 0.6, "n_workers": 2},
}

#: Name, data, limit and options of the minimax learner.
MINIMAX: dict[str, tuple[str, int, dict[str, Any]]] = {
    "coarse": ("table", 1 << 29, {"lambda0": 0.1, "tol": 1e-2}),
    "little memory": (
        "table",
        33_050_000,
        {"lambda0": 0.02, "tol": 1e-5, "k_max": 15, "m_max": 6, "n_max": 20},
    ),
    "absent features": ("words", 1 << 29, {"lambda0": 0.01, "k_max": 4}),
    "absent features of a table": ("apart", 1 << 29, {"lambda0": 0.01, "tol": 1e-4, "k_max": 12}),
}


@cache
def _data(name: str) -> Dataset:
    """Return texts, words of which most are rare, or numbers."""
    if name in ("far", "further"):
        X, y = far_columns()
        return Dataset.from_arrays(X if name == "far" else X + 9000 * (X > 50), y, shard_rows=150)
    if name == "words":
        return blocks.texts(weighting=TFIDF)[2]
    if name in ("table", "apart"):
        X, y = table()
        X[:, 8:] *= (y[:, None] == [[0, 1, 2, 0]]) | (name == "table")  # else a class alone has each of them
        return Dataset.from_arrays(X, y, shard_rows=150)
    X, data = made(n=1500 if name.startswith("few") else 3000, weighting=TFIDF)
    many = {"shard_rows": 20, "weighting": TFIDF}
    return Dataset.from_arrays(X, data.labels(), **many) if name.endswith("in shards") else data


def _sparse(kind: str, options: dict[str, Any], course: Course) -> Course:
    """Train the sparse learner."""
    options = {"tol": 1e-3, "memory_limit": 1 << 30, **options}
    data, generator = _data(kind.removeprefix("weighted ")), np.random.default_rng(2)
    if kind.startswith("weighted "):
        options["sample_weight"] = generator.integers(0, 3, data.n_samples).astype(float)
    start, before, chunk_bytes, is_large, factorises = (
        options.pop(key, None) for key in ("start", "before", "chunk_bytes", "is_large", "factorises")
    )
    if start:
        weights = generator.normal(size=(3, data.n_classes)), generator.normal(size=data.n_classes)
        start = Start(np.array([1, 4, 5]), *weights)
    if before:
        found = solve(run_of(data, engine=ThreadEngine(1), **{**options, "alpha": before}))
        start = Start(found.features, found.coef, found.intercept, found.norms)
    run = run_of(data, engine=ThreadEngine(1), checkpoint=course, progress=course.tell, **options)
    with patch.object(in_memory, "MANY_ENTRIES", 0 if is_large else in_memory.MANY_ENTRIES):
        found = solve(replace(run, factorises=bool(factorises)), start, chunk_bytes)
    return course.end(found.history, found.features, found.coef, found.intercept)


def _boosted(name: str, course: Course) -> Course:
    """Train the boosted learner, or several of which the mean is taken."""
    options = {"C": 1e3, "tol": 1e-9, "n_rounds": 4, "max_depth": 1, **BOOSTED[name]}
    n_models, n_workers = options.pop("n_models", 1), options.pop("n_workers", 0)
    weights = (
        np.random.default_rng(2).integers(1, 4, 400).astype(float) if options.pop("weights", 0) else None
    )
    asked = boosting.BoostingOptions(**options)
    with tempfile.TemporaryDirectory() as folder:
        data, context = _data("table"), course.context
        if n_workers:  # who open the dataset by themselves
            X, y = table()
            data = bigmc.ingest(scipy.sparse.csr_array(X), Path(folder, "table.bigmc"), label=y)
            context = replace(context, engine=Apart(n_workers), scratch=Path(folder))
        found = boosting.solve_averaged(data, asked, n_models, 1 << 28, context, weights)
    return course.end(found.history, found.thresholds, *found.stages.arrays().values())


def _minimax(name: str, course: Course) -> Course:
    """Train the minimax learner."""
    kind, limit, options = MINIMAX[name]
    found = solve_minimax(_data(kind), MinimaxParameters(**options), limit, course.context)
    weights = found.weights
    return course.end(found.history, weights.features, weights.coef, weights.intercept)


def _C_chosen(course: Course) -> Course:
    """Choose C by samples that are held out."""
    asked = boosting.BoostingOptions(C=1.0, tol=1e-9, n_rounds=3, validation_fraction=0.3)
    trials = boosting.Trials(course)
    C = boosting.choose_C(_data("table"), asked, 1 << 28, replace(course.context, checkpoint=trials))
    return course.end([{"C": C}], np.array(trials.errors))


#: Every run, of the course that it is given, by learner and name.
RUNS: dict[str, dict[str, Callable[[Course], Course]]] = {
    **{
        f"asked: {group}": {name: partial(_sparse, *own) for name, own in runs.items()}
        for group, runs in SPARSE.items()
    },
    "asked: boosted": {name: partial(_boosted, name) for name in BOOSTED} | {"C chosen": _C_chosen},
    "asked: minimax": {name: partial(_minimax, name) for name in MINIMAX},
}

#: Those of which there are courses in pieces, too.
AS_IF_LARGE = {
    "asked: by a sample": ("weights",),
    "asked: by chunks": ("chunks",),
    "asked: ridge": ("an intercept", "a weighted dense matrix", "blocks", "blocks, then chunks"),
    "asked: boosted": ("averaged", "weighted", "trees of workers"),
}


def asked(group: str) -> Iterator[tuple[str, Course]]:
    """Train as asked for; of the sparse learner the strongest penalties that leave weights, too."""
    for name, run in RUNS[group].items():
        yield name, run(Course())
    if group == "asked: in memory":
        for name in ("texts", "further"):
            alpha = largest_alpha(_data(name), memory_limit=1 << 30, fit_intercept=True)
            yield f"largest alpha, {name}", Course().end([], np.array([alpha]))
