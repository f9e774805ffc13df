"""The page of a fitted model: its search, and how well its probabilities hold."""

import numpy as np
import pandas as pd

import bigmc


def test_the_page_shows_search_and_reliability(tmp_path):
    rng = np.random.default_rng(2)
    labels = rng.choice(["a", "b"], 300)
    texts = [" ".join([f"{x}{rng.integers(3)}", *rng.choice(["one", "two", "three"], 3)]) for x in labels]
    table = pd.DataFrame({"text": texts, "label": labels})
    result = bigmc.fit(
        table, tmp_path / "m", text="text", label="label", analyzer="word", ngrams=(1, 1), time_limit=5.0,
        memory_limit="1GB",
    )  # fmt: skip
    bigmc.report(tmp_path / "m", tmp_path / "r.html", dataset=tmp_path / "m.dataset")
    page = (tmp_path / "r.html").read_text()
    assert "Search for the settings" in page
    assert "expected calibration error" in page
    for trial in result["trials"]:
        assert f'value="{trial["quality"]!r}"' in page
    assert "<svg" in page


def test_probabilities_of_a_fit_are_written(tmp_path):
    table = pd.DataFrame({"text": ["red one", "blue two"] * 40, "label": ["r", "b"] * 40})
    bigmc.fit(table, tmp_path / "m", text="text", label="label", analyzer="word", ngrams=(1, 1),
              time_limit=0.0, memory_limit="1GB")  # fmt: skip
    table.to_parquet(tmp_path / "t.parquet")
    bigmc.predict(tmp_path / "m", tmp_path / "t.parquet", tmp_path / "p.parquet", proba=True)
    found = pd.read_parquet(tmp_path / "p.parquet")
    model = bigmc.load_model(tmp_path / "m")
    wanted = model.predict_proba(list(table["text"]))
    np.testing.assert_array_equal(found[["probability_b", "probability_r"]].to_numpy(), wanted)
    assert (found["predicted_label"] == table["label"]).all()
