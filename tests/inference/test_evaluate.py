import json

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse
from scipy.stats import binomtest
from sklearn.metrics import accuracy_score, classification_report, confusion_matrix, f1_score

from bigmc.engine import Resources, ThreadEngine
from bigmc.errors import DataError, ModelError
from bigmc.inference.evaluation import evaluate as evaluation
from bigmc.inference.evaluation.labelled import LabelledDataset
from bigmc.inference.inspection import inspect
from bigmc.model import LinearModel
from bigmc.options.inference import EvaluateOptions, ReportOptions
from bigmc.store.dataset import Dataset
from bigmc.store.weighting import Weighting

ENGINE = ThreadEngine(2)


def evaluate(model, dataset, engine, **options):
    resources = Resources(engine, 1 << 30)
    return evaluation.evaluate(model, LabelledDataset(dataset), EvaluateOptions(**options), resources)


CLASSES = np.array(["ham", "news", "rare", "spam", "ähm"])


def linear(classes=CLASSES, n_features=30, seed=0, **fields):
    rng = np.random.default_rng(seed)
    features = np.arange(0, n_features, 2)
    coef = rng.standard_normal((len(features), len(classes)))
    return LinearModel("sparse", classes, n_features, features, coef, np.zeros(len(classes)), **fields)


def samples(n=300, n_features=30, seed=1):
    return scipy.sparse.random_array((n, n_features), density=0.3, rng=np.random.default_rng(seed)).tocsr()


def predicted(model, X):
    weights = np.zeros((model.n_features, model.n_classes))
    weights[model.features] = model.coef
    return model.classes[np.argmax(X @ weights, axis=1)]


@pytest.mark.parametrize(
    "choice",
    [CLASSES, CLASSES[:3], np.array(["ham", "spam", "new label", "zzz"])],
    ids=["all", "few", "unknown"],
)
def test_every_figure_is_scikit_learns(choice):
    model, X = linear(), samples()
    y_pred = predicted(model, X)
    rng = np.random.default_rng(2)
    y = np.where(rng.random(len(y_pred)) < 0.5, y_pred, rng.choice(choice, len(y_pred)))
    if len(choice) == 3:
        y = choice[rng.integers(0, 3, len(y_pred))]
    dataset = Dataset.from_arrays(X, y, shard_rows=64)
    assert dataset.n_shards == 5
    result = evaluate(model, dataset, ENGINE, per_class=True, confusion=True)

    assert result["n_samples"] == 300
    assert result["n_unknown_labels"] == np.sum(~np.isin(y, CLASSES))
    assert result["accuracy"] == pytest.approx(accuracy_score(y, y_pred), abs=1e-15)
    assert result["macro_f1"] == pytest.approx(f1_score(y, y_pred, average="macro", zero_division=0))
    expected = classification_report(y, y_pred, output_dict=True, zero_division=0)
    assert set(result["per_class"]) == set(y) | set(y_pred)
    for label, figures in result["per_class"].items():
        assert figures["f1"] == pytest.approx(expected[label].pop("f1-score"))
        for name, value in expected[label].items():
            assert figures[name] == pytest.approx(value), (label, name)
    labels = np.unique(np.r_[y.astype("U9"), y_pred])
    assert result["confusion"]["labels"] == labels.tolist()
    np.testing.assert_array_equal(result["confusion"]["matrix"], confusion_matrix(y, y_pred, labels=labels))
    json.dumps(result, allow_nan=False)
    assert evaluate(model, dataset, ThreadEngine(1), per_class=True, confusion=True) == result
    bounds = binomtest(int(np.sum(y == y_pred)), 300).proportion_ci(method="wilson")
    assert result["interval"] == pytest.approx([bounds.low, bounds.high], abs=1e-6)
    by_default = {"accuracy", "interval", "macro_f1", "n_samples", "n_unknown_labels"}
    assert set(evaluate(model, dataset, ENGINE)) == by_default


@pytest.mark.parametrize("classes", [np.array([3, 7, 11]), np.array([False, True]), np.array([0.5, 1.5])])
def test_labels_of_other_types(classes):
    model, X = linear(classes), samples()
    y = predicted(model, X)
    result = evaluate(model, Dataset.from_arrays(X, y), ENGINE, per_class=True)
    assert result["accuracy"] == result["macro_f1"] == 1.0
    assert list(result["per_class"]) == classes.tolist()


def test_labels_of_which_the_model_knows_none_are_refused():
    y = np.arange(300) % 2
    with pytest.raises(DataError, match=r"the label 0 does not have the type of the model's classes"):
        evaluate(linear(), Dataset.from_arrays(samples(), y), ENGINE)
    others = np.array(["x", "y"])[y]
    with pytest.raises(
        ModelError, match=r"no label of the data \(such as 'x'\) is one of the model \(such as 'ham'"
    ):
        evaluate(linear(), Dataset.from_arrays(samples(), others), ENGINE)


def test_data_without_labels_or_with_other_features_is_refused():
    with pytest.raises(DataError, match="no labels"):
        evaluate(linear(), Dataset.from_arrays(samples()), ENGINE)
    y = np.repeat("ham", 300)
    with pytest.raises(ModelError, match="weighting is counts in the model and l2 in the dataset"):
        evaluate(linear(), Dataset.from_arrays(samples(), y, weighting=Weighting(l2=True)), ENGINE)


def test_the_strongest_features_come_first_with_their_names_and_collisions():
    coef = np.array([[1, 0, -2], [-3, 0, 2], [3, 1, 0.5]], np.float32)
    names = pa.table(
        {
            "bucket": [4, 4, 9, 1],
            "name": ["rare", "often", "nine", "other"],
            "sign": [1, -1, 1, 1],
            "count": [2, 8, 3, 4],
        }
    )
    model = LinearModel(
        "sparse", np.array([1, 2, 3]), 10, np.array([2, 4, 9]), coef, np.array([0, 0.5, 0]), names=names
    )
    found = inspect(model, top=2)
    assert found["n_features"] == 10
    assert found["n_nonzero_features"] == 3
    first, second, third = found["classes"]
    nine = {"name": "nine", "sign": 1, "count": 3}
    often, rare = {"name": "often", "sign": -1, "count": 8}, {"name": "rare", "sign": 1, "count": 2}
    assert first == {
        "label": 1,
        "intercept": 0.0,
        "features": [
            {"index": 4, "weight": -3.0, "names": [often, rare]},
            {"index": 9, "weight": 3.0, "names": [nine]},
        ],
    }
    assert [f["index"] for f in second["features"]] == [9]
    assert second["intercept"] == 0.5
    assert [f["index"] for f in third["features"]] == [2, 4]
    assert third["features"][0]["names"] == []
    json.dumps(found)


@pytest.mark.parametrize("top", [0, -1, 1.5, True, "3"])
def test_a_number_of_features_is_at_least_one(top):
    """`top=-1` listed all but the weakest."""
    with pytest.raises(DataError, match=f"top is {top!r}; give a whole number of at least 1"):
        inspect(linear(), top=top)
    with pytest.raises(DataError, match=f"top is {top!r}; give a "):
        ReportOptions(top=top)


def test_columns_of_arrays_have_their_own_names():
    columns = [f"petal {j}" for j in range(30)]
    found = inspect(linear(feature_spec={"columns": columns}), top=1)
    feature = found["classes"][0]["features"][0]
    assert feature["names"] == [{"name": f"petal {feature['index']}", "sign": 1, "count": None}]
