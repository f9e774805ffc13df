# mypy: disable-error-code="no-untyped-def, no-untyped-call"
"""Binning: the edges of every column and the code of every value, one function for training and prediction.

The code of a value is the number of edges below it, so ``code > cut`` is equivalent to
``value > edges[cut]``. A column of few distinct values has an edge half-way between neighbours, so that
no cut is lost; others have edges at round numbers near quantiles. A missing value (NaN) has the code
``n_edges + 1``.
"""

from __future__ import annotations

import numpy as np

from bigmc.kernels.copies import copy_to
from bigmc.kernels.decorators import inner_kernel, kernel

#: Maximum edges of a column: with the code of missing values every code fits into a byte.
MAX_EDGES = 254
#: Entries of a column from which its quantiles are computed.
_SAMPLE = 1 << 16
#: Steps of a search among `MAX_EDGES` edges.
_STEPS = 8
_ONE = np.uint64(1)
_SIGN, _BYTE = np.uint64(1 << 63), np.uint64(255)


@kernel
def code_of(value, table, first, steps, missing):
    """Return the number of edges below a float, or `missing` for NaN.

    `table`, float64, has from `first` on ``2**steps`` increasing numbers: the edges, then at least one
    infinity. With constant `steps` the search is unrolled and handles several values at once.
    """
    low = np.uint64(first)
    for step in range(steps - 1, -1, -1):
        half = np.uint64(1) << np.uint64(step)
        low += half * np.uint64(table[low + half - _ONE] < value)
    return low - np.uint64(first) if value == value else np.uint64(missing)


@inner_kernel
def _between(low, high):
    """Return a number in ``[low, high)``, half-way if there is such a floating-point number."""
    middle = low + (high - low) * 0.5
    return middle if low <= middle < high else low


@inner_kernel
def _note(value, distinct, n_distinct, limit):
    """Insert a value into the increasing `distinct` unless it is there; return the count, -1 if too many."""
    low, high = 0, n_distinct
    while low < high:
        middle = (low + high) >> 1
        if distinct[middle] < value:
            low = middle + 1
        else:
            high = middle
    if low < n_distinct and distinct[low] == value:
        return n_distinct
    if n_distinct == limit:
        return -1
    for k in range(n_distinct, low, -1):
        distinct[k] = distinct[k - 1]
    distinct[low] = value
    return n_distinct + 1


@inner_kernel
def _sort(sample):
    """Sort float64 values that are not NaN, byte by byte of their bits, the last one first.

    These are in the order of the values once the sign bit is set, and negative ones are inverted. It is a
    separate function, compiled once for columns of all types.
    """
    n = sample.shape[0]
    bits = sample.view(np.uint64)
    keys = np.empty((2, n), np.uint64)
    places = np.zeros((8, 256), np.int64)
    for k in range(n):
        key = ~bits[k] if bits[k] & _SIGN else bits[k] | _SIGN
        keys[0, k] = key
        for byte in range(8):
            places[byte, (key >> np.uint64(8 * byte)) & _BYTE] += 1
    now = 0
    for byte in range(8):
        shift, to = np.uint64(8 * byte), places[byte]
        if n == 0 or to[(keys[now, 0] >> shift) & _BYTE] == n:  # all have the same
            continue
        first = 0
        for b in range(256):
            size = to[b]
            to[b] = first
            first += size
        for k in range(n):
            key = keys[now, k]
            b = (key >> shift) & _BYTE
            keys[1 - now, to[b]] = key
            to[b] += 1
        now = 1 - now
    for k in range(n):
        key = keys[now, k]
        bits[k] = key ^ _SIGN if key & _SIGN else ~key


@inner_kernel
def _roundest(number, low, high):
    """Return the roundest number in ``(low, high]``, or `number` if none is round or a limit is infinite.

    Round are multiples of a power of ten, or of five times one, if that is at least twice the width of the
    range: at most every second range has one.
    """
    if not -np.inf < low < high < np.inf:
        return number
    if low < 0.0 <= high:
        return 0.0
    least = 2.0 * (high - low)
    power = np.floor(np.log10(least))
    while True:
        for factor in (1.0, 5.0):
            # A negative power of ten is not exact, its inverse is: 7 / 100 is the number nearest to 0.07.
            times, over = (factor * 10.0**power, 1.0) if power >= 0.0 else (factor, 10.0**-power)
            multiple = np.floor(high * over / times) * times / over
            if not multiple > low:  # nor is there one of larger steps; not a number if these overflow
                return number
            if times / over >= least:
                number = multiple
        power += 1.0


