"""Tests of most pairs of a loss and a penalty are slow."""

from pathlib import Path

import pytest
from covered_pairs import QUICK

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark tests of the other pairs."""
    for item in items:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        pair = params.get("loss"), params.get("penalty")
        if HERE in item.path.parents and None not in pair and pair not in QUICK:
            item.add_marker(pytest.mark.slow)
