"""Choose how texts are hashed on some thousand rows, before all rows are: n-grams, and words by column.

The best choice for thousands of rows need not be best for all: pairs of words gain more from further rows
than characters do. Choices are tried on more and more rows and compared by extrapolating their learning
curves to all rows; the error falls as a power of the number of rows (Cortes, Jackel, Solla, Vapnik and
Denker, "Learning curves: asymptotic values and rate of convergence", NIPS 1993). Choices far behind the best
are dropped early.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigmc.engine import ThreadEngine
from bigmc.errors import DataError
from bigmc.ingestion.columns.features import FeatureSpec
from bigmc.ingestion.hashing.hasher import Analyzer, TextHasher
from bigmc.ingestion.writing.splits import row_fractions
from bigmc.lazy import LazyModule
from bigmc.options.raw import FileOptions
from bigmc.solvers.sparse import DualDescent
from bigmc.store.dataset import Dataset
from bigmc.store.shards.csr import Rows
from bigmc.training.pilot_rows import (
    FEWEST_ROWS,
    PILOT_ROWS,
    SEED,
    TEXT_SHARE,
    USEFUL_ROWS,
    PilotColumns,
    PilotRows,
    draw_pilot_rows,
)
from bigmc.training.search.folds import FEW_ROWS
from bigmc.training.search.limits import Limits
from bigmc.training.search.trials import WEIGHTINGS, Candidate, better
from bigmc.training.search.validation import Validation

pc = LazyModule("pyarrow.compute")

ROUNDS = (2_000, USEFUL_ROWS, PILOT_ROWS)
"""Rows on which the choices are tried, round by round."""
PILOT_WORK = 800_000_000
"""Maximum product of non-zeros and classes in a trial."""
FURTHEST = 16
"""Maximum factor on the rows of the last round for extrapolation."""
BEHIND = 3.0
"""Standard errors behind the best at which a choice is dropped."""
_BYTES_PER_ENTRY, _BYTES_PER_DUAL = 48, 12
"""Bytes of a trial per entry, and per row and class."""
LONG_TEXT = 200
"""Average characters of a text above which character n-grams cost more than words and are no better."""
FEW_CHARACTERS = 1_000_000
"""Characters of all rows up to which character n-grams are tried on long texts too, since they cost little.
On 1,309 Slovenian comments, 68.8 % of held-out rows were right with character n-grams, 62.5 % with words."""
PRODUCTS_A_SECOND, PASSES = 2e9, 4
"""Products of entries and classes that a thread makes in a second, roughly, and passes of a useful training.
A choice whose passes have no time is not tried, as long as there is one with fewer entries."""
WEIGHTS_A_SECOND = 2e7
"""Weights of all buckets, at most, for each second of the time: a training goes through them several times
besides its passes."""
PILOT_SHARE, SURVEYED_ROWS = 0.15, 500
"""Share of the time that trials may take, and rows whose entries are counted."""
MANY_ROWS, MANY_CLASSES = 20_000, 64
"""With more rows, and fewer classes, features are hashed into more buckets."""
WEIGHT_SHARE, FEWEST_BITS = 0.7, 12
"""Share of the memory limit for the weights of all buckets, and minimum bits of buckets: fewer distinguish
texts too poorly."""


class Hashing(NamedTuple):
    """Parameters of `bigmc.ingest` for text."""

    analyzer: Analyzer
    ngrams: tuple[int, int]
    words_by_column: bool = False


CHOICES = (Hashing("word", (1, 1)), Hashing("word", (1, 2)))
CHARACTER_CHOICES = (Hashing("char_wb", (1, 4)), Hashing("char_wb", (2, 5)), Hashing("char", (1, 5)))


class Point(NamedTuple):
    """A point of a learning curve.

    Attributes
    ----------
    n_rows : int
        Rows of the trial.
    n_learned : int
        Training rows among them.
    n_held_out : int
        Held-out rows.
    quality, log_loss : float
        As of a `bigmc.training.search.trials.Trial`.
    """

    n_rows: int
    n_learned: int
    n_held_out: int
    quality: float
    log_loss: float


class Expected(NamedTuple):
    """Figures on all rows, extrapolated from a learning curve."""

    quality: float
    log_loss: float


class Pilot(NamedTuple):
    """The result of a pilot.

    Attributes
    ----------
    curves : mapping of Hashing to tuple of Point
        The learning curve of every choice.
    """

    hashing: Hashing
    hash_bits: int
    curves: Mapping[Hashing, tuple[Point, ...]]


def choose_hashing(
    source: Any,
    columns: PilotColumns,
    files: FileOptions,
    memory: int,
    bits: int | None,
    seconds: float = math.inf,
) -> Pilot | None:
    """Return the best hashing of text columns on a sample of the rows.

    The rows are drawn by a hash of their numbers, in one pass over the source. The first choice wins ties;
    with little time for the whole fit, in `seconds`, fewer are tried. Return None if too few rows have texts
    and labels. `DataError` if a column is missing.
    """
    sample, n_rows = draw_pilot_rows(source, columns, files, memory)
    return None if sample is None else choose_for_texts(sample, n_rows, memory, bits, seconds)


def most_bits(memory: int, n_classes: int) -> int:
    """Return the number of bits of buckets, so that the weights of all fit into their share of memory."""
    most = WEIGHT_SHARE * memory / DualDescent.memory_of_feature(n_classes)
    return max(FEWEST_BITS, int(math.log2(max(most, 1.0))))


def choose_for_texts(
    sample: PilotRows, n_rows: int, memory: int, bits: int | None = None, seconds: float = math.inf
) -> Pilot | None:
    """Return the best hashing on these rows, of `n_rows` in all; None if there is only one class.

    With little time only choices are tried whose models can be trained in so many seconds.
    """
    n_classes = sample.n_classes
    if n_classes < 2:
        return None
    if bits is None:
        bits = 20 if n_rows > MANY_ROWS and n_classes <= MANY_CLASSES else 18
        most = max(math.log2(max(WEIGHTS_A_SECOND * seconds / n_classes, 1.0)), FEWEST_BITS)
        bits = int(min(bits, most_bits(memory, n_classes), most))
    length = sum(pc.mean(pc.utf8_length(column)).as_py() for column in sample.texts.columns)
    costly = length > LONG_TEXT and length * sample.texts.num_rows > FEW_CHARACTERS
    cuts = CHOICES if costly else CHOICES + CHARACTER_CHOICES
    choices = [cut._replace(words_by_column=apart) for apart in _by_column(sample) for cut in cuts]
    trials = _Trials(sample, min(bits, 18), memory)
    curves: dict[Hashing, tuple[Point, ...]] = dict.fromkeys(choices, ())
    trials.survey(choices)
    ends = time.monotonic() + PILOT_SHARE * seconds
    left = list(choices) if math.isinf(seconds) else trials.in_time(choices, n_rows, seconds)
    if len(left) == 1:
        return Pilot(left[0], bits, {})
    for most in ROUNDS:
        trials.seconds = max(ends - time.monotonic(), 0.0) / len(left)
        if trials.seconds == 0.0 and curves[left[0]]:
            break
        n_tried = trials.affordable(most, left)
        if curves[left[0]] and n_tried <= curves[left[0]][-1].n_rows:
            break
        for choice in left:
            curves[choice] += (trials.trial(choice, n_tried),)
        left = _in_the_race({choice: curves[choice] for choice in left}, n_rows)
    return Pilot(best_choice({choice: curves[choice] for choice in left}, n_rows), bits, curves)


def _by_column(sample: PilotRows) -> tuple[bool, ...]:
    """Return what to try of telling apart the words of several columns; shared words win ties."""
    if sample.texts.num_columns == 1:
        return (False,)
    return (False, True) if sample.words_by_column is None else (sample.words_by_column,)


class _Trials:
    """Hashings tried on some rows.

    Parameters
    ----------
    bits : int
        Hash to ``2 ** bits`` buckets.
    memory : int
        Bytes.

    Attributes
    ----------
    seconds : float
        Seconds that the training of a trial may take.
    """

    def __init__(self, sample: PilotRows, bits: int, memory: int) -> None:
        self._texts = sample.texts.combine_chunks().to_batches()[0]
        self._labels, self._groups, self._bits, self._memory = sample.labels, sample.groups, bits, memory
        self._n_rows = int(sample.texts.num_rows)
        self._order = np.argsort(row_fractions(np.arange(self._n_rows), SEED), kind="stable")
        self._n_classes = sample.n_classes
        self._entries: dict[Hashing, float] = {}
        self.seconds = math.inf
        # With many rows, the first round gives a point of the curve, and later rounds decide.
        few = FEW_ROWS if self._n_rows <= FEW_ROWS else 0
        self._limits = Limits(memory, work=PILOT_WORK, few_rows=few)

    def survey(self, choices: Sequence[Hashing]) -> None:
        """Count the entries of some rows, as many as there is memory for, by each choice.

        A model of them follows, for which kernels are compiled that trials would wait for.
        """
        row_bytes = self._texts.nbytes / self._n_rows
        by_memory = self._memory / (TEXT_SHARE * _BYTES_PER_ENTRY * row_bytes)
        chosen = np.sort(self._order[: min(SURVEYED_ROWS, max(int(by_memory), FEWEST_ROWS))])
        for choice in choices:
            rows = self._hashed(choice, chosen)
        with suppress(DataError):  # they may be of one class
            Validation(rows, ThreadEngine(), self._limits).attempt(Candidate(None))

    def in_time(self, choices: Sequence[Hashing], n_rows: int, seconds: float) -> list[Hashing]:
        """Return the choices whose models can be trained in time; that with the fewest entries always."""
        most = seconds * PRODUCTS_A_SECOND / (PASSES * n_rows * self._n_classes)
        least = min(self._entries[choice] for choice in choices)
        return [choice for choice in choices if self._entries[choice] <= max(most, least)]

    def affordable(self, most: int, choices: Sequence[Hashing]) -> int:
        """Return the number of rows to try next: at most `most`, and few enough for work and memory."""
        entries = max((self._entries.get(choice, 1.0) for choice in choices), default=1.0)
        by_work = PILOT_WORK / (entries * self._n_classes)
        weights = DualDescent.memory_of_feature(self._n_classes) << self._bits
        left = max(self._memory - weights, self._memory // 4)
        by_memory = left / (2 * _BYTES_PER_ENTRY * entries + _BYTES_PER_DUAL * self._n_classes)
        wanted = min(most, max(int(by_work), ROUNDS[0]))
        return min(wanted, self._n_rows, max(int(by_memory), FEWEST_ROWS))

    def trial(self, choice: Hashing, n_tried: int) -> Point:
        """Return the quality of a model of some rows on the held-out ones among them."""
        chosen = np.sort(self._order[:n_tried])
        # The hashed rows are freed before training, which uses a sampled copy.
        rows = Validation(self._hashed(choice, chosen), ThreadEngine(), self._limits)
        rows.trial_seconds = self.seconds
        trial = rows.attempt(Candidate(None))
        return Point(n_tried, rows.n_learned, rows.n_held_out, trial.quality, trial.log_loss)

    def _hashed(self, choice: Hashing, chosen: NDArray[np.int64]) -> Dataset:
        """Return the chosen rows, hashed."""
        hasher = TextHasher(choice.analyzer, choice.ngrams, self._bits, by_column=choice.words_by_column)
        rows = FeatureSpec(text=tuple(self._texts.schema.names), hasher=hasher).transform(
            self._texts.take(pa.array(chosen))
        )
        assert isinstance(rows, Rows)
        matrix = rows.matrix
        self._entries[choice] = max(1.0, matrix.nnz / len(chosen))
        groups = None if self._groups is None else self._groups[chosen]  # held-out rows depend on these ids
        return Dataset.from_arrays(
            matrix, self._labels[chosen], row_ids=groups, weighting=WEIGHTINGS["tfidf"]
        )


def expected(curve: Sequence[Point], n_rows: int) -> Expected:
    """Return the extrapolated quality and log loss for a number of rows.

    The error, and the log loss, is a power of the number of rows through the last two points. It never
    increases, and is extrapolated to at most `FURTHEST` times the rows of the last point.
    """
    last = curve[-1]
    if len(curve) < 2 or n_rows <= last.n_learned:
        return Expected(last.quality, last.log_loss)
    before = curve[-2]
    further = min(n_rows / last.n_learned, FURTHEST)

    def extrapolated(earlier: float, later: float) -> float:
        if later <= 0.0:
            return later
        fall = math.log(max(1.0, earlier / later))
        return float(later * further ** -(fall / math.log(last.n_learned / before.n_learned)))

    error = extrapolated(1.0 - before.quality, 1.0 - last.quality)
    return Expected(1.0 - error, extrapolated(before.log_loss, last.log_loss))


def _in_the_race(curves: Mapping[Hashing, Sequence[Point]], n_rows: int) -> list[Hashing]:
    """Return the choices that may still be the best one."""
    promised = {choice: expected(curve, n_rows).quality for choice, curve in curves.items()}
    best = max(promised.values())
    return [
        choice for choice in curves if promised[choice] >= best - BEHIND * _standard_error(curves[choice][-1])
    ]


def best_choice(curves: Mapping[Hashing, Sequence[Point]], n_rows: int) -> Hashing:
    """Return the choice with the best extrapolated quality and log loss; the first among about equal ones."""
    best, *others = curves
    for choice in others:
        one, other = expected(curves[best], n_rows), expected(curves[choice], n_rows)
        if better(one, other, curves[best][-1].n_held_out) is other:
            best = choice
    return best


def _standard_error(point: Point) -> float:
    return math.sqrt(point.quality * (1.0 - point.quality) / point.n_held_out)
