"""Words of documents: lower-cased and marked, split 64 bytes at a time, joined.

`mark_rows` leaves documents one behind the other, lower-cased, and for every byte a mark, 1 if it belongs to
a word character. Gathered to bits, the marks give the beginnings and ends of all words by shifts: no branch
depends on where a word ends, which a processor cannot guess.
"""

from __future__ import annotations

import numpy as np

from bigmc.kernels.byte_masks import bit_count, equal_bytes, trailing_zeros
from bigmc.kernels.decorators import inlined_kernel, kernel
from bigmc.kernels.hashing.arguments import Bits, Bytes, Int, Longs, MarkedText, WordLists, Words

DONE, BROKEN, CHANGED = 0, 1, 2

# Of the folding table (see `bigmc.ingestion.hashing.unicode.lower_table`).
IS_WORD = 1 << 24
CODE_POINT = (1 << 21) - 1
CODE_POINT_OR_WORD = CODE_POINT | IS_WORD
SMALL_I = 0x69

# Spare bytes after marked documents.
MARGIN = 256

# Places of words written together, some of them unused.
_AT_ONCE = 8

# Multiplied by eight bytes of 0 or 1: the highest byte has them as bits.
_GATHER = np.uint64(0x0102040810204080)
_ONE = np.uint64(1)
_MARKED = np.uint8(1)
_LOW6 = np.uint64(63)
_HIGH = np.uint64(0x8080808080808080)


@inlined_kernel
def _mark_ascii(text: Bytes, folded: Bytes, marks: Bytes, case: np.uint8) -> np.uint8:
    """Lower-case ASCII by adding ``case`` to capitals and mark letters, digits and ``_``; runs on vectors.

    Other bytes are copied and marked. Returns a number of 128 or more if there are any.
    """
    union = np.uint8(0)
    for i in range(text.shape[0]):
        b = text[i]
        capital = np.uint8(np.uint8(b - np.uint8(0x41)) < np.uint8(26))
        letter = np.uint8(np.uint8((b | np.uint8(0x20)) - np.uint8(0x61)) < np.uint8(26))
        digit = np.uint8(np.uint8(b - np.uint8(0x30)) < np.uint8(10))
        folded[i] = np.uint8(b + np.uint8(capital * case))
        marks[i] = letter | digit | np.uint8(b == np.uint8(0x5F)) | np.uint8(b >> 7)
        union |= b
    return union


@inlined_kernel
def _put(cp: Int, size: Int, mark: np.uint8, i: Int, folded: Bytes, marks: Bytes) -> None:
    """Write a code point of ``size`` bytes, two or more, and mark them."""
    folded[i] = ((0xF00 >> size) & 0xFF) | (cp >> (6 * size - 6))
    marks[i] = mark
    for k in range(1, size):
        folded[i + k] = 0x80 | ((cp >> (6 * (size - 1 - k))) & 0x3F)
        marks[i + k] = mark


