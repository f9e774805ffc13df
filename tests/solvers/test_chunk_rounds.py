"""Training on chunks of the samples against training on all of them in memory, and the scratch file."""

import os
import weakref
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import scipy.sparse
from covered_pairs import covered_pairs
from sparse_runs import solve

from bigmc.engine import ThreadEngine
from bigmc.kernels.linear.arguments import Entries, GradientSums, Samples
from bigmc.kernels.linear.columns import loss_columns
from bigmc.kernels.linear.parallel.team import WHOLE
from bigmc.objectives import LOSSES, objective
from bigmc.progress import silent
from bigmc.solvers.loop import RunContext, load
from bigmc.solvers.sparse.chunks.certificate import Certifier
from bigmc.solvers.sparse.chunks.pass_sums import PassSums
from bigmc.solvers.sparse.chunks.plan import ChunkPlan
from bigmc.solvers.sparse.chunks.rounds import ChunkRounds
from bigmc.solvers.sparse.chunks.state import ChunkState
from bigmc.solvers.sparse.chunks.task import ChunkTask
from bigmc.solvers.sparse.scratch.row_scales import exact_rows
from bigmc.solvers.sparse.scratch.spill import Spill
from bigmc.solvers.sparse.state import Start
from bigmc.solvers.sparse.steps.descent import Descent
from bigmc.store.dataset import Dataset
from bigmc.store.weighting import Weighting

PLAN = ChunkPlan(
    free_bytes=20_000,
    width=8,
    n_kept=4,
    most_candidates=60,
    chunk_bytes=60_000,  # with half as much, rounds over chunks of few samples take three times as long
    newton_bytes=1 << 20,
    fixed_bytes=100_000,
    entry_bytes=3,
    feature_bytes=8,
    most_workers=2,
    worker_bytes=2000,
    block_bytes=4000,
    block_columns=13,
)
#: A part of the columns stays in memory, the rest is in the file.
PARTLY_HELD = replace(PLAN, free_bytes=110_000, chunk_bytes=40_000)


def made(n=3000, d=60, n_classes=5, weighting=None, sets=False):
    """Samples whose classes differ in some features, sorted by class, in shards of 700."""
    generator = np.random.default_rng(0)
    X = scipy.sparse.random(n, d, 0.15, format="csr", rng=generator)
    X.data = generator.integers(1, 4, X.nnz).astype(np.int8)
    signal = np.zeros((d, n_classes))
    signal[:20] = generator.standard_normal((20, n_classes))
    scores = X @ signal + generator.gumbel(size=(n, n_classes))
    order = np.argsort(np.argmax(scores, axis=1), kind="stable")
    y = (scores > 1)[order].astype(int) if sets else np.argmax(scores, axis=1)[order]
    return X[order], Dataset.from_arrays(X[order], y, shard_rows=700, weighting=weighting or Weighting())


def run(dataset, plan=PLAN, checkpoint=None, threads=2, weights=None, tol=1e-3, alpha=2e-2, **options):
    minimised = objective(
        options.get("loss", "squared_hinge"), options.get("penalty", "l1/l2"),
        ridge=options.get("ridge", 0.0), sets=dataset.has_sets,
    )  # fmt: skip
    descent = Descent(options.get("step", "line_search"), options.get("fit_intercept", False), 0)
    context = RunContext(ThreadEngine(threads), checkpoint, options.get("progress", silent))
    task = ChunkTask(dataset, weights, minimised, alpha, tol, descent, np.dtype(float), context)
    rounds = ChunkRounds(task, plan)
    record = {"n": dataset.n_samples}
    saved = load(context, record)
    state = ChunkState.zeros(task.width, dataset.n_classes)
    state = ChunkState.unpack(saved, task.width) if saved else state
    certificate = rounds.run(state, options.get("max_passes", 100), record)
    return rounds.state, certificate


