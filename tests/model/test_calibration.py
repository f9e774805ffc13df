"""Probabilities: temperature scaling against a search over the scale, and what models say of them."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, log_expit, log_softmax, softmax
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

import bigmc
from bigmc.errors import DataError, ModelError
from bigmc.model import load_model
from bigmc.model.calibration import Calibration
from bigmc.model.fit_calibration import fit_shares, fit_sigmoid, fit_temperature

RNG = np.random.default_rng(3)


def drawn(scale, n=4000, n_classes=5):
    """Return scores and labels drawn with the probabilities of the scaled scores."""
    scores = RNG.normal(size=(n, n_classes))
    chances = softmax(scale * scores, axis=1)
    return scores, np.array([RNG.choice(n_classes, p=p) for p in chances])


@pytest.mark.parametrize("scale", [0.3, 2.5])
def test_the_scale_has_the_least_log_loss(scale):
    scores, codes = drawn(scale)
    found = fit_temperature(scores, codes)
    grid = np.geomspace(0.05, 20, 2001)
    rows = np.arange(len(codes))
    losses = [-log_softmax(s * scores, axis=1)[rows, codes].mean() for s in grid]
    assert found.scale == pytest.approx(grid[np.argmin(losses)], rel=0.01)
    assert found.scale == pytest.approx(scale, rel=0.15)


def test_the_sigmoid_is_logistic_regression_of_the_scores():
    scores, _codes = drawn(1.0)
    is_label = RNG.random(scores.shape) < 1 / (1 + np.exp(-(3 * scores - 1)))
    found = fit_sigmoid(scores, is_label)
    peer = LogisticRegression(C=np.inf, tol=1e-8).fit(scores.reshape(-1, 1), is_label.ravel())
    assert found.scale == pytest.approx(peer.coef_[0, 0], rel=1e-3)
    assert found.offset == pytest.approx(peer.intercept_[0], rel=1e-3)


def blobs(n=600):
    codes = RNG.integers(0, 3, n)
    return RNG.normal(size=(n, 6)) + 1.5 * np.eye(3, 6)[codes], np.array(["a", "b", "c"])[codes]


@pytest.mark.parametrize(
    "learner",
    [
        bigmc.SparseClassifier(alpha=1e-3, tol=1e-2),
        bigmc.MultiBoostClassifier(C=100.0, n_rounds=10),
    ],
)  # fmt: skip
def test_a_calibrated_model_keeps_its_probabilities(learner, tmp_path):
    X, y = blobs()
    model = learner.fit(X[:300], y[:300])
    assert not hasattr(model, "predict_proba")
    model.calibrate(X[300:450], y[300:450])
    chances = model.predict_proba(X[450:])
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    np.testing.assert_array_equal(model.classes_[chances.argmax(axis=1)], model.predict(X[450:]))
    peer = LogisticRegression().fit(X[:450], y[:450]).predict_proba(X[450:])
    assert log_loss(y[450:], chances) < log_loss(y[450:], peer) + 0.15
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(bigmc.load_model(tmp_path / "m").predict_proba(X[450:]), chances)
    assert load_model(tmp_path / "m").info()["calibration"]["scale"] > 0


def test_the_link_that_info_names_gives_the_probabilities_of_label_sets():
    X, y = blobs()
    sets = np.stack([y == c for c in np.unique(y)], axis=1).astype(int)
    sets[::3, 0] = 1
    model = bigmc.SparseClassifier(alpha=1e-3, tol=1e-2, loss="multitask_squared_hinge").fit(
        X[:300], sets[:300]
    )
    chances = model.calibrate(X[300:450], sets[300:450]).predict_proba(X[450:])
    named = model.model_.info()["calibration"]
    assert named["link"] == "sigmoid"
    scores = named["scale"] * model.decision_function(X[450:]) + named["offset"]
    np.testing.assert_allclose(chances, 1.0 / (1.0 + np.exp(-scores)))


def test_logistic_regression_has_its_own_probabilities():
    X, y = blobs()
    model = bigmc.SparseClassifier(alpha=1e-6, ridge=1e-2, loss="log_loss", fit_intercept=True, tol=1e-6)
    peer = LogisticRegression(C=1 / (1e-2 * len(X)), tol=1e-8).fit(X, y)
    np.testing.assert_allclose(model.fit(X, y).predict_proba(X), peer.predict_proba(X), atol=2e-3)


def test_scores_that_are_no_probabilities_are_refused(tmp_path):
    X, y = blobs()
    model = bigmc.SparseClassifier(alpha=1e-3).fit(X, y)
    with pytest.raises(AttributeError) as error:
        model.predict_proba(X)
    assert "not calibrated" in str(error.value.__cause__)
    model.save(tmp_path / "m")
    with pytest.raises(ModelError, match="not calibrated"):
        bigmc.predict(tmp_path / "m", X, tmp_path / "p.parquet", proba=True)


def test_the_minimax_rule_is_a_probability():
    X, y = blobs(100)
    model = bigmc.MinimaxRiskClassifier(lambda0=0.1, tol=1e-2).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)


@pytest.mark.parametrize("broken", [{"scale": -1.0}, {"label_noise": 1.0}, {"label_noise": np.nan}])
def test_a_broken_calibration_is_refused(broken):
    with pytest.raises(ModelError):
        Calibration(**broken)


@pytest.mark.parametrize("fit", [fit_temperature, fit_shares])
def test_labels_drawn_at_random_are_found(fit):
    """A third of the labels are drawn at random; the peer searches from many starts, without gradients."""
    scores, codes = drawn(4.0, 6000)
    random = RNG.random(len(codes)) < 1 / 3
    codes[random] = RNG.integers(0, 5, random.sum())
    found, rows = fit(scores, codes), np.arange(len(codes))
    assert found.label_noise == pytest.approx(1 / 3, abs=0.04)

    def loss(x):
        noise = expit(x[1])
        mixed = (1 - noise) * softmax(np.exp(x[0]) * scores, axis=1) + noise / 5
        return -np.log(mixed[rows, codes]).mean()

    starts = [(scale, noise) for scale in (0.0, 1.0, 2.0) for noise in (-3.0, 0.0)]
    free = min(minimize(loss, start, method="Nelder-Mead").fun for start in starts)
    assert log_loss(codes, found.probabilities(scores)) < free + 1e-4
    np.testing.assert_allclose(found.probabilities(scores).sum(axis=1), 1.0)
    assert Calibration.from_dict(found.to_dict()) == found


def test_labels_that_follow_the_scores_are_not_called_random():
    scores, codes = drawn(2.0, 6000)
    found = fit_temperature(scores, codes)
    assert found.label_noise < 0.02
    assert "label_noise" not in Calibration(2.0).to_dict()


def test_shares_of_sigmoids_are_found_again_and_never_worse_than_a_scale():
    generator = np.random.default_rng(8)
    scores = generator.normal(-1.0, 1.0, size=(4000, 5))
    shares = 1 / (1 + np.exp(-(3 * scores + 1)))
    chances = shares / shares.sum(axis=1, keepdims=True)
    codes = np.array([generator.choice(5, p=p) for p in chances])
    found = fit_shares(scores, codes)
    assert (found.scale, found.offset) == (pytest.approx(3, rel=0.15), pytest.approx(1, abs=0.3))
    np.testing.assert_allclose(found.probabilities(scores), chances, atol=0.05)
    assert Calibration.from_dict(found.to_dict()) == found
    scores, codes = drawn(1.0)
    single, double = fit_temperature(scores, codes), fit_shares(scores, codes)
    losses = [log_loss(codes, c.probabilities(scores)) for c in (single, double)]
    assert losses[1] <= losses[0] + 1e-6


def test_a_power_of_sigmoids_is_found_again():
    """Labels are drawn with the shares of sigmoids to the power 3; the peer searches without gradients."""
    generator = np.random.default_rng(9)
    scores = generator.normal(0.0, 1.0, size=(20_000, 4))
    shares = expit(4 * scores + 1) ** 3
    chances = shares / shares.sum(axis=1, keepdims=True)
    codes = (generator.random((len(scores), 1)) > chances.cumsum(axis=1)).sum(axis=1)
    found = fit_shares(scores, codes)
    np.testing.assert_allclose(found.probabilities(scores), chances, atol=0.05)

    def loss(x):
        logits = np.exp(x[2]) * log_expit(np.exp(x[0]) * scores + x[1])
        return -log_softmax(logits, axis=1)[np.arange(len(codes)), codes].mean()

    free = minimize(loss, [1.0, 0.5, 0.5], method="Nelder-Mead", options={"xatol": 1e-4, "fatol": 1e-7})
    assert loss([np.log(found.scale), found.offset, np.log(found.power)]) < free.fun + 1e-4
    assert found.power > 1.5
    assert Calibration.from_dict(found.to_dict()) == found


def test_models_calibrated_before_there_was_a_power_still_answer():
    scores, _ = drawn(1.0, n=20)
    old = Calibration.from_dict({"scale": 2.0, "offset": 0.5, "link": "sigmoid"})
    shares = expit(2.0 * scores + 0.5)
    expected = shares / shares.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(old.probabilities(scores), expected)


def test_models_calibrated_by_a_scale_alone_still_answer():
    scores, _ = drawn(1.0, n=20)
    old = Calibration.from_dict({"scale": 2.0, "offset": 0.0})
    np.testing.assert_allclose(old.probabilities(scores), softmax(2.0 * scores, axis=1))


@pytest.mark.parametrize("fit", [fit_temperature, fit_shares])
@pytest.mark.parametrize("n", [40, 1000])
def test_few_rows_without_a_mistake_make_no_certainty(fit, n):
    """The chance of what happened n times of n is (n + 1) / (n + 2) by Laplace's rule of succession."""
    codes = np.arange(n) % 3
    scores = np.where(np.arange(3) == codes[:, np.newaxis], 1.0, -1.0)
    chances = fit(scores, codes).probabilities(scores).max(axis=1)
    np.testing.assert_allclose(1 - chances, 1 / (n + 2), rtol=0.05)


