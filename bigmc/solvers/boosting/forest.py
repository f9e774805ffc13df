"""Trees that grow side by side under one set of weights, a level at a time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigmc.kernels.boosting.arguments import Level, Table
from bigmc.kernels.boosting.descent import WORD
from bigmc.kernels.boosting.trees import open_level, route, split_nodes, tree_bits
from bigmc.solvers.boosting.learners import NOWHERE, Learners

#: Minimum gain of a cut, relative to the sum of ``|u|``.
_LEAST_GAIN = 1e-12


class Roots(NamedTuple):
    """Cuts of the first level, one for each tree, class after class and best first.

    `cuts`, of shape (n_trees, 3), has feature, cut, and 1 if missing values go below; `sides`, of shape
    (n_trees, 2), the packed sums of u and ``|u|`` below and above.
    """

    classes: NDArray[np.int64]
    cuts: NDArray[np.int64]
    sides: NDArray[np.int64]

    def take(self, trees: slice) -> Roots:
        """Return some of the roots."""
        return Roots(*(array[trees] for array in self))

    @classmethod
    def joined(cls, parts: list[Roots]) -> Roots:
        """Return the roots of all parts."""
        return cls(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


class Grown(NamedTuple):
    """Trees, in the order of their roots.

    The first leaf of each learner answers 1; a sign of -1 means its opposite. `scores` are the sums over
    the leaves of ``|sum u|``, as integers; `answers` are bits.
    """

    learners: Learners
    signs: NDArray[np.int8]
    scores: NDArray[np.int64]
    answers: list[NDArray[np.uint64]]

    @classmethod
    def joined(cls, parts: list[Grown]) -> Grown:
        """Return the trees of all parts."""
        return cls(
            Learners.joined([part.learners for part in parts]),
            np.concatenate([part.signs for part in parts]),
            np.concatenate([part.scores for part in parts]),
            [answer for part in parts for answer in part.answers],
        )


class Forest:
    """Trees that grow side by side, with `depth` levels, under weights of shape (n_classes, n_samples).

    `hist`, of shape (n_trees, n_nodes of the last level, n_cells), is space for the histograms of the
    nodes; without trees if histograms are not kept.
    """

    def __init__(self, roots: Roots, weights: NDArray[np.int64], depth: int, hist: NDArray[np.int64]) -> None:
        n_trees, n_nodes = len(roots.classes), 2 ** (depth - 1)
        self.classes, self._weights = roots.classes, weights
        self._depth, self._kept, self.hist = depth, hist.size > 0, hist
        self._members, self._above = at_roots(n_trees, n_nodes, weights.shape[1])
        self.cuts, self.sides = roots.cuts[:, np.newaxis], roots.sides[:, np.newaxis]
        self._levels = [self.cuts]
        self._slots = np.zeros((n_trees, n_nodes), np.int64)
        self._added = np.zeros((n_trees, n_nodes), np.uint8)

    def next_level(self) -> None:
        """Begin the next level, without any cuts."""
        self._last = len(self._levels) == self._depth - 1
        self._totals = self.sides.reshape(len(self.classes), 2 * self.sides.shape[1])
        total = (self._totals >> 32).astype(np.float64)
        mass = (self._totals & 0xFFFFFFFF).astype(np.float64)
        purity = np.divide(total * total, mass, out=np.zeros_like(mass), where=mass > 0)
        # A cut must gain more than the rounding of a quotient.
        self._values = (np.abs(total) if self._last else purity) + _LEAST_GAIN * mass
        self.cuts = np.zeros((*total.shape, 3), np.int64)
        self.cuts[..., 0] = NOWHERE
        self.sides = np.zeros((*total.shape, 2), np.int64)
        self.sides[..., 0] = self._totals
        self._levels.append(self.cuts)

    def enter(self, part: tuple[int, int]) -> None:
        """Move the samples of some trees to the new level."""
        trees = slice(*part)
        slots, added = self._slots[trees], self._added[trees]
        open_level(self._members[trees], self._above[trees], self._totals[trees], self._kept, slots, added)

    def offer(self, part: tuple[int, int], table: Table) -> None:
        """Update some trees with better cuts of some columns."""
        hist = self.hist if self._kept else np.empty((1, self._totals.shape[1], table.n_cells), np.int64)
        level = Level(
            classes=self.classes,
            weights=self._weights,
            members=self._members,
            totals=self._totals,
            slots=self._slots,
            added=self._added,
            values=self._values,
            cuts=self.cuts,
            sides=self.sides,
            kept=self._kept,
            last=self._last,
        )
        split_nodes(*part, table if self._kept else table._replace(at=0), level, hist)
        self.route(part, table)

    def route(self, part: tuple[int, int], table: Table) -> None:
        """Mark the samples of some trees that are above cuts of some columns."""
        route(*part, table, self.cuts, self._members, self._above)

    def grown(self) -> Grown:
        """Return the trees."""
        cuts = np.concatenate(self._levels, axis=1)
        sums = self.sides.reshape(len(self.classes), cuts.shape[1] + 1) >> 32
        leaf = np.where(sums < 0, -1, 1)
        signs = leaf[:, 0].astype(np.int8)
        features, bins, missing = cuts[..., 0], cuts[..., 1].astype(np.int16), cuts[..., 2].astype(bool)
        leaf = (leaf * signs[:, np.newaxis]).astype(np.int8)
        learners = Learners(features.astype(np.int32), bins, missing, leaf)
        answers = answers_of(self._members, self._above, learners)
        return Grown(learners, signs, np.abs(sums).sum(axis=1), answers)


def n_words(n_samples: int) -> int:
    """Return the number of words with a bit for every sample."""
    return -(-n_samples // WORD)


def at_roots(n_trees: int, n_nodes: int, n_samples: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the samples of the nodes of trees, all in the first node, and those above: none."""
    members = np.zeros((n_trees, n_nodes, n_words(n_samples)), np.uint64)
    members[:, 0] = ~np.uint64(0)
    if beyond := n_samples % WORD:
        members[:, 0, -1] = (1 << beyond) - 1
    return members, np.zeros((n_trees, members.shape[2]), np.uint64)


def answers_of(
    members: NDArray[np.uint64], above: NDArray[np.uint64], learners: Learners
) -> list[NDArray[np.uint64]]:
    """Return the answers of trees, given the samples of the nodes of their last level."""
    answers = [np.empty(above.shape[1], np.uint64) for _ in above]
    for own, over, leaf, words in zip(members, above, learners.leaf, answers, strict=True):
        tree_bits(own, over, leaf, words)
    return answers