@pytest.mark.exhaustive(keep=4)
@pytest.mark.parametrize(("loss", "penalty", "fit_intercept"), list(covered_pairs(LOSSES)))
def test_bounds_enclose_the_optimum_and_meet(loss, penalty, fit_intercept):
    _, dataset = made(sets=loss == "multilabel_ranking")
    ridge = 1e-3 if penalty == "l1" else 0.0
    options = {"loss": loss, "penalty": penalty, "ridge": ridge, "fit_intercept": fit_intercept}
    best = solve(dataset, alpha=2e-2, tol=1e-5, memory_limit=1 << 30, **options).certificate
    state, certificate = run(dataset, **options)
    assert state.n_chunks > 3
    assert certificate.gap <= 1e-3
    assert certificate.lower <= best.upper * (1 + 1e-9)
    assert best.lower <= certificate.upper * (1 + 1e-9)
    for entry in state.history:
        assert entry["lower"] <= best.upper * (1 + 1e-9)
    reads = [entry["n_passes"] for entry in state.history]
    assert reads == sorted(reads)
    assert state.bytes_read > len(reads) * dataset.nnz * 3


def test_chunks_of_a_round_are_progress():
    seen = []
    state, _ = run(made()[1], progress=seen.append)
    within = [step for step in seen if step.stage == "round"]
    assert [(step.done, step.total) for step in within[: state.n_chunks]] == [
        (done, state.n_chunks) for done in range(state.n_chunks)
    ]
    assert all(step.done < step.total for step in within)
    assert "train" in {step.stage for step in seen}


def test_constant_steps_and_an_intercept():
    _, dataset = made()
    best = solve(dataset, alpha=0.1, tol=1e-6, fit_intercept=True, memory_limit=1 << 30).certificate
    state, certificate = run(dataset, alpha=0.1, fit_intercept=True, step="constant", tol=1e-2)
    assert state.n_chunks > 3
    assert certificate.gap <= 1e-2
    assert certificate.lower <= best.upper
    assert certificate.upper <= best.upper * (1 + 1e-2)


@pytest.mark.exhaustive(keep=1)
@pytest.mark.parametrize(("n_classes", "step"), [(20, "line_search"), (5, "constant")])
def test_log_loss_of_many_classes_and_of_constant_steps(n_classes, step):
    _, dataset = made(n_classes=n_classes)
    weights = np.random.default_rng(4).integers(1, 4, dataset.n_samples).astype(float)
    options = {"loss": "log_loss", "alpha": 5e-3, "fit_intercept": True}
    best = solve(dataset, tol=1e-6, sample_weight=weights, memory_limit=1 << 30, **options).certificate
    plan = replace(PLAN, n_kept=n_classes - 1, width=24, free_bytes=200_000, fixed_bytes=300_000)
    state, certificate = run(dataset, plan, weights=weights, step=step, tol=2e-3, **options)
    assert state.n_chunks > 3
    assert certificate.gap <= 2e-3
    assert best.lower * (1 - 1e-9) <= certificate.upper <= best.upper * (1 + 2e-3)
    assert certificate.lower <= best.upper * (1 + 1e-9)


@pytest.mark.exhaustive(keep=1)
@pytest.mark.parametrize("loss", ["multitask_squared_hinge", "log_loss"])
@pytest.mark.parametrize("chunk_bytes", [PLAN.chunk_bytes, 1 << 30])
def test_a_ridge_alone_gives_every_feature_weights(loss, chunk_bytes):
    _, dataset = made()
    options = {"loss": loss, "ridge": 1e-2, "fit_intercept": True, "alpha": 0.0}
    best = solve(dataset, tol=1e-6, memory_limit=1 << 30, **options).certificate
    state, certificate = run(dataset, replace(PLAN, chunk_bytes=chunk_bytes), tol=1e-3, **options)
    assert len(state.coef.features) == dataset.n_features
    assert certificate.gap <= 1e-3
    assert certificate.lower <= best.upper * (1 + 1e-9)
    assert best.lower <= certificate.upper <= best.upper * (1 + 1e-3)


