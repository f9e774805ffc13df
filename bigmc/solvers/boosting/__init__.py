"""MultiBoost^cw: boosting by column generation with learners of each class's own (Lin et al. 2012)."""

from bigmc.solvers.boosting.multiboost import FAMILIES, LEARNERS, MAX_DEPTH, Solution, held_out, solve
from bigmc.solvers.boosting.trials import GRID, Trials, choose_C

__all__ = ["FAMILIES", "GRID", "LEARNERS", "MAX_DEPTH", "Solution", "Trials", "choose_C", "held_out", "solve"]
