"""Options of every command that reads raw files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from bigmc.errors import DataError
from bigmc.options.declare import option

OnBadRow = Literal["fail", "quarantine"]
"""What happens to a row that cannot be used: an error, or it is set aside."""


@dataclass(frozen=True, kw_only=True)
class RawOptions:
    """How raw files are read.

    Attributes
    ----------
    on_bad_row : {"fail", "quarantine"}
        Stop at a row that cannot be used, or set it aside with the reason.
    format : str, optional
        Format of the files; by default their names tell.

    Raises
    ------
    DataError
        If `on_bad_row` is something else.
    """

    on_bad_row: OnBadRow = option("fail", "fail: stop at it. quarantine: set it aside.")
    format: str | None = option(None, "csv, tsv, jsonl, parquet or svmlight; by default from the name.")

    def __post_init__(self) -> None:
        if self.on_bad_row not in get_args(OnBadRow):
            choices = " or ".join(get_args(OnBadRow))
            raise DataError(f"on_bad_row is {self.on_bad_row!r}", f"choose {choices}")
