"""Columns of label sets, against Python's own sets."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse

from bigmc.errors import DataError
from bigmc.store.shards.label_sets import (
    SETS,
    codes_of,
    column_of_indicator,
    fill_rows,
    is_sets,
    longest,
    pairs_of,
    right_sets,
    set_column,
)

N_CLASSES = 9


def drawn(seed, n_rows=60):
    """Return random sets, and the rows and codes of their labels in no order, some of them twice."""
    random = np.random.default_rng(seed)
    sets = [set(random.integers(0, N_CLASSES, random.integers(0, 5)).tolist()) for _ in range(n_rows)]
    pairs = [(row, code) for row, codes in enumerate(sets) for code in codes]
    pairs = random.permutation(pairs + pairs[::3])
    return sets, pairs[:, 0], pairs[:, 1]


@pytest.mark.parametrize("seed", range(3))
def test_a_column_has_every_code_once_and_in_order(seed):
    sets, rows, codes = drawn(seed)
    column = set_column(rows, codes, 60)
    assert column.type == SETS
    assert is_sets(column.type)
    assert column.to_pylist() == [sorted(found) for found in sets]
    for cut in (column, column[7:40], pa.chunked_array([column[:7], column[7:7], column[7:]])):
        starts, found = codes_of(cut)
        assert starts[0] == 0
        assert [found[a:b].tolist() for a, b in pairwise(starts)] == cut.to_pylist()
        where, which = pairs_of(cut)
        assert list(zip(where.tolist(), which.tolist(), strict=True)) == [
            (row, code) for row, wanted in enumerate(cut.to_pylist()) for code in wanted
        ]
    width = longest([pa.chunked_array([column])])
    assert width == max(map(len, sets))
    filled = np.full((60, width + 1), 77, np.int32)
    fill_rows(column, filled)
    assert [[*row] for row in filled] == [
        [*sorted(found), *[-1] * (width + 1 - len(found))] for found in sets
    ]


def test_the_longest_of_nothing_is_one():
    assert longest([]) == 1
    assert longest([pa.chunked_array([set_column(np.empty(0, int), np.empty(0, int), 3)])]) == 1
    assert not any(map(is_sets, (pa.int32(), pa.string(), pa.struct([("a", pa.int32())]))))
    assert all(map(is_sets, (pa.large_list(pa.string()), pa.list_(pa.int8(), 2))))


@pytest.mark.parametrize("dtype", [bool, int, float, np.uint8])
def test_an_indicator_says_the_same(dtype):
    sets, rows, codes = drawn(4)
    indicator = np.zeros((60, N_CLASSES), dtype)
    indicator[rows, codes] = 1
    for given in (indicator, scipy.sparse.csr_array(indicator), scipy.sparse.coo_matrix(indicator)):
        assert column_of_indicator(given).to_pylist() == [sorted(found) for found in sets]
    for bad in (2, -1, np.nan):
        if dtype is float:
            wrong = indicator.copy()
            wrong[3, 3] = bad
            for given in (wrong, scipy.sparse.csr_array(wrong)):
                with pytest.raises(DataError, match="values other than 0 and 1"):
                    column_of_indicator(given)
    with pytest.raises(DataError, match="values other than 0 and 1"):
        column_of_indicator(np.array([["0", "1"]]))


def test_right_are_those_whose_sets_are_equal():
    random = np.random.default_rng(0)
    sets, rows, codes = drawn(5)
    labels = np.full((60, 6), -1, np.int32)
    fill_rows(set_column(rows, codes, 60), labels)
    own = random.permutation(N_CLASSES)
    own[own == N_CLASSES - 1] = -1  # a class that the model does not know
    predicted = np.zeros((60, N_CLASSES - 1), np.int64)
    expected = []
    for row, found in enumerate(sets):
        wanted = {int(own[code]) for code in found}
        told = (wanted - {-1}) ^ (set(random.integers(0, 8, 1).tolist()) if row % 3 == 0 else set())
        predicted[row, list(told)] = 1
        expected.append(told == wanted)
    assert 0 < sum(expected) < 60
    np.testing.assert_array_equal(right_sets(labels, own, predicted), expected)
