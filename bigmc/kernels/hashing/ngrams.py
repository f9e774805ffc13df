"""Hashes of the n-grams of documents.

Documents come folded (`bigmc.kernels.hashing.folding`): every n-gram is one contiguous range of bytes. What
becomes of the hashes is the business of `bigmc.kernels.hashing.rows`.
"""

from __future__ import annotations

import numpy as np

from bigmc.kernels.decorators import inlined_kernel, kernel
from bigmc.kernels.hashing.arguments import (
    Bytes,
    FoldedText,
    Group,
    HashList,
    HashScratch,
    Int,
    Longs,
    NGrams,
    Shorts,
    Tile,
    Words,
)
from bigmc.kernels.hashing.murmur import TILE, WIDTH, block, finish, hash_ranges, murmur3, word32

WORD, CHAR, CHAR_WB = 0, 1, 2

# Maximum number of n-gram lengths for which documents are hashed together.
GROUP_SIZES = 8

# Maximum characters of a document hashed together with others; in longer ones counting pairs is faster.
GROUP_CHARACTERS = 64


@inlined_kernel
def _measure_reach(documents: FoldedText, first: Int, last: Int, narrow: bool, reach: Words) -> None:
    """Write the length from each character of a padded text to the next space, inclusive."""
    folded, bound, _ = documents
    start = np.int64(bound[first])
    end = last - first - 1
    for i in range(end, -1, -1):
        reach[i] = end - i + 1
        space = folded[start + i if narrow else np.int64(bound[first + i])] == 0x20
        end = i if space else end


@inlined_kernel
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
        hash_ranges(folded, starts, sizes, hi - lo, parts, hashes)
        return
    # One byte per character: block by block over the whole tile, in vectorised loops.
    out = hashes[: (hi - lo + WIDTH - 1) & -WIDTH]
    out[:] = 0
    start = np.int64(bound[first])
    lo += start
    hi = lo + out.shape[0]
    for k in range(0, n - 3, 4):
        text = folded[lo + k : hi + k + 4]
        for i in range(out.shape[0]):
            out[i] = block(out[i], word32(text, i))
    text = folded[lo + (n & ~3) : hi + (n & ~3) + 4]
    tail = np.uint32((1 << (8 * (n & 3))) - 1)
    for i in range(out.shape[0]):
        out[i] = finish(out[i], np.uint32(word32(text, i) & tail), n)


@inlined_kernel
def _hash_words_whole(documents: FoldedText, tile: Tile, reach: Words, parts: Words, hashes: Words) -> Int:
    """Hash the n-grams inside padded words, and whole words shorter than ``n``; return their number."""
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
    hash_ranges(folded, starts, sizes, kept, parts, hashes)
    return kept


@inlined_kernel
def _keep_inside_words(documents: FoldedText, tile: Tile, n_units: Int, reach: Words, hashes: Words) -> Int:
    """Keep the hashes of a tile whose n-grams are inside a padded word; return their number.

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


@inlined_kernel
def _count_characters(text: Bytes, padded: bool, counts: Shorts, hashes: Words, times: Shorts) -> Int:
    """List the distinct characters of an ASCII document, with their counts; return their number.

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
        hashes[k] = finish(np.uint32(0), np.uint32(byte), 1)
    return n


@inlined_kernel
def _count_pairs(text: Bytes, counts: Shorts, hashes: Words, times: Shorts) -> Int:
    """List the distinct pairs of characters of an ASCII document, with counts; return their number."""
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
        hashes[k] = finish(np.uint32(0), np.uint32((pair & 0x7F) | ((pair >> 7) << 8)), 2)
    return n


