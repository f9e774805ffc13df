"""Losses and penalties, each one small object."""

from bigmc.objectives.composite import Objective, objective
from bigmc.objectives.losses import SquaredHinge
from bigmc.objectives.penalties import GroupLasso

__all__ = ["GroupLasso", "Objective", "SquaredHinge", "objective"]
