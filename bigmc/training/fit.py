"""Fit: search the settings, train, calibrate, evaluate, and train on all rows.

``MODEL.fit/`` holds the request, every trial, and every training's checkpoint until the model is
saved. Killed at any moment, the same call repeats the same steps and makes the same model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from bigmc.engine import Engine, Resources
from bigmc.errors import DataError, ModelError
from bigmc.model import Model, load_model
from bigmc.model.calibration import Calibration
from bigmc.progress import ProgressCallback, silent
from bigmc.store.dataset import Dataset
from bigmc.store.files import disk
from bigmc.store.files.atomic import exclusive
from bigmc.store.files.work_file import made_once, read_work_file, write_work_file
from bigmc.training.best_model import (
    check_max_features,
    check_ridge_memory,
    linear_winner,
    with_class_scales,
)
from bigmc.training.boosting import choose_boosting, share_for_boosting
from bigmc.training.boosting_rounds import Boosting
from bigmc.training.choose_again import choose_again
from bigmc.training.class_scales import ClassScales
from bigmc.training.feature_names import feature_names
from bigmc.training.fit_models import FitModels
from bigmc.training.label_thresholds import Thresholds
from bigmc.training.limits import Limits, engine_for, tidy_after
from bigmc.training.repeated_rows import repeated_rows
from bigmc.training.results import FitResult, Measured
from bigmc.training.search import Search
from bigmc.training.sums import Sum, add_up
from bigmc.training.trials import Course, Size, better
from bigmc.training.unseen_rows import UnseenRows
from bigmc.training.winner import Splits, Winner

ASKED, RESULT, SCALES, SUM = "asked.json", "result.json", "scales.json", "sum.json"
_CLASSES_CURE = "if the label is a number to be estimated, make classes of its ranges first"
INTERVAL_Z = 1.959964
"""Quantile of the normal distribution for intervals of 95 %."""


class Fit:
    """One run of `bigmc fit` on a dataset.

    Parameters
    ----------
    data : Dataset
        On disk.
    target : Path
        The model to write.
    splits : Splits
    limits : Limits
    engine : Engine
    progress : callable
    """

    def __init__(
        self,
        data: Dataset,
        target: Path,
        splits: Splits,
        limits: Limits,
        engine: Engine,
        progress: ProgressCallback = silent,
    ) -> None:
        self._data, self._target, self._splits = data, target, splits
        self._limits, self._engine, self._progress = limits, engine_for(data, engine), progress
        self._folder = folder_of(target)
        self._train = data[splits.train]
        self._test = data[splits.test] if data.splits.get(splits.test) else None
        self._models = FitModels(data, splits, limits, self._engine, self._folder, progress)

    def run(self) -> FitResult:
        """Make the model; return the result."""
        if not self._target.parent.is_dir():
            raise ModelError(f"there is no folder {self._target.parent}", "create it, or give another --to")
        disk.make_folder(self._folder)
        check_max_features(self._data, self._limits)
        _refuse_numbers(self._train)
        if self._splits.thresholds is not Thresholds.SHARED and not self._data.has_sets:
            raise DataError(
                "each row has one label, so no label has a threshold",
                "leave --label-thresholds out, or give sets of labels (--label-separator)",
            )
        if self._test is not None:
            check_ridge_memory(self._data, self._limits)
        with exclusive(self._folder / "lock", target=self._target):
            self._claim()
            refuse_other_file(self._target, self._data.identity)
            done = self._folder / RESULT
            if done.exists() and self._target.exists():
                result: FitResult = read_work_file(done, self._folder)
                self._clear()
                return _repeated(result, self._limits.asked_seconds)
            search = Search(
                self._train,
                self._engine,
                self._limits._replace(trainings=1 if self._test is None else 2 + self._splits.refit),
                self._folder,
                self._progress,
                self._splits.thresholds,
            )
            tidy_after(self._data)  # frees what drawing the rows needed
            rival = choose_boosting(search, self._data, self._folder) if self._boosts() else None
            without = _without_boosting(search) if rival is None and self._boosts() else []
            course = search.run(None if rival is None else rival.trial.quality)
            summed = None if rival is None else add_up(search, course.best, rival, self._folder / SUM)
            course = course._replace(sizes=search.sizes(course.best.candidate))
            if course.sizes:
                self._models.searched = search.validation.duals(course.best.candidate)
                self._models.searched_settings = course.best.candidate
            winner, rivals = self._choose(course, rival, summed)
            winner = self._class_scaled(winner, search, course)
            lacked_time = search.lacked_time
            del search, rival  # frees the rows of the search
            tidy_after(self._data)
            plain, unseen = self._plain_ridge(course), self._unseen(course)
            notes: list[str] = []
            if unseen is not None and unseen.judges:
                winner, plain, notes = choose_again(winner, plain, unseen, self._models)
            measured = self._measured(winner, plain, unseen)
            cross_validated = course.n_held_out == course.n_rows  # so it judged on more rows than the test
            refits = self._test is not None and self._splits.refit and self._models.has_time
            if unseen is not None and refits and not cross_validated:
                winner = unseen.calibrated(winner, self._models.tested(winner))
            model = self._models.whole(winner) if refits else self._models.tested(winner)
            self._save(model, course, winner, "all" if refits else self._splits.train)
            result = self._result(model, course, winner, measured, rivals)
            result["notes"] += [*without, *notes, *_doubts(self._train)]
            if self._models.has_time:  # it reads all rows once more
                result["notes"] += repeated_rows(self._train, self._test, self._limits.memory)
            lacked_time |= self._models.n_rows is not None or not self._models.has_time
            if lacked_time and math.isfinite(self._limits.asked_seconds):
                result["time_limit"] = self._limits.asked_seconds
            write_work_file(done, result)
            self._clear()
        return result

    def _clear(self) -> None:
        """Remove the models and checkpoints of the search, including those of killed runs."""
        for leftover in [*self._folder.glob("*.model"), *self._folder.glob("*.wip")]:
            disk.try_clear(leftover) if leftover.is_dir() else disk.unlink(leftover)

    def _claim(self) -> None:
        """Record the request; raise an error if the folder has another one."""
        limits = {"memory": self._limits.memory, "max_features": self._limits.max_features}
        asked = {"dataset": self._data.identity, **self._splits._asdict(), **limits}
        if asked["thresholds"] == Thresholds.SHARED:  # a fit begun before this option existed resumes
            del asked["thresholds"]
        file = self._folder / ASKED
        if file.exists() and read_work_file(file, self._folder) != asked:
            raise ModelError(
                f"{self._folder} belongs to a fit with other data, memory limit or max_features",
                f"delete {self._folder} and {self._target}, or give another --to",
            )
        write_work_file(file, asked)

    def _choose(
        self, course: Course, rival: Boosting | None, summed: Sum | None
    ) -> tuple[Winner, dict[str, float]]:
        """Return the best of the linear model of the search, boosting, and their sum."""
        linear = linear_winner(course, self._data, self._limits)
        if rival is None:
            return linear, {}
        whole, n = course.best, course.n_held_out
        best_linear = whole if linear.size is None else better(whole, linear.size.trial(whole), n)
        rivals = {"sparse": best_linear.quality, "boost": rival.trial.quality}
        boosted = Winner("boost", None, rival.trial.calibration, boosting=rival.options)
        alone = linear if better(best_linear, rival.trial, n) is best_linear else boosted
        if summed is None:
            return alone, rivals
        rivals["sum"] = summed.trial.quality
        outdone = best_linear is not whole and better(best_linear, summed.trial, n) is best_linear
        if outdone or not summed.is_worth_it:
            return alone, rivals
        added = linear if linear.size is None else replace(linear, size=Size.whole(whole))
        both, calibration = (added, boosted), summed.trial.calibration
        return Winner("sum", None, calibration, parts=both, part_weights=summed.weights), rivals

    def _class_scaled(self, winner: Winner, search: Search, course: Course) -> Winner:
        """Return the winner with the scales of its classes, found before if the run was killed since."""

        def found() -> Mapping[str, Any]:
            chosen = with_class_scales(winner, search, course.best.seconds)
            return {"scales": chosen.class_scales, "calibration": chosen.calibration.to_dict()}

        fields = made_once(self._folder / SCALES, found, self._folder)
        if fields["scales"] is None:
            return winner
        factors, offsets = fields["scales"]
        scales = ClassScales(tuple(factors), tuple(offsets))
        return replace(winner, class_scales=scales, calibration=Calibration(**fields["calibration"]))

    def _boosts(self) -> bool:
        return self._limits.max_features is None and share_for_boosting(self._data, self._limits.memory) > 0

    def _plain_ridge(self, course: Course) -> Winner:
        """Return the plain ridge model of all features, the baseline of every fit."""
        first = course.trials[0]
        by_duals = linear_winner(course, self._data, self._limits).size is not None
        return Winner.of(first, Size.whole(first) if by_duals else None)

    def _unseen(self, course: Course) -> UnseenRows | None:
        """Return the test rows, if there are any."""
        if self._test is None:
            return None
        resources = Resources(self._engine, self._limits.memory, self._progress)
        others = self._train.n_samples - course.n_rows
        return UnseenRows(self._test, self._splits.thresholds, self._limits, resources, others)

    def _measured(self, winner: Winner, plain: Winner, unseen: UnseenRows | None) -> Measured:
        """Return the figures on the test rows, for models not trained on them."""
        if unseen is None:
            return {"test": None}
        figures = unseen.figures(winner, self._models.tested(winner))
        same = winner.is_trained_as(plain)
        by = self._splits.thresholds.figure if self._data.has_sets else "accuracy"
        shares = {}
        if same or self._models.has_time:
            ridge = figures
            if not same or winner.class_scales is not None:
                model = self._models.tested(winner) if same else self._models.beside(plain, winner.linear)
                ridge = unseen.figures(plain, model)
            shares["plain_ridge"] = ridge[by]
        if not self._data.has_sets:
            shares["largest_class"] = unseen.share_of(int(self._train.class_counts().argmax()))
        interval = wilson(figures[by], figures["n_samples"])
        return {"test": {"by": by, by: figures[by], "interval": interval, **figures}, "baselines": shares}

    def _save(self, model: Model, course: Course, winner: Winner, split: str) -> None:
        names = feature_names(self._data, model.used_features, self._limits.memory // 16)
        params = {
            **model.params,
            "learner": winner.kind,
            "dataset": self._data.identity,
            "split": split,
            "search": [{**trial.to_dict(), "seconds": 0.0} for trial in course.trials],
            "sizes": [asdict(size) for size in course.sizes],
        }
        if winner.candidate is not None and winner.candidate.weighting is not None:
            params["weighting"] = winner.candidate.weighting
        if winner.class_scales is not None:
            params["class_scales"] = winner.class_scales._asdict()
        completed = winner.completed(model)
        label = self._data.label_source  # a model trained on rows in memory lacks it
        replace(completed, params=params, names=names, label_source=label).save(self._target)

    def _result(
        self, model: Model, course: Course, winner: Winner, measured: Measured, rivals: Mapping[str, float]
    ) -> FitResult:
        bounds, n_rows = dict(model.certificate), self._models.n_rows
        return {
            "model": str(self._target),
            "learner": winner.kind,
            "settings": winner.settings,
            "trials": [
                {
                    "settings": str(trial.candidate),
                    "quality": trial.quality,
                    "log_loss": trial.log_loss,
                    "n_nonzero_features": trial.n_features,
                    "seconds": trial.seconds,
                }
                for trial in course.trials
            ],
            "sizes": [
                {"n_features": size.n_features, "quality": size.quality, "log_loss": size.log_loss}
                for size in course.sizes
            ],
            "ended": course.ended,
            "n_search_rows": course.n_rows,
            "n_held_out": course.n_held_out,
            "objective": model.objective if math.isfinite(model.objective) else None,
            "certificate": {k: v if math.isfinite(v) else None for k, v in bounds.items()},
            "n_nonzero_features": len(model.used_features),
            "n_classes": model.n_classes,
            **measured,  # type: ignore[typeddict-item]
            "rivals": rivals,
            "notes": _notes(winner, n_rows, bounds),
        }


def _notes(winner: Winner, n_rows: int | None, bounds: Mapping[str, float]) -> list[str]:
    """Return what the certificate does not cover, and what the model is without because its time was over."""
    notes = []
    if n_rows is not None:
        notes.append(
            f"{'training' if winner.size else 'boosting'} had time or memory for {n_rows:,} rows only"
        )
    if winner.size and math.isinf(bounds["upper"]):
        notes.append("there was no time for a certificate")
    elif winner.class_scales is not None:
        notes.append("classes have factors and offsets; the certificate is that of the weights before these")
    return notes


def _without_boosting(search: Search) -> list[str]:
    """Return why boosting was given up."""
    if search.lacked_time:
        return ["there was no time for boosting"]
    return ["boosting was given up: few rounds brought nothing on held-out rows that a linear model lacked"]


def _refuse_numbers(rows: Dataset) -> None:
    """Raise a `DataError` if no training row shares its label with another: no answer could be right."""
    if _n_alone(rows) == rows.n_samples:
        raise DataError(f"each of the {rows.n_samples:,} training rows has a label of its own", _CLASSES_CURE)


def _doubts(rows: Dataset) -> list[str]:
    """Return what is odd about the labels of the training rows."""
    alone = _n_alone(rows)
    if 2 * alone <= rows.n_samples:
        return []
    return [
        f"{alone:,} of {rows.n_samples:,} training rows are the only one of their label, which nothing "
        f"can be learned of; {_CLASSES_CURE}"
    ]


def _n_alone(rows: Dataset) -> int:
    """Return how many rows are the only one of their label."""
    return 0 if rows.has_sets else int(np.count_nonzero(rows.class_counts() == 1))


def _repeated(result: FitResult, seconds: float) -> FitResult:
    """Return the result of a finished fit; a note says if it lacked time, and there is more now."""
    limit = result.get("time_limit", math.inf)
    if limit < seconds:
        note = f"the model was made before, and its time was over after {limit:g} s"
        result["notes"] = [*result["notes"], f"{note}; to search for longer, give another --to"]
    return result


def refuse_other_file(target: Path, dataset: str | None = None) -> None:
    """Raise a `ModelError` if the target exists and was not made by a fit of the dataset of this identity.

    If that is not known yet, the model of any fit is accepted.
    """
    if not target.exists():
        return
    try:
        params = load_model(target).params
    except ModelError:
        params = {}
    if "search" not in params or (dataset is not None and params.get("dataset") != dataset):
        raise ModelError(
            f"{target} exists and is not the result of the same command", "delete it, or give another --to"
        )


def folder_of(target: Path) -> Path:
    """Return the folder of a fit's progress."""
    return target.with_name(target.name + ".fit")


def wilson(share: float, n: int) -> tuple[float, float]:
    """Return the 95 % interval of a proportion of `n` rows (Wilson, 1927)."""
    if n <= 0:
        raise DataError("the test split has no rows to evaluate on", "give a larger test split")
    z2 = INTERVAL_Z**2 / n
    middle = (share + z2 / 2) / (1 + z2)
    half = INTERVAL_Z * math.sqrt(share * (1 - share) / n + z2 / (4 * n)) / (1 + z2)
    return middle - half, middle + half
