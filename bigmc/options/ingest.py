"""Options of an ingest, declared once for the command line, Python and appends."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any, Literal, TypedDict, cast, get_args

from bigmc.errors import DataError
from bigmc.options.declare import check_names, check_types, option
from bigmc.options.raw import OnBadRow, RawOptions

Columns = str | Sequence[str] | None
Missing = Literal["refuse", "keep", "fill"]

DEFAULT_SPLITS = {"train": 0.8, "test": 0.2}
FEATURES = ("text", "categorical", "one_hot", "numeric", "dense", "date", "vector")
"""Options that name columns of features."""
SEVERAL = (*FEATURES, "missing_text", "odd_as_missing", "keep")
"""Options that may be repeated, of which one may be given as it is."""


class IngestKeywords(TypedDict, total=False):
    """Options given to an ingest; None means not given."""

    text: Columns
    label: Any
    label_separator: str | None
    weight: str | None
    categorical: Columns
    one_hot: Columns
    numeric: Columns
    dense: Columns
    date: Columns
    vector: Columns
    value_format: Mapping[str, Columns] | Columns
    missing_text: Columns
    odd_as_missing: Columns
    keep: Columns
    hash_bits: int | None
    ngrams: tuple[int, int] | None
    analyzer: str | None
    lowercase: bool | None
    words_by_column: bool | None
    standardize: bool | None
    fourier: int | None
    gamma: float | None
    missing: Missing | None
    weighting: str | None
    split: Mapping[str, float] | str | None
    group: str | None
    seed: int | None
    n_features: int | None
    names: bool | None
    on_bad_row: OnBadRow
    format: str | None
    delimiter: str | None
    columns: Columns
    encoding: str | None


def parse_ngrams(text: str) -> tuple[int, int]:
    """Return the shortest and longest n of a text such as ``1-2``."""
    shortest, _, longest = text.partition("-")
    try:
        return int(shortest), int(longest or shortest)
    except ValueError:
        raise ValueError(f"{text!r} is not a range of n-grams; write it like 1-2") from None


@dataclass(frozen=True, kw_only=True)
class IngestOptions(RawOptions):
    """How sources become a dataset; `bigmc.ingest` describes the options.

    `DataError` if an option has a value that is invalid for all data.
    """

    text: Sequence[str] = option(
        (),
        "Text column; may be repeated: the texts of a row add up to one, but with --words-by-column.",
        metavar="COLUMN",
    )
    label: Any = option(None, "Label column; lists in it are label sets.", metavar="COLUMN", parse=str)
    label_separator: str | None = option(None, "Separator between several labels of a row.")
    weight: str | None = option(None, "Sample weight in training, a number of at least 0.", metavar="COLUMN")
    categorical: Sequence[str] = option((), "Column hashed as name=value; may be repeated.", metavar="COLUMN")
    one_hot: Sequence[str] = option(
        (),
        "Category; each of its frequent values becomes a column of 0 and 1; may be repeated.",
        metavar="COLUMN",
    )
    numeric: Sequence[str] = option(
        (), "Number hashed by the name of its column; may be repeated.", metavar="COLUMN"
    )
    dense: Sequence[str] = option(
        (),
        "Number that becomes one feature, not hashed, or a pattern like 'x*'; may be repeated.",
        metavar="COLUMN",
    )
    date: Sequence[str] = option(
        (),
        "Date or time; becomes numbers for day, month, weekday and hour; may be repeated.",
        metavar="COLUMN",
    )
    vector: Sequence[str] = option(
        (),
        "Lists of numbers of one length, such as embeddings; each place is a feature; may be repeated.",
        metavar="COLUMN",
    )
    value_format: Sequence[str] = option(
        (),
        "How a column of numbers or dates is written, like price='$1,234.50', share=12% or day=31/12/2026; "
        "may be repeated.",
        metavar="COLUMN=EXAMPLE",
    )
    missing_text: Sequence[str] = option(
        (), "Text that stands for a missing number or date, such as n/a; may be repeated.", metavar="TEXT"
    )
    odd_as_missing: Sequence[str] = option(
        (),
        "Column of numbers or dates in which other values count as missing; may be repeated.",
        metavar="COLUMN",
    )
    keep: Sequence[str] = option((), "Column copied along with the rows; may be repeated.", metavar="COLUMN")
    hash_bits: int = option(18, "Hash to 2^BITS buckets.", shown="18")
    ngrams: tuple[int, int] = option((1, 2), "Shortest and longest n-gram.", shown="1-2", parse=parse_ngrams)
    analyzer: str = option("word", "word, char or char_wb.", shown="word")
    lowercase: bool = option(
        True, "Lowercase texts before hashing.", "--lowercase/--no-lowercase", shown="lowercase"
    )
    words_by_column: bool = option(
        False,
        "Tell apart the same word in several text columns.",
        "--words-by-column/--no-words-by-column",
        shown="no-words-by-column",
    )
    standardize: bool = option(
        False, "Scale dense features: (x - mean) / standard deviation.", "--standardize"
    )
    fourier: int = option(0, "Replace dense features by N random Fourier features.")
    gamma: float | None = option(
        None, "Gamma of the Gaussian kernel of --fourier; by default 1 / number of dense features."
    )
    missing: Missing = option(
        "refuse",
        "Empty, null or NaN in --dense columns: refuse makes a bad row, keep is for boosting, fill takes the "
        "mean (texts and categories: empty).",
        shown="refuse",
    )
    weighting: str | None = option(
        None,
        "counts, binary, l2, tfidf or scaled; by default tfidf for text, l2 for other hashed columns, else "
        "counts.",
    )
    split: Mapping[str, float] | str = field(
        default_factory=lambda: dict(DEFAULT_SPLITS),
        metadata=option(
            None, "Names and shares of the splits.", shown="train=0.8,test=0.2", parse=str
        ).metadata,
    )
    group: str | None = option(
        None, "Column of groups; rows of one group stay in one split.", metavar="COLUMN"
    )
    seed: int = option(0, "Seed of the split.", shown="0")
    n_features: int | None = option(
        None, "Number of features of svmlight data; by default the largest index."
    )
    names: bool = option(True, "Keep the words behind hashed features.", "--names/--no-names", shown="names")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.missing not in get_args(Missing):
            choices = ", ".join(get_args(Missing)[:-1]) + " or " + get_args(Missing)[-1]
            raise DataError(f"missing is {self.missing!r}", f"choose {choices}")

    def but(self, given: IngestKeywords) -> IngestOptions:
        """Return these options, updated with those that `given_options` returns."""
        return replace(self, **cast(dict[str, Any], given))


def given_options(given: Mapping[str, Any], of: str = "ingest", also: Iterable[str] = ()) -> IngestKeywords:
    """Return the given options that are not None, with columns as tuples.

    `DataError` if one is unknown (`check_names`) or has another type.
    """
    check_names(IngestOptions, given, of, also)
    named = {name: value for name, value in given.items() if value is not None}
    named |= {name: columns_of(named[name]) for name in SEVERAL if name in named}
    for name in ("label", "weight", "group"):
        if isinstance(named.get(name), Integral):  # a column of a data frame
            named[name] = str(named[name])
    check_types(IngestOptions, named)
    if "value_format" in named:
        named["value_format"] = format_examples(named["value_format"])
    return cast(IngestKeywords, named)


def format_examples(value_format: Mapping[str, Columns] | Columns) -> tuple[str, ...]:
    """Return examples such as ``price=$1,234.50``, also of a mapping of columns to examples."""
    if not isinstance(value_format, Mapping):
        return columns_of(value_format)
    return tuple(f"{name}={text}" for name, texts in value_format.items() for text in columns_of(texts))


def columns_of(names: Columns) -> tuple[str, ...]:
    """Return one name of a column, or several, as texts; those of a data frame may be integers.

    `DataError` if one is neither.
    """
    single = isinstance(names, str) or not isinstance(names, Iterable)
    given: tuple[Any, ...] = () if names is None else (names,) if single else tuple(names)
    for name in given:
        if not isinstance(name, str | Integral):
            raise DataError(f"{reprlib.repr(name)} is no name of a column", "give a text")
    return tuple(map(str, given))
