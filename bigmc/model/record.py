"""The trained model: weights, what its features are, and the proof of how good it is."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigmc.errors import ModelError
from bigmc.model.archive import FORMAT_VERSION, check_archive, read_archive, write_archive
from bigmc.model.scoring import ROOM, LinearScorer
from bigmc.store.rows import Rows
from bigmc.store.weighting import Weighting

if TYPE_CHECKING:
    from bigmc.store.dataset import Dataset

#: Most names kept of one feature, the most frequent ones; more only repeat that hashes collide.
NAMES_PER_FEATURE = 8

_NAME_COLUMNS = {"bucket": pa.int64(), "name": pa.string(), "sign": pa.int8(), "count": pa.int64()}


@dataclass(frozen=True, eq=False)
class Model:
    """A linear multiclass model.

    Attributes
    ----------
    kind : str
        The learner: ``"sparse"``.
    classes : array of shape (n_classes,)
        Original labels: integers, strings, booleans or floats.
    n_features : int
        Features of the data, with weight or without.
    features : int64 array of shape (n_nonzero,)
        Features with weight, increasing.
    coef : float32 or float64 array of shape (n_nonzero, n_classes)
        Their weights.
    intercept : float64 array of shape (n_classes,)
    weighting : Weighting
        How raw values become those the weights are for.
    column_scale : float32 array of shape (n_features,) or None
        The idf of the training samples; None without idf weighting.
    feature_spec : dict
        What the features are, such as the parameters of the hashing; empty for plain arrays.
    params : dict
        Parameters of the training.
    certificate : dict
        ``lower`` and ``upper`` bound of the optimum and their ``gap``.
    objective : float
        Value of the training objective.
    n_iter : int
        Iterations of the training.
    n_passes : float
        Entries read in the training, in units of all entries.
    history : tuple of dict
        Figures of every pass, without times: equal runs give equal models.
    names : pyarrow.Table or None
        Known names of features with weight: ``bucket``, ``name``, ``sign`` and ``count``; at most
        `NAMES_PER_FEATURE` of each feature.

    Raises
    ------
    ModelError
        If the parts do not fit together.
    """

    kind: str
    classes: NDArray[Any]
    n_features: int
    features: NDArray[np.int64]
    coef: NDArray[Any]
    intercept: NDArray[np.float64]
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

    def __post_init__(self) -> None:
        set_field = object.__setattr__  # the dataclass is frozen from here on
        set_field(self, "classes", _label_array(self.classes))
        set_field(self, "features", np.asarray(self.features, np.int64))
        set_field(self, "intercept", np.asarray(self.intercept, np.float64))
        # What JSON makes of them, so that a saved and loaded model is the same model.
        for name in ("feature_spec", "params", "history"):
            set_field(self, name, _plain(getattr(self, name)))
        set_field(self, "certificate", {k: float(v) for k, v in self.certificate.items()})
        set_field(self, "objective", float(self.objective))
        if self.names is not None:
            set_field(self, "names", _names_of(self.features, self.names))
        self._check()

    def _check(self) -> None:
        n_classes = len(self.classes)
        features = self.features
        if n_classes < 2 or len(set(self.classes.tolist())) < n_classes:
            raise ModelError(f"a model needs at least 2 different classes, not {self.classes.tolist()}")
        if features.ndim != 1 or np.any(np.diff(features) <= 0):
            raise ModelError("the features of a model must be increasing")
        if len(features) and not 0 <= features[0] <= features[-1] < self.n_features:
            raise ModelError(f"the model has weights of features outside 0 to {self.n_features - 1}")
        if self.coef.dtype not in (np.float32, np.float64):
            raise ModelError(f"the weights of a model are float32 or float64, not {self.coef.dtype}")
        if self.coef.shape != (len(features), n_classes) or self.intercept.shape != (n_classes,):
            raise ModelError(
                f"weights of shape {self.coef.shape} and intercepts of shape {self.intercept.shape} do not "
                f"fit {len(features)} features and {n_classes} classes"
            )
        if not (np.isfinite(self.coef).all() and np.isfinite(self.intercept).all()):
            raise ModelError("the weights of the model are not finite", "look for huge values in the data")
        if self.weighting.idf != (self.column_scale is not None):
            raise ModelError("a model has a column scale exactly if its weighting has idf")
        if self.column_scale is not None and self.column_scale.shape != (self.n_features,):
            raise ModelError(f"{self.column_scale.shape} column scales for {self.n_features} features")

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields without the lookup table, which is built again where it is needed."""
        return {name: value for name, value in self.__dict__.items() if name != "scorer"}

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.classes)

    @cached_property
    def scorer(self) -> LinearScorer:
        """What computes scores; made once, it keeps a lookup table of 4 bytes per feature."""
        return LinearScorer(
            self.features, self.coef, self.intercept, self.n_features, self.weighting, self.column_scale
        )

    def scores(self, rows: Rows) -> NDArray[np.float64]:
        """Return the scores of raw samples, shape (n_rows, n_classes).

        The model's weighting is applied here: `rows` holds what hashing or a reader gave.

        Raises
        ------
        DataError
            If the samples have another number of features.
        """
        return self.scorer.rows(rows)

    def shard_scores(self, dataset: Dataset, shard: int, room: int = ROOM) -> NDArray[np.float64]:
        """Return the scores of shard number `shard` of a dataset, shape (n_rows, n_classes).

        Reads the columns with weight only, and once more all of them where the weighting asks for
        norms of idf-weighted samples; takes `room` bytes beside the scores.
        """
        return self.scorer.shard(dataset.shards[shard], room)

    def shard_codes(self, dataset: Dataset, shard: int, room: int = ROOM) -> NDArray[np.int32]:
        """Return the predicted class code of every row of a shard, in `room` bytes for any `n_classes`."""
        return self.scorer.shard_codes(dataset.shards[shard], room)

    @property
    def nbytes(self) -> int:
        """Bytes in memory of the weights, of what scoring makes of them, and of the names."""
        scale = 0 if self.column_scale is None else self.column_scale.nbytes
        names = 0 if self.names is None else int(self.names.nbytes)
        return self.coef.nbytes + self.features.nbytes + self.scorer.table_bytes + scale + names

    def predict(self, scores: NDArray[Any]) -> NDArray[Any]:
        """Return the label of the largest score of each row; the first of the classes on a tie."""
        labels: NDArray[Any] = self.classes[np.argmax(scores, axis=1)]
        return labels

    def check_features(self, dataset: Dataset) -> None:
        """Check that a dataset's features are those of the model.

        Raises
        ------
        ModelError
            Naming every difference.
        """
        theirs = _comparable(dataset.n_features, dataset.weighting, _plain(dataset.features))
        ours = _comparable(self.n_features, self.weighting, self.feature_spec)
        differences = [
            f"{name} is {_short(ours.get(name))} in the model and {_short(theirs.get(name))} in the dataset"
            for name in dict.fromkeys([*ours, *theirs])
            if ours.get(name) != theirs.get(name)
        ]
        if differences:
            raise ModelError(
                "model and dataset have different features: " + ", ".join(differences),
                "ingest the data with the parameters of the model",
            )

    def info(self) -> dict[str, Any]:
        """Return what there is to know at a glance, ready for JSON."""
        return {
            "kind": self.kind,
            "version": FORMAT_VERSION,
            "n_classes": self.n_classes,
            "n_features": self.n_features,
            "n_nonzero_features": len(self.features),
            "nnz": int(np.count_nonzero(self.coef)),
            "classes": self.classes.tolist(),
            "weighting": _weighting_name(self.weighting),
            "features": dict(self.feature_spec),
            "params": dict(self.params),
            "objective": _plain(self.objective),
            "certificate": _plain(self.certificate),
            "n_iter": self.n_iter,
            "n_passes": self.n_passes,
            "n_names": 0 if self.names is None else self.names.num_rows,
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model into one file; equal models give equal bytes.

        Raises
        ------
        ModelError
            If the folder of `path` does not exist.
        """
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
        arrays = {
            "classes": self.classes,
            "features": self.features,
            "coef": self.coef,
            "intercept": self.intercept,
        }
        if self.column_scale is not None:
            arrays["column_scale"] = self.column_scale
        if self.names is not None:
            arrays |= _names_to_arrays(self.names)
        write_archive(Path(path), header, arrays)


def load_model(path: str | os.PathLike[str]) -> Model:
    """Return the model saved at `path`; nothing in the file is ever executed.

    Raises
    ------
    ModelError
        If the file is absent, no bigmc model, of another version or damaged (naming the member).
    """
    header, arrays = read_archive(Path(path))
    try:
        return Model(
            kind=header["kind"],
            classes=arrays["classes"],
            n_features=header["n_features"],
            features=arrays["features"],
            coef=arrays["coef"],
            intercept=arrays["intercept"],
            weighting=Weighting.from_dict(header["weighting"]),
            column_scale=arrays.get("column_scale"),
            feature_spec=header["feature_spec"],
            params=header["params"],
            certificate={name: float(value) for name, value in header["certificate"].items()},
            objective=float(header["objective"]),
            n_iter=header["n_iter"],
            n_passes=header["n_passes"],
            history=header["history"],
            names=_names_from_arrays(arrays),
        )
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ModelError(f"{path} is inconsistent: {reason}", "train again") from error


def verify_model(path: str | os.PathLike[str]) -> list[str]:
    """Return everything wrong with the model at `path`, one line each; empty if it is sound.

    Every byte counts: sha256 of each member, no other members, nothing between them, parts that fit.
    """
    problems = check_archive(Path(path))
    if not problems:
        try:
            load_model(path)
        except ModelError as error:
            problems = [error.message]
    return problems


def _label_array(classes: NDArray[Any]) -> NDArray[Any]:
    """Return the labels as an array that is saved without pickle, and the same labels."""
    if classes.dtype.kind not in "OT":
        if classes.dtype.kind not in "biufU":
            raise ModelError(f"labels of type {classes.dtype}", "use integers, strings, booleans or floats")
        return classes
    given = classes.tolist()
    kinds = {type(label) for label in given}
    if len(kinds) != 1 or not kinds <= {str, int, bool, float}:
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise ModelError(f"labels of the types {names}", "use one of: integers, strings, booleans or floats")
    plain = np.array(given)
    if plain.dtype.kind == "O" or plain.tolist() != given:  # huge integers, strings that end with NUL
        raise ModelError("some labels cannot be kept as they are", "use shorter numbers and plain text")
    return plain


def _plain(value: Any) -> Any:
    """Return what JSON makes of a value; numbers that are not finite become None."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (np.ndarray, np.generic)):
        return _plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _comparable(n_features: int, weighting: Weighting, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return what makes features the same, without nesting.

    The names of text columns do not: the texts of a row are hashed together, whatever they are called.
    """
    found: dict[str, Any] = {"n_features": n_features, "weighting": _weighting_name(weighting)}
    for name, value in spec.items():
        if isinstance(value, Mapping):
            found |= value
        else:
            found[name] = bool(value) if name == "text" else value
    return found


def _short(value: Any) -> str:
    text = "not given" if value is None else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _weighting_name(weighting: Weighting) -> str:
    return "+".join(name for name, on in weighting.to_dict().items() if on) or "counts"


def _names_of(features: NDArray[np.int64], names: pa.Table) -> pa.Table:
    """Return the most frequent names of the given features, ordered by feature, count and name."""
    table = names.select(list(_NAME_COLUMNS)).cast(pa.schema(_NAME_COLUMNS))
    table = table.filter(pa.array(np.isin(table.column("bucket").to_numpy(), features)))
    table = table.sort_by([("bucket", "ascending"), ("count", "descending"), ("name", "ascending")])
    buckets = table.column("bucket").to_numpy()
    rank = np.arange(len(buckets)) - np.searchsorted(buckets, buckets)
    return table.filter(pa.array(rank < NAMES_PER_FEATURE)).combine_chunks()


def _names_to_arrays(names: pa.Table) -> dict[str, NDArray[Any]]:
    encoded = [name.encode() for name in names.column("name").to_pylist()]
    arrays = {
        f"names_{column}": names.column(column).to_numpy() for column in _NAME_COLUMNS if column != "name"
    }
    arrays["names_text"] = np.frombuffer(b"".join(encoded), np.uint8)
    arrays["names_ends"] = np.cumsum([len(name) for name in encoded], dtype=np.int64)
    return arrays


def _names_from_arrays(arrays: Mapping[str, NDArray[Any]]) -> pa.Table | None:
    if "names_text" not in arrays:
        return None
    text, ends = arrays["names_text"].tobytes(), arrays["names_ends"].tolist()
    names = [text[start:end].decode() for start, end in zip([0, *ends], ends, strict=False)]
    columns = {column: arrays[f"names_{column}"] for column in ("bucket", "sign", "count")}
    return pa.table({**columns, "name": pa.array(names, pa.string())})
