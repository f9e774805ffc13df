"""MultiBoost^cw: boosting by column generation with learners of each class's own (Lin et al. 2012)."""

from bigmc.solvers.boosting.rounds import FAMILIES, MAX_DEPTH, Solution, solve

__all__ = ["FAMILIES", "MAX_DEPTH", "Solution", "solve"]
