"""Candidates that turn out to be of no use, and columns that are written anew without them."""

from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse
from sparse_runs import solve
from test_chunk_rounds import PLAN, Stopping, replace, run

from bigmc.engine import ThreadEngine
from bigmc.objectives import objective
from bigmc.solvers.loop import RunContext, load
from bigmc.solvers.sparse.chunks import candidate_columns as columns_module
from bigmc.solvers.sparse.chunks.candidate_columns import CandidateColumns
from bigmc.solvers.sparse.chunks.certificate import Certifier
from bigmc.solvers.sparse.chunks.evaluation import evaluate_by_columns
from bigmc.solvers.sparse.chunks.rounds import ChunkRounds
from bigmc.solvers.sparse.chunks.state import ChunkState
from bigmc.solvers.sparse.chunks.task import ChunkTask
from bigmc.solvers.sparse.coefficients import Coefficients
from bigmc.solvers.sparse.feature_sets import most_wanted
from bigmc.solvers.sparse.scratch import spill as spill_module
from bigmc.solvers.sparse.scratch.row_scales import Norms, exact_rows
from bigmc.solvers.sparse.scratch.spill import Spill
from bigmc.solvers.sparse.state import Evaluated
from bigmc.solvers.sparse.steps.descent import Descent
from bigmc.store.dataset import Dataset

#: Space for all features, and for a part of their columns in memory.
ROOMY = replace(PLAN, most_candidates=400, free_bytes=110_000, chunk_bytes=40_000)


def noisy(n_features=400):
    """Samples whose classes depend on 20 of many features."""
    generator = np.random.default_rng(0)
    X = scipy.sparse.random(3000, n_features, 0.05, format="csr", rng=generator)
    X.data = generator.integers(1, 4, X.nnz).astype(np.int8)
    signal = 2.0 * generator.standard_normal((20, 5))
    y = np.argmax(X[:, :20] @ signal + generator.gumbel(size=(3000, 5)), axis=1)
    return Dataset.from_arrays(X, y, shard_rows=700)


def opened(dataset, n_chunks, most_held):
    return Spill(dataset, None, n_chunks, 0, None, exact_rows(dataset), most_held)


def task_of(dataset):
    descent = Descent("line_search", False, 0)
    minimised, dtype = objective("squared_hinge", "l1/l2"), np.dtype(float)
    return ChunkTask(dataset, None, minimised, 0.1, 1e-3, descent, dtype, RunContext(ThreadEngine(1)))


@pytest.mark.parametrize("n_chunks", [2, 5])
@pytest.mark.parametrize("most_held", [0, 3000, 1 << 20])
def test_columns_that_are_moved_are_those_written_from_the_data(n_chunks, most_held):
    dataset = noisy()
    kept = np.array([0, 3, 7, 11, 59, 200, 201, 399])
    old, moved, expected = opened(dataset, 4, 20_000), *(opened(dataset, n_chunks, most_held) for _ in "12")
    try:
        old.add(np.arange(3, 390, 4))
        old.add(np.array([0, 1, 200, 201, 399]))
        held, in_file = old.column_bytes
        assert held > 0
        old.n_bytes = 0
        moved.n_bytes = 0
        moved.move(old, kept)
        expected.add(kept)
        layer, same = moved.layers[0], expected.layers[0]
        assert moved.n_bytes == in_file + moved.column_bytes[1]
        assert layer.places.keys() == same.places.keys()
        for s, places in layer.places.items():  # where arrays lie, in the file after rows and labels
            np.testing.assert_array_equal(places.starts, same.places[s].starts)
            np.testing.assert_array_equal(places.rows, same.places[s].rows)
        for number in range(n_chunks):
            columns, written = (spill.chunk(number).held[0] for spill in (moved, expected))
            for name in ("features", "indptr", "indices", "data"):
                np.testing.assert_array_equal(getattr(columns, name), getattr(written, name))
    finally:
        for spill in (old, moved, expected):
            spill.close()


