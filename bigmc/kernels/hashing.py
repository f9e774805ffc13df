"""From UTF-8 text to hashed n-grams: folding, MurmurHash3, counting.

A document goes through two steps. *Folding* writes it anew, lower-cased and with single spaces, in such a way
that **every n-gram is one contiguous range of bytes**:

========  ==================================  =======================================
analyzer  folded document                     n-gram of units ``i .. i + n``
========  ==================================  =======================================
word      ``tok1 tok2 tok3␠`` (tokens only)   ``bound[i] .. bound[i + n] - 1``
char      the text, runs of space collapsed   ``bound[i] .. bound[i + n]``
char_wb   ``␠word1␠word2␠``                   the same, inside one padded word
========  ==================================  =======================================

*Counting* hashes those ranges into a table whose slot is the leading bits of the feature index, with linear
probing. As MurmurHash spreads evenly, the table read from end to end is sorted but for neighbours, so that one
insertion sort with hardly any moves gives the sorted row of a CSR matrix.

Nothing here allocates: buffers come from the caller, and a kernel that finds one too small says so and is
called again. The folding table holds for every code point what `str.lower` makes of it and whether that is a word
character or white space (see `bigmc.ingest.hashing.fold_table`).
"""

from __future__ import annotations

import numpy as np
from numba import njit

WORD, CHAR, CHAR_WB = 0, 1, 2
IS_WORD = 1 << 24
IS_SPACE = 1 << 25
CODE_POINT = (1 << 21) - 1

DONE, MORE_OUTPUT, MORE_TABLE, BAD_UTF8 = 0, 1, 2, 3

# Hashes computed before they are counted.
TILE = 512

# Spare bytes behind the folded document: hashing reads ahead.
PADDING = 16

# An entry of the counting table is (index + 1) << 32 | (count + BIAS); 0 is an empty slot.
BIAS = 1 << 31
LOW = (1 << 32) - 1

_C1 = np.uint32(0xCC9E2D51)
_C2 = np.uint32(0x1B873593)
_C3 = np.uint32(0xE6546B64)
_C4 = np.uint32(0x85EBCA6B)
_C5 = np.uint32(0xC2B2AE35)


@njit(cache=True, nogil=True)
def _word32(data, i):
    """Four bytes from ``i`` on as a little-endian integer."""
    return np.uint32(
        np.uint32(data[i])
        | (np.uint32(data[i + 1]) << 8)
        | (np.uint32(data[i + 2]) << 16)
        | (np.uint32(data[i + 3]) << 24)
    )


@njit(cache=True, nogil=True)
def _scramble(k):
    k = np.uint32(k * _C1)
    k = np.uint32((k << 15) | (k >> 17))
    return np.uint32(k * _C2)


@njit(cache=True, nogil=True)
def _block(h, k):
    """Mix four bytes into a hash."""
    h = np.uint32(h ^ _scramble(k))
    h = np.uint32((h << 13) | (h >> 19))
    return np.uint32(h * np.uint32(5) + _C3)


@njit(cache=True, nogil=True)
def _finish(h, tail, size):
    """Mix the last bytes and the size into a hash."""
    h = np.uint32(h ^ _scramble(tail))
    h = np.uint32(h ^ np.uint32(size))
    h = np.uint32((h ^ (h >> 16)) * _C4)
    h = np.uint32((h ^ (h >> 13)) * _C5)
    return np.uint32(h ^ (h >> 16))


@njit(cache=True, nogil=True)
def murmur3(data, start, size):
    """MurmurHash3 x86 32 with seed 0 of ``data[start:start + size]``; reads up to 12 bytes beyond.

    Source: A. Appleby, MurmurHash3 (public domain). The tail is always mixed in: an empty one is 0 and changes
    nothing, which spares a branch.
    """
    i = start
    if size < 16:
        # Most features. All blocks are mixed and the right hash is chosen: cheaper than a branch guessed wrong.
        n_blocks = size >> 2
        one = _block(np.uint32(0), _word32(data, i))
        two = _block(one, _word32(data, i + 4))
        three = _block(two, _word32(data, i + 8))
        h = one if n_blocks > 0 else np.uint32(0)
        h = two if n_blocks > 1 else h
        h = three if n_blocks > 2 else h
        i += size & ~3
    else:
        h = np.uint32(0)
        stop = start + (size & ~3)
        while i < stop:
            h = _block(h, _word32(data, i))
            i += 4
    tail = np.uint32((1 << (8 * (size & 3))) - 1)
    return _finish(h, np.uint32(_word32(data, i) & tail), size)


