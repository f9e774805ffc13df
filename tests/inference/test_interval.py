"""The interval of an accuracy, beside SciPy's and a bootstrap of whole groups."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

import bigmc
from bigmc.engine import ThreadEngine
from bigmc.inference.evaluation.interval import N_BINS, GroupSums, wilson
from bigmc.store.sample import holdout_keys

RNG = np.random.default_rng(5)


@pytest.mark.parametrize(("right", "n"), [(0, 7), (3, 10), (480, 500), (10, 10)])
def test_it_is_wilsons_without_groups(right, n):
    peer = binomtest(right, n).proportion_ci(method="wilson")
    is_right = np.arange(n) < right
    found = GroupSums.of(None, is_right).interval(right / n, n)
    np.testing.assert_allclose(found, (peer.low, peer.high), atol=1e-6)
    assert found == wilson(right / n, n)


def hashes(groups):
    """Return a random hash of each group."""
    return RNG.integers(-(2**63), 2**63, groups.max() + 1)[groups]


def width(interval):
    return interval[1] - interval[0]


@pytest.mark.parametrize("n_groups", [40, 400, 5 * N_BINS])
def test_groups_make_it_as_wide_as_a_bootstrap_of_them(n_groups):
    groups = np.repeat(np.arange(n_groups), RNG.integers(1, 30, n_groups))
    is_right = RNG.random(len(groups)) < RNG.beta(1.5, 1.0, n_groups)[groups]
    found = GroupSums.of(hashes(groups), is_right).interval(is_right.mean(), len(groups))
    right, rows = np.bincount(groups, is_right), np.bincount(groups)
    drawn = RNG.integers(0, n_groups, (1_000, n_groups))
    low, high = np.quantile(right[drawn].sum(axis=1) / rows[drawn].sum(axis=1), [0.025, 0.975])
    assert width(found) == pytest.approx(high - low, rel=0.25)
    assert width(found) > 1.5 * width(wilson(is_right.mean(), len(groups)))


def test_groups_of_one_row_change_little():
    is_right = RNG.random(20_000) < 0.8
    found = GroupSums.of(hashes(np.arange(20_000)), is_right).interval(is_right.mean(), 20_000)
    assert width(found) == pytest.approx(width(wilson(is_right.mean(), 20_000)), rel=0.1)


@pytest.mark.parametrize("n_groups", [1, 5])
def test_groups_that_are_all_right_count_as_rows(n_groups):
    groups = np.repeat(np.arange(n_groups), 100)
    found = GroupSums.of(hashes(groups), np.ones(len(groups), bool)).interval(1.0, len(groups))
    assert found == wilson(1.0, n_groups)


def test_evaluate_and_fit_use_the_groups_of_a_dataset(tmp_path):
    """Words say the class of half of the groups, and nothing of the other half."""
    who = np.repeat(np.arange(150), 20)
    labels = RNG.integers(0, 2, len(who))
    words = np.where(who % 2, labels, RNG.integers(0, 2, len(who)))
    rows = pd.DataFrame({"text": np.array(["yes", "no"])[words], "label": labels, "who": who})
    data = bigmc.ingest(rows, tmp_path / "d", text="text", label="label", group="who", seed=3)
    fitted = bigmc.fit(data, tmp_path / "m", time_limit=0.0)
    test, model = data["test"], bigmc.load_model(tmp_path / "m")
    is_right = np.asarray(model.predict(test)) == test.classes[test.labels()]
    expected = GroupSums.of(holdout_keys(test), is_right).interval(is_right.mean(), len(is_right))
    found = bigmc.evaluate(model, data, engine=ThreadEngine(2))
    assert found["interval"] == pytest.approx(expected)
    assert fitted["test"]["interval"] == pytest.approx(expected)
    assert width(expected) > 1.5 * width(wilson(is_right.mean(), len(is_right)))
    apart = bigmc.evaluate(model, rows, label="label")["interval"]  # raw rows have no groups
    assert width(apart) == pytest.approx(width(wilson(is_right.mean(), len(rows))), rel=0.1)
