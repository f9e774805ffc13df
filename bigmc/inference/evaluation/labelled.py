"""The interface of labelled samples for evaluation, and its implementation for datasets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigmc.engine import Engine, Resources
from bigmc.errors import DataError
from bigmc.inference.memory import divide, divide_limit, own_copy
from bigmc.model import Model, ModelOutline
from bigmc.store.dataset import Dataset
from bigmc.store.sample import group_hashes, is_drawn

TASK = "evaluation"
"""Name of evaluation in messages about memory."""

ROW_COST = 64
"""Bytes of a row while its shard is scored: labels, codes, best score and group, and pairs being sorted."""

SET_COST = 192
"""Bytes of a row's label sets: about four true and four predicted labels, as pairs, sorted and merged."""

_MOVED_AT_ONCE = 1024

Workers = tuple[Engine, int]
"""The engine with as many workers as memory allows, and the bytes of each."""


class LabelledPart(Protocol):
    """Some samples: their labels and predictions, each computed when used."""

    @property
    def labels(self) -> pa.ChunkedArray:
        """Codes among the classes of the samples: int32, or lists of them."""

    def codes(self) -> NDArray[np.int32]:
        """Return the predicted class of every row."""

    def scores(self) -> NDArray[np.float64]:
        """Return the scores, shape (n_rows, n_classes)."""

    def groups(self) -> NDArray[np.int64] | None:
        """Return a hash of the group of every row; None without groups."""

    def sets(self) -> pa.ListArray:
        """Return the codes of the predicted set of labels of every row."""

    def tiles(self) -> Iterator[tuple[int, NDArray[np.float64]]]:
        """Yield the first of some classes, and the scores of these classes."""


class LabelledInput(Protocol):
    """Labelled samples for an evaluation, part by part, on any worker."""

    @property
    def classes(self) -> NDArray[Any]:
        """The labels that occur, by code."""

    @property
    def has_sets(self) -> bool:
        """Whether labels are sets."""

    @property
    def ends(self) -> NDArray[np.int64]:
        """Number of rows up to the end of each part."""

    def check(self, model: Model) -> None:
        """Raise an error if the model has other features."""

    def workers(self, model: ModelOutline, resources: Resources) -> Workers:
        """Return the workers for predicted labels; raise `MemoryLimitError` if none fits."""

    def scoring_workers(self, model: ModelOutline, resources: Resources) -> Workers:
        """Return the workers for labels and probabilities; raise `MemoryLimitError` if none fits."""

    def part(self, number: int, model: Model, scratch_bytes: int) -> LabelledPart:
        """Return a part, using at most `scratch_bytes` besides the model."""


@dataclass(frozen=True)
class LabelledDataset:
    """The samples of a dataset; a part is a shard."""

    dataset: Dataset

    @property
    def classes(self) -> NDArray[Any]:
        """The classes of the dataset."""
        return self.dataset.classes

    @property
    def has_sets(self) -> bool:
        """Whether labels are sets."""
        return self.dataset.has_sets

    @property
    def ends(self) -> NDArray[np.int64]:
        """Number of samples up to the end of each shard."""
        return self.dataset.base[1:]

    def check(self, model: Model) -> None:
        """Raise an error if the model has other features."""
        model.check_features(self.dataset)

    def workers(self, model: ModelOutline, resources: Resources) -> Workers:
        """Return the workers that a shard of the most rows allows."""
        cost = ROW_COST + (SET_COST if model.has_sets else 0)
        return divide_limit(model, resources, cost * self._most_rows, TASK)

    def scoring_workers(self, model: ModelOutline, resources: Resources) -> Workers:
        """Return the workers that the scores of such a shard allow."""
        engine = resources.engine
        limit = resources.memory_limit - own_copy(model, engine)
        scores = 8 * model.n_classes * self._most_rows
        n_threads, scratch = divide(model, limit, engine.n_threads, scores, "probabilities")
        return engine.at_most(n_threads), scratch

    def part(self, number: int, model: Model, scratch_bytes: int) -> LabelledPart:
        """Return a shard."""
        return _LabelledShard(self.dataset, number, model, scratch_bytes)

    @property
    def _most_rows(self) -> int:
        return max((shard.n_rows for shard in self.dataset.shards), default=0)


@dataclass(frozen=True)
class _LabelledShard:
    dataset: Dataset
    number: int
    model: Model
    scratch_bytes: int

    @property
    def labels(self) -> pa.ChunkedArray:
        column = self.dataset.shards[self.number].table(["label"]).column("label")
        if not self.dataset.has_sets and len(column) and np.asarray(column).min() < 0:
            raise DataError("some samples have no label", "evaluate on a dataset ingested with its labels")
        return column

    def codes(self) -> NDArray[np.int32]:
        return self.model.shard_codes(self.dataset, self.number, self.scratch_bytes)

    def scores(self) -> NDArray[np.float64]:
        return self.model.shard_scores(self.dataset, self.number, self.scratch_bytes)

    def groups(self) -> NDArray[np.int64] | None:
        return group_hashes(self.dataset.shards[self.number])

    def sets(self) -> pa.ListArray:
        return self.model.shard_sets(self.dataset, self.number, self.scratch_bytes)

    def tiles(self) -> Iterator[tuple[int, NDArray[np.float64]]]:
        return self.model.shard_tiles(self.dataset, self.number, self.scratch_bytes)


@dataclass(frozen=True)
class UndrawnRows(LabelledDataset):
    """The samples of a dataset but those that `draw_rows` draws of it, by the same share and seed."""

    share: float
    seed: int

    @cached_property
    def ends(self) -> NDArray[np.int64]:
        """Number of samples up to the end of each shard."""
        counts = [np.count_nonzero(~is_drawn(s, self.share, self.seed)) for s in self.dataset.shards]
        return np.cumsum(counts, dtype=np.int64)

    def part(self, number: int, model: Model, scratch_bytes: int) -> LabelledPart:
        """Return these samples of a shard."""
        undrawn = np.flatnonzero(~is_drawn(self.dataset.shards[number], self.share, self.seed))
        return _SomeRows(super().part(number, model, scratch_bytes), undrawn)


@dataclass(frozen=True)
class _SomeRows:
    whole: LabelledPart
    rows: NDArray[np.int64]

    @property
    def labels(self) -> pa.ChunkedArray:
        return self.whole.labels.take(pa.array(self.rows))

    def codes(self) -> NDArray[np.int32]:
        return self.whole.codes()[self.rows]

    def scores(self) -> NDArray[np.float64]:
        scores = self.whole.scores()
        for lo in range(0, len(self.rows), _MOVED_AT_ONCE):  # in place: a copy may not fit into memory
            some = self.rows[lo : lo + _MOVED_AT_ONCE]
            scores[lo : lo + len(some)] = scores[some]
        return scores[: len(self.rows)]

    def groups(self) -> NDArray[np.int64] | None:
        groups = self.whole.groups()
        return None if groups is None else groups[self.rows]

    def sets(self) -> pa.ListArray:
        return self.whole.sets().take(pa.array(self.rows))

    def tiles(self) -> Iterator[tuple[int, NDArray[np.float64]]]:
        for first, scores in self.whole.tiles():
            yield first, scores[self.rows]
