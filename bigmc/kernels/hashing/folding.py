"""Folding: rewrite UTF-8 documents so that every n-gram is one contiguous range of bytes.

========  ==================================  =======================================
analyzer  folded document                     n-gram of units ``i .. i + n``
========  ==================================  =======================================
word      ``tok1 tok2 tok3␠`` (tokens only)   ``bound[i] .. bound[i + n] - 1``
char      the text, runs of space collapsed   ``bound[i] .. bound[i + n]``
char_wb   ``␠word1␠word2␠``                   the same, inside one padded word
========  ==================================  =======================================

The folding table holds for every code point what `str.lower` makes of it and whether that is a word character
or white space (see `bigmc.ingestion.hashing.unicode.lower_table`). This module folds characters,
`bigmc.kernels.hashing.words` words.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bigmc.kernels.decorators import inlined_kernel, kernel
from bigmc.kernels.hashing.arguments import Bytes, FoldedText, Int, Longs, Words

WORD, CHAR, CHAR_WB = 0, 1, 2
IS_SPACE = 1 << 25
CODE_POINT = (1 << 21) - 1

# The only letter that becomes two: i and a dot above.
CAPITAL_I_DOT, SMALL_I, DOT_ABOVE = 0x130, 0x69, 0x307


@inlined_kernel
def _decode(text: Bytes, i: Int) -> tuple[Any, int]:
    """Return the code point at ``i`` (not ASCII) and its size in bytes; 0 if this is not UTF-8."""
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


@inlined_kernel
def _encode(cp: Any, out: Bytes, pos: Int) -> Int:
    """Write a code point as UTF-8 at ``pos``; return the position after it."""
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


@inlined_kernel
def _is_ascii(text: Bytes) -> bool:
    union = np.uint8(0)
    for b in text:
        union |= b
    return bool(union < 0x80)


@inlined_kernel
def _fold_chars(
    text: Bytes, fold: Words, padded: Int, narrow: bool, out: FoldedText, pos: Int, first: Int
) -> Int:
    """Collapse runs of white space (char) or put single spaces around all words (char_wb, ``padded``).

    ``narrow`` says that the text is ASCII; only the ends of the document are then stored in ``bound``.
    Returns the last unit, or -1 for bytes that are not UTF-8.
    """
    folded, bound, _ = out
    start = pos
    unit = first
    has_text = np.int64(0)  # whether there are characters other than white space
    space = np.int64(0)  # whether the previous character is one
    if padded:
        space = np.int64(1)
        folded[pos] = 0x20
        bound[unit] = pos
        pos += 1
        unit += 1
    if narrow:
        # A space after another replaces it by a plain space, without a branch.
        for b in text:
            entry = fold[b]
            before = space
            space = np.int64((entry & IS_SPACE) != 0)
            again = before & space
            has_text |= 1 - space
            pos -= again
            folded[pos] = 0x20 if (again | (space & padded)) != 0 else entry & 0x7F
            pos += 1
        unit = first + pos - start
        bound[first] = start
    else:
        i = 0
        while i < text.shape[0]:
            cp = np.int64(text[i])
            length = 1
            if cp >= 0x80:
                cp, length = _decode(text, i)
                if length == 0:
                    return -1
            i += length
            entry = np.int64(fold[cp])
            before = space
            space = np.int64((entry & IS_SPACE) != 0)
            has_text |= 1 - space
            if space:
                if before:
                    unit -= 1
                    pos = np.int64(bound[unit])
                if before or padded:
                    entry = np.int64(0x20)
            bound[unit] = pos
            unit += 1
            pos = _encode(entry & CODE_POINT, folded, pos)
            if cp == CAPITAL_I_DOT and entry & CODE_POINT == SMALL_I:
                bound[unit] = pos
                unit += 1
                pos = _encode(DOT_ABOVE, folded, pos)
    if padded:
        if has_text == 0:
            bound[first] = start
            return first
        if space == 0:
            folded[pos] = 0x20
            bound[unit] = pos
            unit += 1
            pos += 1
    bound[unit] = pos
    return unit


@kernel
def fold_rows(
    first: Int, offsets: Longs, text: Bytes, fold: Words, analyzer: Int, out: FoldedText
) -> tuple[int, bool]:
    """Fold documents from ``first`` on for char or char_wb while the buffers surely hold the next one.

    Document ``first + k`` gets the units ``units[k] .. units[k + 1]``. Returns the number of documents
    folded, and whether it stopped at bytes that are not UTF-8. Lower-casing adds at most half of a document's
    bytes and char_wb two spaces.
    """
    folded, bound, units = out
    units[0] = 0
    bound[0] = 0
    n = min(units.shape[0] - 1, offsets.shape[0] - 1 - first)
    for k in range(n):
        doc = text[offsets[first + k] : offsets[first + k + 1]]
        unit = units[k]
        pos = np.int64(bound[unit])
        size = doc.shape[0]
        if pos + size + size // 2 + 2 > folded.shape[0] or unit + size + 3 > bound.shape[0]:
            return k, False
        end = _fold_chars(doc, fold, np.int64(analyzer == CHAR_WB), _is_ascii(doc), out, pos, unit)
        if end < 0:
            return k, True
        units[k + 1] = end
    return n, False
