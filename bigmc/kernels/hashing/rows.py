"""From hashes of n-grams to rows: counted by feature, sorted by feature.

Documents of at most `SORTED` n-grams are sorted together, by feature and then by document, with as many
moves of every n-gram whatever it is: there is no branch that a processor had to guess. A longer document is
counted in a table whose slot is the leading bits of the feature index, with linear probing. As MurmurHash
spreads evenly, the table read from end to end is sorted but for neighbours.

Nothing allocates memory: the caller passes all arrays.
"""

from __future__ import annotations

import numpy as np

from bigmc.kernels.decorators import inlined_kernel, kernel
from bigmc.kernels.hashing.arguments import (
    Bits,
    CountedRows,
    HashedRows,
    Int,
    Ints,
    Longs,
    SortScratch,
    Words,
)

# Maximum n-grams sorted together.
SORTED = 1 << 13

# Maximum bits of a sorting pass, and maximum passes: an index has at most 30 bits.
DIGIT = 11
DIGITS = 3

# Masks of a key: the document, and after a shift by one the document and the index.
DOCUMENT = np.uint64((1 << 12) - 1)
FEATURE = np.uint64((1 << 43) - 1)

# An entry of the counting table is (index + 1) << 32 | (count + BIAS); 0 is an empty slot.
BIAS = 1 << 31
LOW = (1 << 32) - 1


@inlined_kernel
def feature(h: np.uint32, mask: Int) -> tuple[np.int64, np.int64]:
    """Return the index ``abs(int32(h)) % n_features`` of a hash and 1 if its sign is negative, else 0.

    ``mask = n_features - 1``. The hash -2**31, whose absolute value is no int32, is index 0 as in
    scikit-learn.
    """
    negative = np.int64(h >> 31)
    return ((np.int64(h) ^ -negative) + negative) & mask, negative


@inlined_kernel
def _find_places(keys: Bits, n_passes: Int, width: Int, heads: Words) -> None:
    """Fill a row of ``heads`` for each digit of an index: the start of the keys of each of its values."""
    digit = np.uint64((1 << width) - 1)
    one = np.uint32(1)
    heads[:n_passes, : 1 << width] = 0
    if n_passes == 2:  # the usual case, in a single loop over the keys
        low, high = heads[0], heads[1]
        for key in keys:
            low[(key >> np.uint64(1)) & digit] += one
            high[(key >> np.uint64(width + 1)) & digit] += one
    else:
        for p in range(n_passes):
            head = heads[p]
            for key in keys:
                head[(key >> np.uint64(p * width + 1)) & digit] += one
    for p in range(n_passes):
        head = heads[p]
        total = np.uint32(0)
        for d in range(1 << width):
            count = head[d]
            head[d] = total
            total += count


@inlined_kernel
def _sort_group(first: Int, last: Int, documents: HashedRows, work: SortScratch) -> Bits:
    """Return keys ``times << 44 | document << 32 | index << 1 | negative``, by document and index."""
    offsets, hashes, times, hash_bits = documents
    keys, spare, heads, ends = work
    mask = (np.int64(1) << hash_bits) - 1
    origin = offsets[first]
    n = offsets[last] - origin
    for row in range(first, last):
        document = (row - first) << 32
        ends[row - first] = offsets[row] - origin
        own = hashes[offsets[row] : offsets[row + 1]]
        often = times[offsets[row] : offsets[row + 1]]
        out = keys[offsets[row] - origin : offsets[row + 1] - origin]
        for i in range(own.shape[0]):
            index, negative = feature(own[i], mask)
            out[i] = np.uint64((np.int64(often[i]) << 44) | document | (index << 1) | negative)
    n_passes = (hash_bits + DIGIT - 1) // DIGIT
    width = (hash_bits + n_passes - 1) // n_passes
    _find_places(keys[:n], n_passes, width, heads)
    digit = np.uint64((1 << width) - 1)
    for p in range(n_passes):
        shift = np.uint64(p * width + 1)
        head = heads[p]
        for key in keys[:n]:
            d = (key >> shift) & digit
            spare[head[d]] = key
            head[d] += np.uint32(1)
        keys, spare = spare, keys
    if last - first == 1:
        return keys[:n]
    for key in keys[:n]:
        document = (key >> np.uint64(32)) & DOCUMENT
        spare[ends[document]] = key
        ends[document] += 1
    return spare[:n]


