"""A sum of models: scores, file, what is said of it, and what is refused."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from model.test_untrusted_models import forge

import bigmc
from bigmc import api
from bigmc.errors import ModelError
from bigmc.model import SumModel, load_model, outline_of_file, verify_model
from bigmc.model.calibration import Calibration

WEIGHTS = np.array([0.7, 1.9])
RNG = np.random.default_rng(17)


def rows(n):
    """Return rows of a text and two numbers, and labels that both decide."""
    words = RNG.choice(["good day", "bad day", "so so", "what now"], n)
    frame = pd.DataFrame({"text": words, "x": RNG.normal(size=n), "z": RNG.normal(size=n)})
    high = (frame.x > 0) ^ (frame.z > 0.3)
    return frame.assign(label=np.where(high, "high", np.where(frame.text == "bad day", "bad", "else")))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a dataset, a linear model, a boosted one and their sum, and rows of the dataset."""
    folder, frame = tmp_path_factory.mktemp("sum"), rows(500)
    frame.to_csv(folder / "rows.csv", index=False)
    api.ingest(
        folder / "rows.csv", folder / "data", text="text", dense=["x", "z"], label="label", hash_bits=8,
        weighting="l2", split={"train": 1.0},
    )  # fmt: skip
    api.train("sparse", folder / "data", folder / "sparse.model", alpha=1e-4)
    api.train("boost", folder / "data", folder / "boost.model", n_rounds=4, max_depth=2)
    parts = [load_model(folder / f"{name}.model") for name in ("sparse", "boost")]
    whole = replace(SumModel.of(parts, WEIGHTS), calibration=Calibration(1.5))
    whole.save(folder / "sum.model")
    return folder, frame


def test_scores_are_the_weighted_sum_of_those_of_the_parts(made):
    folder, frame = made
    one, two, both = (api.load_model(folder / f"{name}.model") for name in ("sparse", "boost", "sum"))
    expected = 0.7 * one.decision_function(frame) + 1.9 * two.decision_function(frame)
    np.testing.assert_allclose(both.decision_function(frame), expected, rtol=1e-12)
    np.testing.assert_array_equal(both.predict(frame), both.classes_[expected.argmax(axis=1)])
    odds = np.exp(1.5 * expected)
    np.testing.assert_allclose(both.predict_proba(frame), odds / odds.sum(axis=1, keepdims=True))


@pytest.mark.parametrize("room", [1, 20_000, 1 << 24])
def test_shards_have_the_same_scores_in_any_memory(made, room):
    folder, _ = made
    model, data = load_model(folder / "sum.model"), api.open_dataset(folder / "data")
    found = np.concatenate([model.shard_scores(data, s, room) for s in range(data.n_shards)])
    parts = [[part.shard_scores(data, s) for s in range(data.n_shards)] for part in model.parts]
    expected = sum(w * np.concatenate(own) for w, own in zip(WEIGHTS, parts, strict=True))
    np.testing.assert_array_equal(found, expected)
    codes = np.concatenate([model.shard_codes(data, s, room) for s in range(data.n_shards)])
    np.testing.assert_array_equal(codes, expected.argmax(axis=1))


def test_a_saved_sum_is_the_same_model(made):
    folder, _ = made
    model = load_model(folder / "sum.model")
    model.save(folder / "again.model")
    assert (folder / "again.model").read_bytes() == (folder / "sum.model").read_bytes()
    assert verify_model(folder / "sum.model") == []
    assert outline_of_file(folder / "sum.model") == model.outline
    parts = [load_model(folder / f"{name}.model") for name in ("sparse", "boost")]
    assert model.nbytes > sum(part.nbytes for part in model.parts)
    assert [part.params for part in model.parts] == [part.params for part in parts]


def test_commands_take_a_sum(made, tmp_path):
    folder, frame = made
    api.predict(folder / "sum.model", folder / "rows.csv", tmp_path / "said.parquet")
    said = pd.read_parquet(tmp_path / "said.parquet").sort_values("row_id")["predicted_label"]
    model = api.load_model(folder / "sum.model")
    assert said.tolist() == model.predict(frame).tolist()
    measured = api.evaluate(folder / "sum.model", folder / "data", split="train")
    assert measured["accuracy"] == pytest.approx(np.mean(said.to_numpy() == frame.label))
    assert api.report(folder / "sum.model", tmp_path / "page.html")["report"]
    page = (tmp_path / "page.html").read_text()
    assert "Nothing is certified" in page
    assert "Of the part “sparse”, of weight 0.7, training is within a gap of" in page
    info = load_model(folder / "sum.model").info()
    assert [part["kind"] for part in info["parts"]] == ["sparse", "boost"]
    assert info["weight_of_boost"] == 1.9
    with pytest.raises(ModelError, match="a model of kind sum is not linear"):
        bigmc.to_sklearn(folder / "sum.model")
    with pytest.raises(ModelError, match="cannot be trained directly"):
        model.fit([[1.0]], [1])


def test_features_weigh_what_they_weigh_in_both_parts(made):
    folder, _ = made
    model = load_model(folder / "sum.model")
    for c in range(model.n_classes):
        dense = np.zeros(model.n_features)
        for weight, part in zip(WEIGHTS, model.parts, strict=True):
            features, own = part.class_weights(c)
            dense[features] += weight * own
        features, found = model.class_weights(c)
        np.testing.assert_allclose(found, dense[features])
        assert not dense[np.setdiff1d(np.arange(model.n_features), features)].any()


def test_words_explain_the_sum(made):
    folder, _ = made
    sample = {"text": "bad day", "x": -1.0, "z": -1.0}
    found = []
    for name in ("sum", "sparse", "boost"):
        classes = api.load_model(folder / f"{name}.model").explain(sample).classes
        found.append({entry.label: dict(entry.words) for entry in classes})
    both, *parts = found
    for label, words in both.items():
        for word, value in words.items():
            own = (weight * part[label].get(word, 0.0) for weight, part in zip(WEIGHTS, parts, strict=True))
            assert value == pytest.approx(sum(own))


def nested(header, _):
    header["parts"][0]["kind"] = "sum"


def no_parts(header, _):
    header["parts"] = []


def parts_of_no_sum(header, _):
    header["kind"] = "sparse"


def one_too_many(header, _):
    header["parts"].append(header["parts"][0])


def without_a_kind(header, _):
    del header["parts"][1]["kind"]


@pytest.mark.parametrize("change", [nested, no_parts, parts_of_no_sum, one_too_many, without_a_kind])
def test_files_whose_parts_do_not_fit_are_refused(made, tmp_path, change):
    folder, _ = made
    forged = tmp_path / "forged.model"
    forged.write_bytes((folder / "sum.model").read_bytes())
    forge(forged, change)
    with pytest.raises(ModelError, match="train again"):
        load_model(forged)


@pytest.mark.parametrize("weights", [[1.0], [1.0, -1.0], [1.0, np.nan]])
def test_weights_that_are_none_are_refused(made, weights):
    parts = load_model(made[0] / "sum.model").parts
    with pytest.raises(ModelError, match="weights"):
        SumModel.of(parts, np.array(weights))


def test_models_of_other_classes_are_not_added(made):
    one, two = load_model(made[0] / "sum.model").parts
    other = replace(two, classes=np.array(["bad", "else", "low"]))
    with pytest.raises(ModelError, match="different classes or features"):
        SumModel.of([one, other], WEIGHTS)
