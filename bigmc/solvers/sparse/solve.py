"""Training of the sparse linear classifier: plan the memory, and train in it.

Blondel, Seki, Uehara, "Block coordinate descent algorithms for large-scale sparse multiclass
classification", Machine Learning 93 (2013). Data that fit into memory are trained on by
`bigmc.solvers.sparse.in_memory`, others by `bigmc.solvers.sparse.out_of_core`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.budget import MemoryLimitError, plan_within
from bigmc.engine import Engine, ThreadEngine
from bigmc.errors import BigmcError, DataError
from bigmc.objectives import objective
from bigmc.progress import ProgressCallback, silent
from bigmc.solvers.certificate import Certificate
from bigmc.solvers.checkpoint import Checkpoint
from bigmc.solvers.loop import Limits, RunContext, load
from bigmc.solvers.sparse.chunk_plan import plan_chunks
from bigmc.solvers.sparse.in_memory import train_in_memory
from bigmc.solvers.sparse.memory_plan import SolverPlan, plan_memory
from bigmc.solvers.sparse.out_of_core import chunk_plan, largest_norm, train_out_of_core
from bigmc.solvers.sparse.run import STEPS, Descent, Run, Task
from bigmc.solvers.sparse.state import Start
from bigmc.store.dataset import Dataset

#: Any tolerance will do where one pass is all that is asked for.
_ANY_TOL = 1e-2


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
        certificate, ``n_screened`` where features proved to have no weights are left out of the next.
    bytes_read : int
        Decoded bytes read from the shards.
    converged : bool
        The gap reached the tolerance.
    norms : float32 array of shape (n_features,) or None
        Norm of the gradient of every feature at the weights; where these were proved to be none, as last
        seen.
    column_scale : float32 array of shape (n_features,) or None
        Scale of the columns the weights belong to (idf weighting).
    plan : SolverPlan
        What was kept in memory; None where samples were gone through chunk by chunk.
    score_dtype : numpy.dtype
        Of the scores the weights were computed with.
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
    norms: NDArray[np.float32] | None
    column_scale: NDArray[np.float32] | None
    plan: SolverPlan | None
    score_dtype: np.dtype[Any]


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
    chunk_bytes: int | None = None,
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
        How long a step is, see `bigmc.kernels.linear.squared_hinge.sweep`.
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
        Folder for the file of columns when the data do not fit; by default the system's for temporary files.
    chunk_bytes : int, optional
        Go through chunks of at most this many bytes, whether or not everything would fit.

    Raises
    ------
    MemoryLimitError
        If the limit cannot work.
    DataError
        If the data lead to numbers that are not finite.
    """
    run = _run(
        dataset,
        alpha,
        memory_limit,
        tol=tol,
        max_passes=max_passes,
        loss=loss,
        penalty=penalty,
        l1_ratio=l1_ratio,
        ridge=ridge,
        fit_intercept=fit_intercept,
        seed=seed,
        step=step,
        sample_weight=sample_weight,
        engine=engine,
        checkpoint=checkpoint,
        progress=progress,
        scratch=scratch,
    )
    plan = _plan(run) if chunk_bytes is None else None
    chunks = None if plan else chunk_plan(run, chunk_bytes)
    saved = load(run.context, run.fingerprint)
    if plan:
        state, certificate, column_scale = train_in_memory(run, plan, start, saved)
    else:
        assert chunks is not None
        state, certificate, column_scale = train_out_of_core(run, chunks, start, saved)
    return Solution(
        features=state.coef.features,
        coef=np.ascontiguousarray(state.coef.rows[:, : dataset.n_classes]),
        intercept=state.intercept,
        objective=certificate.upper,
        certificate=certificate,
        n_iter=state.n_iter,
        n_passes=state.nnz_read / max(dataset.nnz, 1),
        history=state.history,
        bytes_read=state.bytes_read,
        converged=certificate.gap <= tol,
        norms=state.norms,
        column_scale=column_scale,
        plan=plan,
        score_dtype=plan.score_dtype if plan else run.score_dtype,
    )


