"""Training of the sparse linear classifier: plan the memory, find where to start, go round until done.

Blondel, Seki, Uehara, "Block coordinate descent algorithms for large-scale sparse multiclass
classification", Machine Learning 93 (2013); what a round does is in `bigmc.solvers.sparse.rounds`. Data that
does not fit into memory starts from the weights of a sample that does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import Engine, ThreadEngine
from bigmc.errors import BigmcError, DataError
from bigmc.objectives import objective
from bigmc.progress import Progress, ProgressCallback, silent
from bigmc.solvers.certificate import Certificate
from bigmc.solvers.checkpoint import Checkpoint
from bigmc.solvers.sparse.columns import BlockSource, cut_ranges
from bigmc.solvers.sparse.plan import SolverPlan, plan_memory, sample_share
from bigmc.solvers.sparse.problem import Problem
from bigmc.solvers.sparse.rounds import Rounds
from bigmc.solvers.sparse.state import Start, State
from bigmc.solvers.sparse.sweeps import Sweeper
from bigmc.store.dataset import Dataset
from bigmc.store.sample import draw_rows

STEPS = ("line_search", "constant")

#: Entries looked at between two passes at most: a pass costs as much as looking at all entries once.
_VISITS_PER_PASS = 5
_SMALL_VISITS = 20_000_000
#: Share of the memory limit for training on a sample: the dataset keeps its own counts meanwhile.
_SAMPLE_MEMORY = 0.75
#: Gap to reach on a sample: the optimum of all samples is further away than that.
_SAMPLE_TOL = 1e-2


@dataclass(frozen=True)
class Solution:
    """Weights and the proof of how good they are.

    Attributes
    ----------
    features : int64 array of shape (n_nonzero,)
        Features with non-zero weights, increasing.
    coef : float64 array of shape (n_nonzero, n_classes)
    intercept : float64 array of shape (n_classes,)
    objective : float
    certificate : Certificate
    n_iter : int
        Sweeps.
    n_passes : float
        Entries passed over in whole passes and streamed sweeps, in units of all entries.
    history : list of dict
        ``n_passes, n_iter, objective, lower, gap, violation, largest_norm, n_nonzero, bytes_read`` at every
        certificate.
    bytes_read : int
        Decoded bytes read from the shards.
    converged : bool
        The gap reached the tolerance.
    column_scale : float32 array of shape (n_features,) or None
        Scale of the columns the weights belong to (idf weighting).
    plan : SolverPlan
        What was kept in memory.
    """

    features: NDArray[np.int64]
    coef: NDArray[np.float64]
    intercept: NDArray[np.float64]
    objective: float
    certificate: Certificate
    n_iter: int
    n_passes: float
    history: list[dict[str, float]]
    bytes_read: int
    converged: bool
    column_scale: NDArray[np.float32] | None
    plan: SolverPlan


def solve(
    dataset: Dataset,
    *,
    alpha: float,
    memory_limit: int,
    loss: str = "squared_hinge",
    penalty: str = "l1/l2",
    l1_ratio: float | None = None,
    ridge: float = 0.0,
    fit_intercept: bool = False,
    tol: float = 1e-3,
    max_passes: float = 100,
    seed: int = 0,
    step: str = "line_search",
    start: Start | None = None,
    sample_weight: NDArray[np.float64] | None = None,
    engine: Engine | None = None,
    checkpoint: Checkpoint | None = None,
    progress: ProgressCallback = silent,
    scratch: Path | None = None,
    block_bytes: int | None = None,
) -> Solution:
    """Minimise ``1/n sum_i w_i loss_i + alpha * penalty + ridge / 2 ||W||²`` with ``n = sum_i w_i``.

    Parameters
    ----------
    dataset : Dataset
        Labelled samples of at least two classes.
    alpha : float
        Weight of the penalty, positive; with a ridge it may be 0.
    memory_limit : int
        Bytes the run may add to the process.
    loss, penalty, l1_ratio, ridge
        See `bigmc.objectives.objective`.
    fit_intercept : bool
        Add an unpenalised constant per class.
    tol : float
        Relative gap between objective and lower bound to reach.
    max_passes : float
        Passes over the data at most; checked after every certificate.
    seed : int
        Of the order of blocks and columns.
    step : {"line_search", "constant"}
        How long a step is, see `bigmc.kernels.squared_hinge.sweep`.
    start : Start, optional
        Weights to start from; by default none.
    sample_weight : float64 array of shape (n_samples,), optional
        A weight of 2 is the same as giving the sample twice.
    engine : Engine, optional
        Any number of workers gives the same bits.
    checkpoint : Checkpoint, optional
        Where the state is saved after every round, and read from at the start; going on from there
        gives the same bits as an uninterrupted run with the same memory limit.
    progress : callable
        Called with a `Progress` at every certificate.
    scratch : Path, optional
        Folder for the score matrix when it does not fit; by default the system's for temporary files.
    block_bytes : int, optional
        Stream blocks of at most this many bytes, whether or not everything would fit.

    Raises
    ------
    MemoryLimitError
        If the limit cannot work.
    DataError
        If the data lead to numbers that are not finite.
    """
    minimised = objective(loss, penalty, l1_ratio, ridge)
    _check(dataset, alpha, ridge, tol, step)
    lanes = minimised.loss.lanes
    column_nnz = dataset.column_nnz()
    size: dict[str, Any] = {
        "limit": memory_limit, "n_samples": dataset.n_samples, "n_features": dataset.n_features,
        "width": -(-dataset.n_classes // lanes) * lanes, "n_classes": dataset.n_classes, "nnz": dataset.nnz,
        "n_shards": dataset.n_shards, "widest": int(column_nnz.max(initial=0)),
        "itemsize": dataset.dtype.itemsize, "tol": tol, "weighted": sample_weight is not None,
        "column_scaled": dataset.weighting.idf,
    }  # fmt: skip
    plan = plan_memory(**size, block_bytes=block_bytes)
    engine = engine or ThreadEngine()
    run = {
        "alpha": alpha, "loss": loss, "penalty": penalty, "l1_ratio": l1_ratio, "ridge": ridge,
        "fit_intercept": fit_intercept, "seed": seed,
        "step": step, "memory_limit": memory_limit, "n_samples": dataset.n_samples,
        "n_features": dataset.n_features, "n_classes": dataset.n_classes, "nnz": dataset.nnz,
        "weight_sum": float(dataset.n_samples if sample_weight is None else sample_weight.sum()),
    }  # fmt: skip
    state = State.load(checkpoint, run, size["width"]) if checkpoint else None
    if state is None and start is not None:
        state = State.at(start, size["width"], alpha)
    size["limit"] = int(_SAMPLE_MEMORY * memory_limit)
    share = 0.0 if state or plan.keep_blocks else sample_share(**size)
    if share:
        options = {
            "alpha": alpha, "loss": loss, "penalty": penalty, "l1_ratio": l1_ratio, "ridge": ridge,
            "fit_intercept": fit_intercept, "seed": seed, "step": step, "memory_limit": size["limit"],
            "engine": engine, "max_passes": max_passes,
        }  # fmt: skip
        state = _start_on_sample(dataset, share, sample_weight, options, size["width"], progress)
    problem = Problem(
        dataset, minimised, alpha, sample_weight, plan.score_dtype, engine,
        on_disk=plan.scores_on_disk, scratch=scratch,
    )  # fmt: skip
    ranges = cut_ranges(dataset.plan(plan.block_bytes), plan.block_columns)
    source = BlockSource(dataset, ranges, plan.keep_blocks)
    try:
        most_visits = max(_SMALL_VISITS, _VISITS_PER_PASS * dataset.nnz)
        sweeper = Sweeper(problem, step == "line_search", seed, fit_intercept, most_visits, plan.newton_bytes)
        rounds = Rounds(problem, source, plan, sweeper, tol)
        certificate = rounds.run(state, max_passes, checkpoint, run, progress)
    finally:
        problem.close()
    state = rounds.state
    return Solution(
        state.coef.features, np.ascontiguousarray(state.coef.rows[:, : dataset.n_classes]), state.intercept,
        certificate.upper, certificate, state.n_iter, state.nnz_read / max(dataset.nnz, 1), state.history,
        state.bytes_read, certificate.gap <= tol, problem.column_scale, plan,
    )  # fmt: skip


def _start_on_sample(
    dataset: Dataset,
    share: float,
    sample_weight: NDArray[np.float64] | None,
    options: dict[str, Any],
    width: int,
    progress: ProgressCallback,
) -> State | None:
    """Train on a part of the samples that fits into memory; its weights are the start for all of them."""
    sample, positions = draw_rows(dataset, share, options["seed"], options["engine"])
    weights = None if sample_weight is None else sample_weight[positions]
    if weights is not None and not weights.any():
        return None

    def show(seen: Progress) -> None:
        progress(replace(seen, stage="train on a sample"))

    found = solve(sample, sample_weight=weights, tol=_SAMPLE_TOL, progress=show, **options)
    state = State.at(Start(found.features, found.coef, found.intercept), width, options["alpha"])
    state.n_iter, state.nnz_read = found.n_iter, dataset.nnz
    return state


def largest_alpha(dataset: Dataset, **options: Any) -> float:
    """Return the smallest weight of the penalty at which all weights are zero; one pass over the data.

    Parameters
    ----------
    dataset : Dataset
    **options
        Those of `solve`, without `alpha`, `tol`, `max_passes` and `start`.
    """
    nothing = Start(np.empty(0, np.int64), np.empty((0, dataset.n_classes)), np.zeros(dataset.n_classes))
    tiny = float(np.finfo(np.float32).tiny)
    found = solve(dataset, alpha=tiny, tol=_SAMPLE_TOL, max_passes=1, start=nothing, **options)
    return found.history[0]["largest_norm"]


def _check(dataset: Dataset, alpha: float, ridge: float, tol: float, step: str) -> None:
    if dataset.n_classes < 2:
        raise DataError("there is only one class", "train on labels of at least two classes")
    if not (np.isfinite(alpha) and alpha >= 0 and alpha + ridge > 0):
        raise BigmcError(f"alpha is {alpha}", "give a positive number, or 0 with a ridge")
    if not tol > 0:
        raise BigmcError(f"tol is {tol}", "give a positive number")
    if step not in STEPS:
        raise BigmcError(f"no step is called {step!r}", f"use one of {', '.join(STEPS)}")
