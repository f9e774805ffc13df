"""What a pass says of the gradients that it does not keep: themselves with two classes, else bounds."""

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse
from dense import loss_and_gradient
from sparse_runs import solve
from test_chunk_rounds import PLAN, replace, run

from bigmc.engine import ThreadEngine
from bigmc.objectives import objective
from bigmc.solvers.loop import RunContext
from bigmc.solvers.sparse.chunks.certificate import Certifier
from bigmc.solvers.sparse.chunks.conditions import Rereading
from bigmc.solvers.sparse.chunks.evaluation import evaluate_by_columns
from bigmc.solvers.sparse.chunks.task import ChunkTask
from bigmc.solvers.sparse.coefficients import Coefficients
from bigmc.solvers.sparse.scratch.row_scales import Norms, exact_rows
from bigmc.solvers.sparse.scratch.spill import Spill
from bigmc.solvers.sparse.steps.descent import Descent
from bigmc.store.dataset import Dataset

N_ROWS, N_FEATURES, SHARD_ROWS = 3000, 300, 300
CANDIDATES = np.array([1, 4, 9, 200])
DUAL_NORMS = {"l1/l2": 2, "l1/linf": 1, "l1": np.inf}


def made(n_classes):
    """Frequent features and some with an entry or two in a shard, of both signs, in ten shards."""
    generator = np.random.default_rng(3)
    frequent = scipy.sparse.random(N_ROWS, 30, 0.2, rng=generator)
    rare = scipy.sparse.random(N_ROWS, N_FEATURES - 30, 0.003, rng=generator)
    X = scipy.sparse.hstack([frequent, rare], format="csr")
    X.data = generator.choice([-3, -1, 1, 2], X.nnz).astype(np.int8)
    y = np.concatenate([np.arange(n_classes), generator.integers(0, n_classes, N_ROWS - n_classes)])
    return X, y, Dataset.from_arrays(X, y, shard_rows=SHARD_ROWS)


def task_of(dataset, loss, alpha, penalty="l1/l2"):
    descent, dtype = Descent("line_search", False, 0), np.dtype(float)
    return ChunkTask(
        dataset, None, objective(loss, penalty), alpha, 1e-3, descent, dtype, RunContext(ThreadEngine(1))
    )


@pytest.mark.exhaustive(keep=4)
@pytest.mark.parametrize(("penalty", "shard_parts"), [("l1/l2", 1), ("l1/linf", 2), ("l1", 1), ("l1", 2)])
@pytest.mark.parametrize(("loss", "n_classes"), [("squared_hinge", 2), ("log_loss", 2), ("squared_hinge", 4)])
def test_norms_of_other_gradients(loss, n_classes, penalty, shard_parts):
    X, y, dataset = made(n_classes)
    task = task_of(dataset, loss, 1e-3, penalty)
    plan = replace(PLAN, n_kept=n_classes - 1, shard_parts=shard_parts)
    rows = np.zeros((len(CANDIDATES), task.width))
    rows[:, :n_classes] = 0.3 * np.random.default_rng(5).standard_normal((len(CANDIDATES), n_classes))
    W = np.zeros((N_FEATURES, n_classes))
    W[CANDIDATES] = rows[:, :n_classes]
    # with one chunk the dual point is that of the weights
    spill = Spill(dataset, None, 1, 0, None, exact_rows(dataset), 0, shard_parts)
    try:
        spill.add(CANDIDATES)
        coef = Coefficients.zeros(task.width).updated([(CANDIDATES, rows)])
        anchor = evaluate_by_columns(task, spill, coef, np.zeros(n_classes))
        certified = Certifier(task, plan).certify(spill, anchor, CANDIDATES, Norms.EXACT, 1.0)
    finally:
        spill.close()
    _, gradient, _ = loss_and_gradient(loss, X.toarray(), y, W, np.zeros(n_classes), np.ones(N_ROWS))
    expected, norms = np.linalg.norm(gradient, DUAL_NORMS[penalty], axis=1), certified.sums.norms
    others = np.setdiff1d(np.arange(N_FEATURES), CANDIDATES)
    assert (norms[others] >= expected[others] * (1 - 1e-12)).all()
    if n_classes == 2:
        np.testing.assert_allclose(norms[others], expected[others], rtol=1e-5, atol=1e-5 * expected.max())
    else:
        assert norms[:30].sum() > 1.2 * expected[:30].sum()
        assert norms[others].max() > expected[others].max()


