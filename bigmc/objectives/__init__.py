"""Losses and penalties, each one small object."""

from bigmc.objectives.composite import Curvature, Objective, objective
from bigmc.objectives.losses import LOSSES, Loss
from bigmc.objectives.penalties import PENALTIES, Penalty

__all__ = ["LOSSES", "PENALTIES", "Curvature", "Loss", "Objective", "Penalty", "objective"]
