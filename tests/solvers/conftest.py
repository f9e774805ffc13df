"""Kernels are compiled for a loss and a penalty: the quick half of the tests has only some of the pairs."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent

#: Every loss and every penalty once at least; tests of other pairs are slow.
QUICK_PAIRS = {
    ("squared_hinge", "l1/l2"),
    ("log_loss", "l1"),
    ("multitask_squared_hinge", "sparse_group"),
    ("huber_hinge", "l1/linf"),
    ("multilabel_ranking", "l1/l2"),
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark tests of the other pairs."""
    for item in items:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        pair = params.get("loss"), params.get("penalty")
        if HERE in item.path.parents and None not in pair and pair not in QUICK_PAIRS:
            item.add_marker(pytest.mark.slow)
