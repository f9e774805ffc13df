"""Trials of linear models: their settings and their quality on held-out rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from bigmc.model.calibration import Calibration
from bigmc.model.fit_calibration import fit_shares, fit_sigmoid
from bigmc.options.learners import FitSparseOptions, SparseOptions
from bigmc.store.dataset import Dataset
from bigmc.store.shards.label_sets import pairs_of
from bigmc.store.weighting import Weighting
from bigmc.training.search.label_thresholds import Threshold, Thresholds, choose_threshold

HINGE = "multitask_squared_hinge"
"""The first loss to try, that of LIBLINEAR: every class against the rest."""

WEIGHTINGS: dict[str, Weighting] = {
    "tfidf": Weighting(l2=True, idf=True),
    "binary tfidf": Weighting(binary=True, l2=True, idf=True),
    "l2": Weighting(l2=True),
}
"""Weightings of hashed text to try, in this order."""

TABLE_WEIGHTINGS: dict[str, Weighting] = {"scaled": Weighting(scaled=True), "counts": Weighting()}
"""Weightings of numeric columns to try: scaled by their deviation, and unscaled."""

QUALITY_UNIT, LOSS_UNIT = 0.2, 0.02
"""Units for comparing two candidates: a difference of quality in standard errors (of one quality; those of
a difference on the same rows are smaller), and a relative difference of log loss."""
MOST_LOSS, WORTH_IT = 2.0, 0.5
"""Maximum contribution of the log loss, and minimum sum of both for the later of two candidates to win."""

_JUDGED_AT_ONCE = 1024
"""Rows whose probabilities are in memory together."""

TRIAL_PASSES, MOST_PASSES = 10, 30
"""Maximum passes over the samples of a trial, and of a training on all rows, which may be larger than memory
and then takes more. Most trials take fewer. On tables that hinges nearly separate, the
objective is almost zero, and a gap of a tenth of it takes hundreds of passes. On polls 98.46 % of held-out
rows were right after 10 passes, 98.50 % after 30 and 98.43 % after 100; on kershaw 97.1, 97.2 and 97.3 %."""

TRIAL_TOL, RIDGE_TOL = 0.1, 0.03
"""Gaps to reach: by default, and by a ridge model of many features of all rows. Of rows larger than memory a
gap of a tenth is reached after a time or two through all blocks, since each is gone through more than once.
On 1.9 million texts and 3.6 million words, three times through a block, 36.8 and 87.5 % of the unseen rows
were right then, 38.0 and 87.6 % with .03, 38.3 and 87.7 % with .01, for twice to 2.7 times, and 1.6 to 1.7
times, the processor time."""

_KNOWN = WEIGHTINGS | TABLE_WEIGHTINGS


@dataclass(frozen=True)
class Candidate:
    """Settings of a linear model that do not depend on the number of rows.

    Attributes
    ----------
    weighting : str or None
        One of `WEIGHTINGS` or `TABLE_WEIGHTINGS`; None for that of the dataset.
    ridge : float
        Ridge times the number of rows, like 1 / C of scikit-learn.
    alpha : float
        Penalty times the number of rows.
    """

    weighting: str | None
    loss: str = HINGE
    ridge: float = 1.0
    alpha: float = 0.0

    @property
    def is_ridge_hinge(self) -> bool:
        """Whether dual coordinate descent solves it, which makes warm starts unnecessary."""
        return self.loss == HINGE and self.alpha == 0.0

    def options(
        self, weight_sum: float, max_passes: int = MOST_PASSES, tol: float = TRIAL_TOL
    ) -> SparseOptions:
        """Return the options of the learner for samples of this total weight."""
        return FitSparseOptions(
            alpha=self.alpha / weight_sum,
            ridge=self.ridge / weight_sum,
            loss=self.loss,
            fit_intercept=True,
            tol=tol,
            max_passes=max_passes,
        )

    def __str__(self) -> str:
        parts = [self.weighting or "as stored", self.loss, f"ridge {self.ridge:.3g}/n"]
        return ", ".join([*parts, f"alpha {self.alpha:.3g}/n"] if self.alpha else parts)


def weighted(samples: Dataset, candidate: Candidate) -> Dataset:
    """Return samples with the weighting of a candidate."""
    return samples if candidate.weighting is None else samples.with_weighting(_KNOWN[candidate.weighting])


def weightings_of(dataset: Dataset) -> Mapping[str, Weighting]:
    """Return the weightings to try in order; none if that of the dataset is kept."""
    if _is_of_texts(dataset):
        return WEIGHTINGS
    return TABLE_WEIGHTINGS if is_table(dataset) and dataset.weighting == Weighting() else {}


def first_candidate(dataset: Dataset) -> Candidate:
    """Return the first candidate: a ridge only, with tf-idf on texts, scaled columns on tables."""
    return Candidate(next(iter(weightings_of(dataset)), None))


def is_table(dataset: Dataset) -> bool:
    """Return whether the features are numeric columns, suitable for boosting."""
    features = dataset.features
    own = any(features.get(kind) for kind in ("dense", "dates", "one_hot", "n_own"))
    return not features.get("hasher") and bool(own)


def is_mixed(dataset: Dataset) -> bool:
    """Return whether there are numbers or categories besides hashed features."""
    features = dataset.features
    kinds = ("dense", "dates", "categorical", "numeric", "one_hot")
    return bool(features.get("hasher")) and any(features.get(kind) for kind in kinds)


def _is_of_texts(dataset: Dataset) -> bool:
    features = dataset.features
    standard = features.get("filling") and features["filling"]["deviations"]
    return bool(features.get("text")) and bool(
        standard or not (features.get("dense") or features.get("dates"))
    )


@dataclass(frozen=True)
class Trial:
    """Quality of a candidate on the held-out rows.

    Attributes
    ----------
    quality : float
        Accuracy, or F1 for label sets.
    log_loss : float
        After calibration on the same rows.
    n_features : int
        Features with weight.
    threshold : Threshold or None
        For label sets: the score above which a class is a label.
    seconds : float
        Seconds of training and scoring; 0 in comparisons.
    """

    candidate: Candidate
    quality: float
    log_loss: float
    calibration: Calibration
    n_features: int
    threshold: Threshold | None = None
    seconds: float = field(compare=False, default=0.0)

    @classmethod
    def of(cls, candidate: Candidate, verdict: Verdict, n_features: int, seconds: float) -> Trial:
        """Return the trial with a verdict."""
        quality, loss, calibration, threshold = verdict
        return cls(candidate, quality, loss, calibration, n_features, threshold, seconds)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Trial:
        """Return the trial of `to_dict`."""
        parts = {
            "candidate": Candidate(**fields["candidate"]),
            "calibration": Calibration(**fields["calibration"]),
            "threshold": _threshold(fields["threshold"]),
        }
        return cls(**{**fields, **parts})

    def to_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return {**asdict(self), "calibration": self.calibration.to_dict()}


class Judged(Protocol):
    """What two candidates are compared by."""

    @property
    def quality(self) -> float:
        """Accuracy, or F1 for label sets."""

    @property
    def log_loss(self) -> float:
        """After calibration on the same rows."""


J = TypeVar("J", bound=Judged)


def better(one: J, other: J, n_held_out: int) -> J:
    """Return the better of two trials on so many rows by quality and log loss.

    The first one wins unless the other is clearly better.
    """
    chance = math.sqrt(max(one.quality * (1.0 - one.quality), 1e-9) / n_held_out)
    gain = (other.quality - one.quality) / (QUALITY_UNIT * chance)
    gained = (one.log_loss - other.log_loss) / (LOSS_UNIT * one.log_loss + 1e-9)
    gain += min(max(gained, -MOST_LOSS), MOST_LOSS)
    return other if gain > WORTH_IT else one


@dataclass(frozen=True)
class Size:
    """A number of features, and the quality of the model with only these.

    Attributes
    ----------
    share : float
        Share of the features that occur in the rows of the search.
    quality, log_loss, calibration, threshold
        As of a `Trial`.
    """

    n_features: int
    share: float
    quality: float
    log_loss: float
    calibration: Calibration
    threshold: Threshold | None = None

    @classmethod
    def of(cls, n_features: int, n_used: int, verdict: Verdict) -> Size:
        """Return the size of a verdict, given the `n_used` features in all."""
        return cls(n_features, n_features / n_used, *verdict)

    @classmethod
    def whole(cls, trial: Trial) -> Size:
        """Return the size of all features."""
        figures = trial.quality, trial.log_loss, trial.calibration, trial.threshold
        return cls(trial.n_features, 1.0, *figures)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Size:
        """Return the size of `asdict`."""
        calibration = Calibration(**fields["calibration"])
        return cls(**{**fields, "calibration": calibration, "threshold": _threshold(fields["threshold"])})

    def trial(self, whole: Trial) -> Trial:
        """Return the trial of this size, given that of all features."""
        figures = self.quality, self.log_loss, self.calibration, self.n_features, self.threshold
        return Trial(whole.candidate, *figures, whole.seconds)

    def count(self, n_used: int, most: int | None) -> int:
        """Return the number of features to keep of those that occur in all rows."""
        return min(math.ceil(self.share * n_used), n_used if most is None else most)


def _threshold(stored: float | Sequence[float] | None) -> Threshold | None:
    """Return a threshold as JSON data."""
    return tuple(stored) if isinstance(stored, Sequence) else stored


class SearchResult(NamedTuple):
    """A finished search.

    Attributes
    ----------
    trials : tuple of Trial
        In the order they were made.
    n_rows, n_held_out : int
        Rows of the sample, and held-out rows among them.
    ended : str
        Why the search ended.
    sizes : tuple of Size
        Quality by number of features with the best settings, all features first; empty if a
        penalty or another loss won, or if not requested.
    """

    trials: tuple[Trial, ...]
    best: Trial
    n_rows: int
    n_held_out: int
    ended: str
    sizes: tuple[Size, ...] = ()


class Verdict(NamedTuple):
    """Quality of scores on the held-out rows.

    Attributes
    ----------
    quality : float
        Accuracy, or F1 for label sets.
    log_loss : float
        After calibration on the same rows.
    threshold : Threshold or None
        For label sets: the score above which a class is a label, with the best quality.
    """

    quality: float
    log_loss: float
    calibration: Calibration
    threshold: Threshold | None = None


def log_losses(
    calibration: Calibration, scores: NDArray[np.float64], codes: NDArray[np.integer[Any]]
) -> NDArray[np.float64]:
    """Return the log loss of every row; probabilities of all classes are there for some rows at a time."""
    chances = np.empty(len(scores))
    for lo in range(0, len(scores), _JUDGED_AT_ONCE):
        some = slice(lo, lo + _JUDGED_AT_ONCE)
        own = calibration.probabilities(scores[some])
        chances[some] = own[np.arange(len(own)), codes[some]]
    losses: NDArray[np.float64] = -np.log(np.maximum(chances, 1e-300))
    return losses


class Truth(NamedTuple):
    """Labels of the held-out rows: codes, or indicators for label sets.

    Attributes
    ----------
    codes : int32 array of shape (n_rows,) or None
    is_label : bool array of shape (n_rows, n_classes) or None
    thresholds : Thresholds
        Kind of thresholds for label sets.
    """

    codes: NDArray[np.int32] | None
    is_label: NDArray[np.bool_] | None
    thresholds: Thresholds = Thresholds.SHARED

    @classmethod
    def of(cls, valid: Dataset, thresholds: Thresholds = Thresholds.SHARED) -> Truth:
        """Return the labels of a dataset."""
        if not valid.has_sets:
            return cls(valid.labels(), None)
        marks = np.zeros((valid.n_samples, valid.n_classes), bool)
        for lo, shard in zip(valid.base[:-1], valid.shards, strict=True):
            rows, codes = pairs_of(shard.table(["label"]).column("label"))
            marks[lo + rows, codes] = True
        return cls(None, marks, thresholds)

    def of_rows(self, places: NDArray[np.int64]) -> Truth:
        """Return the labels of some of these rows."""
        codes = None if self.codes is None else self.codes[places]
        return Truth(codes, None if self.is_label is None else self.is_label[places], self.thresholds)

    def judge(self, scores: NDArray[np.float64]) -> Verdict:
        """Judge the scores of these rows, shape (n_rows, n_classes)."""
        if self.codes is not None:
            calibration = fit_shares(scores, self.codes)
            loss = max(0.0, float(log_losses(calibration, scores, self.codes).mean()))  # never -0.0
            right = float(np.mean(np.argmax(scores, axis=1) == self.codes))
            return Verdict(right, loss, calibration)
        assert self.is_label is not None
        calibration = fit_sigmoid(scores, self.is_label)
        logits = calibration.scale * scores + calibration.offset
        loss = float(np.logaddexp(0.0, np.where(self.is_label, -logits, logits)).sum(axis=1).mean())
        quality, threshold = choose_threshold(self.thresholds, scores, self.is_label)
        return Verdict(quality, loss, calibration, threshold)
