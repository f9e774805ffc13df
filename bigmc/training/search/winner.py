"""The learner that a fit chose."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bigmc.model import LinearModel, Model
from bigmc.model.calibration import Calibration
from bigmc.options.learners import BoostOptions, LearnerOptions
from bigmc.store.dataset import Dataset
from bigmc.training.search.class_scales import ClassScales
from bigmc.training.search.label_thresholds import Threshold
from bigmc.training.search.search_rows import has_many_features
from bigmc.training.search.trials import RIDGE_TOL, TRIAL_TOL, Candidate, Size, Trial, Verdict, weighted


@dataclass(frozen=True)
class Winner:
    """The learner that won: its settings for so many rows, and its calibration.

    Attributes
    ----------
    candidate : Candidate or None
        Settings of a linear model; None for boosting.
    threshold : Threshold or None
        For label sets: the score above which a class is a label.
    boosting : BoostOptions or None
        Options of boosting; None for the other learners.
    size : Size or None
        Share of the features to keep; None if a penalty or boosting selects features.
    max_features : int or None
        Maximum number of features, if that share of the features of all rows is larger.
    parts : tuple of Winner
        The models of a sum, the linear one first; empty for a single model.
    part_weights : tuple of float
        Weights of their scores in the sum.
    class_scales : ClassScales or None
        Factors and offsets of the scores of a linear model, which become part of its weights.
    """

    kind: str
    candidate: Candidate | None
    calibration: Calibration
    threshold: Threshold | None = None
    boosting: BoostOptions | None = None
    size: Size | None = None
    max_features: int | None = None
    parts: tuple[Winner, ...] = ()
    part_weights: tuple[float, ...] = ()
    class_scales: ClassScales | None = None

    @classmethod
    def of(cls, trial: Trial, size: Size | None = None, max_features: int | None = None) -> Winner:
        """Return the linear learner of a trial, with all features or of a size."""
        said = trial if size is None else size
        calibration, threshold = said.calibration, said.threshold
        return cls("sparse", trial.candidate, calibration, threshold, size=size, max_features=max_features)

    def judged(self, verdict: Verdict) -> Winner:
        """Return the learner with the calibration and threshold of a verdict."""
        return replace(self, calibration=verdict.calibration, threshold=verdict.threshold)

    def is_trained_as(self, plain: Winner) -> bool:
        """Return whether it has the settings of a linear learner, and all features."""
        return plain.candidate == self.candidate and (self.size is None or self.size.share == 1.0)

    @property
    def linear(self) -> Winner:
        """The linear learner of a sum, else the learner itself."""
        return self.parts[0] if self.parts else self

    @property
    def boosting_options(self) -> BoostOptions | None:
        """The options of boosting, alone or in a sum; None without boosting."""
        return self.parts[-1].boosting if self.parts else self.boosting

    def with_rounds(self, n_rounds: int) -> Winner:
        """Return the learner with another number of rounds of boosting, alone or in a sum."""
        if self.parts:
            return replace(self, parts=(*self.parts[:-1], self.parts[-1].with_rounds(n_rounds)))
        assert self.boosting is not None
        return replace(self, boosting=replace(self.boosting, n_rounds=n_rounds))

    @property
    def settings(self) -> str:
        """The settings as a text for people."""
        if self.parts:
            own = zip(self.parts, self.part_weights, strict=True)
            return " + ".join(f"{weight:.3g} times {part.kind} ({part.settings})" for part, weight in own)
        if self.boosting is None:
            return str(self.candidate)
        chosen, default = self.boosting, BoostOptions()
        said = [f"depth {chosen.max_depth}, {chosen.n_rounds} rounds, C {chosen.C:g}"]
        if chosen.loss != default.loss:
            said.append(chosen.loss)
        if chosen.label_noise:
            said.append(f"label noise {chosen.label_noise:g}")
        if chosen.learning_rate != default.learning_rate:
            said.append(f"learning rate {chosen.learning_rate:g}")
        if chosen.n_models > 1:
            said.append(f"mean of {chosen.n_models}")
        return ", ".join(said)

    def completed(self, model: Model) -> Model:
        """Return a model with the scales, calibration and threshold that held-out rows gave."""
        model = self.scaled(model)
        if self.threshold is None:
            return replace(model, calibration=self.calibration)
        return replace(model, calibration=self.calibration, label_threshold=self.threshold)

    def scaled(self, model: Model) -> Model:
        """Return a model with the factors and offsets of its classes."""
        if self.class_scales is None:
            return model
        assert isinstance(model, LinearModel)
        return model.with_scaled_classes(*self.class_scales)

    def samples(self, dataset: Dataset) -> Dataset:
        """Return samples as the learner weights them."""
        return dataset if self.candidate is None else weighted(dataset, self.candidate)

    def options(self, samples: Dataset) -> LearnerOptions:
        """Return the options of the learner for these samples."""
        if self.candidate is None:
            assert self.boosting is not None
            return self.boosting
        is_large_ridge = self.candidate.is_ridge_hinge and has_many_features(samples)
        tol = RIDGE_TOL if is_large_ridge else TRIAL_TOL
        return self.candidate.options(samples.weight_sum, tol=tol)
