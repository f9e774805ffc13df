"""Factors and offsets of classes: the optimum, when they are kept, and that they become part of the model."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax

import bigmc
from bigmc.model import LinearModel
from bigmc.model.fit_calibration import fit_shares, fit_temperature
from bigmc.model.rounding import multiples_of
from bigmc.training.search.class_scales import ClassScales, choose_class_scales, fit_class_scales

FACTORS, OFFSETS = np.array([0.5, 0.8, 1.2, 1.5]), np.array([0.3, -0.2, 0.2, -0.3])


def draw(n_rows: int, factors: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return scores, and classes whose log odds are scaled scores times 3."""
    generator = np.random.default_rng(5)
    scores = generator.normal(size=(n_rows, len(factors)))
    logits = 3.0 * (scores * factors + offsets) + generator.gumbel(size=scores.shape)
    return scores, logits.argmax(axis=1)


@pytest.mark.parametrize("shrinkage", [1.0, 50.0])
def test_they_minimise_the_penalised_log_loss(shrinkage: float) -> None:
    scores, codes = draw(500, FACTORS, OFFSETS)
    temperature = fit_temperature(scores, codes).scale
    logits = temperature * scores

    def loss(x: np.ndarray) -> float:
        chances = log_softmax(logits * x[:4] + x[4:], axis=1)[np.arange(500), codes]
        spread = np.square(x[:4] - x[:4].mean()).sum() + np.square(x[4:]).sum()
        return float(shrinkage * spread - chances.sum())

    best = minimize(loss, np.r_[np.ones(4), np.zeros(4)], method="BFGS", options={"gtol": 1e-6}).x
    scales = fit_class_scales(scores, codes, shrinkage)
    mean = best[:4].mean()
    assert np.allclose(scales.factors, best[:4] / mean, atol=5e-3)
    assert np.allclose(scales.offsets, best[4:] / (mean * temperature), atol=5e-3)


def test_they_are_chosen_where_classes_differ_and_only_there() -> None:
    scores, codes = draw(2_000, FACTORS, OFFSETS)
    found = choose_class_scales(scores, codes, fit_shares(scores, codes))
    assert found is not None
    assert np.all(np.diff(found.factors) > 0.1)  # as FACTORS increase
    scores, codes = draw(2_000, np.ones(4), np.zeros(4))
    assert choose_class_scales(scores, codes, fit_shares(scores, codes)) is None
    assert choose_class_scales(scores[:39], codes[:39], fit_shares(scores, codes)) is None  # too few rows


def test_two_classes_get_an_offset_where_one_is_more_frequent_than_scores_say() -> None:
    """Scores of two classes are opposite, so that only the difference of their offsets counts."""
    generator = np.random.default_rng(6)
    margins = generator.normal(size=2_000)
    scores = np.stack([-margins, margins], axis=1)
    codes = (3.0 * (margins + 0.4) + generator.logistic(size=2_000) > 0.0).astype(np.int64)
    found = choose_class_scales(scores, codes, fit_shares(scores, codes))
    assert found is not None
    assert found.offsets[1] - found.offsets[0] == pytest.approx(0.8, abs=0.15)
    codes = (3.0 * margins + generator.logistic(size=2_000) > 0.0).astype(np.int64)
    assert choose_class_scales(scores, codes, fit_shares(scores, codes)) is None


def test_a_scaled_model_gives_scaled_scores_and_keeps_whole_multiples(tmp_path: Path) -> None:
    step = np.array([0.5, 0.25, 0.125], np.float32)
    coef = np.array([[2, -3, 5], [-7, 11, 63]], np.int8) * step
    fields = {"certificate": {"lower": 0.0, "upper": 1.0, "gap": 1.0}, "params": {"loss": "squared_hinge"}}
    weights = {"features": np.arange(2), "coef": coef, "intercept": np.ones(3), "step": step}
    model = LinearModel("sparse", np.arange(3), 2, **fields, **weights)
    scales = ClassScales((0.7, 1.0, 1.3), (0.5, -0.25, 0.0))
    scaled = model.with_scaled_classes(*scales)
    assert scaled.step is not None
    assert np.array_equal(multiples_of(scaled.coef, scaled.step), multiples_of(coef, step))
    scaled.save(tmp_path / "scaled.model")
    stored = bigmc.load_model(tmp_path / "scaled.model")
    X = np.array([[1.0, 0.0], [0.5, 2.0]])
    assert np.allclose(stored.decision_function(X), scales(X @ coef + 1.0), atol=1e-5)


def texts_of_classes() -> pa.Table:
    """Texts of five classes, of which some are rare, and two rows a group."""
    generator = np.random.default_rng(1)
    shares = np.array([0.6, 0.2, 0.1, 0.06, 0.04])
    codes = generator.choice(5, 3_600, p=shares)
    own = generator.random((3_600, 6)) < np.array([0.9, 0.5, 0.3, 0.3, 0.5])[codes][:, None]
    words = np.where(
        own, codes[:, None] * 60 + generator.integers(0, 60, own.shape), generator.integers(0, 300, own.shape)
    )
    texts = [" ".join(f"w{word}" for word in row) for row in words]
    return pa.table({"text": texts, "label": [f"c{code}" for code in codes], "group": np.arange(3_600) // 2})


@pytest.mark.exhaustive
def test_fit_keeps_them_in_the_model(tmp_path: Path) -> None:
    table = texts_of_classes()
    texts = table["text"].to_pylist()
    pq.write_table(table.drop_columns("group"), tmp_path / "rows.parquet")
    found = bigmc.fit(tmp_path / "rows.parquet", to=tmp_path / "a.model", label="label")
    model = bigmc.load_model(tmp_path / "a.model")
    scales = model.model_.params["class_scales"]
    assert len(scales["factors"]) == len(scales["offsets"]) == 5
    assert np.isclose(np.mean(scales["factors"]), 1.0)
    assert any("the weights before" in note for note in found["notes"])
    bigmc.report(tmp_path / "a.model", tmp_path / "a.html")
    assert "the weights before these" in (tmp_path / "a.html").read_text()
    assert found["test"]["accuracy"] > found["baselines"]["largest_class"]
    scores = model.decision_function(texts[:50])
    assert np.array_equal(model.predict_proba(texts[:50]).argmax(axis=1), scores.argmax(axis=1))


def test_fit_of_groups_has_none(tmp_path: Path) -> None:
    found = bigmc.fit(texts_of_classes(), to=tmp_path / "a.model", text="text", label="label", group="group")
    assert "class_scales" not in bigmc.load_model(tmp_path / "a.model").model_.params
    assert not any("the weights before" in note for note in found["notes"])
