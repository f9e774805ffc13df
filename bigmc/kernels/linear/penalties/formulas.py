# mypy: ignore-errors
"""Penalties of a row of weights: dual norms, proximal operators, optimality.

Codes stand for penalties:

============== ==================================================================
`SPARSE_GROUP` ``ratio ||W_j||_1 + (1 - ratio) ||W_j||_2``: l1/l2 and l1 at its ends
`LARGEST`      ``||W_j||_inf``
============== ==================================================================

The section named is of Blondel, Seki, Uehara, "Block coordinate descent algorithms for large-scale sparse
multiclass classification", Machine Learning 93 (2013).
"""

from __future__ import annotations

import numpy as np

from bigmc.kernels.decorators import inner_kernel, kernel

SPARSE_GROUP = 0
LARGEST = 1

#: Iterations of the one-dimensional searches, which converge quadratically, and where they stop.
_ROOT_STEPS = 60
_ROOT_TOLERANCE = 1e-13
#: Weights this close to the largest count as equal to it in the subgradient of ``||.||_inf``.
_TIE = 1e-9


@inner_kernel
def penalty_change(penalty, row, new):
    """Return the penalty of `new` less that of `row`, before the factor alpha.

    Near the optimum the change is tiny beside the penalty: no difference of two sums is taken.
    """
    code, ratio = penalty
    total = squares = change = 0.0
    old_squares = largest = old_largest = 0.0
    for r in range(new.shape[0]):
        total += abs(new[r]) - abs(row[r])
        change += (new[r] - row[r]) * (new[r] + row[r])
        squares += new[r] * new[r]
        old_squares += row[r] * row[r]
        largest = max(largest, abs(new[r]))
        old_largest = max(old_largest, abs(row[r]))
    if code == LARGEST:
        return largest - old_largest
    length = np.sqrt(squares) + np.sqrt(old_squares)
    return ratio * total + ((1.0 - ratio) * change / length if length > 0.0 else 0.0)


@kernel
def dual_norm(penalty, gradient):
    """Return the smallest ``nu`` with ``gradient`` in ``nu`` times the subdifferential at 0.

    For sparse groups it solves ``||soft(g, ratio nu)||_2 = (1 - ratio) nu``; the difference of both sides
    is convex and falls, so that Newton's method from 0 climbs to the root.
    """
    code, ratio = penalty
    total = squares = largest = 0.0
    for r in range(gradient.shape[0]):
        total += abs(gradient[r])
        squares += gradient[r] ** 2
        largest = max(largest, abs(gradient[r]))
    if code == LARGEST or not np.isfinite(total):
        return total
    if ratio == 0.0:
        return np.sqrt(squares)
    if ratio == 1.0 or largest == 0.0:
        return largest
    nu = 0.0
    for _ in range(_ROOT_STEPS):
        total = squares = 0.0
        for r in range(gradient.shape[0]):
            left = max(abs(gradient[r]) - ratio * nu, 0.0)
            total += left
            squares += left * left
        length = np.sqrt(squares)
        excess = length - (1.0 - ratio) * nu
        if excess <= _ROOT_TOLERANCE * nu:
            break
        nu += excess / (ratio * total / length + 1.0 - ratio)
    return nu


