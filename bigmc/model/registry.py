"""The kinds of models, and loading the right one from a file."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bigmc.errors import ModelError
from bigmc.model.archive import check_archive, read_archive, read_sizes
from bigmc.model.base import Model
from bigmc.model.boosted import BoostedModel
from bigmc.model.calibration import Calibration
from bigmc.model.feature_names import names_from_arrays
from bigmc.model.feature_spec import check_feature_spec
from bigmc.model.linear import LinearModel
from bigmc.model.minimax import MinimaxModel
from bigmc.model.outline import ModelOutline
from bigmc.model.summed import KIND, SumModel, part_prefix
from bigmc.store.files.npy import ArraySize
from bigmc.store.files.untrusted import check_types, check_whole
from bigmc.store.label_source import LabelSource
from bigmc.store.weighting import Weighting

T = TypeVar("T")

#: Classes of the models of each learner, and of sums of models.
KINDS: dict[str, type[Model]] = {
    "sparse": LinearModel,
    "boost": BoostedModel,
    "mrc": MinimaxModel,
    KIND: SumModel,
}


def load_model(path: str | os.PathLike[str]) -> Model:
    """Return the model saved at `path`; nothing in the file is ever executed.

    Raises
    ------
    ModelError
        If the file is absent, no bigmc model, of another version or kind, or damaged (naming the member).
    """
    header, arrays = read_archive(Path(path))
    with _consistent(path):
        _check_plain(arrays)
        return _model_of(header, arrays)


def _model_of(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Model:
    """Return the model of a header and arrays, with its parts if it is a sum."""
    kind = _kind(header)
    parts = [(own, _of_part(arrays, number)) for number, own in enumerate(_part_headers(header))]
    sum_of = {"parts": tuple(_model_of(own, its) for own, its in parts)} if kind is SumModel else {}
    return kind.from_arrays(
        arrays,
        kind=header["kind"],
        classes=arrays["classes"],
        n_features=header["n_features"],
        weighting=Weighting.from_dict(header["weighting"]),
        column_scale=arrays.get("column_scale"),
        feature_spec=header["feature_spec"],
        params=header["params"],
        certificate={name: float(value) for name, value in header["certificate"].items()},
        objective=float(header["objective"]),
        n_iter=header["n_iter"],
        n_passes=header["n_passes"],
        history=header["history"],
        names=names_from_arrays(arrays),
        label_source=LabelSource.from_dict(header.get("label_source")),
        label_threshold=_threshold(header.get("label_threshold")),
        calibration=Calibration.from_dict(header.get("calibration")),
        **sum_of,
    )


def _part_headers(header: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the headers of the parts of a sum, each with the fields it shares with the sum."""
    if header["kind"] != KIND:
        return []
    check_types(header, {"parts": list})
    if any(not isinstance(own, dict) or own.get("kind") == KIND for own in header["parts"]):
        raise ValueError("the parts of a sum of models are not models")
    shared = {name: header[name] for name in ("n_features", "feature_spec")}
    return [{**own, **shared} for own in header["parts"]]


def _of_part(named: Mapping[str, T], number: int) -> dict[str, T]:
    """Return the items of a part of a sum by their names without prefix, and the common classes."""
    prefix = part_prefix(number)
    own = {name.removeprefix(prefix): one for name, one in named.items() if name.startswith(prefix)}
    return {**own, "classes": named["classes"]}


def outline_of_file(path: str | os.PathLike[str]) -> ModelOutline:
    """Return what planning needs of the model saved at `path`, without reading an array.

    `ModelError` if the file is absent, no bigmc model, of another version or kind, or inconsistent.
    """
    header, sizes = read_sizes(Path(path))
    with _consistent(path):
        nbytes, unpacked = _bytes_of(header, sizes)
        return ModelOutline(
            n_classes=math.prod(sizes["classes"].shape),
            n_features=header["n_features"],
            feature_spec=header["feature_spec"],
            has_sets=header.get("label_threshold") is not None,
            takes_missing=_kind(header).takes_missing,
            nbytes=nbytes,
            kept_bytes=nbytes - unpacked,
            label_source=LabelSource.from_dict(header.get("label_source")),
        )


def _bytes_of(header: Mapping[str, Any], sizes: Mapping[str, ArraySize]) -> tuple[int, int]:
    """Return the bytes of a model while it is opened, and those freed afterwards, parts included."""
    kind = _kind(header)
    counts = [(kind.bytes_of(sizes, header["n_features"]), kind.unpacked_bytes(sizes))]
    counts += [_bytes_of(own, _of_part(sizes, k)) for k, own in enumerate(_part_headers(header))]
    nbytes, unpacked = zip(*counts, strict=True)
    return sum(nbytes), sum(unpacked)


@contextmanager
def _consistent(path: str | os.PathLike[str]) -> Iterator[None]:
    """Name the file whose parts do not fit together."""
    try:
        yield
    except ModelError as error:
        raise ModelError(f"{path}: {error.message}", error.cure or "train again") from error
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ModelError(f"{path} is inconsistent: {reason}", "train again") from error


def _kind(header: Mapping[str, Any]) -> type[Model]:
    """Return the kind of model of a header, after checking it."""
    kind = header.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ModelError(
            f"its kind {kind!r} is unknown to this version of bigmc (known are {', '.join(KINDS)})",
            "install the version of bigmc that wrote it, or train again",
        )
    _check_header(header)
    return KINDS[kind]


def _check_plain(arrays: Mapping[str, NDArray[Any]]) -> None:
    """Raise an error for arrays other than of numbers and texts in this machine's byte order."""
    for name, array in arrays.items():
        if array.dtype.kind not in "biufU" or not array.dtype.isnative or array.dtype == np.float16:
            raise ValueError(f"{name} is an array of type {array.dtype}")


def _check_header(header: Mapping[str, Any]) -> None:
    """Raise an error for a header with fields of other types than those that training writes."""
    check_types(header, {"weighting": dict, "params": dict, "certificate": dict, "history": list})
    check_whole(header["n_features"], 2**31 - 1, "n_features")
    check_whole(header["n_iter"], 2**62, "n_iter")
    check_types(header, {"n_passes": (int, float)})
    if not all(isinstance(entry, dict) for entry in header["history"]):
        raise ValueError("history is not a list of figures")
    if header.get("label_threshold") is not None:
        check_types(header, {"label_threshold": (int, float, list)})
    check_feature_spec(header["feature_spec"], header["n_features"])


def _threshold(stored: float | list[float] | None) -> float | tuple[float, ...] | None:
    """Return the threshold of a header, a list of which has one for each class."""
    return tuple(map(float, stored)) if isinstance(stored, list) else stored


def verify_model(path: str | os.PathLike[str]) -> list[str]:
    """Return the problems of the model at `path`, one line each; empty if it is intact.

    Every byte is checked: the SHA-256 of each member, no other members, nothing between them, consistent
    parts.
    """
    problems = check_archive(Path(path))
    if not problems:
        try:
            load_model(path)
        except ModelError as error:
            problems = [error.message]
    return problems
