"""The search for the settings of a linear model: weighting, loss, ridge and penalty, by rows held out.

It runs on a sample of the rows in memory, however large the data is: the best ridge times the number of rows
hardly depends on that number. One setting is changed at a time, in the direction that helps, until none
does; a grid therefore has no edge to stop at. Every trial is written down when it is done, so that a killed
search goes through the same trials again without training them.
"""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from bigmc.engine import Engine
from bigmc.errors import DataError
from bigmc.estimators import SparseClassifier
from bigmc.estimators.weights import WeightedClassifier
from bigmc.model import Model
from bigmc.model.calibration import Calibration
from bigmc.model.fit_calibration import fit_sigmoid, fit_temperature
from bigmc.progress import Progress, ProgressCallback, silent
from bigmc.store.atomic import write_atomic
from bigmc.store.dataset import Dataset
from bigmc.store.label_sets import pairs_of
from bigmc.store.sample import draw_rows
from bigmc.store.weighting import Weighting

SAMPLE_ROWS = 40_000
"""Rows that the search reads, at most: a fifth of them tells models apart that differ by half a point."""
SAMPLE_WORK = 200_000_000
"""Non-zeros of these rows times classes, at most, which is what a trial costs."""
FEWEST_ROWS = 5_000
"""Rows that the search reads in any case."""
HELD_OUT, HELD_OUT_ROWS = 0.2, 8_000
"""Share of the sample that validates, and the most rows."""
SCORE_ENTRIES = 16_000_000
"""Scores of the rows that validate, at most."""
STEP = 10**0.5
"""From one ridge, or penalty, to the next."""
MOST_STEPS = 6
"""Steps in one direction: a thousandfold."""
CLEAR, WORTH_IT = 0.5, 0.5
"""Standard errors from which on a difference of quality decides alone; and the score, made of differences of
quality and log loss, from which on the later of two candidates is the better one."""
_LOSS_UNIT = 0.02
"""Relative difference of log loss that counts as much as such a difference of quality."""
LOGISTIC_RIDGE = 0.1
"""The first ridge of logistic regression, times the number of rows."""
FIRST_PENALTY = 0.1
"""The first penalty tried, times the number of rows: features that weigh less than this are dropped."""
_SAMPLE_SEED, _VALID_SEED = 0x5EA2C4, 0x7A11D

WEIGHTINGS: dict[str, Weighting] = {
    "tfidf": Weighting(l2=True, idf=True),
    "binary tfidf": Weighting(binary=True, l2=True, idf=True),
    "l2": Weighting(l2=True),
}
"""Weightings of hashed text that are tried, the first one first."""


@dataclass(frozen=True)
class Candidate:
    """Settings of a linear model that do not depend on the number of rows.

    Attributes
    ----------
    weighting : str or None
        One of `WEIGHTINGS`; None for that of the dataset.
    loss : str
    ridge : float
        Times the number of rows; as 1 / C of scikit-learn.
    alpha : float
        Times the number of rows.
    """

    weighting: str | None
    loss: str = "multitask_squared_hinge"
    ridge: float = 1.0
    alpha: float = 0.0

    def options(self, weight_sum: float) -> dict[str, Any]:
        """Return the parameters of the learner for samples of this total weight."""
        return {
            "alpha": self.alpha / weight_sum, "ridge": self.ridge / weight_sum, "loss": self.loss,
            "fit_intercept": True, "tol": 0.1,
        }  # fmt: skip

    def __str__(self) -> str:
        parts = [self.weighting or "as stored", self.loss, f"ridge {self.ridge:.3g}/n"]
        return ", ".join([*parts, f"alpha {self.alpha:.3g}/n"] if self.alpha else parts)


@dataclass(frozen=True)
class Trial:
    """What a candidate reached on the rows held out.

    Attributes
    ----------
    candidate : Candidate
    quality : float
        Share of right labels, or micro-averaged F1 where labels are sets.
    log_loss : float
        After calibration on the same rows.
    calibration : Calibration
    n_features : int
        Features with weight.
    seconds : float
        Of training and scoring; 0 in what is compared.
    """

    candidate: Candidate
    quality: float
    log_loss: float
    calibration: Calibration
    n_features: int
    seconds: float = field(compare=False, default=0.0)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Trial:
        """Return the trial of `asdict`."""
        parts = {
            "candidate": Candidate(**fields["candidate"]), "calibration": Calibration(**fields["calibration"])
        }  # fmt: skip
        return cls(**{**fields, **parts})