@njit(cache=True, nogil=True)
def feature(h, mask):
    """Feature index ``abs(int32(h)) % n_features`` and sign of a hash, ``mask = n_features - 1``.

    The hash -2**31, whose absolute value is no int32, is index 0 as in scikit-learn.
    """
    signed = np.int64(np.int32(h))
    if signed >= 0:
        return signed & mask, np.int64(1)
    return -signed & mask, np.int64(-1)


@njit(cache=True, nogil=True)
def _decode(text, i):
    """Code point at ``i`` (not ASCII) and its bytes; size 0 if this is not UTF-8."""
    b = np.int64(text[i])
    left = text.shape[0] - i
    if b < 0xC2:
        return 0, 0
    if b < 0xE0:
        if left < 2:
            return 0, 0
        c1 = np.int64(text[i + 1])
        if c1 & 0xC0 != 0x80:
            return 0, 0
        return ((b & 0x1F) << 6) | (c1 & 0x3F), 2
    if b < 0xF0:
        if left < 3:
            return 0, 0
        c1 = np.int64(text[i + 1])
        c2 = np.int64(text[i + 2])
        cp = ((b & 0x0F) << 12) | ((c1 & 0x3F) << 6) | (c2 & 0x3F)
        if c1 & 0xC0 != 0x80 or c2 & 0xC0 != 0x80 or cp < 0x800 or cp & 0xF800 == 0xD800:
            return 0, 0
        return cp, 3
    if left < 4:
        return 0, 0
    c1 = np.int64(text[i + 1])
    c2 = np.int64(text[i + 2])
    c3 = np.int64(text[i + 3])
    cp = ((b & 0x07) << 18) | ((c1 & 0x3F) << 12) | ((c2 & 0x3F) << 6) | (c3 & 0x3F)
    bad = c1 & 0xC0 != 0x80 or c2 & 0xC0 != 0x80 or c3 & 0xC0 != 0x80
    if bad or b > 0xF4 or cp < 0x10000 or cp > 0x10FFFF:
        return 0, 0
    return cp, 4


@njit(cache=True, nogil=True)
def _encode(cp, out, pos):
    """Write a code point as UTF-8 at ``pos``; the position after it."""
    if cp < 0x80:
        out[pos] = cp
        return pos + 1
    if cp < 0x800:
        out[pos] = 0xC0 | (cp >> 6)
        out[pos + 1] = 0x80 | (cp & 0x3F)
        return pos + 2
    if cp < 0x10000:
        out[pos] = 0xE0 | (cp >> 12)
        out[pos + 1] = 0x80 | ((cp >> 6) & 0x3F)
        out[pos + 2] = 0x80 | (cp & 0x3F)
        return pos + 3
    out[pos] = 0xF0 | (cp >> 18)
    out[pos + 1] = 0x80 | ((cp >> 12) & 0x3F)
    out[pos + 2] = 0x80 | ((cp >> 6) & 0x3F)
    out[pos + 3] = 0x80 | (cp & 0x3F)
    return pos + 4


@njit(cache=True, nogil=True)
def _fold_words(text, fold, folded, bound):
    """Maximal runs of at least two word characters, each followed by one space; number of tokens or -1."""
    i = 0
    pos = 0
    start = 0
    n_chars = 0
    n_tokens = 0
    size = text.shape[0]
    while i < size:
        b = text[i]
        if b < 0x80:
            entry = fold[b]
            i += 1
            if entry & IS_WORD:
                folded[pos] = entry & 0x7F
                pos += 1
                n_chars += 1
                continue
        else:
            cp, length = _decode(text, i)
            if length == 0:
                return -1
            entry = fold[cp]
            i += length
            if entry & IS_WORD:
                pos = _encode(entry & CODE_POINT, folded, pos)
                n_chars += 1
                continue
        if n_chars > 1:
            bound[n_tokens] = start
            n_tokens += 1
            folded[pos] = 0x20
            pos += 1
            start = pos
        else:
            pos = start
        n_chars = 0
    if n_chars > 1:
        bound[n_tokens] = start
        n_tokens += 1
        start = pos + 1
    bound[n_tokens] = start
    return n_tokens


