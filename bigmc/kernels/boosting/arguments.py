"""Arguments that kernels of the boosted learner share."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Entries(NamedTuple):
    """Coded entries of a block of columns, shard after shard.

    Column ``j`` of shard ``s`` has the entries ``indptr[s, j]:indptr[s, j + 1]``, of shape (n_shards,
    n_columns + 1). `rows` are those within the shard, whose first sample is ``base[s]``.
    """

    indptr: NDArray[np.int64]
    rows: NDArray[np.uint16]
    codes: NDArray[np.uint8]
    base: NDArray[np.int64]


class CutColumns(NamedTuple):
    """Columns of a block that are searched for cuts.

    `columns` are their numbers in the block, `firsts` the first row of each in the histogram, both of
    shape (n_chosen,). Of all columns of the block: the number of codes, the code of 0, whether there are
    NaN, whose code is the last, and whether there are samples without an entry, of shape (n_columns,).
    """

    columns: NDArray[np.int64]
    first_feature: int
    n_bins: NDArray[np.int64]
    zero: NDArray[np.int64]
    missing: NDArray[np.bool_]
    has_zeros: NDArray[np.bool_]
    firsts: NDArray[np.int64]


class Table(NamedTuple):
    """Codes of some columns of a block, whose features increase: all of them, or a list for each sample.

    Either `codes`, of shape (n_samples, n_columns), has those of a sample side by side, and `columns` the
    same codes column after column, in whole words of 64 samples. Or, with `codes` of shape (n_samples, 0),
    sample ``i`` has the list ``cells[starts[i]:starts[i + 1]]`` of the cells of its codes, but for columns
    in which it has the code `zero`; `numbers` are those of the columns in the block of `entries`.

    A column with missing values has their code last. In a histogram these columns have `n_cells` cells from
    `at` on, and each column those from ``at + firsts`` on.
    """

    codes: NDArray[np.uint8]
    columns: NDArray[np.uint8]
    starts: NDArray[np.uint32]
    cells: NDArray[np.uint16]
    entries: Entries
    numbers: NDArray[np.int64]
    zero: NDArray[np.int64]
    features: NDArray[np.int64]
    n_edges: NDArray[np.int64]
    missing: NDArray[np.bool_]
    firsts: NDArray[np.uint64]
    at: int
    n_cells: int


class Level(NamedTuple):
    """The level at which trees are being cut; with `kept`, there are histograms of the parents.

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
    """Learners with the slots of their answers, signs (-1 for the opposite answer), classes and weights."""

    slots: NDArray[np.int64]
    signs: NDArray[np.int8]
    classes: NDArray[np.int64]
    weights: NDArray[np.float64]


class Visits(NamedTuple):
    """The order in which the learners of a class are visited, and how they are updated.

    Learners with a violation of at most `tolerance` are skipped. `rate` is the part of the way to its
    best value that a weight moves (shrinkage, Friedman 2001), 1 for all of it; `r` is the weight of the
    loss, ``C / p``.
    """

    order: NDArray[np.int64]
    tolerance: float
    rate: float
    r: float


class Values(NamedTuple):
    """Entries of a block of columns before they are coded; see `Entries` for the other fields."""

    indptr: NDArray[np.int64]
    rows: NDArray[np.uint16]
    data: NDArray[Any]
    base: NDArray[np.int64]


class Edges(NamedTuple):
    """Edges of a block's columns, to be written: column ``j`` may write from ``edges[starts[j]]`` on.

    `missing` is whether the column has NaN; `starts` has the shape (n_columns + 1,).
    """

    starts: NDArray[np.int64]
    edges: NDArray[np.float64]
    n_edges: NDArray[np.int64]
    missing: NDArray[np.bool_]


class Encoding(NamedTuple):
    """How the values of the features of a model become codes, see `code_of`.

    Of each feature: the first edge in `table`, the steps of the search, and the code of missing values.
    If `binary`, every entry counts as 1.
    """

    firsts: NDArray[np.int64]
    steps: NDArray[np.int64]
    missing: NDArray[np.int64]
    table: NDArray[np.float64]
    binary: bool


class ScoredTrees(NamedTuple):
    """Learners that are scored together.

    `feature` is the row of the codes that a node splits on, and codes from `low` to `high`, both
    included, go above; all of shape (n_learners, n_nodes). `leaf` has the shape (n_learners, n_nodes +
    1). Learners whose class, the row of the scores, is outside are skipped.
    """

    feature: NDArray[np.int32]
    low: NDArray[np.uint8]
    high: NDArray[np.uint8]
    leaf: NDArray[np.int8]
    classes: NDArray[np.int64]
    weights: NDArray[np.float64]
