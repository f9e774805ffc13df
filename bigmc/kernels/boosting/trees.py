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

The samples of a node are a set of bits, 64 in a word: a cut compares the codes of 64 samples at once.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from bigmc.kernels.boosting.predictions import range_word
from bigmc.kernels.copies import copy_to
from bigmc.kernels.decorators import inner_kernel, kernel

#: Approximate sum of the weights of a class; their sums stay below ``2^31``.
UNIT = 1 << 30
_ONE, _WORD, _SHIFT = np.uint64(1), np.uint64(64), np.uint64(6)
_HALF = np.uint32(0xFFFFFFFF)
_ROWS = 128


@kernel
def pack_weights(u, masses, packed):
    """Round the dual weights to integers and pack each with its absolute value.

    `u` has the shape (n_samples, at least n_classes); `masses` is ``sum |u|`` of every class; `packed` is
    int64 of shape (n_classes, n_samples).
    """
    for c in range(masses.shape[0]):
        row = packed[c]
        if masses[c] > 0.0:
            for i in range(u.shape[0]):
                g = np.int64(np.rint(np.float64(u[i, c]) / masses[c] * UNIT))
                row[i] = (g << 32) + abs(g)
        else:
            row[:] = 0


@intrinsic
def _count_ones(typing, word):
    """Return the number of set bits."""

    def generate(context, builder, signature, arguments):
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


@intrinsic
def _count_trailing_zeros(typing, word):
    """Return the place of the lowest set bit; there must be one."""

    def generate(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), generate


@inner_kernel
def _is_open(total):
    return abs(total >> 32) < (total & _HALF)


@kernel
def tabulate(columns, entries, zero, shard, table):
    """Write the codes of some columns of one shard of a block side by side.

    `entries` is an `Entries`; `zero`, int64 of shape (n_chosen,), is the code of samples without an
    entry; `table` is uint8 of shape (n_samples, n_chosen).
    """
    indptr, rows, codes = entries.indptr, entries.rows, entries.codes
    own = table[entries.base[shard] : entries.base[shard + 1]]
    n_rows = own.shape[0]
    for p in range(columns.shape[0]):
        j = columns[p]
        start, stop = indptr[shard, j], indptr[shard, j + 1]
        if stop - start < n_rows:
            own[:, p] = zero[p]
            for k in range(start, stop):
                own[np.uint64(rows[k]), np.uint64(p)] = codes[k]
    # Full columns a few rows at a time, so that these stay in the cache while all their columns are written.
    for first in range(0, n_rows, _ROWS):
        n = min(_ROWS, n_rows - first)
        for p in range(columns.shape[0]):
            start = indptr[shard, columns[p]]
            if indptr[shard, columns[p] + 1] - start == n_rows:
                source = codes[start + first : start + first + n]
                target = own[first : first + n, p]
                for k in range(n):
                    target[k] = source[k]


@kernel
def count_codes(columns, entries, zero, shard, counts):
    """Count, for every sample of a shard, the columns in which its code is not that of 0.

    For `columns`, `entries` and `zero` see `tabulate`; `counts` is uint32 of shape (n_samples,).
    """
    own = counts[entries.base[shard] : entries.base[shard + 1]]
    own[:] = 0
    for p in range(columns.shape[0]):
        for k in range(entries.indptr[shard, columns[p]], entries.indptr[shard, columns[p] + 1]):
            if entries.codes[k] != zero[p]:
                own[entries.rows[k]] += np.uint32(1)


@kernel
def list_codes(table, shard):
    """Write the cells of the codes that `count_codes` counts, sample after sample.

    Of a `Table`, `starts` has the ends of the lists, and has their starts afterwards; `cells` is written.
    """
    entries, numbers, starts = table.entries, table.numbers, table.starts
    own = starts[entries.base[shard] : entries.base[shard + 1]]
    for p in range(numbers.shape[0]):
        for k in range(entries.indptr[shard, numbers[p]], entries.indptr[shard, numbers[p] + 1]):
            if entries.codes[k] != table.zero[p]:
                own[entries.rows[k]] -= np.uint32(1)
                table.cells[own[entries.rows[k]]] = table.firsts[p] + np.uint64(entries.codes[k])