@inlined_kernel
def _measure_group(row: Int, n_rows: Int, documents: FoldedText, analyzer: Int) -> tuple[Int, bool]:
    """Return the end of the short documents from ``row`` on that fit into a tile, and whether all are narrow.

    If some have more than one byte per character, ``bound`` is completed for those that have one.
    """
    _, bound, units = documents
    first = units[row]
    longest = TILE if analyzer == WORD else GROUP_CHARACTERS
    stop = row
    narrow = analyzer != WORD
    while stop < n_rows and units[stop + 1] - first <= TILE and units[stop + 1] - units[stop] <= longest:
        n_bytes = np.int64(bound[units[stop + 1]]) - np.int64(bound[units[stop]])
        narrow &= n_bytes == units[stop + 1] - units[stop]
        stop += 1
    if analyzer == WORD or narrow:
        return stop, narrow
    for k in range(row, stop):
        start = np.int64(bound[units[k]])
        if np.int64(bound[units[k + 1]]) - start == units[k + 1] - units[k]:
            for i in range(units[k + 1] - units[k]):
                bound[units[k] + i] = start + i
    return stop, False


@inlined_kernel
def _hash_across(documents: FoldedText, group: Group, ngrams: NGrams, work: HashScratch) -> None:
    """Hash the n-grams of a group of documents as of one document; each n has a row of ``work.grouped``."""
    analyzer, n_min, n_max = ngrams
    first, n_units, narrow = group
    if analyzer == CHAR_WB and n_units > 0:
        _measure_reach(documents, first, first + n_units, narrow, work.reach)
    gap = 1 if analyzer == WORD else 0
    for n in range(n_min, n_max + 1):
        if n_units >= n:
            tile = Tile(first, 0, n_units - n + 1, n, narrow)
            _hash_tile(documents, tile, gap, work.parts, work.grouped[n - n_min])


@inlined_kernel
def _copy_inside(hashed: Words, reach: Words, n: Int, padded: bool, out: Words) -> Int:
    """Copy the hashes of a document's n-grams, if ``padded`` those inside words; return their number."""
    kept = 0
    for i in range(hashed.shape[0]):
        out[kept] = hashed[i]
        kept += not padded or n <= 2 or reach[i] >= n
    if padded and n == 1:
        # The space between two words is stored once and counts for both.
        for i in range(hashed.shape[0] - 2):
            out[kept] = hashed[0]
            kept += reach[i] == 2
    return kept


@inlined_kernel
def _counts_short_words(ngrams: NGrams, n: Int) -> bool:
    """Return whether padded words of fewer than n characters count as a whole: char_wb, the smallest n."""
    return bool(ngrams.analyzer == CHAR_WB and n == ngrams.n_min and n > 3)


@inlined_kernel
def _hash_group(
    row: Int,
    n_rows: Int,
    documents: FoldedText,
    ngrams: NGrams,
    work: HashScratch,
    ends: Longs,
    out: HashList,
) -> Int:
    """Hash short documents from ``row`` on together; return their number, and their ends in ``out``.

    What is inside a document is copied from `_hash_across`, so that the loops of short documents are long.
    """
    units = documents.units
    analyzer, n_min, n_max = ngrams
    hashes, times, _ = out
    stop, narrow = _measure_group(row, n_rows, documents, analyzer)
    first = units[row]
    n_units = units[stop] - first
    _hash_across(documents, Group(first, n_units, narrow), ngrams, work)
    times[: (n_max - n_min + 2) * n_units] = np.uint16(1)
    padded = analyzer == CHAR_WB
    n_listed = 0
    for k in range(row, stop):
        lo, size = units[k] - first, units[k + 1] - units[k]
        for n in range(n_min, n_max + 1):
            listed = hashes[n_listed : n_listed + 2 * TILE]
            reach = work.reach[lo : lo + size]
            if _counts_short_words(ngrams, n):
                tile = Tile(units[k], 0, size - 1, n, narrow)
                n_listed += _hash_words_whole(documents, tile, reach, work.parts, listed)
            elif size >= n:
                hashed = work.grouped[n - n_min, lo : lo + size - n + 1]
                n_listed += _copy_inside(hashed, reach, n, padded, listed)
        ends[k - row] = n_listed
    return stop - row


