"""How every solver gets to its answer on small problems, pass by pass, and what memory plans say.

Another order of samples or other steps lead to the same optimum, but to models with other bytes, in more or
fewer passes. Solvers are called with plans of their own: through the public functions only data larger than
these files would be divided.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, is_dataclass, replace
from typing import Any

import numpy as np
from solvers.sampled_runs import corrected
from solvers.sampled_runs import made as sampled
from solvers.test_chunk_rounds import PARTLY_HELD, made, run
from solvers.test_chunk_rounds import PLAN as LARGER_CHUNKS
from sparse_runs import solve

from bigmc.budget import MemoryLimitError
from bigmc.engine import ThreadEngine
from bigmc.solvers import boosting
from bigmc.solvers.boosting.memory_plan import plan_memory as boosting_plan
from bigmc.solvers.boosting.options import CutKind
from bigmc.solvers.loop import RunContext
from bigmc.solvers.minimax import MinimaxParameters, solve_minimax
from bigmc.solvers.minimax import memory_plan as minimax_plan
from bigmc.solvers.sparse import DualDescent
from bigmc.solvers.sparse.chunks.plan import ChunkPlan, plan_chunks
from bigmc.solvers.sparse.memory_plan import Size, plan_memory, plan_sample, plan_start
from bigmc.solvers.sparse.state import State
from bigmc.store.dataset import Dataset
from bigmc.store.weighting import Weighting

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
}

#: Name and options of the boosted learner.
BOOSTED: dict[str, dict[str, Any]] = {
    "stumps": {"C": 1e3, "max_depth": 1, "n_rounds": 8, "validation_fraction": 0.2, "patience": 99},
    "trees": {"C": 1e3, "max_depth": 3, "n_rounds": 4, "pool": 6},
    "trees in blocks": {"C": 1e3, "max_depth": 2, "n_rounds": 3},
    "rays": {"C": 1e3, "family": "ray", "n_rounds": 8},
}


#: Name and options of the minimax learner.
MINIMAX: dict[str, dict[str, Any]] = {
    "small": {"lambda0": 0.05, "tol": 1e-6},
    "without intervals": {"lambda0": 0.0, "fit_intercept": False, "tol": 1e-4},
    "few at once": {"lambda0": 0.02, "m_max": 8, "n_max": 30, "k_max": 12},
    "texts": {"lambda0": 0.01, "k_max": 5},
}


def in_memory() -> Iterator[tuple[str, bytes]]:
    """Train with all samples in memory."""
    _, data = made(n=1500, weighting=Weighting(l2=True, idf=True))
    for name, options in IN_MEMORY.items():
        found = solve(data, memory_limit=1 << 30, engine=ThreadEngine(1), **{"tol": 1e-3, **options})
        yield name, _bytes(found.history, found.features, found.coef, found.intercept)


def in_chunks() -> Iterator[tuple[str, bytes]]:
    """Train on chunks of the samples."""
    _, data = made(n=1500, weighting=Weighting(l2=True, idf=True))
    for name, (plan, options) in IN_CHUNKS.items():
        yield name, _of_state(run(data, plan, threads=1, **options)[0])


def on_a_sample() -> Iterator[tuple[str, bytes]]:
    """Train on half of the samples, corrected by passes over all."""
    for loss, intercept in (("squared_hinge", False), ("multitask_squared_hinge", True)):
        rounds, _ = corrected(sampled(n=3000)[2], 0.5, tol=1e-5, loss=loss, intercept=intercept)
        yield loss, _of_state(rounds.state)


def by_the_dual() -> Iterator[tuple[str, bytes]]:
    """Descend along dual coordinates."""
    _, data = made(n=1500, weighting=Weighting(l2=True, idf=True))
    dual = DualDescent(data, ThreadEngine(1), seed=3)
    for ridge in (1e-3, 3e-4):
        dual.descend(ridge, 1e-2, 30)
        yield (
            f"ridge {ridge}",
            _bytes(
                [{"gap": dual.gap, "epochs": dual.n_epochs}],
                np.concatenate(list(dual.weights())),
                dual.intercept,
            ),
        )


def boosted() -> Iterator[tuple[str, bytes]]:
    """Train the boosted learner."""
    X, y = _table()
    for name, options in BOOSTED.items():
        dataset = Dataset.from_arrays(X, y, shard_rows=150)
        asked = boosting.BoostingOptions(tol=1e-9, **options)
        blocks = 4000 if name.endswith("blocks") else None
        found = boosting.solve(dataset, asked, 1 << 28, RunContext(ThreadEngine(1)), block_bytes=blocks)
        yield name, _bytes(found.history, found.thresholds, *found.stages.arrays().values())


def minimax() -> Iterator[tuple[str, bytes]]:
    """Train the minimax learner: by linear programs, and where they are too large by first-order steps."""
    X, y = _table()
    _, texts = made(n=1500, weighting=Weighting(l2=True, idf=True))
    for name, options in MINIMAX.items():
        dataset = texts if name == "texts" else Dataset.from_arrays(X, y, shard_rows=150)
        found = solve_minimax(dataset, MinimaxParameters(**options), 1 << 29, RunContext(ThreadEngine(1)))
        weights = found.weights
        yield name, _bytes(found.history, weights.features, weights.coef, weights.intercept)


def _table() -> tuple[Any, Any]:
    """Return numbers, some of them 0, and three classes."""
    generator = np.random.default_rng(1)
    X = np.round(generator.normal(size=(400, 12)), 1) * (generator.random((400, 12)) < 0.7)
    return X, (X[:, 0] > 0.2).astype(int) + (X[:, 1] * X[:, 2] > 0)


def _of_state(state: State) -> bytes:
    return _bytes(state.history, state.coef.features, state.coef.rows, state.intercept)


def _bytes(history: Any, *arrays: Any) -> bytes:
    """Return what a run leaves, without times."""
    told = [{key: value for key, value in entry.items() if "seconds" not in key} for entry in history]
    return json.dumps(told, sort_keys=True, default=float).encode() + b"".join(
        np.ascontiguousarray(array).tobytes() for array in arrays
    )


class _Shape:
    """As much of a dataset as the plan of the boosted learner asks for."""

    dtype = np.dtype(np.float32)

    def __init__(self, n_samples: int, n_features: int, n_classes: int, filled: float) -> None:
        self.n_samples, self.n_features, self.n_classes = n_samples, n_features, n_classes
        steps = np.arange(1, n_features + 1)
        self._nnz = np.maximum(n_samples * filled / steps**0.5, 1).astype(np.int64)
        self.nnz, self.n_shards = int(self._nnz.sum()), -(-n_samples // 65_536)

    def column_nnz(self) -> Any:
        return self._nnz

    def plan(self, _: int) -> list[tuple[int, int]]:
        return [(0, self.n_features)]


#: Samples, features, classes and the share of the largest column that is stored.
SHAPES = [(150, 4, 3, 1.0), (900_000, 50, 10, 1.0), (63_000, 1 << 18, 50, 0.01), (20_000, 20, 900, 1.0)]
LIMITS = [64_000_000, 150_000_000, 400_000_000, 2_000_000_000, 16_000_000_000]
MORE: list[dict[str, Any]] = [{}, {"tol": 1e-6, "weighted": True, "column_scaled": True, "n_certain": 1000}]


def plans() -> Iterator[tuple[str, bytes]]:
    """Divide memory limits for some shapes."""
    for shape, limit in itertools.product(SHAPES, LIMITS):
        data = _Shape(*shape)
        asked = [_sparse_plans(replace(_size(data), **more), limit) for more in MORE]
        asked += [_boosted_plans(data, limit), _minimax_plan(data, limit)]
        yield f"{shape} at {limit}", json.dumps(asked, sort_keys=True, default=str).encode()


def _size(data: _Shape) -> Size:
    return Size(
        n_samples=data.n_samples,
        n_features=data.n_features,
        n_classes=data.n_classes,
        nnz=data.nnz,
        n_shards=data.n_shards,
        width=-(-data.n_classes // 8) * 8,
        itemsize=4,
        tol=1e-3,
        largest_shard=data.nnz // data.n_shards,
        n_frequent=data.n_features // 50,
    )


def _sparse_plans(size: Size, limit: int) -> list[Any]:
    rows = min(size.n_samples, 65_536)
    return [
        _answer(lambda: plan_memory(limit, size)),
        _answer(lambda: plan_start(limit, size)),
        _answer(lambda: plan_sample(limit, 2, size.n_features // 2, rows, size)),
        _answer(lambda: _of_chunks(plan_chunks(limit, 4, rows, size))),
    ]


def _of_chunks(plan: ChunkPlan) -> list[Any]:
    told: list[Any] = [asdict(plan)]
    for held, n, n_chunks in itertools.product((0, plan.free_bytes // 3), (20, 3000), (1, 5)):
        gradients = plan.most_gradients(held)
        told += [plan.n_workers(held, gradients), gradients, plan.writer_bytes(held, n)]
        told += [plan.most_held(n, n_chunks), plan.holds(held, n, n_chunks), plan.most_rare(n, held)]
        told += [plan.n_chunks(1000 * n, n)]
    return told


def _boosted_plans(data: Any, limit: int) -> list[Any]:
    kinds = ((1, CutKind.STUMP), (4, CutKind.STUMP), (1, CutKind.RAY))
    return [
        _answer(lambda d=depth, k=kind: boosting_plan(data, limit=limit, tol=1e-3, depth=d, cut_kind=k))
        for depth, kind in kinds
    ]


def _minimax_plan(data: _Shape, limit: int) -> Any:
    shape = minimax_plan.Shape(
        n_samples=data.n_samples,
        n_psi=min(data.n_features, 5000),
        n_classes=data.n_classes,
        row_entries=60.0,
        value_bytes=0 if data.n_features > 100 else 8,
        shard_rows=min(data.n_samples, 65_536),
        column_bytes=6 * data.n_samples,
    )
    return _answer(lambda: minimax_plan.plan_memory(shape, limit))


def _answer(plan: Callable[[], Any]) -> Any:
    """Return a plan, or how it is refused."""
    try:
        found = plan()
    except MemoryLimitError as error:
        return str(error)
    return asdict(found) if is_dataclass(found) else found


GROUPS = {
    "in memory": in_memory,
    "in chunks": in_chunks,
    "on a sample": on_a_sample,
    "by the dual": by_the_dual,
    "boosted": boosted,
    "minimax": minimax,
    "plans": plans,
}


def course_digests(group: str) -> dict[str, str]:
    """Return the SHA-256 of everything in a group."""
    return {name: hashlib.sha256(content).hexdigest()[:16] for name, content in GROUPS[group]()}