@pytest.mark.exhaustive(keep=1)
@pytest.mark.parametrize(
    "weighting", [Weighting(l2=True), Weighting(l2=True, idf=True), Weighting(binary=True)]
)
def test_weights_of_samples_and_of_values(weighting):
    _, dataset = made(weighting=weighting)
    weights = np.random.default_rng(1).integers(0, 3, dataset.n_samples).astype(float)
    weights[700:1400] = 0  # a shard that counts for nothing
    best = solve(dataset, alpha=1e-3, tol=1e-6, sample_weight=weights, memory_limit=1 << 30).certificate
    _, certificate = run(dataset, weights=weights, alpha=1e-3)
    assert certificate.gap <= 1e-3
    assert best.lower * (1 - 1e-9) <= certificate.upper <= best.upper * (1 + 1e-3)
    assert certificate.lower <= best.upper * (1 + 1e-9)


def test_features_whose_gradients_are_not_kept_have_bounds():
    _, dataset = made()
    best = solve(dataset, alpha=0.12, tol=1e-6, memory_limit=1 << 30).certificate
    plan = replace(PLAN, free_bytes=11_200, most_candidates=45)
    state, certificate = run(dataset, plan, alpha=0.12)
    assert certificate.lower <= best.upper
    assert certificate.upper <= best.upper * (1 + 1e-3)
    assert plan.most_gradients(0) == 45
    assert sum(map(len, state.layers)) <= 45


@cache
def weighted_optimum(weighting, alpha):
    """Return samples, their weights, and the certificate of their optimum in memory."""
    _, dataset = made(weighting=weighting)
    weights = np.random.default_rng(2).integers(0, 3, dataset.n_samples).astype(float)
    options = {"alpha": alpha, "fit_intercept": True, "sample_weight": weights}
    return dataset, weights, solve(dataset, tol=1e-6, memory_limit=1 << 30, **options).certificate


# alpha: of a smaller one rounds take four times as long
PLAIN, SCALED = (Weighting(), 1e-2), (Weighting(l2=True, idf=True), 4e-3)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("parts", "held", "weighting", "alpha"),
    [(2, 0, *SCALED), (8, 1 << 20, *PLAIN), (3, 8000, *PLAIN)],
)
def test_passes_over_parts_of_shards_prove_what_those_of_whole_ones_do(parts, held, weighting, alpha):
    dataset, weights, best = weighted_optimum(weighting, alpha)
    options = {"weights": weights, "fit_intercept": True, "alpha": alpha}
    plan = replace(PLAN, shard_parts=parts, held_shard_bytes=held)
    state, certificate = run(dataset, plan, **options)
    assert certificate.gap <= 1e-3
    assert certificate.lower <= best.upper * (1 + 1e-9)
    assert best.lower <= certificate.upper * (1 + 1e-9)
    other, _ = run(dataset, plan, threads=1, **options)
    assert np.array_equal(state.coef.rows, other.coef.rows)


def test_a_pass_that_finds_the_norms_of_the_rows_bounds_the_optimum_by_zero():
    _, dataset = made(n_classes=2, weighting=Weighting(l2=True, idf=True))
    state, certificate = run(dataset, loss="log_loss", alpha=0.1)
    at_zero = np.log(2)  # every class the same probability: the optimum, where alpha is that large
    assert [entry["lower"] for entry in state.history] == pytest.approx([0.0, at_zero])
    assert certificate.upper == pytest.approx(at_zero)


class OneAtATime(ThreadEngine):
    """Sees that the sums of a part of a pass are gone before those of the next are begun."""

    def __init__(self):
        super().__init__(1)
        self.n_freed = 0

    def map(self, fn, parts, *shared):
        for part in parts:
            found = fn(part, *shared)
            sums = weakref.ref(found) if isinstance(found, PassSums) else None
            yield part, found
            del found
            if sums is not None:
                assert sums() is None
                self.n_freed += 1


def test_sums_of_parts_of_a_pass_are_not_kept_beside_each_other(monkeypatch):
    engine = OneAtATime()
    monkeypatch.setattr(ThreadEngine, "at_most", lambda self, n_threads: engine)
    monkeypatch.setattr(Certifier, "_needs_shards", lambda *_: True)
    run(made()[1])
    assert engine.n_freed > 5


