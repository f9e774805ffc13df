"""The saved state of a run of the boosted learner, from which it resumes as if it had not stopped."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.solvers.boosting.learners import Learners
from bigmc.solvers.loop import Packed


class Stages:
    """The weights after every round, over one table of all learners that ever had any.

    Stage ``s`` has the entries ``ends[s - 1]:ends[s]`` of `members`, the learners in the order of the
    descent, and of `weights`. A sign of -1 means the opposite of the learner.
    """

    def __init__(self, depth: int) -> None:
        self.learners = Learners.empty(depth)
        self.classes = np.empty(0, np.int64)
        self.signs = np.empty(0, np.int8)
        self.ends: list[int] = []
        self.members = np.empty(0, np.int64)
        self.weights = np.empty(0)
        self._known: dict[tuple[int, int, bytes], int] = {}

    def __len__(self) -> int:
        return len(self.ends)

    def stage(self, number: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return members and weights of a stage."""
        start = self.ends[number - 1] if number else 0
        entries = slice(start, self.ends[number])
        return self.members[entries], self.weights[entries]

    def places(
        self, learners: Learners, classes: NDArray[np.int64], signs: NDArray[np.int8]
    ) -> NDArray[np.int64]:
        """Return the places of learners in the table, to which those are added that it does not have."""
        places = np.empty(len(classes), np.int64)
        new: list[int] = []
        for k, name in enumerate(zip(classes.tolist(), signs.tolist(), learners.keys(), strict=True)):
            if name not in self._known:
                self._known[name] = len(self._known)
                new.append(k)
            places[k] = self._known[name]
        if new:
            self.learners = Learners.joined([self.learners, learners.take(new)])
            self.classes = np.concatenate([self.classes, classes[new]])
            self.signs = np.concatenate([self.signs, signs[new]])
        return places

    def append(self, members: NDArray[np.int64], weights: NDArray[np.float64]) -> None:
        """Add a stage: places of learners, and their weights."""
        self.members = np.concatenate([self.members, members])
        self.weights = np.concatenate([self.weights, weights])
        self.ends.append(len(self.members))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return everything as arrays."""
        return {
            **self.learners._asdict(),
            "classes": self.classes,
            "signs": self.signs,
            "ends": np.array(self.ends, np.int64),
            "members": self.members,
            "weights": self.weights,
        }

    @classmethod
    def of_arrays(cls, depth: int, arrays: dict[str, NDArray[Any]]) -> Stages:
        """Return the stages of `arrays`."""
        stages = cls(depth)
        stages.learners = Learners(*(arrays[name] for name in Learners._fields))
        stages.classes, stages.signs = arrays["classes"], arrays["signs"]
        stages.ends = arrays["ends"].tolist()
        stages.members, stages.weights = arrays["members"], arrays["weights"]
        names = zip(stages.classes.tolist(), stages.signs.tolist(), stages.learners.keys(), strict=True)
        stages._known = {name: k for k, name in enumerate(names)}
        return stages


@dataclass
class State:
    """State between two rounds; the dual weights are rebuilt from the last stage.

    `lower` is the best lower bound so far, 0 without any; `n_sweeps` counts the sweeps of one class.
    """

    stages: Stages
    lower: float = 0.0
    n_sweeps: int = 0
    n_passes: int = 0
    bytes_read: int = 0
    history: list[dict[str, float]] = field(default_factory=list)

    def pack(self) -> Packed:
        """Return the state as a checkpoint holds it."""
        meta = {name: value for name, value in vars(self).items() if name != "stages"}
        return Packed(meta, self.stages.arrays())

    @classmethod
    def unpack(cls, saved: Packed, depth: int) -> State:
        """Return the state that `pack` returned."""
        return cls(Stages.of_arrays(depth, saved.arrays), **saved.meta)
