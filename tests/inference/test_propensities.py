"""Propensity-scored precision@k against the definition of Jain, Prabhu and Varma (2016), row by row."""

import math

import numpy as np
import pyarrow as pa
import pytest

import bigmc
from bigmc.errors import DataError
from bigmc.inference.evaluation.propensities import inverse_propensities, weighted_sums
from bigmc.inference.evaluation.top_labels import RANKS


def by_hand(scores, labels, counts, n_samples, k):
    """The ratio of two sums over the samples, with propensities of equation (3)."""
    scale = (math.log(n_samples) - 1) * 2.5**0.55

    def weight(label):
        return 1 + scale * math.exp(-0.55 * math.log(counts[label] + 1.5))

    gained = most = 0.0
    for row, own in zip(scores, labels, strict=True):
        order = sorted(range(len(row)), key=lambda c: (-row[c], c))[:k]
        gained += sum(weight(c) for c in order if c in own)
        most += sum(sorted((weight(c) for c in own), reverse=True)[:k])
    return gained / most


def test_a_propensity_of_the_paper():
    """N = 10000, of which 10 have the label: C = (ln 10000 - 1) 2.5^.55 and p = 1 / (1 + C 11.5^-.55)."""
    expected = 1 + (math.log(10_000) - 1) * 2.5**0.55 * 11.5**-0.55
    assert inverse_propensities(np.array([10]), 10_000)[0] == pytest.approx(expected)
    rising = inverse_propensities(np.array([0, 1, 10, 10_000]), 10_000)
    assert (np.diff(rising) < 0).all()
    assert rising[-1] >= 1


@pytest.mark.parametrize("n_classes", [3, 12])
def test_the_sums_are_those_of_the_definition(n_classes):
    generator = np.random.default_rng(n_classes)
    scores = generator.normal(size=(60, n_classes))
    labels = [set(np.flatnonzero(row)) for row in generator.random((60, n_classes)) < 0.3]
    counts = generator.integers(0, 200, n_classes)
    top = np.full((60, max(RANKS)), -1)
    order = np.argsort(-scores, axis=1, kind="stable")[:, : max(RANKS)]
    top[:, : order.shape[1]] = order
    rows = np.repeat(np.arange(60), [len(own) for own in labels])
    codes = np.array([c for own in labels for c in sorted(own)])
    sums = weighted_sums(top, rows, codes, inverse_propensities(counts, 500))
    for place, k in enumerate(RANKS):
        expected = by_hand(scores, labels, counts, 500, k)
        assert sums[0, place] / sums[1, place] == pytest.approx(expected)


@pytest.fixture(scope="module")
def tagged(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tags")
    generator = np.random.default_rng(0)
    words = np.array([f"word{i}" for i in range(8)])
    sets = [np.flatnonzero(row) for row in generator.random((500, 8)) < np.linspace(0.5, 0.05, 8)]
    texts = [" ".join([*words[own], generator.choice(words)]) for own in sets]
    table = pa.table({"text": texts, "label": [[f"t{c}" for c in own] for own in sets]})
    data = bigmc.ingest(table, folder / "d", text="text", label="label", hash_bits=8)
    bigmc.train("sparse", data, folder / "m", alpha=1e-3, tol=1e-2, loss="multitask_squared_hinge")
    return folder, data


def test_evaluate_counts_labels_of_the_training_split(tagged):
    folder, data = tagged
    found = bigmc.evaluate(folder / "m", data, propensities="train")
    model = bigmc.load_model(folder / "m")
    train, test = (
        [set(row[row >= 0].tolist()) for row in data[split].label_sets()] for split in ("train", "test")
    )
    counts = [sum(c in own for own in train) for c in range(8)]
    scores = model.decision_function(data["test"])
    for k in RANKS:
        expected = by_hand(scores, test, counts, len(train), k)
        assert found[f"psp_at_{k}"] == pytest.approx(expected)
    assert found["propensities"] == "train"
    assert "psp_at_1" not in bigmc.evaluate(folder / "m", data)


def test_a_file_of_other_propensities_is_not_taken(tagged, tmp_path):
    folder, _ = tagged
    with_counts = bigmc.evaluate(folder / "m", folder / "d", to=tmp_path / "e.json", propensities="train")
    again = bigmc.evaluate(folder / "m", folder / "d", to=tmp_path / "e.json", propensities="train")
    assert again == with_counts
    without = bigmc.evaluate(folder / "m", folder / "d", to=tmp_path / "e.json", overwrite=True)
    assert "psp_at_1" not in without


def test_one_label_a_row_has_no_propensities(tmp_path):
    generator = np.random.default_rng(1)
    data = bigmc.ingest(generator.normal(size=(60, 3)), tmp_path / "d", label=generator.integers(0, 2, 60))
    bigmc.train("sparse", data, tmp_path / "m", alpha=1e-2)
    with pytest.raises(DataError, match="propensities"):
        bigmc.evaluate(tmp_path / "m", data, propensities="train")
