# mypy: ignore-errors
"""Growing trees by one level: the best cut of every node of many trees.

A tree belongs to a class and sees its column of the dual weights u (see `bigmc.kernels.boosting.cuts`).
Inner levels take the cut that leaves the purest sides, ``G_l²/W_l + G_r²/W_r`` with the sums G of u and
W of ``|u|``; the last one takes the cut with the largest score, ``|G_l| + |G_r|``, which is the best
tree that keeps the levels above (leaves answer the sign of their G).

Sums are whole numbers: a weight is rounded to a multiple of ``sum |u| / UNIT`` and kept as
``(g << 32) + |g|``, so that one addition serves both sums of a cell. They are exact, whatever is added
first: the histogram of a node is that of its parent minus that of its sibling, and blocks, threads and
workers cannot change a bit. A node whose weights all have one sign (``|G| = W``) has nothing to gain: it is
closed, as is everything below it.
"""

from __future__ import annotations

import numpy as np
from numba import njit

#: What the weights of a class add up to, about; their sums stay below ``2^31``.
UNIT = 1 << 30
#: Set in the node of a sample that goes above at the level being cut.
ABOVE = np.uint8(128)
_NODE = np.uint8(127)
_HALF = np.uint32(0xFFFFFFFF)
_ROWS = 128


@njit(cache=True, nogil=True, fastmath=False)
def pack_weights(u, masses, packed):
    """Round the dual weights to whole numbers and pack each with its absolute value.

    Parameters
    ----------
    u : float array of shape (n_samples, at least n_classes)
    masses : float64 array of shape (n_classes,)
        ``sum |u|`` of every class.
    packed : int64 array of shape (n_classes, n_samples)
    """
    for c in range(masses.shape[0]):
        row = packed[c]
        if masses[c] > 0.0:
            for i in range(u.shape[0]):
                g = np.int64(np.rint(np.float64(u[i, c]) / masses[c] * UNIT))
                row[i] = (g << 32) + abs(g)
        else:
            row[:] = 0


@njit(cache=True, nogil=True, fastmath=False)
def _is_open(total):
    return abs(total >> 32) < (total & _HALF)


@njit(cache=True, nogil=True, fastmath=False)
def tabulate(columns, entries, zero, shard, table):
    """Write the codes of some columns of one shard of a block side by side.

    Parameters
    ----------
    columns : int64 array of shape (n_chosen,)
    entries : Entries
    zero : int64 array of shape (n_columns,)
        Code of the samples without an entry.
    shard : int
    table : uint8 array of shape (n_samples, n_chosen)
    """
    indptr, rows, codes = entries.indptr, entries.rows, entries.codes
    here = table[entries.base[shard] : entries.base[shard + 1]]
    n_rows = here.shape[0]
    for p in range(columns.shape[0]):
        j = columns[p]
        start, stop = indptr[shard, j], indptr[shard, j + 1]
        if stop - start < n_rows:
            here[:, p] = zero[j]
            for k in range(start, stop):
                here[np.uint64(rows[k]), np.uint64(p)] = codes[k]
    # Full columns a few rows at a time, which stay in the cache while their columns are filled in.
    for first in range(0, n_rows, _ROWS):
        n = min(_ROWS, n_rows - first)
        for p in range(columns.shape[0]):
            start = indptr[shard, columns[p]]
            if indptr[shard, columns[p] + 1] - start == n_rows:
                source = codes[start + first : start + first + n]
                target = here[first : first + n, p]
                for k in range(n):
                    target[k] = source[k]


@njit(cache=True, nogil=True, fastmath=False)
def _add_rows(table, nodes, slots, added, weights, rows, hist):
    """Add the samples of some nodes to their histograms; `rows` is space for a list of them."""
    width, cells = np.uint64(table.codes.shape[1]), np.uint64(hist.shape[1])
    flat, out, firsts = table.codes.ravel(), hist.ravel(), table.firsts
    n = 0
    for i in range(nodes.shape[0]):
        rows[n] = i
        n += added[nodes[i] & _NODE]
    for k in range(n):
        i = np.uint64(rows[k])
        weight = weights[i]
        first = np.uint64(slots[nodes[i] & _NODE]) * cells + np.uint64(table.at)
        for p in range(table.codes.shape[1]):
            code = flat[i * width + np.uint64(p)]
            out[first + firsts[p] + np.uint64(code)] += weight


