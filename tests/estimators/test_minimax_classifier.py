import json
import warnings

import numpy as np
import pytest
import scipy.sparse
from click.testing import CliRunner
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags

import bigmc
from bigmc.cli import app
from bigmc.errors import BigmcError, DataError
from bigmc.store.dataset import Dataset
from bigmc.store.feature_map import FeatureMap, Moments

IRIS = load_iris(return_X_y=True)
MEMORY = {"memory_limit": "400MB"}


@pytest.fixture(scope="module")
def fitted():
    X, y = IRIS
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    model = bigmc.MinimaxRiskClassifier(0.01, tol=1e-8, standardize=True, **MEMORY)
    return model.fit(X, names)


def test_the_certificate_is_the_reference(fitted):
    # Values are in single precision here; the reference is for double.
    assert fitted.certificate_.upper == pytest.approx(0.4037909913, abs=1e-6)
    assert fitted.certificate_.gap == fitted.certificate_.upper - fitted.certificate_.lower
    assert fitted.objective_ == fitted.certificate_.upper


def test_labels_and_scores(fitted):
    X, _ = IRIS
    assert fitted.score(X, fitted.classes_[IRIS[1]]) > 1 - fitted.certificate_.upper
    scores = fitted.decision_function(X)
    standard = StandardScaler().fit_transform(X)
    np.testing.assert_allclose(scores, standard @ fitted.coef_.toarray().T + fitted.intercept_, atol=1e-5)
    assert (fitted.predict(X) == fitted.classes_[scores.argmax(axis=1)]).all()


def test_probabilities_are_those_of_the_minimax_rule(fitted):
    X, y = IRIS
    rule = fitted.predict_proba(X)
    np.testing.assert_allclose(rule.sum(axis=1), 1)
    scores = fitted.decision_function(X)
    # What the bound rests on: h(y|x) ≥ Φ(x, y)ᵀμ − φ on the training samples.
    assert (rule >= scores - fitted.model_.phi - 1e-6).all()
    # So the expected error of the rule on them is below the bound.
    assert 1 - rule[np.arange(len(y)), y].mean() <= fitted.certificate_.upper


def test_randomised_predictions_have_the_probabilities(fitted):
    X, _ = IRIS
    rule = fitted.predict_proba(X)
    random = bigmc.MinimaxRiskClassifier(
        0.01, tol=1e-8, standardize=True, deterministic=False, **MEMORY
    ).fit(X, fitted.classes_[IRIS[1]])  # fmt: skip
    assert (random.predict(X) == random.predict(X)).all()
    draws = np.zeros((150, 3))
    for seed in range(200):
        draws += random.set_params(random_state=seed).predict(X)[:, np.newaxis] == fitted.classes_
    np.testing.assert_allclose(draws / 200, rule, atol=0.16)


def test_save_and_load(fitted, tmp_path):
    fitted.save(tmp_path / "iris.model")
    loaded = bigmc.load_model(tmp_path / "iris.model")
    assert isinstance(loaded, bigmc.MinimaxRiskClassifier)
    np.testing.assert_array_equal(loaded.predict_proba(IRIS[0]), fitted.predict_proba(IRIS[0]))
    assert loaded.get_params()["standardize"]
    assert loaded.certificate_ == fitted.certificate_


def test_two_classes_have_one_score(fitted):
    X, y = IRIS
    model = bigmc.MinimaxRiskClassifier(**MEMORY).fit(X[:100], y[:100])
    assert model.decision_function(X).shape == (150,)
    assert model.predict_proba(X).shape == (150, 2)


def test_sparse_input():
    X, y = load_digits(return_X_y=True)
    dense = bigmc.MinimaxRiskClassifier(tol=1e-6, fit_intercept=False, **MEMORY).fit(X[:200], y[:200])
    sparse = bigmc.MinimaxRiskClassifier(tol=1e-6, fit_intercept=False, **MEMORY).fit(
        scipy.sparse.csr_array(X[:200]), y[:200]
    )
    assert sparse.objective_ == pytest.approx(dense.objective_, abs=1e-6)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"lambda0": -0.1}, "lambda0 is -0.1; give auto or a finite number of at least 0"),
        ({"lambda0": np.nan}, "lambda0 is nan"),
        ({"eps1": 0}, "eps1 is 0"),
        ({"n_max": 0}, "n_max is 0"),
        ({"k_max": 1.5}, "k_max is 1.5"),
        ({"time_limit": -1}, "time_limit is -1"),
        ({"tol": 0}, "tol is 0"),
        ({"fourier": 7}, "fourier is 7; give an even number"),
        ({"gamma": -1.0}, "gamma is -1.0"),
    ],
)
def test_bad_parameters(params, message):
    with pytest.raises(BigmcError, match=message):
        bigmc.MinimaxRiskClassifier(**params).fit(*IRIS)


