"""Pricing: the best learners of every class in one pass over the columns (Lin et al. 2012, equation 4)."""

from __future__ import annotations

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
from bigmc.solvers.boosting.options import CutKind
from bigmc.solvers.boosting.oracle import Candidates, ColumnReader, Duals, OnColumns
from bigmc.solvers.boosting.predictions import Responses, bits_of_ranges, rows_of_ranges

#: Feature, cut and kind of a learner of one cut; the constant one has -1 everywhere.
Place = tuple[int, int, int]

#: Numbers of a histogram that one worker fills at a time, which should stay in its cache.
_HISTOGRAM = 1 << 16
#: Rows added up at once.
_PART_ROWS = 65_536


class Best(NamedTuple):
    """The best cuts of each class, best first.

    They are ordered by `values` (0: none); `scores` are signed; both have the shape (n_classes, n_best).
    `places`, of shape (n_classes, n_best, 3), has feature, cut and kind.
    """

    values: NDArray[np.float64]
    scores: NDArray[np.float64]
    places: NDArray[np.int64]

    @classmethod
    def none(cls, n_classes: int, n_best: int) -> Best:
        """Return no cuts."""
        shape = (n_classes, n_best)
        return cls(np.zeros(shape), np.zeros(shape), np.full((*shape, 3), -1, np.int64))

    @property
    def shape(self) -> tuple[int, int]:
        """Classes and cuts of each."""
        return self.values.shape[0], self.values.shape[1]

    def wanted(self) -> list[Place]:
        """Return the distinct places, in order."""
        return sorted({tuple(place) for place in self.places[self.values > 0].tolist()})

    def merge(self, later: Best) -> None:
        """Merge the best cuts of later columns."""
        merge_best(later, self)


