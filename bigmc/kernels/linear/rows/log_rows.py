# mypy: ignore-errors
"""Log loss by samples, where their derivatives are computed once and kept.

A sample's *residuals* are half the derivatives of its loss by its scores, so that ``2 / n`` is the factor of
all gradients, and its *shares* are the probabilities of its classes, of which the Hessian is made:
``diag(p_i) - p_i p_i'``, equation (12) of Blondel, Seki, Uehara, "Block coordinate descent algorithms for
large-scale sparse multiclass classification", Machine Learning 93 (2013). Those of pads are 0.

Two classes are one margin: arrays of residuals that have one column hold those of the second class, which are
minus those of the first, and their shares are the product of both probabilities.
"""

from __future__ import annotations

import numpy as np

from bigmc.kernels.copies import copy_to
from bigmc.kernels.decorators import inlined_kernel, kernel
from bigmc.kernels.linear.losses.interface import residuals as residuals_of
from bigmc.kernels.linear.losses.log import LogLoss
from bigmc.kernels.linear.losses.samples import pair_loss, pair_odds, sample_odds
from bigmc.kernels.linear.parallel.exponentials import lanes_dot, lanes_turn, lanes_variance
from bigmc.kernels.linear.parallel.simd import LANES, lanes_add

_EIGHT = np.uint64(LANES)


@kernel
def fill_residuals(scores, labels, residuals, shares):
    """Take half the derivatives of the losses of samples.

    Parameters
    ----------
    scores : array of shape (n_samples, width)
    labels : int32 array of shape (n_samples, 1)
    residuals : array of the shape of the scores, or with one column for two classes
        Filled; it may be the scores themselves.
    shares : array of the shape of the residuals, or of no rows
        Filled with the probabilities; where residuals have one column, with the product of both.
    """
    number = scores.dtype.type
    width = scores.shape[1]
    odds = np.empty(width, scores.dtype)
    for i in range(scores.shape[0]):
        c = labels[i, 0]
        if residuals.shape[1] == 1:
            mine, other, _ = pair_odds(scores, i, c)
            own_share, other_share = mine / (mine + other), other / (mine + other)
            residuals[i, 0] = 0.5 * other_share if c == 0 else -0.5 * other_share
            if shares.shape[0]:
                shares[i, 0] = own_share * other_share
            continue
        own, others, _ = sample_odds(scores, i, c, odds)
        part = number(1) / (own + others)
        half = number(0.5) * part
        for r in range(width):
            residuals[i, r] = odds[r] * half
        # what the others have is more precise than 1 less a probability near 1
        residuals[i, c] = -others * half
        if shares.shape[0]:
            for r in range(width):
                shares[i, r] = odds[r] * part
            shares[i, c] = own * part


@kernel
def total_loss(n_classes, scores, labels, weights):
    """Return the weighted sum of the losses of samples.

    Parameters
    ----------
    n_classes : int
    scores : array of shape (n_samples, width)
    labels : int32 array of shape (n_samples, 1)
    weights : float64 array of shape (n_samples,), or empty for ones
    """
    odds = np.empty(scores.shape[1], scores.dtype)
    weight = 1.0
    total = 0.0
    for i in range(scores.shape[0]):
        c = labels[i, 0]
        if weights.shape[0]:
            weight = weights[i]
        if n_classes == 2:
            total += weight * pair_loss(scores, i, c)
            continue
        own, others, top = sample_odds(scores, i, c, odds)
        # where the own class is likely, what the others have is more precise than the sum of all
        if own > others:
            total += weight * np.log1p(np.float64(others) / np.float64(own))
        else:
            sum_of_all = np.float64(own) + np.float64(others)
            total += weight * (np.log(sum_of_all) + np.float64(top) - np.float64(scores[i, c]))
    return total


@kernel
def balanced_residuals(scores, labels, factor, out):
    """Fill `out` with half the derivatives of samples whose dual variables are multiplied by factors.

    Parameters
    ----------
    scores : array of shape (n_samples, width)
    labels : int32 array of shape (n_samples, 1)
    factor : array of shape (n_classes, width)
        See `bigmc.objectives.balancing.balance_classes`.
    out : array of the shape of the scores, or with one column for two classes
    """
    n_classes = factor.shape[0]
    others = np.empty(scores.shape[1], scores.dtype)
    residual = np.empty(n_classes, scores.dtype)
    for i in range(scores.shape[0]):
        residuals_of(LogLoss(), scores, i, labels, factor, others, residual)
        if out.shape[1] == 1:
            out[i, 0] = residual[1]
            continue
        copy_to(residual, out[i])
        out[i, n_classes:] = 0


@kernel
def add_level(samples, shares, residual, variance, products):
    """Add up the derivatives of the model by an intercept.

    Parameters
    ----------
    samples : Samples
        Residuals instead of scores.
    shares : array of the shape of the residuals
    residual, variance : float64 arrays of shape (at least n_classes,)
        Added to: half the gradient, and the diagonal of the Hessian.
    products : float64 array of shape (n_classes, n_classes), or of no rows
        Added to: the sums of ``p p'``; of two classes kept as one margin those off the diagonal alone.
    """
    residuals, weights = samples.scores, samples.weights
    number = residuals.dtype.type
    width = np.uint64(residuals.shape[1])
    weight = number(1)
    for i in range(np.uint64(residuals.shape[0])):
        if weights.shape[0]:
            weight = number(weights[i])
        if width == 1:
            residual[0] -= weight * residuals[i, 0]
            residual[1] += weight * residuals[i, 0]
            _add_to_both(variance, products, weight * shares[i, 0])
            continue
        for q in range(np.uint64(0), width, _EIGHT):
            lanes_add(residual, q, weight, residuals, i * width + q)
            lanes_variance(shares, i * width + q, weight, variance, q)
        for r in range(products.shape[0]):
            part = np.float64(weight * shares[i, r])
            for q in range(products.shape[0]):
                products[r, q] += part * shares[i, q]


@inlined_kernel
def _add_to_both(variance, products, product):
    """Add the product of the probabilities of two classes to what an intercept's Hessian is made of."""
    for r in range(2):
        variance[r] += product
        if products.shape[0]:
            products[r, 1 - r] += product


@kernel
def shift(samples, shares, step):
    """Move the residuals by a step of the intercept, of shape (width,)."""
    residuals = samples.scores
    for i in range(residuals.shape[0]):
        turn(residuals, shares, i, residuals.dtype.type(1), step)


@inlined_kernel
def turn(residuals, shares, i, value, step):
    """Move the residuals of a sample by those of the model, where ``value * step`` joins its scores."""
    number = residuals.dtype.type
    width = np.uint64(residuals.shape[1])
    if width == 1:
        residuals[i, 0] += number(0.5) * value * shares[i, 0] * (step[1] - step[0])
        return
    at = np.uint64(i) * width
    mean = number(0)
    for q in range(np.uint64(0), width, _EIGHT):
        mean += lanes_dot(shares, at + q, step, q)
    for q in range(np.uint64(0), width, _EIGHT):
        lanes_turn(residuals, shares, at + q, number(0.5) * value, step, mean, q)
