"""Check the description of the features in a model's file before it is used."""

from __future__ import annotations

import math
from collections.abc import Mapping

from bigmc.store.files.untrusted import check_types, check_whole

_LISTS = ("text", "categorical", "numeric", "dense")
_HASHER: dict[str, type | tuple[type, ...]] = {
    "analyzer": str,
    "ngrams": list,
    "hash_bits": int,
    "lowercase": bool,
    "by_column": bool,
}
_NOTHING = type(None)
_MOST = 2**31 - 1


def check_feature_spec(spec: object, n_features: int) -> None:
    """Check the description of features in a file: empty for plain arrays, else as written by ingest.

    `ValueError`, naming the problem, if samples cannot be made from it.
    """
    if not isinstance(spec, Mapping):
        raise ValueError(f"feature_spec is {ascii(spec)[:40]}")
    if "hasher" in spec:
        for name in _LISTS:
            _check_names(spec.get(name), name)
        check_types(spec, {"hasher": (dict, _NOTHING), "n_own": int, "first_index": (int, _NOTHING)})
        check_whole(spec["n_own"], _MOST, "n_own")
        if spec["hasher"] is not None:
            known = {name: kind for name, kind in _HASHER.items() if name in spec["hasher"]}
            check_types(spec["hasher"], known)
            for size in spec["hasher"].get("ngrams", []):
                check_whole(size, 2**15, "ngrams")
    if "dates" in spec:
        _check_names(spec["dates"], "dates")
    if "value_formats" in spec:
        _check_value_formats(spec["value_formats"])
    if "missing" in spec:
        check_types(spec, {"missing": bool})
    if "columns" in spec:
        _check_names(spec["columns"], "columns")
        if len(spec["columns"]) != n_features:
            raise ValueError(f"{len(spec['columns'])} columns for {n_features} features")
    if "map" in spec:
        _check_map(spec["map"])
    if "vectors" in spec:
        n_columns = len(spec["map"]["mean"]) if "map" in spec else n_features
        _check_vectors(spec["vectors"], n_columns)


def _check_names(names: object, what: str) -> None:
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{what} is {ascii(names)[:40]}, not a list of names")


def _check_vectors(vectors: object, n_columns: int) -> None:
    """Raise an error if these are no columns of lists of numbers, all of them at most `n_columns`."""
    if not isinstance(vectors, list) or not all(isinstance(vector, Mapping) for vector in vectors):
        raise ValueError(f"vectors is {ascii(vectors)[:40]}, not a list of columns")
    for vector in vectors:
        check_types(vector, {"column": str, "width": int})
        check_whole(vector["width"], n_columns, "width")
    check_whole(sum(vector["width"] for vector in vectors), n_columns, "sum of widths")


def _check_value_formats(value_formats: object) -> None:
    """Raise an error if these are no formats of numbers and dates."""
    if not isinstance(value_formats, Mapping) or not isinstance(value_formats.get("formats"), Mapping):
        raise ValueError(f"the formats of values are {ascii(value_formats)[:40]}")
    _check_names(value_formats.get("missing"), "what stands for missing values")
    for format in value_formats["formats"].values():
        if not isinstance(format, Mapping) or len(format) != 1 or not format.keys() <= {"date", "number"}:
            raise ValueError(f"a column is written as {ascii(format)[:40]}")
        if "date" in format:
            check_types(format, {"date": str})
            continue
        check_types(format, {"number": dict})
        number = format["number"]
        check_types(number, {"decimal": str, "thousands": str, "prefix": str, "units": list})
        if len(number["decimal"]) != 1 or len(number["thousands"]) > 1 or not number["units"]:
            raise ValueError(f"numbers are written as {ascii(number)[:40]}")
        for unit in number["units"]:
            if not (isinstance(unit, list) and len(unit) == 2 and isinstance(unit[0], str)):
                raise ValueError(f"a unit is {ascii(unit)[:40]}")
            if not _is_finite(unit[1]):
                raise ValueError(f"the factor of a unit is {ascii(unit[1])[:40]}")


def _check_map(fields: object) -> None:
    if not isinstance(fields, Mapping):
        raise ValueError(f"map is {ascii(fields)[:40]}")
    for name in ("mean", "deviation"):
        values = fields.get(name)
        if not isinstance(values, list) or not all(_is_finite(value) for value in values):
            raise ValueError(f"{name} of the map is not a list of numbers")
    if len(fields["mean"]) != len(fields["deviation"]):
        raise ValueError("mean and deviation of the map differ in length")
    check_whole(fields.get("fourier"), 2**20, "fourier")
    check_whole(fields.get("map_seed"), 2**32 - 1, "map_seed")
    if fields["fourier"] % 2 or not _is_finite(fields.get("gamma")):
        raise ValueError("the random Fourier features of the map cannot be made")


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
