"""How every solver gets to its answer on small problems, step by step, and what memory plans say.

Another order of samples or other steps lead to the same optimum, but by another course, in more or fewer
passes. Solvers are called with plans of their own: through the public functions only data larger than these
would be divided.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import asked_courses
import numpy as np
import test_row_blocks as blocks
from course import Course, Step
from instances import far_columns, table
from planned import plans
from sampled_runs import corrected
from sampled_runs import made as sampled
from sparse_runs import run_of, solve
from test_candidate_columns import ROOMY, noisy
from test_chunk_rounds import PARTLY_HELD, made, run
from test_chunk_rounds import PLAN as LARGER_CHUNKS
from test_mixed_blocks import alone
from test_mixed_blocks import texts as sorted_texts
from test_stochastic_rounds import NARROW
from test_stochastic_start import ROOMY as STARTING
from test_stochastic_start import shuffled

from bigmc.engine import ThreadEngine
from bigmc.solvers import boosting
from bigmc.solvers.minimax import MinimaxParameters, solve_minimax
from bigmc.solvers.sparse import DualDescent
from bigmc.solvers.sparse.chunks import damping
from bigmc.solvers.sparse.ridge.mixed_blocks import mixed
from bigmc.solvers.sparse.ridge.row_blocks import descend_blocks
from bigmc.store.dataset import Dataset
from bigmc.store.weighting import Weighting

RECORDED = Path(__file__).with_name("courses.json")
"""Numbers of every step of every course: whole numbers, and others to seven digits."""

TFIDF = Weighting(l2=True, idf=True)

#: Name and options of `bigmc.solvers.sparse.solve`, all samples in memory.
IN_MEMORY: dict[str, dict[str, Any]] = {
    "group": {"alpha": 2e-3, "tol": 1e-4},
    "intercept": {"alpha": 2e-3, "tol": 1e-4, "fit_intercept": True},
    "few passes": {"alpha": 1e-3, "tol": 1e-9, "max_passes": 5},
    "log": {"alpha": 1e-3, "loss": "log_loss", "penalty": "l1", "fit_intercept": True},
    "tasks": {"alpha": 1e-3, "loss": "multitask_squared_hinge", "penalty": "sparse_group", "l1_ratio": 0.3},
    "huber": {"alpha": 1e-3, "loss": "huber_hinge", "penalty": "l1/linf", "ridge": 1e-3},
    "ridge": {"alpha": 0.0, "ridge": 1e-3, "fit_intercept": True},
    "tight": {"alpha": 2e-3, "tol": 1e-7, "ridge": 1e-4},
    "constant steps": {"alpha": 2e-3, "tol": 1e-2, "step": "constant", "max_passes": 6},
}

PLAN = replace(LARGER_CHUNKS, chunk_bytes=40_000)

#: Name, plan and options of a run over chunks of the samples.
IN_CHUNKS: dict[str, tuple[Any, dict[str, Any]]] = {
    "in the file": (PLAN, {"alpha": 1e-3, "tol": 1e-4}),
    "partly held": (PARTLY_HELD, {"alpha": 2e-3, "fit_intercept": True}),
    "one chunk": (replace(PLAN, chunk_bytes=1 << 30, free_bytes=1 << 20), {"fit_intercept": True}),
    "parts": (replace(PLAN, shard_parts=3, held_shard_bytes=8000), {"alpha": 2e-3, "fit_intercept": True}),
    "log": (PARTLY_HELD, {"loss": "log_loss", "penalty": "l1", "ridge": 1e-3, "fit_intercept": True}),
    "ridge": (PLAN, {"alpha": 0.0, "ridge": 0.05}),
    "rare features": (
        replace(PLAN, free_bytes=1 << 20),
        {"alpha": 1e-3, "tol": 1e-6, "max_passes": 6},
    ),
}

#: The same where candidates change, or are so many that rounds take stochastic steps.
MANY_CANDIDATES: dict[str, tuple[Any, dict[str, Any]]] = {
    "some of use": (ROOMY, {"alpha": 0.1, "tol": 1e-4}),
    "few places": (replace(PLAN, free_bytes=60_000), {"alpha": 5e-2, "tol": 1e-3, "max_passes": 6}),
    "stochastic": (replace(NARROW, free_bytes=40_000), {"alpha": 8e-2, "max_passes": 6}),
}
STOCHASTIC: dict[str, tuple[Any, dict[str, Any]]] = {
    "start": (STARTING, {"loss": "log_loss", "penalty": "l1", "fit_intercept": True}),
    "rounds": (NARROW, {"alpha": 5e-3, "loss": "log_loss", "penalty": "l1", "max_passes": 6}),
    "intercept": (NARROW, {"alpha": 1e-3, "ridge": 1e-3, "fit_intercept": True, "max_passes": 8}),
}

#: Name and options of the boosted learner.
BOOSTED: dict[str, dict[str, Any]] = {
    "stumps": {"C": 1e3, "max_depth": 1, "n_rounds": 8, "validation_fraction": 0.2, "patience": 99},
    "trees": {"C": 1e3, "max_depth": 3, "n_rounds": 4, "pool": 6},
    "trees in blocks": {"C": 1e3, "max_depth": 2, "n_rounds": 3},
    "rays": {"C": 1e3, "family": "ray", "n_rounds": 8},
    "to the end": {"C": 30.0, "max_depth": 1, "n_rounds": 40, "pool": 3},
    "log loss": {"C": 300.0, "max_depth": 1, "n_rounds": 6, "loss": "log_loss"},
    "wrong labels": {"C": 300.0, "max_depth": 2, "n_rounds": 4, "loss": "log_loss", "label_noise": 0.2},
    "shared": {"C": 1e3, "max_depth": 1, "n_rounds": 5, "learners": "shared"},
    "drawn columns": {"C": 1e3, "max_depth": 2, "n_rounds": 4, "column_share": 0.4, "learning_rate": 0.5},
}

#: Name and options of the minimax learner.
MINIMAX: dict[str, dict[str, Any]] = {
    "small": {"lambda0": 0.05, "tol": 1e-6},
    "without intervals": {"lambda0": 0.0, "fit_intercept": False, "tol": 1e-4},
    "few at once": {"lambda0": 0.02, "m_max": 8, "n_max": 30, "k_max": 12},
    "texts": {"lambda0": 0.01, "k_max": 5},
}

#: Sizes from which on solvers divide their work, in a module below `bigmc.solvers`, and so small that these
#: problems are divided.
SMALL: dict[str, dict[str, int]] = {
    "boosting.pricing": {"_HISTOGRAM": 64, "_PART_ROWS": 100},
    "boosting.rounds": {"_ENOUGH_COLUMNS": 6},
    "boosting.restricted_master": {"_TILE_ROWS": 64},
    "boosting.tables": {"TABLE_BYTES": 4000, "_WORTH_LISTS": 0},
    "boosting.tree_growth": {"_SIDE_BY_SIDE_BYTES": 4000, "_ANSWER_NODES": 900},
    "minimax.iterations": {"_FIRST_ROWS": 60, "_FIRST_COMPONENTS": 20},
    "minimax.linear_program": {"INTERIOR_ENTRIES": 500},
    "minimax.method_choice": {"_QUICK": 0},
    "sparse.chunks.certifying_pass": {"_ROWS_AT_ONCE": 100, "PIECE_FEATURES": 9},
    "sparse.chunks.feasible_dual": {"_MOST_ENTRIES": 1500, "_FREE_VISITS": 2000},
    "sparse.chunks.rare_features": {"PIECE_ROWS": 60},
    "sparse.chunks.stochastic_rounds": {"_ROWS": 50},
    "sparse.coefficients": {"_SLAB_BYTES": 1000},
    "sparse.ridge.block_reader": {"PIECE_ENTRIES": 900, "PIECE_FEATURES": 90},
    "sparse.in_memory": {"MANY_ENTRIES": 5000},
    "sparse.margins": {"MOST_PAIRED_CLASSES": 4},
    "sparse.problem": {"_PART_ROWS": 200, "_PRODUCT_ROWS": 60},
    "sparse.ridge.dense_problem": {"_AT_ONCE": 150},
    "sparse.ridge.dual_descent": {"_COPIED": 300},
    "sparse.ridge.duals": {"_PIECE_SCORES": 500, "ROWS_AT_ONCE": 200},
    "sparse.ridge.row_order": {"ENTRIES_AT_ONCE": 900, "_COLUMNS_AT_ONCE": 90},
    "sparse.run": {"_SMALL_VISITS": 3000},
    "sparse.scratch.layer_reader": {"PIECE_ENTRIES": 2000, "PIECE_FEATURES": 9},
    "sparse.scratch.layer_writer": {"PIECE_ENTRIES": 2000},
    "sparse.scratch.spill": {"PIECE_ENTRIES": 2000, "PIECE_FEATURES": 9},
    "sparse.screening": {"_CHUNK": 50},
    "sparse.steps.newton": {"_ENTRIES_ALONE": 500, "_PART_NUMBERS": 40, "_DIRECT_ENTRIES": 0},
    "sparse.steps.preconditioner": {"_ENTRIES": 300},
    "sparse.steps.sweeps": {"_NEWTON_ENTRIES": 500},
    "sparse.steps.visits": {"_WORTH_IT": 200},
    "sparse.working_set.projection": {"_CHEAP_ENTRIES": 3000},
    "sparse.working_set.rounds": {"_FEW_ENTRIES": 0},
}


@cache
def _texts() -> Dataset:
    """Return counts of words, weighted as texts are."""
    return made(n=1500, weighting=TFIDF)[1]


def in_memory() -> Iterator[tuple[str, Course]]:
    """Train with all samples in memory."""
    for name, options in IN_MEMORY.items():
        yield name, _solved(_texts(), **options)
    weights = np.random.default_rng(2).integers(0, 3, 1500).astype(float)
    yield "weights", _solved(_texts(), alpha=2e-3, sample_weight=weights, fit_intercept=True, ridge=1e-3)
    yield "sets", _solved(made(n=1500, sets=True)[1], alpha=5e-2, loss="multilabel_ranking")
    yield "screened", _solved(noisy(), alpha=0.1, tol=1e-6)
    yield (
        "centred",
        _solved(
            Dataset.from_arrays(*far_columns(), shard_rows=150), alpha=1e-2, fit_intercept=True, tol=1e-6
        ),
    )


def _solved(dataset: Dataset, **options: Any) -> Course:
    course = Course()
    own: dict[str, Any] = {"engine": ThreadEngine(1), "checkpoint": course, "progress": course.tell}
    found = solve(dataset, memory_limit=1 << 30, **own, **{"tol": 1e-3, **options})
    return course.end(found.history, found.features, found.coef, found.intercept)


def in_chunks() -> Iterator[tuple[str, Course]]:
    """Train on chunks of the samples."""
    for name, (plan, options) in IN_CHUNKS.items():
        yield name, _run(_texts(), plan, **options)
    for name, (plan, options) in MANY_CANDIDATES.items():
        yield f"candidates {name}", _run(noisy(), plan, **options)
    for name, (plan, options) in STOCHASTIC.items():
        yield f"stochastic {name}", _run(shuffled(weighting=TFIDF), plan, **options)
    sets = made(n=1500, sets=True)[1]
    yield "sets", _run(sets, PLAN, alpha=5e-2, loss="multilabel_ranking")
    plan = replace(NARROW, free_bytes=200_000)
    yield "stochastic with rare features", _run(noisy(800), plan, alpha=8e-2)
    with patch.multiple(damping, _SWEEPS=1e-3, _LEAST_OF_SWEEPS=1e-3):  # so that trials are refused
        yield "hardly damped", _run(_texts(), PLAN, alpha=1e-3, tol=1e-4, fit_intercept=True, max_passes=2)


def _run(dataset: Dataset, plan: Any, **options: Any) -> Course:
    course = Course()
    state, _ = run(dataset, plan, course, threads=1, progress=course.tell, **options)
    return course.end(state.history, state.coef.features, state.coef.rows, state.intercept)


def on_a_sample() -> Iterator[tuple[str, Course]]:
    """Train on half of the samples, corrected by passes over all."""
    for loss, intercept in (("squared_hinge", False), ("multitask_squared_hinge", True)):
        course = Course()
        rounds, _ = corrected(
            sampled(n=3000)[2], 0.5, tol=1e-5, loss=loss, intercept=intercept, checkpoint=course
        )
        state = rounds.state
        yield loss, course.end(state.history, state.coef.features, state.coef.rows, state.intercept)


def by_the_dual() -> Iterator[tuple[str, Course]]:
    """Descend along dual coordinates, of all samples, or of one block of them after the other."""
    dual = DualDescent(_texts(), ThreadEngine(1), seed=3)
    for ridge in (1e-3, 3e-4):
        dual.descend(ridge, 1e-2, 30)
        weights = np.concatenate(list(dual.weights()))
        yield (
            f"ridge {ridge}",
            Course().end([{"gap": dual.gap, "epochs": dual.n_epochs}], weights, dual.intercept),
        )
    _, _, data = blocks.texts(weighting=TFIDF)
    for name, plan in (
        ("whole shards", blocks.blocks(data)),
        ("parts of shards", blocks.parts_of_shards(data, duals_in_file=True)),
    ):
        yield name, _by_blocks(data, plan, fit_intercept=True)
    by_class = sorted_texts("sorted")
    yield "mixed blocks", _by_blocks(by_class, mixed(alone(by_class, 320_000), by_class))


def _by_blocks(data: Dataset, plan: Any, **options: Any) -> Course:
    course = Course()
    own = {**blocks.RIDGE, "engine": ThreadEngine(1), "checkpoint": course, "progress": course.tell}
    asked = run_of(data, ridge=2.0 / data.n_samples, tol=1e-2, max_passes=8, **own, **options)
    state = descend_blocks(asked, plan, None).state
    return course.end(state.history, state.coef.features, state.coef.rows, state.intercept)


def boosted() -> Iterator[tuple[str, Course]]:
    """Train the boosted learner."""
    yield from ((name, _boosted(name)) for name in BOOSTED)


def _boosted(name: str) -> Course:
    course, dataset = Course(), Dataset.from_arrays(*table(), shard_rows=150)
    asked = boosting.BoostingOptions(**{"tol": 1e-9, **BOOSTED[name]})
    block_bytes = 4000 if name.endswith("blocks") else None
    found = boosting.solve(dataset, asked, 1 << 28, course.context, block_bytes=block_bytes)
    return course.end(found.history, found.thresholds, *found.stages.arrays().values())


def minimax() -> Iterator[tuple[str, Course]]:
    """Train the minimax learner: by linear programs, and where they are too large by first-order steps."""
    yield from ((name, _minimax(name)) for name in MINIMAX)
    with _small():
        yield from ((f"{name} as if large", _minimax(name)) for name in ("small", "few at once", "texts"))


def _minimax(name: str) -> Course:
    course = Course()
    dataset = _texts() if name == "texts" else Dataset.from_arrays(*table(), shard_rows=150)
    found = solve_minimax(dataset, MinimaxParameters(**MINIMAX[name]), 1 << 29, course.context)
    weights = found.weights
    return course.end(found.history, weights.features, weights.coef, weights.intercept)


@contextmanager
def _small() -> Iterator[None]:
    """Let solvers divide their work from small sizes on."""
    with ExitStack() as stack:
        for module, sizes in SMALL.items():
            stack.enter_context(patch.multiple(import_module(f"bigmc.solvers.{module}"), **sizes))
        yield


def as_if_large() -> Iterator[tuple[str, Course]]:
    """Train as on large data, whose work is divided."""
    with _small():
        for name in ("group", "log", "tight"):
            yield name, _solved(_texts(), **IN_MEMORY[name])
        for name in ("partly held", "parts"):
            yield name, _run(_texts(), IN_CHUNKS[name][0], **IN_CHUNKS[name][1])
        plan, options = MANY_CANDIDATES["stochastic"]
        yield "stochastic", _run(noisy(), plan, **options)
        _, _, data = blocks.texts(weighting=TFIDF)
        yield "parts of shards", _by_blocks(data, blocks.parts_of_shards(data), fit_intercept=True)
        for name in ("stumps", "trees", "drawn columns"):
            yield f"boosted {name}", _boosted(name)
        for group, names in asked_courses.AS_IF_LARGE.items():
            for name in names:
                yield f"{group}, {name}", asked_courses.RUNS[group][name](Course())


GROUPS = {
    "in memory": in_memory,
    "in chunks": in_chunks,
    "on a sample": on_a_sample,
    "by the dual": by_the_dual,
    "boosted": boosted,
    "minimax": minimax,
    "as if large": as_if_large,
    **{f"plans from shape {first}": partial(plans, first, first + 8) for first in range(0, 64, 8)},
    **{group: partial(asked_courses.asked, group) for group in asked_courses.RUNS},
}


@cache
def courses(group: str) -> dict[str, Course]:
    """Return the runs of a group."""
    return dict(GROUPS[group]())


def course_digests(group: str) -> dict[str, str]:
    """Return the SHA-256 of everything that the runs of a group leave."""
    return {name: hashlib.sha256(own.content).hexdigest()[:16] for name, own in courses(group).items()}


def course_steps(group: str) -> dict[str, list[Step]]:
    """Return the numbers of every step of the runs of a group."""
    return {name: own.steps for name, own in courses(group).items()}


def record_courses() -> None:
    """Write the numbers of every step, one step a line."""
    groups = []
    for group in GROUPS:
        own = []
        for name, steps in course_steps(group).items():
            lines = ",\n".join(json.dumps([_short(value) for value in step.values()]) for step in steps)
            own.append(f"{json.dumps(name)}: [\n{lines}]")
        groups.append(f"{json.dumps(group)}: {{\n" + ",\n".join(own) + "}")
    RECORDED.write_text("{" + ",\n".join(groups) + "}\n")


def _short(value: float) -> float:
    return int(value) if value == int(value) else float(f"{value:.7g}")
