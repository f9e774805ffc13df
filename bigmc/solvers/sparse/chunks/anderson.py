"""Anderson acceleration of rounds: the weights to try next are a mean of what the last rounds came to.

A round takes weights x to g(x). With the moves ``r_k = g(x_k) - x_k`` of the last rounds the next weights are

    sum_k c_k g(x_k),   where c >= 0 minimises ||sum_k c_k r_k||² with sum_k c_k = 1

(Anderson, "Iterative procedures for nonlinear integral equations", Journal of the ACM 12, 1965; Bertrand and
Massias, "Anderson acceleration of coordinate descent", AISTATS 2021). The norm counts a feature by its
curvature, so that units do not matter. What chunks, each with some of the samples, pull to and fro
cancels in the mean. Without negative factors its objective, which is convex, is at most the same mean of
theirs; with them trials were given up.

An intercept, and beside one the features that nearly all samples have, do not count: they can move against
each other without a change of any score, and their curvatures do not know that.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bigmc.solvers.sparse.chunks.state import ChunkState, PastRound
from bigmc.solvers.sparse.chunks.task import ChunkTask
from bigmc.solvers.sparse.coefficients import Coefficients, slabs_of_weights
from bigmc.solvers.sparse.steps.chunk_parts import is_frequent

#: Rounds before the last that take part. On 26 M entries of 24 classes in nine chunks the objective was
#: within 3.9e-3 of the best after 4.0 reads with two of them, and within 1.0e-2 without.
MOST_PAST = 2
#: Share of the mean square that is added to the squares: moves may depend on each other.
_REGULARISATION = 1e-8
#: Factor of the last round, with less of which it is taken alone. Where all rounds move along one way, the
#: shortest move is the first one after a pass or before it, and the mean would go back there.
_LEAST_OF_LAST = 0.1
#: Share of the candidates that may be new after a pass: rounds over fewer moved less, and would count for
#: more. With a third of them new the objective stayed where it was, with 3 % it was the better for them.
_FEW_NEW = 0.1


def take_next(
    task: ChunkTask,
    state: ChunkState,
    candidates: NDArray[np.int64],
    start: Coefficients,
    end: tuple[Coefficients, NDArray[np.float64]],
) -> None:
    """Let a state try the weights that its last round and those before it lead to, and remember the round.

    Parameters
    ----------
    task : ChunkTask
    state : ChunkState
    candidates : int64 array of shape (n_candidates,)
        Features of its anchor, in any order.
    start : Coefficients
        Weights at the start of the last round.
    end : tuple
        Weights and intercept at its end.
    """
    anchor, features = state.anchor, end[0].features
    assert anchor is not None
    rounds = [*state.past, PastRound.of(start, end)]
    curvature = anchor.of_features(candidates, features).curvature
    if task.fit_intercept:
        frequent = is_frequent(task.dataset.column_nnz(features), task.dataset.n_samples)
        curvature = np.where(frequent, 0.0, curvature)
    accelerated = next_weights(rounds, curvature) if state.past else None
    state.coef, state.intercept = accelerated or end
    state.past = rounds[-MOST_PAST:]


def past_rounds(state: ChunkState, n_new: int) -> list[PastRound]:
    """Return the past rounds of a state that still count where some of its candidates are new."""
    n_candidates = sum(len(layer) for layer in state.layers)
    return state.past if n_new <= _FEW_NEW * n_candidates else []


def next_weights(
    rounds: Sequence[PastRound], curvature: NDArray[np.floating]
) -> tuple[Coefficients, NDArray[np.float64]] | None:
    """Return the mean of what some rounds came to, for the features that have weights after the last.

    Parameters
    ----------
    rounds : sequence of PastRound
        The last one is the latest; two at least.
    curvature : float array of shape (n_nonzero,)
        Of the features that have weights after it; 0 for those that do not count.

    Returns
    -------
    tuple or None
        Weights and intercept; None if nothing moved, or not by finite numbers, or the last round would hardly
        count.
    """
    last, n = rounds[-1], len(rounds)
    features, products = last.end.features, np.zeros((n, n))
    for some in slabs_of_weights(*last.end.rows.shape):
        scale = np.sqrt(np.maximum(curvature[some], 0.0))[:, None]
        moves = np.stack([(own.moves_of(features[some]) * scale).ravel() for own in rounds])
        products += moves @ moves.T
    ridge = _REGULARISATION * float(np.trace(products)) / n
    if not (np.isfinite(products).all() and ridge > 0.0):
        return None
    factors = _factors(products + ridge * np.eye(n))
    if factors[-1] < _LEAST_OF_LAST:
        return None
    rows = np.zeros((len(features), last.end.rows.shape[1]))
    for some in slabs_of_weights(*last.end.rows.shape):
        for factor, own in zip(factors, rounds, strict=True):
            rows[some] += factor * own.end.take(features[some])
    return Coefficients(features, rows), factors @ np.stack([own.intercept for own in rounds])


def _factors(products: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the factors of a mean of few moves, by their positive definite products, shape (n_rounds,).

    Moves whose factor would be negative are left out one after the other, the most negative first.
    """
    kept, factors = np.arange(len(products)), np.zeros(len(products))
    while True:
        solved = np.linalg.solve(products[np.ix_(kept, kept)], np.ones(len(kept)))
        if (solved >= 0.0).all():
            factors[kept] = solved / solved.sum()
            return factors
        kept = kept[solved > solved.min()]
