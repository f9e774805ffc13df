"""Which columns become features, and how; a model repeats this at prediction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigmc.errors import DataError
from bigmc.ingestion.columns.column_roles import Role, check_type_of
from bigmc.ingestion.columns.date_columns import as_dates, part_names
from bigmc.ingestion.columns.number_columns import Floats, Numbers, null_mask
from bigmc.ingestion.columns.table_columns import Filling, Levels, category_texts, filled, indicators
from bigmc.ingestion.columns.value_formats import PLAIN, ValueFormats
from bigmc.ingestion.columns.vector_columns import Vector
from bigmc.ingestion.hashing.categories import (
    Categories,
    categories_of,
    hash_categories,
    plain_text,
)
from bigmc.ingestion.hashing.hasher import TextHasher, hash_names
from bigmc.ingestion.readers.exact import EXACT_INTEGERS, is_exact
from bigmc.ingestion.readers.rejects import ABSENT, NOT_A_NUMBER
from bigmc.store.feature_map import FeatureMap
from bigmc.store.shards.csr import Rows, sum_of_rows

Samples = Rows | NDArray[Any]
"""Samples in row order, sparse or as a 2-D array."""

Bad = dict[int, str]
"""Position of an invalid row in its batch → the reason."""

_Fault = tuple[str, int, str]
"""Column of an invalid value, position of its row in the batch, and what is wrong."""

_SHOWN = 40
"""Letters of an invalid value that a reason quotes."""


@dataclass(frozen=True)
class FeatureSpec:
    """Which columns of a table or matrix become features, and how.

    Attributes
    ----------
    text : tuple of str
        Text columns, hashed into ``2**hash_bits`` buckets; the texts of a row add up, unless the hasher is
        ``by_column``.
    categorical : tuple of str
        Columns hashed as ``name=value``, into the same buckets, as scikit-learn's ``FeatureHasher``.
    numeric : tuple of str
        Columns hashed by their name, with the value as weight, into the same buckets.
    dense : tuple of str
        Numeric columns, each its own feature, after the buckets.
    hasher : TextHasher, optional
        Hashing parameters; None when nothing is hashed.
    n_own : int
        Features of a matrix source, 0 for tables.
    first_index : int, optional
        Index of the first feature in svmlight files, 0 or 1; None for other sources.
    map : FeatureMap, optional
        Transformation of the features before they are stored; all features are then dense.
    missing : bool
        Whether values of dense columns or a matrix may be missing; they are kept as NaN.
    one_hot : tuple of Levels
        Categories with a feature of 0 and 1 for each value, after the dense ones. An unknown or missing value
        is 0 in all.
    filling : Filling, optional
        Replacements of missing dense values, instead of NaN. With them, missing texts and
        categories count as empty.
    dates : tuple of str
        Columns of dates; each becomes several numbers after the dense ones, see
        `bigmc.ingestion.columns.date_columns`.
    value_formats : ValueFormats
        How numbers and dates are written in columns of texts, and what stands for missing ones.
    vectors : tuple of Vector
        Columns of lists of numbers; each place is a feature after those of dates.
    """

    text: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    numeric: tuple[str, ...] = ()
    dense: tuple[str, ...] = ()
    hasher: TextHasher | None = None
    n_own: int = 0
    first_index: int | None = None
    map: FeatureMap | None = None
    missing: bool = False
    one_hot: tuple[Levels, ...] = ()
    filling: Filling | None = None
    dates: tuple[str, ...] = ()
    value_formats: ValueFormats = PLAIN
    vectors: tuple[Vector, ...] = ()

    @property
    def numbers(self) -> tuple[str, ...]:
        """Names of the numeric features: dense columns, numbers from dates, and places of lists."""
        places = (name for vector in self.vectors for name in vector.names)
        return (*self.dense, *part_names(self.dates), *places)

    @property
    def vector_columns(self) -> tuple[str, ...]:
        """Names of the columns of lists of numbers."""
        return tuple(vector.column for vector in self.vectors)

    @property
    def category_columns(self) -> tuple[str, ...]:
        """Names of the columns of categories."""
        return (*self.categorical, *(levels.column for levels in self.one_hot))

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of all columns needed, without duplicates."""
        hashed = (*self.text, *self.categorical, *self.numeric)
        one_hot = (levels.column for levels in self.one_hot)
        return tuple(dict.fromkeys((*hashed, *self.dense, *self.dates, *self.vector_columns, *one_hot)))

    @property
    def number_columns(self) -> tuple[str, ...]:
        """Names of the columns of numbers, hashed or not, and of lists of numbers."""
        return (*self.dense, *self.numeric, *self.vector_columns)

    @property
    def json_types(self) -> Mapping[str, pa.DataType]:
        """Types that columns of JSON lines are read as, by name."""
        texts = {name: pa.string() for name in self.text}
        return texts | {name: pa.list_(pa.float64()) for name in self.vector_columns}

    @property
    def own_names(self) -> tuple[str, ...]:
        """Names of the features after the hashed ones, one for each column of numbers."""
        flags = self.filling.flag_names(self.numbers) if self.filling else ()
        return (*self.numbers, *flags, *(name for levels in self.one_hot for name in levels.names))

    @property
    def takes_missing(self) -> bool:
        """Whether dense values may be missing."""
        return self.missing or self.fills

    @property
    def fills(self) -> bool:
        """Whether missing values are replaced."""
        return self.filling is not None and self.filling.fills

    @property
    def missing_as(self) -> Literal["refuse", "keep", "fill"]:
        """The option ``missing`` of the ingest."""
        return "keep" if self.missing else "fill" if self.takes_missing else "refuse"

    @property
    def n_features(self) -> int:
        """Number of features of the dataset."""
        if self.map is not None:
            return self.map.n_features
        return (self.hasher.n_features if self.hasher else 0) + len(self.own_names) + self.n_own

    @property
    def only_dense(self) -> bool:
        """Whether every column is a number with its own feature."""
        return self.hasher is None and bool(self.numbers or self.one_hot)

    @property
    def named(self) -> bool:
        """Whether there are hashed features whose names may be collected."""
        return bool(self.text or self.categorical)

    def to_dict(self) -> Mapping[str, Any]:
        """Return the specification as JSON data; ``columns`` names the features if none is hashed."""
        data = asdict(replace(self, map=None)) | {"hasher": self.hasher.to_dict() if self.hasher else None}
        data.pop("map")
        data.pop("value_formats")
        if self.value_formats:
            data["value_formats"] = self.value_formats.to_dict()
        for name in ("one_hot", "filling", "dates", "vectors"):
            if not getattr(self, name):
                data.pop(name)
        if self.map is not None:
            data["map"] = self.map.to_dict()
        if not self.missing:
            data.pop("missing")
        named = self.only_dense and not (self.map and self.map.fourier)
        return data | ({"columns": list(self.own_names)} if named else {})

    def with_fitted(self, stored: FeatureSpec) -> FeatureSpec:
        """Return these features with the fitted parts of a dataset with the same columns."""
        columns, others = (
            (*spec.dense, *spec.dates, *spec.vector_columns, *(levels.column for levels in spec.one_hot))
            for spec in (self, stored)
        )
        fitted = stored if columns == others and self.missing_as == stored.missing_as else self
        return replace(
            self, map=stored.map, one_hot=fitted.one_hot, filling=fitted.filling, vectors=fitted.vectors
        )

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> FeatureSpec:
        """Return the specification that :meth:`to_dict` wrote."""
        names = {key: tuple(data[key]) for key in ("text", "categorical", "numeric", "dense")}
        filling = data.get("filling")
        return cls(
            **names,
            hasher=TextHasher.from_dict(data["hasher"]) if data["hasher"] else None,
            n_own=data["n_own"],
            first_index=data.get("first_index"),
            map=FeatureMap.from_dict(data["map"]) if "map" in data else None,
            missing=data.get("missing", False),
            one_hot=tuple(Levels(each["column"], tuple(each["values"])) for each in data.get("one_hot", ())),
            filling=Filling.from_dict(filling) if filling else None,
            dates=tuple(data.get("dates", ())),
            value_formats=ValueFormats.from_dict(data["value_formats"]) if "value_formats" in data else PLAIN,
            vectors=tuple(Vector(each["column"], each["width"]) for each in data.get("vectors", ())),
        )

    def column_names(self, schema: pa.Schema) -> pa.Table:
        """Return the names of features that are single columns, besides hashed ones, as a names table."""
        if self.hasher is None:
            return schema.empty_table()
        index, sign = hash_names(list(self.numeric), self.hasher.hash_bits)
        first = self.hasher.n_features
        rows: dict[str, list[Any]] = {
            "bucket": [*index.tolist(), *range(first, first + len(self.own_names))],
            "name": [*self.numeric, *self.own_names],
            "sign": [*sign.tolist(), *[1] * len(self.own_names)],
            "count": [None] * (len(self.numeric) + len(self.own_names)),
        }
        return pa.table({name: rows[name] for name in schema.names}, schema=schema)

    def read_numbers(self, table: pa.RecordBatch) -> Numbers:
        """Return the columns of a batch as numbers, which are read at first use."""
        return Numbers(table, self.value_formats)

    def read_dates(self, table: pa.RecordBatch, name: str) -> Floats:
        """Return a column of dates as numbers."""
        formats = self.value_formats
        dates = as_dates(table.column(name), formats.of_dates(name), formats.missing)
        return dates.without_odd() if name in formats.odd else dates

    def read_several(self, table: pa.RecordBatch) -> Iterator[Floats]:
        """Yield the columns that become several numbers each, in the order of `numbers`."""
        yield from (self.read_dates(table, name) for name in self.dates)
        yield from (vector.read(table.column(vector.column)) for vector in self.vectors)

    def count_odd(self, table: pa.RecordBatch) -> int:
        """Return how many values of a batch are no numbers or dates and count as missing for that."""
        formats = self.value_formats
        as_found = replace(self, value_formats=replace(formats, odd=()))
        numbers, n_odd = as_found.read_numbers(table), 0
        for name in formats.odd:
            column = as_found.read_dates(table, name) if name in self.dates else numbers[name]
            n_odd += int(column.odd.sum())
        return n_odd

    def find_bad(self, table: pa.RecordBatch, numbers: Numbers | None = None) -> Bad:
        """Return the rows with invalid features, with the reason.

        `numbers` are the columns of the table; parsed columns are kept there.
        """
        numbers = self.read_numbers(table) if numbers is None else numbers
        self.check_types(table.schema)
        bad: Bad = {}
        faults = (self._bad_texts(table), self._bad_numbers(table, numbers), self._bad_several(table))
        for name, position, what in chain.from_iterable(faults):
            bad.setdefault(position, f"column {name!r} {what}")
        return bad

    def _bad_texts(self, table: pa.RecordBatch) -> Iterator[_Fault]:
        """Yield missing texts and categories, unless they are filled."""
        for name in () if self.fills else (*self.text, *self.categorical):
            for position in np.flatnonzero(null_mask(table.column(name))).tolist():
                yield name, position, ABSENT

    def _bad_numbers(self, table: pa.RecordBatch, numbers: Numbers) -> Iterator[_Fault]:
        """Yield numbers that are missing, unreadable, infinite, or integers that are not exact."""
        may_miss = frozenset(self.dense if self.takes_missing else ())
        columns = (*self.numeric, *self.dense)
        good = numbers.read_together(columns)
        for name in columns:
            if name in good or _is_plain(column := table.column(name)):
                continue
            values, absent, unreadable = numbers[name]
            if name in may_miss:
                values = np.where(np.isnan(values), 0.0, values)
            else:
                unreadable = unreadable & ~absent
                yield from ((name, position, ABSENT) for position in np.flatnonzero(absent).tolist())
            for position in np.flatnonzero(unreadable).tolist():
                yield name, position, f"{NOT_A_NUMBER} {str(column[position].as_py())[:_SHOWN]!r}"
            if np.abs(values).max(initial=0.0) < EXACT_INTEGERS:
                continue  # as in nearly every batch: all are finite and exact
            for position in np.flatnonzero(~np.isfinite(values) & ~unreadable).tolist():
                yield name, position, f"is {values[position]}"
            for position in np.flatnonzero(np.abs(values) >= EXACT_INTEGERS).tolist():
                text = str(column[position].as_py())
                if not is_exact(text):
                    yield name, position, f"is {text}, which is not exact as a 64-bit float"

    def _bad_several(self, table: pa.RecordBatch) -> Iterator[_Fault]:
        """Yield missing dates and lists, unless they are filled or kept, and what is no date or list."""
        for name in self.dates:
            _, absent, unreadable = self.read_dates(table, name)
            for position in np.flatnonzero(unreadable | (absent & (not self.takes_missing))).tolist():
                other = f"is not a date like {self.value_formats.date_example(name)}"
                yield name, position, ABSENT if absent[position] else other
        for vector in self.vectors:
            faults = vector.faults(table.column(vector.column), self.takes_missing)
            yield from ((vector.column, position, what) for position, what in faults)

    def check_types(self, schema: pa.Schema) -> None:
        """Raise `DataError` if the type of a column does not fit its use, naming an option that fits."""
        numbers = (*self.numeric, *self.dense)
        check_type_of(Role.TEXT, self.text, schema)
        check_type_of(Role.CATEGORY, self.category_columns, schema)
        check_type_of(Role.DATE, self.dates, schema)
        check_type_of(Role.NUMBER, numbers, schema)
        check_type_of(Role.VECTOR, self.vector_columns, schema)

    def categories(self, table: pa.RecordBatch, before: Sequence[Categories] = ()) -> list[Categories]:
        """Return the categorical columns of a batch without bad rows, given those of an earlier batch."""
        earlier = dict(zip(self.categorical, before, strict=False))
        columns = {name: table.column(name) for name in self.categorical}
        if self.fills:  # missing ones are empty texts
            with_null = [name for name, column in columns.items() if null_mask(column).any()]
            columns |= {name: category_texts(columns[name]) for name in with_null}
        return [categories_of(column, name, earlier.get(name)) for name, column in columns.items()]

    def texts(self, table: pa.RecordBatch) -> dict[str, pa.Array]:
        """Return the text columns of a batch without bad rows, by name."""
        columns = {name: plain_text(table.column(name)) for name in self.text}
        return {name: texts.fill_null("") for name, texts in columns.items()} if self.fills else columns

    def transform(
        self,
        table: pa.RecordBatch,
        categories: Sequence[Categories] | None = None,
        numbers: Numbers | None = None,
    ) -> Samples:
        """Return the features of a batch without bad rows, as a float64 array when every feature is dense.

        `categories` and `numbers` are its categorical columns and its columns of numbers, if they were read
        before.
        """
        numbers = self.read_numbers(table) if numbers is None else numbers
        dense = np.empty((table.num_rows, len(self.dense)))
        for place, name in enumerate(self.dense):
            dense[:, place] = numbers[name].values
        if self.dates or self.vectors:
            dense = np.hstack([dense, *(column.values for column in self.read_several(table))])
        own = [dense] if self.filling is None else filled(dense, self.filling)
        own += [indicators(table.column(levels.column), levels) for levels in self.one_hot]
        dense = np.hstack(own) if len(own) > 1 else dense
        if self.hasher is None:
            return self.mapped(dense)
        pieces = [self.hasher.transform(texts, name) for name, texts in self.texts(table).items()]
        bits = self.hasher.hash_bits
        if self.categorical:
            columns = self.categories(table) if categories is None else categories
            pieces.append(hash_categories(columns, bits)._replace(n_features=self.n_features))
        for name in self.numeric:
            index, sign = hash_names([name], bits)
            values = numbers[name].values * sign[0]
            pieces.append(Rows.of_feature(int(index[0]), values, self.n_features))
        if dense.shape[1]:
            entries = Rows.of_dense(dense)
            places = entries.indices + np.int32(self.hasher.n_features)
            pieces.append(entries._replace(indices=places, n_features=self.n_features))
        return sum_of_rows(pieces, self.n_features)

    def mapped(self, samples: Samples) -> Samples:
        """Apply the feature map, if any, to dense samples.

        `DataError` if there is one and the samples are sparse, or have another number of features.
        """
        if self.map is None:
            return samples
        width = len(self.map.mean)
        if isinstance(samples, Rows) or samples.shape[1] != width:
            raise DataError(
                f"the samples are not dense or do not have {width} features",
                "give samples like those of the training data",
            )
        return self.map.transform(samples)


def _is_plain(column: pa.Array) -> bool:
    """Return whether all values are finite floats, too small to be inexact integers."""
    if column.null_count or not (pa.types.is_float64(column.type) or pa.types.is_float32(column.type)):
        return False
    values = column.to_numpy()
    return bool(len(values) == 0 or np.abs(values).max() < EXACT_INTEGERS)  # False for NaN