def test_columns_whose_bounds_exceed_the_penalty_are_read_once_more():
    X, y, dataset = made(4)
    alpha, none = 3e-2, np.empty(0, np.int64)
    task = task_of(dataset, "squared_hinge", alpha)
    spill = Spill(dataset, None, 1, 0, None, exact_rows(dataset))
    found = []
    try:
        anchor = evaluate_by_columns(task, spill, Coefficients.zeros(task.width), np.zeros(4))
        for rereading in (Rereading.NONE, Rereading.DECISIVE):
            spill.n_bytes = 0
            certifier = Certifier(task, replace(PLAN, n_kept=3, free_bytes=1 << 24))
            certified = certifier.certify(spill, anchor, none, Norms.EXACT, 1.0, rereading=rereading)
            found.append((certified, spill.n_bytes))
    finally:
        spill.close()
    (bounds, once), (exact, n_bytes) = found
    zero = np.zeros((N_FEATURES, 4))
    _, gradient, _ = loss_and_gradient("squared_hinge", X.toarray(), y, zero, np.zeros(4), np.ones(N_ROWS))
    norms = np.linalg.norm(gradient, axis=1)
    doubtful = bounds.sums.norms > alpha
    assert 0 < doubtful.sum() < (bounds.sums.norms > 0).sum()
    added = exact.sums.norms[doubtful] - norms[doubtful]  # for rounding errors of single precision
    assert (added >= 0).all()
    assert (added <= 5e-6 * bounds.sums.norms[doubtful]).all()
    assert np.array_equal(exact.sums.norms[~doubtful], bounds.sums.norms[~doubtful])
    assert np.array_equal(exact.measured.doubted, np.flatnonzero(doubtful))
    assert exact.measured.largest_norm == pytest.approx(norms.max(), rel=1e-5)
    assert bounds.lower < exact.lower
    assert once < n_bytes < 2 * once  # one more reading is enough


@pytest.mark.parametrize(("shard_parts", "free_bytes"), [(1, 6_000), (2, 7_500)])
def test_columns_are_read_as_often_as_memory_asks_for_those_of_the_largest_bounds_first(
    shard_parts, free_bytes, monkeypatch
):
    X, y, dataset = made(4)
    alpha, none, asked = 3e-2, np.empty(0, np.int64), []
    task = task_of(dataset, "squared_hinge", alpha)
    plan = replace(PLAN, n_kept=3, free_bytes=free_bytes, shard_parts=shard_parts)
    add_up = Certifier._add_up

    def noted(self, spill, request, *arguments, **options):
        asked.append(request)
        return add_up(self, spill, request, *arguments, **options)

    monkeypatch.setattr(Certifier, "_add_up", noted)
    spill = Spill(dataset, None, 1, 0, None, exact_rows(dataset), 0, shard_parts)
    try:
        anchor = evaluate_by_columns(task, spill, Coefficients.zeros(task.width), np.zeros(4))
        bounds, exact = (
            Certifier(task, plan).certify(spill, anchor, none, Norms.EXACT, 1.0, rereading=again).sums.norms
            for again in (Rereading.NONE, Rereading.ALL_IN_DOUBT)
        )
    finally:
        spill.close()
    zero = np.zeros((N_FEATURES, 4))
    _, gradient, _ = loss_and_gradient("squared_hinge", X.toarray(), y, zero, np.zeros(4), np.ones(N_ROWS))
    norms = np.linalg.norm(gradient, axis=1)
    again = [request.features for request in asked if request.only]
    read = np.concatenate(again)
    assert len(again) > 1
    assert len(np.unique(read)) == len(read) > 30
    assert (exact[read] >= norms[read]).all()
    assert (exact[read] <= norms[read] + 5e-6 * shard_parts * bounds[read]).all()
    left = np.setdiff1d(np.arange(N_FEATURES), read)
    assert np.array_equal(exact[left], bounds[left])
    for first, second in pairwise([*again, left]):
        assert bounds[first].min() >= bounds[second].max()


def certified_with_weights(plan, rereading):
    """Make a pass at weights of the candidates; return it, the bytes read, and the norms of all gradients."""
    X, y, dataset = made(4)
    task = task_of(dataset, "squared_hinge", 3e-2)
    rows = np.zeros((len(CANDIDATES), task.width))
    rows[:, :4] = 0.3 * np.random.default_rng(7).standard_normal((len(CANDIDATES), 4))
    W = np.zeros((N_FEATURES, 4))
    W[CANDIDATES] = rows[:, :4]
    spill = Spill(dataset, None, 1, 0, None, exact_rows(dataset), 0, plan.shard_parts)
    try:
        spill.add(CANDIDATES)
        coef = Coefficients.zeros(task.width).updated([(CANDIDATES, rows)])
        anchor = evaluate_by_columns(task, spill, coef, np.zeros(4))
        spill.n_bytes = 0
        none = np.empty(0, np.int64)
        found = Certifier(task, plan).certify(spill, anchor, none, Norms.EXACT, 1.0, rereading=rereading)
        n_bytes, columns = spill.n_bytes, sum(spill.column_bytes)
    finally:
        spill.close()
    _, gradient, _ = loss_and_gradient("squared_hinge", X.toarray(), y, W, np.zeros(4), np.ones(N_ROWS))
    return found, n_bytes / dataset.decoded_bytes, columns, np.linalg.norm(gradient, axis=1)