def test_where_no_feature_gets_weights_one_pass_certifies():
    _, dataset = made(n_classes=2)
    state, certificate = run(dataset, loss="log_loss", alpha=1.0)
    assert len(state.history) == 1
    assert certificate.lower == pytest.approx(np.log(2))
    assert len(state.coef.features) == 0


def test_the_scratch_file_is_closed_at_the_end():
    _, dataset = made()
    opened = set(os.listdir("/proc/self/fd"))
    run(dataset, threads=1, alpha=0.1, tol=1e-2)
    assert set(os.listdir("/proc/self/fd")) == opened


def test_one_chunk_is_a_descent_in_memory():
    _, dataset = made()
    state, certificate = run(dataset, replace(PLAN, chunk_bytes=1 << 30))
    assert state.n_chunks == 1
    assert certificate.gap <= 1e-3


class Stopping:
    """Keeps the state, and ends the run after so many saves."""

    def __init__(self, saves):
        self.left, self.kept = saves, None

    def save(self, meta, arrays):
        self.kept = (meta | {}, {name: array.copy() for name, array in arrays.items()})
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt

    def load(self):
        return self.kept


@cache
def uninterrupted(plan):
    _, dataset = made(weighting=Weighting(l2=True, idf=True))
    return dataset, run(dataset, plan, alpha=1e-3)[0]


@pytest.mark.exhaustive(keep=2)
@pytest.mark.parametrize(("saves", "plan"), [(1, PLAN), (2, PARTLY_HELD), (7, PLAN), (7, PARTLY_HELD)])
def test_resumed_runs_and_any_threads_give_the_same_bits(saves, plan):
    dataset, whole = uninterrupted(plan)
    checkpoint = Stopping(saves)
    with pytest.raises(KeyboardInterrupt):
        run(dataset, plan, checkpoint=checkpoint, alpha=1e-3)
    again, _ = run(dataset, plan, checkpoint=checkpoint, threads=1, alpha=1e-3)
    assert again.coef.rows.tobytes() == whole.coef.rows.tobytes()
    assert again.coef.features.tobytes() == whole.coef.features.tobytes()
    assert again.history == whole.history


@pytest.mark.exhaustive
def test_chunks_go_on_from_what_they_are_given():
    """From the weights of the optimum, and from what an interrupted run saved: neither begins anew."""
    _, dataset = made()
    # constant steps: the loss of a sample is not corrected instead
    options = {"alpha": 2e-2, "memory_limit": 1 << 30, "chunk_bytes": PLAN.chunk_bytes, "step": "constant"}
    whole = []
    cold = solve(dataset, tol=1e-4, progress=whole.append, **options)
    start = Start(cold.features, cold.coef, cold.intercept)
    warm = solve(dataset, tol=1e-4, start=start, **options)
    assert warm.history[0]["objective"] == pytest.approx(cold.objective, rel=1e-5)
    assert warm.n_passes < cold.n_passes
    checkpoint, rest = Stopping(7), []
    with pytest.raises(KeyboardInterrupt):
        solve(dataset, tol=1e-4, checkpoint=checkpoint, **options)
    resumed = solve(dataset, tol=1e-4, checkpoint=checkpoint, progress=rest.append, **options)
    assert resumed.objective == cold.objective
    n_chunks = [sum(step.stage == "round" for step in steps) for steps in (whole, rest)]
    assert 0 < n_chunks[1] < n_chunks[0] / 2


@pytest.mark.slow
def test_a_limit_below_the_data_goes_through_chunks():
    generator = np.random.default_rng(0)
    X = scipy.sparse.random(20_000, 500, 0.1, format="csr", rng=generator)
    X.data = np.ceil(10 * X.data)
    y = np.argmax(X[:, :5].toarray() + generator.random((20_000, 5)), axis=1)
    dataset = Dataset.from_arrays(X, y, shard_rows=5000)
    best = solve(dataset, alpha=5e-2, penalty="l1", tol=1e-5, memory_limit=1 << 30).certificate
    found = solve(dataset, alpha=5e-2, penalty="l1", tol=1e-2, memory_limit=3_500_000)
    assert found.plan is None
    assert found.converged
    assert found.certificate.lower <= best.upper
    assert found.objective <= best.upper * 1.01


