"""A dataset: shards of samples, read by blocks of features."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bigmc.engine import Engine
from bigmc.errors import DataError
from bigmc.options.label_kind import LabelKind
from bigmc.store.block import INDEX_BYTES, bytes_of_longest, plan_blocks
from bigmc.store.classes import ClassLabels
from bigmc.store.deviations import BLOCK_BYTES, inverse_deviations
from bigmc.store.files.dtypes import common_dtype
from bigmc.store.files.layout import SAMPLE_WEIGHT
from bigmc.store.label_source import LabelSource
from bigmc.store.results import DatasetInfo
from bigmc.store.row_norms import row_scale
from bigmc.store.shards.disk_shard import StoredShard
from bigmc.store.shards.label_sets import is_sets
from bigmc.store.shards.memory_shard import MAX_ROWS, memory_shards
from bigmc.store.shards.sample_labels import SampleLabels, code_labels, row_column
from bigmc.store.shards.shard import Shard
from bigmc.store.snapshot import Ingest, Stored, StoredLabels, open_stored, reopen
from bigmc.store.statistics import statistics_of_shards
from bigmc.store.weighting import Weighting

#: Features whose idf is computed at once.
_IDF_AT_ONCE = 1 << 16


class Dataset:
    """Samples with labels, on disk or in memory; made by `open` and `from_arrays`.

    Attributes
    ----------
    classes : array of shape (n_classes,)
        Original labels in the order of their codes; empty if the samples have none.
    dtype : numpy.dtype
        Dtype of the values from `read_block`: the smallest exact dtype for all shards.
    base : int64 array of shape (n_shards + 1,)
        First sample of each shard.
    features : dict
        Description of the features, such as the hashing that made them; copied into every model.
    path : Path or None
        Folder of the dataset, or of its local copy; None in memory.
    """

    def __init__(
        self,
        shards: Sequence[Shard],
        classes: ClassLabels,
        n_features: int,
        weighting: Weighting,
        features: Mapping[str, Any],
        stored: Stored | None = None,
        column_scale: NDArray[np.float32] | None = None,
        sample_weights: NDArray[np.float64] | None = None,
    ) -> None:
        self.shards = list(shards)
        self.class_labels = classes
        self.n_features = n_features
        self.weighting = weighting
        self.features = dict(features)
        self.n_shards = len(self.shards)
        self.n_classes = len(classes)
        self.base = np.concatenate([[0], np.cumsum([s.n_rows for s in self.shards], dtype=np.int64)])
        self.n_samples = int(self.base[-1])
        self.nnz = sum(s.nnz for s in self.shards)
        common = common_dtype([s.dtype for s in self.shards])
        self.dtype: np.dtype[Any] = np.dtype(np.int8) if weighting.binary else common
        self.entry_bytes = INDEX_BYTES + self.dtype.itemsize  # decoded: its row, and its value
        self.decoded_bytes = self.nnz * self.entry_bytes
        self.path = stored.path if stored else None
        self._stored = stored
        self._column_scale = column_scale
        self._sample_weights = sample_weights
        self._column_nnz: NDArray[np.signedinteger] | None = None
        self._idf: NDArray[np.float32] | None = None
        self._groups: Sequence[NDArray[np.signedinteger]] | None = None

    @property
    def classes(self) -> NDArray[Any]:
        """The labels; of a dataset on disk they are read at first use."""
        labels = self.class_labels
        return labels.values if isinstance(labels, StoredLabels) else np.asarray(labels)

    @classmethod
    def open(cls, dataset: Path | str | Dataset) -> Dataset:
        """Open a dataset on disk or at an address such as ``s3://bucket/name``; an open one is returned.

        A shard is checked when it is first read; one in an object store is first copied to this
        machine. `StoreError` if the dataset is missing, unfinished, damaged or has another format
        version.
        """
        return dataset if isinstance(dataset, Dataset) else cls._of(open_stored(dataset))

    @classmethod
    def _of(cls, stored: Stored) -> Dataset:
        """Return the dataset on disk."""
        first = stored.ingests[0].manifest
        own = first.n_features, stored.weighting, first.features
        return cls(stored.shards(), stored.class_labels(), *own, stored)

    @classmethod
    def from_arrays(
        cls,
        X: Any,
        y: ArrayLike | None = None,
        *,
        row_ids: ArrayLike | None = None,
        weighting: Weighting | None = None,
        features: Mapping[str, Any] | None = None,
        shard_rows: int = MAX_ROWS,
    ) -> Dataset:
        """Make a dataset of arrays in memory.

        `X` has the shape (n_samples, n_features), as an array of finite numbers, which the caller
        checks, or a scipy sparse matrix. Zeros of an array are dropped, explicit zeros of a sparse
        matrix are kept. `y` has labels of one type, whose sorted distinct values are the classes, or
        is a 0/1 indicator of shape (n_samples, n_classes), dense or sparse, for label sets. Without
        labels all codes are -1. Row ids are by default 0, 1, 2, …; a shard has at most 65,536 rows.
        `DataError` if the shapes do not fit or the values are not real numbers.
        """
        matrix = X if hasattr(X, "tocsr") else np.asarray(X)
        if matrix.ndim != 2:
            raise DataError(
                f"X has {matrix.ndim} dimensions", "give one row per sample and one column per feature"
            )
        n_samples = int(matrix.shape[0])
        classes, labels = code_labels(y, n_samples)
        ids = np.arange(n_samples, dtype=np.int64) if row_ids is None else np.asarray(row_ids, np.int64)
        if ids.shape != (n_samples,):
            said = f"row_ids has the shape {ids.shape}, but X has {n_samples} rows"
            raise DataError(said, "give one id for each row")
        shards = list(memory_shards(matrix, labels, ids, shard_rows))
        return cls(shards, classes, int(matrix.shape[1]), weighting or Weighting(), features or {})

    @property
    def label_kind(self) -> LabelKind:
        """Whether rows have one label or a set of them."""
        return LabelKind.SET if self.has_sets else LabelKind.ONE

    @property
    def splits(self) -> dict[str, int]:
        """Rows of each split."""
        rows: dict[str, int] = {}
        for shard in self.shards:
            rows[shard.split] = rows.get(shard.split, 0) + shard.n_rows
        return rows

    def __getitem__(self, split: str) -> Dataset:
        """Return the samples of one split."""
        if not self.splits.get(split):
            known = ", ".join(f"{name} ({rows} rows)" for name, rows in self.splits.items())
            raise DataError(f"no rows in a split called {split!r}", f"the dataset has {known or 'no rows'}")
        return self.subset([s for s, shard in enumerate(self.shards) if shard.split == split])

    def subset(self, shards: Sequence[int]) -> Dataset:
        """Return the samples of the given shards only, such as the folds of a cross-validation."""
        return self._of_shards(shards, None)

    def part(self, shards: Sequence[int]) -> Dataset:
        """Return the samples of the given shards, keeping the idf weights of all samples."""
        return self._of_shards(shards, self.column_scale())

    def _of_shards(self, shards: Sequence[int], column_scale: NDArray[np.float32] | None) -> Dataset:
        weights = self._sample_weights
        if weights is not None:
            weights = np.concatenate([weights[self.base[s] : self.base[s + 1]] for s in shards])
        return self._with([self.shards[s] for s in shards], self.weighting, column_scale, weights)

    def with_weighting(self, weighting: Weighting) -> Dataset:
        """Return the same samples with another weighting."""
        return self._with(self.shards, weighting, self._column_scale, self._sample_weights)

    def _with(
        self,
        shards: Sequence[Shard],
        weighting: Weighting,
        column_scale: NDArray[np.float32] | None,
        weights: NDArray[np.float64] | None,
    ) -> Dataset:
        own = self.class_labels, self.n_features, weighting, self.features, self._stored
        return Dataset(shards, *own, column_scale, weights)

    def with_column_scale(self, column_scale: NDArray[np.float32]) -> Dataset:
        """Return the same samples with other column scales instead of their idf."""
        return self._with(self.shards, self.weighting, column_scale, self._sample_weights)

    def seen_by(self, engine: Engine) -> Engine:
        """Return an engine that sees the samples: threads of this process if they are in its memory."""
        return engine if self.path else engine.local()

    def __reduce__(self) -> Any:
        """Pickle the path and the shard numbers: another process opens them itself, once."""
        if self._stored is None:
            raise DataError("a dataset in memory cannot be sent to a cluster", "ingest it first")
        stored = self._stored
        first = stored.ingests[0].manifest
        names = tuple(stored.name(shard) for shard in self.shards if isinstance(shard, StoredShard))
        return _opened, (stored.location, first.signature, len(stored.ingests) - 1, names)

    @cached_property
    def has_sets(self) -> bool:
        """Whether a sample has a set of labels instead of one label."""
        if self._stored:
            return self._stored.has_sets
        tables = (shard.table(["label"]) for shard in self.shards[:1])
        return any(is_sets(table.schema.field("label").type) for table in tables)

    def labels(self) -> NDArray[np.int32]:
        """Return the class code of every sample; raise `DataError` if labels are sets."""
        return self._sample_labels.codes()

    @property
    def n_groups(self) -> int:
        """Number of groups in statistics by class: the classes, or one if labels are sets."""
        return 1 if self.has_sets else self.n_classes

    def group_codes(self, most_bytes: int | None = None) -> Sequence[NDArray[np.signedinteger]]:
        """Return the group of every sample of each shard: its class code, or 0 if labels are sets.

        Codes of more than `most_bytes` in all are read again at every use.
        """
        return self._sample_labels.groups(most_bytes)

    def label_sets(self) -> NDArray[np.int32]:
        """Return the class codes of every sample, of shape (n_samples, most labels of a sample).

        They increase within a row, padded with -1. For single labels there is one column.
        """
        return self._sample_labels.sets()

    def label_parts(self) -> Iterator[NDArray[np.int32]]:
        """Yield the result of `label_sets` shard by shard; rows are as long as the shard's longest set."""
        return self._sample_labels.parts()

    def class_counts(self) -> NDArray[np.int64]:
        """Return the number of samples with the label of each class."""
        return self._sample_labels.counts()

    def most_labels(self) -> int:
        """Return the maximum number of labels of a sample, at least 1."""
        return self._sample_labels.most()

    @cached_property
    def _sample_labels(self) -> SampleLabels:
        where = str(self.path or "the dataset")
        return SampleLabels(self.shards, self.base, self.n_classes, where, self.label_kind)

    def sample_weights(self) -> NDArray[np.float64] | None:
        """Return the sample weights for training, or None."""
        if self._sample_weights is None and self._stored is not None:
            recipe = self._stored.ingests[0].manifest.provenance.get("recipe", {})
            if recipe.get("weight") is not None:
                self._sample_weights = row_column(self.shards, self.base, SAMPLE_WEIGHT, np.float64)
        return self._sample_weights

    @property
    def label_source(self) -> LabelSource | None:
        """The column of the source data that has the labels; None in memory and for arrays."""
        recipe = self._stored.ingests[0].manifest.provenance.get("recipe", {}) if self._stored else {}
        column = recipe.get("label")
        return None if column is None else LabelSource(column, recipe.get("label_separator"))

    @property
    def weight_sum(self) -> float:
        """Sum of the sample weights; without weights the number of samples."""
        weights = self.sample_weights()
        return float(self.n_samples if weights is None else weights.sum())

    def row_ids(self) -> NDArray[np.int64]:
        """Return the id of every sample."""
        return row_column(self.shards, self.base, "row_id", np.int64)

    def column_nnz(self, features: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        """Return the number of stored entries of every feature, or of some, as a new array."""
        if self._column_nnz is None:
            self._column_nnz = self._count_entries()
        return np.asarray(self._column_nnz if features is None else self._column_nnz[features], np.int64)

    def _count_entries(self) -> NDArray[np.signedinteger]:
        """Count the entries of every feature, in half the bytes where that is enough: they stay in memory."""
        narrow = np.dtype(np.int32 if self.n_samples < 1 << 31 else np.int64)
        shape, stored = (self.n_features,), self._stored
        known = stored.statistic(self.shards, "nnz", shape, 0, self.n_features) if stored else None
        if known is not None:
            return known.astype(narrow)
        counts = np.zeros(shape, narrow)
        for shard in self.shards:
            counts += np.diff(shard.indptr(0, self.n_features)).astype(narrow)
        return counts

    def column_scale(self) -> NDArray[np.float32] | None:
        """Return the scale of every feature over these samples, or None if the weighting has none.

        The idf, ``ln((1 + n_samples) / (1 + df)) + 1`` as in ``TfidfTransformer(smooth_idf=True)``, or one
        over the standard deviation. Samples drawn from other samples keep their scale.
        """
        if not self.weighting.scales_columns:
            return None
        if self._column_scale is not None:
            return self._column_scale
        if self.weighting.scaled:
            blocks = (self.class_statistics(lo, hi) for lo, hi in self.spans(BLOCK_BYTES))
            return inverse_deviations(self.n_samples, blocks)
        if self._idf is None:
            self._idf = np.empty(self.n_features, np.float32)
            for first in range(0, self.n_features, _IDF_AT_ONCE):
                some = np.arange(first, min(first + _IDF_AT_ONCE, self.n_features))
                self._idf[some] = np.log((1 + self.n_samples) / (1 + self.column_nnz(some))) + 1
        return self._idf

    def row_scale(self, column_scale: NDArray[np.float32] | None) -> NDArray[np.float32]:
        """Return the scale of every row: one over the row's norm with l2 weighting, else 1.

        `column_scale` is that of the training samples of the model; with it, computing the norms
        takes one pass over the values.
        """
        return row_scale(self, column_scale)

    def plan(self, block_bytes: int) -> list[tuple[int, int]]:
        """Cut the features into blocks of at most `block_bytes` decoded bytes."""
        return plan_blocks(self.column_nnz(), self.n_shards, self.dtype.itemsize, block_bytes)

    def spans(self, block_bytes: int) -> list[tuple[int, int]]:
        """Cut the features like `plan`, where a single feature may have more bytes."""
        longest = bytes_of_longest(self.column_nnz(), self.n_shards, self.dtype.itemsize)
        return self.plan(max(block_bytes, longest))

    def class_statistics(self, lo: int, hi: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return sums and sums of squares of the features ``lo`` to ``hi``, of shape (n_classes, hi - lo).

        The values are those of `read_block`: before row and column scale. Whole splits on disk have them
        stored, unless they were too large; else shards are read. Label sets belong to one class.
        """
        shape = (self.n_classes, self.n_features)
        if self._stored:
            known = [
                self._stored.statistic(self.shards, name, shape, lo, hi)
                for name in ("class_sum", "class_sum_squares")
            ]
            if known[0] is not None and known[1] is not None:
                return known[0], known[1]
        self._groups = self._groups or self.group_codes()  # needed for every range
        shards = (self._of_shards([number], None) for number in range(self.n_shards))
        return statistics_of_shards(shards, lo, hi, self._groups, self.n_groups)

    @property
    def bytes_read(self) -> int:
        """Bytes read from files so far, by this dataset and its subsets."""
        return self._stored.counter.total if self._stored else 0

    @property
    def identity(self) -> str:
        """Digest of all files of the dataset when it was opened; raises `DataError` in memory."""
        if self._stored is None:
            raise DataError("the dataset is only in memory", "ingest it first, or call the estimator's fit")
        return self._stored.identity

    @property
    def ingests(self) -> tuple[Ingest, ...]:
        """Provenance of the dataset on disk and of its appends; empty in memory."""
        return self._stored.ingests if self._stored else ()

    def files(self, name: str) -> list[Path]:
        """Return all files of a name, such as ``names.parquet``, at most one per ingest."""
        return self._stored.files(name) if self._stored else []

    def info(self) -> DatasetInfo:
        """Return the figures of ``bigmc info --json``; bytes are those of all files, or of the arrays."""
        beside = self._stored.bytes_beside(self.n_shards) if self._stored else 0
        figures: DatasetInfo = {
            "n_samples": self.n_samples,
            "n_features": self.n_features,
            "n_classes": self.n_classes,
            "nnz": self.nnz,
            "n_shards": self.n_shards,
            "splits": self.splits,
            "bytes": sum(shard.nbytes for shard in self.shards) + beside,
        }
        if self.has_sets:
            figures["label_sets"] = True
        if self._stored and (n_quarantined := self._stored.n_quarantined):
            figures["n_quarantined"] = n_quarantined
        return figures


@lru_cache(maxsize=4)
def _opened(path: str, signature: str, n_appends: int, names: tuple[str, ...]) -> Dataset:
    """Return some shards of a dataset on disk, and keep it open for the next part."""
    stored = reopen(path, signature, n_appends)
    number = {stored.name(shard): s for s, shard in enumerate(stored.shards())}
    return Dataset._of(stored).subset([number[name] for name in names])
