"""The linear model: features with non-zero weights, and a weight for each class."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import scipy
from numpy.typing import NDArray

from bigmc.errors import ModelError
from bigmc.model.archive import DEFLATED_VERSION
from bigmc.model.base import Model
from bigmc.model.calibration import Calibration
from bigmc.model.linear_scoring import SCRATCH, LinearScorer, lookup_bytes
from bigmc.model.rounding import multiples_of, weights_of
from bigmc.store.files.npy import ArraySize

if TYPE_CHECKING:
    from bigmc.store.dataset import Dataset

_WEIGHTS_AT_ONCE = 1 << 18
"""Weights copied at a time."""


@dataclass(frozen=True, eq=False)
class LinearModel(Model):
    """A linear multiclass model; see `Model` for the fields all kinds have.

    Attributes
    ----------
    features : int64 array of shape (n_nonzero,)
        Features with weight, increasing.
    coef : float32 or float64 array of shape (n_nonzero, n_classes)
        Their weights.
    intercept : float64 array of shape (n_classes,)
    gradient_norms : float32 array of shape (n_features,) or None
        Of a model just trained, so that a training from it can start sooner; not saved.
    step : float32 array of shape (n_classes,) or None
        If the weights of a class are whole multiples of a step (`bigmc.model.rounding`): the model is
        saved with a byte or less for each weight.
    """

    features: NDArray[np.int64]
    coef: NDArray[Any]
    intercept: NDArray[np.float64]
    gradient_norms: NDArray[np.float32] | None = None
    step: NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "features", np.asarray(self.features, np.int64))
        object.__setattr__(self, "intercept", np.asarray(self.intercept, np.float64))
        super().__post_init__()

    def validate(self) -> None:
        """Raise `ModelError` for weights of another shape or type, or not finite."""
        super().validate()
        if self.coef.dtype not in (np.float32, np.float64):
            raise ModelError(f"the weights of a model are float32 or float64, not {self.coef.dtype}")
        n_features, n_classes = len(self.features), self.n_classes
        if self.coef.shape != (n_features, n_classes) or self.intercept.shape != (n_classes,):
            raise ModelError(
                f"weights of shape {self.coef.shape} and intercepts of shape {self.intercept.shape} do not "
                f"fit {n_features} features and {n_classes} classes"
            )
        if not (_all_finite(self.coef) and np.isfinite(self.intercept).all()):
            raise ModelError("the weights of the model are not finite", "check the data for huge values")
        if self.step is not None and (self.step.shape != (n_classes,) or not np.all(self.step > 0)):
            raise ModelError(f"steps of the weights of shape {self.step.shape}, or not above 0")

    @property
    def format_version(self) -> int:
        """Version of the file format: rounded weights are deflated."""
        return super().format_version if self.step is None else DEFLATED_VERSION

    def certificate_notes(self) -> tuple[str, ...]:
        """Return that the certificate is of other weights, if classes were scaled after the training."""
        if "class_scales" not in self.params:
            return ()
        return (
            "Each class has a factor and an offset, fitted on held-out rows after training: objective and "
            "certificate are those of the weights before these.",
        )

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return features, weights (those not rounded as non-zeros if that is smaller) and intercepts."""
        arrays = {"features": self.features, "intercept": self.intercept}
        if self.step is not None:
            return arrays | {"coef_multiples": multiples_of(self.coef, self.step), "coef_step": self.step}
        sizes = self._sizes()
        if "coef" in sizes:
            return arrays | {"coef": self.coef}
        sparse = {name: np.empty(*size) for name, size in sizes.items() if name not in arrays}
        _put_non_zero(self.coef, sparse["coef_values"], sparse["coef_classes"], sparse["coef_ends"])
        return arrays | sparse

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], **record: Any) -> Self:
        """Return the model of `to_arrays` and the fields that all kinds have."""
        features, intercept = arrays["features"], arrays["intercept"]
        if features.dtype.kind not in "iu" or intercept.dtype.kind != "f":
            raise ModelError(f"features of type {features.dtype}, intercepts of type {intercept.dtype}")
        step = arrays.get("coef_step")
        if step is not None:
            multiples = arrays["coef_multiples"]
            if multiples.dtype != np.int8 or step.dtype != np.float32:
                raise ModelError(f"multiples of type {multiples.dtype} of steps of type {step.dtype}")
            coef = weights_of(multiples, step)
            return cls(**record, features=features, coef=coef, intercept=intercept, step=step)
        if "coef" in arrays:
            coef = arrays["coef"]
        else:
            values, classes, ends = (arrays[f"coef_{name}"] for name in ("values", "classes", "ends"))
            coef = _dense(values, classes, ends, (len(features), len(intercept)))
        return cls(**record, features=features, coef=coef, intercept=intercept)

    def _sizes(self) -> dict[str, ArraySize]:
        """Return the sizes of the arrays of `to_arrays`.

        They are computed without making the arrays: the non-zeros of a large model would take several
        times its size.
        """
        sizes = {"features": ArraySize.of(self.features), "intercept": ArraySize.of(self.intercept)}
        if self.step is not None:
            multiples = ArraySize(self.coef.shape, np.dtype(np.int8))
            return sizes | {"coef_multiples": multiples, "coef_step": ArraySize.of(self.step)}
        entries, rows = (int(np.count_nonzero(self.coef)),), (len(self.coef),)
        sparse = {
            "coef_values": ArraySize(entries, self.coef.dtype),
            "coef_classes": ArraySize(entries, np.min_scalar_type(self.n_classes)),
            "coef_ends": ArraySize(rows, np.dtype(np.int64)),
        }
        smaller = sum(size.nbytes for size in sparse.values()) < self.coef.nbytes
        return sizes | (sparse if smaller else {"coef": ArraySize.of(self.coef)})

    @classmethod
    def bytes_of(cls, sizes: Mapping[str, ArraySize], n_features: int) -> int:
        """Return the bytes of the arrays, of the weights with their zeros, and of the lookup of features."""
        n_bytes = super().bytes_of(sizes, n_features) + lookup_bytes(n_features)
        if "coef" in sizes:
            return n_bytes
        weights = sizes["coef_values"].dtype.itemsize if "coef_values" in sizes else 4
        return n_bytes + weights * math.prod(sizes["features"].shape) * math.prod(sizes["intercept"].shape)

    @classmethod
    def unpacked_bytes(cls, sizes: Mapping[str, ArraySize]) -> int:
        """Return also the bytes of the non-zero weights, or their multiples, that are unpacked."""
        packed = ("coef_values", "coef_classes", "coef_ends", "coef_multiples")
        return super().unpacked_bytes(sizes) + sum(sizes[name].nbytes for name in packed if name in sizes)

    @property
    def used_features(self) -> NDArray[np.int64]:
        """Features with weight, increasing."""
        return self.features

    def with_scaled_classes(self, factors: Sequence[float], offsets: Sequence[float]) -> Self:
        """Return the model whose scores of each class are multiplied by a factor, with an offset added.

        Rounded weights stay whole multiples of a step. Objective and certificate stay those of the weights
        as they were trained.
        """
        scale = np.array(factors)
        intercept = self.intercept * scale + np.array(offsets)
        if self.step is None:
            coef = self.coef * scale.astype(self.coef.dtype)
            return replace(self, coef=coef, intercept=intercept, gradient_norms=None)
        step = (self.step * scale).astype(np.float32)
        coef = weights_of(multiples_of(self.coef, self.step), step)
        return replace(self, coef=coef, intercept=intercept, step=step, gradient_norms=None)

    def class_weights(self, c: int) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Return the features with weight and their weights for class number `c`."""
        return self.features, self.coef[:, c]

    def weights(self) -> scipy.sparse.csr_array:
        """Return the weights of all features, shape (n_classes, n_features)."""
        rows, classes = np.nonzero(self.coef)
        entries = self.coef[rows, classes], (classes, self.features[rows])
        return scipy.sparse.csr_array(entries, (self.n_classes, self.n_features))

    @property
    def calibration_of_scores(self) -> Calibration | None:
        """How scores become probabilities: for the logistic loss its own model, the softmax, by default."""
        if self.calibration is None and self.params.get("loss") == "log_loss":
            return Calibration()
        return self.calibration

    def make_scorer(self) -> LinearScorer:
        """Return the scorer, which multiplies samples by the weights."""
        return LinearScorer(
            self.features,
            self.coef,
            self.intercept,
            self.n_features,
            self.weighting,
            self.column_scale,
            self.step,
        )

    def class_figures(self, c: int) -> dict[str, float]:
        """Return the intercept of class number `c`."""
        return {"intercept": float(self.intercept[c])}

    def figures(self) -> dict[str, float]:
        """Return the number of non-zero weights."""
        return super().figures() | {"nnz": int(np.count_nonzero(self.coef))}

    def shard_tiles(
        self, dataset: Dataset, shard: int, scratch_bytes: int = SCRATCH
    ) -> Iterator[tuple[int, NDArray[np.float64]]]:
        """Yield the scores of a shard for as many classes at a time as fit into `scratch_bytes`."""
        return self.make_scorer().tiles(dataset.shards[shard], scratch_bytes)


def _all_finite(coef: NDArray[Any]) -> bool:
    """Return whether all weights are finite; checks some rows at a time, in little memory."""
    step = _rows_at_once(coef.shape)
    return all(bool(np.isfinite(coef[lo : lo + step]).all()) for lo in range(0, len(coef), step))


def _put_non_zero(
    coef: NDArray[Any], values: NDArray[Any], classes: NDArray[Any], ends: NDArray[np.int64]
) -> None:
    """Write the non-zero weights, row after row, their classes, and the end of each row."""
    step, done = _rows_at_once(coef.shape), 0
    for lo in range(0, len(coef), step):
        some = coef[lo : lo + step]
        rows, columns = np.nonzero(some)
        stop = done + len(rows)
        values[done:stop], classes[done:stop] = some[rows, columns], columns
        ends[lo : lo + step] = done + np.cumsum(np.bincount(rows, minlength=len(some)))
        done = stop


def _dense(
    values: NDArray[Any], classes: NDArray[Any], ends: NDArray[Any], shape: tuple[int, int]
) -> NDArray[Any]:
    """Return the weights of a shape whose non-zero have these classes; row ``i`` ends at ``ends[i]``."""
    if len(ends) != shape[0] or len(values) != len(classes) or (len(ends) and ends[-1] != len(values)):
        raise ModelError(f"{len(values)} weights in {len(ends)} rows for {shape[0]} features")
    coef = np.zeros(shape, values.dtype)
    counts, step = np.diff(ends, prepend=0), _rows_at_once(shape)
    for lo in range(0, shape[0], step):
        sizes = counts[lo : lo + step]
        first, rows = int(ends[lo] - counts[lo]), np.repeat(np.arange(lo, lo + len(sizes)), sizes)
        coef[rows, classes[first : first + len(rows)]] = values[first : first + len(rows)]
    return coef


def _rows_at_once(shape: tuple[int, ...]) -> int:
    """Return the number of rows of weights to process at once."""
    return max(1, _WEIGHTS_AT_ONCE // max(1, shape[1] if len(shape) > 1 else 1))
