"""The restricted master problem: the weights of the known learners, by fast coordinate descent.

``P(w) = ||w||_1 + r sum_i v_i sum_y exp(-gamma_iy)``, ``w >= 0``, ``r = C / (sum_i v_i (K - 1))`` (Lin et
al. 2012, equation 7, with a weight v for every sample). The state is the matrix u of the dual weights;
it is rebuilt from the weights before every pass, so nothing drifts and nothing else needs saving.

With the log loss, ``P(w) = ||w||_1 + r sum_i v_i log(1 + sum_y exp(-gamma_iy))``. A descent keeps the factor
``1 / (1 + sum_y exp(-gamma_iy))`` of every row that it had before: as the logarithm is concave, the sum of
the exponentials with these factors bounds the loss from above and touches it there, so that P falls
(majorisation and minimisation). The loss with label noise is a concave function of that one, and the same
holds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import Engine
from bigmc.kernels.boosting.arguments import Visits, Weighted
from bigmc.kernels.boosting.cuts import LANES
from bigmc.kernels.boosting.descent import WORD
from bigmc.kernels.boosting.duals import add_ray, fold, gather, turn, weigh
from bigmc.solvers.boosting.options import EXPONENTIAL, LOG_LOSS
from bigmc.solvers.boosting.predictions import Responses, Signed

#: Maximum rows whose scores are computed together, and maximum scores if there are many classes.
_TILE_ROWS, _TILE_SCORES = 8192, 1 << 20
#: Rounds of the descent between two joint steps; their maximum length and the number of lengths tried.
_JOINT_EVERY = 5
_LONGEST = 1e3
_RAY_POINTS = 12


def tile_rows(n_classes: int) -> int:
    """Return the rows whose scores are computed together: whole words, the same on any machine."""
    return max(WORD, min(_TILE_ROWS, _TILE_SCORES // n_classes // WORD * WORD))


@dataclass
class ClassLearners:
    """Learners of one class: the slots of their answers, signs (-1 for the opposite answer), and weights.

    The descent visits those in `working`; those in `pooled` wait until they are the best of the pool.
    `stored` is the place of each in the table of a run's stages, -1 if it has none yet.
    """

    slots: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    signs: NDArray[np.int8] = field(default_factory=lambda: np.empty(0, np.int8))
    weights: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    working: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))
    pooled: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))
    stored: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    def add(self, slots: Any, signs: Any, weights: Any = 0.0, stored: Any = -1) -> None:
        """Append learners; those with weight go to the working set, the others to the pool."""
        slots = np.asarray(slots, np.int64)
        weights = np.broadcast_to(np.asarray(weights, np.float64), slots.shape)
        self.slots = np.concatenate([self.slots, slots])
        self.signs = np.concatenate([self.signs, np.asarray(signs, np.int8)])
        self.weights = np.concatenate([self.weights, weights])
        self.working = np.concatenate([self.working, weights > 0])
        self.pooled = np.concatenate([self.pooled, weights == 0])
        self.stored = np.concatenate([self.stored, np.broadcast_to(np.asarray(stored), slots.shape)])

    def pool(self, slots: NDArray[np.int64], signs: NDArray[np.int8]) -> None:
        """Move learners to the pool, and append those that are new."""
        _, first = np.unique(_codes(slots, signs), return_index=True)
        slots, signs = slots[np.sort(first)], signs[np.sort(first)]
        codes, wanted = _codes(self.slots, self.signs), _codes(slots, signs)
        order = np.argsort(codes)
        at = np.searchsorted(codes, wanted, sorter=order)
        known = at < len(codes)
        known[known] = codes[order[at[known]]] == wanted[known]
        self.pooled[order[at[known]]] = True
        self.add(slots[~known], signs[~known])

    def signed(self, places: NDArray[np.int64]) -> Signed:
        """Return some of the learners, without their weights."""
        return Signed(self.slots[places], self.signs[places])

    def keep(self, kept: NDArray[np.bool_]) -> None:
        """Drop the other learners."""
        self.slots, self.signs = self.slots[kept], self.signs[kept]
        self.weights, self.working = self.weights[kept], self.working[kept]
        self.pooled, self.stored = self.pooled[kept], self.stored[kept]


def _codes(slots: NDArray[np.int64], signs: NDArray[np.int8]) -> NDArray[np.int64]:
    """Return a number for each learner that no other one has."""
    return 2 * slots + (signs > 0)


@dataclass(frozen=True)
class Point:
    """The objective P at the current weights, and sums for its bounds.

    `mass` is the loss times r, and `load` is ``sum lambda gamma`` with the dual weights lambda, which are
    ``r v exp(-gamma)`` for the exponential loss.
    `held_loss` is the mean of ``log(1 + sum_y exp(-gamma))``, and `held_error` the share of wrong ones,
    of the samples held out; NaN without any.
    """

    objective: float
    mass: float
    load: float
    held_loss: float
    held_error: float
    log_loss: bool = False
    label_noise: float = 0.0

    def lower_bound(self, sigma: float) -> float:
        """Return a lower bound of the optimum over all learners whose scores are at most `sigma`.

        Any ``s lambda`` with ``s sigma <= 1`` is feasible in the dual; the best s is used. With the log
        loss, the value of the dual is concave in s, 0 at 0, and ``mass + load`` at 1. With label noise, P is
        not convex, and the bound minus infinity.
        """
        if self.label_noise:
            return -np.inf
        if self.log_loss:
            return max(0.0, self.mass + self.load) / max(1.0, sigma)
        if self.mass <= 0:
            return 0.0
        log_s = self.load / self.mass
        if sigma > 0:
            log_s = min(-np.log(sigma), log_s)
        s = np.exp(log_s)
        return float(s * (self.mass + self.load) - s * self.mass * log_s)


class Master:
    """Weights, their dual matrix, and the descent.

    Samples held out have a negative `sample_weight`; `dtype` is that of u and t. The seed determines the
    order of visits, and the learning rate is the part of the way to its best value that a visit moves a
    weight. `label_noise` is the share of labels that are drawn at random.

    Row ``i`` of `u`, of shape (n_samples, width), is ``-v_i mu_iy``, and ``+v_i sum_y mu_iy`` at the sample's
    class; the classes are padded. `n_sweeps` counts sweeps over one class's learners so far; with the seed it
    determines the orders of the next descent.
    """

    def __init__(
        self,
        responses: Responses,
        n_classes: int,
        sample_weight: NDArray[np.float64],
        C: float,
        dtype: np.dtype[Any],
        seed: int,
        learning_rate: float = 1.0,
        loss: str = EXPONENTIAL,
        label_noise: float = 0.0,
    ) -> None:
        self.responses = responses
        self.labels = responses.labels
        self.n_classes = n_classes
        self.classes = [ClassLearners() for _ in range(n_classes)]
        self.r = C / (float(sample_weight[sample_weight > 0].sum()) * (n_classes - 1))
        self.n_sweeps = 0
        self._seed = seed
        self._rate = learning_rate
        self._is_log_loss = loss == LOG_LOSS
        self._label_noise = label_noise
        self._weight = sample_weight
        self.u = np.empty((len(self.labels), -(-n_classes // LANES) * LANES), dtype)
        self._t = np.zeros(responses.n_padded, dtype)
        self._before = np.empty(responses.n_padded, dtype)

    @property
    def norm(self) -> float:
        """``||w||_1``."""
        return float(sum(learners.weights.sum() for learners in self.classes))

    @property
    def n_learners(self) -> int:
        """Learners with weight."""
        return sum(int(np.count_nonzero(learners.weights)) for learners in self.classes)

    def weighted(self) -> Weighted:
        """Return the learners with weight, class after class."""
        classes = np.repeat(np.arange(self.n_classes), [len(x.slots) for x in self.classes])
        weights = np.concatenate([x.weights for x in self.classes])
        used = np.flatnonzero(weights)
        slots = np.concatenate([x.slots for x in self.classes])[used]
        signs = np.concatenate([x.signs for x in self.classes])[used]
        return Weighted(slots, signs, classes[used], weights[used])

    def _tiles(self) -> list[tuple[int, int]]:
        n, step = len(self.labels), tile_rows(self.n_classes)
        return [(first, min(first + step, n)) for first in range(0, n, step)]

    def _scores(self, learners: Weighted, tile: tuple[int, int]) -> NDArray[np.float64]:
        """Return the scores of the rows of a tile, class by class, with those of a whole last word."""
        first, stop = tile
        scores = np.zeros((self.n_classes, -(-(stop - first) // WORD) * WORD))
        self.responses.add_scores(learners, first, scores)
        return scores

    def rebuild(self, engine: Engine) -> Point:
        """Compute u from the weights, and the sums for the bounds, all in float64."""
        learners, loss_of = self.weighted(), (self._is_log_loss, self._label_noise)

        def work(tile: tuple[int, int]) -> tuple[float, float, float, int, int]:
            rows, scores = slice(*tile), self._scores(learners, tile)
            labels, weight, u = self.labels[rows], self._weight[rows], self.u[rows]
            sums: tuple[float, float, float, int, int] = weigh(*loss_of, scores, labels, weight, u)
            return sums

        total = np.zeros(5)
        for _, sums in engine.map(work, self._tiles()):
            total += sums
        loss, load, held_loss, wrong, held = total.tolist()
        mass = self.r * loss
        held_loss, wrong = (held_loss / held, wrong / held) if held else (np.nan, np.nan)
        return Point(self.norm + mass, mass, self.r * load, held_loss, wrong, *loss_of)

    def _joint_step(self, before: NDArray[np.float64], engine: Engine) -> None:
        """Continue in the direction in which all weights have moved since `before`, as long as it pays.

        Learners that nearly agree exchange weight in small single steps; along their common direction
        the way is short. Weights stay non-negative; u is rebuilt if any moved.
        """
        learners = self.weighted()
        classes, weights = learners.classes, learners.weights
        now = self._all_weights()
        direction = (now - before)[now > 0]
        moving, falling = learners._replace(weights=direction), direction < 0
        longest = float((weights[falling] / -direction[falling]).min(initial=_LONGEST))
        at = np.append(0.0, longest * 2.0 ** -np.arange(_RAY_POINTS))

        def work(tile: tuple[int, int]) -> NDArray[np.float64]:
            rows, scores = slice(*tile), self._scores(learners, tile)
            step = self._scores(moving, tile)
            sums = np.zeros(len(at))
            add_ray(scores, step, self.labels[rows], self._weight[rows], longest, sums)
            return sums

        losses = np.zeros(len(at))
        for _, sums in engine.map(work, self._tiles()):
            losses += sums
        values = at * direction.sum() + self.r * losses
        best = int(np.argmin(np.where(np.isnan(values), np.inf, values)))  # 0 times infinity: too far
        if best == 0:
            return
        for c, own in enumerate(self.classes):
            moved = np.maximum(weights[classes == c] + at[best] * direction[classes == c], 0.0)
            own.weights[own.weights > 0] = moved
        self.rebuild(engine)

    def largest_score(self) -> float:
        """Return the largest score of the learners with weight, plus the error that rounding of u may cause.

        With `Point.lower_bound` it bounds the optimum over these learners.
        """
        largest, rounding = 0.0, 0.5 * float(np.finfo(self.u.dtype).eps)
        for c, learners in enumerate(self.classes):
            used = np.flatnonzero(learners.weights)
            if len(used):
                gather(c, self.u, self.labels, self._t, self._before)
                scores = self.responses.scores(c, learners.signed(used), self.r, self._t)
                hidden = self.r * rounding * float(self._t.sum(dtype=np.float64))
                largest = max(largest, float(scores.max()) + hidden)
        return largest

    def _all_weights(self) -> NDArray[np.float64]:
        """Return the weights of all learners, class after class."""
        return np.concatenate([x.weights for x in self.classes])

    def improve(self, tolerance: float, max_rounds: int, max_sweeps: int, engine: Engine) -> None:
        """Add learners from the pool and descend, until neither violates optimality by more than `tolerance`.

        Every round moves, class by class, the pool's best learner to the working set (the sweep over
        new columns in order), then visits all working learners in random order. `max_sweeps` counts
        the sweeps of each class per round, including the one over the new learners (tau_max): 1 is
        the stage-wise variant. The engine is for the joint step that follows some rounds.
        """
        before = self._all_weights()
        generator = np.random.default_rng([self._seed, self.n_sweeps])
        # With two classes t is enough: u is rebuilt before the next pass, and by joint steps.
        in_t = self.n_classes == 2 and not self._steps_jointly(max_sweeps)
        if in_t:
            gather(0, self.u, self.labels, self._t, self._before)
        for number in range(1, max_rounds + 1):
            worst = 0.0
            for c, learners in enumerate(self.classes):
                if not len(learners.slots):
                    continue
                if not in_t:
                    gather(c, self.u, self.labels, self._t, self._before)
                new, violation = self._enter(c, learners, tolerance)
                worst = max(worst, violation, self._sweep(c, learners, new, 0.0))
                for _ in range(1, max_sweeps):
                    order = generator.permutation(np.flatnonzero(learners.working))
                    self.n_sweeps += 1
                    met = self._sweep(c, learners, order, tolerance)
                    worst = max(worst, met)
                    if met <= tolerance:
                        break
                if in_t:
                    turn(c, self._t, self._before, self.labels)
                else:
                    fold(c, self._t, self._before, self.labels, self.u)
            if worst <= tolerance:
                break
            if number % _JOINT_EVERY == 0 and self._steps_jointly(max_sweeps):
                self._joint_step(before, engine)
                before = self._all_weights()

    def _steps_jointly(self, max_sweeps: int) -> bool:
        """Return whether some rounds of the descent end with a joint step."""
        return max_sweeps > 1 and not self._is_log_loss

    def _enter(self, c: int, learners: ClassLearners, tolerance: float) -> tuple[NDArray[np.int64], float]:
        """Move the pool's best learner to the working set; return its position, if any, and violation."""
        pool = np.flatnonzero(learners.pooled)
        if not len(pool):
            return pool, 0.0
        scores = self.responses.scores(c, learners.signed(pool), self.r, self._t)
        best = int(np.argmax(scores))
        violation = float(scores[best]) - 1.0
        new = pool[best : best + 1] if violation > tolerance else pool[:0]
        learners.working[new], learners.pooled[new] = True, False
        return new, violation

    def _sweep(self, c: int, learners: ClassLearners, order: NDArray[np.int64], tolerance: float) -> float:
        if not len(order):
            return 0.0
        visits = Visits(order, tolerance, self._rate, self.r)
        own = Signed(learners.slots, learners.signs)
        return self.responses.sweep(c, own, visits, self._t, learners.weights)

    def prune(self) -> None:
        """Drop the learners without weight, and the answers that are not needed any more."""
        for learners in self.classes:
            learners.keep(learners.weights > 0)
            learners.working[:], learners.pooled[:] = True, False
        self.responses.keep(np.concatenate([learners.slots for learners in self.classes]))
