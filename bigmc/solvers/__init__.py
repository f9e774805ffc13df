"""The learners' optimisation loops."""

from bigmc.solvers.bcd import Solution, solve
from bigmc.solvers.certificate import Certificate
from bigmc.solvers.checkpoint import Checkpoint

__all__ = ["Certificate", "Checkpoint", "Solution", "solve"]
