"""Binning, the closed form and packed answers, against searchsorted, a root finder and plain sums."""

from fractions import Fraction

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse

from bigmc.engine import ThreadEngine
from bigmc.kernels.boosting.arguments import Encoding, Visits
from bigmc.kernels.boosting.bins import MAX_EDGES, code_of, encode_columns, encode_rows
from bigmc.kernels.boosting.descent import (
    LANES,
    BitLearners,
    RowLearners,
    bit_scores,
    bit_sweep,
    row_scores,
    solve_weight,
)
from bigmc.kernels.boosting.duals import fold, gather, turn
from bigmc.kernels.boosting.predictions import leaf_bits, range_bits
from bigmc.solvers.boosting.binning import BinnedSource
from bigmc.store.block import Residency
from bigmc.store.dataset import Dataset

EXTREMES = [0.0, -0.0, 5e-324, 1e308, -1e308, 1.0, np.nextafter(1.0, 2), 2**53, 2**53 + 2.0, -1e-300, 0.1]


def binned(X, max_bins=255):
    dataset = Dataset.from_arrays(X, np.arange(len(X)) % 2, shard_rows=700)
    ranges = [(j, j + 1) for j in range(X.shape[1])]
    source = BinnedSource(dataset, ranges, Residency.MEMORY, max_bins, np.ones(len(X), bool), ThreadEngine(1))
    return source, list(source.stream())


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int8])
def test_code_of_is_searchsorted(dtype):
    rng = np.random.default_rng(0)
    edges = np.unique(rng.normal(size=50).round(1))
    values = np.concatenate([edges, rng.normal(size=200), np.nextafter(edges, 9)]).astype(dtype)
    expected = np.searchsorted(edges, values.astype(float), side="left")
    first, table, steps = 3, np.full(3 + 64, np.inf), 6
    table[first : first + len(edges)] = edges
    assert [code_of(float(x), table, first, steps, 0) for x in values] == expected.tolist()
    assert code_of(np.nan, table, first, steps, 51) == 51
    assert code_of(1.0, np.array([np.inf]), 0, 0, 1) == 0


def test_few_values_lose_no_cut_and_edges_lie_between_them():
    rng = np.random.default_rng(1)
    X = np.column_stack([
        rng.choice(EXTREMES, 2000),
        rng.integers(0, 255, 2000),
        rng.integers(-128, 127, 2000),
        np.where(rng.random(2000) < 0.5, np.nan, rng.integers(0, 3, 2000)),
    ])  # fmt: skip
    source, blocks = binned(X)
    for j, block in enumerate(blocks):
        edges = source.edges_of(j)
        values = np.unique(X[:, j][~np.isnan(X[:, j])])
        assert len(edges) == len(values) - 1
        assert (values[:-1] <= edges).all()
        assert (edges < values[1:]).all()
        assert block.bins.missing[0] == (j == 3)


def test_many_values_get_bins_of_about_equal_mass():
    rng = np.random.default_rng(2)
    X = np.column_stack([rng.normal(size=4000), np.where(rng.random(4000) < 0.7, 0, rng.normal(size=4000))])
    for max_bins in (255, 16):
        source, _ = binned(X, max_bins)
        for j in range(2):
            edges = source.edges_of(j)
            assert len(edges) <= max_bins - 1
            codes = np.searchsorted(edges, X[:, j])
            sizes = np.bincount(codes, minlength=len(edges) + 1)
            free = sizes[[c for c in range(len(sizes)) if c != np.searchsorted(edges, 0.0)]] if j else sizes
            assert free.max() <= 3 * 4000 / max_bins
            assert len(edges) > max_bins * 0.7


