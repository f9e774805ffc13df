"""Parameters that determine the result of a training of the minimax learner."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class MinimaxParameters:
    """Parameters of `bigmc.solvers.minimax.solve_minimax`; `bigmc.MinimaxRiskClassifier` describes them.

    `seed` is that of the samples in the first working set.
    """

    lambda0: float = 0.01
    fit_intercept: bool = True
    tol: float = 1e-3
    eps1: float = 1e-2
    eps2: float = 1e-5
    n_max: int = 400
    m_max: int = 400
    k_max: int = 1000
    time_limit: float | None = None
    seed: int = 0

    def fingerprint(self) -> dict[str, float]:
        """Return the parameters that determine the state after every iteration, so without limits."""
        limits = ("k_max", "time_limit")
        return {name: value for name, value in asdict(self).items() if name not in limits}