def test_candidates_without_use_are_dropped():
    dataset, checkpoint = noisy(), Stopping(1)
    best = solve(dataset, alpha=0.1, tol=1e-6, memory_limit=1 << 30).certificate
    with pytest.raises(KeyboardInterrupt):
        run(dataset, ROOMY, checkpoint=checkpoint, alpha=0.1)
    saved = load(RunContext(ThreadEngine(1), checkpoint), {"n": dataset.n_samples})
    first = ChunkState.unpack(saved, ROOMY.width)
    last, certificate = run(dataset, ROOMY, alpha=0.1)
    assert certificate.gap <= 1e-3
    assert certificate.lower <= best.upper * (1 + 1e-9)
    assert best.lower <= certificate.upper * (1 + 1e-9)
    assert sum(map(len, last.layers)) < 0.6 * sum(map(len, first.layers))
    assert last.n_chunks < first.n_chunks


@cache
def uninterrupted():
    dataset, options = noisy(), {"alpha": 0.1, "tol": 1e-6}
    return dataset, options, run(dataset, ROOMY, **options)[0]


@pytest.mark.exhaustive(keep=1)
@pytest.mark.parametrize("saves", [2, 4, 5, 7])
def test_runs_resumed_before_and_after_give_the_same_bits(saves):
    dataset, options, whole = uninterrupted()
    checkpoint = Stopping(saves)
    with pytest.raises(KeyboardInterrupt):
        run(dataset, ROOMY, checkpoint=checkpoint, **options)
    again, _ = run(dataset, ROOMY, checkpoint=checkpoint, threads=1, **options)
    assert again.coef.rows.tobytes() == whole.coef.rows.tobytes()
    assert again.history == whole.history


@pytest.mark.parametrize("named_by_some_shards", [False, True])
def test_a_pass_writes_the_columns_of_further_candidates(named_by_some_shards):
    dataset, first, further = noisy(), np.array([2, 5]), np.array([0, 7, 11, 399])
    task, norms = task_of(dataset), []
    found, expected = (opened(dataset, 4, 0) for _ in "12")
    try:
        for features in (first, further):
            expected.add(features)
        found.add(first)
        anchor = evaluate_by_columns(task, found, Coefficients.zeros(task.width), np.zeros(dataset.n_classes))
        name = (lambda estimates: norms.append(estimates) or further) if named_by_some_shards else further
        certified = Certifier(task, PLAN).certify(found, anchor, np.arange(20), Norms.EXACT, 1.0, name)
        assert certified.written.tolist() == further.tolist()
        assert found.features.tolist() == [*first, *further]
        for number in range(4):
            for one, other in zip(found.chunk(number).held, expected.chunk(number).held, strict=True):
                for name in ("features", "indptr", "indices", "data"):
                    np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    finally:
        found.close()
        expected.close()
    assert all(estimates.shape == (400,) for estimates in norms)
    assert len(norms) == named_by_some_shards


def test_gradients_that_a_pass_keeps_fit_beside_the_columns_in_memory():
    dataset = noisy(800)
    plan = replace(PLAN, free_bytes=100_000, worker_bytes=1000, chunk_bytes=40_000)
    columns = CandidateColumns(task_of(dataset), plan)
    state = ChunkState.zeros(8, 5)
    state.layers = [np.arange(28)]
    try:
        columns.write(state, lambda: exact_rows(dataset))
        held, known = columns.spill.held_bytes, len(columns.known_features(state))
    finally:
        columns.close()
    workers = plan.n_workers(held, known)
    assert held > 5000
    assert known < dataset.n_features
    # every worker has gradients and curvatures of its own, and there are the sums and what comes in
    sums = known * 8 * (plan.n_kept + 1) * (workers + 1)
    assert held + workers * plan.worker_bytes + sums <= plan.free_bytes


