"""What kernels of the linear learner take: arrays that belong together, by name.

Kernels unpack them before their loops, so that the names cost nothing there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Entries(NamedTuple):
    """Entries of a block, column after column within each shard; see `bigmc.store.block.Block`.

    Attributes
    ----------
    indptr : int64 array of shape (n_shards, columns of the block + 1)
    indices : uint16 array of shape (nnz,)
        Row of each entry within its shard.
    data : array of shape (nnz,)
    base : int64 array of shape (n_shards + 1,)
        First row of each shard.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.uint16]
    data: NDArray[Any]
    base: NDArray[np.int64]


class Samples(NamedTuple):
    """Samples with their scores.

    Attributes
    ----------
    scores : float array of shape (n_samples, width)
        Classes padded to `width`; what pads hold takes part in nothing.
    labels : int32 array of shape (n_samples, most labels)
        Of each sample, increasing, -1 after the last; of shape (n_samples,) where a kernel says so.
    weights : float64 array of shape (n_samples,), or empty for ones
    row_scale, gain : arrays of shape (n_samples,)
        Factor of the values of each sample, and the same times its weight.
    """

    scores: NDArray[Any]
    labels: NDArray[np.int32]
    weights: NDArray[np.float64]
    row_scale: NDArray[Any]
    gain: NDArray[Any]


class Columns(NamedTuple):
    """Columns of a block, in the order in which they are visited.

    Attributes
    ----------
    order : int64 array
        Positions to visit; arrays "of shape (n_columns,)" have an element for every position.
    positions : int64 array of shape (n_columns,)
        Column of the block.
    scale : float64 array of shape (n_columns,)
        Factor of the values of each column.
    entries : Entries
        Of the block. Value of an entry: ``data[k] * row_scale[i]`` times the scale of its column.
    """

    order: NDArray[np.int64]
    positions: NDArray[np.int64]
    scale: NDArray[np.float64]
    entries: Entries


class Step(NamedTuple):
    """How a sweep moves weights.

    Attributes
    ----------
    n_classes : int
    two_over_n : float
        Factor of the gradient.
    alpha : float
        Weight of the penalty.
    line_search : bool
        Go to the minimum of a local model and halve the step until equation (7) holds; else the curvature is
        a constant that bounds the Hessian.
    negligible : float
        Columns with at most this violation are left as they are, which costs one gradient.
    """

    n_classes: int
    two_over_n: float
    alpha: float
    line_search: bool
    negligible: float


class Extra(NamedTuple):
    """Terms of the objective beside loss and penalty.

    Attributes
    ----------
    ridges : float64 array of shape (n_columns,)
        Weight of ``||W_j||² / 2``.
    tilt : float64 array of shape (n_columns, width), or of no rows
        Linear term ``<tilt_j, W_j>``.
    """

    ridges: NDArray[np.float64]
    tilt: NDArray[np.float64]


class Level(NamedTuple):
    """Where optimality is measured: factor of the gradient, weights of penalty and ridge."""

    n_classes: int
    two_over_n: float
    alpha: float
    ridge: float


class Support(NamedTuple):
    """Weights that are not zero.

    Attributes
    ----------
    slots : int64 array of shape (n_columns,)
        Row of `coef` of each column, -1 where its weights are zero.
    coef : float64 array of shape (n_nonzero, width)
    """

    slots: NDArray[np.int64]
    coef: NDArray[np.float64]


class Measures(NamedTuple):
    """Filled at the positions visited, float64 arrays of shape (n_columns,).

    Attributes
    ----------
    norms
        Dual norms of the gradients of the losses.
    violations
        Of the optimality conditions.
    distances
        With a ridge, squared distances of these gradients to alpha times the dual ball.
    """

    norms: NDArray[np.float64]
    violations: NDArray[np.float64]
    distances: NDArray[np.float64]


class GradientSums(NamedTuple):
    """Added to, a row for every feature wanted.

    Attributes
    ----------
    gradients : float64 array of shape (n_sums, width)
        Half the gradient of the sum of losses.
    curvatures : float64 array of shape (n_sums,)
        Of half the diagonal of the Hessian, its mean over the classes or its largest element.
    """

    gradients: NDArray[np.float64]
    curvatures: NDArray[np.float64]


class Norm(NamedTuple):
    """A penalty: its code in `penalties.formulas`, and the share of the l1 norm."""

    code: int
    ratio: float


class Pair(NamedTuple):
    """What is minimised: the loss, one of `losses`, and the penalty."""

    loss: Any
    penalty: Norm


class Rows(NamedTuple):
    """Samples in row order, with some features only.

    Attributes
    ----------
    indptr : int64 array of shape (n_samples + 1,)
    slots : uint32 array
        Place of each entry's feature among those worked on.
    values : array
        Stored values; neither rows nor columns are scaled.
    constant : bool
        There is an intercept: one more feature after the others, 1 in every sample.
    """

    indptr: NDArray[np.int64]
    slots: NDArray[np.uint32]
    values: NDArray[Any]
    constant: bool


class RawRows(NamedTuple):
    """Samples in row order as they come: not weighted, not scaled.

    Attributes
    ----------
    indptr : int64 array of shape (n_rows + 1,)
        Sample ``i`` has the entries ``indptr[i]:indptr[i + 1]``.
    indices : int32 array of shape (nnz,)
        Feature of each entry.
    data : array of shape (nnz,)
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    data: NDArray[Any]


class WeightedFeatures(NamedTuple):
    """Features with weights of a linear model.

    Attributes
    ----------
    table : int32 array of shape (n_features,) or (0,)
        Row of each feature in `coef`, -1 without weight; empty: search in `features`.
    features : int64 array of shape (n_nonzero,)
        Increasing.
    coef : float array of shape (n_nonzero, n_classes)
    """

    table: NDArray[np.int32]
    features: NDArray[np.int64]
    coef: NDArray[Any]


class EntryWeighting(NamedTuple):
    """How raw values are weighted.

    Attributes
    ----------
    column_scale : float32 array of shape (n_features,) or (0,)
        Factor of each feature; empty: 1.
    binary : bool
        Every entry counts as 1 (an explicit zero too, as in scikit-learn's hashing).
    l2 : bool
        Divide by the norm of the whole weighted sample, rounded to float32 as the store keeps it.
    """

    column_scale: NDArray[np.float32]
    binary: bool
    l2: bool
