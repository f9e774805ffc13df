"""The search of a fit: boosting, linear models, their sum, and which of them wins on held-out rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from bigmc.model.calibration import Calibration
from bigmc.store.files.work_file import made_once
from bigmc.training.boosting.choose import choose_boosting, share_for_boosting
from bigmc.training.boosting.rounds import Boosting
from bigmc.training.boosting.sums import Sum, add_up
from bigmc.training.fit.models import FitModels
from bigmc.training.fit.request import FitRequest
from bigmc.training.search.best_model import linear_winner, with_class_scales
from bigmc.training.search.class_scales import ClassScales
from bigmc.training.search.limits import tidy_after
from bigmc.training.search.search import Search
from bigmc.training.search.trials import SearchResult, Size, better
from bigmc.training.search.winner import Winner

SCALES, SUM = "scales.json", "sum.json"


class FoundWinner(NamedTuple):
    """The winner of a search, and what led to it.

    Attributes
    ----------
    searched : SearchResult
        The trials of linear models.
    rivals : mapping of str to float
        Quality of each kind of learner; empty without boosting.
    lacked_time : bool
        Whether more time might have found a better one.
    """

    searched: SearchResult
    winner: Winner
    rivals: Mapping[str, float]
    lacked_time: bool
    notes: list[str]

    @property
    def cross_validated(self) -> bool:
        """Whether every row was held out once."""
        return self.searched.n_held_out == self.searched.n_rows


def find_winner(request: FitRequest, models: FitModels) -> FoundWinner:
    """Search for the best learner; `models` keeps the dual variables of the best linear one to start from."""
    search = Search(
        request.train,
        request.engine,
        request.limits._replace(trainings=1 + (request.test is not None) + request.refits),
        request.folder,
        request.progress,
        request.splits.thresholds,
    )
    tidy_after(request.data)  # frees what drawing the rows needed
    boosts = may_boost(request)
    boosted = choose_boosting(search, request.data, request.folder) if boosts else None
    notes = _without_boosting(search) if boosts and boosted is None else []
    searched = search.run(None if boosted is None else boosted.trial.quality)
    summed = None if boosted is None else add_up(search, searched.best, boosted, request.folder / SUM)
    searched = searched._replace(sizes=search.sizes(searched.best.candidate))
    if searched.sizes:
        models.duals_of_search = search.validation.duals(searched.best.candidate)
        models.settings_of_search = searched.best.candidate
    winner, rivals = choose_winner(request, searched, boosted, summed)
    winner = _class_scaled(request, winner, search, searched)
    return FoundWinner(searched, winner, rivals, search.lacked_time, notes)


def may_boost(request: FitRequest) -> bool:
    """Return whether boosting is tried: not with a maximum number of features, nor on too few of the rows."""
    limits = request.limits
    return limits.max_features is None and share_for_boosting(request.data, limits.memory) > 0


def choose_winner(
    request: FitRequest, searched: SearchResult, boosted: Boosting | None, summed: Sum | None
) -> tuple[Winner, dict[str, float]]:
    """Return the best of the linear model of a search, boosting, and their sum, and the quality of each."""
    linear = linear_winner(searched, request.data, request.limits)
    if boosted is None:
        return linear, {}
    whole, n = searched.best, searched.n_held_out
    best_linear = whole if linear.size is None else better(whole, linear.size.trial(whole), n)
    rivals = {"sparse": best_linear.quality, "boost": boosted.trial.quality}
    of_trees = Winner("boost", None, boosted.trial.calibration, boosting=boosted.options)
    alone = linear if better(best_linear, boosted.trial, n) is best_linear else of_trees
    if summed is None:
        return alone, rivals
    rivals["sum"] = summed.trial.quality
    outdone = best_linear is not whole and better(best_linear, summed.trial, n) is best_linear
    if outdone or not summed.is_worth_it:
        return alone, rivals
    added = linear if linear.size is None else replace(linear, size=Size.whole(whole))
    both, calibration = (added, of_trees), summed.trial.calibration
    return Winner("sum", None, calibration, parts=both, part_weights=summed.weights), rivals


def _class_scaled(request: FitRequest, winner: Winner, search: Search, searched: SearchResult) -> Winner:
    """Return the winner with the scales of its classes, found before if the run was killed since."""

    def found() -> Mapping[str, Any]:
        chosen = with_class_scales(winner, search, searched.best.seconds)
        return {"scales": chosen.class_scales, "calibration": chosen.calibration.to_dict()}

    fields = made_once(request.folder / SCALES, found, request.folder)
    if fields["scales"] is None:
        return winner
    factors, offsets = fields["scales"]
    scales = ClassScales(tuple(factors), tuple(offsets))
    return replace(winner, class_scales=scales, calibration=Calibration(**fields["calibration"]))


def _without_boosting(search: Search) -> list[str]:
    """Return why boosting was given up."""
    if search.lacked_time:
        return ["there was no time for boosting"]
    return ["boosting was given up: few rounds brought nothing on held-out rows that a linear model lacked"]
