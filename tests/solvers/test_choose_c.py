"""The choice of C by errors on held-out samples, against the rule read off a list of all errors."""

from types import SimpleNamespace

import numpy as np
import pytest

from bigmc.engine import ThreadEngine
from bigmc.errors import DataError
from bigmc.solvers.boosting import BoostingOptions, choose_c
from bigmc.solvers.boosting.choose_c import GRID, Trials
from bigmc.solvers.loop import RunContext


class Kept:
    """A checkpoint in memory."""

    kept = None

    def save(self, meta, arrays):
        self.kept = (meta, arrays)

    def load(self):
        return self.kept


def chosen(errors, monkeypatch, checkpoint=None, stop=None):
    """Choose where the trial of the i-th C has the i-th of `errors`; returns C and the values tried."""
    tried, clock, context = [], [0.0], RunContext(ThreadEngine(1), Trials(checkpoint))

    def trial(dataset, options, memory_limit, shown, sample_weight):
        tried.append(options.C)
        assert options.n_rounds <= 10
        assert 0 < options.time_limit <= 1000 / 2 ** (len(tried) - 1)  # what earlier trials left
        clock[0] += 500.0 / 2 ** (len(tried) - 1)
        shown.checkpoint.save({"of": options.C}, {})
        if stop == options.C:
            raise KeyboardInterrupt
        return SimpleNamespace(history=[{"held_error": 1.0}, {"held_error": errors[GRID.index(options.C)]}])

    monkeypatch.setattr(choose_c, "solve", trial)
    monkeypatch.setattr(choose_c, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    asked = BoostingOptions(C=1.0, validation_fraction=0.2, n_rounds=50, time_limit=1000.0)
    return choose_c.choose_C(None, asked, 0, context), tried


@pytest.mark.parametrize("seed", range(12))
def test_the_smallest_of_the_best_until_two_in_a_row_are_worse(seed, monkeypatch):
    errors = np.random.default_rng(seed).integers(0, 4, len(GRID)).tolist()
    n = next((n for n in range(3, len(GRID)) if min(errors[n - 2 : n]) > min(errors[: n - 2])), len(GRID))
    best = max(i for i in range(n) if errors[i] == min(errors[:n]))
    assert chosen(errors, monkeypatch) == (GRID[best], list(GRID[:n]))


def test_a_stopped_choice_resumes_with_the_trial_that_was_stopped(monkeypatch):
    checkpoint = Kept()
    with pytest.raises(KeyboardInterrupt):
        chosen([3, 2, 1, 0, 1, 1, 1], monkeypatch, checkpoint, stop=GRID[2])
    assert Trials(checkpoint).load() == ({"of": GRID[2]}, {})
    assert chosen([3, 2, 1, 0, 1, 1, 1], monkeypatch, checkpoint) == (GRID[3], list(GRID[2:6]))


def test_without_held_out_samples_there_is_nothing_to_choose_by(monkeypatch):
    with pytest.raises(DataError, match="give C"):
        chosen([np.nan] * len(GRID), monkeypatch)


def test_the_values_that_are_tried_go_down_by_half_powers_of_ten_to_one_digit(monkeypatch):
    _, tried = chosen([0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1], monkeypatch)
    assert tried == [float(f"{10 ** (k / 2):.0e}") for k in range(10, 3, -1)]
