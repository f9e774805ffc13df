"""Losses and penalties straight from their definitions, dense, and an independent solver for all pairs.

Labels are codes of shape (n,), or where they are sets an indicator of shape (n, m).
"""

import numpy as np


def loss_and_gradient(loss, X, y, W, b, weights):
    """Mean loss and its gradients by weights and intercept."""
    scores = X @ W + b
    rows, n = np.arange(len(y)), weights.sum()
    if loss == "squared_hinge":
        margins = np.maximum(1 - scores[rows, y][:, None] + scores, 0)
        margins[rows, y] = 0
        losses, residual = (margins**2).sum(axis=1), 2 * margins
        residual[rows, y] = -residual.sum(axis=1)
    elif loss == "huber_hinge":
        margins = 1 - scores[rows, y][:, None] + scores
        margins[rows, y] = 0
        bounded = np.clip(margins, 0, 1)
        losses, residual = (bounded * (2 * margins - bounded)).sum(axis=1), 2 * bounded
        residual[rows, y] = -residual.sum(axis=1)
    elif loss == "multilabel_ranking":
        pairs = (y[:, :, None] == 1) & (y[:, None, :] == 0)
        margins = pairs * np.maximum(1 - scores[:, :, None] + scores[:, None, :], 0)
        losses, residual = (margins**2).sum(axis=(1, 2)), 2 * (margins.sum(axis=1) - margins.sum(axis=2))
    elif loss == "multitask_squared_hinge":
        own = y == 1 if y.ndim == 2 else np.arange(scores.shape[1]) == y[:, None]
        sign = np.where(own, 1.0, -1.0)
        margins = np.maximum(1 - sign * scores, 0)
        losses, residual = (margins**2).sum(axis=1), -2 * sign * margins
    else:
        shifted = scores - scores.max(axis=1, keepdims=True)
        logs = np.log(np.exp(shifted).sum(axis=1))
        losses, residual = logs - shifted[rows, y], np.exp(shifted - logs[:, None])
        residual[rows, y] -= 1
    residual *= weights[:, None] / n
    return weights @ losses / n, X.T @ residual, residual.sum(axis=0)


def penalty_value(penalty, W, l1_ratio=0.5):
    groups = np.linalg.norm(W, axis=1).sum()
    if penalty == "l1/l2":
        return groups
    if penalty == "l1":
        return np.abs(W).sum()
    if penalty == "l1/linf":
        return np.abs(W).max(axis=1).sum()
    return l1_ratio * np.abs(W).sum() + (1 - l1_ratio) * groups


def objective_value(loss, penalty, X, y, W, b, alpha, ridge=0.0, l1_ratio=0.5, weights=None):
    weights = np.ones(len(y)) if weights is None else weights
    value = loss_and_gradient(loss, X, y, W, b, weights)[0]
    return value + alpha * penalty_value(penalty, W, l1_ratio) + ridge / 2 * (W**2).sum()


def prox(penalty, g, alpha, l1_ratio=0.5):
    """Minimiser of ``||u - g||² / 2 + alpha * penalty(u)``: what a projection on the dual ball leaves.

    Of each row, where there are several.
    """
    if penalty == "l1/linf":
        sizes = np.sort(np.abs(g), axis=-1)[..., ::-1]
        above = (np.cumsum(sizes, axis=-1) - alpha) / np.arange(1, g.shape[-1] + 1)
        last = np.count_nonzero(sizes > above, axis=-1, keepdims=True) - 1  # they are larger up to here
        theta = np.take_along_axis(above, last, axis=-1)
        return np.sign(g) * np.minimum(np.abs(g), np.maximum(theta, 0))
    share = {"l1": 1.0, "l1/l2": 0.0, "sparse_group": l1_ratio}[penalty]
    soft = np.sign(g) * np.maximum(np.abs(g) - share * alpha, 0)
    norm = np.linalg.norm(soft, axis=-1, keepdims=True)
    return soft * np.maximum(1 - (1 - share) * alpha / np.maximum(norm, 1e-300), 0)


def fista(loss, penalty, X, y, m, alpha, ridge=0.0, l1_ratio=0.5, weights=None, intercept=False, n_iter=3000):
    """Optimum by accelerated proximal gradient with restarts; the intercept is not penalised."""
    weights = np.ones(len(y)) if weights is None else weights
    wide = np.hstack([X, np.ones((len(y), 1))]) if intercept else X
    constant = {
        "squared_hinge": 2 * m,
        "huber_hinge": 2 * m,
        "multilabel_ranking": 2 * m,
        "multitask_squared_hinge": 2,
        "log_loss": 0.5,
    }[loss]
    norm = np.linalg.norm(np.sqrt(weights)[:, None] * wide, 2)
    step = 1 / (constant * norm**2 / weights.sum() + ridge)
    W, b = np.zeros((X.shape[1], m)), np.zeros(m)
    V, c, t, best, least = W, b, 1.0, np.inf, np.inf
    for _ in range(n_iter):
        _, G, g = loss_and_gradient(loss, X, y, V, c, weights)
        Z = V - step * (G + ridge * V)
        new_W = prox(penalty, Z, step * alpha, l1_ratio)
        new_b = c - step * g if intercept else b
        value = objective_value(loss, penalty, X, y, new_W, new_b, alpha, ridge, l1_ratio, weights)
        if value > best:
            if best >= least:  # nor did the last restart bring it down: what is left is rounding
                break
            V, c, t, best, least = W, b, 1.0, np.inf, best
            continue
        best, new_t = value, (1 + np.sqrt(1 + 4 * t * t)) / 2
        V, c = new_W + (t - 1) / new_t * (new_W - W), new_b + (t - 1) / new_t * (new_b - b)
        W, b, t = new_W, new_b, new_t
    return objective_value(loss, penalty, X, y, W, b, alpha, ridge, l1_ratio, weights)
