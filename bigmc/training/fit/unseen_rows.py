"""The test rows of a fit, which no model learns from: some choose between trained models, the others test.

A search sees a sample of the rows. With many more rows other settings may be better: idf, for one, raises the
weights of rare words, which are known only then. `bigmc.training.fit.choose_again` compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np

from bigmc.engine import Resources
from bigmc.inference.evaluation.evaluate import evaluate
from bigmc.inference.evaluation.labelled import LabelledDataset, UndrawnRows
from bigmc.model import Model, SumModel
from bigmc.model.calibration import MOST_ROWS
from bigmc.options.inference import EvaluateOptions
from bigmc.store.dataset import Dataset
from bigmc.store.sample import draw_rows
from bigmc.training.boosting.sums import choose_weights
from bigmc.training.search.label_thresholds import Thresholds
from bigmc.training.search.limits import SCORE_ENTRIES, Limits
from bigmc.training.search.trials import Truth, Verdict
from bigmc.training.search.validation import SCORE_SHARE
from bigmc.training.search.winner import Winner

JUDGING_SHARE, FEWEST_JUDGES = 0.25, 5_000
"""Maximum share of the test rows that choose between models, and their minimum: on 5,000 rows the accuracies
of two models differ by chance by about half a point."""
_CALIBRATION_SEED, _JUDGING_SEED = 0xCA11, 0x1D6E
_DRAWN_SHARE = 0.125
"""Maximum share of the memory limit of rows that are drawn."""


class JudgedWinner(NamedTuple):
    """A trained learner, and its quality on the rows that choose."""

    winner: Winner
    verdict: Verdict


class UnseenRows:
    """The test rows of a fit.

    Parameters
    ----------
    thresholds : Thresholds
        Kind of thresholds of models of label sets.
    n_unsearched : int
        Training rows that the search did not see.

    Attributes
    ----------
    judges : bool
        Whether some of them choose between models, and the others test.
    n_judges : int
        About how many choose.
    """

    def __init__(
        self,
        test: Dataset,
        thresholds: Thresholds,
        limits: Limits,
        resources: Resources,
        n_unsearched: int,
    ) -> None:
        self._test, self._thresholds, self._resources = test, thresholds, resources
        entries = min(SCORE_ENTRIES, limits.memory // SCORE_SHARE)
        self._n_rows = max(min(MOST_ROWS, entries // max(test.n_classes, 1)), 1)
        self._most_bytes = _DRAWN_SHARE * limits.memory
        self._judging = min(JUDGING_SHARE, self._enough(test))
        self.n_judges = int(self._judging * test.n_samples)
        self.judges = n_unsearched > 0 and self.n_judges >= FEWEST_JUDGES

    def judge(self, winner: Winner, model: Model) -> Verdict:
        """Return the quality of a trained winner on the rows that choose."""
        return self._verdict(winner, model, self._judging, _JUDGING_SEED)

    def weighed(self, winner: Winner, model: Model) -> JudgedWinner:
        """Return a trained winner and its quality; a sum with the weights that suit the rows that choose.

        Of a sum whose linear part has no weight, the boosted one is left.
        """
        if isinstance(model, SumModel):
            drawn = self._drawn(winner, self._judging, _JUDGING_SEED)
            weights = choose_weights([part.dataset_scores(drawn) for part in model.parts], drawn.labels())
            if all(weights):
                winner = replace(winner, part_weights=weights)
                model = SumModel.of(model.parts, np.array(weights))
            elif weights[-1]:
                winner, model = winner.parts[-1], model.parts[-1]
        return JudgedWinner(winner, self.judge(winner, model))

    def calibrated(self, winner: Winner, model: Model) -> Winner:
        """Return a winner calibrated on as many rows as are useful, after they have been used for testing."""
        share = self._enough(winner.samples(self._test))
        return winner.judged(self._verdict(winner, model, share, _CALIBRATION_SEED))

    def figures(self, winner: Winner, model: Model) -> Mapping[str, Any]:
        """Return the figures of `evaluate` for a trained winner, on the rows that test."""
        test = winner.samples(self._test)
        rows = UndrawnRows(test, self._judging, _JUDGING_SEED) if self.judges else LabelledDataset(test)
        figures = evaluate(winner.completed(model), rows, EvaluateOptions(), self._resources)
        return cast(Mapping[str, Any], figures)

    def share_of(self, code: int) -> float:
        """Return the share of the rows that are of a class."""
        return float(self._test.class_counts()[code] / self._test.n_samples)

    def _enough(self, test: Dataset) -> float:
        """Return the share of rows that are enough to judge a model, and fit into memory."""
        by_bytes = self._most_bytes / max(test.decoded_bytes, 1)
        return min(1.0, self._n_rows / test.n_samples, by_bytes)

    def _verdict(self, winner: Winner, model: Model, share: float, seed: int) -> Verdict:
        drawn = self._drawn(winner, share, seed)
        return Truth.of(drawn, self._thresholds).judge(winner.scaled(model).dataset_scores(drawn))

    def _drawn(self, winner: Winner, share: float, seed: int) -> Dataset:
        return draw_rows(winner.samples(self._test), share, seed, self._resources.engine)[0]