@pytest.mark.parametrize("options", [{"standardize": True}, {"fourier": 10}])
def test_sparse_input_is_not_standardised(options):
    X, y = IRIS
    cure = r"X is sparse, but standardize and fourier need dense arrays; give X.toarray\(\)"
    with pytest.raises(DataError, match=cure):
        bigmc.MinimaxRiskClassifier(**options).fit(scipy.sparse.csr_array(X), y)
    model = bigmc.MinimaxRiskClassifier(**options, **MEMORY).fit(X, y)
    for answer in (model.predict, model.predict_proba, model.decision_function):
        with pytest.raises(DataError, match=cure):
            answer(scipy.sparse.csr_array(X))
    assert not get_tags(model).input_tags.sparse
    assert get_tags(bigmc.MinimaxRiskClassifier()).input_tags.sparse


def test_the_default_regularisation_falls_with_the_number_of_samples(tmp_path):
    X, y = IRIS
    chosen = bigmc.MinimaxRiskClassifier(standardize=True, **MEMORY).fit(X, y)
    assert chosen.lambda0_ == pytest.approx(2 / np.sqrt(150))
    given = bigmc.MinimaxRiskClassifier(2 / np.sqrt(150), standardize=True, **MEMORY).fit(X, y)
    np.testing.assert_array_equal(chosen.coef_.toarray(), given.coef_.toarray())
    chosen.save(tmp_path / "m")
    loaded = bigmc.load_model(tmp_path / "m")
    assert loaded.lambda0_ == chosen.lambda0_
    assert loaded.model_.info()["lambda0"] == chosen.lambda0_


def test_the_default_bound_holds_where_a_fixed_regularisation_fails():
    """Labels that have nothing to do with the features: every rule errs with a probability of one half."""
    X, y = np.random.default_rng(3).normal(size=(100, 30)), np.arange(100) % 2
    fixed = bigmc.MinimaxRiskClassifier(0.01, standardize=True, **MEMORY).fit(X, y)
    assert fixed.certificate_.upper < 0.4
    chosen = bigmc.MinimaxRiskClassifier(standardize=True, **MEMORY).fit(X, y)
    assert chosen.certificate_.upper >= 0.45


def test_the_deterministic_rule_errs_at_most_twice_as_often(fitted):
    X, y = IRIS
    rule = fitted.predict_proba(X)
    wrong = fitted.predict(X) != fitted.classes_[y]
    assert (wrong <= 2 * (1 - rule[np.arange(150), y])).all()
    notes = " ".join(fitted.model_.certificate_notes())
    upper = fitted.certificate_.upper
    assert "The randomised rule, which draws its answer from the model's probabilities" in notes
    assert f"errs with a probability of at most {upper:.4g}; the deterministic rule" in notes
    assert f"with at most twice that, {2 * upper:.4g}" in notes


def test_nan_is_refused():
    X = IRIS[0].copy()
    X[0, 0] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        bigmc.MinimaxRiskClassifier().fit(X, IRIS[1])


def test_weights_of_samples_are_refused():
    dataset = Dataset.from_arrays(*IRIS)
    with pytest.raises(
        DataError, match="weights of samples are given, but mrc training does not support weights"
    ):
        bigmc.MinimaxRiskClassifier(**MEMORY).fit_dataset(dataset, sample_weight=np.ones(150))


def test_stopping_early_warns_and_says_what_to_raise():
    with pytest.warns(ConvergenceWarning, match=r"k_max \(now 1\)"):
        bigmc.MinimaxRiskClassifier(k_max=1, tol=1e-9, fourier=100, **MEMORY).fit(*IRIS)


def test_moments_of_batches_are_those_of_all():
    X = np.random.default_rng(0).normal(size=(100, 3)) * [1, 1e-3, 1e3] + [0, 1e3, -5]
    total = Moments(0, np.zeros(1), np.zeros(1))
    for batch in np.split(X, [0, 13, 14, 60]):
        total = total + Moments.of(batch)
    assert total.count == 100
    np.testing.assert_allclose(total.mean, X.mean(axis=0))
    np.testing.assert_allclose(total.scatter / 100, X.var(axis=0))


def test_a_constant_feature_becomes_zero():
    X = np.column_stack([np.full(20, 0.1), np.arange(20.0)])
    made = FeatureMap.fit(Moments.of(X), 0, None, 0).transform(X)
    np.testing.assert_array_equal(made[:, 0], 0)
    np.testing.assert_allclose(made[:, 1], StandardScaler().fit_transform(X)[:, 1], atol=1e-6)