@inlined_kernel
def _mark_others(longs: Bits, n_bytes: Int, fold: Words, folded: Bytes, marks: Bytes) -> tuple[Int, Int]:
    """Lower-case and mark non-ASCII characters in place; return a status, and where it was reached.

    ``longs`` are the bytes of ``folded``, eight in one. The first bytes of all characters among 64 are
    located at once, so that no branch depends on where words end.
    """
    n_trails = np.int64(0)
    for w in range((n_bytes >> 6) + 1):
        leads = np.uint64(0)
        for j in range(8):
            eight = longs[8 * w + j]
            n_trails += bit_count(eight & ~(eight << _ONE) & _HIGH)
            lead = (eight & (eight << _ONE) & _HIGH) >> np.uint64(7)
            leads |= ((lead * _GATHER) >> np.uint64(56)) << np.uint64(8 * j)
        while leads != np.uint64(0):
            i = 64 * w + trailing_zeros(leads)
            leads &= leads - _ONE
            b = np.int64(folded[i])
            c1 = np.int64(folded[i + 1])
            if b < 0xE0:
                n_trails -= 1
                cp = ((b & 0x1F) << 6) | (c1 & 0x3F)
                if c1 & 0xC0 != 0x80 or cp < 0x80:
                    return BROKEN, i
                entry = np.int64(fold[cp])
                if entry & CODE_POINT_OR_WORD == cp | IS_WORD:
                    continue
                low = entry & CODE_POINT
                if 0x80 <= low < 0x800:
                    _put(low, 2, np.uint8((entry >> 24) & 1), i, folded, marks)
                elif low == SMALL_I:
                    # A capital I with a dot becomes a small one and the dot, which is no word character.
                    folded[i] = low
                    marks[i + 1] = 0
                else:
                    return CHANGED, i
                continue
            c2 = np.int64(folded[i + 2])
            if b < 0xF0:
                n_trails -= 2
                cp = ((b & 0x0F) << 12) | ((c1 & 0x3F) << 6) | (c2 & 0x3F)
                trails = (c1 & c2 & 0xC0) == 0x80 and (c1 | c2) & 0x40 == 0
                if not trails or cp < 0x800 or cp & 0xF800 == 0xD800:
                    return BROKEN, i
                entry = np.int64(fold[cp])
                if entry & CODE_POINT_OR_WORD == cp | IS_WORD:
                    continue
                low = entry & CODE_POINT
                if not 0x800 <= low < 0x10000:
                    return CHANGED, i
                _put(low, 3, np.uint8((entry >> 24) & 1), i, folded, marks)
                continue
            n_trails -= 3
            c3 = np.int64(folded[i + 3])
            cp = ((b & 0x0F) << 18) | ((c1 & 0x3F) << 12) | ((c2 & 0x3F) << 6) | (c3 & 0x3F)
            trails = (c1 & c2 & c3 & 0xC0) == 0x80 and (c1 | c2 | c3) & 0x40 == 0
            if not trails or cp < 0x10000 or cp > 0x10FFFF:
                return BROKEN, i
            entry = np.int64(fold[cp])
            low = entry & CODE_POINT
            if low < 0x10000:
                return CHANGED, i
            _put(low, 4, np.uint8((entry >> 24) & 1), i, folded, marks)
    # Each character has its trailing bytes: are there others?
    return (DONE if n_trails == 0 else BROKEN), n_bytes


@kernel
def mark_rows(first: Int, offsets: Longs, text: Bytes, fold: Words, out: MarkedText) -> tuple[int, int]:
    """Lower-case documents from ``first`` on and mark the bytes of word characters with 1, others with 0.

    Document ``first + k`` becomes document ``k``; 128 marks behind the last are 0. Takes as many documents as
    fit with `MARGIN` bytes to spare; returns their number and a status: `DONE`; `CHANGED` if a letter of the
    next document has a lower case of more or fewer bytes; or `BROKEN` if one of those that fit is not UTF-8.
    """
    folded, marks, longs, begins = out
    origin = offsets[first]
    n = min(begins.shape[0] - 1, offsets.shape[0] - 1 - first)
    most = folded.shape[0] - MARGIN
    while n > 0 and offsets[first + n] - origin > most:
        # Halve while there is far too much, then reduce by one.
        half = n >> 1
        n = half if offsets[first + half] - origin > most else n - 1
    case = np.uint8((fold[0x41] & 0x7F) - 0x41)
    changed = False
    while True:
        n_bytes = offsets[first + n] - origin
        union = _mark_ascii(text[origin : origin + n_bytes], folded, marks, case)
        marks[n_bytes : n_bytes + 128] = 0
        for k in range(n + 1):
            begins[k] = offsets[first + k] - origin
        if union < np.uint8(0x80):
            break
        folded[n_bytes : n_bytes + 128] = 0
        for k in range(n):
            # No character continues in the next document.
            if begins[k] < begins[k + 1] and folded[begins[k]] & 0xC0 == 0x80:
                return 0, BROKEN
        status, stop = _mark_others(longs, n_bytes, fold, folded, marks)
        if status == BROKEN:
            return 0, BROKEN
        if status == DONE:
            break
        # Again, with the documents before this one.
        changed = True
        n = 0
        while begins[n + 1] <= stop:
            n += 1
    return n, CHANGED if changed else DONE


