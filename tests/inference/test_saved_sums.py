"""An evaluation that is interrupted after any shard continues, and ends with the same figures."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse

from bigmc import api
from bigmc.engine import Resources, ThreadEngine
from bigmc.errors import BusyError, DataError
from bigmc.inference.evaluation import evaluate as evaluation
from bigmc.inference.evaluation import saved_sums
from bigmc.inference.evaluation.labelled import LabelledDataset
from bigmc.inference.evaluation.saved_sums import SavedSums
from bigmc.model import LinearModel
from bigmc.options.inference import EvaluateOptions
from bigmc.store.dataset import Dataset
from bigmc.store.files.atomic import exclusive

RNG = np.random.default_rng(0)
X = scipy.sparse.random_array((200, 30), density=0.3, rng=RNG).tocsr()


def of_labels(n_classes, **fields):
    labels, coef = np.array(list("abcdefgh")[:n_classes]), RNG.standard_normal((30, n_classes))
    model = LinearModel("sparse", labels, 30, np.arange(30), coef, np.zeros(n_classes), **fields)
    return model, Dataset.from_arrays(X, RNG.choice(model.classes, 200), shard_rows=32)


def of_sets():
    coef = RNG.standard_normal((30, 5))
    model = LinearModel("sparse", np.arange(5), 30, np.arange(30), coef, np.zeros(5), label_threshold=0.3)
    indicator = scipy.sparse.csr_array(RNG.random((200, 5)) < 0.4)
    return model, Dataset.from_arrays(X, indicator, shard_rows=32)


LOG_LOSS = {"params": {"loss": "log_loss"}}
CASES = {
    "labels": lambda: of_labels(4),
    "probabilities": lambda: of_labels(6, **LOG_LOSS),
    "probabilities of two": lambda: of_labels(2, **LOG_LOSS),
    "sets": of_sets,
}


class Interrupted(SavedSums):
    """Sums whose command dies after so many shards."""

    left = 0

    def add(self, *arguments):
        if self.left == 0:
            raise KeyboardInterrupt
        self.left -= 1
        super().add(*arguments)


@pytest.mark.parametrize("case", CASES)
def test_every_shard_is_measured_once_whenever_it_is_interrupted(case, tmp_path, monkeypatch):
    monkeypatch.setattr(saved_sums, "SECONDS_BETWEEN_SAVES", 0.0)
    monkeypatch.setattr(saved_sums, "SAVING_SHARE", np.inf)
    model, dataset = CASES[case]()
    options = EvaluateOptions(per_class=True, confusion=case != "sets")

    def measured(saved):
        return evaluation.evaluate(
            model, LabelledDataset(dataset), options, Resources(ThreadEngine(1), 1 << 30), saved
        )

    whole = measured(SavedSums())
    assert dataset.n_shards == 7
    for at in range(7):
        folder = tmp_path / str(at)
        for turn in (at, 0):  # interrupted twice, the second time at once
            saved = Interrupted(folder, {"of": case})
            saved.left = turn
            with pytest.raises(KeyboardInterrupt):
                measured(saved)
        rest = Interrupted(folder, {"of": case})
        rest.left = 7 - at
        assert measured(rest) == whole
        assert rest.left == 0


def test_sums_of_another_model_are_forgotten(tmp_path, monkeypatch):
    monkeypatch.setattr(saved_sums, "SECONDS_BETWEEN_SAVES", 0.0)
    model, dataset = CASES["labels"]()
    resources = Resources(ThreadEngine(1), 1 << 30)
    evaluation.evaluate(
        model, LabelledDataset(dataset), EvaluateOptions(), resources, SavedSums(tmp_path, {"model": 1})
    )
    other = dataclasses.replace(model, coef=-model.coef)
    saved = SavedSums(tmp_path, {"model": 2})
    found = evaluation.evaluate(other, LabelledDataset(dataset), EvaluateOptions(), resources, saved)
    assert found == evaluation.evaluate(other, LabelledDataset(dataset), EvaluateOptions(), resources)


@pytest.fixture
def stored(tmp_path):
    (tmp_path / "t.csv").write_text(
        "text,label\n" + "".join(f"w{i % 5} {'xy'[i % 2]},{'ab'[i % 2]}\n" for i in range(60))
    )
    data, model = tmp_path / "d.bigmc", tmp_path / "m.model"
    api.ingest(tmp_path / "t.csv", data, text="text", label="label", hash_bits=6)
    api.train("sparse", data, model, alpha=1e-2)
    return model, data


def test_a_second_process_on_one_result_is_refused(stored, tmp_path):
    with exclusive(tmp_path / "e.json.wip" / "lock"), pytest.raises(BusyError):
        api.evaluate(*stored, to=tmp_path / "e.json")
    assert api.evaluate(*stored, to=tmp_path / "e.json")["n_samples"] > 0
    assert not (tmp_path / "e.json.wip").exists()


@pytest.mark.parametrize("command", ["evaluate", "report", "predict"])
def test_a_folder_of_somebody_else_is_neither_used_nor_removed(command, stored, tmp_path):
    def run():
        if command == "evaluate":
            api.evaluate(*stored, to=tmp_path / "r")
        elif command == "report":
            api.report(stored[0], tmp_path / "r", dataset=stored[1])
        else:
            api.predict(stored[0], tmp_path / "t.csv", tmp_path / "r")

    mine = tmp_path / "r.wip" / "mine"
    mine.parent.mkdir()
    mine.write_text("mine")
    with pytest.raises(DataError, match="not a folder of unfinished work"):
        run()
    assert mine.read_text() == "mine"
    mine.rename(tmp_path / "mine")
    run()
    mine.parent.mkdir(exist_ok=True)
    (tmp_path / "mine").rename(mine)
    if command != "report":  # which measures again, to compare the pages
        run()
    assert mine.read_text() == "mine"