@inner_kernel
def _rounded(edges, values):
    """Move edges to round numbers within half the way to the next ones; return how many are left.

    What people decide by numbers they decide by round ones: from 18 years on, above 50,000, below 0 degrees.
    `values` has the distinct values of the column, which increase. One that is the round number is above its
    edge. An edge without a value between it and the one before stays where it was, or is left out.
    """
    n_kept = n_below = 0
    before = 0.0  # half the way to the edge before
    for k in range(edges.shape[0]):
        after = 0.5 * (edges[k + 1] - edges[k]) if k + 1 < edges.shape[0] else before
        low = max(edges[k] - (before if k else after), values[0])
        edge = _roundest(edges[k], low, min(edges[k] + after, values[-1]))
        before = after
        at = np.searchsorted(values, edge)
        if at <= n_below:
            edge, at = edges[k], np.searchsorted(values, edges[k], side="right")
        elif values[at] == edge:
            edge = _between(values[at - 1], edge)
        if at > n_below:
            edges[n_kept] = edge
            n_kept += 1
            n_below = at
    return n_kept


@inner_kernel
def _quantile_edges(sample, n_zeros, limit, edges):
    """Cut the sorted sample, plus `n_zeros` zeros, at round numbers into parts of similar mass."""
    values = np.empty(sample.shape[0] + 1)
    masses = np.empty(sample.shape[0] + 1)
    n_values = 0
    zeros_in = n_zeros <= 0
    for k in range(sample.shape[0]):
        x = sample[k]
        if not zeros_in and x >= 0.0:
            values[n_values], masses[n_values] = 0.0, n_zeros
            n_values += 1
            zeros_in = True
        if n_values and values[n_values - 1] == x:
            masses[n_values - 1] += 1.0
        else:
            values[n_values], masses[n_values] = x, 1.0
            n_values += 1
    if not zeros_in:
        values[n_values], masses[n_values] = 0.0, n_zeros
        n_values += 1
    left = sample.shape[0] + max(n_zeros, 0.0)
    n_edges = 0
    mass = 0.0
    for k in range(n_values - 1):
        mass += masses[k]
        # A frequent value gets its own part; the following ones share the rest evenly.
        if mass >= left / (limit + 1 - n_edges):
            edges[n_edges] = _between(values[k], values[k + 1])
            n_edges += 1
            left -= mass
            mass = 0.0
            if n_edges == limit:
                break
    return _rounded(edges[:n_edges], values[:n_values])


