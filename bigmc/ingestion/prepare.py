"""Make the job of an ingest from its options, checked against the sources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from bigmc.errors import DataError
from bigmc.ingestion.columns.features import FeatureSpec
from bigmc.ingestion.columns.patterns import expand_patterns
from bigmc.ingestion.columns.sample_weights import check_weight_type
from bigmc.ingestion.columns.table_columns import Filling, Levels
from bigmc.ingestion.columns.value_formats import ValueFormats
from bigmc.ingestion.columns.vector_columns import Vector
from bigmc.ingestion.fit_columns import with_table_columns, with_widths
from bigmc.ingestion.hashing.hasher import TextHasher
from bigmc.ingestion.job import Job
from bigmc.ingestion.memory import record_limit
from bigmc.ingestion.parts.scan import ReadHints, expand_sources, schema
from bigmc.ingestion.parts.spool import naming_streams, spool_beside
from bigmc.ingestion.readers import MATRICES
from bigmc.ingestion.readers.base import check_columns
from bigmc.ingestion.readers.plain_types import unwritable
from bigmc.ingestion.recipe import Recipe
from bigmc.ingestion.sources.source import Source
from bigmc.ingestion.writing.splits import check_group_type, check_splits, parse_splits
from bigmc.kernels.compile_server import compile_elsewhere
from bigmc.options.ingest import FEATURES, IngestOptions
from bigmc.store.feature_map import check_fourier
from bigmc.store.files import disk
from bigmc.store.files.layout import ROW_COLUMNS
from bigmc.store.weighting import Weighting

NOTHING = FeatureSpec()
"""The features of no dataset."""


def make_job(source: Any, to: Path, options: IngestOptions, limit: int) -> Job:
    """Return the job; see :func:`bigmc.api.ingest` for the parameters.

    `DataError` if a parameter, a column or a source is invalid.
    """
    labels = None if isinstance(options.label, str) else options.label
    spool = spool_beside(to)
    try:
        sources = expand_sources(source, options, labels, spool)
        with naming_streams(sources):
            return job_of(sources, to, options, limit)
    except BaseException:
        disk.try_clear(spool)
        raise


def job_of(
    sources: Sequence[Source], to: Path, options: IngestOptions, limit: int, stored: FeatureSpec = NOTHING
) -> Job:
    """Return the job for listed sources, like `make_job`.

    `stored` are the features of the dataset that they are appended to: JSON lines may lack its columns, and
    lists have its lengths.
    """
    compile_elsewhere()  # the first bytes are read below
    is_matrix = sources[0].format in MATRICES
    options = expand_patterns(options, sources)
    if is_matrix:
        features = _matrix_features(options, sources)
    else:
        features = _column_features(options, sources, stored.vectors)
    check_fourier(options.fourier, options.gamma)
    split = options.split
    recipe = Recipe(
        sources=tuple(source.identity() for source in sources),
        features=features,
        weighting=_weighting(options.weighting, features, sources),
        label=None if is_matrix else str(options.label),
        splits=parse_splits(split) if isinstance(split, str) else check_splits(split),
        group=options.group,
        keep=tuple(options.keep),
        seed=int(options.seed),
        on_bad_row=options.on_bad_row,
        n_features=options.n_features,
        names=options.names,
        mapping=_mapping(options, features, sources),
        label_separator=options.label_separator,
        weight=options.weight,
    )
    hints = ReadHints(
        types=features.json_types,
        numbers=_numbers_only(features, recipe),
        any_width=_of_any_width(features, recipe),
        known=stored.columns,
        n_features=options.n_features,
        missing=features.takes_missing,
        columns=recipe.columns or None,
        record_limit=record_limit(limit, features.n_features),
    )
    if not is_matrix:
        columns = schema(sources, recipe.columns, hints)
        if sources[0].format == "jsonl" and options.on_bad_row == "fail":
            _check_keys(sources[0], features, options, stored.columns)
        features.check_types(columns)
        check_weight_type(columns, options.weight)
        _check_storable(columns, recipe.keep)
        check_group_type(columns, recipe.group)
        recipe = replace(recipe, features=with_table_columns(features, sources, hints))
    return Job(to, sources, recipe, limit, hints)


def _numbers_only(features: FeatureSpec, recipe: Recipe) -> tuple[str, ...]:
    """Return the columns of numbers that are nothing else: others keep their type."""
    weight = () if recipe.weight is None else (recipe.weight,)
    others = {recipe.label, recipe.group, *recipe.keep}
    return tuple(name for name in (*features.number_columns, *weight) if name not in others)


def _of_any_width(features: FeatureSpec, recipe: Recipe) -> tuple[str, ...]:
    """Return the columns whose integers count by their values; kept ones have one type in all shards."""
    others = (recipe.label, recipe.group)
    named = (*features.category_columns, *(name for name in others if name is not None))
    return tuple(name for name in named if name not in recipe.keep)


def _matrix_features(options: IngestOptions, sources: Sequence[Source]) -> FeatureSpec:
    """Return the features of matrices; raise an error for options about columns, which they lack."""
    named = [name for option in (*FEATURES, "keep") for name in getattr(options, option)]
    named += filter(None, [options.label_separator, options.group, options.weight])
    if named or isinstance(options.label, str):
        raise DataError(
            f"{sources[0].path}: {sources[0].format} data has no named columns",
            "leave out --text, --label and other columns"
            if sources[0].format == "svmlight"
            else "pass labels as label=y",
        )
    if sources[0].data is not None and sources[0].labels is None:
        raise DataError(f"{sources[0].path}: an array without labels", "pass them as label=y")
    features = FeatureSpec(n_own=_width(sources, options.n_features))
    return _with_missing(features, options, sources[0])


def _column_features(
    options: IngestOptions, sources: Sequence[Source], stored: Sequence[Vector]
) -> FeatureSpec:
    """Return the features of named columns; lists in columns that the dataset has keep their lengths."""
    source = sources[0]
    kinds = (options.text, options.categorical, options.numeric, options.dense, options.date)
    text, categorical, numeric, dense, dates = (tuple(names) for names in kinds)
    _refuse_repeated([name for option in FEATURES for name in getattr(options, option)])
    _refuse_repeated(options.keep)
    hasher = None
    if text or categorical or numeric:
        analyzer, by_column = options.analyzer, options.words_by_column and len(text) > 1
        hasher = TextHasher(analyzer, options.ngrams, options.hash_bits, options.lowercase, by_column)  # type: ignore[arg-type]
    one_hot = tuple(Levels(column, ()) for column in options.one_hot)  # the values are read later
    formats = ValueFormats.like(options.value_format, options.missing_text, options.odd_as_missing)
    for name in formats.odd:
        if name not in (*dense, *dates) or options.missing == "refuse":
            raise DataError(
                f"odd values of the column {name!r} cannot count as missing",
                "name it with --dense or --date, and give --missing fill or keep",
            )
    for name, _ in formats.formats:
        if name not in (*numeric, *dense, *dates):
            raise DataError(
                f"the column {name!r} has an example, and is neither a number nor a date",
                "name it with --dense or --date, or leave out --value-format",
            )
    features = FeatureSpec(
        text, categorical, numeric, dense, hasher, one_hot=one_hot, dates=dates, value_formats=formats
    )
    features = replace(features, vectors=tuple(map(Vector, options.vector)))  # their widths are read below
    _check_columns(features, options, source)
    if options.label_separator == "":
        raise DataError("the separator of labels is empty", "give the text between two labels")
    _check_kept(options.keep)
    if options.n_features is not None:
        raise DataError(
            f"{source.path}: --n-features is the width of svmlight data, not of {source.format}",
            "leave it out; --hash-bits says how many features hashing makes",
        )
    return _with_missing(with_widths(features, sources, stored), options, source)


def _with_missing(features: FeatureSpec, options: IngestOptions, source: Source) -> FeatureSpec:
    """Return the features with missing values kept or filled, and numbers standardised besides hashes."""
    standardize = _standardizes_beside_hashed(features, options)
    if options.missing != "refuse":
        _check_missing(features, source, options)
    if options.missing == "keep":
        return replace(features, missing=True)
    if options.missing == "refuse" and not standardize:
        return features
    zeros = (0.0,) * len(features.numbers)  # the means are read later
    filling = Filling(zeros, (), zeros if standardize else (), fills=options.missing == "fill")
    return replace(features, filling=filling)


def _standardizes_beside_hashed(features: FeatureSpec, options: IngestOptions) -> bool:
    hashed = features.hasher is not None and bool(features.numbers)
    return hashed and options.standardize and not options.fourier


def _has_dense(features: FeatureSpec, sources: Sequence[Source]) -> bool:
    """Return whether every feature of a row is stored."""
    return features.hasher is None if features.columns else sources[0].format in ("array", "dask")


def _mapping(
    options: IngestOptions, features: FeatureSpec, sources: Sequence[Source]
) -> dict[str, Any] | None:
    """Return the feature map of dense features, or None."""
    if not (options.standardize or options.fourier) or _standardizes_beside_hashed(features, options):
        return None
    if not _has_dense(features, sources):
        raise DataError(
            f"{sources[0].path}: only dense features can be standardised or turned into Fourier features",
            "name columns with --dense, hash none for --fourier, or leave out --standardize and --fourier",
        )
    return {"fourier": options.fourier, "gamma": options.gamma}


def _check_columns(features: FeatureSpec, options: IngestOptions, source: Source) -> None:
    if not features.columns:
        raise DataError(
            f"{source.path}: no column is named to learn from",
            "name some with --text, --categorical, --one-hot or --dense",
        )
    if not isinstance(options.label, str):
        raise DataError(f"{source.path}: no label column is named", "name it with --label")
    for name, role in ((options.label, "label"), (options.weight, "weight")):
        if name in features.columns:
            raise DataError(
                f"the column {name!r} is the {role} and a feature", "leave it out of the features"
            )


def _check_keys(source: Source, features: FeatureSpec, options: IngestOptions, known: Sequence[str]) -> None:
    """Raise an error for columns whose first values are missing, which stops the ingest, as a wrong name.

    A key may be missing in JSON lines, so their readers take any name.
    """
    needed = [str(options.label), *features.numeric]
    needed += [] if features.fills else [*features.text, *features.categorical]
    needed += [] if features.takes_missing else [*features.dense, *features.dates, *features.vector_columns]
    seen = schema([source], (), ReadHints(known=known)).names
    if seen:
        check_columns(source.path, needed, seen)


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


def _check_storable(schema: pa.Schema, keep: Sequence[str]) -> None:
    for field in unwritable(pa.schema([schema.field(name) for name in keep])):
        raise DataError(
            f"the column {field.name!r} has type {field.type}, which cannot be stored",
            "leave it out of --keep",
        )


def _check_missing(features: FeatureSpec, source: Source, options: IngestOptions) -> None:
    """Raise an error if missing values cannot be kept, or would spoil the rest of their rows."""
    filled = features.numbers or (options.missing == "fill" and (features.text or features.categorical))
    if source.format == "svmlight" or (source.format not in MATRICES and not filled):
        raise DataError(
            f"{source.path}: only dense columns can have missing values",
            "name them with --dense, or pass arrays",
        )
    if options.missing == "fill":
        if source.format in MATRICES:
            raise DataError(f"{source.path}: only named columns can be filled", "fill the array before")
        return
    if options.standardize or options.fourier:
        raise DataError(
            "missing values can be neither standardised nor turned into Fourier features",
            "leave out --standardize and --fourier, or --missing keep",
        )
    if options.weighting not in (None, "counts"):
        raise DataError(
            f"{options.weighting} weighting of rows with missing values", "use --weighting counts"
        )


def _default_weighting(features: FeatureSpec) -> str:
    """Return the default weighting of features; for text it is tf-idf."""
    if features.hasher is None or features.missing:
        return "counts"
    standard = features.filling is not None and features.filling.deviations
    numbers = features.numeric or (features.numbers and not standard)
    return "tfidf" if features.text and not numbers else "l2"


def _weighting(asked: str | None, features: FeatureSpec, sources: Sequence[Source]) -> Weighting:
    name = asked or _default_weighting(features)
    weighting = Weighting.named(name)
    if (weighting.binary or weighting.idf) and _has_dense(features, sources):
        raise DataError(
            f"{name} weighting counts the stored entries, and dense columns store them all",
            "use --weighting counts or l2",
        )
    return weighting


def _width(sources: Sequence[Source], n_features: int | None) -> int:
    """Return the number of features of matrix sources; 0 if only the scan can determine it."""
    widths = {int(source.data.shape[1]) for source in sources if source.data is not None}
    if n_features is not None and not 0 < n_features < 2**31:
        raise DataError(f"n_features is {n_features}", "give a width from 1 to 2,147,483,647")
    if widths and n_features is not None and widths != {n_features}:
        raise DataError(f"the array has {max(widths)} features, not {n_features}", "leave n_features out")
    if len(widths) > 1:
        raise DataError(f"the arrays have different widths: {sorted(widths)}", "pass arrays of one width")
    return widths.pop() if widths else n_features or 0