@kernel
def transpose_codes(table, columns):
    """Write the codes of a table, shape (n_samples, n_columns), column after column."""
    for first in range(0, table.shape[0], _ROWS):
        stop = min(first + _ROWS, table.shape[0])
        for p in range(table.shape[1]):
            target = columns[p]
            for i in range(first, stop):
                target[i] = table[i, p]


@inner_kernel
def _add_members(table, members, weights, hist):
    """Add the samples of a node to its histogram."""
    width, flat, firsts = np.uint64(table.codes.shape[1]), table.codes.ravel(), table.firsts
    starts, cells, out = table.starts, table.cells, hist[table.at :]
    for w in range(members.shape[0]):
        bits = members[w]
        while bits:
            i = np.uint64(w) * _WORD + _count_trailing_zeros(bits)
            bits &= bits - _ONE
            weight = weights[i]
            if weight == 0:
                continue
            for p in range(width):
                out[firsts[p] + np.uint64(flat[i * width + p])] += weight
            if not width:
                for k in range(np.uint64(starts[i]), np.uint64(starts[i + _ONE])):
                    out[np.uint64(cells[k])] += weight


@kernel
def add_samples(table, weights, hist):
    """Add all samples, with their packed weights, to the histogram of a `Table`."""
    width, flat, firsts = np.uint64(table.codes.shape[1]), table.codes.ravel(), table.firsts
    starts, cells, out = table.starts, table.cells, hist[table.at :]
    for i in range(np.uint64(table.codes.shape[0])):
        weight = weights[i]
        if weight == 0:
            continue
        for p in range(width):
            out[firsts[p] + np.uint64(flat[i * width + p])] += weight
        if not width:
            for k in range(np.uint64(starts[i]), np.uint64(starts[i + _ONE])):
                out[np.uint64(cells[k])] += weight


@inner_kernel
def _fill_zero(cells, zero, total):
    """Set the cell of code 0 of a column in a histogram of lists, which leave it out."""
    cells[zero] = 0
    cells[zero] = total - cells.sum()


@inner_kernel
def _purity(below, total):
    """Return ``G²/W`` summed over both sides, neither of which is without weight."""
    g, w = np.float64(below >> 32), np.float64(below & _HALF)
    rest, left = np.float64(total >> 32) - g, np.float64(total & _HALF) - w
    return (g * g * left + rest * rest * w) / max(w * left, 1.0)


@kernel
def find_peaks(hist, table, total, values, cuts, sides):
    """Write the cuts of a root that leave purer sides than their neighbours do; return their number.

    Neighbouring cuts are nearly the same, so a peak represents its slope. `hist`, int64 of shape
    (n_cells,), is that of all samples and one class, whose packed sum is `total`. `values` is float64 of
    shape (2 n_cells,), `cuts` int64 of shape (2 n_cells, 3): column, cut, and 1 if missing values go below;
    `sides`, of shape (2 n_cells, 2), are packed sums below and above.
    """
    n = 0
    n_edges, missing, listed = table.n_edges, table.missing, table.codes.shape[1] == 0
    for p in range(n_edges.shape[0]):
        cells = hist[np.int64(table.firsts[p]) :]
        last = n_edges[p] + 1 if missing[p] else n_edges[p]
        if listed:
            _fill_zero(cells[: last + 1], table.zero[p], total)
        for missing_below in range(2 if missing[p] else 1):
            below = cells[last] if missing_below else 0
            # With missing values the cut above all edges separates them from the rest.
            stop = n_edges[p] if missing_below else last
            rising, value = True, -1.0
            for b in range(stop + 1):
                before = value
                if b < stop:
                    below += cells[b]
                    value = _purity(below, total)
                else:
                    value = -1.0
                if b and rising and before > value and before > 0.0:
                    values[n] = before
                    cuts[n, 0], cuts[n, 1], cuts[n, 2] = p, b - 1, missing_below
                    sides[n, 0] = below - cells[b] if b < stop else below
                    sides[n, 1] = total - sides[n, 0]
                    n += 1
                rising = value >= before
    return n


