"""Tables of codes against the codes of dense columns, and trees of listed columns against brute force."""

import itertools

import numpy as np
import pytest

from bigmc.engine import ThreadEngine
from bigmc.solvers.boosting import tables, tree_growth
from bigmc.solvers.boosting.binning import BinnedSource
from bigmc.solvers.boosting.oracle import Duals
from bigmc.solvers.boosting.predictions import BitResponses
from bigmc.solvers.boosting.tables import CodeTables
from bigmc.solvers.boosting.tree_growth import TreeGrower, TreePlan
from bigmc.solvers.boosting.trees import TreeOracle
from bigmc.store.block import Residency
from bigmc.store.dataset import Dataset

N = 500


@pytest.fixture(autouse=True)
def lists_are_worth_it(monkeypatch):
    """So few samples are otherwise all side by side."""
    monkeypatch.setattr(tables, "_WORTH_LISTS", 0)


def mixed(seed=0):
    """Numbers, indicators of two categories, counts that are mostly 0, and columns of two numbers."""
    rng = np.random.default_rng(seed)
    one, other = (rng.integers(0, k, N) for k in (9, 6))
    indicators = np.concatenate([one[:, None] == np.arange(9), other[:, None] == np.arange(6)], axis=1)
    rare = rng.integers(0, 4, (N, 8)) * (rng.random((N, 8)) < 0.1)
    rare = np.where(rng.random((N, 8)) < 0.02, np.nan, rare)
    below = np.where(rng.random(N) < 0.1, -1.0, 0.0)  # samples without an entry are above
    two = np.where(rng.random(N) < 0.3, 2.0, 7.0)  # every sample has an entry
    numbers = rng.normal(size=(N, 3))
    numbers[rng.random(N) < 0.2, 0] = np.nan
    X = np.column_stack([numbers, indicators, rare, below, two]).astype(float)
    return X[:, rng.permutation(X.shape[1])], rng.integers(0, 3, N)


def source_of(X, y, ranges, residency=Residency.MEMORY):
    dataset = Dataset.from_arrays(X, y, shard_rows=128)
    return BinnedSource(dataset, ranges, residency, 255, np.ones(N, bool), ThreadEngine(2))


def halves(X):
    return [(0, 11), (11, X.shape[1])]


def codes_of(source, feature, x):
    """Codes of a column by the edges: the number of edges below a value; missing values come last."""
    edges = source.edges_of(feature)
    return np.where(np.isnan(x), len(edges) + 1, np.searchsorted(edges, x, side="left"))


@pytest.mark.parametrize("residency", Residency)
@pytest.mark.parametrize("kept_bytes", [0, 10**7])
def test_tables_have_the_codes_of_all_columns(residency, kept_bytes):
    X, y = mixed()
    source = source_of(X, y, halves(X), residency)
    code_tables = CodeTables(source, N, kept_bytes, ThreadEngine(2))
    draws = [np.random.default_rng(k).random(X.shape[1]) < 0.6 for k in range(2)]
    for drawn in (None, None, *draws, draws[1].copy(), None):
        code_tables.choose(drawn)
        seen, listed, at = [], 0, 0
        for table in code_tables:
            assert table.at == at
            at += table.n_cells
            assert (np.diff(table.features) > 0).all()
            owners = np.repeat(np.arange(N), np.diff(table.starts)) if len(table.starts) else None
            for p, feature in enumerate(table.features):
                code = codes_of(source, feature, X[:, feature])
                if owners is None:
                    assert (table.codes[:, p] == code).all()
                    assert (table.columns[p, :N] == code).all()
                else:
                    stored = np.full(N, table.zero[p])
                    cell = table.cells.astype(int) - int(table.firsts[p])
                    mine = (cell >= 0) & (cell <= table.n_edges[p] + table.missing[p])
                    stored[owners[mine]] = cell[mine]
                    assert (stored == code).all()
                    assert (cell[mine] != table.zero[p]).all()
                    listed += 1
                seen.append(feature)
        assert sorted(seen) == np.flatnonzero(np.ones(X.shape[1], bool) if drawn is None else drawn).tolist()
        assert 5 <= listed < len(seen)


