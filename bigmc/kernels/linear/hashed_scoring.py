"""Scores of documents straight from the hashes of their n-grams, without rows of counts between.

Rows are sorted by feature, which takes longer than all else; a sum needs no order. The n-grams of a document
are counted in a table that stays in the nearest cache, and what is needed of its features is asked for before
it is used: it lies scattered over megabytes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bigmc.kernels.hashing.arguments import HashedRows, Int, Ints
from bigmc.kernels.hashing.rows import feature
from bigmc.kernels.linear.arguments import EntryWeighting
from bigmc.kernels.prefetch import CACHE_LINE, prefetch

LEAST_SLOTS = 64
"""Slots of the table of a short document; there are always twice as many as n-grams or more."""

_MOST_LINES = 4
"""Cache lines of a feature's weights that are asked for; the processor foresees the next ones."""


class RoundedWeights(NamedTuple):
    """Weights that are multiples of a step of their class.

    Attributes
    ----------
    table : int32 array of shape (n_features,)
        Row of each feature in `multiples`, -1 without weight.
    multiples : int8 array of shape (n_nonzero, width)
        Classes padded to `width` with zeros.
    step : float32 array of shape (width,)
    intercept : float64 array of shape (n_classes,)
    """

    table: Ints
    multiples: NDArray[np.int8]
    step: NDArray[np.float32]
    intercept: NDArray[np.float64]


class CountScratch(NamedTuple):
    """What counting a document of n n-grams works in.

    Attributes
    ----------
    slots : int32 array of a power of two, `LEAST_SLOTS` or more and at least 2 n
    features, counts : int32 arrays of shape (n,)
    places : int64 array of shape (n + 1,)
    values : float64 array of shape (n + 1,)
    sums : float64 array of shape (width,)
    """

    slots: Ints
    features: Ints
    counts: Ints
    places: NDArray[np.int64]
    values: NDArray[np.float64]
    sums: NDArray[np.float64]


@njit(cache=True, nogil=True)
def _count_features(
    row: Int, documents: HashedRows, table: Ints, scale: NDArray[np.float32], work: CountScratch
) -> Int:
    """List the features of a document with their counts, in the order of their first n-grams; how many."""
    offsets, hashes, times, hash_bits = documents
    slots, features, counts = work.slots, work.features, work.counts
    mask = (np.int64(1) << hash_bits) - 1
    first, last = offsets[row], offsets[row + 1]
    n_slots = np.int64(LEAST_SLOTS)
    while n_slots < 2 * (last - first):
        n_slots *= 2
    slots[:n_slots] = -1
    n = 0
    for i in range(first, last):
        index, negative = feature(hashes[i], mask)
        count = np.int64(times[i]) * (1 - 2 * negative)
        prefetch(table, 4 * index)
        prefetch(scale, 4 * index)
        slot = index & (n_slots - 1)
        while True:
            k = slots[slot]
            if k < 0:
                slots[slot] = n
                features[n] = index
                counts[n] = count
                n += 1
                break
            if features[k] == index:
                counts[k] += count
                break
            slot = (slot + 1) & (n_slots - 1)
    return n


@njit(cache=True, nogil=True)
def _add_weights(used: Int, weights: RoundedWeights, work: CountScratch) -> None:
    """Fill ``work.sums`` with the weights at the first ``used`` places times their values."""
    _, multiples, step, _ = weights
    places, values, sums = work.places, work.values, work.sums
    sums[:] = 0.0
    u = 0
    while u + 4 <= used:  # four at a time: the sums are loaded and stored a quarter as often
        first, second = multiples[places[u]], multiples[places[u + 1]]
        third, fourth = multiples[places[u + 2]], multiples[places[u + 3]]
        a, b, c, d = values[u], values[u + 1], values[u + 2], values[u + 3]
        for r in range(sums.shape[0]):
            s = step[r]
            # Products in float32 are the weights of the model to the last bit.
            total = sums[r] + a * np.float64(np.float32(first[r]) * s)
            total += b * np.float64(np.float32(second[r]) * s)
            total += c * np.float64(np.float32(third[r]) * s)
            sums[r] = total + d * np.float64(np.float32(fourth[r]) * s)
        u += 4
    while u < used:
        own, value = multiples[places[u]], values[u]
        for r in range(sums.shape[0]):
            sums[r] += value * np.float64(np.float32(own[r]) * step[r])
        u += 1


@njit(cache=True, nogil=True)
def score_hashes(
    documents: HashedRows,
    weights: RoundedWeights,
    weighting: EntryWeighting,
    work: CountScratch,
    scores: NDArray[np.float64],
) -> None:
    """Fill ``scores``, of shape (n_documents, n_classes): documents times weights plus intercepts.

    Equal to `bigmc.kernels.linear.scoring.score_rows` of their rows but for the order of the additions.
    """
    column_scale, binary, l2 = weighting
    scaled = column_scale.shape[0] > 0
    table, multiples, _, intercept = weights
    width = multiples.shape[1]
    n_bytes = min(width, _MOST_LINES * CACHE_LINE)
    places, values, sums = work.places, work.values, work.sums
    for row in range(scores.shape[0]):
        used: Int = 0
        squares = 0.0
        for k in range(_count_features(row, documents, table, column_scale, work)):
            index = np.uint32(work.features[k])
            value = 1.0 if binary else np.float64(work.counts[k])
            if scaled:
                value *= column_scale[index]
            squares += value * value
            place = np.int64(table[index])
            places[used], values[used] = place, value
            for offset in range(0, n_bytes, CACHE_LINE):
                prefetch(multiples, place * width + offset)
            used += place >= 0
        _add_weights(used, weights, work)
        divide = l2 and squares > 0.0
        factor = 1.0 / np.float64(np.float32(np.sqrt(squares))) if divide else 1.0
        answer = scores[row]
        for r in range(answer.shape[0]):
            answer[r] = sums[r] * factor + intercept[r]
