"""The samples of nodes as bits, against walking down the tree for each sample."""

from __future__ import annotations

import numpy as np
import pytest

from bigmc.kernels.boosting.arguments import Entries, Table
from bigmc.kernels.boosting.trees import open_level, route, transpose_codes, tree_bits

N_EDGES, DEPTH = 5, 3


def _leaf(codes, cuts):
    """Return the leaf of a sample, asking one node after the other; nodes that ask nothing send it below."""
    node = 0
    for _ in range(DEPTH):
        feature, cut, missing_below = cuts[node]
        code = codes[feature]
        missing = code == N_EDGES + 1
        above = feature >= 0 and (not missing_below if missing else code > cut)
        node = 2 * node + 1 + above
    return node - (2**DEPTH - 1)


def _table(codes, lo, listed):
    """A table of two columns, side by side or with the entries of two shards, where code 1 has none."""
    n = len(codes)
    half = n // 2
    stored = [(codes[rows, p] != 1).nonzero()[0] for rows in (slice(half), slice(half, n)) for p in (0, 1)]
    ends = np.cumsum([len(rows) for rows in stored])
    indptr = np.array([[0, ends[0], ends[1]], [ends[1], ends[2], ends[3]]])
    coded = [codes[rows + (k > 1) * half, k % 2] for k, rows in enumerate(stored)]
    base = np.array([0, half, n])
    entries = Entries(indptr, np.concatenate(stored).astype(np.uint16), np.concatenate(coded), base)
    columns = np.full((0 if listed else 2, 64 * -(-n // 64)), 3, np.uint8)
    side_by_side = np.ascontiguousarray(codes[:, : len(columns)])
    transpose_codes(side_by_side, columns)
    return Table(
        codes=side_by_side,
        columns=columns,
        starts=np.empty(0, np.uint32),
        cells=np.empty(0, np.uint16),
        entries=entries,
        numbers=np.arange(2),
        zero=np.ones(2, np.int64),
        features=np.arange(lo, lo + 2),
        n_edges=np.full(2, N_EDGES),
        missing=np.ones(2, np.bool_),
        firsts=np.zeros(2, np.uint64),
        at=0,
        n_cells=14,
    )


@pytest.mark.parametrize("n_samples", [1, 64, 200])
def test_trees_send_samples_where_asking_every_node_does(n_samples):
    """Whatever table a column is in, and also beside the last whole word."""
    generator = np.random.default_rng(n_samples)
    n_trees, n_nodes, n_words = 7, 2 ** (DEPTH - 1), -(-n_samples // 64)
    codes = generator.integers(0, N_EDGES + 2, (n_samples, 4)).astype(np.uint8)
    cuts = np.stack(
        [
            generator.integers(low, high, (n_trees, 2**DEPTH - 1))
            for low, high in [(-1, 4), (0, N_EDGES), (0, 2)]
        ],
        axis=2,
    )
    leaf = generator.choice([-1, 1], (n_trees, 2 * n_nodes)).astype(np.int8)
    members, above = np.zeros((n_trees, n_nodes, n_words), np.uint64), np.zeros((n_trees, n_words), np.uint64)
    everyone = np.packbits(np.arange(64 * n_words) < n_samples, bitorder="little").view(np.uint64)
    members[:, 0] = everyone
    for depth in range(DEPTH):
        if depth:
            totals = np.zeros((n_trees, 2**depth), np.int64)
            slots, added = np.zeros_like(totals), np.zeros(totals.shape, np.uint8)
            open_level(members, above, totals, False, slots, added)
        level = np.ascontiguousarray(cuts[:, 2**depth - 1 : 2 ** (depth + 1) - 1])
        for lo in (0, 2):
            table = _table(codes[:, lo : lo + 2], lo, listed=lo > 0)
            route(0, n_trees, table, level, members, above)
    for tree in range(n_trees):
        words = np.empty(n_words, np.uint64)
        tree_bits(members[tree], above[tree], leaf[tree], words)
        found = np.unpackbits(words.view(np.uint8), bitorder="little")
        expected = [leaf[tree, _leaf(row, cuts[tree])] > 0 for row in codes]
        assert found[:n_samples].astype(bool).tolist() == expected
        assert not found[n_samples:].any()