@inlined_kernel
def _list_bits(bits: np.uint64, origin: Int, n: np.uint64, out: Words) -> np.uint64:
    """Append ``origin`` plus the place of each bit to the ``n`` numbers in ``out``; return the new count.

    Eight are written at a time, whether there are as many or not: a branch for each bit could not be guessed.
    """
    stop = n + np.uint64(bit_count(bits))
    while n < stop:
        for k in range(_AT_ONCE):
            out[n + np.uint64(k)] = origin + trailing_zeros(bits)
            bits &= bits - _ONE
        n += np.uint64(_AT_ONCE)
    return stop


@inlined_kernel
def _drop_single_characters(folded: Bytes, starts: Words, sizes: Words, kept: Words, n_words: Int) -> None:
    """Remove words of one character; ``kept[k]`` is how many of the words before ``k`` stay."""
    n: Int = 0
    for k in range(n_words):
        # In a word of one character, all bytes are those of its first character.
        size = np.int64(sizes[k])
        lead = folded[np.int64(starts[k])]
        kept[k] = n
        starts[n] = starts[k]
        sizes[n] = size
        n += size > 1 + (lead >= 0xC0) + (lead >= 0xE0) + (lead >= 0xF0)
    kept[n_words] = n


@kernel
def find_words(n_rows: Int, documents: MarkedText, words: WordLists) -> None:
    """List the words of two characters or more of marked documents."""
    folded, marks, _, begins = documents
    starts, sizes, units, bits, rank, kept = words
    n_bytes = begins[n_rows]
    n_blocks = (n_bytes >> 6) + 1
    bits[: n_blocks + 1] = np.uint64(0)
    for k in range(n_rows + 1):
        # Words end where documents do.
        p = np.uint64(begins[k])
        bits[p >> np.uint64(6)] |= _ONE << (p & _LOW6)
    n_starts = n_ends = np.uint64(0)
    before = np.uint64(0)  # the highest bit is whether the byte before a block belongs to a word
    single = np.uint64(0)  # words of one byte
    mark = equal_bytes(marks, 0, _MARKED)
    for w in range(n_blocks):
        after = equal_bytes(marks, 64 * (w + 1), _MARKED)
        bounds = bits[w]
        previous = (mark << _ONE) | (before >> _LOW6)
        following = ((mark & ~bounds) >> _ONE) | ((after & ~bits[w + 1]) << _LOW6)
        start = mark & (~previous | bounds)
        end = previous & (~mark | bounds) & ~(single >> _LOW6)
        single = start & ~following
        start &= following
        end &= ~(single << _ONE)
        rank[w] = n_starts
        bits[w] = start
        n_starts = _list_bits(start, 64 * w, n_starts, starts)
        n_ends = _list_bits(end, 64 * w, n_ends, sizes)
        before, mark = mark, after
    n_words = np.int64(n_starts)
    for k in range(n_words):
        sizes[k] -= starts[k]
    others = np.uint8(0)
    for byte in folded[:n_bytes]:
        others |= byte
    in_ascii = others < np.uint8(0x80)
    if not in_ascii:
        _drop_single_characters(folded, starts, sizes, kept, n_words)
    for k in range(n_rows + 1):
        p = np.uint64(begins[k])
        at = np.int64(p >> np.uint64(6))
        n = np.int64(rank[at]) + bit_count(bits[at] & ((_ONE << (p & _LOW6)) - _ONE))
        units[k] = n if in_ascii else np.int64(kept[n])


@kernel
def join_words(folded: Bytes, starts: Words, sizes: Words, n_words: Int, joined: Bytes, bound: Words) -> None:
    """Write the words one behind the other, each followed by a space: word n-grams as ranges of bytes.

    Writes in pieces of eight bytes, hence up to seven beyond the end.
    """
    pos: Int = 0
    for k in range(n_words):
        bound[k] = pos
        start = np.int64(starts[k])
        size = np.int64(sizes[k])
        for i in range(0, size, 8):
            for j in range(8):
                joined[pos + i + j] = folded[start + i + j]
        pos += size
        joined[pos] = 0x20
        pos += 1
    bound[n_words] = pos
