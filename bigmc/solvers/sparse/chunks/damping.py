"""How much rounds over chunks hold the weights back, by what the rounds before gained.

What chunks or single samples get wrong is noise, which the damping averages over more of them. Too little of
it, and noise takes what steps gain; too much, and the steps are short.
"""

from __future__ import annotations

from enum import Enum, auto

from bigmc.solvers.sparse.state import State

#: The first damping of sweeps for every chunk and at least, and its factor after a round.
_SWEEPS, _LEAST_OF_SWEEPS, _DECAY_OF_SWEEPS = 0.6, 1.0, 0.85
#: The first damping of stochastic steps with so many samples, and the power of their number by which it
#: falls: what holds them is the root of a sum of squares (`stochastic_rounds`), and more samples need less of
#: it. With a thousand samples 1.0 was best of 0.4 and 1.0, with a million 0.4.
_STEPS, _SAMPLES, _POWER = 1.0, 1000, 0.125
#: Its factor after a round; shares of what the round before gained, with less than which the damping stays as
#: it is, or grows; and what it is at least, in units of one with which a round came to worse weights.
_DECAY_OF_STEPS, _FAIR, _POOR, _ABOVE_WORSE = 0.7, 0.3, 0.1, 1.5
#: The least damping, and its factor where a round gained nothing.
_LEAST, _GROWTH = 0.02, 2.0


class Way(Enum):
    """What rounds do: sweeps over chunks, or stochastic steps along samples."""

    SWEEPS = auto()
    STEPS = auto()


def begin(state: State, way: Way, n_chunks: int, n_samples: int) -> None:
    """Set the damping of the first round over so many chunks, or along so many samples."""
    if way is Way.SWEEPS:
        state.damping = max(_LEAST_OF_SWEEPS, _SWEEPS * n_chunks)
    else:
        state.damping = _STEPS * (max(n_samples, _SAMPLES) / _SAMPLES) ** -_POWER
    state.least_damping = _LEAST


def lower(state: State, way: Way, gain: float) -> None:
    """Set the damping after a round that gained this share of the objective; the state has the last gain."""
    if way is Way.SWEEPS:
        factor = _DECAY_OF_SWEEPS
    elif state.gain > 1.0 or gain >= _FAIR * state.gain:  # there was none before, or noise takes little
        factor = _DECAY_OF_STEPS
    else:
        factor = 1.0 if gain >= _POOR * state.gain else _GROWTH
    state.damping = max(state.least_damping, factor * state.damping)


def grow(state: State, way: Way) -> None:
    """Set the damping after a round whose weights were worse than those before."""
    if way is Way.STEPS:
        state.least_damping = max(state.least_damping, _ABOVE_WORSE * state.damping)
    state.damping *= _GROWTH
