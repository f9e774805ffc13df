"""The command `bigmc fit`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from bigmc.cli.arguments import Working, as_command
from bigmc.cli.engines import working
from bigmc.cli.terminal import show, show_fit
from bigmc.errors import DataError
from bigmc.options.declare import argument, option, required, seconds_of
from bigmc.options.ingest import IngestOptions, given_options, parse_ngrams
from bigmc.options.raw import RawOptions


@dataclass(frozen=True, kw_only=True)
class Fit(Working, RawOptions):
    """Arguments of `bigmc fit`."""

    source: list[str] = argument("Raw files, or one dataset.")
    to: str = required("Model to write.")
    text: list[str] | None = option(
        None,
        "Text column; may be repeated. If no columns are given, all but the label are used.",
        metavar="COLUMN",
    )
    label: str | None = option(None, "Label column.", metavar="COLUMN")
    dense: list[str] | None = option(
        None, "Number that becomes one feature, or a pattern like 'x*'; may be repeated.", metavar="COLUMN"
    )
    date: list[str] | None = option(
        None, "Date or time; becomes day, month, weekday and hour; may be repeated.", metavar="COLUMN"
    )
    value_format: list[str] | None = option(
        None,
        "How a column of numbers or dates is written, like price='$1,234.50' or day=31/12/2026, where "
        "values can be read in two ways; may be repeated.",
        metavar="COLUMN=EXAMPLE",
    )
    missing_text: list[str] | None = option(
        None,
        "Text that stands for a missing number or date, beside n/a, ?, - and the like; may be repeated.",
        metavar="TEXT",
    )
    odd_as_missing: list[str] | None = option(
        None,
        "Column of numbers or dates in which other values count as missing, however many; by default only if "
        "they are few; may be repeated.",
        metavar="COLUMN",
    )
    categorical: list[str] | None = option(
        None,
        "Category; may be repeated. If it has few values, each becomes a column; others are hashed.",
        metavar="COLUMN",
    )
    missing: str | None = option(
        None, "Missing numbers and dates: refuse, or fill with the mean; by default fill."
    )
    label_separator: str | None = option(None, "Separator between several labels of a row.")
    weight: str | None = option(None, "Sample weight in training, a number of at least 0.", metavar="COLUMN")
    dataset: str | None = option(None, "Dataset to store raw data in; by default TO.dataset.")
    split: str | None = option(
        None,
        "Splits of raw data; the model is then trained on train only. By default train=0.9,test=0.1, and the "
        "final model is trained on all rows.",
    )
    group: str | None = option(
        None, "Column of groups; rows of one group stay in one split.", metavar="COLUMN"
    )
    analyzer: str | None = option(None, "word, char or char_wb; by default the best on a sample.")
    ngrams: tuple[int, int] | None = option(
        None, "Shortest and longest n-gram, like 1-2.", parse=parse_ngrams
    )
    words_by_column: bool | None = option(
        None,
        "Tell apart the same word in several text columns; by default whatever is better on a sample.",
        "--words-by-column/--no-words-by-column",
    )
    hash_bits: int | None = option(
        None, "Hash to 2^BITS buckets; by default 18 or 20, fewer with little memory."
    )
    time: float | None = option(
        None,
        "Time for everything, like 90s, 5m or 1h; trainings then end with the best they have.",
        "--time",
        "--time-limit",
        metavar="TIME",
        parse=seconds_of,
    )
    max_features: int | None = option(
        None, "Maximum number of features; by default, for texts, the fewest without loss of accuracy."
    )
    label_thresholds: str = option(
        "shared", "Label sets: shared threshold (best micro F1), or each label its own (best macro F1)."
    )
    overwrite: bool = option(
        False,
        "Replace an existing file at --to, with the search and the dataset beside it, and a fit that had "
        "less --time.",
    )
    report: str | None = option(None, "HTML file to write, a report on the model and the search.")


@as_command
def fit(asked: Fit) -> None:
    """Find, train and evaluate the best model of labelled data."""
    from bigmc import api

    ingest = [item.name for item in fields(IngestOptions) if hasattr(asked, item.name)]
    if asked.report is not None:
        _check_report(asked.report, asked)
    with working(asked) as work:
        result = api.fit(
            asked.source[0] if len(asked.source) == 1 else asked.source,
            asked.to,
            dataset=asked.dataset,
            time_limit=asked.time,
            max_features=asked.max_features,
            label_thresholds=asked.label_thresholds,  # type: ignore[arg-type]
            overwrite=asked.overwrite,
            **work.means,
            **given_options({name: getattr(asked, name) for name in ingest}),
        )
        made = asked.dataset or f"{asked.to}.dataset"
        for doubt in api.doubts_about_labels(made) if Path(made).is_dir() else []:
            work.screen.say(f"note: {doubt}")
        if asked.report is not None:
            written = api.report(asked.to, asked.report, overwrite=asked.overwrite, fitted=result)
            result["report"] = written["report"]
        usage = work.engine.usage()
    if asked.as_json:
        show({**result, **usage}, asked)
    else:
        show_fit(result)


def _check_report(report: str, asked: Fit) -> None:
    """Raise an error if the report of a model could not be written after the work."""
    from bigmc.api.resolve import place_of

    if place_of(report, "--report").exists() and not (asked.overwrite or Path(asked.to).exists()):
        cure = "give another --report, or replace it with --overwrite"
        raise DataError(f"{report} exists and is not of this model", cure)
