"""MurmurHash3 of ranges of bytes, many at a time."""

from __future__ import annotations

import numpy as np

from bigmc.kernels.decorators import inlined_kernel, kernel
from bigmc.kernels.hashing.arguments import Bytes, Int, Longs, Words

# N-grams hashed together.
TILE = 512

# Hashes are computed in multiples of this, the excess unused, so that vectors have no remainder.
WIDTH = 32

# Spare bytes after the folded document: hashing reads ahead.
PADDING = 64

_C1, _C2, _C3 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593), np.uint32(0xE6546B64)
_C4, _C5 = np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35)


@inlined_kernel
def word32(data: Bytes, i: Int) -> np.uint32:
    """Return four bytes from ``i`` on as a little-endian integer."""
    return np.uint32(
        np.uint32(data[i])
        | (np.uint32(data[i + 1]) << 8)
        | (np.uint32(data[i + 2]) << 16)
        | (np.uint32(data[i + 3]) << 24)
    )


@inlined_kernel
def _scramble(k: np.uint32) -> np.uint32:
    k = np.uint32(k * _C1)
    k = np.uint32((k << 15) | (k >> 17))
    return np.uint32(k * _C2)


@inlined_kernel
def block(h: np.uint32, k: np.uint32) -> np.uint32:
    """Mix four bytes into a hash."""
    h = np.uint32(h ^ _scramble(k))
    h = np.uint32((h << 13) | (h >> 19))
    return np.uint32(h * np.uint32(5) + _C3)


@inlined_kernel
def finish(h: np.uint32, tail: np.uint32, size: Int) -> np.uint32:
    """Mix the last bytes and the size into a hash."""
    h = np.uint32(h ^ _scramble(tail))
    h = np.uint32(h ^ np.uint32(size))
    h = np.uint32((h ^ (h >> 16)) * _C4)
    h = np.uint32((h ^ (h >> 13)) * _C5)
    return np.uint32(h ^ (h >> 16))


@inlined_kernel
def murmur3(data: Bytes, start: Int, size: Int) -> np.uint32:
    """Return MurmurHash3 x86 32 with seed 0 of ``data[start:start + size]``; reads up to 8 bytes beyond.

    Source: A. Appleby, MurmurHash3 (public domain). The tail is always mixed in: an empty one is 0 and
    changes nothing, which spares a branch.
    """
    i = start
    h = np.uint32(0)
    stop = start + (size & ~3)
    while i < stop:
        h = block(h, word32(data, i))
        i += 4
    tail = np.uint32((1 << (8 * (size & 3))) - 1)
    hashed: np.uint32 = finish(h, np.uint32(word32(data, i) & tail), size)
    return hashed


@inlined_kernel
def hash_ranges(data: Bytes, starts: Words, sizes: Words, n: Int, parts: Words, hashes: Words) -> None:
    """Hash ``n`` ranges of bytes, at most `TILE`; ``parts`` is scratch, ``hashes`` has space for more.

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
        one[i] = word32(data, start)
        two[i] = word32(data, start + 4)
        three[i] = word32(data, start + 8)
        last[i] = word32(data, start + (size & ~3)) & np.uint32((1 << (8 * (size & 3))) - 1)
        size_of[i] = sizes[i]
        longest = max(longest, sizes[i])
    out = hashes[:n_wide]
    for i in range(n_wide):
        size = size_of[i]
        h1 = block(np.uint32(0), one[i])
        h2 = block(h1, two[i])
        h3 = block(h2, three[i])
        h = np.uint32(0) if size < np.uint32(4) else h1
        h = h if size < np.uint32(8) else h2
        h = h if size < np.uint32(12) else h3
        out[i] = finish(h, last[i], size)
    if longest >= np.uint32(16):
        for i in range(n):
            if size_of[i] >= np.uint32(16):
                out[i] = murmur3(data, np.int64(starts[i]), np.int64(size_of[i]))


@kernel
def hash_words(data: Bytes, starts: Words, sizes: Words, n_words: Int, parts: Words, hashes: Words) -> None:
    """Hash any number of ranges; ``hashes`` has space for `WIDTH` more."""
    for lo in range(0, n_words, TILE):
        n = min(TILE, n_words - lo)
        hash_ranges(data, starts[lo : lo + n], sizes[lo : lo + n], n, parts, hashes[lo:])


@kernel
def hash_strings(offsets: Longs, text: Bytes, buffer: Bytes, hashes: Words) -> None:
    """Hash each string; ``buffer`` has `PADDING` bytes more than the longest."""
    for row in range(offsets.shape[0] - 1):
        value = text[offsets[row] : offsets[row + 1]]
        for i in range(value.shape[0]):
            buffer[i] = value[i]
        hashes[row] = murmur3(buffer, 0, value.shape[0])
