"""Samples are sorted by class if the shards differ by more than chance."""

import numpy as np
import pytest

from bigmc.store.dataset import Dataset
from bigmc.store.shard_classes import classes_differ


@pytest.mark.parametrize("n_classes", [2, 12, 400])
@pytest.mark.parametrize(("order", "differ"), [("random", False), ("sorted", True), ("drifting", True)])
def test_only_orders_of_the_classes_make_shards_differ(n_classes, order, differ):
    random = np.random.default_rng(n_classes)
    y = random.integers(0, n_classes, 4000)
    if order == "sorted":
        y = np.sort(y)
    elif order == "drifting":  # half of the labels have the order
        own = random.random(4000) < 0.5
        y[own] = np.sort(y[own])
    data = Dataset.from_arrays(np.ones((4000, 1)), y, shard_rows=500)
    assert classes_differ(data) == differ


def test_one_shard_does_not_differ():
    assert not classes_differ(Dataset.from_arrays(np.ones((40, 1)), np.arange(40) // 20))
