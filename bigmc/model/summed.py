"""A weighted sum of the scores of models of one dataset, with weights fitted on held-out rows.

A linear model combines thousands of words; trees find interactions of few columns. If a
table has both, their errors differ, and the sum errs less than either. The weights are not negative
(Breiman, "Stacked regressions", Machine Learning 24, 1996, section 3).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bigmc.errors import ModelError
from bigmc.model.base import Model
from bigmc.model.linear_scoring import SCRATCH, Scorer
from bigmc.model.plain import as_json
from bigmc.store.files.npy import ArraySize
from bigmc.store.shards.csr import Rows
from bigmc.store.shards.shard import Shard
from bigmc.store.weighting import Weighting

KIND = "sum"


@dataclass(frozen=True, eq=False)
class SumModel(Model):
    """A weighted sum of the scores of other models; see `Model` for the fields all kinds have.

    There is at least one part; the parts have the same classes and features, and none is a sum. Weights
    are not negative. Every part weights raw values in its own way, so the sum itself has no weighting.
    """

    parts: tuple[Model, ...]
    part_weights: NDArray[np.float64]

    @classmethod
    def of(cls, parts: Sequence[Model], part_weights: NDArray[np.float64]) -> Self:
        """Return the sum of trained models; it has no certificate."""
        first = parts[0]
        return cls(
            KIND,
            first.classes,
            first.n_features,
            feature_spec=first.feature_spec,
            certificate={"lower": -math.inf, "upper": math.inf, "gap": math.inf},
            params={"weighting": [part.weighting.name for part in parts]},
            n_iter=sum(part.n_iter for part in parts),
            n_passes=sum(part.n_passes for part in parts),
            parts=tuple(replace(part, names=None, label_source=None) for part in parts),
            part_weights=part_weights,
        )

    def validate(self) -> None:
        """Raise `ModelError` for parts with other classes or features, sums of sums, and invalid weights."""
        parts, weights = self.parts, self.part_weights
        if not parts or weights.shape != (len(parts),) or weights.dtype != np.float64:
            raise ModelError(f"weights of shape {weights.shape} for {len(parts)} models")
        if not (np.isfinite(weights).all() and (weights >= 0).all()):
            raise ModelError("the weights of the models are not finite or negative", "train again")
        if any(isinstance(part, SumModel) for part in parts):
            raise ModelError("a part of a sum of models is itself a sum", "give its parts instead")
        for part in parts:
            if part.n_features != self.n_features or part.classes.tolist() != self.classes.tolist():
                raise ModelError("the models of the sum have different classes or features", "train again")
        if self.weighting != Weighting():
            raise ModelError("a sum of models has no weighting of its own", "train again")
        super().validate()

    def header(self) -> dict[str, Any]:
        """Return the header, with those of the parts in it."""
        shared = ("feature_spec", "n_features")
        own = [{k: v for k, v in part.header().items() if k not in shared} for part in self.parts]
        return super().header() | {"parts": own}

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the weights, and the arrays of every part after its number."""
        arrays: dict[str, NDArray[Any]] = {"part_weights": self.part_weights}
        for number, part in enumerate(self.parts):
            own = part.stored_arrays()
            del own["classes"]
            arrays |= {f"{part_prefix(number)}{name}": array for name, array in own.items()}
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], **record: Any) -> Self:
        """Return the model of `to_arrays`, the fields that all kinds have, and its parts."""
        return cls(**record, part_weights=arrays["part_weights"])

    @classmethod
    def bytes_of(cls, sizes: Mapping[str, ArraySize], n_features: int) -> int:
        """Return the bytes of the sum itself; those of its parts come from their kinds."""
        own = {name: size for name, size in sizes.items() if not name.startswith(_PREFIX)}
        return super().bytes_of(own, n_features)

    @property
    def nbytes(self) -> int:
        """Bytes in memory while the model is opened, with its parts."""
        return super().nbytes + sum(part.nbytes for part in self.parts)

    @property
    def kept_bytes(self) -> int:
        """Bytes in memory while the model is used, with its parts."""
        unpacked = sum(part.nbytes - part.kept_bytes for part in self.parts)
        return super().kept_bytes - unpacked

    @property
    def format_version(self) -> int:
        """Version of the file format: the latest that a part needs."""
        return max(part.format_version for part in self.parts)

    @property
    def used_features(self) -> NDArray[np.int64]:
        """Features used by any part, increasing."""
        return np.unique(np.concatenate([part.used_features for part in self.parts]))

    def class_weights(self, c: int) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Return features and the weighted sum of their weights in the parts for class number `c`."""
        used = self.used_features
        total = np.zeros(len(used))
        for part, weight in self._weighted():
            features, own = part.class_weights(c)
            total[np.searchsorted(used, features)] += weight * own
        return used, total

    def make_scorer(self) -> SumScorer:
        """Return the scorer, which adds up the scores of the parts."""
        return SumScorer([part.scorer for part in self.parts], self.part_weights, self.n_classes)

    def class_figures(self, c: int) -> dict[str, float]:
        """Return the weighted sums of the parts' figures, such as the intercept, of class number `c`."""
        figures: dict[str, float] = {}
        for part, weight in self._weighted():
            for name, value in part.class_figures(c).items():
                figures[name] = figures.get(name, 0.0) + weight * value
        return figures

    def figures(self) -> dict[str, float]:
        """Return the weight of each part."""
        weights = {f"weight_of_{part.kind}": float(weight) for part, weight in self._weighted()}
        return super().figures() | weights

    def info(self) -> Mapping[str, Any]:
        """Return an overview of the model and of each part, as JSON data."""
        names = ("kind", "n_nonzero_features", "weighting", "params", "objective", "certificate")
        parts = [{name: part.info()[name] for name in names} | part.figures() for part in self.parts]
        return {**super().info(), "parts": as_json(parts)}

    def certificate_notes(self) -> tuple[str, ...]:
        """Return the certificates of the parts."""
        notes = ["The model is a sum of models, whose weights were chosen on held-out rows."]
        for part, weight in self._weighted():
            gap = part.certificate.get("gap", math.inf)
            certified = (
                f"training is within a gap of {gap:.2g}" if math.isfinite(gap) else "nothing is certified"
            )
            notes.append(f"Of the part “{part.kind}”, of weight {weight:.3g}, {certified}.")
        return tuple(notes)

    def _weighted(self) -> Iterator[tuple[Model, float]]:
        return zip(self.parts, self.part_weights.tolist(), strict=True)


