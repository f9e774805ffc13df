"""Make the job of an ingest from its options, checked against the sources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bigmc.errors import DataError
from bigmc.ingestion.columns.features import FeatureSpec
from bigmc.ingestion.columns.patterns import expand_patterns
from bigmc.ingestion.columns.sample_weights import check_weight_type
from bigmc.ingestion.columns.table_columns import Filling, LevelCount, Levels, MeanOfColumns
from bigmc.ingestion.columns.value_formats import ValueFormats
from bigmc.ingestion.columns.vector_columns import MOST_PLACES, Vector, lists_of_numbers
from bigmc.ingestion.hashing.hasher import TextHasher
from bigmc.ingestion.job import Job
from bigmc.ingestion.memory import record_limit
from bigmc.ingestion.parts.scan import ReadHints, ReadRequest, expand_sources, read, scan, schema
from bigmc.ingestion.parts.spool import naming_streams, spool_beside
from bigmc.ingestion.readers import MATRICES
from bigmc.ingestion.readers.base import check_columns
from bigmc.ingestion.recipe import Recipe
from bigmc.ingestion.sources.source import Source
from bigmc.ingestion.writing.splits import check_group_type, check_splits, parse_splits
from bigmc.kernels.compile_server import compile_elsewhere
from bigmc.options.ingest import FEATURES, IngestOptions
from bigmc.store.feature_map import check_fourier
from bigmc.store.files import disk
from bigmc.store.files.layout import ROW_COLUMNS
from bigmc.store.weighting import Weighting


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
    sources: Sequence[Source], to: Path, options: IngestOptions, limit: int, known: Sequence[str] = ()
) -> Job:
    """Return the job for listed sources, like `make_job`; JSON lines may lack known columns of features."""
    compile_elsewhere()  # the first bytes are read below
    is_matrix = sources[0].format in MATRICES
    options = expand_patterns(options, sources)
    features = _matrix_features(options, sources) if is_matrix else _column_features(options, sources)
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
        known=known,
        n_features=options.n_features,
        missing=features.takes_missing,
        columns=recipe.columns or None,
        record_limit=record_limit(limit, features.n_features),
    )
    if not is_matrix:
        columns = schema(sources, recipe.columns, hints)
        if sources[0].format == "jsonl" and options.on_bad_row == "fail":
            _check_keys(sources[0], features, options, known)
        features.check_types(columns)
        check_weight_type(columns, options.weight)
        check_group_type(columns, recipe.group)
        recipe = replace(recipe, features=_with_table_columns(features, sources, hints))
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


def _column_features(options: IngestOptions, sources: Sequence[Source]) -> FeatureSpec:
    """Return the features of named columns."""
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
    return _with_missing(_with_widths(features, sources), options, source)


def _with_widths(features: FeatureSpec, sources: Sequence[Source]) -> FeatureSpec:
    """Return the features with the number of places of each vector, that of its first list."""
    columns = features.vector_columns
    if not columns:
        return features
    hints = ReadHints(types=features.json_types, known=columns, missing=True)
    features.check_types(schema(sources[:1], columns, hints))
    widths: dict[str, int] = {}
    for table in _table_batches(sources, columns, hints):
        for name in columns:
            lengths = lists_of_numbers(table.column(name)).lengths
            if name not in widths and lengths.max(initial=0) > 0:
                widths[name] = int(lengths[lengths > 0][0])
        if len(widths) == len(columns):
            break
    for name in columns:
        where = f"{sources[0].path}: the column {name!r}"
        if name not in widths:
            raise DataError(f"{where} has no list of numbers", "leave it out")
        if widths[name] > MOST_PLACES:
            cure = f"shorten them to {MOST_PLACES:,}, or give a matrix without names"
            raise DataError(f"{where} has lists of {widths[name]:,} numbers", cure)
    return replace(features, vectors=tuple(Vector(name, widths[name]) for name in columns))


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


def _with_table_columns(features: FeatureSpec, sources: Sequence[Source], hints: ReadHints) -> FeatureSpec:
    """Return the features with the values of categories and the replacements of missing numbers.

    The sources are read only if needed. Rows with invalid labels count too.
    """
    if not features.one_hot and (features.filling is None or not features.numbers):
        return features
    counts = [LevelCount() for _ in features.one_hot]
    means = MeanOfColumns(len(features.numbers))
    fills = features.filling is not None
    filled = (*features.dense, *features.dates, *features.vector_columns) if fills else ()
    columns = tuple(dict.fromkeys((*filled, *(levels.column for levels in features.one_hot))))
    for table in _table_batches(sources, columns, hints):
        for count, levels in zip(counts, features.one_hot, strict=True):
            count.add(table.column(levels.column))
        numbers = features.read_numbers(table)
        of_dense = (numbers[name] for name in features.dense)
        read = chain(of_dense, features.read_several(table)) if fills else ()
        rows = (values for one in read for values in np.atleast_2d(one.values[~one.unreadable].T))
        for place, values in enumerate(rows):
            means.add(place, values)
    return replace(
        features,
        one_hot=tuple(
            count.levels(levels.column) for count, levels in zip(counts, features.one_hot, strict=True)
        ),
        filling=None
        if features.filling is None
        else means.filling(features.filling, _inner_places(features)),
    )


def _inner_places(features: FeatureSpec) -> list[int]:
    """Return the places of all numbers of lists but the first, which stands for its list."""
    first = len(features.numbers) - sum(vector.width for vector in features.vectors)
    inner: list[int] = []
    for vector in features.vectors:
        inner += range(first + 1, first + vector.width)
        first += vector.width
    return inner


def _table_batches(
    sources: Sequence[Source], columns: tuple[str, ...], hints: ReadHints
) -> Iterator[pa.RecordBatch]:
    request = ReadRequest(columns, on_bad_row="quarantine")
    parts = scan(sources, hints=replace(hints, columns=columns))
    batches = (batch.table for part in parts for batch in read(part, request, sources=sources))
    return (table for table in batches if table.num_rows)