@njit(cache=True, nogil=True)
def _is_ascii(text):
    found = np.uint8(0)
    for b in text:
        found |= b
    return found < 0x80


@njit(cache=True, nogil=True)
def _fold_chars(text, fold, padded, narrow, folded, bound):
    """Characters with runs of white space collapsed (char) or words parted by single spaces (char_wb, ``padded``).

    ``narrow`` says that the text is ASCII; ``bound`` is then left alone as it would be ``0, 1, 2, …``.
    Returns the number of characters, or -1 for bytes that are not UTF-8, and the number of words.
    """
    pos = 0
    n_chars = 0
    n_words = 0
    space = np.int64(0)  # whether the character before is one
    if padded:
        space = np.int64(1)
        folded[0] = 0x20
        bound[0] = 0
        pos = 1
        n_chars = 1
    if narrow:
        # A space behind another takes its place and is a plain space; no branch.
        for b in text:
            entry = fold[b]
            before = space
            space = np.int64((entry & IS_SPACE) != 0)
            again = before & space
            n_words += before & (1 - space)
            pos -= again
            folded[pos] = 0x20 if (again | (space & padded)) != 0 else entry & 0x7F
            pos += 1
        n_chars = pos
    else:
        i = 0
        while i < text.shape[0]:
            cp = np.int64(text[i])
            length = 1
            if cp >= 0x80:
                cp, length = _decode(text, i)
                if length == 0:
                    return -1, 0
            i += length
            entry = np.int64(fold[cp])
            before = space
            space = np.int64((entry & IS_SPACE) != 0)
            n_words += before & (1 - space)
            if space:
                if before:
                    n_chars -= 1
                    pos = np.int64(bound[n_chars])
                if before or padded:
                    entry = np.int64(0x20)
            bound[n_chars] = pos
            n_chars += 1
            pos = _encode(entry & CODE_POINT, folded, pos)
    if padded:
        if n_words == 0:
            return 0, 0
        if space == 0:
            folded[pos] = 0x20
            bound[n_chars] = pos
            n_chars += 1
            pos += 1
    bound[n_chars] = pos
    return n_chars, n_words


@njit(cache=True, nogil=True)
def _measure_reach(folded, bound, narrow, n_chars, reach):
    """For each character of a padded text, the length of the piece from it to the next space behind it."""
    end = n_chars - 1
    for i in range(n_chars - 1, -1, -1):
        reach[i] = end - i + 1
        b = folded[i] if narrow else folded[bound[i]]
        end = i if b == 0x20 else end


@njit(cache=True, nogil=True)
def _hash_tile(folded, bound, gap, narrow, lo, hi, n, hashes):
    """Hashes of the n-grams that begin with the units ``lo .. hi``."""
    if not narrow:
        for i in range(lo, hi):
            start = np.int64(bound[i])
            hashes[i - lo] = murmur3(folded, start, np.int64(bound[i + n]) - gap - start)
        return
    # One byte per character: block by block over the whole tile, in loops that run on vectors.
    out = hashes[: hi - lo]
    out[:] = 0
    for k in range(0, n - 3, 4):
        text = folded[lo + k : hi + k + 4]
        for i in range(out.shape[0]):
            out[i] = _block(out[i], _word32(text, i))
    text = folded[lo + (n & ~3) : hi + (n & ~3) + 4]
    tail = np.uint32((1 << (8 * (n & 3))) - 1)
    for i in range(out.shape[0]):
        out[i] = _finish(out[i], np.uint32(_word32(text, i) & tail), n)


@njit(cache=True, nogil=True)
def _count(hashes, n_hashes, table, shift, mask):
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


@njit(cache=True, nogil=True)
def _count_document(
    folded, bound, reach, n_units, n_words, analyzer, narrow, n_min, n_max, hashes, table, shift, mask, room
):
    """Count all n-grams of a folded document; the number of features, or more than ``room`` if it gave up."""
    gap = 1 if analyzer == WORD else 0
    nnz = 0
    for n in range(n_min, min(n_max, n_units) + 1):
        for lo in range(0, n_units - n + 1, TILE):
            hi = min(lo + TILE, n_units - n + 1)
            _hash_tile(folded, bound, gap, narrow, lo, hi, n, hashes)
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
            hashes[0] = murmur3(folded, 0, 1)
            for _ in range(n_words - 1):
                nnz += _count(hashes, 1, table, shift, mask)
        # A padded word shorter than the smallest n counts once, as it is.
        if n_min > 3:
            for i in range(n_units - 1):
                start = np.int64(i if narrow else bound[i])
                if folded[start] == 0x20 and reach[i] < n_min:
                    stop = start + reach[i] if narrow else np.int64(bound[i + reach[i]])
                    hashes[0] = murmur3(folded, start, stop - start)
                    nnz += _count(hashes, 1, table, shift, mask)
                    if nnz > room:
                        return nnz
    return nnz


