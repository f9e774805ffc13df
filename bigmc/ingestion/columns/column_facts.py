"""What the rows of a sample tell about a column: numbers, dates, categories or texts, or row numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from hashlib import blake2b

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigmc.ingestion.columns.date_columns import as_dates, is_date
from bigmc.ingestion.columns.date_formats import ISO
from bigmc.ingestion.columns.label_copies import LabelCopy
from bigmc.ingestion.columns.number_columns import Numbers, as_float, is_number, null_mask
from bigmc.ingestion.columns.number_formats import Doubt, NumberFormat
from bigmc.ingestion.columns.odd_values import main_format
from bigmc.ingestion.columns.row_numbers import FEWEST_ROWS, RowNumbers
from bigmc.ingestion.columns.table_columns import MOST_LEVELS, LevelCount, category_texts
from bigmc.ingestion.columns.value_formats import (
    MISSING_TEXTS,
    ValueFormat,
    format_of_texts,
    without_missing,
)
from bigmc.ingestion.columns.vector_columns import is_list_of_numbers, lists_of_numbers
from bigmc.ingestion.hashing.categories import is_text
from bigmc.ingestion.readers.exact import EXACT_INTEGERS, is_exact
from bigmc.lazy import LazyModule

pc = LazyModule("pyarrow.compute")

MOSTLY = 0.9
"""Share of numbers in a column above which `fit` reports why it is not read as numbers."""
OFTEN = 50
"""Rows of each value, on average, from which on many values are categories, too: with so many rows each value
has a weight of its own, and what parts of it have in common with those of others adds little."""
_LONG, _KEPT = 100, 40
"""Longer texts, in bytes, are neither numbers nor dates; and the characters to keep of them."""
_RANDOM_ID = r"^\{?(?:[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}|[0-9a-fA-F]{32,64})\}?$"
"""A UUID, or a digest of 128 to 256 bits."""
_INDEX_NAME = re.compile(
    r"column 1|Unnamed: 0|__index_level_\d+__|index|row[ _.]?(names?|numbers?|id)?", re.I
)
"""Names of the index of a data frame: the first is what a first column without a name is called here."""
_ID_NAME = re.compile(r"(?i:id|(.*[ _.-])id)|.*[a-z]I[dD]")
"""Names of ids: ``id``, ``user_id``, ``userId``, but not ``humid``."""


class Use(Enum):
    """What a column is for, as far as the user said."""

    UNKNOWN = auto()
    CATEGORY = auto()


@dataclass
class ColumnFacts:
    """Facts about a column, from the sample.

    `levels` are its values, but for floats unless they are categories. `format`, of numbers or dates, comes
    from an example of the user or from the values. `n_missing` counts rows without a value. `unfit` are
    lists, objects, bytes, times of day, incomplete dates, and integers that are not exact as numbers and do
    not repeat: left out unless they are named. Whether all values are numbers, or dates, is known of texts
    when the sample is complete. `inexact` is the first integer that is not exact as a number, such as an id
    of 18 digits.

    Texts in `missing`, in lower case, stand for a missing number or date, and `spelled` are those of them
    that occur. `doubt` is why values that look like numbers or dates are read as texts. `odd` counts infinite
    numbers, or the few values that are no numbers or dates, and `odd_places` has the first line or row of
    each. `row_numbers` and `label_copy` find out whether the column numbers the rows, or tells the class of
    every row.
    """

    name: str
    levels: LevelCount = field(default_factory=LevelCount)
    format: ValueFormat | None = None
    n_rows: int = 0
    n_missing: int = 0
    unfit: bool = False
    is_number: bool = False
    is_date: bool = False
    is_text: bool = False
    is_object: bool = False
    is_vector: bool = False
    width: int = 0
    inexact: str = ""
    missing: tuple[str, ...] = MISSING_TEXTS
    spelled: tuple[str, ...] = ()
    doubt: str = ""
    odd: Mapping[str, int] = field(default_factory=dict)
    odd_places: dict[str, str] = field(default_factory=dict)
    row_numbers: RowNumbers = field(default_factory=RowNumbers)
    label_copy: LabelCopy = field(default_factory=LabelCopy)
    use: Use = Use.UNKNOWN

    def add(self, table: pa.RecordBatch) -> None:
        """Add the rows of a batch."""
        column = table.column(self.name)
        self.n_rows += len(column)
        kind, types = column.type, pa.types
        first = self.n_rows == len(column)
        if self.is_vector or is_list_of_numbers(kind) or (first and _holds_lists(column)):
            return self._add_lists(column)
        self.is_text = self.is_text or is_text(kind)
        times = types.is_temporal(kind)
        self.unfit |= _is_bytes(kind) or (times and not is_date(kind))
        if self.unfit:
            return
        if times:
            self.is_date = True
            self.n_missing += int(as_dates(column).absent.sum())
            return
        if self.use is Use.CATEGORY or not types.is_floating(kind):
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

    def _add_lists(self, column: pa.Array) -> None:
        """Look at the lengths of lists: those of one length are vectors."""
        lengths = lists_of_numbers(column.drop_null()).lengths
        self.n_missing += column.null_count
        self.is_vector = True
        self.width = self.width or int(lengths.max(initial=0))  # of the first batch that has any
        self.unfit |= bool((lengths != self.width).any())

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
    def is_useful(self) -> bool:
        """Whether the column can be a feature, and a row has a value."""
        return not self.unfit and self.n_missing < self.n_rows

    @property
    def is_id(self) -> bool:
        """Whether it numbers or names the rows, which tells nothing of new rows."""
        return self.row_numbers.found or self.is_random_id or self.is_index

    @property
    def is_shuffled_row_number(self) -> bool:
        """Whether the values are the numbers of the rows, in another order."""
        values = self._different_integers()
        return len(values) > 0 and values[0] in (0, 1) and values[-1] - values[0] + 1 == len(values)

    @property
    def is_index(self) -> bool:
        """Whether it is named as an index or id is, and no two rows have the same value.

        Rows drawn from a larger table keep its numbers: those of a table sorted by class tell the class.
        """
        if _INDEX_NAME.fullmatch(self.name):
            n_rows = self.row_numbers.n_rows
            return len(self.levels.counts) == n_rows >= FEWEST_ROWS
        return _ID_NAME.fullmatch(self.name) is not None and len(self._different_integers()) > 0

    def _different_integers(self) -> NDArray[np.float64]:
        """Return the values in increasing order if they are different whole numbers, else none."""
        n_rows = self.row_numbers.n_rows
        if not self.is_number or len(self.levels.counts) != n_rows or n_rows < FEWEST_ROWS:
            return np.empty(0)
        values = np.unique(as_float(pa.array(self.levels.counts, pa.string())).values)
        return values if len(values) == n_rows and (values == np.floor(values)).all() else np.empty(0)

    @property
    def is_random_id(self) -> bool:
        """Whether every row has another UUID or digest, which tells nothing of new rows."""
        counts = self.levels.counts
        if not self.is_text or len(counts) < FEWEST_ROWS:
            return False
        texts = without_missing(pa.array(counts, pa.string()), self.missing)
        times = np.fromiter(counts.values(), np.int64, len(counts))[~null_mask(texts)]
        matches = pc.match_substring_regex(texts.drop_null(), _RANDOM_ID)
        return len(times) >= FEWEST_ROWS and bool((times == 1).all()) and pc.all(matches).as_py()

    @property
    def is_category(self) -> bool:
        """Whether values repeat: there are few, and at most half as many as rows, or each is frequent."""
        n_levels = len(self.levels.counts)
        few = n_levels <= min(MOST_LEVELS, max(2, self.n_rows // 2))
        return few or n_levels * OFTEN <= self.n_rows


def _holds_lists(column: pa.Array) -> bool:
    """Return whether all values are texts of lists such as ``[0.5, 1]``, as CSV files have them."""
    if not is_text(column.type) or not any(text.startswith("[") for text in column[:1].to_pylist() if text):
        return False
    lengths = lists_of_numbers(column.drop_null()).lengths
    return len(lengths) > 0 and int(lengths.min()) > 1


def _is_bytes(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind))


def _misses_dates(format: ValueFormat, texts: pa.Array) -> bool:
    """Return whether some texts look like dates of ISO 8601 and are none, such as 30 February."""
    return format == ISO and bool(as_dates(texts).unreadable.any())


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