@pytest.mark.exhaustive(keep=1)
@pytest.mark.parametrize("rereading", [Rereading.NONE, Rereading.ALL_IN_DOUBT])
def test_scores_come_from_the_columns_that_a_pass_has_decoded(rereading):
    many = replace(PLAN, n_kept=3, free_bytes=1 << 24, shard_parts=2, held_shard_bytes=1 << 20)
    held, n_reads, columns, norms = certified_with_weights(many, rereading)
    few, more_reads, _, _ = certified_with_weights(replace(many, held_shard_bytes=0), rereading)
    assert columns > 0
    assert n_reads <= (1 if rereading is Rereading.NONE else 2)
    assert more_reads > n_reads
    others = np.setdiff1d(np.arange(N_FEATURES), CANDIDATES)
    for found in (held, few):
        assert (found.sums.norms[others] >= norms[others] * (1 - 1e-12)).all()
        doubted = np.setdiff1d(found.measured.doubted, CANDIDATES)
        assert (len(doubted) > 0) == (rereading is Rereading.ALL_IN_DOUBT)
        np.testing.assert_allclose(found.sums.norms[doubted], norms[doubted], rtol=1e-4)
    assert held.lower == pytest.approx(few.lower, rel=1e-6)


def test_finer_parts_of_shards_leave_memory_for_all_that_is_read_again(monkeypatch):
    asked, add_up = [], Certifier._add_up

    def noted(self, spill, request, *arguments, **options):
        asked.append(request)
        return add_up(self, spill, request, *arguments, **options)

    monkeypatch.setattr(Certifier, "_add_up", noted)
    plan = replace(PLAN, n_kept=3, shard_parts=2, held_shard_bytes=1 << 20, longest_column=60_000)
    scores = 4 * plan.width * plan.longest_column // (plan.entry_bytes * plan.shard_parts)
    plan = replace(plan, worker_bytes=scores + plan.held_shard_bytes)
    for left, parts in ((1 << 20, 2), (3000, 4)):
        asked.clear()
        tight = replace(plan, free_bytes=scores + left)
        found, _, _, norms = certified_with_weights(tight, Rereading.ALL_IN_DOUBT)
        (again,) = [request for request in asked if request.only]  # of one reading
        assert again.shard_parts == parts
        assert len(again.features) > 30
        expected = norms[again.features]
        np.testing.assert_allclose(found.sums.norms[again.features], expected, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("loss", ["squared_hinge", "log_loss"])
def test_passes_over_all_columns_prove_what_those_over_shards_do(loss, fit_intercept, monkeypatch):
    _, _, dataset = made(4)
    alpha = 5e-2 if loss == "squared_hinge" else 1e-2
    task = task_of(dataset, loss, alpha)
    task = replace(task, descent=replace(task.descent, fit_intercept=fit_intercept))
    near = solve(dataset, alpha=1.2 * alpha, loss=loss, fit_intercept=fit_intercept, memory_limit=1 << 30)
    every = np.arange(N_FEATURES)
    spill = Spill(dataset, None, 4, 0, None, exact_rows(dataset))
    found = []
    try:
        spill.add(every)
        rows = np.pad(near.coef, ((0, 0), (0, task.width - 4)))
        coef = Coefficients.zeros(task.width).updated([(near.features, rows)])
        anchor = evaluate_by_columns(task, spill, coef, near.intercept)
        n_kept = task.objective.loss.n_kept(4)
        certifier = Certifier(task, replace(PLAN, n_kept=n_kept, most_candidates=N_FEATURES))
        for name in ("columns", "shards"):
            spill.n_bytes = 0
            if name == "shards":
                monkeypatch.setattr(Certifier, "_needs_shards", lambda *_: True)
            found.append((certifier.certify(spill, anchor, every, Norms.EXACT, 1.0), spill.n_bytes))
    finally:
        spill.close()
    (columns, n_bytes), (shards, more_bytes) = found
    assert len(near.features) > 0
    assert 0 < columns.lower < near.objective
    assert n_bytes < more_bytes
    assert columns.lower == pytest.approx(shards.lower, rel=1e-9)
    assert columns.measured.violation == pytest.approx(shards.measured.violation, rel=1e-5)
    np.testing.assert_allclose(columns.sums.gradient, shards.sums.gradient, atol=1e-9)
    np.testing.assert_allclose(columns.sums.norms, shards.sums.norms, rtol=1e-5, atol=1e-9)


@pytest.mark.exhaustive
def test_features_without_gradients_become_candidates():
    """Passes that keep the gradients of the candidates alone find the others all the same."""
    generator = np.random.default_rng(1)
    X = scipy.sparse.random(4000, 120, 0.1, format="csr", rng=generator)
    X.data[:] = 1
    signal = np.where(np.arange(120) % 3 == 0, generator.standard_normal(120), 0.0)
    y = (X @ signal + 0.5 * generator.standard_normal(4000) > 0).astype(int)
    X.data = X.data.astype(np.int8)
    dataset = Dataset.from_arrays(X, y, shard_rows=200)
    best = solve(dataset, alpha=1e-3, tol=1e-6, memory_limit=1 << 30).certificate
    plan = replace(PLAN, n_kept=1, most_candidates=120, free_bytes=9000)
    _, certificate = run(dataset, plan, alpha=1e-3)
    assert certificate.gap <= 1e-3
    assert certificate.lower <= best.upper * (1 + 1e-9)
    assert best.lower <= certificate.upper * (1 + 1e-9)