def test_fourier_features_approximate_the_kernel():
    X = np.random.default_rng(0).normal(size=(30, 4))
    map = FeatureMap.fit(Moments.of(X), 20_000, 0.2, 7)
    made = map.transform(X)
    standard = StandardScaler().fit_transform(X)
    apart = ((standard[:, np.newaxis] - standard) ** 2).sum(axis=2)
    np.testing.assert_allclose(made @ made.T, np.exp(-0.2 * apart), atol=0.05)
    np.testing.assert_array_equal(
        FeatureMap.from_dict(json.loads(json.dumps(map.to_dict()))).transform(X), made
    )


@pytest.fixture(scope="module")
def digits_csv(tmp_path_factory):
    X, y = load_digits(return_X_y=True)
    path = tmp_path_factory.mktemp("csv") / "digits.csv"
    header = ",".join([f"x{j}" for j in range(64)] + ["label"])
    np.savetxt(path, np.column_stack([X, y])[:900], "%d", ",", header=header, comments="")
    return path


def run(*arguments):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_commands_from_files_to_predictions(digits_csv, tmp_path):
    data, model, answers = tmp_path / "digits.bigmc", tmp_path / "digits.model", tmp_path / "p.parquet"
    dense = [option for j in range(64) for option in ("--dense", f"x{j}")]
    ingest = ["ingest", digits_csv, "--to", data, *dense, "--label", "label", "--json"]
    info = run(*ingest, "--fourier", 60)
    assert info["n_features"] == 60
    assert run(*ingest, "--fourier", 60) == info  # done already
    trained = run("train", "mrc", data, "--to", model, "--tol", "1e-3", "--json")
    assert trained["converged"]
    assert trained["certificate"]["gap"] <= 1e-3
    measured = run("evaluate", model, data, "--json")
    assert measured["accuracy"] >= 1 - trained["certificate"]["upper"]
    assert run("predict", model, digits_csv, "--to", answers, "--json")["n_samples"] == 900

    # The same features from the map in the model, and the same map from the rows of the first split.
    dataset = bigmc.open_dataset(data)
    map = FeatureMap.from_dict(dataset.features["map"])
    X = np.loadtxt(digits_csv, delimiter=",", skiprows=1)[:, :64]
    train = X[np.sort(dataset["train"].row_ids())]
    np.testing.assert_allclose(map.mean, train.mean(axis=0))
    np.testing.assert_allclose(map.deviation, train.std(axis=0), atol=1e-12)
    loaded = bigmc.load_model(model)
    order = np.argsort(dataset["test"].row_ids())
    rows = np.sort(dataset["test"].row_ids())
    np.testing.assert_array_equal(loaded.predict(X[rows]), loaded.predict(dataset["test"])[order])


def test_hashed_columns_are_not_standardised(digits_csv, tmp_path):
    with pytest.raises(DataError, match="only dense features can be standardised"):
        bigmc.ingest(digits_csv, tmp_path / "d", numeric="x1", label="label", standardize=True)


def test_a_dataset_has_its_features_from_ingest(tmp_path):
    dataset = bigmc.ingest(IRIS[0], tmp_path / "iris.bigmc", label=IRIS[1], standardize=True)
    with pytest.raises(DataError, match="ingest makes"):
        bigmc.MinimaxRiskClassifier(fourier=10).fit(dataset["train"])
    model = bigmc.MinimaxRiskClassifier(**MEMORY).fit(dataset["train"])
    # Raw arrays: the map is applied here.
    order = np.argsort(dataset["train"].row_ids())
    rows = np.sort(dataset["train"].row_ids())
    np.testing.assert_allclose(
        model.decision_function(IRIS[0][rows]), model.decision_function(dataset["train"])[order], atol=1e-6
    )


@pytest.mark.parametrize(
    ("options", "said"), [({}, "as close as asked"), ({"k_max": 1, "tol": 1e-9}, "k_max")]
)
def test_the_model_says_why_training_ended(tmp_path, options, said):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        bigmc.MinimaxRiskClassifier(fourier=100, **options, **MEMORY).fit(*IRIS).save(tmp_path / "m")
    notes = bigmc.load_model(tmp_path / "m").model_.certificate_notes()
    assert said in notes[0]
    assert any("hashed text" in note for note in notes)


def test_rounding_that_ends_a_training_is_not_blamed_on_limits():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0)
    with pytest.warns(ConvergenceWarning, match="rounding errors; scale the features") as told:
        model = bigmc.MinimaxRiskClassifier(lambda0=0.01, **MEMORY).fit(1e-9 * X, y)
    assert model.model_.stopped == "rounding"
    assert not any("k_max" in str(warning.message) for warning in told)
    scaled = bigmc.MinimaxRiskClassifier(lambda0=0.01, **MEMORY).fit(X, y).certificate_
    assert model.certificate_.lower <= scaled.upper  # the problem does not depend on the scale
    assert scaled.lower <= model.certificate_.upper