def sums_of(u: NDArray[Any], labels: NDArray[np.int32], engine: Engine) -> NDArray[np.float64]:
    """Return the column sums of u, and those of its elements at the sample's class, shape (2, width)."""

    def work(first: int) -> NDArray[np.float64]:
        sums = np.zeros((2, u.shape[1]))
        rows = slice(first, first + _PART_ROWS)
        column_sums(u[rows], labels[rows], *sums)
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
    cut_kind: CutKind,
) -> Best:
    """Return the best cuts of a block's columns for every class; `shape` is (n_classes, n_best).

    `u` has the shape (n_samples, width), and `totals` its column sums.
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
            stops = ends[lo - part[0] : hi - part[0]]
            firsts = stops - bins.n_bins[columns] - done
            hist = np.zeros((int(stops[-1]) - done, u.shape[1]))
            chosen = block.chosen(columns, firsts)
            add_histograms(chosen, block.entries, u, hist)
            if cut_kind is CutKind.RAY:
                find_rays(chosen, hist, best)
            else:
                find_cuts(chosen, totals, hist, best)
            done = int(stops[-1])
            lo = hi
        return best

    best = Best.none(*shape)
    for _, part_best in engine.map(work, bins.parts):
        best.merge(part_best)
    return best


def code_range(cut: int, kind: int, n_edges: int) -> tuple[int, int]:
    """Return the codes, both ends included, for which the learner of a cut is 1."""
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
    """Return the kind of cut of a learner of `cut_learners`."""
    if not learner.leaf.all():
        return BELOW if learner.leaf[0] else ABOVE
    return MISSING_BELOW if learner.missing_below[0] else MISSING_ABOVE


def answers_in(
    block: CodedBlock, places: Sequence[Place], scratch: NDArray[np.uint8] | None
) -> dict[Place, NDArray[Any]]:
    """Return the answers of cuts of a block's columns: as bits, or as lists of rows without `scratch`.

    `scratch`, of shape (n_samples,), is for the codes of a column.
    """
    by_column: dict[int, list[Place]] = {}
    for place in places:
        by_column.setdefault(place[0] - block.lo, []).append(place)
    answers: dict[Place, NDArray[Any]] = {}
    for column, own in by_column.items():
        edges = int(block.bins.n_edges[column])
        ranges = [code_range(cut, kind, edges) for _, cut, kind in own]
        made: Sequence[NDArray[Any]] = (
            rows_of_ranges(block, column, ranges)
            if scratch is None
            else bits_of_ranges(block, column, ranges, scratch)
        )
        answers |= dict(zip(own, made, strict=True))
    return answers


class Scan(ColumnReader, Protocol):
    """Reads all columns, in this process or on workers."""

    def find(self, u: NDArray[Any], totals: NDArray[np.float64], best: Best) -> dict[Place, NDArray[Any]]:
        """Merge the best cuts of all columns into `best`; return their answers as far as they are known."""

    def answers(self, places: Sequence[Place]) -> dict[Place, NDArray[Any]]:
        """Return the answers of cuts: one pass over their columns."""


class LocalScan(OnColumns):
    """Reads the columns in this process, whose threads share one block after the other."""

    def __init__(self, source: BinnedSource, n_samples: int, cut_kind: CutKind, engine: Engine) -> None:
        super().__init__(source)
        self._source, self._cut_kind, self._engine = source, cut_kind, engine
        self._scratch = None if cut_kind is CutKind.RAY else np.empty(n_samples, np.uint8)

    def find(self, u: NDArray[Any], totals: NDArray[np.float64], best: Best) -> dict[Place, NDArray[Any]]:
        """Merge the best cuts of all columns into `best`; return their answers, made in the same pass."""
        answers: dict[Place, NDArray[Any]] = {}
        for block in self._source.stream():
            best.merge(scan_cuts(block, u, totals, best.shape, self._engine, cut_kind=self._cut_kind))
            wanted = best.wanted()
            answers = {place: answers[place] for place in wanted if place in answers}
            new = [place for place in wanted if place[0] >= 0 and place not in answers]
            answers |= answers_in(block, new, self._scratch)
        return answers

    def answers(self, places: Sequence[Place]) -> dict[Place, NDArray[Any]]:
        """Return the answers of cuts: one pass over all columns."""
        answers: dict[Place, NDArray[Any]] = {}
        for block in self._source.stream():
            asked = sorted(place for place in places if block.lo <= place[0] < block.hi)
            answers |= answers_in(block, asked, self._scratch)
        return answers


class CutOracle(OnColumns):
    """All cuts of all columns: an exact search, so its largest score certifies."""

    n_passes = 1
    exact = True

    def __init__(self, scan: Scan, responses: Responses, n_classes: int, engine: Engine) -> None:
        super().__init__(scan)
        self._scan, self._responses, self._engine = scan, responses, engine
        self._n_classes = n_classes

    def answers(self, learners: Learners) -> list[NDArray[Any]]:
        """Return the answers of learners from earlier passes: one pass."""
        features, cuts = learners.feature[:, 0].tolist(), learners.cut[:, 0].tolist()
        kinds = [kind_of(learners.take(k)) for k in range(len(features))]
        places = list(zip(features, cuts, kinds, strict=True))
        answers = self._scan.answers([place for place in places if place[0] >= 0])
        everywhere = self._responses.everywhere()
        return [answers.get(place, everywhere) for place in places]

    def price(self, duals: Duals, n_best: int, columns: NDArray[np.bool_] | None = None) -> Candidates:
        """Return the best learners of each class: one pass over all columns."""
        assert columns is None  # as `BoostingOptions` requires for learners of one cut
        totals = sums_of(duals.u, self._responses.labels, self._engine)
        best = Best.none(self._n_classes, n_best)
        for c in range(self._n_classes):
            best.values[c, 0], best.scores[c, 0] = abs(totals[0, c]), totals[0, c]
        answers = self._scan.find(duals.u, totals[0], best)
        cuts = [place for place in best.wanted() if place[0] >= 0]
        # The answer of a learner in use is not needed.
        unused = self._responses.everywhere()[:0]
        missing = [place for place in cuts if place not in answers and not self._in_use(place)]
        answers |= self._scan.answers(missing) if missing else {}
        everywhere = {place: self._responses.everywhere() for place in best.wanted() if place[0] < 0}
        return self._candidates(
            best, everywhere | {place: answers.get(place, unused) for place in cuts}, totals, duals
        )

    def _in_use(self, place: Place) -> bool:
        return self._responses.find(cut_learners([place]).keys()[0]) is not None

    def _candidates(
        self, best: Best, answers: dict[Place, NDArray[Any]], totals: NDArray[np.float64], duals: Duals
    ) -> Candidates:
        order = {place: k for k, place in enumerate(answers)}
        classes, ranks = np.nonzero(best.values > 0)
        places = [order[tuple(place)] for place in best.places[classes, ranks].tolist()]
        scores = best.scores[classes, ranks]
        # Scores are sums over u as it is stored: the possible error of its rounding counts as violation.
        largest = float((2.0 * totals[1] - totals[0]).max())
        rounding = 0.5 * float(np.finfo(duals.u.dtype).eps) * largest
        sigma = duals.r * (float(best.values.max(initial=0.0)) + rounding)
        return Candidates(
            learners=cut_learners(list(answers)),
            answers=list(answers.values()),
            classes=classes,
            places=np.array(places, np.int64),
            signs=np.where(scores < 0, -1, 1).astype(np.int8),
            scores=duals.r * np.abs(scores),
            sigma=sigma,
        )
