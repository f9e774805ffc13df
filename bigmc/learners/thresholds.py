"""The score above which a class is one of a sample's labels.

The ranking loss orders the classes of a sample but does not say how many are labels; Blondel et al. (2013),
section 4.7, suggest threshold selection. Here one threshold for all classes maximises the
micro-averaged F1 on the training samples (one of the strategies in Fan, Lin, "A study on threshold
selection for multi-label classification", 2007): the scores of a sample add up to 0 at the optimum, since
every row of weights does, so scores of different samples are comparable.

Scores are counted by the leading bits of their float32: one pass finds the threshold up to a 512th of its
size, in memory independent of the number of samples, and the order of counting does not matter.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import Engine
from bigmc.model import Model
from bigmc.store.dataset import Dataset
from bigmc.store.shards.label_sets import pairs_of

#: Leading bits of a float32 that are used: sign, exponent and 9 of the mantissa.
_BITS = 18
#: Share of the memory limit for scores, freed by the solver, and bounds on the memory of a worker.
_SHARE = 0.25
_LEAST, _MOST = 8 << 20, 256 << 20

Part = tuple[int, NDArray[np.float64] | None]


def best_threshold(
    model: Model, dataset: Dataset, weights: NDArray[np.float64] | None, engine: Engine, memory_limit: int
) -> float:
    """Return the threshold with the best micro-averaged F1, the largest on a tie; one pass.

    If the scores of all classes do not fit into the memory limit, columns are read again for each group
    of classes.
    """
    scratch_bytes = int(np.clip(_SHARE * memory_limit / engine.n_threads, _LEAST, _MOST))
    counts = np.zeros((2, 1 << _BITS))
    for _, added in engine.map(_count, list(_parts(dataset, weights)), model, dataset, scratch_bytes):
        counts += added
    return _choose(*counts)


def _parts(dataset: Dataset, weights: NDArray[np.float64] | None) -> Iterator[Part]:
    for s, (lo, hi) in enumerate(zip(dataset.base[:-1], dataset.base[1:], strict=True)):
        yield s, None if weights is None else weights[lo:hi]


def _count(part: Part, model: Model, dataset: Dataset, scratch_bytes: int) -> NDArray[np.float64]:
    """Return the weighted counts of each score in a shard, of all classes and of the labels."""
    shard, weights = part
    counts = np.zeros((2, 1 << _BITS))
    rows, codes = pairs_of(dataset.shards[shard].table(["label"]).column("label"))
    if weights is None:
        weights = np.ones(dataset.shards[shard].n_rows)
    for lo, scores in model.shard_tiles(dataset, shard, scratch_bytes):
        keys = _keys(scores)
        inside = (codes >= lo) & (codes < lo + scores.shape[1])
        of_labels = keys[rows[inside], codes[inside] - lo]
        every = np.broadcast_to(weights[:, None], keys.shape)
        counts[0] += np.bincount(keys.ravel(), every.ravel(), len(counts[0]))
        counts[1] += np.bincount(of_labels, weights[rows[inside]], len(counts[0]))
    return counts


def _keys(scores: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return numbers in the order of the scores: their leading bits."""
    bits = scores.astype(np.float32).view(np.uint32)
    ordered = np.where(bits >> 31, ~bits, bits | np.uint32(1 << 31))
    return (ordered >> (32 - _BITS)).astype(np.int64)


def _lower_edge(key: int) -> float:
    """Return the smallest float32 of a key."""
    ordered = np.uint32(key << (32 - _BITS))
    bits = ordered & np.uint32((1 << 31) - 1) if ordered >> 31 else ~ordered
    return float(np.asarray(bits, np.uint32).view(np.float32))


def _choose(everything: NDArray[np.float64], wanted: NDArray[np.float64]) -> float:
    """Return the threshold half-way between the last scores above it and the first below."""
    occurring = np.flatnonzero(everything)[::-1]
    above, right = np.cumsum(everything[occurring]), np.cumsum(wanted[occurring])
    best = int(np.argmax(2.0 * right / (above + wanted.sum())))
    edge = _lower_edge(int(occurring[best]))
    if best + 1 == len(occurring):
        return edge - max(1.0, abs(edge))  # all scores are above
    return 0.5 * (edge + _lower_edge(int(occurring[best + 1]) + 1))
