"""Find the best linear model of samples in memory: search, choose a size, train on all rows."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral
from typing import Any

from bigmc.budget import MemoryLimitError, format_bytes
from bigmc.engine import Engine, Resources, ThreadEngine
from bigmc.errors import DataError
from bigmc.learners import learner_of
from bigmc.learners.sparse import SparseLearner
from bigmc.model import Model
from bigmc.model.fit_calibration import fit_shares
from bigmc.options.learners import SparseOptions
from bigmc.solvers.loop import RunContext
from bigmc.solvers.sparse import DualDescent, check_memory
from bigmc.store.dataset import Dataset
from bigmc.training.search.class_scales import choose_class_scales
from bigmc.training.search.limits import Limits
from bigmc.training.search.ridges import Ridges
from bigmc.training.search.search import Search
from bigmc.training.search.sizes import smallest_good, train_with_size
from bigmc.training.search.trials import SearchResult, first_candidate, weighted
from bigmc.training.search.validation import SCALED_FOLDS
from bigmc.training.search.winner import Winner


def check_max_features(data: Dataset, limits: Limits) -> None:
    """Raise `DataError` if `max_features` is 0, `MemoryLimitError` if choosing features needs more memory."""
    asked: Any = limits.max_features
    if asked is None:
        return
    if not isinstance(asked, Integral) or int(asked) < 1:
        raise DataError(f"max_features is {asked!r}", "give a whole number of 1 or more")
    needed = DualDescent.memory(data)
    if needed > limits.memory:
        raise MemoryLimitError(
            f"choosing features needs all rows in memory: {format_bytes(needed)}",
            f"give --memory {format_bytes(needed)} or more, or leave --max-features out",
        )


def linear_winner(searched: SearchResult, data: Dataset, limits: Limits) -> Winner:
    """Return the best linear learner of a search, with the fewest features without loss of accuracy."""
    fits = DualDescent.memory(data) <= limits.memory
    if not (searched.sizes and fits):
        return Winner.of(searched.best, None, limits.max_features)
    size = smallest_good(searched.sizes, limits.max_features, searched.n_held_out)
    return Winner.of(searched.best, size, limits.max_features)


def with_class_scales(winner: Winner, search: Search, trial_seconds: float) -> Winner:
    """Return a winner with a factor and an offset for each class, if rows held out gain by them.

    Only ridge models of single labels have them, and only if there is time for the trainings. Where groups
    are held out, the classes are not as frequent among these rows as among others, and offsets would adapt
    to that: of lines of code by package, in files that were held out, 1 of 100 fewer were right with them.
    """
    validation, candidate, size = search.validation, winner.candidate, winner.size
    if (
        winner.kind != SparseOptions.learner
        or size is None
        or candidate is None
        or validation.sample.has_sets
        or validation.has_groups
    ):
        return winner
    if not search.has_time(SCALED_FOLDS * trial_seconds):
        return winner
    scores, codes = validation.scores_of_size(candidate, size)
    scales = choose_class_scales(scores, codes, winner.calibration)
    if scales is None:
        return winner
    return replace(winner, class_scales=scales, calibration=fit_shares(scales(scores), codes))


def check_ridge_memory(samples: Dataset, limits: Limits) -> None:
    """Raise `MemoryLimitError` if memory is too small for the plain ridge model, the baseline of every fit.

    It names the least limit that works, for rows in memory or for chunks of them.

    Parameters
    ----------
    samples : Dataset
        All training samples.
    """
    in_memory = Ridges.memory(samples)
    if in_memory <= limits.memory:
        return
    candidate = first_candidate(samples)
    learner = SparseLearner(candidate.options(samples.weight_sum))
    rows, context = weighted(samples, candidate), RunContext(ThreadEngine())
    try:
        check_memory(learner.solver_run(rows, None, limits.memory, context))
    except MemoryLimitError as error:
        try:
            check_memory(learner.solver_run(rows, None, in_memory, context))
        except MemoryLimitError:
            raise MemoryLimitError(
                f"training with all rows in memory needs {format_bytes(in_memory)}",
                f"give --memory {-(-in_memory // 10**6)}MB or more",
            ) from None
        raise error from None  # blocks or chunks of the rows work with less than all at once


def best_model(data: Dataset, limits: Limits, engine: Engine) -> tuple[SearchResult, Model]:
    """Search, and train the best settings on all samples; the calibration is that of the search.

    `DataError`, `MemoryLimitError` as for `check_max_features`, or if the memory limit is too small.
    """
    check_max_features(data, limits)
    engine = data.seen_by(engine)
    search = Search(data, engine, limits)
    searched = search.run()
    searched = searched._replace(sizes=search.sizes(searched.best.candidate))
    winner = with_class_scales(linear_winner(searched, data, limits), search, searched.best.seconds)
    if winner.size is None:
        samples = winner.samples(data)
        learner = learner_of(winner.options(samples))
        return searched, winner.completed(learner.train(samples, Resources(engine, limits.memory)).model)
    start = search.validation.duals(searched.best.candidate)
    return searched, winner.completed(train_with_size(data, winner, engine, start).model)
