"""A training of the minimax learner: memory, expectations, and the shared loop over its iterations."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from bigmc.errors import DataError
from bigmc.solvers import loop
from bigmc.solvers.certificate import Certificate
from bigmc.solvers.loop import RunContext
from bigmc.solvers.minimax.bounds import upper_bound
from bigmc.solvers.minimax.expectations import expectations
from bigmc.solvers.minimax.iterations import Iterations, Stop, step_type
from bigmc.solvers.minimax.memory_plan import MinimaxPlan, Shape, plan_memory
from bigmc.solvers.minimax.parameters import MinimaxParameters
from bigmc.solvers.minimax.pricing import Weights, array_type
from bigmc.store.dataset import Dataset


@dataclass(frozen=True)
class MinimaxSolution:
    """Weights and the certificate of the solution.

    `phi` is φ(μ), which the randomised rule needs. The certificate bounds the worst-case error
    probability; its gap is the difference. `n_scans` counts passes over the samples; `history` has
    ``n_iter, n_scans, upper, lower, gap, n_rows, n_constraints, n_components`` of every iteration.
    `classes` are the codes of the classes that occur: columns of the weights.
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
    """Return the bytes of a value of the working set: in its array, while read, and for the steps."""
    kept, steps = array_type(dataset), step_type(tol)
    if kept is None:
        return 0
    return 2 * kept.itemsize + (steps.itemsize if steps != kept else 0)


def default_lambda0(n_samples: int) -> float:
    """Return the default regularisation, ``2 / sqrt(n_samples)``.

    A mean of n samples differs from its expectation by about ``s / sqrt(n)``, so that ``λ = 2 s /
    sqrt(n)`` is two standard errors of each expectation in the uncertainty set.
    ``bench/minimax_bound.py`` shows how often the bound of the error then holds, and how often it does
    with smaller values.
    """
    return 2.0 / math.sqrt(n_samples)


def solve_minimax(
    dataset: Dataset, parameters: MinimaxParameters, memory_limit: int, context: RunContext
) -> MinimaxSolution:
    """Minimise ``1 − τᵀμ + φ(μ) + λᵀ|μ|``, eq. (3), with ``λ = lambda0 s``.

    The run may add `memory_limit` bytes to the process. Any number of workers of the engine gives the
    same bits, and so does a resumed run. `MemoryLimitError` if the limit cannot work, `DataError` if the
    data cannot be used or lead to numbers that are not finite.
    """
    end = np.inf if parameters.time_limit is None else time.monotonic() + parameters.time_limit
    counts = dataset.class_counts()
    classes = np.flatnonzero(counts)
    if counts.sum() < max(dataset.n_samples, 1):
        raise DataError("some samples have no label", "train on labelled samples only")
    if len(classes) < 2:
        raise DataError("training needs at least 2 classes", "check the labels")
    plan = plan_memory(_shape(dataset, len(classes), parameters), memory_limit)
    engine = context.engine.at_most(plan.n_workers)
    column = np.cumsum(counts > 0, dtype=np.int32) - np.int32(1)  # of each class that occurs
    expected = expectations(dataset, column[dataset.labels()], len(classes), parameters, plan.block_bytes)
    fingerprint = {
        **parameters.fingerprint(),
        "memory_limit": memory_limit,
        "n_samples": dataset.n_samples,
        "n_features": dataset.n_features,
        "nnz": dataset.nnz,
        "n_classes": len(classes),
    }
    with threadpool_limits(1, "blas"):  # sums in one order, whatever the machine
        iterations = Iterations(dataset, expected, plan, engine, parameters, end)
        outcome = loop.run(iterations, context, fingerprint, loop.load(context, fingerprint))
        state = iterations.state
        phi = state.upper - upper_bound(expected, iterations.lam, state.coef, 0.0)
    return MinimaxSolution(
        weights=Weights.of(expected, state.coef),
        phi=phi,
        certificate=outcome.certificate,
        n_iter=state.n_iter,
        n_scans=state.n_scans,
        history=state.history,
        converged=outcome.stopped == "tol",
        stopped=cast(Stop, outcome.stopped),
        classes=classes.astype(np.int64),
        plan=plan,
    )


def _shape(dataset: Dataset, n_classes: int, parameters: MinimaxParameters) -> Shape:
    """Return the sizes of a problem that determine its memory."""
    column_nnz = dataset.column_nnz()
    offsets = 16 * dataset.n_shards  # of one column: where it begins and ends in each shard
    return Shape(
        n_samples=dataset.n_samples,
        n_psi=int(np.count_nonzero(column_nnz)) + int(parameters.fit_intercept),
        n_classes=n_classes,
        row_entries=dataset.nnz / dataset.n_samples,
        value_bytes=_value_bytes(dataset, parameters.tol),
        shard_rows=max(shard.n_rows for shard in dataset.shards),
        column_bytes=int(column_nnz.max(initial=0)) * dataset.entry_bytes + offsets,
    )
