"""Runs of the sparse solver, asked for by name, with defaults for what a test is not about."""

from bigmc.engine import ThreadEngine
from bigmc.objectives import objective
from bigmc.progress import silent
from bigmc.solvers.loop import Limits, RunContext
from bigmc.solvers.sparse import Descent, SparseRun, Task
from bigmc.solvers.sparse import largest_alpha as largest_alpha_of
from bigmc.solvers.sparse import solve as solve_run


def run_of(
    dataset,
    *,
    alpha,
    memory_limit,
    loss="squared_hinge",
    penalty="l1/l2",
    l1_ratio=None,
    ridge=0.0,
    fit_intercept=False,
    tol=1e-3,
    max_passes=100,
    seed=0,
    step="line_search",
    sample_weight=None,
    engine=None,
    checkpoint=None,
    progress=silent,
    scratch=None,
):
    minimised = objective(loss, penalty, l1_ratio, ridge, sets=dataset.has_sets)
    return SparseRun(
        Task(dataset, sample_weight, minimised, alpha),
        Limits(tol, max_passes, memory_limit),
        Descent(step, fit_intercept, seed),
        RunContext(engine or ThreadEngine(), checkpoint, progress, scratch),
    )


def solve(dataset, *, start=None, chunk_bytes=None, **options):
    return solve_run(run_of(dataset, **options), start, chunk_bytes)


def largest_alpha(dataset, **options):
    return largest_alpha_of(run_of(dataset, alpha=1.0, **options))
