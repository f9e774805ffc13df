"""What prediction and evaluation may be asked for: one frozen object each, checked once."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, get_args

from bigmc.errors import DataError
from bigmc.ingestion.found_files import FileOptions
from bigmc.ingestion.rejects import OnBadRow
from bigmc.ingestion.sources import USUAL_FILES

OWN_COLUMNS = ("row_id", "predicted_label", "predicted_labels")
"""Columns of every file of predictions; those of scores begin with ``score_``."""


@dataclass(frozen=True)
class PredictOptions:
    """What `bigmc predict` writes, and of which rows.

    Attributes
    ----------
    split : str, optional
        Split of a dataset; by default all its rows.
    scores : bool
        Write the score of every class.
    proba : bool
        Write the probability of every class instead.
    keep : tuple of str
        Columns of the source that are copied beside the predictions.
    on_bad_row : {"fail", "quarantine"}
        Stop at a raw row that cannot be used, or set it aside.
    files : FileOptions
        How raw files are written; by default their names tell.
    """

    split: str | None = None
    scores: bool = False
    proba: bool = False
    keep: tuple[str, ...] = ()
    on_bad_row: OnBadRow = "fail"
    files: FileOptions = USUAL_FILES

    def __post_init__(self) -> None:
        if self.on_bad_row not in get_args(OnBadRow):
            choices = " or ".join(get_args(OnBadRow))
            raise DataError(f"on_bad_row is {self.on_bad_row!r}", f"choose {choices}")
        if self.scores and self.proba:
            raise DataError("scores and probabilities are not written together", "ask for one of them")
        for name in self.keep:
            if name in OWN_COLUMNS or name.startswith(("score_", "probability_")):
                raise DataError(f"predictions have a column {name!r} of their own", "rename the column")
            if self.keep.count(name) > 1:
                raise DataError(f"the column {name!r} is named {self.keep.count(name)} times", "name it once")

    @property
    def per_class(self) -> bool:
        """Whether something is written of every class."""
        return self.scores or self.proba

    def fingerprint(self) -> dict[str, Any]:
        """Return what decides which predictions come out, as JSON data."""
        fields = asdict(self) | {"format": self.files.format}
        hidden = {"files"} if self.proba else {"files", "proba"}  # a source tells how its text is written
        return {name: value for name, value in fields.items() if name not in hidden}


@dataclass(frozen=True)
class EvaluateOptions:
    """What `bigmc evaluate` measures.

    Attributes
    ----------
    split : str
    per_class : bool
        Add precision, recall, F1 and support of every class.
    confusion : bool
        Add the confusion matrix.
    """

    split: str = "test"
    per_class: bool = False
    confusion: bool = False
