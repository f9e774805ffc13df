"""From folded text to hashed n-grams: MurmurHash3 and counting.

Documents come folded (`bigmc.kernels.hashing_fold`): every n-gram is one contiguous range of bytes. Counting
hashes those ranges into a table whose slot is the leading bits of the feature index, with linear probing. As
MurmurHash spreads evenly, the table read from end to end is sorted but for neighbours, so that one insertion
sort with hardly any moves gives the sorted row of a CSR matrix.

Nothing here allocates: a kernel that finds a buffer of its caller too small says so and is called again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

# Within a kernel an integer is an int64, outside an int.
Int = Any
Bytes = NDArray[np.uint8]
Words = NDArray[np.uint32]
Longs = NDArray[np.int64]
Ints = NDArray[np.int32]

WORD, CHAR, CHAR_WB = 0, 1, 2

DONE, MORE_OUTPUT, MORE_TABLE = 0, 1, 2

# Hashes computed before they are counted.
TILE = 512

# Documents of so many words are sorted instead of counted in a table.
FEW = 16

# Spare bytes behind the folded document: hashing reads ahead.
PADDING = 16

# An entry of the counting table is (index + 1) << 32 | (count + BIAS); 0 is an empty slot.
BIAS = 1 << 31
LOW = (1 << 32) - 1

_C1, _C2, _C3 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593), np.uint32(0xE6546B64)
_C4, _C5 = np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35)


@njit(cache=True, nogil=True, forceinline=True)
def _word32(data: Bytes, i: Int) -> np.uint32:
    """Four bytes from ``i`` on as a little-endian integer."""
    return np.uint32(
        np.uint32(data[i])
        | (np.uint32(data[i + 1]) << 8)
        | (np.uint32(data[i + 2]) << 16)
        | (np.uint32(data[i + 3]) << 24)
    )


@njit(cache=True, nogil=True, forceinline=True)
def _scramble(k: np.uint32) -> np.uint32:
    k = np.uint32(k * _C1)
    k = np.uint32((k << 15) | (k >> 17))
    return np.uint32(k * _C2)


@njit(cache=True, nogil=True, forceinline=True)
def _block(h: np.uint32, k: np.uint32) -> np.uint32:
    """Mix four bytes into a hash."""
    h = np.uint32(h ^ _scramble(k))
    h = np.uint32((h << 13) | (h >> 19))
    return np.uint32(h * np.uint32(5) + _C3)


@njit(cache=True, nogil=True, forceinline=True)
def _finish(h: np.uint32, tail: np.uint32, size: Int) -> np.uint32:
    """Mix the last bytes and the size into a hash."""
    h = np.uint32(h ^ _scramble(tail))
    h = np.uint32(h ^ np.uint32(size))
    h = np.uint32((h ^ (h >> 16)) * _C4)
    h = np.uint32((h ^ (h >> 13)) * _C5)
    return np.uint32(h ^ (h >> 16))


@njit(cache=True, nogil=True, forceinline=True)
def murmur3(data: Bytes, start: Int, size: Int) -> np.uint32:
    """MurmurHash3 x86 32 with seed 0 of ``data[start:start + size]``; reads up to 8 bytes beyond.

    Source: A. Appleby, MurmurHash3 (public domain). The tail is always mixed in: an empty one is 0 and
    changes nothing, which spares a branch.
    """
    i = start
    h = np.uint32(0)
    stop = start + (size & ~3)
    while i < stop:
        h = _block(h, _word32(data, i))
        i += 4
    tail = np.uint32((1 << (8 * (size & 3))) - 1)
    return _finish(h, np.uint32(_word32(data, i) & tail), size)


@njit(cache=True, nogil=True, forceinline=True)
def feature(h: np.uint32, mask: Int) -> tuple[np.int64, np.int64]:
    """Feature index ``abs(int32(h)) % n_features`` and sign of a hash, ``mask = n_features - 1``.

    The hash -2**31, whose absolute value is no int32, is index 0 as in scikit-learn.
    """
    signed = np.int64(np.int32(h))
    if signed >= 0:
        return signed & mask, np.int64(1)
    return -signed & mask, np.int64(-1)


@njit(cache=True, nogil=True, forceinline=True)
def _measure_reach(
    folded: Bytes, bound: Words, first: Int, last: Int, narrow: bool,
    reach: Words,
) -> Int:  # fmt: skip
    """Length of the piece from each character of a padded text to the next space; the number of words."""
    start = np.int64(bound[first])
    n_spaces = 0
    end = last - first - 1
    for i in range(end, -1, -1):
        reach[i] = end - i + 1
        space = folded[start + i if narrow else np.int64(bound[first + i])] == 0x20
        n_spaces += space
        end = i if space else end
    return n_spaces - 1


@njit(cache=True, nogil=True, forceinline=True)
def _hash_ranges(data: Bytes, starts: Words, sizes: Words, n: Int, parts: Words, hashes: Words) -> None:
    """Hash ``n`` ranges of bytes, at most `TILE`; ``parts`` is scratch.

    Its words are picked up first, then mixed in a loop that runs on vectors and chooses instead of branching:
    nobody can guess how long the next feature is. Ranges of 16 bytes or more are done again.
    """
    one, two, three, last = parts[0, :n], parts[1, :n], parts[2, :n], parts[3, :n]
    longest = np.uint32(0)
    for i in range(n):
        start = np.int64(starts[i])
        size = np.int64(sizes[i])
        one[i] = _word32(data, start)
        two[i] = _word32(data, start + 4)
        three[i] = _word32(data, start + 8)
        last[i] = _word32(data, start + (size & ~3)) & np.uint32((1 << (8 * (size & 3))) - 1)
        longest = max(longest, sizes[i])
    size_of, out = sizes[:n], hashes[:n]
    for i in range(n):
        size = size_of[i]
        h1 = _block(np.uint32(0), one[i])
        h2 = _block(h1, two[i])
        h3 = _block(h2, three[i])
        h = np.uint32(0) if size < np.uint32(4) else h1
        h = h if size < np.uint32(8) else h2
        h = h if size < np.uint32(12) else h3
        out[i] = _finish(h, last[i], size)
    if longest >= np.uint32(16):
        for i in range(n):
            if size_of[i] >= np.uint32(16):
                out[i] = murmur3(data, np.int64(starts[i]), np.int64(size_of[i]))


@njit(cache=True, nogil=True)
def hash_words(data: Bytes, starts: Words, sizes: Words, n_words: Int, parts: Words, hashes: Words) -> None:
    """Hash any number of ranges."""
    for lo in range(0, n_words, TILE):
        n = min(TILE, n_words - lo)
        _hash_ranges(data, starts[lo : lo + n], sizes[lo : lo + n], n, parts, hashes[lo:])


@njit(cache=True, nogil=True, forceinline=True)
def _hash_tile(
    folded: Bytes, bound: Words, gap: Int, narrow: bool, first: Int, lo:
    Int, hi: Int, n: Int, parts: Words, hashes: Words,
) -> None:  # fmt: skip
    """Hashes of the n-grams that begin with the units ``first + lo .. first + hi``."""
    if not narrow:
        starts = bound[first + lo : first + hi]
        stops = bound[first + lo + n : first + hi + n]
        sizes = parts[4]
        for i in range(hi - lo):
            sizes[i] = stops[i] - starts[i] - np.uint32(gap)
        _hash_ranges(folded, starts, sizes, hi - lo, parts, hashes)
        return
    # One byte per character: block by block over the whole tile, in loops that run on vectors.
    out = hashes[: hi - lo]
    out[:] = 0
    start = np.int64(bound[first])
    lo += start
    hi += start
    for k in range(0, n - 3, 4):
        text = folded[lo + k : hi + k + 4]
        for i in range(out.shape[0]):
            out[i] = _block(out[i], _word32(text, i))
    text = folded[lo + (n & ~3) : hi + (n & ~3) + 4]
    tail = np.uint32((1 << (8 * (n & 3))) - 1)
    for i in range(out.shape[0]):
        out[i] = _finish(out[i], np.uint32(_word32(text, i) & tail), n)


@njit(cache=True, nogil=True, forceinline=True)
def _count(hashes: Words, n_hashes: Int, table: Longs, shift: Int, mask: Int) -> Int:
    """Count hashes in the table; the number of features that are new."""
    fresh = 0
    for h in hashes[:n_hashes]:
        index, sign = feature(h, mask)
        slot = index >> shift
        while True:
            entry = table[slot]
            if entry >> 32 == index + 1:
                table[slot] = entry + sign
                break
            if entry == 0:
                table[slot] = ((index + 1) << 32) + BIAS + sign
                fresh += 1
                break
            slot += 1
    return fresh


@njit(cache=True, nogil=True, forceinline=True)
def _count_document(
    folded: Bytes, bound: Words, first: Int, reach: Words,
    n_units: Int, n_words: Int, analyzer: Int, narrow: bool, n_min: Int, n_max: Int, parts:
    Words, hashes: Words, table: Longs, shift: Int, mask: Int, room: Int,
) -> Int:  # fmt: skip
    """Count all n-grams of a folded document; the number of features, or more than ``room`` if it gave up."""
    gap = 1 if analyzer == WORD else 0
    nnz = 0
    for n in range(n_min, min(n_max, n_units) + 1):
        for lo in range(0, n_units - n + 1, TILE):
            hi = min(lo + TILE, n_units - n + 1)
            _hash_tile(folded, bound, gap, narrow, first, lo, hi, n, parts, hashes)
            kept = hi - lo
            if analyzer == CHAR_WB and n > 2:
                kept = 0
                for i in range(lo, hi):
                    hashes[kept] = hashes[i - lo]
                    kept += reach[i] >= n
            nnz += _count(hashes, kept, table, shift, mask)
            if nnz > room:
                return nnz
    if analyzer == CHAR_WB:
        # The space between two words is stored once and counts for both.
        if n_min == 1:
            hashes[0] = murmur3(folded, np.int64(bound[first]), 1)
            for _ in range(n_words - 1):
                nnz += _count(hashes, 1, table, shift, mask)
        # A padded word shorter than the smallest n counts once, as it is.
        if n_min > 3:
            for i in range(n_units - 1):
                start = np.int64(bound[first]) + i if narrow else np.int64(bound[first + i])
                if folded[start] == 0x20 and reach[i] < n_min:
                    stop = start + reach[i] if narrow else np.int64(bound[first + i + reach[i]])
                    hashes[0] = murmur3(folded, start, stop - start)
                    nnz += _count(hashes, 1, table, shift, mask)
                    if nnz > room:
                        return nnz
    return nnz


@njit(cache=True, nogil=True, forceinline=True)
def _take_row(table: Longs, n_slots: Int, begin: Int, indices: Ints, values: Ints) -> Int:
    """Empty the table into a sorted row from ``begin`` on, with room for one entry more; the end of it."""
    n = begin
    stop = n_slots
    while table[stop] != 0:
        stop += 1
    for slot in range(stop):
        entry = table[slot]
        table[slot] = 0
        indices[n] = (entry >> 32) - 1
        values[n] = (entry & LOW) - BIAS
        n += entry != 0
    for i in range(begin + 1, n):
        index = indices[i]
        if indices[i - 1] > index:
            value = values[i]
            k = i
            while k > begin and indices[k - 1] > index:
                indices[k] = indices[k - 1]
                values[k] = values[k - 1]
                k -= 1
            indices[k] = index
            values[k] = value
    return n


@njit(cache=True, nogil=True, forceinline=True)
def _sort_few(hashes: Words, mask: Int, begin: Int, indices: Ints, values: Ints) -> Int:
    """Sort the features of a few hashes into a row from ``begin`` on, quicker than a table; the end of it."""
    n = begin
    for h in hashes:
        index, sign = feature(h, mask)
        k = n
        while k > begin and indices[k - 1] > index:
            indices[k] = indices[k - 1]
            values[k] = values[k - 1]
            k -= 1
        if k > begin and indices[k - 1] == index:
            values[k - 1] += sign
            for i in range(k, n):
                indices[i] = indices[i + 1]
                values[i] = values[i + 1]
        else:
            indices[k] = index
            values[k] = sign
            n += 1
    return n


@njit(cache=True, nogil=True)
def hash_rows(
    start: Int, n_rows: Int, units: Longs, folded: Bytes, bound:
    Words, analyzer: Int, n_min: Int, n_max: Int, hash_bits: Int, reach:
    Words, parts: Words, hashes: Words, table: Longs, base: Int, indptr:
    Longs, indices: NDArray[np.int32], values: NDArray[np.int32],
) -> tuple[int, int]:  # fmt: skip
    """Hash the folded documents ``start .. n_rows`` into rows, until done or until a buffer is too small.

    For single words (WORD, ``n_max`` 1) ``hashes`` holds those of all units, else it is scratch. Entry
    ``indptr[start]``, which is given, goes to ``indptr[start] - base`` of ``indices`` and ``values``.
    Returns a status and, with MORE_OUTPUT or MORE_TABLE, the document to go on with.
    """
    mask = (np.int64(1) << hash_bits) - 1
    density = 1.0  # features per n-gram of the document before: a guess at the next one's
    for row in range(start, n_rows):
        first = units[row]
        n_units = units[row + 1] - first
        if n_units == 0:
            indptr[row + 1] = indptr[row]
            continue
        single = analyzer == WORD and n_max == 1
        if single and n_units <= FEW:
            begin = indptr[row] - base
            if indices.shape[0] - begin <= n_units:
                return MORE_OUTPUT, row
            end = _sort_few(hashes[first : first + n_units], mask, begin, indices, values)
            indptr[row + 1] = base + end
            continue
        narrow = False
        n_words = 0
        if analyzer != WORD:
            narrow = np.int64(bound[first + n_units]) - np.int64(bound[first]) == n_units
            if analyzer == CHAR_WB:
                n_words = _measure_reach(folded, bound, first, first + n_units, narrow, reach)
        n_grams = (n_max - n_min + 1) * n_units
        guess = 2.2 * density * n_grams
        table_bits = 4
        while (1 << table_bits) < guess and table_bits < hash_bits:
            table_bits += 1
        while True:
            table_bits = min(table_bits, hash_bits)
            n_slots = np.int64(1) << table_bits
            # With a slot for every feature nothing collides; else a table is at most half full.
            room = n_slots if table_bits == hash_bits else n_slots >> 1
            used = n_slots + room + TILE + 2
            if table.shape[0] < used:
                return MORE_TABLE, row
            shift = hash_bits - table_bits
            nnz = 0
            if single:
                for lo in range(first, first + n_units, TILE):
                    nnz += _count(hashes[lo:], min(TILE, first + n_units - lo), table, shift, mask)
                    if nnz > room:
                        break
            else:
                nnz = _count_document(
                    folded, bound, first, reach, n_units, n_words, analyzer, narrow, n_min, n_max,
                    parts, hashes, table, shift, mask, room,
                )  # fmt: skip
            if nnz <= room:
                break
            table[:used] = 0
            table_bits += 1
        density = (nnz + 1.0) / (n_grams + 1.0)
        begin = indptr[row] - base
        if indices.shape[0] - begin <= nnz:
            table[:used] = 0
            return MORE_OUTPUT, row
        indptr[row + 1] = base + _take_row(table, n_slots, begin, indices, values)
    return DONE, n_rows


@njit(cache=True, nogil=True)
def hash_strings(
    offsets: Longs, text: Bytes, buffer: Bytes, prefix_size:
    Int, hash_bits: Int, indices: NDArray[np.int32], signs: NDArray[np.int8],
) -> None:  # fmt: skip
    """Feature and sign of each string behind the prefix that ``buffer`` begins with."""
    mask = (np.int64(1) << hash_bits) - 1
    for row in range(offsets.shape[0] - 1):
        value = text[offsets[row] : offsets[row + 1]]
        for i in range(value.shape[0]):
            buffer[prefix_size + i] = value[i]
        index, sign = feature(murmur3(buffer, 0, prefix_size + value.shape[0]), mask)
        indices[row] = index
        signs[row] = sign
