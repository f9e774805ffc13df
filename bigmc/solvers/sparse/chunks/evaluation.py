"""Objective and gradient of the candidates at some weights: by columns, or with too many of them by rows."""

from __future__ import annotations

import numpy as np

from bigmc.errors import DataError
from bigmc.solvers.sparse.chunks.corrected_loss import evaluate
from bigmc.solvers.sparse.chunks.plan import ChunkPlan
from bigmc.solvers.sparse.chunks.rare_features import RareFeatures
from bigmc.solvers.sparse.chunks.stochastic_rounds import Point, evaluate_by_rows
from bigmc.solvers.sparse.chunks.task import ChunkTask
from bigmc.solvers.sparse.scratch.spill import Spill
from bigmc.solvers.sparse.state import Evaluated


def evaluated(
    task: ChunkTask, plan: ChunkPlan, spill: Spill, point: Point, rare: RareFeatures | None = None
) -> Evaluated:
    """Return what one reading of the columns finds; on the way the samples of rare features are collected."""
    if plan.goes_by_rows(len(spill.features)):
        return evaluate_by_rows(task, spill, point, plan.row_bytes)
    return evaluate(task, spill, *point, rare)


def reached(
    task: ChunkTask, plan: ChunkPlan, spill: Spill, point: Point, rare: RareFeatures | None = None
) -> Evaluated | None:
    """Evaluate weights that a round came to; None where steps were so long that losses are infinite."""
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            return evaluated(task, plan, spill, point, rare)
    except DataError:
        return None
