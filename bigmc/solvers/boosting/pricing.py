"""Pricing: the best learners of every class in one pass over the columns (Lin et al. 2012, equation 4)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import Engine
from bigmc.kernels.boosting.cuts import (
    ABOVE,
    BELOW,
    MISSING_ABOVE,
    MISSING_BELOW,
    add_histograms,
    column_sums,
    find_cuts,
    find_rays,
    merge_best,
)
from bigmc.solvers.boosting.binning import BinnedSource, CodedBlock
from bigmc.solvers.boosting.learners import Learners
from bigmc.solvers.boosting.predictions import Responses

#: Feature, cut and kind of a learner of one cut; the constant one has -1 everywhere.
Place = tuple[int, int, int]

#: Numbers of a histogram that one worker fills at a time: they should stay in its cache.
_HISTOGRAM = 1 << 16
#: Rows added up at once.
_PART_ROWS = 65_536


class Found(NamedTuple):
    """What a pass found.

    Attributes
    ----------
    learners : Learners
        Different ones; each is wanted by at least one class.
    answers : list of array
        Their answers on the samples.
    classes, places : int64 arrays of shape (n_candidates,)
        Class and place in `learners` of each candidate, best first within a class.
    signs : int8 array of shape (n_candidates,)
        -1 if the opposite of the learner is meant.
    scores : float64 array of shape (n_candidates,)
        Left side of the constraint of each candidate (Lin et al. 2012, equation 3b).
    sigma : float
        Largest score met.
    """

    learners: Learners
    answers: list[NDArray[Any]]
    classes: NDArray[np.int64]
    places: NDArray[np.int64]
    signs: NDArray[np.int8]
    scores: NDArray[np.float64]
    sigma: float

    def shared(self, n_classes: int, n_best: int) -> Found:
        """Return the candidates with the largest scores for any class, so many, as those of every class.

        They are the columns of MultiBoost with learners that all classes share (Shen and Hao 2011).
        """
        order = np.argsort(-self.scores, kind="stable")
        names = zip(self.places[order].tolist(), self.signs[order].tolist(), strict=True)
        best = list(dict.fromkeys(names))[:n_best]
        places = list(dict.fromkeys(place for place, _ in best))
        return Found(
            self.learners.take(places),
            [self.answers[place] for place in places],
            np.arange(n_classes).repeat(len(best)),
            np.tile([places.index(place) for place, _ in best], n_classes).astype(np.int64),
            np.tile([sign for _, sign in best], n_classes).astype(np.int8),
            np.full(n_classes * len(best), self.sigma),
            self.sigma,
        )


class Search(Protocol):
    """Finds learners for all classes, given the dual weights."""

    #: Passes over the data that one search takes.
    n_passes: int
    #: No learner of the family has a larger score than the one reported.
    exact: bool

    def run(self, u: NDArray[Any], r: float, n_best: int) -> Found:
        """Return so many of the best learners of each class under the dual weights ``r u``."""
        ...

    def answers(self, learners: Learners) -> list[NDArray[Any]]:
        """Return the answers of learners found before."""
        ...


class Best(NamedTuple):
    """The best cuts of each class, best first.

    Attributes
    ----------
    values, scores : float64 arrays of shape (n_classes, n_best)
        What they are ordered by (0: none), and their scores, signed.
    places : int64 array of shape (n_classes, n_best, 3)
        Feature, cut and kind.
    """

    values: NDArray[np.float64]
    scores: NDArray[np.float64]
    places: NDArray[np.int64]

    @classmethod
    def none(cls, n_classes: int, n_best: int) -> Best:
        """Return no cuts."""
        shape = (n_classes, n_best)
        return cls(np.zeros(shape), np.zeros(shape), np.full((*shape, 3), -1, np.int64))

    def wanted(self) -> list[Place]:
        """Return the different places, in order."""
        return sorted({tuple(place) for place in self.places[self.values > 0].tolist()})

    def merge(self, later: Best) -> None:
        """Take in what was found in later columns."""
        merge_best(later, self)


def sums_of(u: NDArray[Any], labels: NDArray[np.int32], engine: Engine) -> NDArray[np.float64]:
    """Return the column sums of u, and those of its elements at the own class, shape (2, width)."""

    def work(first: int) -> NDArray[np.float64]:
        sums = np.zeros((2, u.shape[1]))
        here = slice(first, first + _PART_ROWS)
        column_sums(u[here], labels[here], *sums)
        return sums

    total = np.zeros((2, u.shape[1]))
    for _, sums in engine.map(work, range(0, len(labels), _PART_ROWS)):
        total += sums
    return total


def scan_cuts(
    block: CodedBlock,
    u: NDArray[Any],
    totals: NDArray[np.float64],
    shape: tuple[int, int],
    engine: Engine,
    *,
    rays: bool,
) -> Best:
    """Return the best cuts of a block's columns for every class.

    Parameters
    ----------
    block : CodedBlock
    u : array of shape (n_samples, width)
    totals : float64 array of shape (2, width)
        See `sums_of`.
    shape : (n_classes, n_best)
    engine : Engine
    rays : bool
        Rays instead of stumps.
    """
    bins = block.bins
    most = max(1, _HISTOGRAM // u.shape[1])

    def work(part: tuple[int, int]) -> Best:
        best = Best.none(*shape)
        lo, stop = part
        ends = np.cumsum(bins.n_bins[bins.columns[lo:stop]])
        done = 0
        while lo < stop:
            hi = max(lo + 1, part[0] + int(np.searchsorted(ends, done + most, side="right")))
            columns = bins.columns[lo:hi]
            here = ends[lo - part[0] : hi - part[0]]
            firsts = here - bins.n_bins[columns] - done
            hist = np.zeros((int(here[-1]) - done, u.shape[1]))
            chosen = block.chosen(columns, firsts)
            add_histograms(chosen, block.entries, u, hist)
            if rays:
                find_rays(chosen, hist, best)
            else:
                find_cuts(chosen, totals[0], hist, best)
            done = int(here[-1])
            lo = hi
        return best

    best = Best.none(*shape)
    for _, found in engine.map(work, bins.parts):
        best.merge(found)
    return best


def code_range(cut: int, kind: int, n_edges: int) -> tuple[int, int]:
    """Return the codes, both ends included, where the learner of a cut is 1."""
    if kind == BELOW:
        return 0, cut
    return cut + 1, n_edges + 1 if kind == MISSING_ABOVE else n_edges


def cut_learners(places: Sequence[Place]) -> Learners:
    """Return the learners of cuts as trees of depth 1; without a feature it is the constant learner."""
    feature, cut, kind = np.array(places, np.int64).reshape(-1, 3).T[:, :, np.newaxis]
    leaf = np.array([(-1, 1), (-1, 1), (0, 1), (1, 0)], np.int8)
    constant = feature < 0
    return Learners(
        feature.astype(np.int32),
        np.where(constant, 0, cut).astype(np.int16),
        ((kind == MISSING_BELOW) | (kind == ABOVE)) & ~constant,
        np.where(constant, np.int8(1), leaf[kind[:, 0]]),
    )


def kind_of(learner: Learners) -> int:
    """Return the kind of cut that `cut_learners` made a learner of."""
    if not learner.leaf.all():
        return BELOW if learner.leaf[0] else ABOVE
    return MISSING_BELOW if learner.missing_below[0] else MISSING_ABOVE


class ExactSearch(ABC):
    """All cuts of all columns: exact, so that its largest score certifies.

    Parameters
    ----------
    responses : Responses
    n_classes : int
    engine : Engine
        Threads of this process.
    """

    n_passes = 1
    exact = True

    def __init__(self, responses: Responses, n_classes: int, engine: Engine) -> None:
        self._responses, self._engine = responses, engine
        self._n_classes = n_classes

    @abstractmethod
    def answers(self, learners: Learners) -> list[NDArray[Any]]:
        """Return the answers of learners found before: one pass."""

    @abstractmethod
    def _price(self, u: NDArray[Any], totals: NDArray[np.float64], best: Best) -> dict[Place, NDArray[Any]]:
        """Take in the best cuts of all columns; return the answers of the best in the end, in their order."""

    def run(self, u: NDArray[Any], r: float, n_best: int) -> Found:
        """Return the best learners under the dual weights ``r u``."""
        labels, shape = self._responses.labels, (self._n_classes, n_best)
        totals = sums_of(u, labels, self._engine)
        best = Best.none(*shape)
        for c in range(self._n_classes):
            best.values[c, 0], best.scores[c, 0] = abs(totals[0, c]), totals[0, c]
        answers = self._price(u, totals, best)
        return self._found(best, answers, totals, r, u.dtype)

    def _found(
        self,
        best: Best,
        answers: dict[Place, NDArray[Any]],
        totals: NDArray[np.float64],
        r: float,
        dtype: np.dtype[Any],
    ) -> Found:
        order = {place: k for k, place in enumerate(answers)}
        classes, ranks = np.nonzero(best.values > 0)
        places = [order[tuple(place)] for place in best.places[classes, ranks].tolist()]
        scores = best.scores[classes, ranks]
        # Scores are sums over u as it is stored: what its rounding may hide counts as violation.
        largest = float((2.0 * totals[1] - totals[0]).max())
        rounding = 0.5 * float(np.finfo(dtype).eps) * largest
        sigma = r * (float(best.values.max(initial=0.0)) + rounding)
        return Found(
            cut_learners(list(answers)), list(answers.values()), classes,
            np.array(places, np.int64), np.where(scores < 0, -1, 1).astype(np.int8), r * np.abs(scores),
            sigma,
        )  # fmt: skip


class CutSearch(ExactSearch):
    """The search on threads of this process, which share one block after the other.

    Parameters
    ----------
    source : BinnedSource
    responses : Responses
    n_classes : int
    rays : bool
        Learners speak on one side of the cut only.
    engine : Engine
    """

    def __init__(
        self, source: BinnedSource, responses: Responses, n_classes: int, rays: bool, engine: Engine
    ) -> None:
        super().__init__(responses, n_classes, engine)
        self._source, self._rays = source, rays

    def answers(self, learners: Learners) -> list[NDArray[Any]]:
        """Return the answers of learners found before: one pass."""
        answers = [self._responses.everywhere()] * len(learners.feature)
        features = learners.feature[:, 0]
        for block in self._source.stream():
            here = np.flatnonzero((features >= block.lo) & (features < block.hi))
            for k in here[np.argsort(features[here], kind="stable")].tolist():
                column = int(features[k]) - block.lo
                codes = code_range(
                    int(learners.cut[k, 0]), kind_of(learners.take(k)), int(block.bins.n_edges[column])
                )
                answers[k] = self._responses.of_ranges(block, column, [codes])[0]
        return answers

    def _price(self, u: NDArray[Any], totals: NDArray[np.float64], best: Best) -> dict[Place, NDArray[Any]]:
        shape = best.values.shape
        answers: dict[Place, NDArray[Any]] = {(-1, -1, -1): self._responses.everywhere()}
        for block in self._source.stream():
            best.merge(scan_cuts(block, u, totals, shape, self._engine, rays=self._rays))
            answers = self._answers(block, best, answers)
        return answers

    def _answers(
        self, block: CodedBlock, best: Best, known: dict[Place, NDArray[Any]]
    ) -> dict[Place, NDArray[Any]]:
        """Return the answers of the best cuts so far; those new among them are of this block."""
        wanted = best.wanted()
        answers = {place: known[place] for place in wanted if place in known}
        by_column: dict[int, list[Place]] = {}
        for place in wanted:
            if place not in answers:
                by_column.setdefault(place[0] - block.lo, []).append(place)
        for column, places in by_column.items():
            edges = int(block.bins.n_edges[column])
            ranges = [code_range(cut, kind, edges) for _, cut, kind in places]
            answers |= dict(zip(places, self._responses.of_ranges(block, column, ranges), strict=True))
        return answers
