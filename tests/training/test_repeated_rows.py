"""Test rows that repeat training rows are counted, against a dictionary of rows."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import bigmc
from bigmc.store import row_norms
from bigmc.store.dataset import Dataset
from bigmc.store.row_norms import row_digests
from bigmc.training.fit.repeated_rows import FEWEST, TELLING_SHARE, repeated_rows

pytestmark = pytest.mark.usefixtures("few_rounds_of_boosting")

RNG = np.random.default_rng(11)
SIGNS = RNG.choice([-1.0, 1.0], (900, 4))
COUNTS = sparse.csr_array(RNG.poisson(0.3, (700, 9)).astype(np.int8))
HOLES = np.where(RNG.random((600, 3)) < 0.3, np.nan, RNG.integers(0, 4, (600, 3)) / 3)


@pytest.mark.parametrize("X", [SIGNS, COUNTS, HOLES, SIGNS[:, :1]], ids=["signs", "counts", "holes", "one"])
@pytest.mark.parametrize("piece", [(1 << 20, 1 << 17), (1000, 2)])
def test_equal_rows_have_equal_digests_and_others_do_not(X, piece, monkeypatch):
    monkeypatch.setattr(row_norms, "PIECE_ENTRIES", piece[0])
    monkeypatch.setattr(row_norms, "PIECE_FEATURES", piece[1])
    digests = row_digests(Dataset.from_arrays(X, np.zeros(X.shape[0], int), shard_rows=256))
    dense = X.toarray() if sparse.issparse(X) else X
    rows = [tuple(row) for row in np.nan_to_num(dense, nan=-7.0).tolist()]
    assert len(set(digests.tolist())) == len(set(rows)) == len(set(zip(digests.tolist(), rows, strict=True)))


def test_rows_of_another_dataset_have_the_same_digests():
    """Whatever its shards, the number of its entries and their type."""
    whole = Dataset.from_arrays(COUNTS, np.zeros(700, int), shard_rows=128)
    part = Dataset.from_arrays(sparse.csr_array(COUNTS[300:450].astype(np.float64)), np.zeros(150, int))
    np.testing.assert_array_equal(row_digests(whole)[300:450], row_digests(part))


@pytest.mark.parametrize(("n_copies", "told"), [(0, False), (14, False), (15, True), (60, True)])
def test_many_repeated_rows_are_told(n_copies, told):
    X, Z = RNG.normal(size=(300, 5)), RNG.normal(size=(300, 5))
    Z[:n_copies] = X[RNG.choice(300, n_copies, replace=False)]
    train, test = (Dataset.from_arrays(rows, np.zeros(300, int)) for rows in (X, Z))
    assert (TELLING_SHARE, FEWEST) == (0.05, 10)
    notes = repeated_rows(train, test, 1 << 20)
    assert [note.startswith(f"{n_copies} of 300 test rows") for note in notes] == [True] * told
    assert repeated_rows(train, test, 1 << 12) == repeated_rows(train, None, 1 << 20) == []


@pytest.mark.exhaustive
def test_a_fit_tells_of_copies_in_a_file(tmp_path):
    table = pd.DataFrame(RNG.normal(size=(90, 4))).add_prefix("x").assign(y=RNG.choice(["a", "b"], 90))
    found = bigmc.fit(pd.concat([table] * 3), tmp_path / "m.model", label="y")
    [note] = [note for note in found["notes"] if "test rows have the features of a training row" in note]
    assert found["test"]["n_samples"] >= int(note.split()[0]) > 0.5 * found["test"]["n_samples"]
    assert not [n for n in bigmc.fit(table, tmp_path / "n.model", label="y")["notes"] if "copies" in n]
    hurried = bigmc.fit(pd.concat([table] * 3), tmp_path / "h.model", label="y", time_limit=0.0)
    assert not [n for n in hurried["notes"] if "copies" in n]