@pytest.mark.exhaustive
def test_columns_in_memory_are_not_read():
    _, dataset = made()
    in_file, _ = run(dataset, replace(PARTLY_HELD, free_bytes=PLAN.free_bytes))
    partly, _ = run(dataset, PARTLY_HELD)
    held, _ = run(dataset, replace(PARTLY_HELD, free_bytes=1 << 20))
    assert partly.most_held > 0
    assert in_file.round_bytes > partly.round_bytes > held.round_bytes


@pytest.mark.parametrize("most_held", [0, 2000, 1 << 20])
def test_what_is_kept_are_the_columns(most_held):
    X, dataset = made()
    spill = Spill(dataset, None, 4, 0, None, exact_rows(dataset), most_held)
    try:
        first, second = np.array([3, 7, 8, 59]), np.array([0, 10, 11, 12, 58])
        spill.add(first)
        spill.add(second)
        places = []
        for number in range(4):
            chunk = spill.chunk(number)
            pieces = [piece for piece in spill.pieces if piece.chunk == number]
            rows = np.concatenate(
                [dataset.base[p.shard] + at for p, at in zip(pieces, chunk.positions, strict=True)]
            ).astype(int)
            places.append(rows)
            assert spill.held_bytes <= most_held
            for columns, features in zip(chunk.held, (first, second), strict=True):
                dense = np.zeros((len(rows), len(features)))
                for p in range(len(pieces)):
                    for j in range(len(features)):
                        at = slice(columns.indptr[p, j], columns.indptr[p, j + 1])
                        dense[chunk.samples.n_samples and columns.base[p] + columns.indices[at], j] = (
                            columns.data[at]
                        )
                np.testing.assert_array_equal(dense, X[rows][:, features].toarray())
            np.testing.assert_array_equal(chunk.samples.label_sets()[:, 0], dataset.labels()[rows])
        np.testing.assert_array_equal(np.sort(np.concatenate(places)), np.arange(dataset.n_samples))
    finally:
        spill.close()


def test_only_columns_between_the_first_and_the_last_are_read():
    X, dataset = made()
    spill = Spill(dataset, None, 4, 0, None, exact_rows(dataset))
    try:
        spill.n_bytes = 0
        spill.add(np.array([7, 12, 20]))
        entries = np.diff(scipy.sparse.csc_array(X).indptr)[7:21].sum()
        _, written = spill.column_bytes
        assert spill.n_bytes == entries * (2 + X.dtype.itemsize) + written
    finally:
        spill.close()


@pytest.mark.parametrize(
    "loss", ["squared_hinge", "multitask_squared_hinge", "multilabel_ranking", "log_loss"]
)
def test_the_largest_curvature_is_that_of_the_diagonal(loss):
    generator = np.random.default_rng(0)
    n, m = 30, 5
    code = LOSSES[loss].kernels
    scores = np.full((n, 8), LOSSES[loss].pad_score)
    scores[:, :m] = generator.standard_normal((n, m))
    labels = np.sort(np.stack([generator.choice(m, 2, replace=False) for _ in range(n)]), axis=1)
    labels = labels.astype(np.int32) if loss == "multilabel_ranking" else labels[:, :1].astype(np.int32)
    indptr, indices = np.array([[0, n]]), np.arange(n, dtype=np.uint16)
    data, ones, base = generator.integers(1, 9, n).astype(np.int8), np.ones(n), np.array([0, n])
    none = np.empty((0, 0))
    entries, samples = Entries(indptr, indices, data, base), Samples(scores, labels, np.empty(0), ones, ones)
    work = loss_columns.column_work(scores, m)
    loss_columns.column_curvature(code, 0, WHOLE, entries, samples, none, work, none)
    sums = GradientSums(np.zeros((1, 8)), np.zeros(1))
    loss_columns.add_gradients(code, np.zeros(1, np.int64), entries, samples, m, sums, True)
    assert sums.curvatures[0] == pytest.approx(work.diagonal.max())
