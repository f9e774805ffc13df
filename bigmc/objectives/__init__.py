"""Losses and penalties, each one small object."""

from bigmc.objectives.composite import Curvature, Objective, objective
from bigmc.objectives.losses import LOSSES, Loss
from bigmc.objectives.penalties import GROUP_LASSO, PENALTIES, Penalty

__all__ = ["GROUP_LASSO", "LOSSES", "PENALTIES", "Curvature", "Loss", "Objective", "Penalty", "objective"]
