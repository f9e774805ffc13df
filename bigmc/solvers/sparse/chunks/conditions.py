"""Gradients of a pass as the conditions of optimality see them: those that it kept, and bounds of all others.

Where bounds decide what a pass proves, the columns of these features are read once more, and their gradients
added up: by one worker and in single precision, so that there is memory for many of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto

import numpy as np
from numpy.typing import NDArray

from bigmc.kernels.linear.arguments import Measures
from bigmc.solvers.sparse.chunks.candidate_gradients import Measured
from bigmc.solvers.sparse.chunks.pass_sums import PassRequest, PassSums
from bigmc.solvers.sparse.chunks.plan import ChunkPlan, Reading
from bigmc.solvers.sparse.chunks.task import ChunkTask
from bigmc.solvers.sparse.coefficients import Coefficients
from bigmc.solvers.sparse.feature_sets import union
from bigmc.solvers.sparse.scratch.spill import Spill

#: Columns are read once more if the bound of a gradient exceeds the penalty by this share, so often at most.
_NEARLY, _MOST_READINGS = 1e-3, 3
#: Entries of a column in the shard that has most of them, in units of what its rows would have; and of many
#: columns together, in units of their share of the largest shard.
_LARGER, _DENSER = 1.3, 1.1
#: Parts of a shard in a further reading, in units of those of the pass, tried in turn if these are too large.
_FINER = (2, 4)


class Rereading(Enum):
    """Which columns are read again after a pass.

    A feature is in doubt if the bound of its gradient is above the penalty, and decisive if that bound is
    also above the norms of all gradients that are known: what the pass proves depends on it.
    """

    NONE = auto()
    DECISIVE = auto()
    ALL_IN_DOUBT = auto()


@dataclass(frozen=True)
class Conditions:
    """What the gradients of a pass come to.

    Attributes
    ----------
    largest_norm, distance : float
        See `bigmc.solvers.sparse.working_set.gradient.GradientPass`.
    violation : float
        Largest violation of features that are no candidates, or a bound of it.
    norms : float64 array of shape (n_chosen,)
        Dual norms of the gradients that the pass kept.
    doubted : int64 array
        Features whose bounds are above the penalty, and whose gradients are known.
    """

    largest_norm: float
    distance: float
    violation: float
    norms: NDArray[np.float64]
    doubted: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        task: ChunkTask,
        sums: PassSums,
        kept: Measured,
        candidates: Measured,
        again: FurtherReadings | None,
    ) -> Conditions:
        """Put the norms of the gradients that are known into the bounds of a pass, and measure all."""
        chosen, known = kept.features, union(kept.features, candidates.features)
        sums.bound_norms()
        doubted = chosen[sums.norms[chosen] > task.alpha]
        for own in (kept, candidates):
            sums.norms[own.features] = own.measures.norms
        if again:
            doubted = union(doubted, again.read(sums, known))
        excess = sums.norms.copy()
        excess[known] = 0.0
        largest = float(excess.max(initial=0.0))
        excess -= np.float32(task.alpha * (1.0 - float(np.finfo(np.float32).eps)))
        np.maximum(excess, 0.0, out=excess)
        # no gradient is further from the ball than by what scales it into it
        conversion = math.sqrt(task.n_classes) if task.objective.penalty.l1_ratio > 0 else 1.0
        distance = conversion**2 * float(np.einsum("j,j->", excess, excess, dtype=np.float64))
        violation = max(float(array.max(initial=0.0)) for array in (excess, kept.measures.violations))
        for norms, _, distances in (kept.measures, candidates.measures):
            largest = max(largest, float(norms.max(initial=0.0)))
            distance += float(distances.sum())
        return cls(largest, distance, violation, kept.measures.norms, doubted)


@dataclass(frozen=True)
class FurtherReadings:
    """Reads columns again after a pass.

    Attributes
    ----------
    task : ChunkTask
    plan : ChunkPlan
    rereading : Rereading
    request : PassRequest
        Of the pass.
    spill : Spill
        Has the columns of the candidates.
    weighted : int64 array
        Features with weights, increasing.
    add_up : callable
        Makes what a request asks for of all samples.
    """

    task: ChunkTask
    plan: ChunkPlan
    rereading: Rereading
    request: PassRequest
    spill: Spill
    weighted: NDArray[np.int64]
    add_up: Callable[[PassRequest], PassSums]

    def read(self, sums: PassSums, known: NDArray[np.int64]) -> NDArray[np.int64]:
        """Put the norms of gradients in the place of bounds; return the features, increasing."""
        if sums.signed:  # those of all features are known
            return known[:0]
        features, all_features = known[:0], known
        for _ in range(_MOST_READINGS):
            doubtful, request = self._next(sums, all_features)
            if not len(doubtful):
                break
            again = self.add_up(request)
            nothing = Coefficients.zeros(self.task.width)
            norms = measure(self.task, self.plan, again, doubtful, nothing).measures.norms
            sums.norms[doubtful] = again.rounded_up(norms, sums.norms[doubtful])
            features, all_features = union(features, doubtful), union(all_features, doubtful)
        return features

    def _next(self, sums: PassSums, known: NDArray[np.int64]) -> tuple[NDArray[np.int64], PassRequest]:
        """Return the features to read next, increasing, those with the largest bounds, and how."""
        norms, least = sums.norms[known], self.task.alpha * (1.0 + _NEARLY)
        if self.rereading is Rereading.DECISIVE:
            least = max(least, float(norms.max(initial=0.0)))
        sums.norms[known] = 0.0
        doubtful, request = known[:0], self.request
        if sums.norms.max(initial=0.0) > least:
            doubtful, request = self._fitting(sums.norms)
        sums.norms[known] = norms
        return doubtful, request

    def _fitting(self, norms: NDArray[np.float32]) -> tuple[NDArray[np.int64], PassRequest]:
        """Return the features of the largest norms above alpha that fit, increasing, and how they are read.

        Finer parts of the shards leave memory for more of them, and for the columns of the weights beside.
        """
        finest = self.spill.n_parts // self.plan.shard_parts if self.plan.shard_parts > 1 else 1
        best, complete = self._with_parts(1, norms)
        for finer in _FINER:
            if complete or finer > finest:
                break
            request, complete = self._with_parts(finer, norms)
            if complete or len(request.features) > len(best.features):
                best = request
        return best.features, best

    def _with_parts(self, finer: int, norms: NDArray[np.float32]) -> tuple[PassRequest, bool]:
        """Return how columns are read with parts finer by a factor, and whether all that is wanted fits."""
        plan, dataset = self.plan, self.task.dataset
        reading = plan.reading(*self.spill.size, len(self.request.features), finer)
        found = _largest(norms, np.float32(self.task.alpha), reading.most_features)
        share = max(shard.n_rows for shard in dataset.shards) / dataset.n_samples
        features = np.sort(found[: reading.fitting(_LARGER * share * dataset.column_nnz(found))])
        weighted = self._weights_beside(features)
        fits = self._fit_beside(weighted, features, reading)
        request = replace(
            self.request,
            features=features,
            scales=(),
            only=True,
            weighted=weighted if fits else None,
            block_bytes=reading.block_bytes,
            held_bytes=reading.held_bytes(len(features)),
            shard_parts=finer * plan.shard_parts,
        )
        return request, fits and len(features) == len(found) < reading.most_features

    def _weights_beside(self, doubtful: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """Return the features with weights, if decoding them with the others reads less than the spill."""
        dataset, spill = self.task.dataset, self.spill
        both = spill.most_decoded(union(doubtful, self.weighted))
        more = (both - spill.most_decoded(doubtful)) * dataset.entry_bytes
        return self.weighted if self.plan.shard_parts > 1 and more < sum(spill.column_bytes) else None

    def _fit_beside(
        self, weighted: NDArray[np.int64] | None, doubtful: NDArray[np.int64], reading: Reading
    ) -> bool:
        """Return whether these columns fit into memory together, with the offsets of all columns."""
        if weighted is None:
            return True
        dataset = self.task.dataset
        nnz = int(dataset.column_nnz(union(doubtful, weighted)).sum())
        share = _DENSER * max(shard.nnz for shard in dataset.shards) / max(dataset.nnz, 1)
        held = reading.entry_bytes * share * nnz + 8 * dataset.n_features
        return held <= reading.held_bytes(len(doubtful))


def measure(
    task: ChunkTask, plan: ChunkPlan, sums: PassSums, features: NDArray[np.int64], coef: Coefficients
) -> Measured:
    """Measure the gradients that were added up, of increasing `features`."""
    out, step = Measures(*np.empty((3, len(features)))), plan.block_columns
    for first in range(0, len(features), step):
        some = slice(first, first + step)
        unpacked = task.objective.loss.unpacked(sums.gradient[some], task.n_classes, task.width)
        part = Measures(*(array[some] for array in out))
        task.objective.measure_gradients(
            task.alpha, unpacked, coef.take(features[some]), task.n_classes, part
        )
    return Measured(features, out)


def _largest(norms: NDArray[np.float32], least: np.float32, most: int) -> NDArray[np.int64]:
    """Return features of more than `least`, of the largest norms, and these first."""
    over = norms[norms > least]
    if len(over) > most:
        over.partition(len(over) - most - 1)
        least = over[len(over) - most - 1]
    features = np.flatnonzero(norms > least)
    return features[np.argsort(-norms[features], kind="stable")]
