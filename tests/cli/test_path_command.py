"""`bigmc path` says what to do where its best model is at the edge of the path, or has no feature."""

import numpy as np
import pandas as pd


def test_columns_of_other_units_ask_for_one_scale(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    y = (rng.random(400) < 0.3).astype(int)
    days = np.full(400, 9_500)  # tell nothing, and are large
    frame = pd.DataFrame({"days": days, "speed": y + 0.3 * rng.normal(size=400), "y": y})
    frame.to_csv("rows.csv", index=False)
    columns = "ingest rows.csv --dense days --dense speed --label y --split train=1"
    assert run(f"{columns} --to raw")[0] == 0
    status, _, err = run("path raw --to far --alphas 3")
    assert status == 0
    assert "no model of the path is better than one without features" in err
    assert "--weighting scaled" in err
    assert run(f"{columns} --standardize --to scaled")[0] == 0
    status, _, err = run("path scaled --to near --alphas 3")
    assert status == 0
    assert "without features" not in err
