"""The boosted learner: check and complete its options, and call its solver."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from bigmc.budget import format_bytes
from bigmc.errors import BigmcError
from bigmc.kernels.boosting.bins import MAX_EDGES
from bigmc.learners.base import BELOW_ONE, COUNT, POSITIVE, SHARE, Learner, Trained
from bigmc.learners.run import Run
from bigmc.model import BoostedModel, Trees
from bigmc.model.calibration import MOST_ROWS
from bigmc.options.learners import BoostOptions
from bigmc.solvers.boosting import (
    DEFAULT_DEPTH,
    EXPONENTIAL,
    FAMILIES,
    GRID,
    LEARNERS,
    LOSSES,
    MAX_DEPTH,
    BoostingOptions,
    Trials,
    choose_C,
    held_out,
    is_sparse,
    solve_averaged,
)
from bigmc.store.dataset import Dataset
from bigmc.store.sample import holdout_keys


class _Descent(NamedTuple):
    """Defaults of the descent that depend on the depth of the learners."""

    pool: int
    max_sweeps: int
    inner_rounds: int
    learning_rate: float


#: Learners of one cut are optimised fully, for the certificate; trees stage-wise with shrinkage
#: (Friedman 2001), which had fewer errors on a fifth of the training samples of vowel and satimage. Pools of
#: 20 trees had as many errors there, on pendigits and optdigits as those of 40, at half the cost (on letter:
#: 4.9 % against 4.3).
_OF_STUMPS = _Descent(pool=40, max_sweeps=3, inner_rounds=30, learning_rate=1.0)
_OF_TREES = _Descent(pool=20, max_sweeps=1, inner_rounds=5, learning_rate=0.3)

#: Share of the samples by which C is chosen.
_HELD_OUT = 0.2


class BoostingLearner(Learner):
    """Trains a `BoostedModel`; `bigmc.MultiBoostClassifier` describes its options."""

    options_type = BoostOptions
    kind = BoostOptions.learner
    limits = ("n_rounds",)
    takes_missing = True
    options: BoostOptions

    def check(self) -> None:
        """Raise an error for an invalid option; see `Learner.check`."""
        if self.options.C != "auto":
            self._check(POSITIVE, "C")
        self._check(COUNT, "n_rounds", "patience", "n_models")
        self._check_given(COUNT, "best_cuts", "pool", "max_sweeps", "inner_rounds")
        self._check_given(SHARE, "learning_rate")
        depth: Any = 1 if self.options.max_depth is None else self.options.max_depth
        for name, value, low, high in (
            ("max_depth", depth, 1, MAX_DEPTH),
            ("max_bins", self.options.max_bins, 2, MAX_EDGES + 1),
        ):
            if not isinstance(value, Integral) or not low <= int(value) <= high:
                raise BigmcError(f"{name} is {value!r}", f"give a whole number from {low} to {high}")
        self._check_known("family", FAMILIES)
        self._check_known("learners", LEARNERS)
        self._check_known("loss", LOSSES)
        if self.options.family == "ray" and depth > 1:
            raise BigmcError("rays have depth 1", "give max_depth=1, or another family")
        self._check(BELOW_ONE, "validation_fraction", "min_frequency", "label_noise")
        self._check(SHARE, "column_share")
        if self.options.n_models > 1 and self.options.column_share == 1:
            raise BigmcError("averaged models would all use the same columns", "give a column_share below 1")
        self._check_given(POSITIVE, "time_limit")
        super().check()

    def recorded(self) -> dict[str, Any]:
        """Return the options by name; without those that all models had once."""
        named = super().recorded()
        if named["loss"] == EXPONENTIAL:
            del named["loss"]
        if named["label_noise"] == 0.0:
            del named["label_noise"]
        if named["best_cuts"] is None:
            del named["best_cuts"]
        return named

    def _solve(self, dataset: Dataset, run: Run) -> Trained:
        options, C = self._solver_options(dataset, run.seed), self.options.C
        context, limit = run.context, run.resources.memory_limit
        notes: tuple[str, ...] = ()
        if C == "auto":
            started, context = time.monotonic(), replace(context, checkpoint=Trials(run.checkpoint))
            share = options.validation_fraction or _HELD_OUT
            trial = replace(options, validation_fraction=share)
            C = choose_C(dataset, trial, limit, context, run.weights)
            if options.time_limit is not None:
                left = max(options.time_limit - (time.monotonic() - started), 0.0)
                options = replace(options, time_limit=left)
        options = replace(options, C=float(C))
        n_models = int(self.options.n_models)
        solution = solve_averaged(dataset, options, n_models, limit, context, run.weights)
        stages = solution.stages
        if solution.limit_for_more is not None:
            notes = (
                f"stopped after round {solution.n_iter}: the answers of the learners with weight fill the "
                f"memory limit of {format_bytes(limit)}; give --memory "
                f"{solution.limit_for_more // 10**6}MB for more rounds, or a smaller C",
            )
        learners = stages.learners
        model = BoostedModel(
            **run.record,
            classes=dataset.classes,
            trees=Trees.of(
                learners.feature,
                solution.thresholds,
                learners.missing_below,
                learners.leaf * stages.signs[:, np.newaxis],
                stages.classes,
            ),
            stage_ends=np.array(stages.ends, np.int64),
            members=stages.members.astype(np.int32),
            weights=stages.weights,
            stage=solution.stage,
            C=options.C,
            column_scale=dataset.column_scale(),
            certificate=asdict(solution.certificate),
            objective=solution.objective,
            n_iter=max(1, solution.n_iter),
            n_passes=solution.n_passes,
            # A resumed run reads the data once more to find its learners again; the model is the same.
            history=[{k: v for k, v in entry.items() if k != "bytes_read"} for entry in solution.history],
        )
        if options.validation_fraction:
            model = _calibrated(model, dataset, options)
        return Trained(model, notes)

    def _depth(self, dataset: Dataset) -> int:
        """Return the levels of the learners, given or chosen."""
        if self.options.max_depth is not None:
            return int(self.options.max_depth)
        return 1 if self.options.family != "auto" or is_sparse(dataset) else DEFAULT_DEPTH

    def _solver_options(self, dataset: Dataset, seed: int) -> BoostingOptions:
        """Return the options of the solver; with C "auto", those of the first trial."""
        depth = self._depth(dataset)
        default = _OF_STUMPS if depth == 1 else _OF_TREES
        options = self.options
        return BoostingOptions(
            C=GRID[0] if options.C == "auto" else float(options.C),
            n_rounds=int(options.n_rounds),
            max_depth=depth,
            family=options.family,
            learners=options.learners,
            loss=options.loss,
            label_noise=float(options.label_noise),
            pool=default.pool if options.pool is None else int(options.pool),
            max_sweeps=default.max_sweeps if options.max_sweeps is None else int(options.max_sweeps),
            inner_rounds=default.inner_rounds if options.inner_rounds is None else int(options.inner_rounds),
            learning_rate=default.learning_rate
            if options.learning_rate is None
            else float(options.learning_rate),
            max_bins=int(options.max_bins),
            column_share=float(options.column_share),
            best_cuts=None if options.best_cuts is None else int(options.best_cuts),
            min_frequency=float(options.min_frequency),
            tol=self.tolerance,
            validation_fraction=float(options.validation_fraction),
            patience=int(options.patience),
            time_limit=None if options.time_limit is None else float(options.time_limit),
            seed=seed,
        )


def _calibrated(model: BoostedModel, dataset: Dataset, options: BoostingOptions) -> BoostedModel:
    """Return the model with probabilities fitted to the samples held out of its training."""
    from bigmc.model.fit_calibration import fit_temperature  # an optimiser, which most trainings do not need

    held = held_out(holdout_keys(dataset), options.validation_fraction, options.seed)
    labels, scores, codes, n_rows = dataset.labels(), [], [], 0
    for shard, first in enumerate(dataset.base[:-1].tolist()):
        rows = np.flatnonzero(held[first : int(dataset.base[shard + 1])])
        if len(rows) and n_rows < MOST_ROWS:
            scores.append(model.shard_scores(dataset, shard)[rows])
            codes.append(labels[first + rows])
            n_rows += len(rows)
    if not n_rows:
        return model
    return replace(model, calibration=fit_temperature(np.concatenate(scores), np.concatenate(codes)))
