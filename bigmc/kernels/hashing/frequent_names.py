"""A table of fixed size that keeps the most frequent names of a stream."""

from __future__ import annotations

import numpy as np

from bigmc.kernels.decorators import inlined_kernel, kernel
from bigmc.kernels.hashing.arguments import (
    Bytes,
    Int,
    Ints,
    NameTable,
    Ranges,
    SpelledNames,
    Words,
)

# A name can be in any of this many slots.
WAYS = 8

_SPREAD = np.uint64(0x9E3779B1)


@inlined_kernel
def _slot_of(h: np.uint32, table: NameTable) -> tuple[Int, bool]:
    """Return the slot of a name and True, or the slot to take and False if it has none."""
    keys, seen, rank = table.keys, table.seen, table.rank
    # The middle bits, so that neighbouring feature indices do not share a set.
    spread = np.uint64(h) * _SPREAD >> np.uint64(16)  # unsigned: the product of two such words has 64 bits
    base = (np.int64(spread) & (keys.shape[0] // WAYS - 1)) * WAYS
    lowest = base
    for slot in range(base, base + WAYS):
        if keys[slot] == h and seen[slot] > 0:
            return slot, True
        if rank[slot] < rank[lowest]:
            lowest = slot
    return lowest, False


@inlined_kernel
def _take_slot(slot: Int, h: np.uint32, name: Bytes, table: NameTable) -> None:
    """Give a slot to a name; it inherits the rank."""
    table.keys[slot] = h
    table.seen[slot] = 0
    table.lengths[slot] = name.shape[0]
    for i in range(min(name.shape[0], table.names.shape[1])):
        table.names[slot, i] = name[i]


@kernel
def count_names(hashes: Words, listed: Ranges, weight: Int, table: NameTable) -> None:
    """Count the listed names ``weight`` times, each known by its 32-bit hash.

    The slots are sets of `WAYS`, every set a Space-Saving summary (Metwally, Agrawal, El Abbadi 2005): a name
    that is in no slot takes that of the lowest rank and inherits this rank, so that ``seen <= true count <=
    rank``. A name longer than a row of ``names`` is cut there; ``lengths`` keeps its whole length.
    """
    text, starts, sizes = listed
    for k in range(hashes.shape[0]):
        slot, is_there = _slot_of(hashes[k], table)
        if not is_there:
            start = np.int64(starts[k])
            _take_slot(slot, hashes[k], text[start : start + np.int64(sizes[k])], table)
        table.seen[slot] += weight
        table.rank[slot] += weight


@kernel
def count_codes(codes: Ints, spelled: SpelledNames, slots: Ints, table: NameTable) -> None:
    """Count names given by their position in a list, once each, in this order; as `count_names`.

    `slots`, -1 at first, remembers the last slot of each name of the list, which saves searching for it.
    """
    text, offsets, hashes = spelled
    for code in codes:
        h = hashes[code]
        slot = np.int64(slots[code])
        if slot < 0 or table.keys[slot] != h:
            slot, is_there = _slot_of(h, table)
            slots[code] = slot
            if not is_there:
                _take_slot(slot, h, text[offsets[code] : offsets[code + 1]], table)
        table.seen[slot] += 1
        table.rank[slot] += 1
