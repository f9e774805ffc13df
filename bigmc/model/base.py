"""Base class of all models: results of a training that score samples."""

from __future__ import annotations

import math
import os
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigmc.errors import ModelError
from bigmc.model.archive import DEFLATION, FORMAT_VERSION, write_archive
from bigmc.model.calibration import SIGMOID, Calibration
from bigmc.model.compare_features import comparable, describe_differences, weighting_name
from bigmc.model.feature_names import names_of, names_to_arrays
from bigmc.model.linear_scoring import SCRATCH, Scorer
from bigmc.model.outline import ModelOutline
from bigmc.model.plain import as_json, label_array
from bigmc.model.sized import Sized
from bigmc.store.label_source import LabelSource
from bigmc.store.shards.csr import Rows
from bigmc.store.shards.label_sets import set_column
from bigmc.store.weighting import Weighting

if TYPE_CHECKING:
    from bigmc.store.dataset import Dataset


@dataclass(frozen=True, eq=False)
class Model(Sized):
    """A multiclass model: what is common to all kinds.

    A kind is a subclass with fields of its own, entered in `bigmc.model.registry.KINDS`. It converts them
    to arrays and back (`to_arrays`, `from_arrays`), lists the features it uses (`used_features`) and
    their weights (`class_weights`), makes what computes scores (`make_scorer`), and extends `validate`. A
    kind whose certificate is not of the training objective says so (`objective_name`, `gap_is_relative`,
    `certificate_notes`). Its fields come after those of this class and may be positional; it converts
    them before it calls `__post_init__` of this class, which raises `ModelError` if the parts do not fit
    together.

    Attributes
    ----------
    kind : str
        The learner, such as ``"sparse"``.
    classes : array of shape (n_classes,)
        Original labels: integers, strings, booleans or floats.
    n_features : int
        Features of the data, used or not.
    weighting : Weighting
        How raw values are weighted before they are scored.
    column_scale : float32 array of shape (n_features,) or None
        The scale of each column over the training samples; None if the weighting has none.
    feature_spec : dict
        Description of the features, such as the parameters of the hashing; empty for plain arrays.
    params : dict
        Parameters of the training.
    certificate : dict
        ``lower`` and ``upper`` bound of the optimum and their ``gap``.
    objective : float
        Value of the training objective.
    n_passes : float
        Entries read in the training, in units of all entries.
    history : tuple of dict
        Figures of every pass, without times: equal runs give equal models.
    names : pyarrow.Table or None
        Known names of used features: ``bucket``, ``name``, ``sign`` and ``count``; at most
        `bigmc.model.feature_names.NAMES_PER_FEATURE` of each feature.
    label_source : LabelSource or None
        The column of the training data that had the labels; None for arrays and models of older versions.
    label_threshold : float, tuple of float, or None
        For label sets: the score above which a class is a label; a tuple has one for each class.
    calibration : Calibration or None
        How scores become probabilities, fitted on rows that training did not see.
    takes_missing : bool
        Whether NaN has a meaning for models of this kind (class attribute).
    objective_name : str
        Quantity whose optimum the certificate bounds (class attribute).
    gap_is_relative : bool
        Whether the gap is a share of the upper bound, not a difference (class attribute).
    """

    takes_missing: ClassVar[bool] = False
    objective_name: ClassVar[str] = "training objective"
    gap_is_relative: ClassVar[bool] = True

    kind: str
    classes: NDArray[Any]
    n_features: int
    _: KW_ONLY
    weighting: Weighting = Weighting()  # noqa: RUF009 (frozen)
    column_scale: NDArray[np.float32] | None = None
    feature_spec: Mapping[str, Any] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)
    certificate: Mapping[str, float] = field(default_factory=dict)
    objective: float = math.nan
    n_iter: int = 0
    n_passes: float = 0
    history: Sequence[Mapping[str, Any]] = ()
    names: pa.Table | None = None
    label_source: LabelSource | None = None
    label_threshold: float | tuple[float, ...] | None = None
    calibration: Calibration | None = None

    def __post_init__(self) -> None:
        set_field = object.__setattr__  # the dataclass is frozen from here on
        set_field(self, "classes", label_array(self.classes))
        # As they are after JSON, so that a saved and loaded model is the same model.
        for name in ("feature_spec", "params", "history"):
            set_field(self, name, as_json(getattr(self, name)))
        set_field(self, "certificate", {k: float(v) for k, v in self.certificate.items()})
        set_field(self, "objective", float(self.objective))
        if self.names is not None:
            set_field(self, "names", names_of(self.used_features, self.names))
        self.validate()

    def validate(self) -> None:
        """Raise `ModelError` if parts do not fit together; a kind adds checks of its own fields."""
        features = self.used_features
        if self.n_classes < 2 or len(set(self.classes.tolist())) < self.n_classes:
            raise ModelError(f"a model needs at least 2 different classes, not {self.classes.tolist()}")
        if features.ndim != 1 or np.any(np.diff(features) <= 0):
            raise ModelError("the features of a model must be increasing")
        if len(features) and not 0 <= features[0] <= features[-1] < self.n_features:
            raise ModelError(f"the model uses features outside 0 to {self.n_features - 1}")
        if self.weighting.scales_columns != (self.column_scale is not None):
            raise ModelError("a model has a column scale exactly if its weighting scales columns")
        if self.label_threshold is not None:
            thresholds = np.atleast_1d(self.label_threshold)
            if not np.isfinite(thresholds).all():
                raise ModelError("a threshold of the scores is not finite", "train again")
            if isinstance(self.label_threshold, tuple) and len(thresholds) != self.n_classes:
                raise ModelError(f"{len(thresholds)} thresholds for {self.n_classes} classes", "train again")
        scale = self.column_scale
        if scale is not None and scale.shape != (self.n_features,):
            raise ModelError(f"{scale.shape} column scales for {self.n_features} features")
        if scale is not None and scale.dtype.kind != "f":
            raise ModelError(f"column scales of type {scale.dtype}")
        if scale is not None and not np.isfinite([scale.min(), scale.max()]).all():
            raise ModelError("a column scale is not finite", "train again")

    @classmethod
    @abstractmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], **record: Any) -> Self:
        """Return the model of the arrays of an archive and the fields that all kinds have.

        `KeyError` if an array is missing, `ModelError` if the parts do not fit together.
        """

    @property
    @abstractmethod
    def used_features(self) -> NDArray[np.int64]:
        """Features with influence, increasing; only these are read to score a shard, and keep names."""

    @abstractmethod
    def class_weights(self, c: int) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Return the features with weight for class number `c`, and their weights."""

    @abstractmethod
    def make_scorer(self) -> Scorer:
        """Return the object that computes the scores."""

    def class_figures(self, c: int) -> dict[str, float]:
        """Return further figures of class number `c`, such as its intercept."""
        return {}

    def figures(self) -> dict[str, float]:
        """Return further figures of the model."""
        thresholds = self.label_threshold
        if isinstance(thresholds, tuple):
            return {"least_label_threshold": min(thresholds), "largest_label_threshold": max(thresholds)}
        return {} if thresholds is None else {"label_threshold": thresholds}

    def certificate_notes(self) -> tuple[str, ...]:
        """Return sentences on what else the certificate says about such a model, and what it does not."""
        return ()

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields without the scorer, which is built again when needed."""
        return {name: value for name, value in self.__dict__.items() if name != "scorer"}

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.classes)

    def codes_of(self, labels: NDArray[Any]) -> NDArray[np.int64]:
        """Return the code of each label, -1 where it is not a class of the model."""
        code = {label: c for c, label in enumerate(self.classes.tolist())}
        return np.array([code.get(label, -1) for label in labels.tolist()], np.int64)

    @cached_property
    def scorer(self) -> Scorer:
        """Computes the scores; made once, since it may keep tables."""
        return self.make_scorer()

    def scores(self, rows: Rows) -> NDArray[np.float64]:
        """Return the scores of raw samples, shape (n_rows, n_classes).

        `rows` holds the values from hashing or a reader, which are weighted here. `DataError` if the
        samples have another number of features.
        """
        return self.scorer.rows(rows)

    def shard_scores(self, dataset: Dataset, shard: int, scratch_bytes: int = SCRATCH) -> NDArray[np.float64]:
        """Return the scores of shard number `shard` of a dataset, shape (n_rows, n_classes).

        Reads only the columns of used features, and all of them once more if the weighting needs
        norms of idf-weighted samples; uses at most `scratch_bytes`, excluding the scores.
        """
        return self.scorer.shard(dataset.shards[shard], scratch_bytes)

    def dataset_scores(self, dataset: Dataset) -> NDArray[np.float64]:
        """Return the scores of all samples of a dataset, shape (n_samples, n_classes)."""
        scores = np.empty((dataset.n_samples, self.n_classes))
        for shard, (lo, hi) in enumerate(pairwise(dataset.base)):
            scores[lo:hi] = self.shard_scores(dataset, shard)
        return scores

    def shard_codes(self, dataset: Dataset, shard: int, scratch_bytes: int = SCRATCH) -> NDArray[np.int32]:
        """Return the predicted class code of every row of a shard, using at most `scratch_bytes`."""
        return self.scorer.shard_codes(dataset.shards[shard], scratch_bytes)

    def shard_tiles(
        self, dataset: Dataset, shard: int, scratch_bytes: int = SCRATCH
    ) -> Iterator[tuple[int, NDArray[np.float64]]]:
        """Yield scores of a shard, each after the code of their first class; by default all at once."""
        yield 0, self.shard_scores(dataset, shard, scratch_bytes)

    def shard_sets(self, dataset: Dataset, shard: int, scratch_bytes: int = SCRATCH) -> pa.ListArray:
        """Return the codes of the predicted set of labels of every row of a shard."""
        rows, codes = [np.empty(0, np.intp)], [np.empty(0, np.intp)]
        for lo, scores in self.shard_tiles(dataset, shard, scratch_bytes):
            tile_rows, columns = self._above(scores, lo)
            rows.append(tile_rows)
            codes.append(columns + lo)
        return set_column(np.concatenate(rows), np.concatenate(codes), dataset.shards[shard].n_rows)

    def sets(self, scores: NDArray[np.float64]) -> pa.ListArray:
        """Return the codes of the set of labels of each row of scores, shape (n_rows, n_classes)."""
        rows, codes = self._above(scores)
        return set_column(rows, codes, len(scores))

    def _above(self, scores: NDArray[np.float64], first: int = 0) -> tuple[NDArray[np.intp], ...]:
        """Return rows and columns of the scores, of the classes from `first` on, above the threshold."""
        assert self.label_threshold is not None
        threshold = np.asarray(self.label_threshold)
        own = threshold[first : first + scores.shape[1]] if threshold.ndim else threshold
        return np.nonzero(scores > own)

    @property
    def format_version(self) -> int:
        """Version of the file format it is saved in."""
        return FORMAT_VERSION

    @property
    def calibration_of_scores(self) -> Calibration | None:
        """How scores become probabilities, if they do."""
        return self.calibration

    @property
    def has_probabilities(self) -> bool:
        """Whether scores can be turned into probabilities."""
        return self.calibration_of_scores is not None

    def check_probabilities(self) -> None:
        """Raise `ModelError`, with ways to get them, if the model has no probabilities."""
        if not self.has_probabilities:
            sets = self.label_threshold is not None
            with_them = "--calibrate" if sets else "--calibrate or the loss log_loss"
            raise ModelError(
                "this model has no probabilities, because its scores are not calibrated",
                f"train with {with_them}, use bigmc fit, or calibrate it on other rows",
            )

    def probabilities(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the probability of every class, shape (n_rows, n_classes), for scores of that shape.

        A row adds up to 1; if labels are sets, every class has a probability of its own. `ModelError`
        if the model was not calibrated.
        """
        self.check_probabilities()
        calibration = self.calibration_of_scores
        assert calibration is not None
        if self.label_threshold is not None:
            return calibration.memberships(scores)
        return calibration.probabilities(scores)

    @property
    def outline(self) -> ModelOutline:
        """The facts about the model needed for planning."""
        return ModelOutline(
            self.n_classes,
            self.n_features,
            self.feature_spec,
            self.label_threshold is not None,
            self.takes_missing,
            self.nbytes,
            self.kept_bytes,
            self.label_source,
        )

    def predict(self, scores: NDArray[Any]) -> NDArray[Any]:
        """Return the label of the largest score of each row; the first of the classes on a tie."""
        labels: NDArray[Any] = self.classes[np.argmax(scores, axis=1)]
        return labels

    def check_features(self, dataset: Dataset) -> None:
        """Raise `ModelError`, naming every difference, if a dataset has other features than the model."""
        weighting = self.weighting if "weighting" in self.params else dataset.weighting  # chosen in training
        theirs = comparable(dataset.n_features, weighting, as_json(dataset.features))
        ours = comparable(self.n_features, self.weighting, self.feature_spec)
        differences = describe_differences(ours, theirs)
        if differences:
            raise ModelError(
                "model and dataset have different features: " + ", ".join(differences),
                "ingest the data with the options used for the model",
            )

    def info(self) -> Mapping[str, Any]:
        """Return an overview of the model, as JSON data."""
        return {
            "kind": self.kind,
            "version": self.format_version,
            "n_classes": self.n_classes,
            "n_features": self.n_features,
            "n_nonzero_features": len(self.used_features),
            **self.figures(),
            "classes": self.classes.tolist(),
            "weighting": weighting_name(self.weighting),
            "features": dict(self.feature_spec),
            "label": None if self.label_source is None else self.label_source.column,
            "params": dict(self.params),
            "objective": as_json(self.objective),
            "certificate": as_json(self.certificate),
            "n_iter": self.n_iter,
            "n_passes": self.n_passes,
            "calibration": self._calibration_facts(),
            "n_names": 0 if self.names is None else self.names.num_rows,
        }

    def _calibration_facts(self) -> Mapping[str, Any] | None:
        """Return the calibration as JSON data; for label sets its link is a sigmoid, whatever is stored."""
        if self.calibration is None or self.label_threshold is None:
            return None if self.calibration is None else self.calibration.to_dict()
        return self.calibration.to_dict() | {"link": SIGMOID}

    def save(self, path: str | os.PathLike[str], *, deflation: int = DEFLATION) -> None:
        """Write the model into one file; equal models give equal bytes.

        `deflation` is the level of zlib, for models whose files are deflated. `ModelError` if the
        folder of `path` does not exist.
        """
        write_archive(Path(path), self.header(), self.stored_arrays(), self.format_version, deflation)

    def header(self) -> dict[str, Any]:
        """Return the model's fields other than its arrays, ready for JSON."""
        header = {
            "kind": self.kind,
            "n_features": self.n_features,
            "weighting": self.weighting.to_dict(),
            "feature_spec": self.feature_spec,
            "params": self.params,
            # Bounds may be infinite, which JSON has no number for.
            "certificate": {name: repr(value) for name, value in self.certificate.items()},
            "objective": repr(self.objective),
            "n_iter": self.n_iter,
            "n_passes": self.n_passes,
            "history": self.history,
        }
        if self.label_source is not None:
            header["label_source"] = self.label_source.to_dict()
        if self.label_threshold is not None:
            header["label_threshold"] = self.label_threshold
        if self.calibration is not None:
            header["calibration"] = self.calibration.to_dict()
        return header

    def stored_arrays(self) -> dict[str, NDArray[Any]]:
        """Return all arrays of the file."""
        arrays = {"classes": self.classes, **self.to_arrays()}
        if self.column_scale is not None:
            arrays["column_scale"] = self.column_scale
        if self.names is not None:
            arrays |= names_to_arrays(self.names)
        return arrays
