"""Options of prediction, evaluation and reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypedDict

from bigmc.errors import DataError
from bigmc.options.declare import check_types, option, values_of
from bigmc.options.ingest import Columns, columns_of
from bigmc.options.raw import FileOptions, OnBadRow, RawOptions

OWN_COLUMNS = ("row_id", "predicted_label", "predicted_labels")
"""Column names used in files of predictions; scores have names that begin with ``score_``."""


class PredictKeywords(TypedDict, total=False):
    """Options given to a prediction."""

    split: str | None
    scores: bool
    proba: bool
    keep: Columns
    on_bad_row: OnBadRow
    format: str | None
    delimiter: str | None
    columns: Columns
    encoding: str | None


@dataclass(frozen=True, kw_only=True)
class PredictOptions(RawOptions):
    """What `bigmc predict` writes, and for which rows; `bigmc.predict` describes the options.

    `DataError` if both scores and probabilities are requested, or a column cannot be copied.
    """

    split: str | None = option(None, "Split of a dataset; by default all rows.")
    scores: bool = option(False, "Also write the score of every class.")
    proba: bool = option(False, "Also write the probability of every class.")
    keep: Sequence[str] = option(
        (), "Column of the source to copy, such as an id; may be repeated.", metavar="COLUMN"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_types(PredictOptions, values_of(PredictOptions, self))
        object.__setattr__(self, "keep", columns_of(self.keep))
        if self.scores and self.proba:
            raise DataError("scores and probabilities cannot be written together", "ask for one of them")
        for name in self.keep:
            if name in OWN_COLUMNS or name.startswith(("score_", "probability_")):
                raise DataError(f"predictions already have a column {name!r}", "rename the column")
            if self.keep.count(name) > 1:
                raise DataError(f"the column {name!r} is named {self.keep.count(name)} times", "name it once")

    @property
    def per_class(self) -> bool:
        """Whether the output has a column for every class."""
        return self.scores or self.proba

    def fingerprint(self) -> Mapping[str, Any]:
        """Return the options that affect the predictions, as JSON data."""
        hidden = {"delimiter", "columns", "encoding"}  # the fingerprint of a source has these
        hidden |= set() if self.proba else {"proba"}
        return {name: value for name, value in asdict(self).items() if name not in hidden}


class EvaluateKeywords(TypedDict, total=False):
    """Options given to an evaluation."""

    split: str
    label_separator: str | None
    per_class: bool
    confusion: bool
    propensities: str | None
    format: str | None
    delimiter: str | None
    columns: Columns
    encoding: str | None


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(FileOptions):
    """What `bigmc evaluate` measures, and on which rows; `bigmc.evaluate` describes the options."""

    split: str = option("test", "Split of a dataset to evaluate on.")
    label: str | None = option(
        None, "Label column of raw files; by default that of the training data.", metavar="COLUMN"
    )
    label_separator: str | None = option(
        None, "Separator between several labels of a row; by default that of the training data."
    )
    per_class: bool = option(False, "Add precision, recall and F1 per class.")
    confusion: bool = option(False, "Add the confusion matrix.")
    propensities: str | None = option(
        None,
        "Label sets: add propensity-scored precision@k, with the label counts of this split, such as train.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_types(EvaluateOptions, values_of(EvaluateOptions, self))


class ReportKeywords(TypedDict, total=False):
    """Options given to a report; `dataset` is a path or a Dataset."""

    top: int
    dataset: Any
    split: str | None


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """What `bigmc report` shows of a model; `DataError` if a split is given without a dataset."""

    top: int = option(20, "Features per class.", minimum=1)
    dataset: Any = option(None, "Dataset to evaluate on.", metavar="DATASET", parse=str)
    split: str | None = option(None, "Split of the dataset; by default test.")

    def __post_init__(self) -> None:
        check_types(ReportOptions, values_of(ReportOptions, self))
        if self.dataset is None and self.split is not None:
            raise DataError(
                f"the split {self.split!r} needs a dataset", "give the dataset with --dataset too"
            )
