"""MultiBoost^cw: boosting by column generation with learners of each class's own (Lin et al. 2012)."""

from bigmc.solvers.boosting.choose_c import GRID, Trials, choose_C
from bigmc.solvers.boosting.solve import FAMILIES, LEARNERS, MAX_DEPTH, Solution, held_out, solve

__all__ = ["FAMILIES", "GRID", "LEARNERS", "MAX_DEPTH", "Solution", "Trials", "choose_C", "held_out", "solve"]