@njit(cache=True, nogil=True)
def _take_row(table, n_slots, indices, values):
    """Move the entries of the table to a sorted row and leave it empty; the number of entries.

    ``indices`` and ``values`` need room for one entry more than there are.
    """
    n = 0
    slot = 0
    for slot in range(n_slots):
        entry = table[slot]
        table[slot] = 0
        indices[n] = (entry >> 32) - 1
        values[n] = (entry & LOW) - BIAS
        n += entry != 0
    slot = n_slots
    while table[slot] != 0:
        entry = table[slot]
        table[slot] = 0
        indices[n] = (entry >> 32) - 1
        values[n] = (entry & LOW) - BIAS
        n += 1
        slot += 1
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


@njit(cache=True, nogil=True)
def hash_rows(
    first, offsets, text, fold, analyzer, n_min, n_max, hash_bits,
    folded, bound, reach, hashes, table, indptr, indices, values,
):  # fmt: skip
    """Hash the documents from ``first`` on into rows, until done or until a buffer is too small.

    Row ``first`` is written to the start of ``indices`` and ``values``; ``indptr[first]`` is given. Returns
    a status and the row it is about: with MORE_OUTPUT or MORE_TABLE, the row to go on with.
    """
    base = indptr[first]
    mask = (np.int64(1) << hash_bits) - 1
    density = 1.0  # features per n-gram of the document before: a guess at the next one's
    for row in range(first, offsets.shape[0] - 1):
        doc = text[offsets[row] : offsets[row + 1]]
        n_words = 0
        narrow = False
        if analyzer == WORD:
            n_units = _fold_words(doc, fold, folded, bound)
        else:
            narrow = _is_ascii(doc)
            n_units, n_words = _fold_chars(doc, fold, analyzer == CHAR_WB, narrow, folded, bound)
            if analyzer == CHAR_WB:
                _measure_reach(folded, bound, narrow, n_units, reach)
        if n_units < 0:
            return BAD_UTF8, row
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
            nnz = _count_document(
                folded, bound, reach, n_units, n_words, analyzer, narrow, n_min, n_max,
                hashes, table, hash_bits - table_bits, mask, room,
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
        indptr[row + 1] = base + begin + _take_row(table, n_slots, indices[begin:], values[begin:])
    return DONE, offsets.shape[0] - 1


@njit(cache=True, nogil=True)
def special_rows(offsets, text, special):
    """Mark documents with a code point that no table can lower-case: U+0130 or U+03A3; how many there are.

    In UTF-8 these are the bytes C4 B0 and CE A3. The inner loop has no branch, so that it runs on vectors.
    """
    n_special = 0
    for row in range(offsets.shape[0] - 1):
        lead = text[offsets[row] : offsets[row + 1]]
        trail = lead[1:]
        found = np.uint8(0)
        for i in range(trail.shape[0]):
            a = lead[i]
            b = trail[i]
            found |= np.uint8((a == 0xC4) & (b == 0xB0)) | np.uint8((a == 0xCE) & (b == 0xA3))
        special[row] = found != 0
        n_special += found
    return n_special


@njit(cache=True, nogil=True)
def hash_strings(offsets, text, buffer, prefix_size, hash_bits, indices, signs):
    """Feature and sign of each string behind the prefix that ``buffer`` begins with."""
    mask = (np.int64(1) << hash_bits) - 1
    for row in range(offsets.shape[0] - 1):
        value = text[offsets[row] : offsets[row + 1]]
        for i in range(value.shape[0]):
            buffer[prefix_size + i] = value[i]
        index, sign = feature(murmur3(buffer, 0, prefix_size + value.shape[0]), mask)
        indices[row] = index
        signs[row] = sign