@inlined_kernel
def _hash_piece(
    documents: FoldedText, tile: Tile, n_units: Int, ngrams: NGrams, work: HashScratch, out: Words
) -> Int:
    """Hash the n-grams of a tile of a document of ``n_units`` units; return their number."""
    if _counts_short_words(ngrams, tile.n):
        return _hash_words_whole(documents, tile, work.reach, work.parts, out)
    gap = 1 if ngrams.analyzer == WORD else 0
    _hash_tile(documents, tile, gap, work.parts, out)
    if ngrams.analyzer == CHAR_WB:
        return _keep_inside_words(documents, tile, n_units, work.reach, out)
    return tile.hi - tile.lo


@kernel
def hash_ngrams(
    place: Longs,
    n_rows: Int,
    documents: FoldedText,
    ngrams: NGrams,
    work: HashScratch,
    offsets: Longs,
    out: HashList,
) -> Int:
    """List the hashes of the n-grams of folded documents; return their number.

    Resumes at ``place``, the document, n and unit to come next (n is 0 before a document), with as many
    documents as surely fit; the hashes of the k-th are ``offsets[k] .. offsets[k + 1]``. A document with more
    n-grams than fit comes alone and in pieces, each n-gram once: ``place`` stays inside it until its last. Of
    documents in ASCII of at most ``out.longest`` n-grams, single characters and pairs are counted at once, as
    these are few.
    """
    folded, bound, units = documents
    analyzer, n_min, n_max = ngrams
    reach, counts = work.reach, work.counts
    hashes, times, longest = out
    capacity = hashes.shape[0] - 2 * TILE
    begun, resumed = place[0], place[1] != 0
    n_listed = 0
    offsets[0] = 0
    grouped = n_max - n_min < GROUP_SIZES
    while place[0] < n_rows:
        if grouped and place[1] == 0 and n_listed + (n_max - n_min + 2) * TILE <= capacity:
            ends = offsets[place[0] - begun + 1 :]
            rest = HashList(hashes[n_listed:], times[n_listed:], longest)
            n_done = _hash_group(place[0], n_rows, documents, ngrams, work, ends, rest)
            place[0] += n_done
            if n_done > 0:
                for k in range(n_done):
                    ends[k] += n_listed
                n_listed = ends[n_done - 1]
                continue
        first = units[place[0]]
        n_units = units[place[0] + 1] - first
        n_bytes = np.int64(bound[first + n_units]) - np.int64(bound[first])
        narrow = analyzer != WORD and n_bytes == n_units
        fits = (n_max - n_min + 2) * n_units <= min(capacity, longest)
        if place[1] == 0:
            if n_listed > 0 and n_listed + (n_max - n_min + 2) * n_units > capacity:
                return n_listed
            if analyzer == CHAR_WB and n_units > 0:
                _measure_reach(documents, first, first + n_units, narrow, reach)
            place[1] = n_min
        while place[1] <= n_max:
            n = place[1]
            n_starts = n_units - 1 if _counts_short_words(ngrams, n) else n_units - n + 1
            if n <= 2 and narrow and fits and n_starts > 0:
                start = np.int64(bound[first])
                text = folded[start : start + n_units]
                listed, often = hashes[n_listed:], times[n_listed:]
                if n == 1:
                    n_listed += _count_characters(text, analyzer == CHAR_WB, counts, listed, often)
                else:
                    n_listed += _count_pairs(text, counts, listed, often)
                place[1] += 1
                continue
            while place[2] < n_starts:
                if n_listed > capacity:
                    return n_listed
                lo = place[2]
                place[2] = min(lo + TILE, n_starts)
                listed = hashes[n_listed : n_listed + 2 * TILE]
                times[n_listed : n_listed + 2 * TILE] = np.uint16(1)
                tile = Tile(first, lo, place[2], n, narrow)
                n_listed += _hash_piece(documents, tile, n_units, ngrams, work, listed)
            place[1] += 1
            place[2] = 0
        place[0] += 1
        place[1] = 0
        offsets[place[0] - begun] = n_listed
        if resumed:
            break
    return n_listed
