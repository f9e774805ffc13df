"""Minimax risk classification by constraint and column generation."""

from bigmc.solvers.mrc.ccg import MinimaxSolution, solve_minimax

__all__ = ["MinimaxSolution", "solve_minimax"]