@njit(cache=True, nogil=True, fastmath=False)
def add_samples(table, weights, rows, hist):
    """Add all samples to a histogram.

    Parameters
    ----------
    table : Table
    weights : int64 array of shape (n_samples,)
    rows : int32 array of shape (n_samples + 1,)
        Scratch space.
    hist : int64 array of shape (1, n_cells)
    """
    nodes, slots = np.zeros(table.codes.shape[0], np.uint8), np.zeros(1, np.int64)
    _add_rows(table, nodes, slots, np.ones(1, np.uint8), weights, rows, hist)


@njit(cache=True, nogil=True, fastmath=False)
def _purity(below, total):
    """Return ``G²/W`` summed over both sides, neither of which is without weight."""
    g, w = np.float64(below >> 32), np.float64(below & _HALF)
    rest, left = np.float64(total >> 32) - g, np.float64(total & _HALF) - w
    return (g * g * left + rest * rest * w) / max(w * left, 1.0)


@njit(cache=True, nogil=True, fastmath=False)
def find_peaks(hist, table, values, cuts, sides):
    """Write the cuts of a root that leave purer sides than their neighbours do; return their number.

    Neighbouring cuts are nearly the same, so a peak stands for its slope.

    Parameters
    ----------
    hist : int64 array of shape (n_cells,)
        Of all samples and one class.
    table : Table
    values : float64 array of shape (2 n_cells,)
    cuts : int64 array of shape (2 n_cells, 3)
        Column, cut, and 1 if missing values go below.
    sides : int64 array of shape (2 n_cells, 2)
        Packed sums below and above.
    """
    n = 0
    n_edges, missing = table.n_edges, table.missing
    for p in range(n_edges.shape[0]):
        here = hist[np.int64(table.firsts[p]) :]
        last = n_edges[p] + 1 if missing[p] else n_edges[p]
        total = here[: last + 1].sum()
        for missing_below in range(2 if missing[p] else 1):
            below = here[last] if missing_below else 0
            # With missing values the cut above all edges separates them from the rest.
            stop = n_edges[p] if missing_below else last
            rising, value = True, -1.0
            for b in range(stop + 1):
                before = value
                if b < stop:
                    below += here[b]
                    value = _purity(below, total)
                else:
                    value = -1.0
                if b and rising and before > value and before > 0.0:
                    values[n] = before
                    cuts[n, 0], cuts[n, 1], cuts[n, 2] = p, b - 1, missing_below
                    sides[n, 0] = below - here[b] if b < stop else below
                    sides[n, 1] = total - sides[n, 0]
                    n += 1
                rising = value >= before
    return n


