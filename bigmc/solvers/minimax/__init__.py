"""Minimax risk classification by constraint and column generation (Bondugula, Mazuelas, Pérez).

With the feature vectors ψ(x), the features Φ(x, y) = e_y ⊗ ψ(x), their means τ over the samples and
λ = λ0 s with their standard deviations s, it minimises (3), ``1 − τᵀμ + φ(μ) + λᵀ|μ|``, where φ(μ) is the
largest of ``(Σ_{y∈C} Φ(x, y)ᵀμ − 1) / |C|`` over all samples x and sets C of classes. The minimum is the
largest error probability of the best rule under the distributions whose expectations are within λ of τ.
Algorithm 1, in each iteration:

1. **Restricted problem** over some constraints (x, C) and some components of μ; its dual is a distribution
   α over the constraints. First by primal-dual steps, `pdhg.SaddleSolver`; by the linear program,
   `restricted.WorkingSets.solve`, where that is the cheaper way to the tolerance.
2. **Lower bound**: α, mixed with the empirical distribution until every expectation Fᵀα is within λ of τ,
   is feasible in the dual of the whole problem. `bounds.lower_bound`.
3. **Pricing**: for every sample the set C whose constraint is violated most, by one scan of the samples; it
   gives φ(μ) of the whole problem, and with it the **upper bound** at μ. `pricing.price_constraints`.
4. **Working sets**: the n_max constraints violated by ε1 or more and the m_max components violated by ε2 or
   more are added; the thresholds are tightened when nothing exceeds them.

Two things go beyond Algorithm 1. The bounds hold for the whole problem at any time, and `tol` is their
difference. And first-order steps continue from where they are when the working sets grow, while the solution
of a linear program may jump to another vertex. `iterations.Iterations` puts the steps together for
`bigmc.solvers.loop`; `solve.solve_minimax` prepares a run.
"""

from bigmc.solvers.minimax.parameters import MinimaxParameters
from bigmc.solvers.minimax.solve import MinimaxSolution, default_lambda0, solve_minimax

__all__ = ["MinimaxParameters", "MinimaxSolution", "default_lambda0", "solve_minimax"]
