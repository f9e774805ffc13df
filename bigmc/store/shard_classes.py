"""Whether samples are sorted by class, so that some shards do not represent the others."""

from __future__ import annotations

import math

import numpy as np

from bigmc.store.dataset import Dataset

_DIFFERENT = 0.1
"""Share of the samples that would have to change their class for all shards to be alike, above which they are
not; beside what chance makes of it, for as many classes and samples."""


def classes_differ(dataset: Dataset) -> bool:
    """Return whether the classes of the shards differ by more than chance."""
    every = dataset.class_counts()
    shares, change, chance = every / max(every.sum(), 1), 0.0, 0.0
    for s in range(dataset.n_shards):
        counts = dataset.part([s]).class_counts()
        n = max(int(counts.sum()), 1)
        change += 0.5 * float(np.abs(counts - n * shares).sum())
        # mean absolute deviation of counts that are about normally distributed
        chance += 0.5 * float(np.sqrt(2.0 / math.pi * n * shares * (1.0 - shares)).sum())
    return bool(change > chance + _DIFFERENT * every.sum())
