"""The mean of rounds, against SciPy's minimiser and against what it is for: chunks that pull to and fro."""

from itertools import pairwise

import numpy as np
import pytest
import scipy.optimize

from bigmc.solvers.sparse.chunks.anderson import next_weights, past_rounds
from bigmc.solvers.sparse.chunks.state import ChunkState, PastRound
from bigmc.solvers.sparse.coefficients import Coefficients

WIDTH, N_CLASSES = 8, 5


def weights(generator, n_features, size=1.0):
    rows = np.zeros((n_features, WIDTH))
    rows[:, :N_CLASSES] = size * generator.standard_normal((n_features, N_CLASSES))
    features = np.sort(generator.choice(4000, n_features, replace=False))
    return Coefficients(features, rows), size * generator.standard_normal(N_CLASSES)


def dense(coef, intercept):
    every = np.zeros((4000, WIDTH))
    every[coef.features] = coef.rows
    return np.concatenate([every.ravel(), intercept])


@pytest.mark.parametrize("seed", range(6))
def test_factors_make_the_mean_move_least(seed):
    generator = np.random.default_rng(seed)
    pairs = [(weights(generator, 2500), weights(generator, 2600, 2.5 - k)) for k in range(3)]
    last = pairs[-1][1][0].features
    curvature = generator.random(len(last))
    found = next_weights([PastRound.of(start[0], end) for start, end in pairs], curvature)
    scale = np.zeros((4000, WIDTH))
    scale[last] = np.sqrt(curvature)[:, None]
    scale = np.concatenate([scale.ravel(), np.zeros(N_CLASSES)])  # the intercept does not count
    moves = []
    for start, end in pairs:
        counted = np.isin(np.arange(4000), end[0].features).repeat(WIDTH)  # what ended at zero is left out
        move = dense(*end) - dense(*start)
        move[: len(counted)] *= counted
        moves.append(move * scale)
    moves = np.array(moves)
    best = scipy.optimize.minimize(
        lambda c: np.sum((c @ moves) ** 2),
        np.full(3, 1 / 3),
        bounds=[(0, None)] * 3,
        constraints={"type": "eq", "fun": lambda c: c.sum() - 1},
        options={"ftol": 1e-14},
    )
    wanted = best.x @ np.array([dense(*end) for _, end in pairs])
    inside = np.concatenate([np.isin(np.arange(4000), last).repeat(WIDTH), np.ones(N_CLASSES, bool)])
    assert found[0].features.tolist() == last.tolist()
    np.testing.assert_allclose(dense(*found)[inside], wanted[inside], atol=2e-4)


def test_noise_cancels_and_progress_goes_on():
    """Moves apart from each other by noise are averaged; the shorter of two in one direction is taken."""
    generator = np.random.default_rng(0)
    (optimum, intercept), noise = weights(generator, 300), np.random.default_rng(1)
    ends = [
        (Coefficients(optimum.features, optimum.rows + noise.standard_normal((300, WIDTH))), intercept)
        for _ in range(3)
    ]
    rounds = [PastRound.of(optimum, end) for end in ends]
    mean = next_weights(rounds, np.ones(300))
    assert np.linalg.norm(mean[0].rows - optimum.rows) < 0.65 * np.linalg.norm(
        ends[-1][0].rows - optimum.rows
    )
    points = [
        (Coefficients(optimum.features, part * optimum.rows), part * intercept) for part in (0, 0.5, 0.75)
    ]
    rounds = [PastRound.of(start[0], end) for start, end in pairwise(points)]
    found = next_weights(rounds, np.ones(300))
    np.testing.assert_allclose(found[0].rows, points[-1][0].rows, rtol=1e-6)


def test_a_last_round_that_hardly_counts_has_no_mean():
    """Where it moves on in the same direction by more, the mean would go back to the round before."""
    coef, intercept = weights(np.random.default_rng(0), 300)
    points = [(Coefficients(coef.features, part * coef.rows), part * intercept) for part in (0, 0.1, 1)]
    rounds = [PastRound.of(start[0], end) for start, end in pairwise(points)]
    assert next_weights(rounds, np.ones(300)) is None


def test_rounds_without_moves_and_without_numbers_have_no_mean():
    start = weights(np.random.default_rng(0), 10)
    still = PastRound.of(start[0], start)
    assert next_weights([still, still], np.ones(10)) is None
    infinite = Coefficients(start[0].features, np.full((10, WIDTH), np.inf))
    lost = PastRound.of(start[0], (infinite, start[1]))
    with np.errstate(invalid="ignore"):
        assert next_weights([still, lost], np.ones(10)) is None


def test_past_rounds_are_saved():
    generator = np.random.default_rng(0)
    start, end = weights(generator, 10), weights(generator, 12)
    state = ChunkState(end[0], end[1], layers=[end[0].features], past=[PastRound.of(start[0], end)])
    saved = ChunkState.unpack(state.pack(), WIDTH).past
    assert len(saved) == 1
    assert saved[0].end.rows.tobytes() == state.past[0].end.rows.tobytes()
    assert saved[0].moves.tobytes() == state.past[0].moves.tobytes()
    assert saved[0].intercept.tobytes() == state.past[0].intercept.tobytes()


def test_past_rounds_end_where_many_candidates_are_new():
    start, end = weights(np.random.default_rng(0), 10), weights(np.random.default_rng(1), 12)
    past = [PastRound.of(start[0], end)]
    state = ChunkState(*end, layers=[np.arange(90), np.arange(90, 100)], past=past)
    assert past_rounds(state, 10) is past
    assert past_rounds(state, 11) == []
