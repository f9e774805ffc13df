"""What the columns of a table may be, by their types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from types import MappingProxyType

import pyarrow as pa

from bigmc.errors import DataError
from bigmc.ingestion.columns.date_columns import is_date
from bigmc.ingestion.columns.number_columns import is_number
from bigmc.ingestion.columns.vector_columns import is_list_of_numbers, is_vector
from bigmc.ingestion.hashing.categories import is_text
from bigmc.printable import listed


class Role(Enum):
    """What a column is to be, in words."""

    TEXT = "text"
    CATEGORY = "a category"
    DATE = "a date"
    NUMBER = "a number"
    VECTOR = "a list of numbers"


def _is_category(kind: pa.DataType) -> bool:
    return not pa.types.is_nested(kind)


_FITS: Mapping[Role, Callable[[pa.DataType], bool]] = MappingProxyType(
    {
        Role.TEXT: is_text,
        Role.CATEGORY: _is_category,
        Role.DATE: is_date,
        Role.NUMBER: is_number,
        Role.VECTOR: is_vector,
    }
)
_OPTIONS: Mapping[str, Callable[[pa.DataType], bool]] = MappingProxyType(
    {
        "--text": is_text,
        "--numeric": is_number,
        "--dense": is_number,
        "--date": is_date,
        "--vector": is_list_of_numbers,
        "--categorical": _is_category,
    }
)
"""Options for a column that does not fit its role; texts are no lists, as a rule."""


def check_type_of(use: Role, columns: Sequence[str], schema: pa.Schema) -> None:
    """Raise `DataError` if the type of a column does not fit its role, naming the options that fit."""
    for name in columns:
        kind = schema.field(name).type
        if not _FITS[use](kind):
            reason = f"column {name!r} has type {kind}, which is not {use.value}"
            raise DataError(reason, _other_use(name, kind))


def _other_use(name: str, kind: pa.DataType) -> str:
    """Return what to do with a column of a type that does not fit its role."""
    if pa.types.is_struct(kind):
        return f"name a field of it, such as {name}.{kind.field(0).name}" if len(kind) else "leave it out"
    fitting = [option for option, fits in _OPTIONS.items() if fits(kind)]
    if not fitting:
        return "make it a column of texts or numbers, or leave it out"
    last = f" or {fitting[-1]}" if len(fitting) > 1 else fitting[-1]
    return f"name it with {listed(fitting[:-1])}{last}"
