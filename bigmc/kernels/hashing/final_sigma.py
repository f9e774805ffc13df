"""The capital sigma, whose lower case depends on the letters around it.

`str.lower` turns one that follows a letter with case and precedes none into a final sigma; characters that
are case-ignorable, such as an accent or an apostrophe, are skipped on both sides (Unicode standard,
table 3-17).
"""

from __future__ import annotations

import numpy as np

from bigmc.kernels.decorators import inlined_kernel, kernel
from bigmc.kernels.hashing.arguments import Bytes, Int, Longs

# Flags of `bigmc.ingestion.hashing.unicode.case_table`.
IS_CASED = 1
IS_IGNORABLE = 2

# Bytes searched together.
BLOCK = 64


@kernel
def has_sigma(text: Bytes) -> bool:
    """Return whether the bytes CE A3 occur; without branches and comparisons, the loop is vectorised."""
    lead, trail = text[:-1], text[1:]
    least = np.uint8(0xFF)
    for i in range(trail.shape[0]):
        least = min(least, (lead[i] ^ np.uint8(0xCE)) | (trail[i] ^ np.uint8(0xA3)))
    return bool(least == 0)


@inlined_kernel
def _code_point(document: Bytes, i: Int) -> Int:
    """Return the code point that begins at ``i``; any number below 2**21 if this is not UTF-8."""
    left = document.shape[0] - i
    b = np.int64(document[i])
    if b < 0x80 or left < 2:
        return b
    cp = ((b & 0x1F) << 6) | (np.int64(document[i + 1]) & 0x3F)
    if b < 0xE0 or left < 3:
        return cp
    cp = ((cp & 0x3FF) << 6) | (np.int64(document[i + 2]) & 0x3F)
    if b < 0xF0 or left < 4:
        return cp
    return ((cp & 0x7FFF) << 6) | (np.int64(document[i + 3]) & 0x3F)


@inlined_kernel
def _sees_case(document: Bytes, i: Int, step: Int, cases: Bytes) -> bool:
    """Return whether the first character before (step -1) or after (1) ``i`` that counts has case."""
    i += step
    while 0 <= i < document.shape[0]:
        if document[i] & 0xC0 != 0x80:
            cp = _code_point(document, i)
            entry = cases[cp] if cp < cases.shape[0] else 0
            if entry & IS_IGNORABLE == 0:
                return bool(entry & IS_CASED != 0)
        i += step
    return False


@kernel
def lower_sigmas(offsets: Longs, text: Bytes, cases: Bytes) -> None:
    """Lower-case every capital sigma of the documents in place."""
    row = 0
    for lo in range(offsets[0], offsets[-1], BLOCK):
        if not has_sigma(text[lo : min(lo + BLOCK + 1, offsets[-1])]):
            continue
        for i in range(lo, min(lo + BLOCK, offsets[-1] - 1)):
            if text[i] != 0xCE or text[i + 1] != 0xA3:
                continue
            while offsets[row + 1] <= i:
                row += 1
            document = text[offsets[row] : offsets[row + 1]]
            k = i - offsets[row]
            final = _sees_case(document, k, -1, cases) and not _sees_case(document, k + 1, 1, cases)
            text[i] = 0xCF
            text[i + 1] = 0x82 if final else 0x83