@kernel
def sort_rows(first: Int, last: Int, documents: HashedRows, work: SortScratch, out: CountedRows) -> Int:
    """Count the features of documents ``first .. last`` into rows; return ``last``, or one that is too long.

    There are at most `DOCUMENT` + 1 documents; ``out.indptr[first]`` is given; one entry a hash must fit.
    """
    offsets = documents.offsets
    base, indptr, indices, values = out
    ends = work.ends
    row = first
    while row < last:
        stop = row
        while stop < last and offsets[stop + 1] - offsets[row] <= SORTED:
            stop += 1
        if stop == row:
            return row
        at = indptr[row] - base - 1
        before = ~np.uint64(0)
        count = np.int64(0)
        for key in _sort_group(row, stop, documents, work):
            feature_key = (key >> np.uint64(1)) & FEATURE
            again = np.int64(feature_key == before)
            before = feature_key
            at += 1 - again
            count = count * again + np.int64(key >> np.uint64(44)) * (1 - 2 * np.int64(key & np.uint64(1)))
            indices[at] = np.int64(feature_key & np.uint64(LOW >> 1))
            values[at] = count
            ends[(key >> np.uint64(32)) & DOCUMENT] = at
        for k in range(stop - row):
            empty = offsets[row + k] == offsets[row + k + 1]
            indptr[row + k + 1] = indptr[row + k] if empty else base + ends[k] + 1
        row = stop
    return row


@kernel
def count_hashes(hashes: Words, table: Longs, table_bits: Int, hash_bits: Int) -> Int:
    """Count the features of hashes in a table of ``1 << table_bits`` slots; return the number of new ones.

    The table has half as many places more, for those who find their slot taken, and one that stays empty;
    at most half of the slots may be taken unless there is one for every feature.
    """
    mask = (np.int64(1) << hash_bits) - 1
    shift = hash_bits - table_bits
    fresh = 0
    for h in hashes:
        index, negative = feature(h, mask)
        slot = index >> shift
        while True:
            entry = table[slot]
            if entry >> 32 == index + 1:
                table[slot] = entry + 1 - 2 * negative
                break
            if entry == 0:
                table[slot] = ((index + 1) << 32) + BIAS + 1 - 2 * negative
                fresh += 1
                break
            slot += 1
    return fresh


@kernel
def move_entries(table: Longs, wider: Longs, table_bits: Int, hash_bits: Int) -> None:
    """Move the entries of a table to an empty one of ``1 << table_bits`` slots."""
    shift = hash_bits - table_bits
    for entry in table:
        if entry != 0:
            slot = ((entry >> 32) - 1) >> shift
            while wider[slot] != 0:
                slot += 1
            wider[slot] = entry


@kernel
def take_row(table: Longs, indices: Ints, values: Ints) -> Int:
    """Move the table to a sorted row, with space for one entry more; return the number of its entries."""
    n = 0
    for slot in range(table.shape[0]):
        entry = table[slot]
        indices[n] = (entry >> 32) - 1
        values[n] = (entry & LOW) - BIAS
        n += entry != 0
    table[:] = 0
    for i in range(1, n):
        index = indices[i]
        if indices[i - 1] > index:
            value = values[i]
            k = i
            while k > 0 and indices[k - 1] > index:
                indices[k] = indices[k - 1]
                values[k] = values[k - 1]
                k -= 1
            indices[k] = index
            values[k] = value
    return n
