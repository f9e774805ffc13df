# mypy: disable-error-code="no-untyped-def, no-untyped-call"
"""Growing trees by one level: the best cut of every node of many trees at once.

A tree belongs to a class and sees its column of the dual weights u (see `bigmc.kernels.boosting_cuts`).
Inner levels take the cut that leaves the purest sides, ``G_l²/W_l + G_r²/W_r`` with the sums G of u and
W of ``|u|``; the last one takes the cut with the largest score, ``|G_l| + |G_r|``, which is the best
tree that keeps the levels above (leaves answer the sign of their G).
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True, fastmath=False)
def split_nodes(
    feature, codes, n_edges, missing, classes, nodes, n_nodes, u, last, hist, values, cuts, below, above,
):  # fmt: skip
    """Offer the cuts of one column to every node of every tree.

    Parameters
    ----------
    feature : int
    codes : uint8 array of shape (n_samples,)
        Of all samples in this column.
    n_edges : int
    missing : bool
        Whether the column has missing values.
    classes : int64 array of shape (n_trees,)
    nodes : uint8 array of shape (n_trees, n_samples)
        Node of this level each sample is at.
    n_nodes : int
    u : float array of shape (n_classes, n_samples)
    last : bool
        Whether this is the last level.
    hist : float64 array of shape (n_nodes, 256, 2)
    values : float64 array of shape (n_trees, n_nodes)
        Best value of each node so far; a cut must be better.
    cuts : int64 array of shape (n_trees, n_nodes, 3)
        Feature, cut, and 1 if missing values go below.
    below, above : float64 arrays of shape (n_trees, n_nodes)
        G on both sides.
    """
    n_bins = n_edges + 2
    for tree in range(classes.shape[0]):
        at = nodes[tree]
        weight = u[classes[tree]]
        hist[:n_nodes, :n_bins] = 0.0
        for i in range(codes.shape[0]):
            x = np.float64(weight[i])
            cell = hist[at[i], codes[i]]
            cell[0] += x
            cell[1] += abs(x)
        for node in range(n_nodes):
            total = mass = 0.0
            for b in range(n_bins):
                total += hist[node, b, 0]
                mass += hist[node, b, 1]
            for missing_below in range(2 if missing else 1):
                g = hist[node, n_bins - 1, 0] if missing_below else 0.0
                w = hist[node, n_bins - 1, 1] if missing_below else 0.0
                for b in range(n_edges + 1 if missing and not missing_below else n_edges):
                    g += hist[node, b, 0]
                    w += hist[node, b, 1]
                    rest = total - g
                    if last:
                        value = abs(g) + abs(rest)
                    else:
                        value = 0.0
                        if w > 0.0:
                            value += g * g / w
                        if mass - w > 0.0:
                            value += rest * rest / (mass - w)
                    if value > values[tree, node]:
                        values[tree, node] = value
                        cuts[tree, node, 0] = feature
                        cuts[tree, node, 1] = b
                        cuts[tree, node, 2] = missing_below
                        below[tree, node] = g
                        above[tree, node] = rest


@njit(cache=True, nogil=True, fastmath=False)
def node_sums(classes, nodes, u, sums):
    """Add up G and W of every node.

    Parameters
    ----------
    classes, nodes, u
        See `split_nodes`.
    sums : float64 array of shape (n_trees, n_nodes, 2)
    """
    for tree in range(classes.shape[0]):
        weight = u[classes[tree]]
        for i in range(nodes.shape[1]):
            x = np.float64(weight[i])
            cell = sums[tree, nodes[tree, i]]
            cell[0] += x
            cell[1] += abs(x)


@njit(cache=True, nogil=True, fastmath=False)
def route(codes, low, high, node, nodes, above):
    """Mark the samples of a node whose code is in ``[low, high]``: they go above.

    Parameters
    ----------
    codes : uint8 array of shape (n_samples,)
    low, high, node : int
    nodes, above : uint8 arrays of shape (n_samples,)
    """
    for i in range(codes.shape[0]):
        if nodes[i] == node:
            above[i] = low <= codes[i] <= high


@njit(cache=True, nogil=True, fastmath=False)
def descend(above, nodes):
    """Move every sample to its child, below (even) or above (odd)."""
    for i in range(nodes.shape[0]):
        nodes[i] = 2 * nodes[i] + above[i]
