"""Columns of numbers or dates in which a few values are neither, such as a mistyped ``12.3x``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigmc.ingestion.columns.date_columns import as_dates
from bigmc.ingestion.columns.date_formats import EXAMPLES, ISO, times_in_format
from bigmc.ingestion.columns.number_columns import as_float
from bigmc.ingestion.columns.number_formats import Doubt, main_kind
from bigmc.ingestion.columns.value_formats import ValueFormat, format_of_texts, holds_digit
from bigmc.printable import listed

ODD_SHARE, MOST_ODD = 0.01, 20
"""Share of a column's values that may be odd, and how many different ones: more may mean something."""
FEWEST_OTHERS = 20
"""Minimum number of different numbers or dates beside them: fewer are categories, as in 1, 2, 3, 4+."""
_SHOWN = 3


class MainFormat(NamedTuple):
    """The format of nearly all values of a column, and which ones are odd."""

    format: ValueFormat
    is_odd: NDArray[np.bool_]


def main_format(texts: pa.Array, times: NDArray[np.int64]) -> MainFormat | None:
    """Return the format of all values of a column but a few odd ones; None if there is none.

    `texts` are the different values, trimmed, none of them missing; `times` says how often each occurs.
    """
    if not len(texts) or times[~holds_digit(texts)].sum() > ODD_SHARE * times.sum():
        return None
    for is_odd in _odd_ones(texts):
        n_odd, n_other = int(is_odd.sum()), int((~is_odd).sum())
        if (
            not 0 < n_odd <= MOST_ODD
            or n_other < FEWEST_OTHERS
            or times[is_odd].sum() > ODD_SHARE * times.sum()
        ):
            continue
        format = format_of_texts(texts.filter(pa.array(~is_odd)))
        if format is not None and not isinstance(format, Doubt):
            return MainFormat(format, is_odd)
    return None


def _odd_ones(texts: pa.Array) -> Iterator[NDArray[np.bool_]]:
    """Yield which texts are no plain numbers, not of the most frequent unit, or no dates of a format."""
    yield as_float(texts).unreadable
    yield ~main_kind(texts)
    yield as_dates(texts).unreadable
    for format in EXAMPLES:
        if format != ISO:
            yield times_in_format(texts, format)[1]


def note_on_odd(name: str, counts: Mapping[str, int], n_values: int, places: Mapping[str, str]) -> str:
    """Return a sentence on the odd values of a column, each with the first line or row it is in."""
    shown = [f"{text[:40]!r} in {places[text]}" if text in places else repr(text[:40]) for text in counts]
    n_odd = sum(counts.values())
    return (
        f"{n_odd:,} of {n_values:,} values of {name} {'is' if n_odd == 1 else 'are'} no number or date and "
        f"{'counts' if n_odd == 1 else 'count'} as missing, also in later rows and predictions: "
        f"{listed(shown, _SHOWN)}"
    )
