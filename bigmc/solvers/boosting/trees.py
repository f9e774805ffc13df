"""Pricing with trees: the best roots of each class, and what grows from them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import Engine
from bigmc.kernels.boosting.trees import UNIT, pack_weights
from bigmc.solvers.boosting.forest import Grown
from bigmc.solvers.boosting.learners import Learners
from bigmc.solvers.boosting.oracle import Candidates, Duals, OnColumns
from bigmc.solvers.boosting.predictions import Responses
from bigmc.solvers.boosting.pricing import sums_of
from bigmc.solvers.boosting.tree_growth import Grower


class TreeOracle(OnColumns):
    """Greedy trees of `depth` levels, at least 2, from the best roots of each class; they give no bound."""

    exact = False

    def __init__(
        self, grower: Grower, responses: Responses, n_classes: int, depth: int, engine: Engine
    ) -> None:
        super().__init__(grower)
        self.n_passes = depth
        self._grower, self._responses, self._engine = grower, responses, engine
        self._n_classes, self._depth = n_classes, depth

    def price(self, duals: Duals, n_best: int, columns: NDArray[np.bool_] | None = None) -> Candidates:
        """Return good trees of each class, of some columns or of all: a pass for every level."""
        total, masses = self._begin(duals, columns)
        roots = self._grower.roots(n_best)
        grown = self._grower.grow(roots)
        scores = duals.r * grown.scores * (masses[roots.classes] / UNIT)
        return self._candidates(grown, roots.classes, scores, duals.r * total)

    def columns_of_roots(self, duals: Duals, n_best: int, columns: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which of some columns the `n_best` best roots of each class cut."""
        self._begin(duals, columns)
        cut = np.zeros_like(columns)
        cut[self._grower.roots(n_best).cuts[:, 0]] = True
        return cut

    def _begin(
        self, duals: Duals, columns: NDArray[np.bool_] | None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Give weights and columns to the grower; return the sum of u of each class, and that of its size."""
        labels, u = self._responses.labels, duals.u
        total, own = sums_of(u, labels, self._engine)[:, : self._n_classes]
        masses = 2.0 * own - total  # of |u|: it is positive at the own class only
        weights = np.empty((self._n_classes, len(labels)), np.int64)
        pack_weights(u, masses, weights)
        self._grower.begin(weights, columns)
        return total, masses

    def _candidates(
        self,
        grown: Grown,
        classes: NDArray[np.int64],
        scores: NDArray[np.float64],
        constant: NDArray[np.float64],
    ) -> Candidates:
        """Return the distinct trees, with the constant learner for every class."""
        n_classes = self._n_classes
        keys = grown.learners.keys()
        first: dict[bytes, int] = {}
        for k, key in enumerate(keys):
            first.setdefault(key, k)
        different = list(first.values())
        place = {key: 1 + p for p, key in enumerate(first)}
        order = np.lexsort((-scores, classes))
        constants = np.arange(n_classes).repeat(2)
        return Candidates(
            Learners.joined([Learners.constant(self._depth), grown.learners.take(different)]),
            [self._responses.everywhere(), *(grown.answers[k] for k in different)],
            np.concatenate([classes[order], constants]),
            np.concatenate([[place[keys[k]] for k in order], np.zeros_like(constants)]).astype(np.int64),
            np.concatenate([grown.signs[order], np.tile([1, -1], n_classes)]).astype(np.int8),
            np.concatenate([scores[order], np.outer(constant, [1, -1]).ravel()]),
            float(scores.max(initial=0.0)),
        )

    def answers(self, learners: Learners) -> list[NDArray[Any]]:
        """Return the answers of trees from earlier passes."""
        return list(self._grower.answers(learners))
