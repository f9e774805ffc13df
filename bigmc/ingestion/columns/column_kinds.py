"""Detect the types of columns from a sample of rows: numbers, categories, dates or texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigmc.errors import DataError
from bigmc.ingestion.columns.date_columns import as_dates, is_date
from bigmc.ingestion.columns.date_formats import ISO
from bigmc.ingestion.columns.number_columns import Numbers, as_float, is_number, null_mask
from bigmc.ingestion.columns.number_formats import Doubt, NumberFormat
from bigmc.ingestion.columns.odd_values import main_format, told
from bigmc.ingestion.columns.patterns import expand_given
from bigmc.ingestion.columns.table_columns import MOST_LEVELS, LevelCount, category_texts
from bigmc.ingestion.columns.value_formats import (
    MISSING_TEXTS,
    ValueFormat,
    ValueFormats,
    format_of_texts,
    without_missing,
)
from bigmc.ingestion.hashing.categories import is_text
from bigmc.ingestion.parts.scan import Batch, Part, ReadHints, ReadRequest, expand_sources, read, scan
from bigmc.ingestion.parts.spool import read_once
from bigmc.ingestion.readers import FORMATS, MATRICES, TEXT_FORMATS
from bigmc.ingestion.readers.exact import EXACT_INTEGERS, is_exact
from bigmc.ingestion.sources.source import Source, no_rows
from bigmc.lazy import LazyModule
from bigmc.options.ingest import FEATURES, IngestKeywords, IngestOptions, columns_of, format_examples

pc = LazyModule("pyarrow.compute")

SAMPLE_ROWS = 20_000
"""Rows at the beginning of the source that are sampled."""
SAMPLE_VALUES = 1_000_000
"""Values of the sample, at most: different texts of a column are kept, with about 120 bytes each."""
MOST_INDICATORS = 2_000
"""Maximum number of values of all categories as features of their own; above it they are hashed."""
MOSTLY = 0.9
"""Share of numbers in a column above which `fit` reports why it is not read as numbers."""
_LONG, _KEPT = 100, 40
"""Longer texts, in bytes, are neither numbers nor dates; and the characters to keep of them."""


@dataclass
class _Column:
    """Facts about a column, from the sample.

    Attributes
    ----------
    format : ValueFormat or None
        Format of numbers or dates, from an example of the user or from the values.
    n_rows, n_missing : int
        Rows, and rows without a value.
    unfit : bool
        Lists, objects, bytes, times of day, incomplete dates, and integers that are not exact as numbers and
        do not repeat: left out unless they are named.
    is_number, is_date : bool
        Whether all values are numbers, or dates. Known of texts when the sample is complete.
    inexact : str
        The first integer that is not exact as a number, such as an id of 18 digits.
    missing : tuple of str
        Texts that stand for a missing number or date, in lower case.
    spelled : tuple of str
        Those of them that occur.
    doubt : str
        Why values that look like numbers or dates are read as texts.
    odd : mapping of str to int
        Infinite numbers, or the few values that are no numbers or dates, and how often each occurs.
    odd_places : mapping of str to str
        The first line or row of each.
    """

    name: str
    levels: LevelCount
    format: ValueFormat | None = None
    n_rows: int = 0
    n_missing: int = 0
    unfit: bool = False
    is_number: bool = False
    is_date: bool = False
    is_text: bool = False
    is_object: bool = False
    inexact: str = ""
    missing: tuple[str, ...] = MISSING_TEXTS
    spelled: tuple[str, ...] = ()
    doubt: str = ""
    odd: Mapping[str, int] = field(default_factory=dict)
    odd_places: dict[str, str] = field(default_factory=dict)

    def add(self, table: pa.RecordBatch) -> None:
        """Add the rows of a batch."""
        column = table.column(self.name)
        self.n_rows += len(column)
        kind, types = column.type, pa.types
        self.is_text = self.is_text or is_text(kind)
        times = types.is_temporal(kind)
        self.unfit |= types.is_binary(kind) or (times and not is_date(kind))
        if self.unfit:
            return
        if times:
            self.is_date = True
            self.n_missing += int(as_dates(column).absent.sum())
            return
        self.levels.add(_shortened(column) if self.is_text else column)
        if self.is_text:
            return
        self.is_number = is_number(kind)
        if not self.is_number:
            self.n_missing += column.null_count
            return
        values = Numbers(table)[self.name].values
        self.n_missing += int(np.isnan(values).sum())
        if types.is_floating(kind):
            infinite, times = np.unique(values[np.isinf(values)], return_counts=True)
            self._add_infinite({str(v): n for v, n in zip(infinite.tolist(), times.tolist(), strict=True)})
        else:
            self._find_inexact(column, values)

    def _add_infinite(self, times: Mapping[str, int]) -> None:
        """Count infinite numbers, which are odd however many there are."""
        self.odd = {**self.odd, **{text: self.odd.get(text, 0) + n for text, n in times.items()}}
        self.n_missing += sum(times.values())

    def _find_inexact(self, column: pa.Array, values: NDArray[np.float64]) -> None:
        """Remember the first integer of a column that is not exact as a number."""
        large = column.filter(pa.array(np.abs(values) >= EXACT_INTEGERS))
        self.inexact = self.inexact or next((t for v in large.to_pylist() if not is_exact(t := str(v))), "")

    def complete(self) -> None:
        """Decide whether texts are numbers or dates, after the last batch, and whether numbers are ids."""
        if self.is_text and not self.unfit:
            self._complete_texts()
        if self.inexact:
            self.is_number, self.unfit = False, not self.is_category

    def _complete_texts(self) -> None:
        counts = self.levels.counts
        texts, times = pa.array(counts, pa.string()), np.fromiter(counts.values(), np.int64, len(counts))
        plain = as_float(texts)
        absent = np.isnan(plain.values) & ~plain.unreadable
        self.n_missing = int(times[absent].sum())
        if self.format is None and not plain.unreadable.any():
            self.is_number = True
            self._find_inexact(texts, plain.values)
            infinite = np.flatnonzero(np.isinf(plain.values)).tolist()
            self._add_infinite({texts[k].as_py().strip(): int(times[k]) for k in infinite})
            return
        present = without_missing(texts, self.missing)
        spelled = null_mask(present)
        format = format_of_texts(present.drop_null()) if self.format is None else self.format
        if self.format is None and (
            format is None or isinstance(format, Doubt) or _misses_dates(format, present)
        ):
            found = main_format(present.drop_null(), times[~spelled])
            if found is not None:
                format, is_odd = found.format, np.zeros(len(texts), bool)
                is_odd[~spelled] = found.is_odd
                self.odd = {texts[int(k)].as_py().strip(): int(times[k]) for k in np.flatnonzero(is_odd)}
                present = pc.if_else(pa.array(is_odd), None, present)
        if format is None or isinstance(format, Doubt):
            self.doubt = self._doubt(format, texts, np.where(plain.unreadable & ~spelled, times, 0))
            self.n_missing = self.n_rows if spelled.all() else self.n_missing
            return
        self.n_missing = int(times[spelled].sum()) + sum(self.odd.values())
        self.is_date, self.is_number = isinstance(format, str), not isinstance(format, str)
        self.unfit = _misses_dates(format, present)
        self.format = None if format in (ISO, NumberFormat()) else format
        self.spelled = tuple(texts.filter(pa.array(spelled & ~absent)).to_pylist())

    def _doubt(self, doubt: Doubt | None, texts: pa.Array, wrong: NDArray[np.int64]) -> str:
        """Return why values that look like numbers or dates are not read as such, if most of them do."""
        n_wrong = int(wrong.sum())
        if n_wrong <= (1.0 - MOSTLY) * (self.n_rows - self.n_missing):
            shown = texts[int(np.flatnonzero(wrong)[0])].as_py() if n_wrong else ""
            return f"{n_wrong:,} of {self.n_rows:,} values are not numbers, such as {shown[:40]!r}"
        if doubt is None or not doubt.example:
            return "" if doubt is None else doubt.reason
        return f"{doubt.reason}; --value-format {self.name}=EXAMPLE decides, for example {doubt.example}"

    @property
    def is_empty(self) -> bool:
        return self.n_missing == self.n_rows

    @property
    def is_useful(self) -> bool:
        return not (self.unfit or self.is_empty)

    @property
    def is_category(self) -> bool:
        """Whether values repeat: there are few, and at most half as many as rows."""
        return self.levels.n_values <= min(MOST_LEVELS, max(2, self.n_rows // 2))


def _misses_dates(format: ValueFormat, texts: pa.Array) -> bool:
    """Return whether some texts look like dates of ISO 8601 and are none, such as 30 February."""
    return format == ISO and bool(as_dates(texts).unreadable.any())


class ColumnKinds(NamedTuple):
    """Options for the columns of a table.

    Attributes
    ----------
    options : IngestKeywords
    left_out : tuple of str
        Columns of lists, objects, bytes, times of day or ids, or without values, if no columns are named.
    notes : tuple of str
        Sentences on texts that count as missing, and on columns whose values look like numbers or dates but
        are not read as such.
    """

    options: IngestKeywords
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def _shortened(column: pa.Array) -> pa.Array:
    """Return texts with long ones replaced by their beginning and a hash, which take less memory."""
    texts = category_texts(column)
    long = pc.greater(pc.binary_length(texts), _LONG)
    if not pc.any(long).as_py():
        return texts
    digests = [blake2b(text.encode(), digest_size=16).hexdigest() for text in texts.filter(long).to_pylist()]
    beginnings = pc.utf8_slice_codeunits(texts.filter(long), 0, _KEPT)
    cut = pc.binary_join_element_wise(beginnings, pa.array(digests, pa.string()), "… ")
    return pc.replace_with_mask(texts, long, cut)


def with_column_kinds(source: Any, options: IngestKeywords) -> ColumnKinds:
    """Return the options of an ingest, completed with column types detected in a sample of the rows.

    Without any column of features all columns become some, but for label, group, weight and those to keep:
    numbers, categories of few values, and else texts. Patterns become the columns that they match. Categories
    of few values become indicators where no text is hashed beside them. Missing numbers and dates are filled
    with the mean; where there are any, or values of the sample are missing, missing texts and categories are
    empty ones. What was given stays.

    Raises
    ------
    DataError
        If a named column is missing, no row can be read, or no column is usable.
    """
    if read_once(source):
        return ColumnKinds(options)  # do not consume sources that can be read only once
    options = expand_given(source, options)
    named = any(options.get(kind) for kind in FEATURES)
    texts: tuple[str, ...] = ()
    dense = (*columns_of(options.get("dense")), *columns_of(options.get("date")))
    categories = columns_of(options.get("categorical"))
    hashes = any(options.get(kind) for kind in ("text", "numeric", "hash_bits"))
    asked = (*dense, *(() if hashes else categories))
    if named and not asked:
        return ColumnKinds(options)
    columns = _sampled(source, options, asked if named else None)
    if columns is None:
        return ColumnKinds(options)
    completed = options.copy()
    if not named:
        texts = _kinds(columns, completed)
        categories, hashes = columns_of(completed.get("categorical")), bool(texts)
        dense = (*columns_of(completed.get("dense")), *columns_of(completed.get("date")))
    known = {column.name: column for column in columns}
    counts = [known[name].levels.n_values for name in categories if name in known]
    few = max(counts, default=0) <= MOST_LEVELS and sum(counts) <= MOST_INDICATORS
    if categories and few and not hashes:
        completed["one_hot"] = (*columns_of(completed.get("one_hot")), *categories)
        del completed["categorical"]
    if dense and (hashes or completed.get("categorical")):
        completed.setdefault("standardize", True)
    hashed = () if named else (*texts, *columns_of(completed.get("categorical")))
    if dense:
        _enter_formats(columns, completed)
    if "missing" not in completed and (dense or any(known[name].n_missing for name in hashed)):
        completed["missing"] = "fill"
    left_out = () if named else tuple(column.name for column in columns if not column.is_useful)
    return ColumnKinds(completed, left_out, tuple(_notes(columns)))


def _sampled(source: Any, options: IngestKeywords, wanted: Sequence[str] | None) -> list[_Column] | None:
    """Return facts about columns from a sample, by default all possible features; None for matrices."""
    sources = expand_sources(source, IngestOptions().but(options))
    if sources[0].format in MATRICES:
        return None
    others = {*columns_of(options.get("keep")), options.get("label"), options.get("group")}
    others.add(options.get("weight"))
    columns: dict[str, _Column] = {}
    formats = dict(ValueFormats.like(format_examples(options.get("value_format"))).formats)
    missing = (*MISSING_TEXTS, *(text.strip().lower() for text in columns_of(options.get("missing_text"))))
    n_rows, rejects = 0, []
    if wanted is None:
        wanted = _enter_nested(sources[0], columns)
    for _, batch in _batches(sources, wanted):
        rejects += batch.rejects[:1]
        n_rows += 0 if batch.table is None else batch.table.num_rows
        for name in () if batch.table is None else batch.table.column_names:
            if name not in others:
                new = _Column(name, LevelCount(name), formats.get(name), missing=missing)
                columns.setdefault(name, new).add(batch.table)
    if not n_rows:
        raise rejects[0].error() if rejects else no_rows(sources[0])
    for column in columns.values():
        column.complete()
    _find_places(sources, [column for column in columns.values() if column.odd])
    return list(columns.values())


def _enter_nested(source: Source, columns: dict[str, _Column]) -> list[str] | None:
    """Enter columns of lists and objects; return those to read instead, or None for all."""
    schema = FORMATS[source.format].schema(source, ReadHints(missing=True))
    for name, kind in zip(schema.names, schema.types, strict=True):
        if pa.types.is_nested(kind):
            columns[name] = _Column(name, LevelCount(name), unfit=True, is_object=pa.types.is_struct(kind))
    return [name for name in schema.names if name not in columns] or None if columns else None


def _batches(sources: Sequence[Source], wanted: Sequence[str] | None) -> Iterator[tuple[Part, Batch]]:
    """Yield the batches of the sample, each with its part."""
    hints = ReadHints(missing=True, columns=None if wanted is None else tuple(wanted))
    n_rows = 0
    for part in scan(sources, hints=hints):
        for batch in read(part, ReadRequest(wanted, on_bad_row="quarantine"), sources=sources):
            yield part, batch
            n_rows += 0 if batch.table is None else batch.table.num_rows
            n_columns = 0 if batch.table is None else batch.table.num_columns
            if n_rows >= SAMPLE_ROWS or n_rows * n_columns >= SAMPLE_VALUES:
                return


def _find_places(sources: Sequence[Source], columns: Sequence[_Column]) -> None:
    """Find the first line or row of each odd value, by reading the sample once more."""
    for part, batch in _batches(sources, [column.name for column in columns]) if columns else ():
        unit = "line" if part.format in TEXT_FORMATS else "row"
        for column in () if batch.table is None else columns:
            texts = pc.utf8_trim_whitespace(category_texts(batch.table.column(column.name)))
            for place in np.flatnonzero(pc.is_in(texts, pa.array(column.odd, pa.string()))):
                text = texts[int(place)].as_py()
                column.odd_places.setdefault(text, f"{unit} {batch.line[place]:,}")


def _enter_formats(columns: Sequence[_Column], options: IngestKeywords) -> None:
    """Add the formats of numbers and dates, and the texts that stand for missing ones, to the options."""
    used = {*columns_of(options.get("dense")), *columns_of(options.get("date"))}
    formats = dict(ValueFormats.like(format_examples(options.get("value_format"))).formats)
    formats |= {column.name: column.format for column in columns if column.name in used and column.format}
    if formats:
        options["value_format"] = ValueFormats(tuple(formats.items())).examples
    options["missing_text"] = (*MISSING_TEXTS, *columns_of(options.get("missing_text")))
    odd = tuple(column.name for column in columns if column.name in used and column.odd)
    if odd:
        options["odd_as_missing"] = (*columns_of(options.get("odd_as_missing")), *odd)


def _notes(columns: Sequence[_Column]) -> Iterator[str]:
    """Yield remarks on how columns are read."""
    for text in dict.fromkeys(text for column in columns for text in column.spelled):
        names = ", ".join(column.name for column in columns if text in column.spelled)
        yield f"{text!r} counts as missing in {names}"
    for column in columns:
        if column.is_object:
            yield f"{column.name} is an object; name its fields to use them: --text {column.name}.FIELD"
        if column.odd:
            yield told(column.name, column.odd, column.n_rows, column.odd_places)
        if column.inexact:
            use = "left out" if column.unfit else "categories"
            yield f"{column.name} has integers that are not exact as numbers, such as {column.inexact}: {use}"
        if column.doubt:
            yield f"{column.name} is not read as numbers or dates: {column.doubt}"


def _kinds(columns: Sequence[_Column], options: IngestKeywords) -> tuple[str, ...]:
    """Add each column to the options of its type; return the texts."""
    useful = [column for column in columns if column.is_useful]
    dates = tuple(column.name for column in useful if column.is_date)
    useful = [column for column in useful if not column.is_date]
    dense = tuple(column.name for column in useful if column.is_number)
    categories = tuple(column.name for column in useful if not column.is_number and column.is_category)
    texts = tuple(column.name for column in useful if not (column.is_number or column.is_category))
    if not (useful or dates):
        objects = [column.name for column in columns if column.is_object]
        cure = "name some with --text, --categorical, --one-hot or --dense"
        if objects:
            cure = f"name fields of {objects[0]!r}: --text {objects[0]}.FIELD, or --dense, --categorical"
        raise DataError("the table has no usable feature columns", cure)
    if dense:
        options["dense"] = dense
    if dates:
        options["date"] = dates
    if categories:
        options["categorical"] = categories
    if texts:
        options["text"] = texts
    return texts
