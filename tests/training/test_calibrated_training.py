"""Training that leaves rows out to calibrate on: weights as without these rows, and probabilities."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss

import bigmc
from bigmc import SparseClassifier, api
from bigmc.engine import ThreadEngine
from bigmc.errors import BigmcError, ModelError
from bigmc.model import load_model
from bigmc.model.fit_calibration import fit_shares
from bigmc.training.options import calibration_rows


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    digits = load_digits()
    path = tmp_path_factory.mktemp("calibrated") / "digits.bigmc"
    bigmc.ingest(digits.data / 16, path, label=digits.target)
    return path


def test_rows_left_out_calibrate_the_model_of_the_others(dataset, tmp_path):
    api.train("sparse", dataset, tmp_path / "m", alpha=1e-3, calibrate=0.25)
    train = bigmc.open_dataset(dataset)["train"]
    rows, places = calibration_rows(0.25, train.n_samples).rows(train, ThreadEngine(1))
    assert 0.2 < len(places) / train.n_samples < 0.3
    weights = np.ones(train.n_samples)
    weights[places] = 0.0
    model = load_model(tmp_path / "m")
    alone = SparseClassifier(alpha=1e-3).fit(train, sample_weight=weights).model_
    np.testing.assert_array_equal(model.coef, alone.coef)
    scores = np.concatenate([alone.shard_scores(rows, s) for s in range(rows.n_shards)])
    assert model.calibration == fit_shares(scores, rows.labels())
    assert model.params["calibrated_on"] == 0.25
    test = bigmc.open_dataset(dataset)["test"]
    scores = np.concatenate([model.shard_scores(test, s) for s in range(test.n_shards)])
    chances = model.probabilities(scores)
    found = api.evaluate(tmp_path / "m", dataset)
    assert found["log_loss"] == pytest.approx(log_loss(test.labels(), chances, labels=range(10)))
    assert found["calibration_error"] < 0.05


def test_other_rows_are_another_training(dataset, tmp_path):
    api.train("sparse", dataset, tmp_path / "m", alpha=1e-3, calibrate=0.2)
    before = (tmp_path / "m").read_bytes()
    api.train("sparse", dataset, tmp_path / "m", alpha=1e-3, calibrate=0.2)
    assert (tmp_path / "m").read_bytes() == before
    with pytest.raises(ModelError, match="calibrated_on"):
        api.train("sparse", dataset, tmp_path / "m", alpha=1e-3, calibrate=0.3)


@pytest.mark.parametrize(("learner", "share", "message"), [("sparse", 1.5, "1.5"), ("mrc", 0.2, "every row")])
def test_what_cannot_be_calibrated_is_refused(dataset, tmp_path, learner, share, message):
    with pytest.raises(BigmcError, match=message):
        api.train(learner, dataset, tmp_path / "m", calibrate=share)
