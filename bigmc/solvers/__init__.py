"""The learners' optimisation loops."""

from bigmc.solvers.bcd import Solution, largest_alpha, solve
from bigmc.solvers.certificate import Certificate
from bigmc.solvers.checkpoint import Checkpoint
from bigmc.solvers.mrc import MinimaxSolution, solve_minimax
from bigmc.solvers.state import Start

__all__ = [
    "Certificate",
    "Checkpoint",
    "MinimaxSolution",
    "Solution",
    "Start",
    "largest_alpha",
    "solve",
    "solve_minimax",
]
