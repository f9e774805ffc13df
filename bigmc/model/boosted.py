"""The boosted model: weighted trees of every class, and their weights after every round."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from bigmc.errors import ModelError
from bigmc.model.base import Model
from bigmc.model.tree_scoring import BoostedScorer, Trees
from bigmc.store.files.npy import ArraySize

NODE_COST, EDGE_COST = 32, 32
"""Bytes of a node and of an edge besides their arrays, while the copies for scoring are made."""


@dataclass(frozen=True, eq=False)
class BoostedModel(Model):
    """A sum of weighted weak learners per class; see `Model` for the fields all kinds have.

    Learners compare the stored values, before any scaling of rows and columns. A node sends a sample
    above if its value is larger than the node's edge, which is the same as that its code is larger than
    the node's cut.

    Attributes
    ----------
    trees : Trees
        All learners that ever had weight, and the edges they cut at.
    stage_ends : int64 array of shape (n_stages,)
        Stage ``s`` has the entries ``stage_ends[s - 1]:stage_ends[s]`` of `members` and `weights`.
    members : int32 array
        Learner of each entry.
    stage : int
        The stage used for scoring: that with the fewest errors on samples held out, or the last one.
    C : float
        Weight of the loss in training, given or chosen.
    """

    takes_missing: ClassVar[bool] = True

    trees: Trees
    stage_ends: NDArray[np.int64]
    members: NDArray[np.int32]
    weights: NDArray[np.float64]
    stage: int
    C: float

    def __post_init__(self) -> None:
        n_stages, n_learners = len(self.stage_ends), len(self.trees.learner_class)
        if not 0 <= self.stage < n_stages or np.any(np.diff(self.stage_ends) < 0):
            raise ModelError("the stages of the model do not fit together")
        if len(self.members) != len(self.weights) or self.stage_ends[-1] != len(self.members):
            raise ModelError("the weights of the model do not fit its stages")
        if len(self.members) and not 0 <= self.members.min() <= self.members.max() < n_learners:
            raise ModelError("the stages use learners that the model does not have")
        if not (np.isfinite(self.weights).all() and (self.weights >= 0).all()):
            raise ModelError("the weights of the model are not finite or negative")
        self.trees.check(self.n_classes, self.n_features)
        super().__post_init__()

    @property
    def n_stages(self) -> int:
        """Rounds, and the empty model before the first."""
        return len(self.stage_ends)

    def stage_weights(self, stage: int) -> NDArray[np.float64]:
        """Return the weight of every learner after a round."""
        entries = slice(self.stage_ends[stage - 1] if stage else 0, self.stage_ends[stage])
        weights = np.zeros(len(self.trees.learner_class))
        weights[self.members[entries]] = self.weights[entries]
        return weights

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the learners and the stages."""
        return {
            **self.trees._asdict(),
            "stage_ends": self.stage_ends,
            "members": self.members,
            "weights": self.weights,
            "stage": np.array([self.stage], np.int64),
            "C": np.array([self.C]),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], **record: Any) -> Self:
        """Return the model of `to_arrays` and the fields that all kinds have."""
        trees = Trees(*(arrays[name] for name in Trees._fields))
        ends, members, weights = (arrays[name] for name in ("stage_ends", "members", "weights"))
        stage, C = int(arrays["stage"][0]), float(arrays["C"][0])
        return cls(**record, trees=trees, stage_ends=ends, members=members, weights=weights, stage=stage, C=C)

    @classmethod
    def bytes_of(cls, sizes: Mapping[str, ArraySize], n_features: int) -> int:
        """Return the bytes of the arrays, of the copies used for scoring, and of making these."""
        nodes, edges = math.prod(sizes["node_feature"].shape), math.prod(sizes["edges"].shape)
        copies = NODE_COST * nodes + EDGE_COST * edges
        return super().bytes_of(sizes, n_features) + copies

    @property
    def used_features(self) -> NDArray[np.int64]:
        """Features that a learner with weight splits on, increasing."""
        asked = self.trees.node_feature[self.stage_weights(self.stage) > 0]
        return self.trees.features[np.unique(asked[asked >= 0])]

    def class_weights(self, c: int) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Return features and their weights for class number `c`.

        A learner's weight is divided among its nodes. It counts as positive if the class gains above
        the node's cut, so the sign of a word's weight says whether it speaks for the class.
        """
        return self._shares(c, self.trees.directions())

    def importances(self, c: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return features and the sum of the weights of the learners of class `c` that split on them."""
        return self._shares(c, np.ones(()))

    def _shares(self, c: int, signs: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return features and their weights for a class, each node's share times its sign."""
        trees, used = self.trees, self.used_features
        weights = np.where(trees.learner_class == c, self.stage_weights(self.stage), 0.0)
        asks = trees.node_feature >= 0
        shares = asks * (weights / np.maximum(asks.sum(axis=1), 1))[:, np.newaxis]
        shares = shares * signs
        total: NDArray[np.float64] = np.bincount(
            trees.node_feature[asks], shares[asks], minlength=len(trees.features)
        ).astype(np.float64)
        return used, total[np.searchsorted(trees.features, used)]

    def make_scorer(self) -> BoostedScorer:
        """Return the scorer of the trees."""
        return self.stage_scorer(self.stage)

    def stage_scorer(self, stage: int) -> BoostedScorer:
        """Return the scorer of the model as it was after a round."""
        return BoostedScorer(
            self.trees, self.stage_weights(stage), self.n_classes, self.n_features, self.weighting
        )

    def class_figures(self, c: int) -> dict[str, float]:
        """Return the sum of the constant learners of class number `c`."""
        trees, weights = self.trees, self.stage_weights(self.stage)
        constant = (trees.learner_class == c) & (trees.node_feature < 0).all(axis=1)
        return {"intercept": float((weights * trees.leaf[:, 0])[constant].sum())}

    def figures(self) -> dict[str, float]:
        """Return the number of learners with weight and of rounds, the depth of the learners, and C."""
        depth = (self.trees.node_feature.shape[1] + 1).bit_length() - 1
        n_learners = int(np.count_nonzero(self.stage_weights(self.stage)))
        return {
            "n_learners": n_learners,
            "n_stages": self.n_stages - 1,
            "stage": self.stage,
            "depth": depth,
            "C": self.C,
        }

    def certificate_notes(self) -> tuple[str, ...]:
        """Return notes on the bounds over the known trees, and on the scoring round if it is not the last."""
        last, notes = self.n_stages - 1, []
        gap = self.history[-1].get("restricted_gap") if self.history else None
        if gap is not None:
            notes.append(
                "Over the trees found there are bounds: other weights for those of the last round could "
                f"lower the value by {100 * gap:.3g} % at most. Other trees may do better."
            )
        if self.stage != last:
            notes.append(
                f"The certificate is of round {last}, the last one; the model answers as it did after round "
                f"{self.stage}, which erred least on the samples held out, and which nothing is certified of."
            )
        return tuple(notes)