@kernel
def open_level(members, above, totals, kept, slots, added):
    """Move the samples to the next level, and determine whose histograms are summed up.

    If `kept`, there are histograms of the parents, and only the child with fewer samples is summed up.
    For the arrays see `Level`: `members` are those of the level above, and are overwritten; `above`,
    uint64 of shape (n_trees, n_words), are the bits of the samples that go above, and are cleared;
    `totals` are those of the new level; `slots` are those of the level above on entry.
    """
    n_nodes = totals.shape[1]
    counts, parents = np.empty(n_nodes, np.uint64), np.empty(n_nodes // 2, np.int64)
    for tree in range(members.shape[0]):
        up = above[tree]
        for parent in range(n_nodes // 2 - 1, -1, -1):  # the first one is overwritten by its own children
            whole = members[tree, parent]
            lower, upper = members[tree, 2 * parent], members[tree, 2 * parent + 1]
            n_below = n_above = np.uint64(0)
            for w in range(up.shape[0]):
                bits = whole[w]
                lower[w], upper[w] = bits & ~up[w], bits & up[w]
                n_below += _count_ones(lower[w])
                n_above += _count_ones(upper[w])
            counts[2 * parent], counts[2 * parent + 1] = n_below, n_above
        up[:] = 0
        copy_to(slots[tree, : n_nodes // 2], parents)
        for parent in range(n_nodes // 2):
            below, over = 2 * parent, 2 * parent + 1
            if kept:
                needed = _is_open(totals[tree, below]) or _is_open(totals[tree, over])
                few = below if counts[below] <= counts[over] else over
                many = below + over - few
                slots[tree, few], slots[tree, many] = parents[parent] + n_nodes // 2, parents[parent]
                added[tree, few], added[tree, many] = needed, 0
            else:
                for node in (below, over):
                    slots[tree, node] = node
                    added[tree, node] = _is_open(totals[tree, node])


@kernel
def split_nodes(first_tree, stop_tree, table, level, hist):
    """Offer the cuts of some columns, a `Table`, to every open node of some trees at a `Level`.

    `hist` is int64 of shape (n_trees, n_slots, n_cells). If histograms are not kept, it is that of one
    tree, used for all, with the cells of the table only. Of equal cuts the one of the first feature is taken,
    whatever tables the features are in.
    """
    totals, slots, added, kept = level.totals, level.slots, level.added, level.kept
    cuts, sides, at = level.cuts, level.sides, table.at
    features, firsts, n_edges, missing = table.features, table.firsts, table.n_edges, table.missing
    n_nodes, n_columns, listed = totals.shape[1], features.shape[0], table.codes.shape[1] == 0
    stop_at = at + table.n_cells
    for tree in range(first_tree, stop_tree):
        own = hist[tree if kept else 0]
        weights = level.weights[level.classes[tree]]
        for node in range(n_nodes):
            if added[tree, node]:
                sums = own[slots[tree, node]]
                sums[at:stop_at] = 0
                _add_members(table, level.members[tree, node], weights, sums)
        for node in range(n_nodes):
            if kept and added[tree, node]:
                few, many = slots[tree, node], slots[tree, node ^ 1]
                for k in range(at, stop_at):
                    own[many, k] -= own[few, k]
        for node in range(n_nodes):
            total = totals[tree, node]
            if not _is_open(total):
                continue
            best, feature = level.values[tree, node], cuts[tree, node, 0]
            found = False
            whole = np.float64(total >> 32)
            for p in range(n_columns):
                cells = own[slots[tree, node], at + np.int64(firsts[p]) :]
                if listed:
                    _fill_zero(cells[: n_edges[p] + 1 + missing[p]], table.zero[p], total)
                # Among equal cuts that of the first feature wins, which may be in an earlier table.
                least = np.nextafter(best, -1.0) if features[p] < feature else best
                for missing_below in range(2 if missing[p] else 1):
                    below = cells[n_edges[p] + 1] if missing_below else 0
                    for b in range(n_edges[p] + 1 if missing[p] and not missing_below else n_edges[p]):
                        if b and cells[b] == 0:  # the cut before is the same
                            continue
                        below += cells[b]
                        if level.last:
                            g = np.float64(below >> 32)
                            value = abs(g) + abs(whole - g)
                        else:
                            value = _purity(below, total)
                        if value > least:
                            least = best = value
                            feature, found = features[p], True
                            cuts[tree, node, 1], cuts[tree, node, 2] = b, missing_below
                            sides[tree, node, 0] = below
            if found:
                level.values[tree, node] = best
                cuts[tree, node, 0] = feature
                sides[tree, node, 1] = total - sides[tree, node, 0]


@inner_kernel
def _route_entries(table, p, low, high, own, up):
    """Mark the samples of a node whose code in column `p`, of which only entries are known, goes above."""
    rest_above = low <= table.zero[p] <= high
    for w in range(up.shape[0]):
        up[w] = (up[w] & ~own[w]) | (own[w] if rest_above else np.uint64(0))
    entries, j = table.entries, table.numbers[p]
    for s in range(entries.indptr.shape[0]):
        for k in range(entries.indptr[s, j], entries.indptr[s, j + 1]):
            if (low <= entries.codes[k] <= high) != rest_above:
                i = np.uint64(entries.base[s]) + np.uint64(entries.rows[k])
                up[i >> _SHIFT] ^= own[i >> _SHIFT] & (_ONE << (i & (_WORD - _ONE)))


@kernel
def route(first_tree, stop_tree, table, cuts, members, above):
    """Mark the samples that go above at the nodes that split on one of some columns, which increase.

    For `cuts` and `members` see `Level`; `above`, uint64 of shape (n_trees, n_words), has the bits of the
    samples that go above at their nodes.
    """
    features = table.features
    for tree in range(first_tree, stop_tree):
        up = above[tree]
        for node in range(cuts.shape[1]):
            p = np.searchsorted(features, cuts[tree, node, 0])
            if p == features.shape[0] or features[p] != cuts[tree, node, 0]:
                continue  # its bits may be those of columns before
            own = members[tree, node]
            low = np.uint8(cuts[tree, node, 1] + 1)
            high = np.uint8(table.n_edges[p] if cuts[tree, node, 2] else table.n_edges[p] + 1)
            if table.codes.shape[1] == 0:
                _route_entries(table, p, low, high, own, up)
                continue
            codes = table.columns[p]
            for w in range(up.shape[0]):
                bits = own[w]
                if bits:
                    up[w] = (up[w] & ~bits) | (bits & range_word(codes, w * 64, low, high))


@kernel
def tree_bits(members, above, leaf, words):
    """Set the bit of every sample whose leaf is positive.

    `members`, uint64 of shape (n_nodes, n_words), has the samples of each node of the last level, `above`
    those that go above there; `leaf` is int8 of shape (2 n_nodes,); `words` is overwritten.
    """
    words[:] = 0
    for node in range(members.shape[0]):
        below, over = leaf[2 * node] > 0, leaf[2 * node + 1] > 0
        own = members[node]
        if below and over:
            for w in range(words.shape[0]):
                words[w] |= own[w]
        elif below:
            for w in range(words.shape[0]):
                words[w] |= own[w] & ~above[w]
        elif over:
            for w in range(words.shape[0]):
                words[w] |= own[w] & above[w]
