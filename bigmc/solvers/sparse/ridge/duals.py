"""Dual variables of a ridge problem: their value, and what the intercept asks of them."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigmc.kernels.linear.simd import LANES

ROWS_AT_ONCE = 4096
"""Samples that are scored, or whose dual variables are copied, at once."""
_MOST_GROUPS = 4
"""Groups of classes that go through the entries of a sample together."""


class Excess(NamedTuple):
    """Shares by which dual variables above 0, and those below, are too large to add up to 0; (n_classes,)."""

    up: NDArray[np.float32]
    down: NDArray[np.float32]

    def take_off(self, duals: NDArray[np.float32]) -> None:
        """Scale the dual variables of some samples, shape (n_some, n_classes), down by them."""
        duals -= np.maximum(duals, 0.0) * self.up
        duals -= np.minimum(duals, 0.0) * self.down


def excess_of(duals: NDArray[np.float32]) -> Excess:
    """Return what makes dual variables feasible where an intercept is not penalised.

    The larger of the two sides of a class, labels and rest, is scaled down to the other's sum.

    Parameters
    ----------
    duals : float32 array of shape (n_samples, n_classes)
    """
    up, down = np.zeros(duals.shape[1]), np.zeros(duals.shape[1])
    for lo in range(0, len(duals), ROWS_AT_ONCE):
        some = duals[lo : lo + ROWS_AT_ONCE]
        up += np.maximum(some, 0.0).sum(axis=0, dtype=np.float64)
        down -= np.minimum(some, 0.0).sum(axis=0, dtype=np.float64)
    pairs = ((up, down), (down, up))
    scales = (np.divide(b, a, out=np.ones_like(a), where=a > b) for a, b in pairs)
    return Excess(*((1.0 - scale).astype(np.float32) for scale in scales))


def class_spans(width: int, n_threads: int) -> list[tuple[int, int]]:
    """Return the groups of classes that are worked on at once; any cut gives the same bits.

    Parameters
    ----------
    width : int
        Padded number of classes.
    n_threads : int
    """
    n_groups = width // LANES
    n_parts = max(-(-n_groups // _MOST_GROUPS), min(n_groups, n_threads))
    cuts = np.linspace(0, n_groups, n_parts + 1).round().astype(int).tolist()
    return list(pairwise(cuts))


def dual_value(duals: NDArray[np.float32], diagonal: NDArray[np.float32]) -> float:
    """Return what some samples add to the dual objective, without the norm of the weights.

    Parameters
    ----------
    duals : float32 array of shape (n_some, n_classes)
    diagonal : float32 array of shape (n_some,)
        ``n ridge / (2 weight)``.
    """
    exact = duals.astype(np.float64)
    squares = np.einsum("ir,ir->i", exact, exact)
    return float(np.abs(exact).sum()) - 0.5 * float(diagonal.astype(np.float64) @ squares)


def hinge_losses(scores: NDArray[np.float64], targets: NDArray[np.int32]) -> NDArray[np.float64]:
    """Return the sum over the classes of the squared hinge of each sample.

    Parameters
    ----------
    scores : float64 array of shape (n_some, n_classes)
    targets : int32 array of shape (n_some, most labels)
        Classes of each sample, -1 after the last.
    """
    signs = np.full(scores.shape, -1.0)
    rows, places = np.nonzero(targets >= 0)
    signs[rows, targets[rows, places]] = 1.0
    losses: NDArray[np.float64] = (np.maximum(1.0 - signs * scores, 0.0) ** 2).sum(axis=1)
    return losses
