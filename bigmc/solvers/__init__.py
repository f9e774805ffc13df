"""The learners' optimisation loops."""

from numba.core.registry import cpu_target

from bigmc.solvers.certificate import Certificate
from bigmc.solvers.checkpoint import Checkpoint
from bigmc.solvers.minimax import MinimaxSolution, solve_minimax
from bigmc.solvers.sparse import DualDescent, Solution, Start, largest_alpha, solve

# Some kernels of the solvers refer to what numba compiles from (116 modules, 52 MB): it is loaded with the
# other libraries, not in the middle of a run, whose memory is limited.
cpu_target.target_context.refresh()

__all__ = [
    "Certificate",
    "Checkpoint",
    "DualDescent",
    "MinimaxSolution",
    "Solution",
    "Start",
    "largest_alpha",
    "solve",
    "solve_minimax",
]
