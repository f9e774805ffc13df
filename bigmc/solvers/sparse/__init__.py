"""The sparse linear classifier by block coordinate descent."""

from bigmc.solvers.sparse.ridge.dual_descent import DualDescent
from bigmc.solvers.sparse.run import SparseRun, Task
from bigmc.solvers.sparse.solve import Solution, check_memory, largest_alpha, solve
from bigmc.solvers.sparse.state import Start
from bigmc.solvers.sparse.steps.descent import Descent

__all__ = [
    "Descent",
    "DualDescent",
    "Solution",
    "SparseRun",
    "Start",
    "Task",
    "check_memory",
    "largest_alpha",
    "solve",
]
