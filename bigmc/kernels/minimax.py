"""The minimax risk classifier's kernels: the best label subset of a sample, and the step of the dual.

Both rest on one number. The label subset of a sample with scores ``v`` that violates most has the value

    max over C of (Σ_{y in C} v_y − 1) / |C|  =  the θ with  Σ_y max(v_y − θ, 0) = 1,

eq. (16) of Bondugula, Mazuelas and Pérez, "Efficient large-scale learning of minimax risk classifiers":
the scores above θ are the subset, a prefix of the scores in falling order, given by one sort (Algorithm 2).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bigmc.kernels.copies import copy_to
from bigmc.kernels.decorators import inner_kernel, kernel

#: Up to this many classes insertion sort is faster than the general one.
_FEW = 24


@inner_kernel
def _sort(values, ordered):
    """Write the values into `ordered` in rising order."""
    n = values.shape[0]
    if n > _FEW:
        copy_to(values, ordered)
        ordered.sort()
        return
    for k in range(n):
        value = values[k]
        at = k
        while at > 0 and ordered[at - 1] > value:
            ordered[at] = ordered[at - 1]
            at -= 1
        ordered[at] = value


@inner_kernel
def _sort_top(values, total, ordered):
    """Write the values at most `total` below the largest into `ordered` in rising order; return them.

    They are all that `_threshold` looks at.
    """
    least = values[0]
    for k in range(1, values.shape[0]):
        least = max(least, values[k])
    least -= total
    n = 0
    for k in range(values.shape[0]):
        value = values[k]
        if value >= least:
            at = n
            if n < _FEW:
                while at > 0 and ordered[at - 1] > value:
                    ordered[at] = ordered[at - 1]
                    at -= 1
            ordered[at] = value
            n += 1
    if n == 0:  # not a number
        ordered[0] = values[0]
        n = 1
    top = ordered[:n]
    if n > _FEW:
        top.sort()
    return top


@inner_kernel
def _threshold(ordered, total):
    """Return θ with ``Σ max(v − θ, 0) = total`` for values in rising order."""
    n = ordered.shape[0]
    theta = ordered[n - 1] - total
    for size in range(2, n + 1):
        value = ordered[n - size]
        if value <= theta:
            break
        theta += (value - theta) / size
    return theta


@kernel
def subset_values(
    scores: NDArray[np.float64],
    scales: NDArray[np.float64],
    values: NDArray[np.float64],
    largest: NDArray[np.float64],
) -> None:
    """Find the value of the best label subset of every sample, eq. (16), in O(K log K).

    `values`, of shape (n_samples,), is overwritten with ``max over C of (Σ_{y in C} scores[i, y] − 1) /
    |C|``; `largest`, of shape (n_scales,), with the largest value over all samples, φ, of the scores
    times each of the positive `scales`: points on the ray through μ.
    """
    ordered = np.empty(scores.shape[1])
    largest[:] = -np.inf
    for i in range(scores.shape[0]):
        _sort(scores[i], ordered)
        values[i] = _threshold(ordered, 1.0)
        for k in range(scales.shape[0]):
            # The subset of scaled scores is that of the scores themselves with another total.
            largest[k] = max(largest[k], scales[k] * _threshold(ordered, 1.0 / scales[k]))


@kernel
def subset_masks(scores: NDArray[np.float64], masks: NDArray[np.uint8]) -> None:
    """Write the best label subset of every sample: class ``c`` is bit ``c % 8`` of byte ``c // 8``.

    `masks` has the shape (n_samples, ceil(n_classes / 8)), so any number of classes fits.
    """
    ordered = np.empty(scores.shape[1])
    masks[:] = 0
    for i in range(scores.shape[0]):
        _sort(scores[i], ordered)
        theta = _threshold(ordered, 1.0)
        for c in range(scores.shape[1]):
            if scores[i, c] > theta:
                masks[i, c >> 3] |= np.uint8(1 << (c & 7))


@kernel
def primal_step(
    coef: NDArray[np.float64],
    moments: NDArray[np.float64],
    tau: NDArray[np.float64],
    lam: NDArray[np.float64],
    eta: float,
    stepped: NDArray[np.float64],
    step: NDArray[np.float64],
) -> None:
    """Make the proximal step of ``λᵀ|μ|`` from μ, whose other slopes are the moments minus τ.

    Arrays have one shape; `stepped` is overwritten with the new μ and `step` with its difference to `coef`.
    """
    for i in range(coef.shape[0]):
        for c in range(coef.shape[1]):
            value = coef[i, c] - eta * (moments[i, c] - tau[i, c])
            threshold = eta * lam[i, c]
            if value > 0.0:
                value = max(value - threshold, 0.0)
            elif value < 0.0:
                value = -max(-value - threshold, 0.0)
            stepped[i, c] = value
            step[i, c] = value - coef[i, c]


@kernel
def add_multiple(values: NDArray[np.float64], factor: float, total: NDArray[np.float64]) -> None:
    """Add ``factor values`` to `total`, of the same shape, without an array between."""
    for i in range(values.shape[0]):
        for c in range(values.shape[1]):
            total[i, c] += factor * values[i, c]


@kernel
def project_dual(points: NDArray[np.float64], sigma: float, start: float, caps: NDArray[np.float64]) -> float:
    """Make the proximal step of ``sigma Σ_x max_y p_xy`` over the distributions ``p >= 0, Σ p = 1``.

    With the multiplier t of the total mass every row is ``p = max(min(q, θ) − t, 0)`` for its own cap θ,
    ``Σ_y max(q_y − θ, 0) = sigma``; its mass is ``max(Σ_y max(q_y − t, 0) − sigma, 0)``. The total mass
    is convex and falls with t: Newton's method from the left finds t, which is returned, beginning at
    `start`, such as the t of the step before. `points`, of shape (n_samples, n_classes), is q,
    overwritten with p; `caps`, of shape (n_samples,), is overwritten with θ.
    """
    n_samples, n_classes = points.shape
    ordered = np.empty(n_classes)
    largest = -np.inf
    for i in range(n_samples):
        caps[i] = _threshold(_sort_top(points[i], sigma, ordered), sigma)
        largest = max(largest, caps[i])
    t = start if start < largest else largest - 1.0
    for _ in range(100):
        mass, slope = 0.0, 0
        for i in range(n_samples):
            if caps[i] > t:
                row = -sigma
                for c in range(n_classes):
                    above = points[i, c] - t
                    if above > 0.0:
                        row += above
                        slope += 1
                mass += row
        if slope == 0:  # a step from the right went beyond all mass
            t = largest - 1.0
            continue
        step = (mass - 1.0) / slope
        t += step
        if abs(mass - 1.0) <= 1e-12 or abs(step) <= 1e-16 * abs(t):
            break
    total = 0.0
    for i in range(n_samples):
        for c in range(n_classes):
            value = max(min(points[i, c], caps[i]) - t, 0.0)
            points[i, c] = value
            total += value
    for i in range(n_samples):
        if caps[i] > t:
            for c in range(n_classes):
                points[i, c] /= total
    return t