@kernel
def find_edges(lo, hi, values, counted, limit, out):
    """Find the edges of columns ``lo`` to ``hi`` of a block.

    `values` is a `Values`, in which samples without an entry have the value 0; only samples marked in
    `counted`, bool of shape (n_samples,), count. A column gets at most `limit` edges, at most
    `MAX_EDGES`; `out`, an `Edges`, needs space for ``min(entries + 1, limit)`` of them.
    """
    indptr, rows, data, base = values.indptr, values.rows, values.data, values.base
    n_edges, missing = out.n_edges, out.missing
    distinct = np.empty(limit + 2)
    n_samples = np.count_nonzero(counted)
    for j in range(lo, hi):
        n_distinct = n_entries = 0
        missing[j] = False
        for s in range(indptr.shape[0]):
            for k in range(indptr[s, j], indptr[s, j + 1]):
                if counted[base[s] + rows[k]]:
                    n_entries += 1
                    x = np.float64(data[k])
                    if x != x:
                        missing[j] = True
                    elif n_distinct >= 0:
                        n_distinct = _note(x, distinct, n_distinct, limit + 1)
        if n_entries < n_samples and n_distinct >= 0:
            n_distinct = _note(0.0, distinct, n_distinct, limit + 1)
        own = out.edges[out.starts[j] : out.starts[j + 1]]
        if n_distinct >= 0:
            for k in range(n_distinct - 1):
                own[k] = _between(distinct[k], distinct[k + 1])
            n_edges[j] = max(n_distinct - 1, 0)
            continue
        stride = n_entries // _SAMPLE + 1
        sample = np.empty(n_entries // stride + 1)
        n_taken = at = 0
        for s in range(indptr.shape[0]):
            for k in range(indptr[s, j], indptr[s, j + 1]):
                if counted[base[s] + rows[k]]:
                    if at % stride == 0 and data[k] == data[k]:
                        sample[n_taken] = data[k]
                        n_taken += 1
                    at += 1
        _sort(sample[:n_taken])
        n_edges[j] = _quantile_edges(sample[:n_taken], (n_samples - n_entries) / stride, limit, own)


@kernel
def encode(lo, hi, indptr, data, starts, edges, codes):
    """Write the uint8 code of every entry of columns ``lo`` to ``hi``.

    `indptr` has the shape (n_shards, n_columns + 1). Column ``j`` has the edges
    ``edges[starts[j]:starts[j + 1]]``, in float64.
    """
    table = np.empty(1 << _STEPS)
    for j in range(lo, hi):
        missing = _fill_table(edges[starts[j] : starts[j + 1]], table)
        for s in range(indptr.shape[0]):
            values = data[indptr[s, j] : indptr[s, j + 1]]
            out = codes[indptr[s, j] : indptr[s, j + 1]]
            for k in range(values.shape[0]):
                out[k] = code_of(np.float64(values[k]), table, 0, _STEPS, missing)


@inner_kernel
def _fill_table(edges, table):
    """Write edges for `code_of`; return the code of missing values."""
    table[:] = np.inf
    copy_to(edges, table)
    return edges.shape[0] + 1


@kernel
def pack_edges(reserved, n_edges, unpacked, starts, edges):
    """Move the edges of every column from its reserved space to its place."""
    for j in range(n_edges.shape[0]):
        for k in range(n_edges[j]):
            edges[starts[j] + k] = unpacked[reserved[j] + k]


@kernel
def zero_codes(starts, edges, out):
    """Write the code of 0 in every column."""
    table = np.empty(1 << _STEPS)
    for j in range(out.shape[0]):
        _fill_table(edges[starts[j] : starts[j + 1]], table)
        out[j] = code_of(0.0, table, 0, _STEPS, 0)


@kernel
def encode_rows(indptr, indices, data, features, encoding, codes):
    """Write the codes of samples in row order, for the features of a model, which increase.

    `codes` is uint8 of shape (n_used, n_rows); `encoding` is an `Encoding`.
    """
    firsts, steps, missing, table = encoding.firsts, encoding.steps, encoding.missing, encoding.table
    for j in range(features.shape[0]):
        codes[j] = code_of(0.0, table, firsts[j], steps[j], 0)
    for i in range(indptr.shape[0] - 1):
        for k in range(indptr[i], indptr[i + 1]):
            low, high = 0, features.shape[0]
            while low < high:
                middle = (low + high) >> 1
                if features[middle] < indices[k]:
                    low = middle + 1
                else:
                    high = middle
            if low < features.shape[0] and features[low] == indices[k]:
                value = 1.0 if encoding.binary else np.float64(data[k])
                codes[low, i] = code_of(value, table, firsts[low], steps[low], missing[low])


@kernel
def encode_columns(first, starts, stops, rows, data, encoding, codes):
    """Write the codes of the samples of a shard in neighbouring features of a model.

    `first` is the place of the first of them; column ``j`` has the entries ``starts[j]:stops[j]`` of
    `rows`, uint16, and `data`. For the others see `encode_rows`.
    """
    firsts, steps, missing, table = encoding.firsts, encoding.steps, encoding.missing, encoding.table
    for j in range(starts.shape[0]):
        p = first + j
        out = codes[p]
        out[:] = code_of(0.0, table, firsts[p], steps[p], 0)
        for k in range(starts[j], stops[j]):
            value = 1.0 if encoding.binary else np.float64(data[k])
            out[rows[k]] = code_of(value, table, firsts[p], steps[p], missing[p])
