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

Which method is taken is decided in `solve.solve`, when memory is planned:

* The samples **fit into memory**: steps 1 to 4 (`in_memory.train_in_memory`), from the weights of an eighth
  of the samples if there are millions of entries.
* They fit, and there is **a ridge alone** (`SparseRun.takes_duals`): steps 1 to 4 from the weights that dual
  coordinate descent gives, the method of LIBLINEAR (`ridge.dual_descent`).
* They fit, there is a ridge alone, and `bigmc.fit` trains on dense columns, no more than rows, or any run
  on a thousand of them or more: steps 1 and 2 at the weights of L-BFGS on a dense matrix
  (`ridge.dense_descent`), which goes on class by class where rows beyond their margins are many
  (`ridge.near_rows`).
* They **do not fit**, there is a ridge alone and a thousand dense columns or more, and there is memory for
  their Gram matrix: the same with the matrix in a file (`ridge.dense_file`), then chunks.
* They **do not fit**, and there is a ridge alone: dual coordinate descent through blocks of the samples
  (`ridge.row_blocks`). Chunks follow if its intercept, which is shrunk, keeps it from the tolerance.
* They do not fit, and a random sample has enough rows for each of its features with weights, whose columns
  of all samples do not fit either: subsampled Newton (`sampled.subsampled_newton`), step 4 on the sample,
  whose loss is corrected to the gradient of all. It has no more rows than that takes.
* They do not fit, otherwise: step 4 on chunk after chunk of all samples, the loss of each corrected likewise
  (`chunks.rounds`), in columns that `scratch` keeps compressed. With more candidates than sweeps have memory
  for, stochastic steps of reduced variance take its place (`chunks.stochastic_rounds`).

What these choices rest on is measured beside the constants in `out_of_core`. Folders may use those that stand
before them in: scratch, steps, working_set, sampled, chunks.
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
