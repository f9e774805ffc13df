"""The request of a fit: data, target, splits and limits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from bigmc.engine import Engine, Resources
from bigmc.progress import ProgressCallback, silent
from bigmc.store.dataset import Dataset
from bigmc.store.files.outputs import IfExists
from bigmc.training.search.label_thresholds import Thresholds
from bigmc.training.search.limits import Limits


class Splits(NamedTuple):
    """The splits of a fit, and what they are for.

    Attributes
    ----------
    train, test : str
        Splits of the dataset; without rows in `test` nothing is measured.
    refit : bool
        Whether the model is trained on the rows of `test` too, once these have measured it.
    thresholds : Thresholds
        Kind of thresholds of models of label sets.
    """

    train: str
    test: str
    refit: bool
    thresholds: Thresholds = Thresholds.SHARED


@dataclass(frozen=True)
class FitRequest:
    """The request of a fit, and its resources.

    Attributes
    ----------
    data : Dataset
        On disk.
    target : Path
        The model to write.
    if_exists : IfExists
        What to do with another file at the target, and with another fit.
    """

    data: Dataset
    target: Path
    splits: Splits
    limits: Limits
    engine: Engine
    progress: ProgressCallback = silent
    if_exists: IfExists = IfExists.REFUSE

    @property
    def folder(self) -> Path:
        """The folder of the fit's progress."""
        return self.target.with_name(self.target.name + ".fit")

    @cached_property
    def train(self) -> Dataset:
        """The rows to train on, without those that test."""
        return self.data[self.splits.train]

    @cached_property
    def test(self) -> Dataset | None:
        """The rows that test, if there are any."""
        return self.data[self.splits.test] if self.data.splits.get(self.splits.test) else None

    @property
    def resources(self) -> Resources:
        """Engine, memory and progress of its steps."""
        return Resources(self.engine, self.limits.memory, self.progress)

    @property
    def refits(self) -> bool:
        """Whether the model is trained on the test rows too, after these have measured it."""
        return self.test is not None and self.splits.refit
