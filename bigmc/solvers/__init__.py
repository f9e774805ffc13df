"""The learners' optimisation loops."""

from bigmc.solvers.certificate import Certificate
from bigmc.solvers.checkpoint import Checkpoint
from bigmc.solvers.minimax import MinimaxSolution, solve_minimax
from bigmc.solvers.sparse import DualDescent, Solution, Start, check_memory, largest_alpha, solve

__all__ = [
    "Certificate",
    "Checkpoint",
    "DualDescent",
    "MinimaxSolution",
    "Solution",
    "Start",
    "check_memory",
    "largest_alpha",
    "solve",
    "solve_minimax",
]
