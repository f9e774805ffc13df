"""Fit: search the settings, compare on unseen rows, measure, train on all rows, and save.

``MODEL.fit/`` holds the request, every trial, and every training's checkpoint until the model is
saved. Killed at any moment, the same call repeats the same steps and makes the same model.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path

from bigmc.errors import DataError, ModelError
from bigmc.inference.evaluation.interval import wilson
from bigmc.ingestion.target import WRITTEN
from bigmc.model import Model, load_model
from bigmc.store.files import disk
from bigmc.store.files.atomic import exclusive, remove_tree
from bigmc.store.files.outputs import IfExists
from bigmc.store.files.work_file import read_work_file, write_work_file
from bigmc.store.files.work_folder import LOCK, holds_only
from bigmc.training.feature_names import feature_names
from bigmc.training.fit.choose_again import Choice, choose_again
from bigmc.training.fit.find_winner import FoundWinner, find_winner
from bigmc.training.fit.lone_labels import doubts, refuse_numbers
from bigmc.training.fit.models import FitModels
from bigmc.training.fit.more_rounds import with_more_rounds
from bigmc.training.fit.repeated_rows import repeated_rows
from bigmc.training.fit.request import FitRequest
from bigmc.training.fit.result import lacked_time, notes_on, repeated, result_of
from bigmc.training.fit.unseen_rows import UnseenRows
from bigmc.training.results import FitResult, Measured
from bigmc.training.search.best_model import check_max_features, check_ridge_memory, linear_winner
from bigmc.training.search.label_thresholds import Thresholds
from bigmc.training.search.limits import tidy_after
from bigmc.training.search.trials import SearchResult, Size
from bigmc.training.search.winner import Winner

ASKED, RESULT = "asked.json", "result.json"

HASHING = "hashing.json"
"""File of the hashing that the dataset was made with; it stays as long as that."""

_WRITTEN = (LOCK, "*.json", "*.model", "*.wip")
"""Names of what fits leave in their folder."""


class Fit:
    """One run of `bigmc fit` on a dataset."""

    def __init__(self, request: FitRequest) -> None:
        self._request, self._folder = request, request.folder
        self._models = FitModels(request)

    def run(self) -> FitResult:
        """Make the model; return the result."""
        target = self._request.target
        if not target.parent.is_dir():
            raise ModelError(f"there is no folder {target.parent}", "create it, or give another --to")
        disk.make_folder(self._folder)
        self._check()
        with exclusive(self._folder / LOCK, target=target):
            self._claim()
            made = self._finished()
            result = self._made() if made is None else repeated(made, self._request.limits.asked_seconds)
            if made is None:
                write_work_file(self._folder / RESULT, result)
            self._clear()
        return result

    def _finished(self) -> FitResult | None:
        """Return the result of an earlier run, unless there is none or it is to be replaced."""
        request, file = self._request, self._folder / RESULT
        is_own = _is_of_fit(request.target, request.data.identity)
        if request.target.exists() and not is_own and request.if_exists is IfExists.REFUSE:
            raise _taken(request.target)
        if not (file.exists() and is_own):
            return None
        made: FitResult = read_work_file(file, self._folder)
        if request.if_exists is IfExists.REPLACE and lacked_time(made, request.limits.asked_seconds):
            self._forget()
            self._claim()
            return None
        return made

    def _made(self) -> FitResult:
        """Go through all steps; each that a killed run finished is read from the folder."""
        request, models = self._request, self._models
        found = find_winner(request, models)
        tidy_after(request.data)
        unseen = self._unseen(found.searched)
        choice = self._choice(found, unseen)
        measured = self._measured(choice, unseen)
        winner, refits = choice.winner, request.refits and models.has_time
        # cross-validation has judged it on more rows than those of the test
        if unseen is not None and refits and not found.cross_validated:
            winner = unseen.calibrated(winner, models.tested(winner))
        model = models.whole(winner) if refits else models.tested(winner)
        self._save(model, found.searched, winner, "all" if refits else request.splits.train)
        notes = [*notes_on(model, winner, models.n_rows), *found.notes, *choice.notes, *doubts(request.train)]
        if models.has_time:  # it reads all rows once more
            notes += repeated_rows(request.train, request.test, request.limits.memory)
        result = result_of(model, request.target, winner, found, measured, notes)
        hurried = found.lacked_time or models.n_rows is not None or not models.has_time
        if hurried and math.isfinite(request.limits.asked_seconds):
            result["time_limit"] = request.limits.asked_seconds
        return result

    def _check(self) -> None:
        """Raise an error if the fit cannot end well."""
        request = self._request
        check_max_features(request.data, request.limits)
        refuse_numbers(request.train)
        if request.splits.thresholds is not Thresholds.SHARED and not request.data.has_sets:
            raise DataError(
                "each row has one label, so no label has a threshold",
                "leave --label-thresholds out, or give sets of labels (--label-separator)",
            )
        if request.test is not None:
            check_ridge_memory(request.data, request.limits)

    def _claim(self) -> None:
        """Record the request; raise an error if the folder has another one that may not be replaced."""
        request, splits = self._request, self._request.splits
        limits = {"memory": request.limits.memory, "max_features": request.limits.max_features}
        asked = {"dataset": request.data.identity, **splits._asdict(), **limits}
        if asked["thresholds"] == Thresholds.SHARED:  # a fit begun before this option existed resumes
            del asked["thresholds"]
        file = self._folder / ASKED
        if file.exists() and read_work_file(file, self._folder) != asked:
            if request.if_exists is IfExists.REFUSE:
                raise ModelError(
                    f"{self._folder} belongs to a fit with other data, memory limit or max_features",
                    "give another --to, or replace that fit with --overwrite",
                )
            self._forget()
        write_work_file(file, asked)

    def _forget(self) -> None:
        """Remove what an earlier fit left; a killed run leaves its request or result, and is repeated."""
        _refuse_others(self._folder, _WRITTEN)
        last = [self._folder / name for name in (RESULT, ASKED)]
        kept = {*last, self._folder / HASHING, self._folder / LOCK}
        for entry in [*({*self._folder.iterdir()} - kept), *last]:
            disk.clear(entry)

    def _clear(self) -> None:
        """Remove the models and checkpoints of the search, including those of killed runs."""
        for leftover in [*self._folder.glob("*.model"), *self._folder.glob("*.wip")]:
            disk.try_clear(leftover) if leftover.is_dir() else disk.unlink(leftover)

    def _unseen(self, searched: SearchResult) -> UnseenRows | None:
        """Return the test rows, if there are any."""
        request = self._request
        if request.test is None:
            return None
        others = request.train.n_samples - searched.n_rows
        return UnseenRows(request.test, request.splits.thresholds, request.limits, request.resources, others)

    def _choice(self, found: FoundWinner, unseen: UnseenRows | None) -> Choice:
        """Return the winner and the plain ridge model, compared again where there are rows for that."""
        first = found.searched.trials[0]
        by_duals = linear_winner(found.searched, self._request.data, self._request.limits).size is not None
        plain = Winner.of(first, Size.whole(first) if by_duals else None)
        if unseen is None or not unseen.judges:
            return Choice(found.winner, plain, [])
        winner, notes = with_more_rounds(found.winner, unseen, self._models)
        choice = choose_again(winner, plain, unseen, self._models)
        return choice._replace(notes=[*notes, *choice.notes])

    def _measured(self, choice: Choice, unseen: UnseenRows | None) -> Measured:
        """Return the figures on the test rows, for models not trained on them."""
        if unseen is None:
            return {"test": None}
        request, models, winner, plain = self._request, self._models, choice.winner, choice.plain
        figures = unseen.figures(winner, models.tested(winner))
        same = winner.is_trained_as(plain)
        by = request.splits.thresholds.figure if request.data.has_sets else "accuracy"
        shares = {}
        if same or models.has_time:
            ridge = figures
            if not same or winner.class_scales is not None:
                model = models.tested(winner) if same else models.beside(plain, winner.linear)
                ridge = unseen.figures(plain, model)
            shares["plain_ridge"] = ridge[by]
        if not request.data.has_sets:
            shares["largest_class"] = unseen.share_of(int(request.train.class_counts().argmax()))
        first = {"by": by, by: figures[by], "interval": wilson(figures[by], figures["n_samples"])}
        return {"test": {**first, **figures}, "baselines": shares}

    def _save(self, model: Model, searched: SearchResult, winner: Winner, split: str) -> None:
        data = self._request.data
        names = feature_names(data, model.used_features, self._request.limits.memory // 16)
        params = {
            **model.params,
            "learner": winner.kind,
            "dataset": data.identity,
            "split": split,
            "search": [{**trial.to_dict(), "seconds": 0.0} for trial in searched.trials],
            "sizes": [asdict(size) for size in searched.sizes],
        }
        if winner.candidate is not None and winner.candidate.weighting is not None:
            params["weighting"] = winner.candidate.weighting
        if winner.class_scales is not None:
            params["class_scales"] = winner.class_scales._asdict()
        completed = winner.completed(model)
        label = data.label_source  # a model trained on rows in memory lacks it
        replace(completed, params=params, names=names, label_source=label).save(self._request.target)


def refuse_other_file(target: Path) -> None:
    """Raise a `ModelError` if the target exists and is not the model of a fit, of whatever data."""
    if target.exists() and not _is_of_fit(target):
        raise _taken(target)


def forget_fit(target: Path, folder: Path, dataset: Path) -> None:
    """Remove what a fit of other data left beside its model, and the dataset that it made.

    `ModelError` if there is anything else in these folders.
    """
    with exclusive(folder / LOCK, target=target):
        _refuse_others(folder, _WRITTEN)
        _refuse_others(dataset, WRITTEN)
        remove_tree(folder)
        remove_tree(dataset)


def _is_of_fit(target: Path, dataset: str | None = None) -> bool:
    """Return whether a file is the model of a fit, of the dataset of this identity if it is given."""
    try:
        params = load_model(target).params if target.exists() else {}
    except ModelError:
        return False
    return "search" in params and dataset in (None, params.get("dataset"))


def _refuse_others(folder: Path, own: Iterable[str]) -> None:
    """Raise a `ModelError` if a folder that is to be replaced has what bigmc did not write."""
    if not holds_only(folder, own):
        raise ModelError(f"{folder} has files that are not of bigmc", "move them, or give another --to")


def _taken(target: Path) -> ModelError:
    return ModelError(
        f"{target} exists and is not the result of the same command",
        "give another --to, or replace it with --overwrite",
    )
