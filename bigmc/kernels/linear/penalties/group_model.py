# mypy: ignore-errors
"""The minimum of a quadratic model of one row of weights with the norm of the row as its penalty."""

from __future__ import annotations

import numpy as np
from numba import njit

from bigmc.kernels.copies import copy_to
from bigmc.kernels.decorators import inner_kernel

#: Sums of products of finite numbers may be reordered so that they vectorise.
_REORDER = {"reassoc", "contract"}
_MODEL_STEPS = 40


@njit(cache=True, nogil=True, fastmath=_REORDER)
def _solve_shifted(hessian, shift, factor, right):
    """Overwrite `right` by ``(hessian + shift I)^-1 right``; `factor` gets the Cholesky factor."""
    size = hessian.shape[0]
    for r in range(size):
        for c in range(r + 1):
            total = hessian[r, c] + (shift if r == c else 0.0)
            for k in range(c):
                total -= factor[r, k] * factor[c, k]
            factor[r, c] = np.sqrt(max(total, 1e-300)) if r == c else total / factor[c, c]
    _solve_factored(factor, right)


@njit(cache=True, nogil=True, fastmath=_REORDER)
def _solve_factored(factor, right):
    size = factor.shape[0]
    for r in range(size):
        for k in range(r):
            right[r] -= factor[r, k] * right[k]
        right[r] /= factor[r, r]
    for r in range(size - 1, -1, -1):
        right[r] /= factor[r, r]
        for k in range(r):
            right[k] -= factor[r, k] * right[r]


@inner_kernel
def minimise_group_model(gradient, hessian, row, alpha, largest, factor, new):
    """Fill `new` with the minimiser u of ``g'(u - w) + (u - w)'H(u - w) / 2 + alpha ||u||``.

    A ridge term is part of gradient and Hessian.

    With ``b = Hw - g`` it is 0 if ``||b|| <= alpha``, else ``(H + nu I) u = b`` with ``nu = alpha / ||u||``;
    Newton's method on ``1 / ||u(nu)|| = nu / alpha``, kept between bounds, finds nu.
    """
    size = hessian.shape[0]
    right = np.empty(size, np.float64)
    again = np.empty(size, np.float64)
    norm = length = 0.0
    for r in range(size):
        right[r] = -gradient[r]
        for k in range(size):
            right[r] += hessian[r, k] * row[k]
        norm += right[r] ** 2
        length += row[r] ** 2
    norm = np.sqrt(norm)
    new[:] = 0.0
    if norm <= alpha:
        return
    if alpha == 0.0:
        copy_to(right, new)
        _solve_shifted(hessian, 0.0, factor, new[:size])
        return
    low = 0.0
    high = 2.0 * alpha * largest / (norm - alpha)
    nu = alpha / np.sqrt(length) if length > 0.0 else 0.5 * high
    for _ in range(_MODEL_STEPS):
        if not low < nu < high:
            nu = 0.5 * (low + high)
        copy_to(right, new)
        _solve_shifted(hessian, nu, factor, new[:size])
        copy_to(new[:size], again)
        _solve_factored(factor, again)
        length = derivative = 0.0
        for r in range(size):
            length += new[r] ** 2
            derivative += new[r] * again[r]
        length = np.sqrt(length)
        if nu * length > alpha:
            high = nu
        else:
            low = nu
        if abs(nu * length - alpha) <= 1e-10 * alpha:
            return
        nu -= (1.0 / length - nu / alpha) / (derivative / length**3 - 1.0 / alpha)