@kernel
def prox(penalty, alpha, linear, curve, new):
    """Fill `new` with the minimiser u of ``sum(curve u² / 2 - linear u) + alpha * penalty(u)``.

    Sparse groups: the soft threshold of `linear`, then ``u = linear / (curve + nu)`` with ``nu ||u|| =
    (1 - ratio) alpha``, found by Newton's method on ``1 / ||u(nu)||``, kept between bounds. Largest
    weight: ``|u| = min(|linear| / curve, theta)`` with ``sum max(|linear| - curve theta, 0) = alpha``,
    convex and falling in theta, so that Newton's method from 0 ends after finitely many steps. With equal
    curves these are the operators of section 4.7.

    Parameters
    ----------
    penalty : Norm
    alpha : float
    linear, curve, new : float64 arrays of shape (n_classes,)
        `curve` is positive.
    """
    code, ratio = penalty
    n_classes = linear.shape[0]
    if alpha == 0.0:
        for r in range(n_classes):
            new[r] = linear[r] / curve[r]
        return
    if code == LARGEST:
        theta = -1.0
        coming = 0.0
        while coming > theta:
            theta = coming
            above = -alpha
            derivative = 0.0
            for r in range(n_classes):
                if abs(linear[r]) > curve[r] * theta:
                    above += abs(linear[r])
                    derivative += curve[r]
            coming = above / derivative if derivative > 0.0 else theta
        for r in range(n_classes):
            size = min(abs(linear[r]) / curve[r], theta)
            new[r] = size if linear[r] > 0.0 else -size
        return
    sparse = ratio * alpha
    group = (1.0 - ratio) * alpha
    norm = largest = 0.0
    for r in range(n_classes):
        new[r] = max(abs(linear[r]) - sparse, 0.0)
        norm += new[r] * new[r]
        largest = max(largest, curve[r])
    norm = np.sqrt(norm)
    if norm <= group:
        new[:] = 0.0
        return
    nu = 0.0
    if group > 0.0:
        low = 0.0
        high = group * largest / (norm - group)
        nu = 0.5 * high
        for _ in range(_ROOT_STEPS):
            length = derivative = 0.0
            for r in range(n_classes):
                size = new[r] / (curve[r] + nu)
                length += size * size
                derivative += size * size / (curve[r] + nu)
            length = np.sqrt(length)
            if abs(nu * length - group) <= _ROOT_TOLERANCE * group:
                break
            if nu * length > group:
                high = nu
            else:
                low = nu
            nu -= (1.0 / length - nu / group) / (derivative / length**3 - 1.0 / group)
            if not low < nu < high:
                nu = 0.5 * (low + high)
    for r in range(n_classes):
        size = new[r] / (curve[r] + nu)
        new[r] = size if linear[r] > 0.0 else -size


@inner_kernel
def excess_norm(penalty, alpha, gradient, ones, work):
    """Return the distance of a gradient from alpha times the subdifferential at 0; see `violation`.

    It is the length of what the proximal operator with curves of 1 leaves of the gradient.
    """
    code, ratio = penalty
    total = 0.0
    if code == LARGEST:
        prox(penalty, alpha, gradient, ones, work)
        for r in range(gradient.shape[0]):
            total += work[r] * work[r]
        return np.sqrt(total)
    for r in range(gradient.shape[0]):
        left = max(abs(gradient[r]) - ratio * alpha, 0.0)
        total += left * left
    return max(np.sqrt(total) - (1.0 - ratio) * alpha, 0.0)


@kernel
def violation(penalty, alpha, ridge, row, gradient, ones, work):
    """Return the norm of the smallest subgradient of the objective by one row of weights.

    Parameters
    ----------
    penalty : Norm
    alpha, ridge : float
    row : float64 array of shape (at least n_classes,)
    gradient : float64 array of shape (n_classes,)
        Of the losses.
    ones, work : float64 arrays of shape (n_classes,)
        Ones, and scratch for the computation.
    """
    code, ratio = penalty
    n_classes = gradient.shape[0]
    largest = 0.0
    for r in range(n_classes):
        largest = max(largest, abs(row[r]))
    if largest == 0.0:
        return excess_norm(penalty, alpha, gradient, ones, work)
    total = 0.0
    if code == LARGEST:
        # -G of the largest weights, signs taken off, less its projection on the simplex of size alpha
        tied = 0
        for r in range(n_classes):
            derivative = gradient[r] + ridge * row[r]
            if abs(row[r]) >= (1.0 - _TIE) * largest:
                work[tied] = -derivative if row[r] > 0.0 else derivative
                tied += 1
            else:
                total += derivative * derivative
        theta = -np.inf
        for r in range(tied):
            theta = max(theta, work[r])
        theta -= alpha  # the root lies above: the largest alone would give at least alpha there
        for _ in range(_ROOT_STEPS):
            above = -alpha
            count = 0
            for r in range(tied):
                if work[r] > theta:
                    above += work[r]
                    count += 1
            coming = above / count if count else theta
            if not coming > theta:
                break
            theta = coming
        for r in range(tied):
            total += min(work[r], theta) ** 2
        return np.sqrt(total)
    squares = 0.0
    for r in range(n_classes):
        squares += (row[r] / largest) ** 2  # without a penalty weights can be so small that squares vanish
    length = largest * np.sqrt(squares)
    for r in range(n_classes):
        if row[r] != 0.0:
            derivative = gradient[r] + ridge * row[r] + (1.0 - ratio) * alpha * row[r] / length
            derivative += ratio * alpha if row[r] > 0.0 else -ratio * alpha
        else:
            derivative = max(abs(gradient[r]) - ratio * alpha, 0.0)
        total += derivative * derivative
    return np.sqrt(total)