def test_features_of_large_bounds_keep_their_gradients_though_these_are_small():
    dataset = noisy()
    plan = replace(PLAN, free_bytes=12_000)
    task = task_of(dataset)
    columns = CandidateColumns(task, plan)
    n_features = dataset.n_features
    most = plan.most_gradients(0)
    assert 20 < most < n_features / 2
    doubted = np.sort(np.random.default_rng(3).choice(n_features, 20, replace=False))
    state = ChunkState(Coefficients.zeros(8), np.zeros(5), doubted=doubted)
    state.norms = np.full(n_features, 0.9 * task.alpha, np.float32)
    state.norms[doubted] = 0.01 * task.alpha
    unknown = np.setdiff1d(np.arange(n_features), doubted)[: most - 10]
    state.norms[unknown] = 2 * task.alpha
    known = columns.known_features(state)
    assert len(known) == most
    assert np.isin(unknown, known).all()  # they may need weights
    assert np.isin(known, np.concatenate([unknown, doubted])).all()


@pytest.mark.parametrize("n", [0, 1, 7, 40, 1000])
def test_the_most_wanted_features_are_those_that_sorting_puts_first(n):
    rng = np.random.default_rng(n)
    ranks = rng.integers(-1, 12, 60).astype(np.float32)  # many of them are equal
    ranks[::17] = np.inf
    order = np.lexsort((np.arange(60), -ranks))
    expected = np.sort(order[ranks[order] >= 0][:n])
    np.testing.assert_array_equal(most_wanted(ranks.copy, n), expected)


def test_what_is_missing_waits_where_what_was_just_written_violates_more_and_the_next_pass_has_room():
    dataset = noisy()
    plan = replace(ROOMY, free_bytes=100 << 20, chunk_bytes=1 << 20)
    columns, alpha = CandidateColumns(task_of(dataset), plan), task_of(dataset).alpha
    columns._spill = opened(dataset, 4, 0)
    columns._spill.add(np.arange(10))
    state = ChunkState.zeros(8, 5)
    state.layers, written = [np.arange(10), np.array([40, 41])], np.array([40, 41])
    state.norms = np.zeros(dataset.n_features, np.float32)
    known, gradients = np.arange(30), SimpleNamespace(signed=False)
    certified = SimpleNamespace(written=written, sums=gradients)
    try:
        assert not columns.missing(state, known, certified)  # nothing is
        state.norms[5] = 9 * alpha  # a candidate
        state.norms[[200, 300]] = 5 * alpha  # bounds, not gradients
        assert not columns.missing(state, known, certified)
        state.norms[[20, 21]] = 1.25 * alpha
        assert columns.missing(state, known, certified)
        state.norms[[40, 41]] = 1.45 * alpha
        assert columns.missing(state, known, certified)
        state.norms[[40, 41]] = 1.55 * alpha
        assert not columns.missing(state, known, certified)
        state.norms[:10] = np.maximum(state.norms[:10], 0.7 * alpha)
        columns._plan = replace(plan, most_candidates=14)  # both fit beside the twelve
        assert not columns.missing(state, known, certified)
        columns._plan = replace(plan, most_candidates=13)
        assert columns.missing(state, known, certified)
        state.norms[3] = 0.5 * alpha  # of no use any more
        assert not columns.missing(state, known, certified)
        columns._plan = plan
        # of two classes all gradients are known: none waits
        gradients.signed = True
        assert columns.missing(state, known, certified)
    finally:
        columns.close()


def test_few_features_that_wait_are_written_at_once_where_little_is_read_for_them():
    dataset = noisy()
    columns = CandidateColumns(task_of(dataset), replace(ROOMY, free_bytes=100 << 20, chunk_bytes=1 << 20))
    columns._spill = opened(dataset, 4, 0)
    columns._spill.add(np.arange(10))
    state = ChunkState(Coefficients.zeros(8), np.zeros(5), layers=[np.arange(10)], history=[{}])
    state.norms = np.full(dataset.n_features, 2 * columns._task.alpha, np.float32)
    try:
        assert not len(columns.few_waiting(state))  # bounds, none of them known
        for doubted, few in (([5, 60, 61, 90], [60, 61, 90]), ([60, 200], []), ([20], [20])):
            state.doubted = np.array(doubted)
            assert columns.few_waiting(state).tolist() == few
        columns._plan = replace(columns._plan, most_candidates=10)
        assert not len(columns.few_waiting(state))
    finally:
        columns.close()


