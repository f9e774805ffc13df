"""The interface of the search for learners, the same for all families, in this process or on a cluster."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bigmc.solvers.boosting.learners import Learners


class Candidates(NamedTuple):
    """Candidates from one pass over the data: learners whose constraints may be violated.

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

    def shared(self, n_classes: int, n_best: int) -> Candidates:
        """Return the candidates with the largest scores for any class, so many, as those of every class.

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
    """Dual weights ``λ = r u``.

    Attributes
    ----------
    u : array of shape (n_samples, width)
        See `bigmc.solvers.boosting.restricted_master.Master`.
    r : float
        ``C / p``.
    """

    u: NDArray[Any]
    r: float


class Oracle(Protocol):
    """Finds the learners whose constraints the dual weights violate most (Lin et al. 2012, equation 4).

    Attributes
    ----------
    n_passes : int
        Passes over the data that one search takes.
    exact : bool
        No learner of the family has a larger score than the one reported.
    """

    n_passes: int
    exact: bool

    @property
    def bytes_read(self) -> int:
        """Decoded bytes read from the shards so far."""
        ...

    def price(self, duals: Duals, n_best: int, columns: NDArray[np.bool_] | None = None) -> Candidates:
        """Return so many of the best learners of each class, which ask some of the columns; None for all."""
        ...

    def answers(self, learners: Learners) -> list[NDArray[Any]]:
        """Return the answers of learners from earlier passes."""
        ...

    def edges_of(self, feature: int) -> NDArray[np.float64]:
        """Return the edges of the bins of a feature that a learner asks."""
        ...
