"""The sparse linear classifier by block coordinate descent (Blondel, Seki, Uehara 2013).

With weights W, a row W_j for each feature, scores ``s_i = Wᵀx_i`` and ``A_ir = 1 − (s_{i,y_i} − s_ir)``, it
minimises (2), ``(1/n) Σ_i Σ_{r≠y_i} max(A_ir, 0)² + λ Σ_j ‖W_j‖``, or another loss and penalty of
`bigmc.objectives` in their places, in each round by these steps:

1. **Full pass**: the gradients G_j (5) of all features, which say what violates the optimality conditions,
   ``‖G_j‖ ≤ λ`` where W_j is zero. `working_set.gradient.gradient_pass`.
2. **Lower bound**: the derivatives of the loss by the scores, scaled until every G_j is within its ball,
   are feasible in the dual. `bounds`; `working_set.projection` first takes gradients back to their balls.
3. **Working set**: features with weights, and those that violate most. `working_set.rounds.Rounds`.
4. **Descent** on it: block steps (algorithm 2) with the curvatures h_j (6), then Newton steps over the
   weights that are not zero. `steps.sweeps.Sweeper`, `steps.newton`.

Where the samples do not fit into memory, step 4 works on a part of them whose loss is corrected to the
gradient of all, by one of two ways: a random sample (`sampled.subsampled_newton`), or chunk after chunk
(`chunks.rounds.ChunkRounds`) of columns that `scratch` keeps compressed; with very many weights by
stochastic steps there (`chunks.row_rounds`). A ridge alone is solved by dual coordinates
(`ridge.dual_descent`), block after block of samples where memory is less (`ridge.row_blocks`).
`solve.solve` plans the memory and chooses; folders may use those that stand before them in: scratch, steps,
working_set, sampled, chunks.
"""

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