@njit(cache=True, nogil=True, fastmath=False)
def open_level(nodes, totals, kept, slots, added):
    """Move the samples to the next level, and say whose histograms are to be summed up.

    Parameters
    ----------
    nodes : uint8 array of shape (n_trees, n_samples)
        Node of each sample at the level above, with `ABOVE`; changed.
    totals : int64 array of shape (n_trees, n_nodes)
        Packed sums of the nodes of the new level.
    kept : bool
        Whether the histograms of the parents are there: then only the child with fewer samples is summed up.
    slots : int64 array of shape (n_trees, at least n_nodes)
        Histogram of each node, those of the level above on entry.
    added : uint8 array of shape (n_trees, at least n_nodes)
        1 for nodes to be summed up.
    """
    n_nodes = totals.shape[1]
    counts, parents = np.empty(128, np.int64), np.empty(n_nodes // 2, np.int64)
    for tree in range(nodes.shape[0]):
        at = nodes[tree]
        counts[:] = 0
        for i in range(at.shape[0]):
            x = np.uint8(((at[i] & _NODE) << 1) | (at[i] >> 7))
            at[i] = x
            counts[x] += 1
        parents[:] = slots[tree, : n_nodes // 2]
        for parent in range(n_nodes // 2):
            below, above = 2 * parent, 2 * parent + 1
            if kept:
                needed = _is_open(totals[tree, below]) or _is_open(totals[tree, above])
                few = below if counts[below] <= counts[above] else above
                many = below + above - few
                slots[tree, few], slots[tree, many] = parents[parent] + n_nodes // 2, parents[parent]
                added[tree, few], added[tree, many] = needed, 0
            else:
                for node in (below, above):
                    slots[tree, node] = node
                    added[tree, node] = _is_open(totals[tree, node])


@njit(cache=True, nogil=True, fastmath=False)
def split_nodes(first_tree, stop_tree, table, level, rows, hist):
    """Offer the cuts of some columns to every open node of some trees.

    Parameters
    ----------
    first_tree, stop_tree : int
    table : Table
    level : Level
    rows : int32 array of shape (n_samples + 1,)
        Scratch space.
    hist : int64 array of shape (n_trees, n_slots, n_cells)
        If histograms are not kept, those of one tree, to be used by all, with the cells of the table only.
    """
    totals, slots, added, kept = level.totals, level.slots, level.added, level.kept
    cuts, sides, at = level.cuts, level.sides, table.at
    features, firsts, n_edges, missing = table.features, table.firsts, table.n_edges, table.missing
    n_nodes, n_columns = totals.shape[1], features.shape[0]
    stop_at = at + np.int64(firsts[n_columns - 1]) + n_edges[n_columns - 1] + 1 + missing[n_columns - 1]
    for tree in range(first_tree, stop_tree):
        here = hist[tree if kept else 0]
        for node in range(n_nodes):
            if added[tree, node]:
                here[slots[tree, node], at:stop_at] = 0
        weights = level.weights[level.classes[tree]]
        _add_rows(table, level.nodes[tree], slots[tree], added[tree], weights, rows, here)
        for node in range(n_nodes):
            if kept and added[tree, node]:
                few, many = slots[tree, node], slots[tree, node ^ 1]
                for k in range(at, stop_at):
                    here[many, k] -= here[few, k]
        for node in range(n_nodes):
            total = totals[tree, node]
            if not _is_open(total):
                continue
            best = level.values[tree, node]
            column = np.int64(-1)
            whole = np.float64(total >> 32)
            for p in range(n_columns):
                cells = here[slots[tree, node], at + np.int64(firsts[p]) :]
                for missing_below in range(2 if missing[p] else 1):
                    below = cells[n_edges[p] + 1] if missing_below else 0
                    for b in range(n_edges[p] + 1 if missing[p] and not missing_below else n_edges[p]):
                        below += cells[b]
                        if level.last:
                            g = np.float64(below >> 32)
                            value = abs(g) + abs(whole - g)
                        else:
                            value = _purity(below, total)
                        if value > best:
                            best = value
                            column = p
                            cuts[tree, node, 1], cuts[tree, node, 2] = b, missing_below
                            sides[tree, node, 0] = below
            if column >= 0:
                level.values[tree, node] = best
                cuts[tree, node, 0] = features[column]
                sides[tree, node, 1] = total - sides[tree, node, 0]


@njit(cache=True, nogil=True, fastmath=False)
def route(first_tree, stop_tree, table, cuts, nodes):
    """Mark the samples that go above at the nodes which ask one of some columns.

    Parameters
    ----------
    first_tree, stop_tree, table
        See `split_nodes`; the features increase.
    cuts, nodes
        See `Level`.
    """
    width, flat = np.uint64(table.codes.shape[1]), table.codes.ravel()
    features, n_edges = table.features, table.n_edges
    column, low = np.zeros(128, np.uint64), np.empty(128, np.uint8)
    high, kept = np.empty(128, np.uint8), np.empty(128, np.uint8)
    for tree in range(first_tree, stop_tree):
        some = False
        for node in range(cuts.shape[1]):
            p = np.searchsorted(features, cuts[tree, node, 0])
            # A node that asks none of the columns keeps what it has.
            low[node], high[node], kept[node] = 255, 0, 255
            if p < features.shape[0] and features[p] == cuts[tree, node, 0]:
                some = True
                low[node], column[node], kept[node] = cuts[tree, node, 1] + 1, p, _NODE
                high[node] = n_edges[p] if cuts[tree, node, 2] else n_edges[p] + 1
        if not some:
            continue
        at = nodes[tree]
        for i in range(at.shape[0]):
            node = at[i] & _NODE
            code = flat[np.uint64(i) * width + column[node]]
            inside = np.uint8((code >= low[node]) & (code <= high[node]))
            at[i] = (at[i] & kept[node]) | (inside << np.uint8(7))