@pytest.mark.exhaustive
def test_features_that_wait_are_candidates_before_the_next_round(monkeypatch):
    dataset, left_out, waited, after, one_round = noisy(), [], [], {}, ChunkRounds._round
    choose, likely, few_waiting = (
        getattr(CandidateColumns, name) for name in ("choose", "likely", "few_waiting")
    )

    def first_ten(columns, state, features):
        return choose(columns, state, features) if state.history else [np.arange(10)]

    def without_one(columns, state, norms):
        found = likely(columns, state, norms)
        left_out.extend(found[np.argsort(-norms[found])][2 * len(left_out) : 2][-1:])  # not the largest
        return np.setdiff1d(found, left_out)

    def noted(columns, state):
        waited.append(few_waiting(columns, state))
        return waited[-1]

    def round_of(rounds):
        after.setdefault(len(rounds.state.history), np.concatenate(rounds.state.layers))
        one_round(rounds)

    for name, method in (("choose", first_ten), ("likely", without_one), ("few_waiting", noted)):
        monkeypatch.setattr(CandidateColumns, name, method)
    monkeypatch.setattr(ChunkRounds, "_round", round_of)
    monkeypatch.setattr(CandidateColumns, "_fits", lambda *_: True)
    monkeypatch.setattr(columns_module, "_AT_ONCE", 1.0)
    plan = replace(PLAN, most_candidates=400, free_bytes=10 << 20, chunk_bytes=20_000)
    state, certificate = run(dataset, plan, alpha=0.1, tol=1e-5)
    best = solve(dataset, alpha=0.1, tol=1e-6, memory_limit=1 << 30).certificate
    assert len(left_out) == 1
    assert np.isin(left_out, waited[0]).all()
    assert np.isin(waited[0], after[1]).all()
    assert np.isin(left_out, state.coef.features).all()
    assert certificate.gap <= 1e-5
    assert certificate.lower <= best.upper * (1 + 1e-9)
    assert best.lower <= certificate.upper * (1 + 1e-9)


@pytest.mark.parametrize("piece", [1 << 18, 2000, 700])
@pytest.mark.parametrize("features", [[17], [0, 399], [*range(0, 400, 9)], [5, 6, 7, 100, 101, 350]])
def test_no_more_is_decoded_for_columns_than_is_said_before(piece, features, monkeypatch):
    monkeypatch.setattr(spill_module, "PIECE_ENTRIES", piece)
    dataset, features = noisy(), np.array(features)
    written = opened(dataset, 4, 1 << 20)
    try:
        said, written.n_bytes = written.most_decoded(features), 0
        written.add(features)
        decoded = written.n_bytes // dataset.entry_bytes
        assert dataset.column_nnz(features).sum() <= decoded <= said <= dataset.nnz
    finally:
        written.close()


def test_candidates_that_are_dropped_do_not_wait_for_what_they_violated_in_the_last_pass():
    dataset, layer, kept = noisy(), np.arange(10), np.array([*range(7), 9])
    rounds = ChunkRounds(task_of(dataset), replace(ROOMY, free_bytes=100 << 20, chunk_bytes=1 << 20))
    rounds._columns._spill = opened(dataset, 4, 0)
    rounds._columns._spill.add(layer)
    rounds._columns.worth_keeping = lambda state: kept
    alpha, coef = rounds._task.alpha, Coefficients(np.array([9]), np.ones((1, 8)))
    gradient = np.zeros((10, 8))
    gradient[:7, 0] = 0.7 * alpha
    anchor = Evaluated(coef, np.zeros(5), 1.0, gradient, np.ones(10), np.zeros(5), 1.0)
    rounds.state = ChunkState(coef, np.zeros(5), layers=[layer], n_chunks=4, anchor=anchor)
    rounds.state.history, rounds.state.doubted = [{}], np.array([50])
    rounds.state.norms = np.full(dataset.n_features, 2 * alpha, np.float32)
    try:
        rounds._drop_candidates()
        assert rounds.state.layers[0].tolist() == kept.tolist()
        assert rounds.state.doubted.tolist() == [7, 8, 50]
        assert rounds._columns.waiting(rounds.state).tolist() == [50]
    finally:
        rounds._columns.close()