_PREFIX = "part"


def part_prefix(number: int) -> str:
    """Return the prefix of the names of the arrays of a part in the file of a sum."""
    return f"{_PREFIX}{number}."


class SumScorer(Scorer):
    """Adds up the scores of other scorers, each multiplied by a weight."""

    def __init__(self, scorers: Sequence[Scorer], weights: NDArray[np.float64], n_classes: int) -> None:
        self._scorers, self._weights, self.n_classes = scorers, weights, n_classes

    def rows(self, rows: Rows) -> NDArray[np.float64]:
        """Return the scores of raw samples, shape (n_rows, n_classes)."""
        return self._sum(lambda scorer: scorer.rows(rows), (rows.n_rows, self.n_classes))

    def shard(self, shard: Shard, scratch_bytes: int = SCRATCH) -> NDArray[np.float64]:
        """Return the scores of a stored shard, shape (n_rows, n_classes), as `Scorer.shard`."""
        scores = np.empty((shard.n_rows, self.n_classes))
        # a quarter each for the sum and one part
        width = max(1, scratch_bytes // 4 // (8 * max(shard.n_rows, 1)))
        for lo in range(0, self.n_classes, width):
            hi = min(lo + width, self.n_classes)
            scores[:, lo:hi] = self.class_scores(shard, lo, hi, scratch_bytes // 2)
        return scores

    def class_scores(self, shard: Shard, lo: int, hi: int, scratch_bytes: int) -> NDArray[np.float64]:
        """Return the scores of the classes ``lo`` to ``hi``, using `scratch_bytes` and two such arrays."""
        shape = (shard.n_rows, hi - lo)
        return self._sum(lambda scorer: scorer.class_scores(shard, lo, hi, scratch_bytes), shape)

    def _sum(
        self, scores_of: Callable[[Scorer], NDArray[np.float64]], shape: tuple[int, int]
    ) -> NDArray[np.float64]:
        total = np.zeros(shape)
        for scorer, weight in zip(self._scorers, self._weights, strict=True):
            own = scores_of(scorer)
            own *= weight
            total += own
        return total
