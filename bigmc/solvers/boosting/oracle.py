"""The interface of the search for learners, the same for all families, in this process or on a cluster."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bigmc.solvers.boosting.learners import Learners


class Candidates(NamedTuple):
    """Candidates from one pass over the data: learners whose constraints may be violated.

    The learners are distinct, with their answers on the samples. Each candidate has a class, its place in
    `learners`, a sign (-1 for the opposite of the learner), and the left side of its constraint (Lin et
    al. 2012, equation 3b) as score; they are sorted best first within a class. `sigma` is the largest
    score found.
    """

    learners: Learners
    answers: list[NDArray[Any]]
    classes: NDArray[np.int64]
    places: NDArray[np.int64]
    signs: NDArray[np.int8]
    scores: NDArray[np.float64]
    sigma: float

    def shared(self, n_classes: int, n_best: int) -> Candidates:
        """Return the `n_best` candidates with the largest scores for any class, for every class.

        They are the columns of MultiBoost with learners that all classes share (Shen and Hao 2011).
        """
        order = np.argsort(-self.scores, kind="stable")
        names = zip(self.places[order].tolist(), self.signs[order].tolist(), strict=True)
        best = list(dict.fromkeys(names))[:n_best]
        places = list(dict.fromkeys(place for place, _ in best))
        return Candidates(
            self.learners.take(places),
            [self.answers[place] for place in places],
            np.arange(n_classes).repeat(len(best)),
            np.tile([places.index(place) for place, _ in best], n_classes).astype(np.int64),
            np.tile([sign for _, sign in best], n_classes).astype(np.int8),
            np.full(n_classes * len(best), self.sigma),
            self.sigma,
        )


class Duals(NamedTuple):
    """Dual weights ``λ = r u``, ``r = C / p``; for u, of shape (n_samples, width), see `Master`."""

    u: NDArray[Any]
    r: float


class ColumnReader(Protocol):
    """Reads columns as codes, in this process or on workers."""

    @property
    def bytes_read(self) -> int:
        """Decoded bytes read from the shards so far."""

    def edges_of(self, feature: int) -> NDArray[np.float64]:
        """Return the edges of the bins of a feature that was read."""


class OnColumns:
    """Forwards to what reads its columns."""

    def __init__(self, columns: ColumnReader) -> None:
        self._columns = columns

    @property
    def bytes_read(self) -> int:
        """Decoded bytes read from the shards so far."""
        return self._columns.bytes_read

    def edges_of(self, feature: int) -> NDArray[np.float64]:
        """Return the edges of the bins of a feature that was read."""
        return self._columns.edges_of(feature)


class Oracle(ColumnReader, Protocol):
    """Finds the learners whose constraints the dual weights violate most (Lin et al. 2012, equation 4).

    A search takes `n_passes` over the data. If it is `exact`, no learner of the family has a larger score
    than the one reported.
    """

    n_passes: int
    exact: bool

    def price(self, duals: Duals, n_best: int, columns: NDArray[np.bool_] | None = None) -> Candidates:
        """Return the `n_best` best learners of each class that use only some of the columns; None for all."""

    def answers(self, learners: Learners) -> list[NDArray[Any]]:
        """Return the answers of learners from earlier passes."""