@pytest.mark.parametrize("n", [40, 5000])
def test_label_sets_without_a_mistake_make_no_certainty(n):
    """As above, and as logistic regression of every pair of a row and a class, given with both answers."""
    is_label = np.arange(n)[:, np.newaxis] % 3 == np.arange(3)
    scores = np.where(is_label, 1.0, -1.0)
    found = fit_sigmoid(scores, is_label).memberships(scores)
    np.testing.assert_allclose(1 - found[is_label], 1 / (n + 2), rtol=0.05)
    np.testing.assert_allclose(found[~is_label], 1 / (2 * n + 2), rtol=0.05)

    scores = scores + RNG.normal(size=scores.shape) / 5
    right = np.where(is_label, (n + 1) / (n + 2), 1 / (2 * n + 2)).ravel()
    twice = np.tile(scores.reshape(-1, 1), (2, 1))
    answers = np.repeat([True, False], right.size)
    peer = LogisticRegression(C=np.inf, tol=1e-8, max_iter=1000)
    peer.fit(twice, answers, sample_weight=np.concatenate([right, 1 - right]))
    found = fit_sigmoid(scores, is_label)
    assert found.scale == pytest.approx(peer.coef_[0, 0], rel=0.02)
    assert found.offset == pytest.approx(peer.intercept_[0], abs=0.02 * found.scale)


