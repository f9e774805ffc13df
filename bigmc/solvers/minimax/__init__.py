"""Minimax risk classification by constraint and column generation."""

from bigmc.solvers.minimax.solve import MinimaxSolution, solve_minimax

__all__ = ["MinimaxSolution", "solve_minimax"]
