"""The sparse learner against published optima, an independent solver, and itself interrupted."""

import copy
import itertools

import numpy as np
import pytest
from instances import (
    ALPHAS,
    LAMBDA_MAX,
    N_CLASSES,
    NONZERO,
    OPTIMA,
    dataset_of,
    fista,
    instance,
    loss_and_gradient,
    whole_instance,
)
from sklearn.datasets import load_digits
from sparse_runs import solve

from bigmc.budget import MemoryLimitError
from bigmc.engine import ThreadEngine
from bigmc.errors import BigmcError, DataError, ModelError
from bigmc.store.dataset import Dataset
from bigmc.store.weighting import Weighting

LIMIT = 10**9
CASES = [(name, k) for name in OPTIMA for k in range(3)]


def samples(name):
    """Values, in whole numbers but for one instance, labels, and the factor of alpha for the optima."""
    return (*instance(name), 1) if name == "iris" else whole_instance(name)


def chunked(name):
    """Return an instance in three shards, bytes of a chunk of a quarter of it, and the factor of alpha."""
    X, y, unit = whole_instance(name)
    dataset = dataset_of(X, y, N_CLASSES[name], shard_rows=-(-len(y) // 3))
    entries = dataset.nnz * (2 + dataset.dtype.itemsize)
    return dataset, (entries + len(y) * 160) // 3 + 136 * dataset.n_features, unit


class Memory:
    """A checkpoint that keeps every save and can start from any of them."""

    def __init__(self, saved=None):
        self.saved = [] if saved is None else [saved]

    def save(self, meta, arrays):
        import json

        self.saved.append((json.loads(json.dumps(meta)), {k: v.copy() for k, v in arrays.items()}))

    def load(self):
        return copy.deepcopy(self.saved[-1]) if self.saved else None  # as a file is read anew


class Stopping(Memory):
    """Ends the run when it saves."""

    def save(self, meta, arrays):
        super().save(meta, arrays)
        raise KeyboardInterrupt


def content(saved):
    meta, arrays = saved
    return meta, {name: (array.dtype, array.shape, array.tobytes()) for name, array in arrays.items()}


def bits(solution):
    return (
        solution.features.tobytes(), solution.coef.tobytes(), solution.intercept.tobytes(),
        solution.objective, solution.certificate, solution.n_passes, solution.n_iter,
    )  # fmt: skip


@pytest.mark.parametrize(("name", "k"), CASES)
def test_reference_optima_in_memory(name, k):
    X, y, unit = samples(name)
    alpha = unit * ALPHAS[k]
    found = solve(dataset_of(X, y, N_CLASSES[name]), alpha=alpha, memory_limit=LIMIT, tol=1e-9)
    assert found.converged
    assert found.certificate.gap <= 1e-9
    assert abs(found.objective - OPTIMA[name][k]) < 1e-8
    assert len(found.features) == NONZERO[name][k]
    W = np.zeros((X.shape[1], N_CLASSES[name]))
    W[found.features] = found.coef
    loss = loss_and_gradient(X, y, W, 0, np.ones(len(y)))[0]
    assert loss + alpha * np.linalg.norm(W, axis=1).sum() == pytest.approx(found.objective, rel=1e-12)
    for entry in found.history:
        assert entry["lower"] <= OPTIMA[name][k] + 1e-11
        assert entry["objective"] >= OPTIMA[name][k] - 1e-11
    objectives = [entry["objective"] for entry in found.history]
    assert np.diff(objectives).max(initial=0) <= 1e-12


@pytest.mark.parametrize(("name", "k"), [("iris", 0), ("digits", 0), ("arith", 1)])
def test_constant_steps(name, k):
    X, y, unit = samples(name)
    found = solve(
        dataset_of(X, y, N_CLASSES[name]),
        alpha=unit * ALPHAS[k],
        memory_limit=LIMIT,
        tol=1e-8,
        step="constant",
        max_passes=300,
    )
    assert found.certificate.gap <= 1e-8
    assert abs(found.objective - OPTIMA[name][k]) < 1e-8


@pytest.mark.slow
@pytest.mark.parametrize(("name", "k"), [("iris", 0), ("digits", 0)])
def test_in_chunks(name, k):
    dataset, chunk_bytes, unit = chunked(name)
    limits = {"memory_limit": LIMIT, "tol": 1e-4, "max_passes": 500}
    found = solve(dataset, alpha=unit * ALPHAS[k], chunk_bytes=chunk_bytes, **limits)
    assert found.plan is None
    assert found.certificate.gap <= 1e-4
    assert found.objective == pytest.approx(OPTIMA[name][k], rel=1e-4)
    assert all(entry["lower"] <= OPTIMA[name][k] * (1 + 1e-6) for entry in found.history)


def larger(n_samples=60_000, n_features=50, n_classes=3):
    """Counts whose classes differ in some of the features, in more rows than fit where little does."""
    generator = np.random.default_rng(0)
    y = np.arange(n_samples) % n_classes
    rate = np.full((n_classes, n_features), 0.3)
    rate[:, :12] = generator.random((n_classes, 12))
    return generator.poisson(rate[y]).astype(np.int8), y


@pytest.mark.exhaustive(keep=1)
@pytest.mark.parametrize("weighted", [False, True])
def test_a_sample_in_memory_is_the_start_for_data_that_does_not_fit(weighted):
    X, y = larger()
    weights = np.random.default_rng(1).integers(0, 3, len(y)).astype(float) if weighted else None
    dataset = Dataset.from_arrays(X, y, shard_rows=4000)
    options = {"alpha": 1e-2, "tol": 1e-6, "max_passes": 500, "sample_weight": weights}
    seen = []
    little = solve(dataset, memory_limit=4_500_000, progress=lambda p: seen.append(p.stage), **options)
    assert little.plan is None
    assert seen.index("train") == seen.count("train on a sample") > 0
    assert little.converged
    much = solve(dataset, memory_limit=LIMIT, **options)
    assert much.plan is not None
    assert little.objective == pytest.approx(much.objective, rel=2e-6)
    first = little.history[0]["objective"]
    assert first < 1.25 * much.objective  # 2 without weights


@pytest.mark.exhaustive
@pytest.mark.slow
def test_starting_on_a_sample_and_resuming_gives_the_same_bits():
    X, y = larger()
    dataset = Dataset.from_arrays(X, y, shard_rows=4000)
    options = {"alpha": 1e-2, "tol": 1e-5, "memory_limit": 4_500_000, "engine": ThreadEngine(3)}
    memory = Memory()
    whole = solve(dataset, checkpoint=memory, **options)
    assert bits(whole) == bits(solve(dataset, **{**options, "engine": ThreadEngine(1)}))
    for saved in memory.saved:
        assert bits(solve(dataset, checkpoint=Memory(saved), **options)) == bits(whole)


@pytest.mark.parametrize("name", list(LAMBDA_MAX))
def test_weights_vanish_exactly_from_lambda_max_on(name):
    X, y, unit = samples(name)
    dataset, largest = dataset_of(X, y, N_CLASSES[name]), unit * LAMBDA_MAX[name]
    above = solve(dataset, alpha=largest * (1 + 1e-9), memory_limit=LIMIT, tol=1e-9)
    assert len(above.features) == 0
    assert above.objective == dataset.n_classes - 1
    assert above.certificate.gap < 1e-12
    below = solve(dataset, alpha=largest * (1 - 1e-4), memory_limit=LIMIT, tol=1e-12, max_passes=20)
    assert len(below.features) > 0


@pytest.mark.parametrize("name", ["iris", "arith"])
def test_intercept_is_optimal_and_bounded(name):
    X, y, unit = samples(name)
    dataset = dataset_of(X, y, N_CLASSES[name])
    found = solve(dataset, alpha=0.05 * unit, memory_limit=LIMIT, tol=1e-8, fit_intercept=True)
    optimum = fista(X / unit, y, N_CLASSES[name], 0.05, intercept=True, n_iter=6000)
    assert found.converged
    assert found.objective == pytest.approx(optimum, abs=1e-7)
    assert all(entry["lower"] <= optimum + 1e-9 for entry in found.history)


def test_two_classes():
    X, y, unit = samples("arith")
    found = solve(Dataset.from_arrays(X, y % 2), alpha=0.05 * unit, memory_limit=LIMIT, tol=1e-8)
    assert found.objective == pytest.approx(fista(X / unit, y % 2, 2, 0.05, n_iter=6000), abs=1e-7)


@pytest.mark.parametrize("intercept", [False, True])
def test_a_weight_of_two_is_the_sample_twice(intercept):
    X, y = instance("iris")
    weights = 1.0 + (np.arange(len(y)) % 3 == 0)
    repeats = weights.astype(int)
    options = {"alpha": 0.05, "memory_limit": LIMIT, "tol": 1e-9, "fit_intercept": intercept}
    weighted = solve(Dataset.from_arrays(X, y), sample_weight=weights, **options)
    doubled = solve(Dataset.from_arrays(np.repeat(X, repeats, axis=0), np.repeat(y, repeats)), **options)
    assert weighted.objective == pytest.approx(doubled.objective, rel=3e-9)
    assert weighted.certificate.gap <= 1e-9


def test_scales_are_applied_as_scikit_learn_does():
    from sklearn.feature_extraction.text import TfidfTransformer

    X, y = instance("arith")
    counts = np.round(X * 4)
    ours = Dataset.from_arrays(counts, y, weighting=Weighting.named("tfidf"))
    theirs = Dataset.from_arrays(TfidfTransformer().fit_transform(counts), y)
    options = {"alpha": 0.02, "memory_limit": LIMIT, "tol": 1e-7}
    assert solve(ours, **options).objective == pytest.approx(solve(theirs, **options).objective, rel=3e-7)


@pytest.mark.exhaustive(keep=1)
@pytest.mark.slow
@pytest.mark.parametrize(("intercept", "chunks"), [(False, False), (False, True), (True, True)])
def test_stop_and_resume_at_every_checkpoint_gives_the_same_bits(intercept, chunks):
    dataset, chunk_bytes, unit = chunked("arith")
    options = {
        "alpha": 0.01 * unit, "memory_limit": LIMIT, "tol": 1e-6, "fit_intercept": intercept,
        "chunk_bytes": chunk_bytes if chunks else None,
    }  # fmt: skip
    kept = Memory()
    whole = solve(dataset, checkpoint=kept, **options)
    assert len(kept.saved) >= 3
    resumed = kept.saved
    if chunks:  # each state leads to the next one, so that few have to be followed to the end
        for saved, following in itertools.pairwise(kept.saved):
            stopping = Stopping(saved)
            with pytest.raises(KeyboardInterrupt):
                solve(dataset, checkpoint=stopping, **options)
            assert content(stopping.saved[-1]) == content(following)
        resumed = [kept.saved[0], kept.saved[len(kept.saved) // 2], kept.saved[-1]]
    for saved in resumed:
        assert bits(solve(dataset, checkpoint=Memory(saved), **options)) == bits(whole)
    with pytest.raises(ModelError, match="alpha"):
        solve(dataset, checkpoint=Memory(kept.saved[0]), **(options | {"alpha": 0.02 * unit}))


def test_a_checkpoint_of_another_version_is_refused():
    dataset, _, unit = chunked("arith")
    memory = Memory()
    solve(dataset, alpha=0.1 * unit, memory_limit=LIMIT, checkpoint=memory)
    meta, arrays = memory.saved[0]
    for old in ({**meta, "version": 0}, {name: meta[name] for name in meta if name != "version"}):
        with pytest.raises(ModelError, match="another version of bigmc; remove it"):
            solve(dataset, alpha=0.1 * unit, memory_limit=LIMIT, checkpoint=Memory((old, arrays)))


def test_the_number_of_workers_does_not_matter():
    dataset, chunk_bytes, unit = chunked("digits")
    options = {"alpha": 0.05 * unit, "memory_limit": LIMIT, "tol": 1e-4, "chunk_bytes": chunk_bytes}
    runs = [solve(dataset, engine=ThreadEngine(n), **options) for n in (1, 2)]
    assert bits(runs[0]) == bits(runs[1])


@pytest.mark.slow
def test_single_precision_scores(monkeypatch):
    monkeypatch.setattr("bigmc.solvers.sparse.memory_plan.SMALL_SCORES", 0)
    X, y, unit = samples("digits")
    found = solve(Dataset.from_arrays(X, y), alpha=0.01 * unit, memory_limit=LIMIT, tol=1e-4)
    assert found.plan.score_dtype == np.float32
    optimum = OPTIMA["digits"][1]
    assert found.certificate.lower <= optimum <= found.objective * (1 + 1e-6)
    assert found.objective - optimum <= 1e-4 * optimum


def test_too_little_memory_is_refused_with_figures():
    dataset, _, _ = chunked("digits")
    with pytest.raises(MemoryLimitError, match=r"sums per class.*give --memory"):
        solve(dataset, alpha=0.1, memory_limit=20_000)


def test_pass_limit_stops_without_converging():
    X, y, unit = samples("digits")
    found = solve(Dataset.from_arrays(X, y), alpha=0.001 * unit, memory_limit=LIMIT, tol=1e-9, max_passes=2)
    assert not found.converged
    assert found.n_passes <= 2
    assert found.certificate.gap > 1e-9


@pytest.mark.parametrize(
    "wrong", [{"alpha": 0.0}, {"alpha": np.nan}, {"tol": 0.0}, {"step": "long"}, {"loss": "hinge"}]
)
def test_wrong_options_are_refused(wrong):
    X, y = instance("iris")
    with pytest.raises(BigmcError):
        solve(Dataset.from_arrays(X, y), **({"alpha": 0.1, "memory_limit": LIMIT} | wrong))


def test_numbers_that_are_not_finite_are_an_error():
    X, y = instance("iris")
    X[3, 1] = np.nan
    with pytest.raises(DataError, match="finite"):
        solve(Dataset.from_arrays(X, y), alpha=0.01, memory_limit=LIMIT)


def test_labels_are_needed():
    X, y = instance("iris")
    with pytest.raises(DataError, match="class"):
        solve(Dataset.from_arrays(X, np.zeros(len(y))), alpha=0.1, memory_limit=LIMIT)


def test_a_round_tells_how_far_it_is():
    data = (
        load_digits()
    )  # of all: with fewer than 10,000 entries there are sweeps first, without Newton steps
    seen = []
    found = solve(
        Dataset.from_arrays(data.data, data.target), alpha=0.016, tol=1e-6, memory_limit=10**8,
        progress=lambda p: seen.append(dict(p.facts)),
    )  # fmt: skip
    assert [facts for facts in seen if facts in found.history] == found.history
    between = [facts for facts in seen if facts not in found.history]
    assert len(between) > len(found.history) / 2
    for facts in between:
        assert facts["objective"] >= found.certificate.lower
        assert facts["lower"] <= found.objective
        assert facts["gap"] == pytest.approx(1 - facts["lower"] / facts["objective"], abs=1e-9)
    assert between[-1]["objective"] == pytest.approx(found.objective, rel=1e-5)
