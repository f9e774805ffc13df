"""The learners' optimisation loops."""

from bigmc.solvers.certificate import Certificate
from bigmc.solvers.checkpoint import Checkpoint
from bigmc.solvers.minimax import MinimaxSolution, solve_minimax
from bigmc.solvers.sparse import (
    Descent,
    DualDescent,
    Solution,
    SparseRun,
    Start,
    Task,
    check_memory,
    largest_alpha,
    solve,
)

__all__ = [
    "Certificate",
    "Checkpoint",
    "Descent",
    "DualDescent",
    "MinimaxSolution",
    "Solution",
    "SparseRun",
    "Start",
    "Task",
    "check_memory",
    "largest_alpha",
    "solve",
    "solve_minimax",
]