def roundest(number, low, high):
    """Return what is roundest in (low, high], by trying powers of ten from large to small, exactly."""
    if low < 0 <= high:
        return 0.0
    low, high = Fraction(low), Fraction(high)
    for power in range(40, -40, -1):
        for step in (5 * Fraction(10) ** power, Fraction(10) ** power):
            multiple = high // step * step
            if multiple > low:
                return float(multiple) if step >= 2 * (high - low) else number
    raise AssertionError("no multiple")


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_edges_are_round_numbers_near_those_at_quantiles(dtype):
    """A bin ends near where it has its share of what is left; zeros that are not stored count, too."""
    rng = np.random.default_rng(6)
    values = rng.normal(size=(2000, 1)) * 10.0 ** rng.integers(-12, 30, (2000, 1))
    values[rng.random(2000) < 0.3] = 0.0
    few = rng.permutation(np.repeat(rng.normal(size=50), 40))
    others = np.exp(rng.normal(size=2000)), rng.normal(3000, 1, 2000), rng.integers(0, 900, 2000), few
    X = np.column_stack([values, np.abs(values), -np.abs(values), *others]).astype(dtype)
    source, _ = binned(X, 40)
    for j, column in enumerate(X.T.astype(float)):
        distinct, counts = np.unique(column, return_counts=True)
        quantiles, left, mass = [], len(column), 0
        for k in range(len(distinct) - 1):
            mass += counts[k]
            if mass >= left / (40 - len(quantiles)):
                quantiles.append((distinct[k] + distinct[k + 1]) / 2)
                left, mass = left - mass, 0
            if len(quantiles) == 39:
                break
        halves = np.diff(quantiles) / 2
        before, after = np.r_[halves[0], halves], np.r_[halves, halves[-1]]
        expected, n_below = [], 0
        for quantile, low, high in zip(quantiles, before, after, strict=True):
            edge = roundest(quantile, max(quantile - low, distinct[0]), min(quantile + high, distinct[-1]))
            at = np.searchsorted(distinct, edge)
            if at <= n_below:
                edge, at = quantile, np.searchsorted(distinct, quantile)
            elif edge == distinct[at]:
                edge = (distinct[at - 1] + edge) / 2
            if at > n_below:
                expected.append(edge)
                n_below = at
        np.testing.assert_allclose(source.edges_of(j), expected, rtol=1e-15)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_edges_of_extreme_values_part_them_in_order(dtype):
    """No bin is empty, whatever the exponents: subnormal numbers, infinities, the largest ones."""
    rng = np.random.default_rng(7)
    smallest, largest, most = (-320, 308, 1.7e308) if dtype is np.float64 else (-43, 36, 3e36)
    X = rng.normal(size=(3000, 3)) * 10.0 ** rng.integers(smallest, largest, (3000, 3))
    X[:50, 1], X[50:150, 1] = np.inf, -np.inf
    X[:, 2] = rng.uniform(-1, 1, 3000) * most
    X = X.astype(dtype)
    source, _ = binned(X, 40)
    for j in range(3):
        edges = source.edges_of(j)
        sizes = np.bincount(np.searchsorted(edges, X[:, j].astype(float)))
        assert len(sizes) == len(edges) + 1 > 30
        assert sizes.min() > 0
        assert sizes.max() < 3000 / 4


def test_training_and_prediction_bin_alike():
    rng = np.random.default_rng(3)
    X = rng.choice([*EXTREMES, np.nan, 3.0], (1500, 6))
    X[:, 3] = rng.normal(size=1500)
    X[:, 4] = rng.integers(-5, 5, 1500)
    source, blocks = binned(X)
    trained = np.empty((6, 1500), np.uint8)
    for j, block in enumerate(blocks):
        trained[j] = block.bins.zero[0]
        for s in range(len(block.base) - 1):
            here = slice(block.indptr[s, 0], block.indptr[s, 1])
            trained[j, block.base[s] + block.rows[here]] = block.codes[here]
    pieces = [source.edges_of(j) for j in range(6)]
    assert max(map(len, pieces)) <= MAX_EDGES
    firsts, steps = 256 * np.arange(6), np.full(6, 8)
    missing = np.array([len(p) + 1 for p in pieces])
    table = np.full(6 * 256, np.inf)
    for first, piece in zip(firsts, pieces, strict=True):
        table[first : first + len(piece)] = piece
    rows = scipy.sparse.csr_array(X)
    codes = np.empty((6, 1500), np.uint8)
    encoding = Encoding(firsts, steps, missing, table, False)
    indptr, indices = rows.indptr.astype(np.int64), rows.indices.astype(np.int32)
    encode_rows(indptr, indices, rows.data, np.arange(6), encoding, codes)
    assert (codes == trained).all()
    columns = scipy.sparse.csc_array(X)
    again = np.empty((6, 1500), np.uint8)
    for j in range(6):
        stretch = columns.indptr[j : j + 2].astype(np.int64)
        shard_rows = columns.indices.astype(np.uint16)
        encode_columns(j, stretch[:1], stretch[1:], shard_rows, columns.data, encoding, again)
    assert (again == trained).all()


