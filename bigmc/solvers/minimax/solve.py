"""Constraint and column generation for minimax risk classifiers, one loop for every size of data.

Bondugula, Mazuelas and Pérez, "Efficient large-scale learning of minimax risk classifiers", Algorithm 1:
solve the problem over working sets, price the constraints of all samples in one scan, take in the most
violated ones, until the bounds meet. Two things are added. The bounds hold for the whole problem at any
time (`bigmc.solvers.minimax.bounds`), and the restricted problem is first solved by first-order steps, which
move on with the working set and are not thrown about by it as vertices of a linear program are; the
linear program takes over when it is the cheaper way to the tolerance.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from bigmc.engine import Engine, ThreadEngine
from bigmc.errors import DataError
from bigmc.progress import ProgressCallback, silent
from bigmc.solvers.certificate import Certificate
from bigmc.solvers.checkpoint import Checkpoint
from bigmc.solvers.minimax.bounds import upper_bound
from bigmc.solvers.minimax.expectations import expectations
from bigmc.solvers.minimax.iterations import Loop, Stop, step_type
from bigmc.solvers.minimax.memory_plan import MinimaxPlan, Shape, plan_memory
from bigmc.solvers.minimax.pricing import Weights, array_type
from bigmc.solvers.minimax.state import State
from bigmc.store.dataset import Dataset


@dataclass(frozen=True)
class MinimaxSolution:
    """Weights and the proof of how good they are.

    Attributes
    ----------
    weights : Weights
    phi : float
        φ(μ), which the randomised rule needs.
    certificate : Certificate
        Bounds of the worst-case error probability; the gap is their difference.
    n_iter : int
        Iterations.
    n_scans : int
        Passes over the samples.
    history : list of dict
        ``n_iter, n_scans, upper, lower, gap, n_rows, n_constraints, n_components`` of every iteration.
    converged : bool
        The gap reached the tolerance.
    stopped : {"tol", "k_max", "time_limit", "rounding"}
        Why the iterations ended.
    classes : int64 array
        Codes of the classes that occur; columns of the weights.
    plan : MinimaxPlan
    """

    weights: Weights
    phi: float
    certificate: Certificate
    n_iter: int
    n_scans: int
    history: list[dict[str, float]]
    converged: bool
    stopped: Stop
    classes: NDArray[np.int64]
    plan: MinimaxPlan


def _value_bytes(dataset: Dataset, tol: float) -> int:
    """Return the bytes of a value of the working set: in its array, read for it, and in that of the steps."""
    kept, steps = array_type(dataset), step_type(tol)
    if kept is None:
        return 0
    return 2 * kept.itemsize + (steps.itemsize if steps != kept else 0)


def default_lambda0(n_samples: int) -> float:
    """Return the regularisation for so many samples: ``2 / sqrt(n_samples)``.

    A mean of n samples differs from its expectation by about ``s / sqrt(n)``, so that ``λ = 2 s / sqrt(n)``
    is two standard errors of each expectation in the uncertainty set. ``bench/minimax_bound.py`` shows how
    often the bound of the error then holds, and how often it does with smaller values.
    """
    return 2.0 / math.sqrt(n_samples)


def solve_minimax(
    dataset: Dataset,
    *,
    memory_limit: int,
    lambda0: float = 0.01,
    fit_intercept: bool = True,
    tol: float = 1e-3,
    eps1: float = 1e-2,
    eps2: float = 1e-5,
    n_max: int = 400,
    m_max: int = 400,
    k_max: int = 1000,
    time_limit: float | None = None,
    seed: int = 0,
    engine: Engine | None = None,
    checkpoint: Checkpoint | None = None,
    progress: ProgressCallback = silent,
) -> MinimaxSolution:
    """Minimise ``1 − τᵀμ + φ(μ) + λᵀ|μ|``, eq. (3), with ``λ = lambda0 s``.

    Parameters
    ----------
    dataset : Dataset
        Labelled samples of at least two classes.
    memory_limit : int
        Bytes the run may add to the process.
    lambda0 : float
        Regularisation, not negative.
    fit_intercept : bool
        ψ has a component that is always 1.
    tol : float
        Difference of the bounds to reach.
    eps1, eps2 : float
        Violation from which a constraint, or a component, is taken in; tightened when nothing exceeds
        them and the bounds have not met.
    n_max, m_max : int
        Most constraints and components taken in at once.
    k_max : int
        Most iterations.
    time_limit : float, optional
        Seconds after which the best μ so far is returned; the outcome then depends on the machine.
    seed : int
        Of the samples that the first working set is made of.
    engine : Engine, optional
        Any number of workers gives the same bits.
    checkpoint : Checkpoint, optional
        Where the state is saved after every iteration, and read from at the start; going on from there
        gives the same bits as an uninterrupted run.
    progress : callable
        Called with a `Progress` after every iteration.

    Raises
    ------
    MemoryLimitError
        If the limit cannot work.
    DataError
        If the data cannot be used or lead to numbers that are not finite.
    """
    end = np.inf if time_limit is None else time.monotonic() + time_limit
    engine = engine or ThreadEngine()
    codes = dataset.labels()
    if not len(codes) or codes.min() < 0:
        raise DataError("some samples have no label", "train on labelled samples only")
    classes, labels = np.unique(codes, return_inverse=True)
    if len(classes) < 2:
        raise DataError("training needs at least 2 classes", "check the labels")
    column_nnz = dataset.column_nnz()
    offsets = 16 * dataset.n_shards  # of one column: where it begins and ends in each shard
    shape = Shape(
        n_samples=dataset.n_samples,
        n_psi=int(np.count_nonzero(column_nnz)) + int(fit_intercept),
        n_classes=len(classes),
        row_entries=dataset.nnz / dataset.n_samples,
        value_bytes=_value_bytes(dataset, tol),
        shard_rows=max(shard.n_rows for shard in dataset.shards),
        column_bytes=int(column_nnz.max(initial=0)) * (2 + dataset.dtype.itemsize) + offsets,
    )
    plan = plan_memory(shape, memory_limit)
    engine = engine.at_most(plan.n_workers)
    expected = expectations(dataset, labels.astype(np.int32), len(classes), fit_intercept, plan.block_bytes)
    run = {
        "lambda0": lambda0, "fit_intercept": fit_intercept, "eps1": eps1, "eps2": eps2, "n_max": n_max,
        "m_max": m_max, "seed": seed, "tol": tol, "memory_limit": memory_limit,
        "n_samples": dataset.n_samples, "n_features": dataset.n_features, "nnz": dataset.nnz,
        "n_classes": len(classes),
    }  # fmt: skip
    with threadpool_limits(1, "blas"):  # sums in one order, whatever the machine
        loop = Loop(dataset, expected, lambda0 * expected.deviation, plan, engine, run)
        state = State.load(checkpoint, run, len(classes)) if checkpoint else None
        loop.start(state)
        stopped = loop.run_to(tol, k_max, end, checkpoint, progress)
        state = loop.state
        phi = state.upper - upper_bound(expected, loop.lam, state.coef, 0.0)
    certificate = Certificate(state.lower, state.upper, max(0.0, state.upper - state.lower))
    return MinimaxSolution(
        Weights.of(expected, state.coef), phi, certificate, state.n_iter, state.n_scans, state.history,
        certificate.gap <= tol, stopped, classes.astype(np.int64), plan,
    )  # fmt: skip