def check_memory(dataset: Dataset, *, alpha: float, memory_limit: int, tol: float, **options: Any) -> None:
    """Refuse a memory limit that `solve` cannot work with, before anything is trained.

    Parameters
    ----------
    dataset : Dataset
    alpha, memory_limit, tol, **options
        Those of `solve`.

    Raises
    ------
    MemoryLimitError
        With the least limit that works.
    """
    _plan(_run(dataset, alpha, memory_limit, tol=tol, max_passes=1, **options))


def largest_alpha(dataset: Dataset, *, memory_limit: int, **options: Any) -> float:
    """Return the smallest weight of the penalty at which all weights are zero.

    It takes one pass over the data, and more where they are larger than memory and the gradients of all
    features are too.

    Parameters
    ----------
    dataset : Dataset
    memory_limit : int
        Bytes the run may add to the process.
    **options
        Those of `solve`, without `alpha`, `tol`, `max_passes` and `start`.
    """
    tiny = float(np.finfo(np.float32).tiny)
    run = _run(dataset, tiny, memory_limit, tol=_ANY_TOL, max_passes=1, **options)
    plan = _plan(run)
    if plan is None:
        return largest_norm(run, chunk_plan(run, None))
    nothing = Start(np.empty(0, np.int64), np.empty((0, dataset.n_classes)), np.zeros(dataset.n_classes))
    return train_in_memory(run, plan, nothing, None).state.history[0]["largest_norm"]


def _plan(run: Run) -> SolverPlan | None:
    """Return what to keep in memory; None if the data do not fit but can be gone through in chunks.

    Raises
    ------
    MemoryLimitError
        If the limit cannot work; the message names the least that does.
    """
    size, limit = run.task.size(run.limits.tol), run.limits.memory

    def plan(limit: int) -> SolverPlan | None:
        try:
            return plan_memory(limit, size)
        except MemoryLimitError:
            plan_chunks(limit, 1, run.shard_rows, size)
            return None

    return plan_within(limit, plan)


def _run(
    dataset: Dataset,
    alpha: float,
    memory_limit: int,
    *,
    tol: float,
    max_passes: float,
    loss: str = "squared_hinge",
    penalty: str = "l1/l2",
    l1_ratio: float | None = None,
    ridge: float = 0.0,
    fit_intercept: bool = False,
    seed: int = 0,
    step: str = STEPS[0],
    sample_weight: NDArray[np.float64] | None = None,
    engine: Engine | None = None,
    checkpoint: Checkpoint | None = None,
    progress: ProgressCallback = silent,
    scratch: Path | None = None,
) -> Run:
    """Check the parameters of `solve` and put them together."""
    minimised = objective(loss, penalty, l1_ratio, ridge, sets=dataset.has_sets)
    _check(dataset, alpha, ridge, tol, step)
    task = Task(dataset, sample_weight, minimised, alpha)
    fingerprint = {
        "alpha": alpha,
        "loss": loss,
        "penalty": penalty,
        "l1_ratio": l1_ratio,
        "ridge": ridge,
        "fit_intercept": fit_intercept,
        "seed": seed,
        "step": step,
        "memory_limit": memory_limit,
        "n_samples": dataset.n_samples,
        "n_features": dataset.n_features,
        "n_classes": dataset.n_classes,
        "nnz": dataset.nnz,
        "weight_sum": task.weight_sum,
    }
    return Run(
        task,
        Limits(tol, max_passes, memory_limit),
        Descent(step, fit_intercept, seed),
        RunContext(engine or ThreadEngine(), checkpoint, progress, scratch),
        fingerprint,
    )


def _check(dataset: Dataset, alpha: float, ridge: float, tol: float, step: str) -> None:
    if dataset.n_classes < 2:
        raise DataError("there is only one class", "train on labels of at least two classes")
    if not (np.isfinite(alpha) and alpha >= 0 and alpha + ridge > 0):
        raise BigmcError(f"alpha is {alpha}", "give a positive number, or 0 with a ridge")
    if not tol > 0:
        raise BigmcError(f"tol is {tol}", "give a positive number")
    if step not in STEPS:
        raise BigmcError(f"no step is called {step!r}", f"use one of {', '.join(STEPS)}")
