"""Minimax risk classification by constraint and column generation."""

from bigmc.solvers.minimax.solve import MinimaxSolution, default_lambda0, solve_minimax

__all__ = ["MinimaxSolution", "default_lambda0", "solve_minimax"]
