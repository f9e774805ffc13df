"""Scores of documents straight from the hashes of their n-grams, without rows of counts between.

Rows are sorted by feature, which takes longer than all else; a sum needs no order. The n-grams of a document
are counted in a table that stays in the nearest cache. What is needed of a feature lies scattered over
megabytes: two cache lines, the second located by the first. Some documents go through each step together,
so that the lines of all their features are on their way at the same time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigmc.kernels.decorators import inner_kernel, kernel
from bigmc.kernels.hashing.arguments import HashedRows, Int, Ints
from bigmc.kernels.hashing.rows import feature
from bigmc.kernels.linear.parallel.simd import LANES, lanes_add_rounded
from bigmc.kernels.prefetch import CACHE_LINE, prefetch

GROUP_NGRAMS = 512
"""N-grams of documents scored together; a longer document comes alone."""

GROUP_DOCUMENTS = 64
"""Documents scored together, at most."""

FOUR = 4
"""Rows that `lanes_add_rounded` adds."""

_LEAST_SLOTS = 64
_NEAR_SLOTS = 1 << 12  # 16 KB, a part of the nearest cache

_MOST_LINES = 4
"""Cache lines of a feature's weights that are asked for; the processor foresees the next ones."""


class RoundedWeights(NamedTuple):
    """Weights that are multiples of a step of their class, and the scales of features.

    Attributes
    ----------
    entries : int32 array of shape (n_features,)
        Row of each feature in `multiples`; of one without weight the bits of minus its scale, a float32.
    multiples : int8 array of shape (n_nonzero, row_bytes)
        Of each class; the last four bytes are the scale of the feature.
    scales : float32 array of shape (n_nonzero, row_bytes / 4)
        The same memory.
    step : float32 array of shape (width,)
        Of each class, and any number for those beyond the last class; whole vectors of `LANES`.
    intercept : float64 array of shape (n_classes,)
    """

    entries: Ints
    multiples: NDArray[np.int8]
    scales: NDArray[np.float32]
    step: NDArray[np.float32]
    intercept: NDArray[np.float64]


class CountScratch(NamedTuple):
    """What scoring documents of n n-grams in all works in.

    Attributes
    ----------
    slots : int32 array of shape (`slots_for` (n),)
    features, counts : int32 arrays of shape (n,)
    ends : int64 array of shape (`GROUP_DOCUMENTS`,)
    entries : int32 array of shape (n,)
    entry_floats : float32 array of shape (n,)
        The same memory.
    rows : int64 array of shape (n + `FOUR`,)
        Offsets in `RoundedWeights.multiples`.
    values : float64 array of shape (n + `FOUR`,)
    sums : float64 array of shape (width,)
    """

    slots: Ints
    features: Ints
    counts: Ints
    ends: NDArray[np.int64]
    entries: Ints
    entry_floats: NDArray[np.float32]
    rows: NDArray[np.int64]
    values: NDArray[np.float64]
    sums: NDArray[np.float64]


@kernel
def slots_for(n_ngrams: Int) -> Int:
    """Return how many slots count a document: two for every n-gram, where few are needed eight.

    A power of two. With more slots fewer are taken already, which a processor cannot guess.
    """
    n_slots = np.int64(_LEAST_SLOTS)
    while n_slots < 2 * n_ngrams or n_slots < min(8 * n_ngrams, _NEAR_SLOTS):
        n_slots *= 2
    return n_slots


@inner_kernel
def _count_features(row: Int, n: Int, documents: HashedRows, entries: Ints, work: CountScratch) -> Int:
    """List the features of a document from ``n`` on with their counts, by their first n-grams; the next n.

    The entries of the features are asked for.
    """
    offsets, hashes, times, hash_bits = documents
    slots, features, counts = work.slots, work.features, work.counts
    mask = (np.int64(1) << hash_bits) - 1
    first, last = offsets[row], offsets[row + 1]
    n_slots = slots_for(last - first)
    slots[:n_slots] = -1
    for i in range(first, last):
        index, negative = feature(hashes[i], mask)
        count = np.int64(times[i]) * (1 - 2 * negative)
        slot = index & (n_slots - 1)
        while True:
            k = slots[slot]
            if k < 0:
                prefetch(entries, 4 * index)
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


@inner_kernel
def _look_up(n: Int, weights: RoundedWeights, work: CountScratch) -> None:
    """Fill ``work.entries`` with those of ``n`` features and ask for their rows."""
    row_bytes = weights.multiples.shape[1]
    asked = min(row_bytes, _MOST_LINES * CACHE_LINE)
    for k in range(n):
        entry: Int = np.int64(weights.entries[np.uint32(work.features[k])])
        work.entries[k] = entry
        for offset in range(0, asked, CACHE_LINE):
            prefetch(weights.multiples, max(entry, 0) * row_bytes + offset)


@inner_kernel
def _list_values(
    begin: Int, end: Int, binary: bool, weights: RoundedWeights, work: CountScratch
) -> tuple[Int, float]:
    """List the values of a document's features that have weights; how many, and the squares of all values."""
    scales = weights.scales
    row_bytes = weights.multiples.shape[1]
    last = scales.shape[1] - 1
    used: Int = 0
    squares = 0.0
    for k in range(begin, end):
        entry: Int = np.int64(work.entries[k])
        own = scales[max(entry, 0), last]
        value = np.float64(own if entry >= 0 else -work.entry_floats[k])
        if not binary:
            value *= np.float64(work.counts[k])
        squares += value * value
        work.rows[used], work.values[used] = entry * row_bytes, value
        used += entry >= 0
    return used, squares


@inner_kernel
def _add_weights(used: Int, weights: RoundedWeights, work: CountScratch) -> None:
    """Fill ``work.sums`` with the weights of the first ``used`` rows times their values."""
    rows, values, sums = work.rows, work.values, work.sums
    rows[used : used + FOUR - 1] = 0
    values[used : used + FOUR - 1] = 0.0
    sums[:] = 0.0
    for first in range(0, used, FOUR):  # the sums are loaded and stored a quarter as often
        for at in range(0, sums.shape[0], LANES):
            # Products in float32 are the weights of the model to the last bit.
            lanes_add_rounded(weights.multiples, rows, values, first, weights.step, sums, at)


@kernel
def score_hashes(
    documents: HashedRows,
    weights: RoundedWeights,
    binary: bool,
    l2: bool,
    work: CountScratch,
    scores: NDArray[np.float64],
) -> None:
    """Fill ``scores``, of shape (n_documents, n_classes): documents times weights plus intercepts.

    Equal to `scoring.model_scores.score_rows` of their rows but for the order of the additions.
    """
    offsets, intercept, ends = documents.offsets, weights.intercept, work.ends
    row = 0
    while row < scores.shape[0]:
        most = min(row + GROUP_DOCUMENTS, scores.shape[0])
        stop = row + 1
        while stop < most and offsets[stop + 1] - offsets[row] <= GROUP_NGRAMS:
            stop += 1
        n: Int = 0
        for k in range(row, stop):
            n = _count_features(k, n, documents, weights.entries, work)
            ends[k - row] = n
        _look_up(n, weights, work)
        begin: Int = 0
        for k in range(row, stop):
            used, squares = _list_values(begin, ends[k - row], binary, weights, work)
            begin = ends[k - row]
            _add_weights(used, weights, work)
            divide = l2 and squares > 0.0
            factor = 1.0 / np.float64(np.float32(np.sqrt(squares))) if divide else 1.0
            answer = scores[k]
            for r in range(answer.shape[0]):
                answer[r] = work.sums[r] * factor + intercept[r]
        row = stop
