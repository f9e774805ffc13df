"""The learners' optimisation loops."""

from bigmc.solvers.bcd import Solution, solve
from bigmc.solvers.certificate import Certificate
from bigmc.solvers.checkpoint import Checkpoint
from bigmc.solvers.mrc import MinimaxSolution, solve_minimax

__all__ = ["Certificate", "Checkpoint", "MinimaxSolution", "Solution", "solve", "solve_minimax"]
