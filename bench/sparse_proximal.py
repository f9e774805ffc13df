"""The paper's comparison solvers, written plainly: FISTA, SpaRSA and FOBOS.

They minimise F(W) = (1/n) Σ_i Σ_{r≠y_i} max(1 - (s_{y_i} - s_r), 0)² + alpha Σ_j ‖W_j‖₂ with s = Wᵀx_i
(Blondel, Seki, Uehara 2013, eq. 2). Each is a generator of (weights, passes) that never ends; a pass is one
product with X or its transpose, or all samples seen once. Columns of X without entries should be left out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp
from numba import njit
from numpy.typing import NDArray

Weights = NDArray[np.float64]
#: Steps FOBOS is tried with, as in the paper.
_FIRST_STEPS = 10.0 ** np.arange(-3, 4)


class Loss:
    """The smooth part of F as a function of the scores, counting the products with X."""

    def __init__(self, X: sp.csr_matrix, y: NDArray[np.int64], n_classes: int) -> None:
        self._X, self._XT = X, X.T.tocsr()
        self._y, self._rows = y, np.arange(len(y))
        self.n_classes, self.shape = n_classes, (X.shape[1], n_classes)
        self.passes = 0

    def scores(self, W: Weights) -> NDArray[np.float64]:
        self.passes += 1
        return self._X @ W

    def value(self, S: NDArray[np.float64]) -> float:
        margins = self._margins(S)
        return float(np.vdot(margins, margins)) / len(S)

    def value_and_gradient(self, S: NDArray[np.float64]) -> tuple[float, Weights]:
        self.passes += 1
        margins = self._margins(S)
        value = float(np.vdot(margins, margins)) / len(S)
        margins *= 2 / len(S)
        margins[self._rows, self._y] = -margins.sum(axis=1)
        return value, self._XT @ margins

    def lipschitz(self) -> float:
        """Return a bound on the curvature, 2 m ‖X‖₂² / n: the Laplacian of a star of m classes is below m.

        The paper's own constant has Σ_i ‖x_i‖² for ‖X‖₂² and 2 (m - 1) for m, which makes steps far shorter.
        """
        v = np.random.default_rng(0).random(self.shape[0])
        for _ in range(100):
            v = self._XT @ (self._X @ (v / np.linalg.norm(v)))
        # 1 % more, for what the power method has not found yet
        return 1.01 * 2 * self.n_classes * float(np.linalg.norm(v)) / len(self._y)

    def _margins(self, S: NDArray[np.float64]) -> NDArray[np.float64]:
        margins = S - (S[self._rows, self._y] - 1)[:, None]
        margins[self._rows, self._y] = 0
        return np.maximum(margins, 0, out=margins)


def shrink(V: Weights, amount: float) -> Weights:
    """Return the proximal operator of ``amount`` Σ_j ‖W_j‖₂ at V."""
    norms = np.sqrt(np.einsum("jr,jr->j", V, V))
    return V * np.maximum(1 - amount / np.maximum(norms, 1e-300), 0)[:, None]


def penalty(W: Weights) -> float:
    return float(np.sqrt(np.einsum("jr,jr->j", W, W)).sum())


def fista(loss: Loss, alpha: float, line_search: bool) -> Iterator[tuple[Weights, float]]:
    """Accelerated proximal gradient (Beck and Teboulle 2009), with backtracking or a constant step."""
    W = V = np.zeros(loss.shape)
    scores = scores_V = np.zeros_like(loss.scores(W))
    curvature = loss.lipschitz() / (1024 if line_search else 1)
    theta = 1.0
    while True:
        value, gradient = loss.value_and_gradient(scores_V)
        while True:
            new = shrink(V - gradient / curvature, alpha / curvature)
            scores_new = loss.scores(new)
            if not line_search:
                break
            step = new - V
            model = value + np.vdot(gradient, step) + 0.5 * curvature * np.vdot(step, step)
            if loss.value(scores_new) <= model * (1 + 1e-12):
                break
            curvature *= 2
        theta_new = (1 + np.sqrt(1 + 4 * theta * theta)) / 2
        momentum = (theta - 1) / theta_new
        V, scores_V = new + momentum * (new - W), scores_new + momentum * (scores_new - scores)
        W, scores, theta = new, scores_new, theta_new
        yield W, loss.passes


def sparsa(loss: Loss, alpha: float) -> Iterator[tuple[Weights, float]]:
    """Proximal gradient with Barzilai-Borwein curvature (Wright, Nowak, Figueiredo 2009).

    A step is taken when F falls below the largest of its last six values by 0.005 ``curvature`` ‖step‖²; else
    the curvature is doubled.
    """
    W = np.zeros(loss.shape)
    value, gradient = loss.value_and_gradient(loss.scores(W))
    recent = deque([value], maxlen=6)
    curvature = 1.0
    while True:
        while True:
            new = shrink(W - gradient / curvature, alpha / curvature)
            scores, step = loss.scores(new), new - W
            moved = np.vdot(step, step)
            objective = loss.value(scores) + alpha * penalty(new)
            if objective <= max(recent) - 0.005 * curvature * moved or moved == 0:
                break
            curvature *= 2
        recent.append(objective)
        old = gradient
        _, gradient = loss.value_and_gradient(scores)
        W = new
        if moved > 0:
            curvature = min(max(float(np.vdot(step, gradient - old) / moved), 1e-30), 1e30)
        yield W, loss.passes


def fobos(
    X: sp.csr_matrix, y: NDArray[np.int64], n_classes: int, alpha: float, first_step: float, seed: int
) -> Iterator[tuple[Weights, float]]:
    """Stochastic gradient steps of one sample, each followed by the proximal operator (Duchi, Singer 2009).

    The step is ``first_step / √t``. A row of the weights is shrunk when a sample next needs it: shrinking by
    a and then by b is shrinking by a + b.
    """
    generator = np.random.default_rng(seed)
    W, shrunk = np.zeros((X.shape[1], n_classes)), np.zeros(X.shape[1])
    total, passes = 0.0, 0
    while True:
        order = generator.permutation(len(y))
        arrays = X.indptr, X.indices, X.data, y, order
        total = _fobos_pass(*arrays, alpha, first_step, passes * len(y), W, shrunk, total)
        _shrink_rows(W, shrunk, total)
        passes += 1
        yield W, passes


def best_first_step(X: sp.csr_matrix, y: NDArray[np.int64], n_classes: int, alpha: float, seed: int) -> float:
    """Return the step of 10⁻³ … 10³ that fits a fifth of the samples best after one pass over the others."""
    held, trained = np.split(np.random.default_rng(seed).permutation(len(y)), [len(y) // 5])
    losses = []
    for first_step in _FIRST_STEPS:
        W, _ = next(fobos(X[trained], y[trained], n_classes, alpha, first_step, seed))
        loss = Loss(X[held], y[held], n_classes)
        losses.append(loss.value(loss.scores(W)) if np.isfinite(W).all() else np.inf)
    return float(_FIRST_STEPS[int(np.argmin(losses))])


@njit(cache=True)
def _shrink_row(row, amount):
    norm = np.sqrt((row * row).sum())
    row *= max(1 - amount / norm, 0.0) if norm > 0 else 0.0


@njit(cache=True)
def _shrink_rows(W, shrunk, total):
    for j in range(len(W)):
        _shrink_row(W[j], total - shrunk[j])
        shrunk[j] = total


@njit(cache=True)
def _fobos_pass(indptr, indices, data, y, order, alpha, first_step, t, W, shrunk, total):
    scores = np.empty(W.shape[1])
    for i in order:
        entries = range(indptr[i], indptr[i + 1])
        scores[:] = 0
        for e in entries:
            j = indices[e]
            _shrink_row(W[j], total - shrunk[j])
            shrunk[j] = total
            scores += data[e] * W[j]
        margins = np.maximum(scores - (scores[y[i]] - 1), 0.0)
        margins[y[i]] = 0
        margins[y[i]] = -margins.sum()
        t += 1
        step = first_step / np.sqrt(t)
        for e in entries:
            W[indices[e]] -= 2 * step * data[e] * margins
        total += step * alpha
    return total
