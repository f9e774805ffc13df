"""How the values of a column are written, where it is not as programs write numbers and dates.

`bigmc fit` finds out from a sample, or a user gives an example; the dataset and every model of it keep it, so
that prediction reads the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from bigmc.errors import DataError
from bigmc.ingestion.columns.date_forms import EXAMPLES, ISO, date_form
from bigmc.ingestion.columns.doubtful_labels import LIKE_MISSING
from bigmc.ingestion.columns.number_forms import Doubt, NumberForm, number_form
from bigmc.lazy import LazyModule

pc = LazyModule("pyarrow.compute")

MISSING_TEXTS = tuple(
    sorted(
        LIKE_MISSING
        | {"<na>", "(null)", "n.a.", "n.a", "n.d.", "nd", "not available", "not applicable", "missing"}
        | {"undefined", "\\n", ".", "--", "---", "–", "—", "*", "#value!", "#div/0!", "#null!", "#num!"}
        | {"#name?", "#ref!", "tbd"}
    )
)
"""What usually stands for a missing number or date, in small letters."""
_ISO_DATE = r"^\d{4}-\d{2}-\d{2}([ T]|$)"

Form = NumberForm | str
"""Of numbers, or of dates as a key of `EXAMPLES`."""


@dataclass(frozen=True)
class Written:
    """How columns are written.

    Attributes
    ----------
    forms : tuple of pairs of str and Form
        Columns, each with its form.
    missing : tuple of str
        Texts, in small letters, that stand for a missing number or date in any column.
    """

    forms: tuple[tuple[str, Form], ...] = ()
    missing: tuple[str, ...] = ()

    @classmethod
    def like(cls, examples: Sequence[str], missing: Sequence[str] = ()) -> Written:
        """Return how columns are written that have one or more examples like ``price=$1,234.50``.

        Raises
        ------
        DataError
            If one of them is neither a number nor a date, or may be read in several ways.
        """
        by_column: dict[str, list[str]] = {}
        for item in examples:
            column, equals, example = item.rpartition("=")
            if not (column and equals):
                raise DataError(f"{item!r} names no column", "write it like price=$1,234.50")
            by_column.setdefault(column, []).append(example.strip())
        forms = ((column, _form_like(column, some)) for column, some in by_column.items())
        texts = tuple(sorted({text.strip().lower() for text in missing}))
        return cls(tuple(sorted(forms, key=lambda pair: pair[0])), texts)

    @property
    def examples(self) -> tuple[str, ...]:
        """Examples of which :meth:`like` makes the same."""
        return tuple(f"{column}={text}" for column, form in self.forms for text in examples_of(form))

    def form_of(self, column: str) -> Form | None:
        """Return the form of a column, None if it is as programs write."""
        return dict(self.forms).get(column)

    def of_numbers(self, column: str) -> NumberForm:
        """Return the form of a column of numbers."""
        form = self.form_of(column)
        return form if isinstance(form, NumberForm) else NumberForm()

    def of_dates(self, column: str) -> str:
        """Return the form of a column of dates."""
        form = self.form_of(column)
        return form if isinstance(form, str) else ISO

    def date_example(self, column: str) -> str:
        """Return what the dates of a column are like."""
        form = self.of_dates(column)
        return f"{EXAMPLES[ISO]} or {EXAMPLES[ISO]}T08:30:00" if form == ISO else EXAMPLES[form]

    def __bool__(self) -> bool:
        return bool(self.forms or self.missing)

    def to_dict(self) -> Mapping[str, Any]:
        """Return this as JSON data."""
        forms = {
            column: {"date": form} if isinstance(form, str) else {"number": form.to_dict()}
            for column, form in self.forms
        }
        return {"forms": forms, "missing": list(self.missing)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Written:
        """Return what :meth:`to_dict` wrote.

        Raises
        ------
        DataError
            If dates are in a form that this version does not know.
        """
        forms = tuple((column, _form_from(column, form)) for column, form in data["forms"].items())
        return cls(forms, tuple(data["missing"]))


AS_PROGRAMS = Written()
"""No column is written otherwise than programs write, and only blanks are missing."""


def examples_of(form: Form) -> tuple[str, ...]:
    """Return values written in a form."""
    return (EXAMPLES[form],) if isinstance(form, str) else form.examples


def without_missing(texts: pa.Array, missing: Sequence[str]) -> pa.Array:
    """Return texts trimmed, null where they are blank or one of some that stand for a missing value."""
    trimmed = pc.utf8_trim_whitespace(texts)
    absent = pc.is_in(pc.utf8_lower(trimmed), pa.array(["", *missing], trimmed.type))
    return pc.if_else(absent, None, trimmed)


def form_of_texts(texts: pa.Array) -> Form | Doubt | None:
    """Return how texts, trimmed and none of them missing, are written; None if some hold neither."""
    if len(texts) and pc.all(pc.match_substring_regex(texts, _ISO_DATE)).as_py():
        return ISO
    form = number_form(texts)
    if isinstance(form, NumberForm):
        return form
    return date_form(texts) or form


def _form_from(column: str, data: Mapping[str, Any]) -> Form:
    if "number" in data:
        return NumberForm.from_dict(data["number"])
    if data["date"] not in EXAMPLES:
        raise DataError(
            f"the dates of column {column!r} are written as {data['date']!r}", "use a later version of bigmc"
        )
    return str(data["date"])


def _form_like(column: str, examples: Sequence[str]) -> Form:
    form = form_of_texts(pa.array(examples, pa.string()))
    if form is None or isinstance(form, Doubt):
        reason = "it is neither a number nor a date" if form is None else form.reason
        raise DataError(
            f"{examples[0]!r} does not tell how column {column!r} is written: {reason}",
            "give a larger number or another date, such as 1,234,567.5 or 12/31/2026",
        )
    return form
