import ctypes
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from bigmc import budget


@pytest.mark.parametrize(
    ("text", "expected"),
    [("2GB", 2 * 10**9), ("2GiB", 2**31), ("512 mb", 512 * 10**6), ("1.5K", 1500), (4096, 4096), ("77", 77)],
)
def test_sizes_are_read_as_people_write_them(text, expected):
    assert budget.parse_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "2XB", "2iB", "0", "lots"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ValueError, match="size in bytes"):
        budget.parse_bytes(text)


def test_default_limit_is_half_of_what_the_container_may_use():
    import psutil

    assert budget.default_limit() <= psutil.virtual_memory().total // 2
    assert budget.default_limit() > 10**8


def test_a_plan_that_does_not_fit_names_its_items_and_a_limit_that_works():
    plan = budget.Plan.of(100 * 10**6, [("scores", 90 * 10**6), ("block", 20 * 10**6)])
    with pytest.raises(budget.MemoryLimitError, match=r"scores 90 MB, block 20 MB.*--memory 110MB"):
        plan.check("training")
    wider = budget.Plan.of(110 * 10**6, [("scores", 90 * 10**6), ("block", 20 * 10**6)])
    assert wider.check("training").free == 0


@pytest.mark.parametrize("share", [0, 2, 3, 8])
@pytest.mark.parametrize("base", [10**6, 40 * 10**6, 123_456_789, 7 * 10**9])
def test_the_limit_that_a_refusal_names_works_at_once_and_is_the_least(base, share):
    def plan(limit):
        part = limit // share if share else 0
        return budget.Plan.of(limit, [("arrays", base), ("buffers", part)]).check("training")

    needed = base if share < 2 else base * share / (share - 1)  # the fixed point
    for refused in (1, budget.SMALLEST_LIMIT // 2, int(0.999 * needed) - 10**6):
        if not 0 < refused < needed:
            continue
        with pytest.raises(budget.MemoryLimitError, match="training needs") as error:
            budget.plan_within(refused, plan)
        named = budget.parse_bytes(error.value.cure.removeprefix("give --memory ").removesuffix(" or more"))
        assert plan(named).free >= 0
        assert named == max(budget.SMALLEST_LIMIT, -(-int(needed) // 10**6) * 10**6)


def test_a_refusal_says_one_figure_and_travels_between_processes():
    """Of two ways to do a step, the figures of the one that needs more are not said."""

    def plan(limit):
        if limit < 145 * 10**6:
            budget.Plan.of(limit, [("scores", 400 * 10**6), ("blocks", 18 * 10**6)]).check("training")

    with pytest.raises(budget.MemoryLimitError) as error:
        budget.plan_within(64 * 10**6, plan)
    assert str(error.value) == (
        "training needs 145 MB (above all for scores and blocks), more than the limit of 64 MB; "
        "give --memory 145MB or more"
    )
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)


def test_a_plan_that_fits_is_returned_as_it_is():
    assert budget.plan_within(100, lambda limit: limit + 1) == 101


def test_what_fits_into_no_memory_is_said_to():
    def plan(limit):
        raise budget.MemoryLimitError("too much", "none")

    with pytest.raises(budget.MemoryLimitError, match="more than 1e\\+03 TB of memory"):
        budget.plan_within(1, plan)


def printed_by(code):
    """Return the number that another process prints."""
    root = str(Path(budget.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": root}, capture_output=True, check=True
    )
    return int(done.stdout)


def test_peak_memory_sees_a_large_array():
    """In a process of its own: one that freed memory before may give the array some that was counted."""
    code = """
import numpy as np
from bigmc import budget
budget.reset_peak()
before = budget.peak_memory()
block = np.ones(40_000_000, dtype=np.uint8)
assert block.sum() == 40_000_000
del block
print(budget.peak_memory() - before)
"""
    assert 38_000_000 < printed_by(code) < 60_000_000


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="the C library has no such function"
)
def test_free_pages_between_what_stays_are_given_back():
    code = """
from bigmc import budget
kept, freed = [], []
for _ in range(1000):
    freed.append(bytearray(60_000))  # in the heap, not mapped by itself
    kept.append(bytearray(1_000))
del freed
before = budget.current_memory()
budget.give_back_free_pages()
print(before - budget.current_memory())
"""
    assert printed_by(code) > 40_000_000


def test_limits_below_the_smallest_are_refused_with_the_cure():
    with pytest.raises(budget.MemoryLimitError, match="at least 32 MB"):
        budget.resolve_limit("1MB")