@pytest.mark.parametrize(
    ("sets", "y", "message"),
    [
        (False, [0, 1], "shape"),
        (False, None, "no labels"),
        (True, [[0, 1, 1]] * 9, "shape"),
        (True, [[0, 1]] * 60, "shape"),
        (True, [1] * 60, "shape"),
    ],
)
def test_labels_to_calibrate_with_fit_the_rows(sets, y, message):
    X, labels = blobs(60)
    classes = np.unique(labels)
    model = bigmc.SparseClassifier().fit(X, labels[:, np.newaxis] == classes if sets else labels)
    with pytest.raises(DataError, match=message):
        model.calibrate(X, y)
    right = labels[:, np.newaxis] == classes if sets else list(labels)
    assert model.calibrate(X, right).predict_proba(X).shape == (60, 3)


def test_where_labels_are_noisy_the_fit_ends_near_the_least_log_loss():
    generator = np.random.default_rng([2, 3, 6])
    scores, codes = generator.standard_normal((3200, 3)), generator.integers(0, 3, 3200)
    rows = np.arange(3200)
    scores[rows, codes] += 6
    codes = np.where(generator.random(3200) < 0.3, generator.integers(0, 3, 3200), codes)

    def loss(parameters):
        scale, offset, power, noise = parameters
        curve = Calibration(np.exp(scale), offset, "power of a sigmoid", np.exp(power), expit(noise))
        return -np.log(curve.probabilities(scores)[rows, codes]).mean()

    starts = [(0.0, -5.0, 0.0, -1.0), (1.0, -15.0, 1.0, -1.0)]
    least = min(minimize(loss, start, method="Nelder-Mead").fun for start in starts)
    found = fit_shares(scores, codes)
    own = -np.log(found.probabilities(scores)[rows, codes]).mean()
    assert found.label_noise == pytest.approx(0.3, abs=0.02)
    assert own == pytest.approx(least, abs=5e-4)
