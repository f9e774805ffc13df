"""How the damping of rounds over chunks follows what rounds gain."""

import math
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from test_chunk_rounds import made
from test_pass_norms import task_of

from bigmc.solvers.sparse.chunks import damping
from bigmc.solvers.sparse.chunks.damping import RoundKind
from bigmc.solvers.sparse.chunks.state import ChunkState
from bigmc.solvers.sparse.coefficients import Coefficients
from bigmc.solvers.sparse.state import Evaluated
from bigmc.store.dataset import Dataset


def begun(way, n_chunks=4, n_samples=1000):
    state = ChunkState(Coefficients.zeros(8), np.zeros(5), gain=math.inf)
    damping.begin(state, way, n_chunks, n_samples)
    return state


def test_more_chunks_need_more_and_more_samples_less():
    assert begun(RoundKind.SWEEPS, n_chunks=8).damping == 2 * begun(RoundKind.SWEEPS, n_chunks=4).damping
    of_samples = [begun(RoundKind.STOCHASTIC, n_samples=n).damping for n in (100, 1000, 256_000)]
    assert of_samples == pytest.approx([1.0, 1.0, 0.5])  # 256 ** -1/8


@pytest.mark.parametrize(
    ("gain", "factor"), [(0.2, 0.7), (0.06, 0.7), (0.03, 1.0), (0.021, 1.0), (0.01, 2.0), (0.0, 2.0)]
)
def test_steps_are_damped_by_what_their_gain_is_of_the_last(gain, factor):
    state = begun(RoundKind.STOCHASTIC)
    state.gain = 0.2
    damping.lower(state, RoundKind.STOCHASTIC, gain)
    assert state.damping == pytest.approx(factor)


@pytest.mark.parametrize("before", [math.inf, 1e300])
def test_the_first_round_has_none_before_also_of_a_run_that_resumes(before):
    state = begun(RoundKind.STOCHASTIC)
    state.gain = before  # checkpoints have 1e300 in place of infinity
    damping.lower(state, RoundKind.STOCHASTIC, 0.001)
    assert state.damping == pytest.approx(0.7)


def test_steps_never_come_back_to_a_damping_that_led_to_worse_weights():
    state = begun(RoundKind.STOCHASTIC)
    bad = state.damping
    damping.grow(state, RoundKind.STOCHASTIC)
    assert state.damping == 2 * bad
    for _ in range(20):
        damping.lower(state, RoundKind.STOCHASTIC, state.gain)
    assert state.damping == pytest.approx(1.5 * bad)


def test_all_sweeps_are_damped_more_where_nothing_better_was_found():
    state = begun(RoundKind.SWEEPS)
    first, least = state.damping, state.least_damping
    damping.grow(state, RoundKind.SWEEPS)
    assert state.damping == 2 * first
    assert state.least_damping == least


def reached_by(own, from_rows, to_rows, slopes, kind=RoundKind.STOCHASTIC):
    """What `adapt` makes of moves of three features along which the loss has such slopes at both ends."""
    _, dataset = made(n=300, d=20)
    task = task_of(dataset, "squared_hinge", alpha=0.1)
    features, intercept = np.arange(3), np.zeros(5)
    ends = []
    for rows, slope in zip((from_rows, to_rows), slopes, strict=True):
        gradient = np.zeros((3, 8))
        gradient[:, 0] = slope
        coef = Coefficients(features, np.pad(np.array(rows, float)[:, None], ((0, 0), (0, 7))))
        ends.append(Evaluated(coef, intercept, 1.0, gradient, np.ones(3), intercept, 1.0))
    state = ChunkState(ends[0].coef, intercept, anchor=ends[0])
    state.own_damping = np.array(own, np.float32)
    damping.adapt(task, state, kind, ends[1], features)
    return state.own_damping


def test_features_that_went_too_far_are_damped_more_and_others_less():
    # from 1 to 2 with the penalty's slope .1: halfway to the minimum, at it, and twice as far
    factors = reached_by([1, 1, 1], [1, 1, 1], [2, 2, 2], ([-0.9, -0.9, -0.9], [-0.5, -0.1, 0.7]))
    assert factors == pytest.approx([0.5, 1.0, 2.0])


def test_factors_change_by_little_at_once_and_stay_in_a_range():
    factors = reached_by([1, 0.15, 20], [1, 1, 1], [2, 2, 2], ([-0.9, -0.9, -0.9], [9.0, -0.9, 9.0]))
    assert factors == pytest.approx([4.0, 0.1, 30.0])
    least = reached_by(
        [1, 0.15, 0.007], [1, 1, 1], [2, 2, 2], ([-0.9, -0.9, -0.9], [9.0, -0.9, -0.9]), RoundKind.SWEEPS
    )
    assert least == pytest.approx([4.0, 0.075, 0.005])


def test_features_that_did_not_move_or_moved_uphill_keep_their_factors():
    factors = reached_by([0.7, 3, 3], [1, 1, 0], [1, 2, 0], ([-0.9, 0.5, -0.05], [9.0, 9.0, -0.05]))
    assert factors == pytest.approx([0.7, 3.0, 3.0])


def test_a_feature_that_lost_its_weights_but_wants_them_back_went_too_far():
    # at zero the penalty's slope back is .1: a gradient of .3 asks for weights
    factors = reached_by([1, 1, 1], [1, 1, 1], [0, 0, 0], ([0.3, 0.3, 0.3], [0.05, -0.1, -0.5]))
    assert factors == pytest.approx([0.625, 1.0, 2.0])


def test_of_many_classes_the_weights_of_few_features_are_copied_at_once():
    _, dataset = made(n=300, d=20)
    task = task_of(dataset, "squared_hinge", alpha=0.1)
    task = replace(task, dataset=Dataset.from_arrays(np.eye(800, 20), np.arange(800)))
    features, rows = np.arange(1000), np.ones((1000, 800), np.float32)
    start = Evaluated(
        Coefficients(features, rows), np.zeros(800), 1.0, -rows, np.ones(1000), np.zeros(800), 1.0
    )
    state = ChunkState(start.coef, np.zeros(800), anchor=start)
    state.own_damping = np.ones(1000, np.float32)
    reached = replace(start, coef=Coefficients(features, 2 * rows))
    tracemalloc.start()
    damping.adapt(task, state, RoundKind.STOCHASTIC, reached, features)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (state.own_damping == 0.5).all()
    assert peak < 12e6  # some copies of a MB; in double precision all weights have 6.4


def test_factors_of_features_that_stay_are_kept():
    own = np.array([2.0, 3.0, 4.0], np.float32)
    found = damping.carried_over(np.array([5, 1, 9]), own, np.array([1, 2, 9]))
    assert found == pytest.approx([3.0, 1.0, 4.0])
    assert damping.of_steps(begun(RoundKind.STOCHASTIC), 2).of_features == pytest.approx([1.0, 1.0])
