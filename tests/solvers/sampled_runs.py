"""Training on a corrected sample of a dataset whose classes differ in some features."""

import math

import numpy as np
import scipy.sparse
from sparse_runs import solve

from bigmc.engine import ThreadEngine
from bigmc.objectives import objective
from bigmc.solvers.loop import Limits, RunContext, load
from bigmc.solvers.sparse.coefficients import Coefficients
from bigmc.solvers.sparse.columns import BlockSource
from bigmc.solvers.sparse.memory_plan import SamplePlan
from bigmc.solvers.sparse.problem import Problem
from bigmc.solvers.sparse.run import Task
from bigmc.solvers.sparse.sampled.state import SampledState
from bigmc.solvers.sparse.sampled.subsampled_newton import SubsampledNewton
from bigmc.solvers.sparse.steps.descent import Descent
from bigmc.solvers.sparse.steps.sweeps import Sweeper
from bigmc.store.block import Residency
from bigmc.store.dataset import Dataset
from bigmc.store.sample import draw_rows
from bigmc.store.weighting import Weighting

ALPHA = 2e-2


def made(n=6000, d=60, n_classes=5, weighting=None, seed=0):
    """Samples whose classes differ in some features, in shards of 700."""
    generator = np.random.default_rng(seed)
    X = scipy.sparse.random(n, d, 0.15, format="csr", rng=generator)
    X.data = generator.integers(1, 4, X.nnz).astype(np.int8)
    signal = np.zeros((d, n_classes))
    signal[:20] = generator.standard_normal((20, n_classes))[:d]
    y = np.argmax(X @ signal + generator.gumbel(size=(n, n_classes)), axis=1)
    dataset = Dataset.from_arrays(X, y, shard_rows=700, weighting=weighting or Weighting())
    return X.toarray().astype(float), y, dataset


def padded(coef, features):
    rows = np.zeros((len(features), 8))
    rows[:, : coef.shape[1]] = coef
    return Coefficients(features, rows)


def corrected(
    dataset,
    share,
    tol=1e-9,
    loss="squared_hinge",
    penalty="l1/l2",
    ridge=0.0,
    weights=None,
    workers=2,
    intercept=False,
    **run,
):
    """Train on a sample of this share, corrected; returns the rounds and the certificate."""
    sample, positions = draw_rows(dataset, share, 0, ThreadEngine(1))
    drawn = None if weights is None else weights[positions]
    minimised = objective(loss, penalty, None, ridge, sets=dataset.has_sets)
    problem = Problem(sample, minimised, ALPHA, drawn, np.dtype(np.float64), ThreadEngine(workers))
    source = BlockSource(sample, [(0, sample.n_features)], Residency.MEMORY)
    sweeper = Sweeper(problem, Descent("line_search", intercept, 0), 10**9, 10**9)
    task, limits = Task(dataset, weights, minimised, ALPHA), Limits(tol, run.get("max_passes", 200), 0)
    context = RunContext(ThreadEngine(workers), run.get("checkpoint"), ends=run.get("ends", math.inf))
    plan = SamplePlan(share, 0, 0, workers, 1 << 20, 1000)
    rounds = SubsampledNewton(task, limits, context, problem, source, sweeper, plan)
    state = SampledState.zeros(problem.width, problem.n_classes)
    if not run.get("cold"):
        first = solve(
            sample, alpha=ALPHA, loss=loss, penalty=penalty, ridge=ridge, sample_weight=drawn, tol=1e-2,
            memory_limit=10**9, fit_intercept=intercept,
        )  # fmt: skip
        state.coef, state.intercept = padded(first.coef, first.features), first.intercept
    saved = load(context, {})
    state = SampledState.unpack(saved, problem.width) if saved else state
    return rounds, rounds.run(state, {})
