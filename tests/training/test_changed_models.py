"""Models that another one replaces between two looks at them: to start from, to describe, to publish."""

import os

import numpy as np
import pytest

from bigmc import api
from bigmc.api import exporting
from bigmc.errors import ModelError
from bigmc.training import run, selection

CHANGED = r"warm\.model: the model has changed since the command began; repeat the command"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with a dataset, and two models of it."""
    folder = tmp_path_factory.mktemp("changed")
    rng = np.random.default_rng(0)
    X = rng.integers(0, 5, (60, 4)).astype(np.int8)
    api.ingest(X, folder / "d.bigmc", label=(X[:, 0] > 2).astype(int), split={"train": 0.7, "test": 0.3})
    for name, alpha in ("first", 0.1), ("second", 0.01):
        api.train("sparse", folder / "d.bigmc", folder / f"{name}.model", alpha=alpha, max_passes=2)
    return folder


def warm_model(folder, tmp_path):
    """Return a model to use, and what replaces it after a function is called."""
    path = tmp_path / "warm.model"
    path.write_bytes((folder / "first.model").read_bytes())

    def replacing_after(function):
        def replaced(*arguments, **options):
            result = function(*arguments, **options)
            other = tmp_path / "other.model"
            other.write_bytes((folder / "second.model").read_bytes())
            os.replace(other, path)
            return result

        return replaced

    return path, replacing_after


@pytest.mark.parametrize("command", ["train", "path"])
def test_a_training_starts_from_the_model_that_it_records(folder, tmp_path, monkeypatch, command):
    """It started from the later model, and had the digest of the earlier one."""
    warm, replacing_after = warm_model(folder, tmp_path)
    module = run if command == "train" else selection
    monkeypatch.setattr(module, "_claim", replacing_after(module._claim))
    data, options = folder / "d.bigmc", {"max_passes": 2, "warm_start": warm}
    commands = {
        "train": lambda: api.train("sparse", data, tmp_path / "m", alpha=0.01, **options),
        "path": lambda: api.sparse_path(data, tmp_path / "p", alphas=[0.01], **options),
    }
    with pytest.raises(ModelError, match=CHANGED):
        commands[command]()


def test_a_card_has_figures_and_weights_of_one_model(folder, tmp_path, monkeypatch):
    warm, replacing_after = warm_model(folder, tmp_path)
    monkeypatch.setattr(exporting, "evaluate", replacing_after(exporting.evaluate))
    with pytest.raises(ModelError, match=CHANGED):
        api.export(warm, tmp_path / "card.md", dataset=folder / "d.bigmc")
    assert not (tmp_path / "card.md").exists()


def test_a_model_that_is_gone_is_not_published(folder, tmp_path):
    warm, _ = warm_model(folder, tmp_path)
    api.evaluate(warm, folder / "d.bigmc", to=tmp_path / "e.json")
    warm.unlink()
    with pytest.raises(ModelError, match=r"warm\.model: the model that was evaluated cannot be read"):
        api.publish([tmp_path / "e.json"], tmp_path / "best.model")
