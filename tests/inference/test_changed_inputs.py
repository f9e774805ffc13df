"""Models and files that another one replaces while they are used."""

import os
from dataclasses import replace

import numpy as np
import pytest

from bigmc import api
from bigmc.errors import DataError, ModelError
from bigmc.inference import raw_input
from bigmc.ingestion.parts.scan import expand_sources
from bigmc.model import LinearModel, ModelSource


def model(weight):
    """Return a model of svmlight rows with two features, which speaks for one class or the other."""
    coef = np.array([[weight, 0.0], [0.0, weight]])
    classes, features = np.array(["no", "yes"]), np.arange(2)
    return LinearModel("sparse", classes, 2, features, coef, np.zeros(2), feature_spec={"first_index": 1})


@pytest.mark.parametrize("change", ["another", "removed", "damaged"])
def test_a_model_that_is_replaced_after_planning_is_not_used(tmp_path, change):
    """Predictions of one model had the receipt of another, so that a later command left them as they were."""
    path = tmp_path / "m.model"
    model(1.0).save(path)
    source = ModelSource.of_file(path)
    assert source.load().coef[0, 0] == 1
    if change == "another":
        model(-1.0).save(path)
    elif change == "removed":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ModelError, match=r"m\.model: the model has changed since the command began; repeat"):
        source.load()


def test_a_model_that_is_replaced_while_it_is_looked_at_is_not_used(tmp_path, monkeypatch):
    path = tmp_path / "m.model"
    model(1.0).save(path)
    outline_of = ModelSource.of_file.__globals__["outline_of_file"]

    def replaced_after(of):
        outline = outline_of(of)
        replace(model(1.0), n_features=3).save(of)
        return outline

    monkeypatch.setitem(ModelSource.of_file.__globals__, "outline_of_file", replaced_after)
    with pytest.raises(ModelError, match="the model has changed since the command began"):
        ModelSource.of_file(path)


def test_a_file_that_is_replaced_before_it_is_scanned_is_not_predicted(tmp_path, monkeypatch):
    """The predictions had the receipt of the earlier file, and a run with it left them as they were."""
    path, to = tmp_path / "rows.svm", tmp_path / "p.csv"
    path.write_text("0 1:1\n")
    model(1.0).save(tmp_path / "m.model")
    scan, before = raw_input.scan, path.stat().st_mtime_ns

    def replaced_before(sources, *rest):
        path.write_text("0 2:1\n")
        os.utime(path, ns=(before, before + 1))
        return scan(sources, *rest)

    monkeypatch.setattr(raw_input, "scan", replaced_before)
    with pytest.raises(DataError, match=r"rows\.svm: the file has changed since the command began; start"):
        api.predict(tmp_path / "m.model", path, to)
    assert not to.exists()
    monkeypatch.undo()
    api.predict(tmp_path / "m.model", path, to)
    assert to.read_text().replace('"', "").split() == ["row_id,predicted_label", "0,yes"]


def test_a_file_that_is_removed_is_an_error_that_names_it(tmp_path):
    path = tmp_path / "rows.svm"
    path.write_text("0 1:1\n")
    (source,) = expand_sources(path)
    path.unlink()
    for use in (source.identity, source.status):
        with pytest.raises(DataError, match=r"rows\.svm: the file cannot be read"):
            use()
