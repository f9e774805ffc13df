"""From what the user asked to a job, checked against the sources before any work starts."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from scipy import sparse

from bigmc.errors import DataError
from bigmc.ingestion.features import FeatureSpec
from bigmc.ingestion.hashing.hasher import TextHasher
from bigmc.ingestion.job import Job
from bigmc.ingestion.memory import record_limit
from bigmc.ingestion.recipe import Recipe
from bigmc.ingestion.sources import ReadHints, Source, expand_sources, schema
from bigmc.ingestion.splits import check_splits, parse_splits
from bigmc.ingestion.spool import spool_beside
from bigmc.kernels.compile_server import compile_elsewhere
from bigmc.options.ingest import IngestOptions
from bigmc.store import disk
from bigmc.store.atomic import sha256
from bigmc.store.feature_map import check_fourier
from bigmc.store.weighting import Weighting

ROW_COLUMNS = frozenset({"label", "row_id", "norm", "entries"})
"""Columns that every ``rows.parquet`` has."""

MATRICES = frozenset({"svmlight", "array", "sparse", "dask"})
"""Formats that bring features and labels of their own, without names of columns."""


def make_job(source: Any, to: Path, options: IngestOptions, limit: int) -> Job:
    """Return the job; see :func:`bigmc.api.ingest` for the parameters.

    Raises
    ------
    DataError
        If a parameter, a column or a source cannot be used.
    """
    labels = None if isinstance(options.label, str) else options.label
    try:
        sources = expand_sources(source, options.format, labels, spool_beside(to))
        return job_of(sources, to, options, limit)
    except BaseException:
        disk.try_clear(spool_beside(to))
        raise


def job_of(sources: Sequence[Source], to: Path, options: IngestOptions, limit: int) -> Job:
    """Return the job for sources that were found, as `make_job`."""
    compile_elsewhere()  # the first bytes are read below
    asked, label = options, options.label
    text, categorical, numeric, dense, keep = (
        tuple(names) for names in (asked.text, asked.categorical, asked.numeric, asked.dense, asked.keep)
    )
    names_column = isinstance(label, str)
    _refuse_repeated((*text, *categorical, *numeric, *dense))
    _refuse_repeated(keep)
    hashed = bool(text or categorical or numeric)
    hasher = (
        TextHasher(asked.analyzer, asked.ngrams, asked.hash_bits, asked.lowercase)  # type: ignore[arg-type]
        if hashed
        else None
    )
    if sources[0].format in MATRICES:
        named = (*text, *categorical, *numeric, *dense, *keep, *filter(None, [asked.label_separator]))
        _refuse_columns(named, asked.group, names_column, sources[0])
        features = FeatureSpec(n_own=_width(sources, asked.n_features))
        has_dense = sources[0].format in ("array", "dask")
        label_column = None
    else:
        features = FeatureSpec(text, categorical, numeric, dense, hasher)
        label_column = _check_columns(features, label, names_column, sources[0])
        if asked.label_separator == "":
            raise DataError("the separator of labels is empty", "give the text between two labels")
        _check_kept(keep)
        if asked.n_features is not None:
            raise DataError(
                f"{sources[0].path}: --n-features is the width of svmlight data, not of {sources[0].format}",
                "leave it out; --hash-bits says how many features hashing makes",
            )
        has_dense = not hashed
    if asked.missing == "keep":
        _check_missing(features, sources[0], asked.weighting, asked.standardize or bool(asked.fourier))
        features = replace(features, missing=True)
    check_fourier(asked.fourier, asked.gamma)
    mapping = {"fourier": asked.fourier, "gamma": asked.gamma} if asked.standardize or asked.fourier else None
    if mapping is not None and not has_dense:
        raise DataError(
            f"{sources[0].path}: only dense features can be standardised or turned into Fourier features",
            "name columns with --dense and hash none, or leave out --standardize and --fourier",
        )
    splits = parse_splits(asked.split) if isinstance(asked.split, str) else check_splits(asked.split)
    recipe = Recipe(
        sources=tuple(identify(s) for s in sources),
        features=features,
        weighting=_weighting(asked.weighting or _default_weighting(features), has_dense),
        label=label_column,
        splits=splits,
        group=asked.group,
        keep=keep,
        seed=int(asked.seed),
        on_bad_row=asked.on_bad_row,
        n_features=asked.n_features,
        names=asked.names,
        mapping=mapping,
        label_separator=asked.label_separator,
    )
    types = {name: pa.string() for name in features.text}
    if sources[0].format not in MATRICES:
        features.check_types(schema(sources, recipe.columns, ReadHints(types=types)))
    hints = ReadHints(
        types=types,
        n_features=asked.n_features,
        missing=features.missing,
        columns=recipe.columns or None,
        record_limit=record_limit(limit, features.n_features),
    )
    return Job(to, sources, recipe, limit, hints)


def identify(source: Source) -> Mapping[str, Any]:
    """Return what tells a source from another one: path, size and time of change, or a digest."""
    data = source.data
    if source.stream is not None:
        file = Path(source.path)
        identity = {"path": source.stream, "format": source.format, "bytes": file.stat().st_size}
        return identity | {"sha256": sha256(file)}
    if data is None:
        file = Path(source.path).resolve()
        status = file.stat()
        return {
            "path": str(file),
            "format": source.format,
            "bytes": status.st_size,
            "changed": status.st_mtime_ns,
        }
    digest = hashlib.sha256()
    if source.format == "dask":
        digest.update(str(data.name).encode())  # dask names an array by a token of how it is made
    elif source.format == "table":
        for batch in data.to_batches():
            digest.update(batch.serialize())
    else:
        arrays = (data.indptr, data.indices, data.data) if sparse.issparse(data) else (data,)
        for array in arrays:
            digest.update(np.ascontiguousarray(array).data)
    if source.labels is not None:
        sets = isinstance(source.labels, pa.ListArray)
        labels = source.labels.to_pylist() if sets else np.asarray(source.labels).tolist()
        digest.update(repr(labels).encode())
    shape = [int(n) for n in data.shape]
    return {"path": source.path, "format": source.format, "shape": shape, "sha256": digest.hexdigest()}


def _check_columns(features: FeatureSpec, label: Any, names_column: bool, source: Source) -> str:
    if not features.columns:
        raise DataError(
            f"{source.path}: no column is named to learn from",
            "name some with --text, --categorical or --dense",
        )
    if not names_column:
        raise DataError(f"{source.path}: no label column is named", "name it with --label")
    if label in features.columns:
        raise DataError(f"the column {label!r} is the label and a feature", "leave it out of the features")
    return str(label)


def _refuse_repeated(columns: Sequence[str]) -> None:
    for name, times in Counter(columns).items():
        if times > 1:
            raise DataError(f"the column {name!r} is named {times} times", "name it once")


def _check_kept(keep: Sequence[str]) -> None:
    for name in keep:
        if name in ROW_COLUMNS:
            raise DataError(
                f"the column {name!r} cannot be kept: rows.parquet has one of its own by that name",
                "rename the column",
            )


def _check_missing(features: FeatureSpec, source: Source, weighting: str | None, mapped: bool) -> None:
    """Refuse missing values where none could be kept, or where they would spoil the rest of their rows."""
    if source.format == "svmlight" or (source.format not in MATRICES and not features.dense):
        raise DataError(
            f"{source.path}: only dense columns can have missing values",
            "name them with --dense, or pass arrays",
        )
    if mapped:
        raise DataError(
            "missing values can be neither standardised nor turned into Fourier features",
            "leave out --standardize and --fourier, or --missing keep",
        )
    if weighting not in (None, "counts"):
        raise DataError(f"{weighting} weighting of rows with missing values", "use --weighting counts")


def _default_weighting(features: FeatureSpec) -> str:
    """Return the weighting of features for which none was asked: that of text is tf-idf."""
    if features.hasher is None or features.missing:
        return "counts"
    return "tfidf" if features.text and not (features.numeric or features.dense) else "l2"


def _weighting(name: str, has_dense: bool) -> Weighting:
    weighting = Weighting.named(name)
    if has_dense and (weighting.binary or weighting.idf):
        raise DataError(
            f"{name} weighting counts the stored entries, and dense columns store them all",
            "use --weighting counts or l2",
        )
    return weighting


def _refuse_columns(columns: Sequence[str], group: str | None, names_column: bool, source: Source) -> None:
    if columns or group is not None or names_column:
        raise DataError(
            f"{source.path}: {source.format} data has no named columns",
            "leave out --text, --label and other columns"
            if source.format == "svmlight"
            else "pass labels as label=y",
        )
    if source.data is not None and source.labels is None:
        raise DataError(f"{source.path}: an array without labels", "pass them as label=y")


def _width(sources: Sequence[Source], n_features: int | None) -> int:
    """Return the number of features of matrix sources; 0 where only the scan can tell."""
    widths = {int(source.data.shape[1]) for source in sources if source.data is not None}
    if n_features is not None and not 0 < n_features < 2**31:
        raise DataError(f"n_features is {n_features}", "give a width from 1 to 2,147,483,647")
    if widths and n_features is not None and widths != {n_features}:
        raise DataError(f"the array has {max(widths)} features, not {n_features}", "leave n_features out")
    if len(widths) > 1:
        raise DataError(f"the arrays have different widths: {sorted(widths)}", "pass arrays of one width")
    return widths.pop() if widths else n_features or 0
