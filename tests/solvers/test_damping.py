"""How the damping of rounds over chunks follows what rounds gain."""

import math

import numpy as np
import pytest

from bigmc.solvers.sparse.chunks import damping
from bigmc.solvers.sparse.chunks.damping import Way
from bigmc.solvers.sparse.coefficients import Coefficients
from bigmc.solvers.sparse.state import State


def begun(way, n_chunks=4, n_samples=1000):
    state = State(Coefficients.zeros(8), np.zeros(5), chunked=True, gain=math.inf)
    damping.begin(state, way, n_chunks, n_samples)
    return state


def test_more_chunks_need_more_and_more_samples_less():
    assert begun(Way.SWEEPS, n_chunks=8).damping == 2 * begun(Way.SWEEPS, n_chunks=4).damping
    of_samples = [begun(Way.STEPS, n_samples=n).damping for n in (100, 1000, 256_000)]
    assert of_samples == pytest.approx([1.0, 1.0, 0.5])  # 256 ** -1/8


@pytest.mark.parametrize(
    ("gain", "factor"), [(0.2, 0.7), (0.06, 0.7), (0.03, 1.0), (0.021, 1.0), (0.01, 2.0), (0.0, 2.0)]
)
def test_steps_are_damped_by_what_their_gain_is_of_the_last(gain, factor):
    state = begun(Way.STEPS)
    state.gain = 0.2
    damping.lower(state, Way.STEPS, gain)
    assert state.damping == pytest.approx(factor)


@pytest.mark.parametrize("before", [math.inf, 1e300])
def test_the_first_round_has_none_before_also_of_a_run_that_resumes(before):
    state = begun(Way.STEPS)
    state.gain = before  # checkpoints have 1e300 in place of infinity
    damping.lower(state, Way.STEPS, 0.001)
    assert state.damping == pytest.approx(0.7)


def test_steps_never_come_back_to_a_damping_that_led_to_worse_weights():
    state = begun(Way.STEPS)
    bad = state.damping
    damping.grow(state, Way.STEPS)
    assert state.damping == 2 * bad
    for _ in range(20):
        damping.lower(state, Way.STEPS, state.gain)
    assert state.damping == pytest.approx(1.5 * bad)


def test_sweeps_are_damped_less_after_every_round_and_more_after_a_bad_one():
    state = begun(Way.SWEEPS)
    first = state.damping
    damping.lower(state, Way.SWEEPS, 0.0)
    assert state.damping < first
    damping.grow(state, Way.SWEEPS)
    assert state.damping > first
    assert state.least_damping < first
