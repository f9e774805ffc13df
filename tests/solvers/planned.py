"""How memory limits are divided: what every plan says of data of many sizes."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, is_dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
from course import Course

from bigmc.budget import MemoryLimitError, PlanTooLargeError, parse_bytes
from bigmc.solvers.boosting.memory_plan import keeps_codes
from bigmc.solvers.boosting.memory_plan import plan_memory as boosting_plan
from bigmc.solvers.boosting.options import CutKind
from bigmc.solvers.minimax import memory_plan as minimax_plan
from bigmc.solvers.sparse import DualDescent
from bigmc.solvers.sparse.chunks.plan import ChunkPlan, plan_chunks
from bigmc.solvers.sparse.memory_plan import Size, plan_memory, plan_sample, plan_start
from bigmc.solvers.sparse.ridge import dense_descent, mixed_blocks
from bigmc.solvers.sparse.ridge.block_plan import BlockPlan, plan_blocks
from bigmc.solvers.sparse.ridge.mixed_blocks import mixed

#: Bytes, of which the smallest are enough for little data only.
LIMITS = [2_500_000, 20_000_000, 64_000_000, 150_000_000, 400_000_000, 2_000_000_000, 16_000_000_000]


class _Shape:
    """As much of a dataset as plans ask for; its samples are sorted by class."""

    def __init__(self, n_samples: int, n_features: int, n_classes: int, filled: float, dtype: str) -> None:
        self.n_samples, self.n_features, self.n_classes = n_samples, n_features, n_classes
        steps = np.arange(1, n_features + 1)
        self._nnz = np.maximum(n_samples * filled / steps**0.5, 1).astype(np.int64)
        self.nnz, self.n_shards, self.dtype = int(self._nnz.sum()), -(-n_samples // 65_536), np.dtype(dtype)
        self.entry_bytes = 2 + self.dtype.itemsize
        self.base = np.linspace(0, n_samples, self.n_shards + 1).astype(np.int64)
        ends = np.diff(self.base), np.diff(np.linspace(0, self.nnz, self.n_shards + 1).astype(np.int64))
        self.shards = [SimpleNamespace(n_rows=int(n), nnz=int(nnz)) for n, nnz in zip(*ends, strict=True)]

    def column_nnz(self) -> Any:
        return self._nnz

    def most_labels(self) -> int:
        return 2

    def plan(self, block_bytes: int) -> list[tuple[int, int]]:
        """Cut the features in two where one block does not hold all entries."""
        half = self.n_features if self.nnz <= block_bytes else self.n_features // 2
        return [(lo, hi) for lo, hi in ((0, half), (half, self.n_features)) if lo < hi]


def _shapes() -> Iterator[_Shape]:
    """Yield tables, texts, and data drawn from everything between one kilobyte and a terabyte."""
    yield _Shape(150, 4, 3, 1.0, "f4")
    yield _Shape(900_000, 50, 10, 1.0, "f4")
    yield _Shape(63_000, 1 << 18, 50, 0.01, "f4")
    yield _Shape(20_000, 20, 900, 1.0, "f8")
    draw = np.random.default_rng(0)
    for _ in range(60):
        n_samples, n_features = int(10 ** draw.uniform(2, 7.5)), int(10 ** draw.uniform(0.5, 5.5))
        filled = min(1.0, 10 ** draw.uniform(-3, 0.5))
        yield _Shape(
            n_samples, n_features, int(10 ** draw.uniform(0.4, 3)), filled, draw.choice(["i1", "f4"])
        )


def plans(first: int, last: int) -> Iterator[tuple[str, Course]]:
    """Divide memory limits for some shapes of data: of every plan a digest."""
    for number, shape in itertools.islice(enumerate(_shapes()), first, last):
        course = Course()
        for name, plan in _asked(shape, number).items():
            told = [_answer(plan, limit) for limit in LIMITS]
            # little more than the least limit a plan is all that fits, and less is refused
            needed = [_least(answer) for answer in told if isinstance(answer, MemoryLimitError)]
            told += [_answer(plan, limit) for least in needed for limit in (least, 0.99 * least, 1.2 * least)]
            digest = hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()
            course.steps.append({name: float(int(digest[:12], 16))})
        yield f"shape {number}", course


def _asked(shape: _Shape, number: int) -> dict[str, Callable[[int], Any]]:
    """Return the plans for a shape, by their names."""
    size, rows = _size(shape, number), min(shape.n_samples, 65_536)
    asked: dict[str, Callable[[int], Any]] = {
        "all in memory": lambda limit: plan_memory(limit, size),
        "a start": lambda limit: plan_start(limit, size),
        "a sample": lambda limit: plan_sample(limit, 2, size.n_features // 2, rows, size),
        "chunks": lambda limit: _of_chunks(plan_chunks(limit, 4, rows, size)),
        "minimax": lambda limit: _minimax_plan(shape, limit),
        "ridge": lambda limit: _ridge(shape, limit, weighted=bool(number % 2)),
    }
    for depth, kind in ((1, CutKind.STUMP), (4, CutKind.STUMP), (1, CutKind.RAY)):
        asked[f"boosting {depth} {kind.value}"] = partial(_boosted, shape, depth=depth, kind=kind)
    return asked


def _size(shape: _Shape, number: int) -> Size:
    """Return a size; every second one is that of a problem with everything it may have."""
    more: dict[str, Any] = {}
    if number % 2:
        more = {"weighted": True, "column_scaled": True, "n_certain": min(1000, shape.n_features)}
        more |= {"tol": 1e-6, "n_kept": max(shape.n_classes - 1, 1), "n_beside": 2 * shape.n_classes}
        more |= {"most_labels": 3}
    own: dict[str, Any] = {
        "n_samples": shape.n_samples,
        "n_features": shape.n_features,
        "n_classes": shape.n_classes,
        "nnz": shape.nnz,
        "n_shards": shape.n_shards,
        "width": -(-shape.n_classes // 8) * 8,
        "itemsize": shape.dtype.itemsize,
        "tol": 1e-3,
        "largest_shard": shape.nnz // shape.n_shards,
        "n_frequent": shape.n_features // 50,
    }
    return Size(**{**own, **more})


def _of_chunks(plan: ChunkPlan) -> list[Any]:
    told: list[Any] = [asdict(plan), plan.most_by_rows, plan.row_bytes]
    for held, n, n_chunks in itertools.product((0, plan.free_bytes // 3), (20, 3000), (1, 5)):
        gradients = plan.most_gradients(held)
        told += [plan.n_workers(held, gradients), gradients, plan.writer_bytes(held, n)]
        told += [plan.most_held(n, n_chunks), plan.holds(held, n, n_chunks), plan.most_rare(n, held)]
        told += [plan.n_chunks(1000 * n, n), plan.most_moved(n), plan.goes_by_rows(n)]
        told += [plan.beside_workers(held, n)]
        reading = plan.reading(held, n, gradients)
        told += [reading, reading.most_features, reading.fitting(np.arange(500.0)), reading.held_bytes(n)]
    return told


def _boosted(shape: Any, limit: int, depth: int, kind: CutKind) -> list[Any]:
    plan = boosting_plan(shape, limit=limit, tol=1e-3, depth=depth, cut_kind=kind, left_out=depth - 1)
    in_use = plan.memory.free // 2
    told = [asdict(plan), plan.n_features, plan.residency, plan.pool(40, shape.n_classes, in_use)]
    return [*told, plan.limit_for(2 * in_use), keeps_codes(shape, limit, depth, 1e-3, share=0.3)]


def _ridge(shape: Any, limit: int, weighted: bool) -> list[Any]:
    """Return what each solver of ridge problems takes, and the blocks of samples of the one out of core."""
    weights = np.ones(1) if weighted else None
    task = SimpleNamespace(dataset=shape, sample_weight=weights)
    limits = SimpleNamespace(memory=limit, max_passes=2)
    run: Any = SimpleNamespace(task=task, limits=limits, takes_duals=True)
    told: list[Any] = [dense_descent.is_dense(run.task), dense_descent.memory(run.task, 2)]
    told += [DualDescent.memory(shape), DualDescent.memory_of_feature(shape.n_classes)]
    with patch.object(mixed_blocks, "classes_differ", lambda dataset: True):
        for plan in filter(None, [plan_blocks(run)]):
            told += [[_of_blocks(own) for own in (plan, mixed(plan, shape))]]
    return told


def _of_blocks(plan: BlockPlan) -> list[Any]:
    blocks = [[block.shards[0], block.shards[-1], block.start, block.stop] for block in plan.blocks]
    return [len(blocks), blocks[:9], plan.duals_in_file, plan.block_bytes, plan.cuts[:9], plan.turned_bytes]


def _minimax_plan(shape: _Shape, limit: int) -> Any:
    own = minimax_plan.Shape(
        n_samples=shape.n_samples,
        n_psi=min(shape.n_features, 5000),
        n_classes=shape.n_classes,
        row_entries=60.0,
        value_bytes=0 if shape.n_features > 100 else 8,
        shard_rows=min(shape.n_samples, 65_536),
        column_bytes=6 * shape.n_samples,
    )
    return minimax_plan.plan_memory(own, limit)


def _answer(plan: Callable[[int], Any], limit: float) -> Any:
    """Return a plan, or how it is refused."""
    try:
        found = plan(int(limit))
    except MemoryLimitError as error:
        return error
    return asdict(found) if is_dataclass(found) else found


def _least(error: MemoryLimitError) -> int:
    """Return the bytes that a refusal names as what is needed, at least."""
    if isinstance(error, PlanTooLargeError):
        return error.needed
    return parse_bytes(error.cure.removeprefix("give --memory ").removesuffix(" or more"))
