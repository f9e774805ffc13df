"""MultiBoost^cw: boosting by column generation with learners of each class's own (Lin et al. 2012).

With learners h of each class c, weights w ≥ 0, scores ``F_c = Σ_h w_ch h`` and margins
``γ_iy = F_{y_i}(x_i) - F_y(x_i)``, it minimises (7), in each round by these steps:

1. **Dual weights** (15): ``λ_iy = r exp(-γ_iy)``, ``r = C / p``, as a matrix u.
   `restricted_master.Master.rebuild`.
2. **Pricing** (4): the learners with the largest left side of the dual constraint (3b),
   ``Σ_i u_ic h(x_i)``, a pool of them for every class from one pass over the columns; the largest is σ.
   `pricing.CutOracle` for learners of one cut, `trees.TreeOracle` for trees.
3. **Certificate**: ``s λ`` with ``s σ ≤ 1`` is feasible in the dual, whose value bounds the optimum from
   below. `restricted_master.Point.lower_bound`.
4. **Restricted master** by fast coordinate descent: the learners with the largest violation θ (16) enter the
   working set (17), and each visit sets a weight to its best value (12), (21).
   `restricted_master.Master.improve`.

With the log loss, ``r Σ_i log(1 + Σ_y exp(-γ_iy))`` takes the place of ``r Σ_iy exp(-γ_iy)`` in (7), and λ is
divided by ``1 + Σ_y exp(-γ_iy)``; `restricted_master` says how a descent lowers it. With label noise ε, the
loss is ``-log((1 - ε) p_i + ε / n_classes)`` with the probability ``p_i = 1 / (1 + Σ_y exp(-γ_iy))`` of the
label: forward correction (Patrini et al., CVPR 2017).

`rounds.Rounds` puts the steps together for `bigmc.solvers.loop`; `solve.solve` prepares a run.
"""

from bigmc.solvers.boosting.averaging import solve_averaged
from bigmc.solvers.boosting.choose_c import GRID, Trials, choose_C
from bigmc.solvers.boosting.memory_plan import keeps_codes
from bigmc.solvers.boosting.options import (
    DEFAULT_DEPTH,
    EXPONENTIAL,
    FAMILIES,
    LEARNERS,
    LOG_LOSS,
    LOSSES,
    MAX_DEPTH,
    BoostingOptions,
    is_sparse,
)
from bigmc.solvers.boosting.solve import Solution, held_out, solve

__all__ = [
    "DEFAULT_DEPTH",
    "EXPONENTIAL",
    "FAMILIES",
    "GRID",
    "LEARNERS",
    "LOG_LOSS",
    "LOSSES",
    "MAX_DEPTH",
    "BoostingOptions",
    "Solution",
    "Trials",
    "choose_C",
    "held_out",
    "is_sparse",
    "keeps_codes",
    "solve",
    "solve_averaged",
]
