"""The learners' optimisation loops, a package each."""

from bigmc.solvers.certificate import Certificate
from bigmc.solvers.checkpoint import Checkpoint

__all__ = ["Certificate", "Checkpoint"]
