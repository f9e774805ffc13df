"""A table of fixed size that keeps the most frequent names of a stream."""

from __future__ import annotations

import numpy as np
from numba import njit

from bigmc.kernels.hashing.arguments import Int, NameTable, Ranges, Words

# A name can be in any of so many slots.
WAYS = 8


@njit(cache=True, nogil=True)
def count_names(hashes: Words, listed: Ranges, weight: Int, table: NameTable) -> None:
    """Count the listed names ``weight`` times, each known by its 32-bit hash.

    The slots are sets of `WAYS`, every set a Space-Saving summary (Metwally, Agrawal, El Abbadi 2005): a name
    that is in no slot takes that of the lowest rank and inherits this rank, so that ``seen <= true count <=
    rank``. A name longer than a row of ``names`` is cut there; ``lengths`` keeps its whole length.
    """
    text, starts, sizes = listed
    keys, seen, rank, lengths, names = table
    n_sets = keys.shape[0] // WAYS
    width = names.shape[1]
    for k in range(hashes.shape[0]):
        h = hashes[k]
        # The middle bits: neighbours in feature index shall not share a set.
        base = ((np.int64(h) * 0x9E3779B1 >> 16) & (n_sets - 1)) * WAYS
        lowest = base
        found = -1
        for slot in range(base, base + WAYS):
            if keys[slot] == h and seen[slot] > 0:
                found = slot
                break
            if rank[slot] < rank[lowest]:
                lowest = slot
        if found < 0:
            found = lowest
            keys[found] = h
            seen[found] = 0
            size = np.int64(sizes[k])
            lengths[found] = size
            start = np.int64(starts[k])
            for i in range(min(size, width)):
                names[found, i] = text[start + i]
        seen[found] += weight
        rank[found] += weight