def test_closed_form_is_the_minimum():
    rng = np.random.default_rng(4)
    for _ in range(300):
        plus, minus, r = 10.0 ** rng.uniform(-12, 12, 3) * [1, rng.random() < 0.8, 1]

        def slope(w, plus=plus, minus=minus, r=r):
            return 1 + r * (minus * np.exp(w) - plus * np.exp(-w))

        w = solve_weight(plus, minus, r)
        if slope(0.0) >= 0:
            assert w == 0
        else:
            assert w == pytest.approx(scipy.optimize.brentq(slope, 0, 120, xtol=1e-14), rel=1e-9, abs=1e-11)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n", [1, 63, 64, 65, 1000])
def test_packed_answers_sum_like_plain_ones(dtype, n):
    rng = np.random.default_rng(n)
    n_words = -(-n // 64)
    t = np.zeros(64 * n_words, dtype)
    t[:n] = rng.random(n)
    labels = rng.integers(0, 3, n).astype(np.int32)
    codes = rng.integers(0, 9, n).astype(np.uint8)
    words, own = np.empty((1, n_words), np.uint64), np.empty(n_words, np.uint64)
    range_bits(codes, 2, 5, words[0])
    table = np.zeros(256, np.int8)
    table[1] = 1
    leaf_bits((labels == 1).astype(np.uint8), table, own)
    h = np.where((codes >= 2) & (codes <= 5), 1, -1)
    s = np.where(labels == 1, 1, -1)
    slots, out = np.zeros(2, np.int64), np.empty(2)
    signs = np.array([1, -1], np.int8)
    bit_scores(BitLearners(words, slots, signs, own), 2.0, t, out)
    expected = 2 * (t[:n].astype(float) * s * h).sum()
    assert out == pytest.approx([expected, -expected], rel=1e-12, abs=1e-12)
    rows = np.flatnonzero(h > 0).astype(np.int32)
    row_scores(RowLearners(np.array([[0, len(rows)]]), rows, slots, signs, labels, 1), 2.0, t, out)
    expected = 2 * (t[:n].astype(float) * s * (h > 0)).sum()
    assert out == pytest.approx([expected, -expected], rel=1e-12, abs=1e-12)

    before = t.copy()
    for rate in (1.0, 0.3):
        weights, t = np.zeros(1), before.copy()
        learners = BitLearners(words, slots[:1], np.ones(1, np.int8), own)
        bit_sweep(learners, Visits(np.zeros(1, np.int64), 0.0, rate, 50.0), t, weights)
        np.testing.assert_allclose(t[:n], before[:n] * np.exp(-weights[0] * s * h), rtol=1e-6)
        plus, minus = (before[:n][s * h == side].astype(float).sum() for side in (1, -1))
        assert weights[0] == pytest.approx(rate * solve_weight(plus, minus, 50.0), rel=1e-9)
    assert (t[n:] == 0).all()
    assert LANES == 16


def test_gather_reads_what_a_class_sees():
    rng = np.random.default_rng(6)
    mu = rng.random((40, 5))
    labels = rng.integers(0, 5, 40).astype(np.int32)
    mu[np.arange(40), labels] = 0
    t, before = np.zeros(64), np.zeros(64)
    for c in range(5):
        gather(c, -mu, labels, t, before)
        np.testing.assert_allclose(t[:40], np.where(labels == c, mu.sum(axis=1), mu[:, c]), rtol=1e-14)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("c", [0, 1])
def test_with_two_classes_a_turn_is_a_fold_and_a_gather(c, dtype):
    """The wide padding of u is not read, and rows without weight stay so."""
    rng = np.random.default_rng(7)
    n, width = 300, 8
    labels = rng.integers(0, 2, n).astype(np.int32)
    u = np.zeros((n, width), dtype)
    u[np.arange(n), 1 - labels] = -rng.random(n) * (rng.random(n) < 0.9)
    u[np.arange(n), labels] = 17.0
    t, before = np.zeros(320, dtype), np.zeros(320, dtype)
    gather(c, u, labels, t, before)
    t[:n] *= np.where(rng.random(n) < 0.7, rng.random(n), 1.0).astype(dtype)
    turned, turned_before = t.copy(), before.copy()
    turn(c, turned, turned_before, labels)
    fold(c, t, before, labels, u)
    gather(1 - c, u, labels, t, before)
    np.testing.assert_array_equal(turned, t)
    np.testing.assert_array_equal(turned_before, before)
    assert (turned[:n] != 0).sum() > 200
