"""Words in folded text: where they begin and how long they are, found 64 bytes at a time.

`mark_rows` (`bigmc.kernels.hashing_fold`) leaves documents one behind the other, lower-cased, and for every
byte a mark, 1 if it belongs to a word character. Gathered to bits, the marks give the beginnings and ends of
all words by shifts: no branch depends on where a word ends, which a processor cannot guess.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

# Within a kernel an integer is an int64, outside an int.
Int = Any
Bytes = NDArray[np.uint8]
Words = NDArray[np.uint32]
Longs = NDArray[np.int64]
Bits = NDArray[np.uint64]

# Times eight bytes of 0 or 1: the highest byte has them as bits.
_GATHER = np.uint64(0x0102040810204080)
_ONE = np.uint64(1)
_LOW6 = np.uint64(63)


def _type_trailing_zeros(typing: Any, x: Any) -> Any:
    """Count the zero bits below the lowest bit of a uint64 that is not 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], context.get_constant(types.boolean, True))

    return types.int64(types.uint64), generate


def _type_bit_count(typing: Any, x: Any) -> Any:
    """Count the bits of a uint64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate


_trailing_zeros: Any = intrinsic(_type_trailing_zeros)
_bit_count: Any = intrinsic(_type_bit_count)


@njit(cache=True, nogil=True)
def find_words(
    n_rows: Int, folded: Bytes, marks: Bits, begins: Longs, bits: Bits, rank:
    Words, starts: Words, sizes: Words, kept: Words, units: Longs,
) -> None:  # fmt: skip
    """List the words of two characters or more of marked documents; ``units`` says which are whose.

    ``marks`` are the bytes of `mark_rows`, eight in one. The other arrays are scratch: of bits for every
    byte, of a rank for every 64, and of an entry for every run of word characters.
    """
    n_words = (begins[n_rows] >> 6) + 1
    bits[:n_words] = np.uint64(0)
    for k in range(n_rows + 1):
        # Words end where documents do.
        p = np.uint64(begins[k])
        bits[p >> np.uint64(6)] |= _ONE << (p & _LOW6)
    n_starts: Int = 0
    n_ends: Int = 0
    carry = np.uint64(0)
    for w in range(n_words):
        mark = np.uint64(0)
        for j in range(8):
            mark |= ((marks[8 * w + j] * _GATHER) >> np.uint64(56)) << np.uint64(8 * j)
        before = (mark << _ONE) | carry
        carry = mark >> _LOW6
        start = mark & (~before | bits[w])
        end = before & (~mark | bits[w])
        rank[w] = n_starts
        bits[w] = start
        while start != np.uint64(0):
            starts[n_starts] = 64 * w + _trailing_zeros(start)
            start &= start - _ONE
            n_starts += 1
        while end != np.uint64(0):
            sizes[n_ends] = 64 * w + _trailing_zeros(end)
            end &= end - _ONE
            n_ends += 1
    # Of a single character all bytes are the first character's.
    n: Int = 0
    for k in range(n_starts):
        begin = np.int64(starts[k])
        size = np.int64(sizes[k]) - begin
        lead = folded[begin]
        kept[k] = n
        starts[n] = begin
        sizes[n] = size
        n += size > 1 + (lead >= 0xC0) + (lead >= 0xE0) + (lead >= 0xF0)
    kept[n_starts] = n
    for k in range(n_rows + 1):
        p = np.uint64(begins[k])
        at = np.int64(p >> np.uint64(6))
        units[k] = kept[np.int64(rank[at]) + _bit_count(bits[at] & ((_ONE << (p & _LOW6)) - _ONE))]


@njit(cache=True, nogil=True)
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
