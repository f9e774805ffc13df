"""Choose again between the winner of a search and the plain ridge model, both trained on all rows.

A search sees a sample of the rows, and settings that are best there may not be with many more. On 1.9 million
texts 35.7 % of the unseen rows were right with the settings that 40,000 of them chose, and 36.6 % with the
plain model; on 3.6 million words 87.5 and 87.8 %. Searching on 137,000 rows chose no better. The plain model
is trained for comparison anyway.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from bigmc.training.fit.models import FitModels
from bigmc.training.fit.unseen_rows import UnseenRows
from bigmc.training.search.trials import Verdict, better
from bigmc.training.search.winner import Winner


class Choice(NamedTuple):
    """The better learner and the plain ridge model, both calibrated on unseen rows, and what to say of it."""

    winner: Winner
    plain: Winner
    notes: list[str]


def choose_again(winner: Winner, plain: Winner, unseen: UnseenRows, models: FitModels) -> Choice:
    """Return the better of the winner of a search and the plain ridge model, if there is time for the latter.

    If the plain model is better, and the search chose another ridge for other weights of the entries, it
    is tried with that ridge too: of the two settings only one may depend on the number of rows.
    """
    searched = unseen.judge(winner, models.tested(winner))
    winner = winner.judged(searched)
    if winner.is_trained_as(plain) or not models.has_time:
        return Choice(winner, plain, [])
    best = unseen.judge(plain, models.beside(plain, winner.linear))
    plain = plain.judged(best)
    if better(searched, best, unseen.n_judges) is searched:
        return Choice(winner, plain, [])
    chosen, crossed = plain, _crossed(plain, winner)
    if crossed is not None and models.has_time:
        verdict = unseen.judge(crossed, models.beside(crossed, winner.linear))
        if better(best, verdict, unseen.n_judges) is verdict:
            chosen, best = crossed.judged(verdict), verdict
    return Choice(chosen, plain, [_said(winner, searched, chosen, best)])


def _crossed(plain: Winner, winner: Winner) -> Winner | None:
    """Return the plain model with the ridge that the search chose; None if that is nothing new."""
    searched = winner.linear.candidate
    if plain.candidate is None or searched is None or not searched.is_ridge_hinge:
        return None
    crossed = replace(plain.candidate, ridge=searched.ridge)
    return None if crossed in (plain.candidate, searched) else replace(plain, candidate=crossed)


def _said(winner: Winner, searched: Verdict, chosen: Winner, best: Verdict) -> str:
    return (
        f"trained on all rows, {chosen.settings} is better than the winner of the search, {winner.settings}: "
        f"{best.quality:.3f} and a log loss of {best.log_loss:.3f} instead of {searched.quality:.3f} and "
        f"{searched.log_loss:.3f}, on rows that are not among those of the test"
    )
