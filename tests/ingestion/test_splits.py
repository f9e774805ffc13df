import datetime
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigmc.errors import DataError
from bigmc.ingestion.writing.splits import (
    assign_splits,
    check_splits,
    group_hashes,
    parse_splits,
    row_fractions,
)
from bigmc.store.row_hash import unit_interval


def splitmix64(x: int) -> int:
    """Steele, Lea, Flood 2014, in Python integers."""
    mask = 2**64 - 1
    z = (x + 1) * 0x9E3779B97F4A7C15 & mask
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
    z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
    return z ^ z >> 31


def test_published_value_of_splitmix64():
    assert splitmix64(0) == 0xE220A8397B1DCDAF
    assert row_fractions(np.array([0]), 0)[0] == (0xE220A8397B1DCDAF >> 11) / 2**53


@given(st.integers(0, 2**62), st.integers(-(2**63), 2**63 - 1))
def test_row_fraction_equals_python_integers(row, seed):
    start = (row + seed % 2**64 * 0xD1342543DE82EF95) % 2**64
    assert row_fractions(np.array([row]), seed)[0] == (splitmix64(start) >> 11) / 2**53


def test_fractions_are_uniform_and_seeds_independent():
    n = 200_000
    first, second = (row_fractions(np.arange(n), seed) for seed in (0, 1))
    counts = np.histogram(first, 50, (0, 1))[0]
    assert ((counts - n / 50) ** 2 / (n / 50)).sum() < 90  # chi-squared with 49 degrees: p < 0.0004
    assert abs(np.corrcoef(first, second)[0, 1]) < 4 / math.sqrt(n)
    assert 0 <= first.min() <= first.max() < 1


def test_shares_are_met_and_rows_do_not_depend_on_each_other():
    rows = np.arange(100_000)
    shares = {"a": 0.7, "b": 0.2, "c": 0.1}
    assigned = assign_splits(row_fractions(rows, 3), shares)
    np.testing.assert_allclose(np.bincount(assigned) / len(rows), list(shares.values()), atol=0.005)
    chosen = rows[::7]
    assert assign_splits(row_fractions(chosen, 3), shares).tolist() == assigned[::7].tolist()


def test_groups_keep_together_whatever_their_type_and_place():
    groups = [f"g{i % 500}" for i in range(2000)]

    def fractions_of(groups, seed):
        return unit_interval(group_hashes(pa.array(groups), seed))

    fractions = fractions_of(groups, 0)
    assert fractions_of(groups[::-1], 0).tolist() == fractions.tolist()[::-1]
    assert len(set(fractions.tolist())) == 500
    assert fractions_of([7, 8], 0).tolist() == fractions_of(["7", "8"], 0).tolist()
    assert fractions_of(groups, 1).tolist() != fractions.tolist()


@pytest.mark.parametrize(
    ("groups", "kinds"),
    [
        ([0, 7, -3, 10**17], [pa.int64(), pa.float64(), pa.decimal128(25, 2), pa.string()]),
        ([0, 7, 100], [pa.int8(), pa.uint64(), pa.float32()]),
        ([datetime.date(2026, 1, day) for day in (1, 2)], [pa.date32(), pa.timestamp("us"), pa.string()]),
    ],
)
def test_groups_of_files_with_other_types_keep_together(groups, kinds):
    first = pa.array(groups)
    hashes = group_hashes(first, 0)
    assert len(set(hashes.tolist())) == len(groups)
    for kind in kinds:
        assert group_hashes(first.cast(kind, safe=False), 0).tolist() == hashes.tolist()
    longer = [f"{group}T00:00:00" if isinstance(group, datetime.date) else f"{group}.00" for group in groups]
    assert group_hashes(pa.array(longer), 0).tolist() == hashes.tolist()


def test_groups_that_are_written_alike_stay_apart():
    texts = ["1", "1.1", "1.10", "01", "1.0.0", "v1.0", "2026-01-01", "2026-01-01 00:00:01", "nan", "1e0"]
    assert len(set(group_hashes(pa.array(texts), 0).tolist())) == len(texts)
    floats = group_hashes(pa.array([float("nan"), float("inf"), 0.5]), 0)
    assert floats.tolist() == group_hashes(pa.array(["nan", "inf", "0.5"]), 0).tolist()


def test_split_texts():
    assert parse_splits("train=0.8,test=0.2") == {"train": 0.8, "test": 0.2}
    assert parse_splits(" train = 0.5 , test=0.5") == {"train": 0.5, "test": 0.5}
    assert parse_splits("all") == {"all": 1.0}
    assert check_splits({"a": 1 / 3, "b": 1 / 3, "c": 1 / 3}) == {"a": 1 / 3, "b": 1 / 3, "c": 1 / 3}


@pytest.mark.parametrize(
    "text",
    ["", "a=0.5", "a=2", "a=-1,b=2", "a=nan", "a=x", "a=0.5,a=0.5", "a b=1", "a/b=1", "..=1", "a=0,b=1"],
)
def test_splits_that_cannot_be(text):
    with pytest.raises(DataError, match="write it like"):
        parse_splits(text)
