"""The plain ridge model is trained as the search trained it, whichever learner won."""

import numpy as np
import pandas as pd

import bigmc
from bigmc.training.fit.models import FitModels


def test_beside_boosting_dual_coordinates_train_it(tmp_path, monkeypatch):
    """Of many words none matters, and a number decides that no linear model can use."""
    generator = np.random.default_rng(4)
    x = generator.normal(size=300)
    words = generator.integers(0, 3000, (300, 8)).astype(str)
    table = pd.DataFrame({"text": [" ".join(row) for row in words], "x": x, "label": np.abs(x) > 0.67})
    table["label"] = table["label"].astype(int)
    table.to_csv(tmp_path / "table.csv", index=False)
    trained = []
    original = FitModels._trained

    def recorded(self, name, *arguments):
        trained.append(name)
        return original(self, name, *arguments)

    monkeypatch.setattr(FitModels, "_trained", recorded)
    result = bigmc.fit(tmp_path / "table.csv", tmp_path / "m", text="text", dense="x", label="label")
    assert result["learner"] == "boost"
    assert trained == ["measured", "whole"]
    assert result["baselines"]["plain_ridge"] < 0.8 < result["test"]["accuracy"]