def test_candidates_of_no_use_make_place_for_those_that_the_next_pass_is_to_write():
    dataset, layer = noisy(), np.arange(10)
    task, plan = task_of(dataset), replace(ROOMY, free_bytes=100 << 20, chunk_bytes=1 << 20)
    columns = CandidateColumns(task, plan)
    columns._spill = opened(dataset, 4, 1 << 20)
    columns._spill.add(layer)  # all in memory: there is no other reason to write anything anew
    gradient = np.zeros((10, task.width))
    gradient[:7] = task.alpha
    coef, norms = Coefficients(np.array([9]), np.ones((1, 8))), np.zeros(dataset.n_features, np.float32)
    anchor = Evaluated(coef, np.zeros(5), 1.0, gradient, np.ones(10), np.zeros(5), 1.0)
    state = ChunkState(coef, np.zeros(5), layers=[layer], n_chunks=4, anchor=anchor)
    state.history, state.norms, state.doubted = [{}], norms, np.array([2, 50, 60])
    try:
        norms[70] = 9 * task.alpha  # a bound: nothing says that it violates
        norms[[2, 50, 60]] = 2 * task.alpha
        assert columns.waiting(state).tolist() == [50, 60]
        assert columns.worth_keeping(state) is None  # there are places
        columns._plan = replace(plan, most_candidates=11)
        assert columns.worth_keeping(state).tolist() == [*range(7), 9]
        norms[60] = task.alpha  # one place is enough
        assert columns.worth_keeping(state) is None
        columns._plan = replace(plan, most_candidates=11, free_bytes=20_000)
        assert not len(columns.waiting(state))  # the next pass cannot write any
    finally:
        columns.close()


@pytest.mark.parametrize(("most", "found"), [(400, [250, 300, 301]), (5, [300, 301]), (3, [])])
def test_features_of_large_bounds_become_candidates_where_there_is_memory_for_them(most, found):
    dataset = noisy()
    columns, alpha = CandidateColumns(task_of(dataset), replace(PLAN, most_candidates=most)), 0.1
    state = ChunkState(Coefficients(np.array([2]), np.ones((1, 8))), np.zeros(5))
    state.norms = np.zeros(dataset.n_features, np.float32)
    state.norms[[3, 4, 5]] = [3 * alpha, 0.9 * alpha, 0.1 * alpha]  # known, of which two are candidates
    state.norms[[250, 300, 301, 302]] = [1.5 * alpha, 2 * alpha, 5 * alpha, 0.9 * alpha]
    known = np.array([2, 3, 4, 5])
    assert columns.with_doubted(state, known).tolist() == [*known, *found]


def test_candidates_that_are_too_many_for_sweeps_are_in_one_layer():
    """Stochastic steps take over, which go along one layer of increasing features."""
    dataset = noisy()
    plan = replace(ROOMY, most_candidates=12)
    columns = CandidateColumns(task_of(dataset), plan)
    weights = Coefficients(np.arange(100, 110), np.ones((10, 8)))
    state = ChunkState(weights, np.zeros(5), history=[{}], layers=[np.arange(100, 111)])
    state.norms = np.zeros(dataset.n_features, np.float32)
    state.norms[[*range(5), *range(100, 111)]] = 2 * columns._task.alpha
    known = np.flatnonzero(state.norms)
    assert [layer.tolist() for layer in columns.choose(state, known[-12:])] == [[*range(100, 111)], [4]]
    assert [layer.tolist() for layer in columns.choose(state, known)] == [known.tolist()]
    assert columns.by_rows(replace(state, layers=[known]))