class Course(NamedTuple):
    """A finished search.

    Attributes
    ----------
    trials : tuple of Trial
        In the order they were made.
    best : Trial
    n_rows, n_held_out : int
        Rows of the sample, and those of them that validated.
    ended : str
        Why there were no more trials.
    """

    trials: tuple[Trial, ...]
    best: Trial
    n_rows: int
    n_held_out: int
    ended: str


class Limits(NamedTuple):
    """What a search may use.

    Attributes
    ----------
    memory : int
        Bytes.
    seconds : float
        No trial begins later; infinite: until validation has turned.
    """

    memory: int
    seconds: float = math.inf


class Search:
    """One search, from the best candidate known to a better one.

    Parameters
    ----------
    dataset : Dataset
        The rows to learn from.
    engine : Engine
    limits : Limits
    folder : Path, optional
        Where trials are written down; by default nowhere.
    progress : callable
    """

    def __init__(
        self,
        dataset: Dataset,
        engine: Engine,
        limits: Limits,
        folder: Path | None = None,
        progress: ProgressCallback = silent,
    ) -> None:
        self._engine, self._limits, self._folder, self._progress = engine, limits, folder, progress
        self._texts = bool(dataset.features.get("text")) and not dataset.features.get("dense")
        base = dataset.with_weighting(WEIGHTINGS["tfidf"]) if self._texts else dataset
        work = max(dataset.nnz, 1) * max(dataset.n_classes, 1)
        share = min(1.0, SAMPLE_ROWS / dataset.n_samples, SAMPLE_WORK / work)
        share = min(1.0, max(share, FEWEST_ROWS / dataset.n_samples))
        self._sample, _ = draw_rows(base, share, _SAMPLE_SEED, engine)
        n, rows = self._sample.n_samples, min(HELD_OUT_ROWS, SCORE_ENTRIES // max(dataset.n_classes, 1))
        self._valid, places = draw_rows(self._sample, min(HELD_OUT, max(rows, 1) / n), _VALID_SEED, engine)
        self._weights = np.ones(n)
        self._weights[places] = 0.0
        self._truth = _Truth.of(self._valid)
        self._trials: list[Trial] = []
        self._ends = time.monotonic() + limits.seconds

    def run(self) -> Course:
        """Try candidates until none is better, or time is over."""
        ended = "no change of a setting helped any more"
        try:
            best = self._try(Candidate("tfidf" if self._texts else None))
            for stage in (self._weighting, self._ridge, self._loss, self._penalty):
                best = stage(best)
        except _TimeIsOver:
            best, ended = self._best(), "its time was over"
        return Course(
            tuple(self._trials), best, self._sample.n_samples, self._valid.n_samples, ended
        )  # fmt: skip

    def _weighting(self, best: Trial) -> Trial:
        if not self._texts:
            return best
        for name in list(WEIGHTINGS)[1:]:
            best = self._better(best, self._try(replace(best.candidate, weighting=name)))
        return best

    def _ridge(self, best: Trial) -> Trial:
        for factor in (STEP, 1 / STEP):
            improved = self._climb(best, lambda c, f=factor: replace(c, ridge=c.ridge * f))  # type: ignore[misc]
            if improved is not best:
                return improved
        return best

    def _loss(self, best: Trial) -> Trial:
        if self._valid.has_sets:
            return best
        start = self._try(replace(best.candidate, loss="log_loss", ridge=LOGISTIC_RIDGE))
        return self._better(best, self._ridge(start))

    def _penalty(self, best: Trial) -> Trial:
        start = self._try(replace(best.candidate, alpha=FIRST_PENALTY))
        if self._better(best, start) is best:
            return best
        return self._climb(start, lambda c: replace(c, alpha=c.alpha * STEP))

    def _climb(self, best: Trial, change: Callable[[Candidate], Candidate]) -> Trial:
        """Change a setting again and again while that helps."""
        for _ in range(MOST_STEPS):
            trial = self._try(change(best.candidate))
            if self._better(best, trial) is best:
                break
            best = trial
        return best

    def _better(self, one: Trial, other: Trial) -> Trial:
        """Return the better of two: by quality if that differs clearly, else by log loss."""
        chance = math.sqrt(max(one.quality * (1.0 - one.quality), 1e-9) / self._valid.n_samples)
        gain = (other.quality - one.quality) / (CLEAR * chance)
        if abs(gain) > 1.0:
            return other if gain > 0 else one
        gain -= (other.log_loss - one.log_loss) / (_LOSS_UNIT * one.log_loss + 1e-9)
        return other if gain > WORTH_IT else one

    def _best(self) -> Trial:
        if not self._trials:
            raise DataError("there was no time for a single trial", "give --time more, or leave it out")
        best = self._trials[0]
        for trial in self._trials[1:]:
            best = self._better(best, trial)
        return best

    def _try(self, candidate: Candidate) -> Trial:
        for trial in self._trials:
            if trial.candidate == candidate:
                return trial
        file = None if self._folder is None else self._folder / f"trial-{len(self._trials):03d}.json"
        if file is not None and file.exists():
            trial = Trial.from_dict(json.loads(file.read_text()))
            if trial.candidate == candidate:
                self._trials.append(trial)
                return trial
        if self._trials and time.monotonic() > self._ends:
            raise _TimeIsOver
        trial = self._train(candidate)
        if file is not None:
            write_atomic(file, json.dumps(asdict(trial)).encode())
        self._trials.append(trial)
        facts = {"quality": trial.quality, "log loss": trial.log_loss}
        self._progress(Progress("search", len(self._trials), 0, "trials", facts))
        return trial

    def _train(self, candidate: Candidate) -> Trial:
        """Train on the rows not held out, of the sample."""
        started = time.monotonic()
        samples, valid = self._sample, self._valid
        if candidate.weighting is not None:
            weighting = WEIGHTINGS[candidate.weighting]
            samples, valid = samples.with_weighting(weighting), valid.with_weighting(weighting)
        options = candidate.options(float(self._weights.sum()))
        learner = SparseClassifier(**options, memory_limit=self._limits.memory, engine=self._engine)
        return self._judged(learner, candidate, samples, valid, started)

    def judge(self, learner: WeightedClassifier, candidate: Candidate) -> Trial:
        """Return what another learner reaches on the same rows, entered as `candidate`."""
        return self._judged(learner, candidate, self._sample, self._valid, time.monotonic())

    def _judged(
        self,
        learner: WeightedClassifier,
        candidate: Candidate,
        samples: Dataset,
        valid: Dataset,
        started: float,
    ) -> Trial:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            learner.fit_dataset(samples, sample_weight=self._weights)
        scores = np.concatenate(
            [learner.model_.shard_scores(valid, s) for s in range(valid.n_shards)]
        )  # fmt: skip
        n_features = len(learner.model_.used_features)
        quality, loss, calibration = self._truth.judge(scores, learner.model_)
        return Trial(candidate, quality, loss, calibration, n_features, time.monotonic() - started)


class _TimeIsOver(Exception):
    """No trial may begin any more."""


class _Truth(NamedTuple):
    """Labels of the rows held out: codes, or which classes are labels where labels are sets."""

    codes: NDArray[np.int32] | None
    is_label: NDArray[np.bool_] | None

    @classmethod
    def of(cls, valid: Dataset) -> _Truth:
        if not valid.has_sets:
            return cls(valid.labels(), None)
        marks = np.zeros((valid.n_samples, valid.n_classes), bool)
        for lo, shard in zip(valid.base[:-1], valid.shards, strict=True):
            rows, codes = pairs_of(shard.table(["label"]).column("label"))
            marks[lo + rows, codes] = True
        return cls(None, marks)

    def judge(self, scores: NDArray[np.float64], model: Model) -> tuple[float, float, Calibration]:
        """Return quality, log loss after calibration, and the calibration."""
        if self.codes is not None:
            calibration = fit_temperature(scores, self.codes)
            chances = calibration.probabilities(scores)[np.arange(len(scores)), self.codes]
            right = float(np.mean(np.argmax(scores, axis=1) == self.codes))
            return right, float(-np.log(np.maximum(chances, 1e-300)).mean()), calibration
        assert self.is_label is not None
        assert model.label_threshold is not None
        calibration = fit_sigmoid(scores, self.is_label)
        logits = calibration.scale * scores + calibration.offset
        loss = float(np.logaddexp(0.0, np.where(self.is_label, -logits, logits)).sum(axis=1).mean())
        marked = scores > model.label_threshold
        total = int(marked.sum() + self.is_label.sum())
        return 2.0 * int((marked & self.is_label).sum()) / max(total, 1), loss, calibration
