"""Trainings that end in time: boosting without time, or memory, for all rows learns from some of them.

A part of the rounds makes a model far from the one that the search judged and calibrated; all rounds on a
part of the rows make nearly the same one. So it first learns from few rows, whose time
tells how many more rows there is time for.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from bigmc.engine import Resources
from bigmc.learners import learner_of
from bigmc.model import Model
from bigmc.store.dataset import Dataset
from bigmc.store.files.checkpoint import LITTLE_TIME, FileCheckpoint
from bigmc.store.sample import draw_rows
from bigmc.training.boosting.choose import DRAWN_SHARE, share_for_boosting
from bigmc.training.search.limits import FEWEST_SECONDS
from bigmc.training.search.winner import Winner

FEW_ROWS = 20_000
"""Rows of the first training, where there are at least three times as many."""
_PLANNED = 0.8
"""Share of the remaining time that a larger training is planned to take."""
_SEED = 0x71ED


def train_in_time(
    winner: Winner, samples: Dataset, resources: Resources, work: Path, start: Model | None = None
) -> Model:
    """Train a winner on samples, or on as many of them as it has time for.

    Parameters
    ----------
    winner : Winner
    samples : Dataset
    resources : Resources
        At its end training stops with the best model so far. A training on few rows takes no longer than
        trials of the search did, and is not stopped; one on all rows, if these are few, has `FEWEST_SECONDS`:
        after one pass a linear model, too, is far from the one that was judged and calibrated.
    work : Path
        Folder for the checkpoint of a training on all samples, from which it continues. One on some samples
        begins anew, since the time that is left then decides how many.
    start : Model, optional
        A similar model to start from.

    Returns
    -------
    Model
        If it was trained on fewer rows, its `params` have their number as ``n_rows``.
    """
    rows, boosting = winner.samples(samples), winner.boosting
    most = DRAWN_SHARE * resources.memory_limit / max(rows.decoded_bytes, 1)
    few = min(FEW_ROWS / rows.n_samples, most)
    fitting = (share_for_boosting(rows, resources.memory_limit) if boosting else 0.0) or 1.0
    if fitting == 1.0 and (math.isinf(resources.ends) or (boosting is None and few <= 1 / 3)):
        return _trained(winner, rows, resources, work, start)
    if fitting < 1.0:
        resources = replace(resources, memory_limit=int((1.0 - DRAWN_SHARE) * resources.memory_limit))
    if math.isinf(resources.ends):
        return _on_some(winner, draw_rows(rows, min(fitting, most), _SEED, resources.engine)[0], resources)
    began = time.monotonic()
    if boosting is None or boosting.n_models > 1 or few > 1 / 3:
        ends = max(resources.ends, began + FEWEST_SECONDS)
        return _trained(winner, rows, replace(resources, ends=ends), work, start)
    drawn, _ = draw_rows(rows, few, _SEED, resources.engine)
    if np.count_nonzero(drawn.class_counts()) < 2 and fitting == 1.0:  # one class teaches nothing
        return _trained(winner, rows, resources, work, start)
    model = _on_some(winner, drawn, replace(resources, ends=math.inf))
    now = time.monotonic()
    share = min(_PLANNED * few * max(resources.ends - now, 0.0) / max(now - began, 1e-9), 1.0)
    if share == fitting == 1.0:
        return _trained(winner, rows, resources, work, start)
    share = min(share, fitting, most)
    if share < 2 * few:
        return model
    drawn, _ = draw_rows(rows, share, _SEED, resources.engine)
    return _on_some(winner, drawn, resources)


def _on_some(winner: Winner, drawn: Dataset, resources: Resources) -> Model:
    """Train on some of the rows."""
    model = _trained(winner, drawn, resources, None, None)
    return replace(model, params={**model.params, "n_rows": drawn.n_samples})


def _trained(
    winner: Winner, rows: Dataset, resources: Resources, work: Path | None, start: Model | None
) -> Model:
    checkpoint = None if work is None else FileCheckpoint(work, share_of_time=LITTLE_TIME)
    learner = learner_of(winner.options(rows))
    return learner.train(rows, resources, checkpoint=checkpoint, scratch=work, start=start).model
