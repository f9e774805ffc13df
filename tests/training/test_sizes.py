"""Ridge models of few features: against LIBLINEAR on the same columns, and `fit --max-features`."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.preprocessing import normalize
from sklearn.svm import LinearSVC
from sparse_runs import solve

import bigmc
from bigmc.budget import MemoryLimitError
from bigmc.engine import ThreadEngine
from bigmc.errors import DataError
from bigmc.model import load_model, verify_model
from bigmc.model.calibration import Calibration
from bigmc.model.rounding import LARGEST_MULTIPLE
from bigmc.options.learners import BoostOptions
from bigmc.solvers.sparse import DualDescent
from bigmc.store.dataset import Dataset
from bigmc.store.weighting import Weighting
from bigmc.training.boosting.rounds import Boosting
from bigmc.training.fit.find_winner import choose_winner
from bigmc.training.fit.fit import Fit
from bigmc.training.fit.request import FitRequest, Splits
from bigmc.training.search.limits import Limits
from bigmc.training.search.search import Search
from bigmc.training.search.sizes import (
    Duals,
    DualsAfter,
    by_norm,
    smallest_good,
    train_with_size,
    with_shared_scale,
)
from bigmc.training.search.trials import Candidate, SearchResult, Size, Trial
from bigmc.training.search.winner import Winner

N_ROWS, N_CLASSES, N_FEATURES = 500, 5, 1500
SPLITS = Splits("train", "test", True)


def counts(seed=4):
    """Counts in which 40 features say which class, and the others say nothing."""
    generator = np.random.default_rng(seed)
    y = generator.integers(0, N_CLASSES, N_ROWS)
    noise = scipy.sparse.random_array((N_ROWS, N_FEATURES), density=0.01, rng=generator, format="lil")
    for row, label in enumerate(y):
        noise[row, label * 8 + generator.integers(0, 8, 2)] = 1.0
    X = noise.tocsr()
    X.data = np.ceil(X.data)
    return X, y


def size_of(share, **fields):
    return Size(
        int(share * 100), share, **{"quality": 0.5, "log_loss": 1.0, **fields}, calibration=Calibration()
    )


def winner_of(max_features):
    return Winner("sparse", Candidate(None), Calibration(), size=size_of(1.0), max_features=max_features)


def test_dual_variables_that_nothing_else_starts_from_are_forgotten():
    X, y = counts()
    data, engine = Dataset.from_arrays(X, y), ThreadEngine(1)
    kept = train_with_size(data, winner_of(60), engine, after=DualsAfter.KEPT).duals
    once = Duals(kept.values, used_once=True)
    model = train_with_size(data, winner_of(60), engine, kept).model
    trained = train_with_size(data, winner_of(60), engine, once)
    np.testing.assert_array_equal(trained.model.coef, model.coef)
    assert kept.values is not None
    assert once.values is None
    assert trained.duals is None


def seen(X, kept):
    """tf-idf rows whose norm counts every other feature with one idf, by scikit-learn."""
    idf = TfidfTransformer().fit(X).idf_
    entries = np.diff(X.tocsc().indptr).astype(float)
    entries[kept] = 0.0
    shared = np.sqrt((entries * idf**2).sum() / entries.sum())
    scale = np.full(X.shape[1], shared)
    scale[kept] = idf[kept]
    return normalize(X @ scipy.sparse.diags_array(scale)).tocsr()[:, kept]


def test_the_kept_features_are_trained_as_by_liblinear():
    X, y = counts()
    data = Dataset.from_arrays(X, y, weighting=Weighting(l2=True, idf=True))
    kept = np.arange(0, N_FEATURES, 7)
    found = DualDescent(with_shared_scale(data, kept), ThreadEngine(1), features=kept)
    found.descend(1.0 / N_ROWS, -1.0, 300)  # the gap of an epoch is an estimate
    Z = seen(X, kept)
    peer = LinearSVC(C=1.0, tol=1e-8, max_iter=100_000).fit(Z, y)
    np.testing.assert_allclose(found.scores(np.arange(N_ROWS)), peer.decision_function(Z), atol=2e-3)


def test_features_that_decide_have_the_largest_norms():
    X, y = counts()
    data = Dataset.from_arrays(X, y)
    found = DualDescent(data, ThreadEngine(1))
    found.descend(1.0 / N_ROWS, 1e-4, 300)
    assert set(by_norm(found)[:40].tolist()) == set(range(40))


def test_the_certificate_is_of_the_kept_features_and_the_rounded_weights(tmp_path):
    X, y = counts()
    data = Dataset.from_arrays(X, y, weighting=Weighting(l2=True))
    model = train_with_size(data, winner_of(60), ThreadEngine(1)).model
    assert len(model.features) <= 60
    multiples = model.coef / model.step
    np.testing.assert_allclose(multiples, np.rint(multiples), atol=1e-4)
    assert np.abs(multiples).max() == pytest.approx(LARGEST_MULTIPLE)
    Z = normalize(X)[:, model.features]
    signs = np.where(np.arange(N_CLASSES) == y[:, None], 1.0, -1.0)
    losses = (np.maximum(1.0 - signs * (Z @ model.coef + model.intercept), 0.0) ** 2).sum()
    objective = losses / N_ROWS + 0.5 / N_ROWS * (model.coef.astype(float) ** 2).sum()
    assert model.objective == pytest.approx(objective, rel=1e-5)
    columns = Dataset.from_arrays(Z, y)
    best = solve(columns, alpha=0.0, ridge=1.0 / N_ROWS, loss="multitask_squared_hinge", fit_intercept=True,
                 tol=1e-6, memory_limit=1 << 30).objective  # fmt: skip
    assert model.certificate["lower"] <= best <= model.objective
    model.save(tmp_path / "m")
    again = load_model(tmp_path / "m")
    np.testing.assert_array_equal(again.coef, model.coef)
    again.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "m").read_bytes()
    assert verify_model(tmp_path / "m") == []


def test_every_wrong_byte_of_a_deflated_file_is_noticed(tmp_path):
    X, y = counts()
    data = Dataset.from_arrays(X, y)
    model = train_with_size(data, winner_of(5), ThreadEngine(1)).model
    model.save(tmp_path / "m")
    raw = (tmp_path / "m").read_bytes()
    for place in range(0, len(raw), 41):
        changed = bytearray(raw)
        changed[place] ^= 0x10
        (tmp_path / "changed").write_bytes(changed)
        assert verify_model(tmp_path / "changed"), place


def test_the_smallest_size_that_loses_nothing_wins():
    curve = (size_of(1.0, quality=0.8), size_of(0.3, quality=0.799), size_of(0.1, quality=0.79))
    assert smallest_good(curve, None, 8000) is curve[1]
    assert smallest_good(curve, 10, 8000) is curve[2]
    assert smallest_good(curve, 5, 8000) is curve[2]
    worse = (curve[0], size_of(0.3, quality=0.799, log_loss=1.1))
    assert smallest_good(worse, None, 8000) is curve[0]
    little = (curve[0], size_of(0.3, quality=0.8, log_loss=1.005))
    assert smallest_good(little, None, 8000) is little[1]
    assert smallest_good(little, None, 500) is little[0]  # so few rows cannot say that so little is lost
    lucky = (size_of(1.0, quality=0.8), size_of(0.1, quality=0.802, log_loss=1.02))
    assert smallest_good(lucky, None, 500) is lucky[0]


def documents(n=900):
    generator = np.random.default_rng(7)
    labels = generator.choice(list("abc"), n)
    texts = [
        " ".join([f"{label}{generator.integers(5)}", *(f"w{k}" for k in generator.integers(0, 2000, 8))])
        for label in labels
    ]
    return pd.DataFrame({"text": texts, "label": labels})


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_fit_of_few_features_keeps_the_quality(tmp_path):
    table = documents()
    options = {"text": "text", "label": "label", "analyzer": "word", "ngrams": (1, 1), "memory_limit": "1GB"}
    small = bigmc.fit(table, tmp_path / "small", max_features=20, **options)
    assert small["n_nonzero_features"] <= 20
    assert [size["n_features"] for size in small["sizes"]][1] == 20
    assert small["sizes"][1]["quality"] >= small["sizes"][0]["quality"] - 0.005
    assert small["test"]["accuracy"] > 0.9
    whole = bigmc.fit(table, tmp_path / "whole", **options)
    assert (tmp_path / "whole").stat().st_size > (tmp_path / "small").stat().st_size
    assert whole["sizes"][0]["quality"] - 0.002 <= max(size["quality"] for size in whole["sizes"])
    fresh = documents(1200)[900:]
    assert np.mean(bigmc.load_model(tmp_path / "small").predict(fresh["text"]) == fresh["label"]) > 0.9
    (tmp_path / "again.dataset").symlink_to(tmp_path / "small.dataset")
    (tmp_path / "again.fit").mkdir()
    bigmc.fit(table, tmp_path / "again", max_features=20, **options)
    assert (tmp_path / "again").read_bytes() == (tmp_path / "small").read_bytes()
    bigmc.report(tmp_path / "small", tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert "Accuracy and size" in page


def test_features_that_cannot_be_chosen_are_refused(tmp_path):
    table = documents(300)
    with pytest.raises(DataError, match="max_features is 0"):
        bigmc.fit(table, tmp_path / "m", text="text", label="label", analyzer="word", ngrams=(1, 1),
                  max_features=0, memory_limit="1GB")  # fmt: skip
    data = bigmc.open_dataset(tmp_path / "m.dataset")
    limits = Limits(DualDescent.memory(data) - 1, max_features=9)
    with pytest.raises(MemoryLimitError, match="choosing features"):
        Fit(FitRequest(data, tmp_path / "n", SPLITS, limits, ThreadEngine(1))).run()


def test_cross_validated_sizes_are_judged_and_calibrated_on_all_rows():
    """The first size has all features: it is the best candidate again, whose weights are rounded."""
    rng = np.random.default_rng(8)
    labels = rng.integers(0, 3, 400)
    X = scipy.sparse.csr_array((rng.random((400, 1_500)) < 0.01) * rng.random((400, 1_500)))
    X = scipy.sparse.csr_array(
        X + scipy.sparse.csr_array((np.ones(400), (np.arange(400), 10 * labels)), shape=X.shape)
    )
    search = Search(Dataset.from_arrays(X, labels), ThreadEngine(1), Limits(1 << 30))
    assert search.validation.n_held_out == 400
    whole = search.trial_of(search.first)
    first, *smaller = search.sizes(search.first)
    assert abs(first.quality - whole.quality) <= 2 / 400
    assert first.log_loss == pytest.approx(whole.log_loss, rel=0.05)
    for size in smaller:
        assert size.quality * 400 == pytest.approx(round(size.quality * 400), abs=1e-9)
    assert len({size.calibration for size in (first, *smaller)}) == 1 + len(smaller) > 1


@pytest.mark.parametrize(("few", "learner"), [(0.8, "sparse"), (0.6, "boost")])
def test_boosting_must_be_better_than_the_best_number_of_features(few, learner, tmp_path):
    data = bigmc.ingest(np.eye(4), tmp_path / "d", label=[0, 1, 0, 1], split={"train": 1.0})
    whole, boosted = (
        Trial(Candidate(None), quality, loss, Calibration(), 4) for quality, loss in ((0.5, 0.9), (0.7, 0.6))
    )
    sizes = Size.whole(whole), Size(1, 0.25, few, 1.2 - few, Calibration())
    searched = SearchResult((whole,), whole, 1000, 1000, "", sizes)
    request = FitRequest(data, tmp_path / "m", SPLITS, Limits(10**9), ThreadEngine(1))
    winner, rivals = choose_winner(request, searched, Boosting(BoostOptions(), boosted, None), None)
    assert winner.kind == learner
    assert rivals == {"sparse": few, "boost": 0.7}
