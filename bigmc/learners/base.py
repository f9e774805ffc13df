"""Common parts of all learners: checks of options and samples, weights, and the model's record."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from numbers import Integral, Real
from pathlib import Path
from types import NoneType
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bigmc.engine import Resources
from bigmc.errors import BigmcError, DataError, ModelError
from bigmc.learners.run import Run
from bigmc.learners.weights import combined_weights, recorded_class_weight
from bigmc.model import Model
from bigmc.options.label_kind import LabelKind
from bigmc.options.learners import LearnerOptions
from bigmc.solvers import Checkpoint
from bigmc.store.dataset import Dataset
from bigmc.store.feature_titles import feature_title

#: Bytes of a block when searching for a column with missing values.
_BLOCK_BYTES = 1 << 22


class Valid(NamedTuple):
    """The valid values of a numeric option, and how a message says it."""

    type: Any
    test: Callable[[float], bool]
    said: str


POSITIVE = Valid(Real, lambda x: 0 < x < math.inf, "finite number above 0")
NOT_NEGATIVE = Valid(Real, lambda x: 0 <= x < math.inf, "finite number that is not negative")
SHARE = Valid(Real, lambda x: 0 < x <= 1, "number above 0, at most 1")
BELOW_ONE = Valid(Real, lambda x: 0 <= x < 1, "number from 0 to below 1")
COUNT = Valid(Integral, lambda x: x >= 1, "whole number of at least 1")


class Trained(NamedTuple):
    """A trained model, and warnings, such as that the gap is above the tolerance."""

    model: Model
    notes: tuple[str, ...] = ()


class Learner(ABC):
    """A learner with its options.

    A learner is a subclass that sets the class attributes below, calls its solver in `_solve`, and checks its
    options in `check`. All options are recorded in the model, so equal options must give equal models.

    `options_type` is the dataclass of its options, `kind` its name and that of its models. `limits` are the
    options that stop training before the gap is reached, for the message. `warm_starts` says whether training
    can start from a model, `takes_missing` whether NaN is accepted as a missing value, and `takes_weights`
    whether samples may have weights.
    """

    options_type: ClassVar[type[LearnerOptions]]
    kind: ClassVar[str]
    limits: ClassVar[tuple[str, ...]]
    warm_starts: ClassVar[bool] = False
    takes_missing: ClassVar[bool] = False
    takes_weights: ClassVar[bool] = True

    def __init__(self, options: Any) -> None:
        self.options = options

    @abstractmethod
    def _solve(self, dataset: Dataset, run: Run) -> Trained:
        """Return the model of labelled samples of at least two classes.

        It has the fields of ``run.record`` and a certificate with the gap that is compared with
        ``tol``, infinite if there is no certificate.
        """

    def check(self) -> None:
        """Raise `BigmcError` for an invalid option, with its name and the valid values."""
        self._check_given(POSITIVE, "tol")
        class_weight = getattr(self.options, "class_weight", None)
        is_text = isinstance(class_weight, str) and class_weight == "balanced"
        if not is_text and not isinstance(class_weight, Mapping | NoneType):
            raise DataError(f"class_weight {class_weight!r} is unknown", 'use "balanced" or a dict')

    @property
    def tolerance(self) -> float:
        """The gap to reach."""
        return float(self.options.tol)

    def check_labels(self, kind: LabelKind) -> None:
        """Raise `BigmcError` if the learner does not take such labels, naming what takes them."""
        if kind is LabelKind.SET:
            raise DataError(
                f"the labels are sets, but training {self.kind} takes one label per sample",
                'train sparse with the loss "multilabel_ranking"',
            )

    def recorded(self) -> dict[str, Any]:
        """Return the options by name, as they are stored in a model."""
        options: LearnerOptions = self.options
        named = {item.name: getattr(options, item.name) for item in fields(options)}
        if "class_weight" in named:
            named["class_weight"] = recorded_class_weight(named["class_weight"])
        return dict(sorted(named.items()))

    def train(
        self,
        dataset: Dataset,
        resources: Resources,
        *,
        sample_weight: ArrayLike | None = None,
        checkpoint: Checkpoint | None = None,
        scratch: Path | None = None,
        start: Model | None = None,
    ) -> Trained:
        """Train on a dataset of labelled samples.

        `sample_weight` has numbers of at least 0, equivalent to repeating or omitting samples. The state is
        saved in `checkpoint` during training, and read at the start. Workers train on a dataset that is
        stored; one in memory stays in this process. `scratch` is a folder for data that does not fit into
        memory; by default the system's for temporary files. `start` is a model with the same kind and
        features to start from. `BigmcError` if an option is invalid, `DataError` if there are fewer than 2
        classes, or the data cannot be used, and `MemoryLimitError` if the memory limit is too small.
        """
        self.check()
        if start is not None:
            self._check_start(start, dataset)
        self.check_data(dataset)
        weights = self.weights(dataset, sample_weight)
        seed = int(self.options.random_state)
        trained = self._solve(
            dataset,
            Run(
                seed,
                replace(resources, engine=dataset.seen_by(resources.engine)),
                checkpoint,
                scratch,
                weights,
                start,
                {
                    "kind": self.kind,
                    "n_features": dataset.n_features,
                    "weighting": dataset.weighting,
                    "feature_spec": dataset.features,
                    "label_source": dataset.label_source,
                    "params": self.recorded(),
                },
            ),
        )
        return trained._replace(notes=trained.notes + self._above_tolerance(trained.model))

    def check_data(self, dataset: Dataset) -> None:
        """Raise `DataError` for samples that the learner cannot be trained on."""
        self.check_labels(dataset.label_kind)
        if dataset.n_samples == 0:
            raise DataError("the dataset has no samples", "train on labelled samples")
        if dataset.features.get("missing") and not self.takes_missing:
            raise _missing_values(dataset)

    def doubts(self, dataset: Dataset, model: Model) -> tuple[str, ...]:
        """Return warnings of what in samples or options may have made the model worse than it could be."""
        return ()

    def weights(self, dataset: Dataset, sample_weight: ArrayLike | None = None) -> NDArray[np.float64] | None:
        """Return the product of given weights, those of the dataset and those of classes; None if all are 1.

        Errors as of `combined_weights`.
        """
        class_weight = getattr(self.options, "class_weight", None)
        return combined_weights(self._with_own_weights(sample_weight, dataset), class_weight, dataset)

    def _above_tolerance(self, model: Model) -> tuple[str, ...]:
        gap = model.certificate["gap"]
        if not math.isfinite(gap) or gap <= self.tolerance:  # an infinite gap: nothing is certified
            return ()
        limits = ", ".join(f"{name} (now {getattr(self.options, name)})" for name in self.limits)
        return (
            f"stopped after {model.n_passes:.3g} passes with a gap of {gap:.3g}, above "
            f"tol={self.tolerance:g}; raise {limits} or tol",
        )

    def _with_own_weights(self, given: ArrayLike | None, dataset: Dataset) -> ArrayLike | None:
        """Return the sample weights times those in the dataset."""
        own = dataset.sample_weights()
        if not self.takes_weights and (own is not None or given is not None):
            which = "weights of samples are given" if own is None else "the dataset has weights of its rows"
            raise DataError(
                f"{which}, but {self.kind} training does not support weights",
                "leave the weights out (ingest without --weight), or train another learner",
            )
        if own is None or given is None:
            return given if own is None else own
        return own * np.asarray(given, np.float64)

    def _check_start(self, start: Model, dataset: Dataset) -> None:
        """Raise an error for a model that training cannot start from."""
        if not self.warm_starts or start.kind != self.kind:
            raise ModelError(
                f"training {self.kind} cannot start from a model of kind {start.kind}",
                "leave the warm start out" if not self.warm_starts else "give a model of the same learner",
            )
        start.check_features(dataset)

    def _check(self, valid: Valid, *names: str) -> None:
        """Raise an error for options of these names with other values."""
        for name in names:
            value = getattr(self.options, name)
            if not isinstance(value, valid.type) or not valid.test(float(value)):
                raise BigmcError(f"{name} is {value!r}", f"give a {valid.said}")

    def _check_given(self, valid: Valid, *names: str) -> None:
        """Check those of the options that are not None."""
        self._check(valid, *(name for name in names if getattr(self.options, name) is not None))

    def _check_known(self, name: str, known: Sequence[str]) -> None:
        """Raise an error for an option with another value than the known ones."""
        value = getattr(self.options, name)
        if value not in known:
            raise BigmcError(f"{name} is {value!r}", f"use one of {', '.join(known)}")


def _missing_values(dataset: Dataset) -> DataError:
    """Return the error of a learner that does not take missing values, with the name of a column."""
    cure = "train boost, or ingest the data without --missing keep"
    for lo, hi in dataset.spans(_BLOCK_BYTES):
        missing = np.flatnonzero(np.isnan(dataset.class_statistics(lo, hi)[0]).any(axis=0))
        if len(missing):
            name = feature_title(dataset, lo + int(missing[0]))
            return DataError(f"{name} has missing values, which only the boosted learner takes", cure)
    return DataError("the dataset may have missing values, which only the boosted learner takes", cure)
