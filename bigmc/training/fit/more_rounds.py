"""Choose the rounds of boosting again, and the weights of a sum, with models trained on all rows.

A search sees a sample of the rows, on which further rounds soon gain nothing. With all rows they still may.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from bigmc.training.boosting.rounds import MORE_ROUNDS, ROUNDS
from bigmc.training.fit.models import FitModels
from bigmc.training.fit.unseen_rows import UnseenRows
from bigmc.training.search.winner import Winner

GAIN = 0.0025
"""Relative decrease of the log loss for which about twice the rounds on all rows are taken."""
LEAST_TIME = 3.0
"""Ratio of the time that is left to that which longer trainings should take, from which on they begin, since
trainings with a deadline learn from some rows first."""


class Rounds(NamedTuple):
    """The winner of a search with as many rounds as suit all rows, and what to say of it."""

    winner: Winner
    notes: list[str]


def with_more_rounds(winner: Winner, unseen: UnseenRows, models: FitModels) -> Rounds:
    """Return the winner with more rounds of boosting, as long as those gain on the rows that choose.

    Training continues with a model that is trained on all rows. Averages of models, and models that had time
    for some of the rows only, keep their rounds.
    """
    boosting = winner.boosting_options
    if boosting is None or boosting.n_models > 1:
        return Rounds(winner, [])
    began = time.monotonic()
    first = best = unseen.weighed(winner, models.tested(winner))
    of_a_round, n_before = (time.monotonic() - began) / boosting.n_rounds, boosting.n_rounds
    for n_rounds in (n for n in (*ROUNDS, *MORE_ROUNDS) if n > boosting.n_rounds):
        # this training continues; that of the rows of the test as well begins anew
        expected = of_a_round * (n_rounds - n_before + n_rounds)
        if models.n_rows is not None or not models.has_time_for(LEAST_TIME * expected):
            break
        longer = best.winner.with_rounds(n_rounds)
        model = models.tested_on_all(longer)
        if model is None:
            break
        judged = unseen.weighed(longer, model)
        if judged.verdict.log_loss >= (1.0 - GAIN) * best.verdict.log_loss:
            break
        best, n_before = judged, n_rounds
    if best is first:
        return Rounds(best.winner, [])
    losses = f"{best.verdict.log_loss:.3f} instead of {first.verdict.log_loss:.3f}"
    note = (
        f"trained on all rows, boosting has {n_before} rounds instead of {boosting.n_rounds}, which the "
        f"search chose: a log loss of {losses}, on rows that are not among those of the test"
    )
    return Rounds(best.winner, [note])
