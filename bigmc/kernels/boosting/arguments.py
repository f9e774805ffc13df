"""Arguments that kernels of the boosted learner share."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Entries(NamedTuple):
    """Coded entries of a block of columns, shard after shard.

    Attributes
    ----------
    indptr : int64 array of shape (n_shards, n_columns + 1)
        Column ``j`` of shard ``s`` has the entries ``indptr[s, j]:indptr[s, j + 1]``.
    rows : uint16 array
        Row of each entry in its shard.
    codes : uint8 array
    base : int64 array of shape (n_shards + 1,)
        First sample of each shard.
    """

    indptr: NDArray[np.int64]
    rows: NDArray[np.uint16]
    codes: NDArray[np.uint8]
    base: NDArray[np.int64]


class CutColumns(NamedTuple):
    """Columns of a block that are searched for cuts.

    Attributes
    ----------
    columns : int64 array of shape (n_chosen,)
        Numbers of these columns in the block.
    first_feature : int
        Feature of the block's first column.
    n_bins, zero : int64 arrays of shape (n_columns,)
        Codes of each column of the block, and the code of 0 in it.
    missing, has_zeros : bool arrays of shape (n_columns,)
        Whether the column has NaN, whose code is the last, and samples without an entry.
    firsts : int64 array of shape (n_chosen,)
        First row of each chosen column in its histogram.
    """

    columns: NDArray[np.int64]
    first_feature: int
    n_bins: NDArray[np.int64]
    zero: NDArray[np.int64]
    missing: NDArray[np.bool_]
    has_zeros: NDArray[np.bool_]
    firsts: NDArray[np.int64]


class Table(NamedTuple):
    """Codes of some columns, those of a sample side by side.

    Attributes
    ----------
    codes : uint8 array of shape (n_samples, n_columns)
    columns : uint8 array of shape (n_columns, n_samples rounded up to whole words of bits)
        The same, column after column.
    features, n_edges : int64 arrays of shape (n_columns,)
    missing : bool array of shape (n_columns,)
        Whether the column has missing values, whose code is the last.
    firsts : uint64 array of shape (n_columns,)
        First cell of each column in a histogram, after `at`.
    at, n_cells : int
        First cell of these columns in a histogram, and their number of cells.
    """

    codes: NDArray[np.uint8]
    columns: NDArray[np.uint8]
    features: NDArray[np.int64]
    n_edges: NDArray[np.int64]
    missing: NDArray[np.bool_]
    firsts: NDArray[np.uint64]
    at: int
    n_cells: int


class Level(NamedTuple):
    """The level at which trees are being cut; `kept` says whether the histograms of parents are there.

    Attributes
    ----------
    classes : int64 array of shape (n_trees,)
        Row of `weights` of each tree.
    weights : int64 array of shape (n_classes, n_samples)
        Packed dual weights.
    members : uint64 array of shape (n_trees, at least n_nodes, n_words)
        Bits of the samples of each node.
    totals : int64 array of shape (n_trees, n_nodes)
        Packed sums of the nodes.
    slots : int64 array of shape (n_trees, at least n_nodes)
        Histogram of each node.
    added : uint8 array of shape (n_trees, at least n_nodes)
        1 for nodes whose samples are to be summed up.
    values : float64 array of shape (n_trees, n_nodes)
        Best value of each node so far; a cut must be better.
    cuts : int64 array of shape (n_trees, n_nodes, 3)
        Feature, cut, and 1 if missing values go below.
    sides : int64 array of shape (n_trees, n_nodes, 2)
        Packed sums below and above.
    kept, last : bool
        Histograms of the parents are kept; this is the last level.
    """

    classes: NDArray[np.int64]
    weights: NDArray[np.int64]
    members: NDArray[np.uint64]
    totals: NDArray[np.int64]
    slots: NDArray[np.int64]
    added: NDArray[np.uint8]
    values: NDArray[np.float64]
    cuts: NDArray[np.int64]
    sides: NDArray[np.int64]
    kept: bool
    last: bool


class Weighted(NamedTuple):
    """Learners with their classes and weights.

    Attributes
    ----------
    slots : int64 array of shape (n_learners,)
        Where the answers of each learner are.
    signs : int8 array of shape (n_learners,)
        -1 for the opposite of the learner.
    classes : int64 array of shape (n_learners,)
    weights : float64 array of shape (n_learners,)
    """

    slots: NDArray[np.int64]
    signs: NDArray[np.int8]
    classes: NDArray[np.int64]
    weights: NDArray[np.float64]


class Visits(NamedTuple):
    """In which order the learners of a class are visited, and how they are updated.

    Attributes
    ----------
    order : int64 array
        Positions of the learners to visit.
    tolerance : float
        Learners with a smaller violation are left alone.
    rate : float
        Part of the way to its best value that a weight goes (shrinkage, Friedman 2001), 1 for all of it.
    r : float
        Weight of the loss, ``C / p``.
    """

    order: NDArray[np.int64]
    tolerance: float
    rate: float
    r: float


class Values(NamedTuple):
    """Entries of a block of columns before they are coded; see `Entries` for the other fields.

    Attributes
    ----------
    data : array
        Value of each entry.
    """

    indptr: NDArray[np.int64]
    rows: NDArray[np.uint16]
    data: NDArray[Any]
    base: NDArray[np.int64]


class Edges(NamedTuple):
    """Where the edges of a block's columns are written.

    Attributes
    ----------
    starts : int64 array of shape (n_columns + 1,)
        Where each column may write in `edges`.
    edges : float64 array
    n_edges : int64 array of shape (n_columns,)
    missing : bool array of shape (n_columns,)
        Whether the column has NaN.
    """

    starts: NDArray[np.int64]
    edges: NDArray[np.float64]
    n_edges: NDArray[np.int64]
    missing: NDArray[np.bool_]


class Encoding(NamedTuple):
    """How the values of the features that a model asks become codes, see `code_of`.

    Attributes
    ----------
    firsts, steps, missing : int64 arrays of shape (n_asked,)
        First edge of each feature in `table`, steps of the search, and the code of missing values.
    table : float64 array
    binary : bool
        Every entry counts as 1.
    """

    firsts: NDArray[np.int64]
    steps: NDArray[np.int64]
    missing: NDArray[np.int64]
    table: NDArray[np.float64]
    binary: bool


class ScoredTrees(NamedTuple):
    """Learners that are scored together.

    Attributes
    ----------
    feature : int32 array of shape (n_learners, n_nodes)
        Row of the codes that each node asks.
    low, high : uint8 arrays of shape (n_learners, n_nodes)
        Codes, both included, with which a sample goes above.
    leaf : int8 array of shape (n_learners, n_nodes + 1)
    classes : int64 array of shape (n_learners,)
        Row of the scores, which may be outside: such learners are passed over.
    weights : float64 array of shape (n_learners,)
    """

    feature: NDArray[np.int32]
    low: NDArray[np.uint8]
    high: NDArray[np.uint8]
    leaf: NDArray[np.int8]
    classes: NDArray[np.int64]
    weights: NDArray[np.float64]
