"""Hashes of n-grams: MurmurHash3 of ranges of bytes.

Documents come folded (`bigmc.kernels.hashing.folding`): every n-gram is one contiguous range of bytes. What
becomes of the hashes is the business of `bigmc.kernels.hashing.rows`.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from bigmc.kernels.hashing.arguments import (
    Bytes,
    FoldedText,
    HashList,
    HashScratch,
    Int,
    Longs,
    NGrams,
    Shorts,
    Tile,
    Words,
)

WORD, CHAR, CHAR_WB = 0, 1, 2

# N-grams hashed in one go.
TILE = 512

# Hashes are computed in multiples of this, those too many in vain: vectors have no remainder then.
WIDTH = 32

# Spare bytes behind the folded document: hashing reads ahead.
PADDING = 64

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
def _measure_reach(documents: FoldedText, first: Int, last: Int, narrow: bool, reach: Words) -> None:
    """Measure the piece from each character of a padded text to the next space, this included."""
    folded, bound, _ = documents
    start = np.int64(bound[first])
    end = last - first - 1
    for i in range(end, -1, -1):
        reach[i] = end - i + 1
        space = folded[start + i if narrow else np.int64(bound[first + i])] == 0x20
        end = i if space else end


@njit(cache=True, nogil=True, forceinline=True)
def _hash_ranges(data: Bytes, starts: Words, sizes: Words, n: Int, parts: Words, hashes: Words) -> None:
    """Hash ``n`` ranges of bytes, at most `TILE`; ``parts`` is scratch, ``hashes`` has room for more.

    Its words are picked up first, then mixed in a loop that runs on vectors and chooses instead of branching:
    nobody can guess how long the next feature is. Ranges of 16 bytes or more are done again.
    """
    n_wide = (n + WIDTH - 1) & -WIDTH
    one, two, three, last = parts[0, :n_wide], parts[1, :n_wide], parts[2, :n_wide], parts[3, :n_wide]
    size_of = parts[4, :n_wide]
    longest = np.uint32(0)
    for i in range(n):
        start = np.int64(starts[i])
        size = np.int64(sizes[i])
        one[i] = _word32(data, start)
        two[i] = _word32(data, start + 4)
        three[i] = _word32(data, start + 8)
        last[i] = _word32(data, start + (size & ~3)) & np.uint32((1 << (8 * (size & 3))) - 1)
        size_of[i] = sizes[i]
        longest = max(longest, sizes[i])
    out = hashes[:n_wide]
    for i in range(n_wide):
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
    """Hash any number of ranges; ``hashes`` has room for `WIDTH` more."""
    for lo in range(0, n_words, TILE):
        n = min(TILE, n_words - lo)
        _hash_ranges(data, starts[lo : lo + n], sizes[lo : lo + n], n, parts, hashes[lo:])


@njit(cache=True, nogil=True, forceinline=True)
def _hash_tile(documents: FoldedText, tile: Tile, gap: Int, parts: Words, hashes: Words) -> None:
    """Hash the n-grams of a tile; ``gap`` bytes lie between the last unit of one and the next unit."""
    folded, bound, _ = documents
    first, lo, hi, n, narrow = tile
    if not narrow:
        starts = bound[first + lo : first + hi]
        stops = bound[first + lo + n : first + hi + n]
        sizes = parts[5]
        for i in range(hi - lo):
            sizes[i] = stops[i] - starts[i] - np.uint32(gap)
        _hash_ranges(folded, starts, sizes, hi - lo, parts, hashes)
        return
    # One byte per character: block by block over the whole tile, in loops that run on vectors.
    out = hashes[: (hi - lo + WIDTH - 1) & -WIDTH]
    out[:] = 0
    start = np.int64(bound[first])
    lo += start
    hi = lo + out.shape[0]
    for k in range(0, n - 3, 4):
        text = folded[lo + k : hi + k + 4]
        for i in range(out.shape[0]):
            out[i] = _block(out[i], _word32(text, i))
    text = folded[lo + (n & ~3) : hi + (n & ~3) + 4]
    tail = np.uint32((1 << (8 * (n & 3))) - 1)
    for i in range(out.shape[0]):
        out[i] = _finish(out[i], np.uint32(_word32(text, i) & tail), n)


@njit(cache=True, nogil=True, forceinline=True)
def _hash_words_whole(documents: FoldedText, tile: Tile, reach: Words, parts: Words, hashes: Words) -> Int:
    """Hashes of the n-grams inside padded words, and of words shorter than ``n`` as they are; how many."""
    folded, bound, _ = documents
    first, lo, hi, n, narrow = tile
    starts, sizes = parts[5], parts[6]
    start = np.int64(bound[first])
    kept = 0
    for i in range(lo, hi):
        at = start + i if narrow else np.int64(bound[first + i])
        if reach[i] >= n or folded[at] == 0x20:
            length = min(n, np.int64(reach[i]))
            starts[kept] = at
            sizes[kept] = length if narrow else np.int64(bound[first + i + length]) - at
            kept += 1
    _hash_ranges(folded, starts, sizes, kept, parts, hashes)
    return kept


@njit(cache=True, nogil=True, forceinline=True)
def _keep_inside_words(documents: FoldedText, tile: Tile, n_units: Int, reach: Words, hashes: Words) -> Int:
    """Keep the hashes of a tile whose n-grams are inside a padded word; returns how many there are.

    The space between two words is stored once and counts for both.
    """
    folded, bound, _ = documents
    first, lo, hi, n, _ = tile
    kept = hi - lo
    if n == 1:
        space = murmur3(folded, np.int64(bound[first]), 1)
        before = reach[max(lo, 1) - 1 : min(hi, n_units - 1) - 1]
        n_spaces = 0
        for i in range(before.shape[0]):
            n_spaces += before[i] == 2
        hashes[kept : kept + n_spaces] = space
        kept += n_spaces
    elif n > 2:
        inside = reach[lo:hi]
        kept = 0
        for i in range(inside.shape[0]):
            hashes[kept] = hashes[i]
            kept += inside[i] >= n
    return kept


@njit(cache=True, nogil=True, forceinline=True)
def _count_characters(text: Bytes, padded: bool, counts: Shorts, hashes: Words, times: Shorts) -> Int:
    """List the characters of an ASCII document once each, with their counts; how many there are.

    Of a ``padded`` one, each space between two words counts twice.
    """
    n = 0
    for byte in text:
        hashes[n] = byte
        n += counts[byte] == 0
        counts[byte] += np.uint16(1)
    for k in range(n):
        byte = hashes[k]
        again = counts[byte] - np.uint16(2) if padded and byte == 0x20 else np.uint16(0)
        times[k] = counts[byte] + again
        counts[byte] = 0
        hashes[k] = _finish(np.uint32(0), np.uint32(byte), 1)
    return n


@njit(cache=True, nogil=True, forceinline=True)
def _count_pairs(text: Bytes, counts: Shorts, hashes: Words, times: Shorts) -> Int:
    """List the pairs of neighbours of an ASCII document once each, with their counts; how many there are."""
    n = 0
    for i in range(text.shape[0] - 1):
        pair = np.uint32(text[i]) | (np.uint32(text[i + 1]) << 7)
        hashes[n] = pair
        n += counts[pair] == 0
        counts[pair] += np.uint16(1)
    for k in range(n):
        pair = hashes[k]
        times[k] = counts[pair]
        counts[pair] = 0
        hashes[k] = _finish(np.uint32(0), np.uint32((pair & 0x7F) | ((pair >> 7) << 8)), 2)
    return n


@njit(cache=True, nogil=True)
def hash_ngrams(
    place: Longs,
    n_rows: Int,
    documents: FoldedText,
    ngrams: NGrams,
    work: HashScratch,
    offsets: Longs,
    out: HashList,
) -> Int:
    """List the hashes of the n-grams of folded documents; how many there are.

    Resumes at ``place``, the document, n and unit to come next (n is 0 before a document), with as many
    documents as surely fit; the hashes of the k-th are ``offsets[k] .. offsets[k + 1]``. A document with more
    n-grams than fit comes alone and in pieces, each n-gram once: ``place`` stays inside it until its last. Of
    documents in ASCII of at most ``out.longest`` n-grams, single characters and pairs are counted at once, as
    these are few.
    """
    folded, bound, units = documents
    analyzer, n_min, n_max = ngrams
    reach, parts, counts = work
    hashes, times, longest = out
    gap = 1 if analyzer == WORD else 0
    room = hashes.shape[0] - 2 * TILE
    begun = place[0]
    resumed = place[1] != 0
    n_listed = 0
    offsets[0] = 0
    while place[0] < n_rows:
        first = units[place[0]]
        n_units = units[place[0] + 1] - first
        narrow = False
        if analyzer != WORD:
            narrow = np.int64(bound[first + n_units]) - np.int64(bound[first]) == n_units
        fits = (n_max - n_min + 2) * n_units <= min(room, longest)
        if place[1] == 0:
            if n_listed > 0 and n_listed + (n_max - n_min + 2) * n_units > room:
                return n_listed
            if analyzer == CHAR_WB and n_units > 0:
                _measure_reach(documents, first, first + n_units, narrow, reach)
            place[1] = n_min
        while place[1] <= n_max:
            n = place[1]
            # In char_wb a padded word shorter than the smallest n counts as it is.
            whole = analyzer == CHAR_WB and n == n_min and n > 3
            n_starts = n_units - 1 if whole else n_units - n + 1
            if n <= 2 and narrow and fits and n_starts > 0:
                start = np.int64(bound[first])
                text = folded[start : start + n_units]
                if n == 1:
                    padded = analyzer == CHAR_WB
                    n_listed += _count_characters(text, padded, counts, hashes[n_listed:], times[n_listed:])
                else:
                    n_listed += _count_pairs(text, counts, hashes[n_listed:], times[n_listed:])
                place[1] += 1
                continue
            while place[2] < n_starts:
                if n_listed > room:
                    return n_listed
                lo = place[2]
                hi = min(lo + TILE, n_starts)
                place[2] = hi
                listed = hashes[n_listed : n_listed + 2 * TILE]
                times[n_listed : n_listed + 2 * TILE] = np.uint16(1)
                tile = Tile(first, lo, hi, n, narrow)
                if whole:
                    n_listed += _hash_words_whole(documents, tile, reach, parts, listed)
                    continue
                _hash_tile(documents, tile, gap, parts, listed)
                if analyzer == CHAR_WB:
                    n_listed += _keep_inside_words(documents, tile, n_units, reach, listed)
                    continue
                n_listed += hi - lo
            place[1] += 1
            place[2] = 0
        place[0] += 1
        place[1] = 0
        offsets[place[0] - begun] = n_listed
        if resumed:
            break
    return n_listed


@njit(cache=True, nogil=True)
def hash_strings(offsets: Longs, text: Bytes, buffer: Bytes, hashes: Words) -> None:
    """Hash each string; ``buffer`` has `PADDING` bytes more than the longest."""
    for row in range(offsets.shape[0] - 1):
        value = text[offsets[row] : offsets[row + 1]]
        for i in range(value.shape[0]):
            buffer[i] = value[i]
        hashes[row] = murmur3(buffer, 0, value.shape[0])
