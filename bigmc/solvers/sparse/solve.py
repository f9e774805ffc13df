"""Training of the sparse linear classifier: plan the memory, and train in it.

Blondel, Seki, Uehara, "Block coordinate descent algorithms for large-scale sparse multiclass
classification", Machine Learning 93 (2013). Data that fit into memory are trained on by
`bigmc.solvers.sparse.in_memory`, others by `bigmc.solvers.sparse.out_of_core`.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.budget import MemoryLimitError, plan_within
from bigmc.solvers.certificate import Certificate
from bigmc.solvers.loop import Limits, load
from bigmc.solvers.sparse.chunks.plan import plan_chunks
from bigmc.solvers.sparse.in_memory import train_in_memory
from bigmc.solvers.sparse.memory_plan import SolverPlan, plan_memory
from bigmc.solvers.sparse.run import SparseRun
from bigmc.solvers.sparse.state import Start, State
from bigmc.store.centred import Centred, centred

#: Any tolerance will do where a single pass is made.
_ANY_TOL = 1e-2


@dataclass(frozen=True)
class Solution:
    """Weights and the proof of how good they are.

    Attributes
    ----------
    features : int64 array of shape (n_nonzero,)
        Features with non-zero weights, increasing.
    coef : float array of shape (n_nonzero, n_classes)
        Of single precision where double precision does not fit into memory.
    intercept : float64 array of shape (n_classes,)
    n_iter : int
        Sweeps.
    n_passes : float
        Entries passed over in whole passes and streamed sweeps, in units of all entries.
    history : list of dict
        ``n_passes, n_iter, objective, lower, gap, violation, largest_norm, n_nonzero, bytes_read`` at every
        certificate, ``n_screened`` where features proved to have no weights are left out of the next; without
        ``violation`` and ``largest_norm`` where dual coordinates went through blocks of samples.
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
    coef: NDArray[np.floating]
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


def solve(run: SparseRun, start: Start | None = None, chunk_bytes: int | None = None) -> Solution:
    """Minimise ``1/n sum_i w_i loss_i + alpha * penalty + ridge / 2 ||W||²`` with ``n = sum_i w_i``.

    Any number of workers gives the same bits, and so does a run that resumes from a checkpoint with the same
    memory limit.

    Parameters
    ----------
    start : Start, optional
        Weights to start from; by default none.
    chunk_bytes : int, optional
        Go through chunks of at most this many bytes, whether or not everything would fit.

    Raises
    ------
    MemoryLimitError
        If the limit cannot work.
    DataError
        If the data lead to numbers that are not finite.
    """
    plan = _plan(run) if chunk_bytes is None else None
    moved = _centred_run(run)
    if moved is None:
        return _solve(run, plan, start, chunk_bytes)
    inner, samples = moved
    plan = _plan(inner) if chunk_bytes is None else None
    return _solve_centred(inner, plan, samples, start, chunk_bytes)


def _centred_run(run: SparseRun) -> tuple[SparseRun, Centred] | None:
    """Return the run on centred columns; None if no column is, or the limit cannot work: they are wider."""
    samples = centred(run.task.dataset) if run.descent.fit_intercept else None
    if samples is None:
        return None
    inner = replace(run, task=replace(run.task, dataset=samples.dataset))
    with suppress(MemoryLimitError):
        _plan(inner)
        return inner, samples
    return None


def _solve_centred(
    run: SparseRun, plan: SolverPlan | None, samples: Centred, start: Start | None, chunk_bytes: int | None
) -> Solution:
    """Return the solution for columns as they are, found with centred ones."""
    if start is not None:
        shifted = start.intercept + samples.shift(start.features, start.coef)
        start = replace(start, intercept=shifted)
    solution = _solve(run, plan, start, chunk_bytes)
    # rounded as the model keeps them: what rounding does to a weight times a mean is made up for here
    coef = solution.coef.astype(solution.score_dtype, copy=False)
    intercept = solution.intercept - samples.shift(solution.features, coef)
    return replace(solution, coef=coef, intercept=intercept)


def _solve(run: SparseRun, plan: SolverPlan | None, start: Start | None, chunk_bytes: int | None) -> Solution:
    """Train in memory by a plan, or out of core if there is none."""
    if plan:
        saved = load(run.context, run.fingerprint)
        first = None if start is None else State.at(start, run.task.width)
        state, certificate, column_scale = train_in_memory(run, plan, first, saved)
    else:
        from bigmc.solvers.sparse.out_of_core import plan_out_of_core, train_out_of_core  # which take .03 s

        chunks = plan_out_of_core(run, chunk_bytes)
        saved = load(run.context, run.fingerprint)
        state, certificate, column_scale = train_out_of_core(run, chunks, start, saved)
    dataset = run.task.dataset
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
        converged=certificate.gap <= run.limits.tol,
        norms=state.norms,
        column_scale=column_scale,
        plan=plan,
        score_dtype=plan.score_dtype if plan else run.score_dtype,
    )


def check_memory(run: SparseRun) -> None:
    """Refuse a memory limit that `solve` cannot work with, before anything is trained.

    Raises
    ------
    MemoryLimitError
        With the least limit that works.
    """
    _plan(run)


def largest_alpha(run: SparseRun) -> float:
    """Return the smallest weight of the penalty at which all weights are zero.

    It takes one pass over the data, and more where they are larger than memory and the gradients of all
    features are too.

    Parameters
    ----------
    run : SparseRun
        Its alpha, tolerance and number of passes do not matter.
    """
    tiny = float(np.finfo(np.float32).tiny)
    run = replace(run, task=replace(run.task, alpha=tiny), limits=Limits(_ANY_TOL, 1, run.limits.memory))
    if moved := _centred_run(run):
        run = moved[0]
    plan = _plan(run)
    if plan is None:
        from bigmc.solvers.sparse.out_of_core import chunk_plan, largest_norm

        return largest_norm(run, chunk_plan(run, None))
    task = run.task
    nothing = State.zeros(task.width, task.dataset.n_classes)
    return train_in_memory(run, plan, nothing, None).state.history[0]["largest_norm"]


def _plan(run: SparseRun) -> SolverPlan | None:
    """Return what to keep in memory; None if the data do not fit but can be gone through in chunks.

    Raises
    ------
    MemoryLimitError
        If the limit cannot work; the message names the least that does.
    """
    size, limit = run.size, run.limits.memory

    def plan(limit: int) -> SolverPlan | None:
        try:
            return plan_memory(limit, size)
        except MemoryLimitError:
            from bigmc.solvers.sparse.ridge.block_plan import plan_blocks  # with out_of_core

            if plan_blocks(run, limit) is None:
                plan_chunks(limit, 1, run.shard_rows, size)
            return None

    return plan_within(limit, plan)
