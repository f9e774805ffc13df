"""The names that a model keeps of its features, against a sort by Python."""

import numpy as np
import pyarrow as pa
import pytest

from bigmc.model.feature_names import NAMES_PER_FEATURE, names_from_arrays, names_of, names_to_arrays

COLUMNS = ("bucket", "name", "sign", "count")


def table_of(rows: list[tuple]) -> pa.Table:
    types = (pa.int64(), pa.string(), pa.int8(), pa.int64())
    values = zip(*rows, strict=True) if rows else [[]] * 4
    return pa.table([pa.array(list(v), t) for v, t in zip(values, types, strict=True)], list(COLUMNS))


def kept(features: np.ndarray, rows: list[tuple]) -> list[tuple]:
    """Return the rows to keep: by feature, the largest counts first, none of them last, then by name."""
    rows = [row for row in rows if row[0] in features]
    rows = sorted(rows, key=lambda r: (r[0], -(-1 if r[3] is None else r[3]), r[1].encode()))
    return [r for i, r in enumerate(rows) if sum(r[0] == other[0] for other in rows[:i]) < NAMES_PER_FEATURE]


@pytest.mark.parametrize("seed", range(20))
def test_the_most_frequent_names_are_kept_in_order(seed, monkeypatch):
    if seed % 2:
        monkeypatch.setattr("bigmc.model.feature_names._COMPARED", 3)
    rng = np.random.default_rng(seed)
    n_rows = int(rng.integers(0, 60))
    names = [f"{'aéz𝔘'[i % 4]}{i}" for i in rng.permutation(n_rows)]
    rows = [
        (int(rng.integers(5)), name, int(rng.choice([-1, 1])), None if rng.random() < 0.2 else int(count))
        for name, count in zip(names, rng.integers(1, 4, n_rows), strict=True)
    ]
    features = np.flatnonzero(rng.random(5) < 0.7)
    expected = kept(features, rows)
    found = names_of(features, table_of(rows))
    assert list(zip(*(found.column(name).to_pylist() for name in COLUMNS), strict=True)) == expected
    read = names_from_arrays(names_to_arrays(found))
    assert read.equals(table_of(expected))
    assert names_of(features, read) is read
    for a in range(len(expected) - 1):  # two rows that have changed places are put right again
        changed = [*expected[:a], expected[a + 1], expected[a], *expected[a + 2 :]]
        assert names_of(features, table_of(changed)).equals(read)
    more = [*expected, *((feature, f"~{i}", 1, None) for feature in features[-1:].tolist() for i in range(9))]
    assert names_of(features, table_of(more)).equals(table_of(kept(features, more)))
