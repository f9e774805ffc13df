"""How much rounds over chunks hold the weights back, by what the rounds before gained.

What chunks or single samples get wrong is noise, which the damping averages over more of them. Too little of
it, and noise takes what steps gain; too much, and the steps are short.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigmc.solvers.sparse.chunks.state import ChunkState
from bigmc.solvers.sparse.chunks.task import ChunkTask
from bigmc.solvers.sparse.coefficients import slabs_of_weights
from bigmc.solvers.sparse.state import Evaluated
from bigmc.solvers.sparse.steps.chunk_parts import is_frequent

#: The first damping of sweeps for every chunk and at least.
_SWEEPS, _LEAST_OF_SWEEPS = 0.6, 1.0
#: The first damping of stochastic steps with so many samples, and the power of their number by which it
#: falls: what holds them is the root of a sum of squares (`stochastic_rounds`), and more samples need less of
#: it. With a thousand samples 1.0 was best of 0.4 and 1.0, with a million 0.4.
_STEPS, _SAMPLES, _POWER = 1.0, 1000, 0.125
#: The factor after a round, and the least damping.
_DECAY, _LEAST = 0.7, 0.02
#: Of stochastic steps: shares of what the round before gained, with less than which the damping stays as it
#: is, or grows; and what it is at least, in units of one with which a round came to worse weights.
_FAIR, _POOR, _ABOVE_WORSE = 0.3, 0.1, 1.5
#: The factor where a round gained nothing.
_GROWTH = 2.0
#: Least and largest factor of the change of the damping of one feature after a round.
_CHANGE = (0.5, 4.0)


class RoundKind(Enum):
    """What rounds do: sweeps over chunks, or stochastic steps along samples."""

    SWEEPS = auto()
    STOCHASTIC = auto()


#: Least and largest factor of the damping of one feature.
_RANGE = {RoundKind.SWEEPS: (0.005, 30.0), RoundKind.STOCHASTIC: (0.1, 30.0)}


def begin(state: ChunkState, kind: RoundKind, n_chunks: int, n_samples: int) -> None:
    """Set the damping of the first round over so many chunks, or along so many samples."""
    if kind is RoundKind.SWEEPS:
        state.damping = max(_LEAST_OF_SWEEPS, _SWEEPS * n_chunks)
    else:
        state.damping = _STEPS * (max(n_samples, _SAMPLES) / _SAMPLES) ** -_POWER
    state.least_damping = _LEAST


def lower(state: ChunkState, kind: RoundKind, gain: float) -> None:
    """Set the damping of all features after a round that gained this share; the state has the gain before."""
    steady = state.gain > 1.0 or gain >= _FAIR * state.gain  # there was none before, or noise takes little
    if kind is RoundKind.SWEEPS or steady:
        factor = _DECAY
    elif gain >= _POOR * state.gain:
        factor = 1.0
    else:
        factor = _GROWTH
    state.damping = max(state.least_damping, factor * state.damping)


def grow(state: ChunkState, kind: RoundKind) -> None:
    """Set the damping of all features after a round that led to nothing better."""
    if kind is RoundKind.STOCHASTIC:
        state.least_damping = max(state.least_damping, _ABOVE_WORSE * state.damping)
    state.damping *= _GROWTH


class Damped(NamedTuple):
    """How the steps of a round are damped.

    Attributes
    ----------
    of_features : float array of shape (n_candidates,)
        The d of `bigmc.solvers.sparse.chunks.stochastic_rounds` or `..corrected_loss` for each candidate.
    of_intercept : float
    n_iter : int
        Number of such rounds, or of sweeps, before.
    """

    of_features: NDArray[np.floating]
    of_intercept: float
    n_iter: int


def of_steps(state: ChunkState, n_candidates: int) -> Damped:
    """Return how the steps of the next round are damped; factors of others are 1 again."""
    if len(state.own_damping) != n_candidates:
        state.own_damping = np.ones(n_candidates, np.float32)
    return Damped(state.damping * state.own_damping, state.damping, state.n_iter)


def adapt(
    task: ChunkTask,
    state: ChunkState,
    kind: RoundKind,
    reached: Evaluated | None,
    features: NDArray[np.int64],
) -> None:
    """Set the factor of the damping of each feature by what a round did to its weights.

    Along the move of a feature's weights the objective has a negative derivative at the start. Where it is
    still negative at the end, steps were too short, and too long where it is positive: the damping changes as
    if the derivative were linear in between.

    Parameters
    ----------
    task : ChunkTask
    state : ChunkState
        With the weights from which the round started.
    kind : RoundKind
    reached : Evaluated or None
        Where it came to, whether that is accepted or not.
    features : int64 array of shape (n_candidates,)
        In the order of the gradients.
    """
    start, factors = state.anchor, state.own_damping
    if reached is None or start is None or len(factors) != len(features):
        return
    if not np.isfinite(reached.objective):
        return
    for some in slabs_of_weights(len(features), task.width):
        before, after = start.coef.take(features[some]), reached.coef.take(features[some])
        first = _slopes(task, before, after - before, start.gradient[some])
        last = -_slopes(task, after, before - after, reached.gradient[some])
        ratio = np.divide(last, first, out=np.zeros(len(first)), where=first < 0.0)
        factors[some] = np.clip(factors[some] * np.clip(1.0 - ratio, *_CHANGE), *_RANGE[kind])
    if (
        kind is RoundKind.SWEEPS and task.fit_intercept
    ):  # these move with the intercept, as their slope does not
        factors[is_frequent(task.dataset.column_nnz(features), task.dataset.n_samples)] = 1.0


def _slopes(
    task: ChunkTask, rows: NDArray[np.float64], moves: NDArray[np.float64], gradient: NDArray[np.floating]
) -> NDArray[np.float64]:
    """Return the derivative of the objective along the move of each row of weights, at its beginning."""
    smooth = np.einsum("jr,jr->j", moves, gradient + task.objective.ridge * rows)
    return np.asarray(smooth + task.alpha * task.objective.penalty.slopes(rows, moves))


def carried_over(
    before: NDArray[np.int64], factors: NDArray[np.float32], features: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Return factors of increasing `features`: those they had, if they were among those `before`, or 1."""
    carried = np.ones(len(features), np.float32)
    if len(before) == len(factors):
        _, new, old = np.intersect1d(features, before, assume_unique=True, return_indices=True)
        carried[new] = factors[old]
    return carried