def sides_of(X, source, feature, cut, missing_below):
    code = codes_of(source, feature, X[:, feature])
    n_edges = len(source.edges_of(feature))
    return (code > cut) & ~((code == n_edges + 1) & bool(missing_below))


@pytest.mark.exhaustive(keep=1)
@pytest.mark.parametrize("seed", range(3))
def test_trees_of_listed_columns_are_the_best_for_their_roots(seed, monkeypatch):
    """Both cuts below the root leave the largest sums; equal ones go to the first feature, in any layout."""
    X, y = mixed(seed)
    engine, responses = ThreadEngine(2), BitResponses(y.astype(np.int32), 3)
    rng = np.random.default_rng(seed)
    u = np.zeros((N, 8))
    u[:, :3] = -rng.random((N, 3))
    u[np.arange(N), y] -= u[:, :3].sum(axis=1)
    found = []
    layouts = itertools.product(([(0, X.shape[1])], halves(X)), (10**7, 0), (10**6, 0), (0, 10**9))
    for ranges, room, kept, worth in layouts:
        monkeypatch.setattr(tables, "_WORTH_LISTS", worth)
        source = source_of(X, y, ranges)
        search = TreeOracle(TreeGrower(source, N, TreePlan(2, room, kept), engine), responses, 3, 2, engine)
        found.append(search.price(Duals(u, 1.0), 6))
    first = found[0]
    for other in found[1:]:
        assert other.learners.keys() == first.learners.keys()
        assert (other.places == first.places).all()
    cuts = [
        (feature, cut, below)
        for feature in range(X.shape[1])
        for below in ((0, 1) if np.isnan(X[:, feature]).any() else (0,))
        for cut in range(
            len(source.edges_of(feature)) + (1 if np.isnan(X[:, feature]).any() and not below else 0)
        )
    ]
    above_of = {key: sides_of(X, source, *key) for key in cuts}
    checked = 0
    for c, place in zip(first.classes, first.places, strict=True):
        tree = first.learners.take(place)
        if tree.feature[0] < 0:
            continue
        root = sides_of(X, source, tree.feature[0], tree.cut[0], tree.missing_below[0])
        for node, side in ((1, ~root), (2, root)):
            scores = {
                key: abs(u[side & above, c].sum()) + abs(u[side & ~above, c].sum())
                for key, above in above_of.items()
            }
            if tree.feature[node] < 0:
                assert max(scores.values()) <= abs(u[side, c].sum()) + 1e-6
                continue
            key = (tree.feature[node], tree.cut[node], int(tree.missing_below[node]))
            assert scores[key] == pytest.approx(max(scores.values()), abs=1e-6)
            assert tree.feature[node] == min(k[0] for k, v in scores.items() if v > scores[key] - 1e-12)
            checked += 1
    assert checked > 20


def test_few_trees_at_a_time_are_the_same_and_take_little_memory(monkeypatch):
    X, y = mixed(3)
    engine, responses = ThreadEngine(2), BitResponses(y.astype(np.int32), 3)
    u = np.random.default_rng(3).normal(size=(N, 8))
    found, largest = [], []
    for most in (1, 10**9):
        monkeypatch.setattr(tree_growth, "_SIDE_BY_SIDE_BYTES", most)
        grower = TreeGrower(source_of(X, y, [(0, X.shape[1])]), N, TreePlan(3, 10**8, 10**6), engine)
        found.append(TreeOracle(grower, responses, 3, 3, engine).price(Duals(u, 1.0), 6))
        largest.append(grower._hist.nbytes)
    assert found[0].learners.keys() == found[1].learners.keys()
    assert (found[0].places == found[1].places).all()
    assert largest[1] >= 6 * largest[0]
