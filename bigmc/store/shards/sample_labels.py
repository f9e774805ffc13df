"""Labels of samples, from the tables of their shards: a class code or a set of them per sample."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from bigmc.errors import DataError, StoreError
from bigmc.options.label_kind import LabelKind
from bigmc.store.shards.label_sets import column_of_indicator, fill_rows, longest
from bigmc.store.shards.plain_labels import plain_labels
from bigmc.store.shards.shard import Shard


class SampleLabels:
    """Labels of the samples of some shards, read when needed; `where` names the dataset in errors."""

    def __init__(
        self, shards: Sequence[Shard], base: NDArray[np.int64], n_classes: int, where: str, kind: LabelKind
    ) -> None:
        self._shards, self._base, self._n_classes = shards, base, n_classes
        self._where, self._kind = where, kind

    def codes(self) -> NDArray[np.int32]:
        """Return the class code of every sample; see `bigmc.store.dataset.Dataset.labels`."""
        if self._kind is LabelKind.SET:
            raise DataError(
                "the labels are sets, but one label per sample is needed",
                "give data with one label per sample",
            )
        return self._checked(row_column(self._shards, self._base, "label", np.int32))

    def sets(self) -> NDArray[np.int32]:
        """Return the class codes of every sample; see `bigmc.store.dataset.Dataset.label_sets`."""
        if self._kind is LabelKind.ONE:
            return self.codes()[:, None]
        out = np.empty((int(self._base[-1]), self.most()), np.int32)
        for s, shard in enumerate(self._shards):
            fill_rows(shard.table(["label"]).column("label"), out[self._base[s] : self._base[s + 1]])
        return self._checked(out)

    def parts(self) -> Iterator[NDArray[np.int32]]:
        """Yield the class codes of each shard; see `bigmc.store.dataset.Dataset.label_parts`."""
        yield from map(self._of_shard, range(len(self._shards)))

    def groups(self, most_bytes: int | None) -> Sequence[NDArray[np.signedinteger]]:
        """Return the group of every sample of each shard; see `bigmc.store.dataset.Dataset.group_codes`."""
        if self._kind is LabelKind.SET:
            one = np.zeros(int(np.diff(self._base).max(initial=0)), np.int8)
            return [one[: shard.n_rows] for shard in self._shards]
        dtype = np.min_scalar_type(-max(self._n_classes, 1))  # signed: -1 is no class
        if most_bytes is not None and int(self._base[-1]) * dtype.itemsize > most_bytes:
            return _CodesOnDemand(self._of_shard, len(self._shards))
        return [codes[:, 0].astype(dtype) for codes in self.parts()]

    def _of_shard(self, s: int) -> NDArray[np.int32]:
        base = np.array([0, self._shards[s].n_rows])
        return SampleLabels([self._shards[s]], base, self._n_classes, self._where, self._kind).sets()

    def counts(self) -> NDArray[np.int64]:
        """Return the number of samples with the label of each class; samples without labels count nowhere."""
        counts = np.zeros(self._n_classes + 1, np.int64)
        for codes in self.parts():
            counts += np.bincount(codes.ravel() + 1, minlength=len(counts))
        return counts[1:]

    def most(self) -> int:
        """Return the number of labels of the sample that has most, at least 1."""
        if self._kind is LabelKind.ONE:
            return 1
        return longest(shard.table(["label"]).column("label") for shard in self._shards)

    def _checked(self, codes: NDArray[np.int32]) -> NDArray[np.int32]:
        """Refuse labels that have no class: they would be places outside of arrays."""
        if codes.size and not -1 <= codes.min() <= codes.max() < self._n_classes:
            known = f"the {self._n_classes} classes"
            raise StoreError(f"{self._where}: labels outside {known}", "ingest it again")
        return codes


class _CodesOnDemand(Sequence[NDArray[np.signedinteger]]):
    """Class codes of the samples of each shard, read at every use."""

    def __init__(self, of_shard: Callable[[int], NDArray[np.int32]], n_shards: int) -> None:
        self._of_shard, self._n_shards = of_shard, n_shards

    def __len__(self) -> int:
        return self._n_shards

    def __getitem__(self, s: Any) -> Any:
        return self._of_shard(s)[:, 0]


def row_column(shards: Sequence[Shard], base: NDArray[np.int64], name: str, dtype: Any) -> NDArray[Any]:
    """Return one column of the shards' tables as one array of `dtype`."""
    out = np.empty(int(base[-1]), dtype)
    for s, shard in enumerate(shards):
        out[base[s] : base[s + 1]] = shard.table([name]).column(name).to_numpy()
    return out


def code_labels(y: ArrayLike | None, n_samples: int) -> tuple[NDArray[Any], NDArray[np.int32] | pa.ListArray]:
    """Return the classes of labels, as `Dataset.from_arrays` takes them, and the codes of the samples."""
    if y is None:
        return np.empty(0, np.int64), np.full(n_samples, -1, np.int32)
    labels: Any = y if hasattr(y, "tocsr") else np.asarray(plain_labels(y))
    if labels.ndim == 2 and labels.shape[0] == n_samples and labels.shape[1] > 0:
        return np.arange(labels.shape[1]), column_of_indicator(labels)
    if labels.shape != (n_samples,):
        said = f"y has the shape {labels.shape}, but X has {n_samples} rows"
        raise DataError(said, "give one label, or one row of 0 and 1, for each row")
    classes, codes = np.unique(labels, return_inverse=True)
    return classes, codes.astype(np.int32)
