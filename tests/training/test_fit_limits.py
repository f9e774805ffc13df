"""The memory and the time of a fit are promises: a real process on raw texts larger than its memory."""

import json
import time

import numpy as np
import pytest
from measured import said_number

import bigmc
from bigmc.engine import ThreadEngine
from bigmc.model.calibration import Calibration
from bigmc.store.dataset import Dataset
from bigmc.training.search.limits import Limits
from bigmc.training.search.sizes import train_with_size
from bigmc.training.search.trials import Candidate, Size
from bigmc.training.search.validation import Validation
from bigmc.training.search.winner import Winner

MEASURE = """
import json, sys, threading, time
import bigmc.api, bigmc.ingestion, bigmc.estimators, bigmc.cli
import bigmc.inference.evaluation.evaluate, bigmc.training.fit.fit, bigmc.training.pilot
from bigmc.engine import ThreadEngine
from bigmc.kernels.compile_server import compile_elsewhere
compile_elsewhere()  # as commands do
def anonymous():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))
seen = [anonymous()]
def watch():
    while True:
        seen.append(anonymous())
        time.sleep(0.01)
threading.Thread(target=watch, daemon=True).start()
source, to, memory = json.loads(sys.argv[1])
bigmc.api.fit(source, to, label="label", memory_limit=memory, engine=ThreadEngine(1))
print(max(seen) - seen[0])
"""
N_ROWS, N_CLASSES, WORDS = 30_000, 40, 30


def texts(n_rows: int) -> list[tuple[str, int]]:
    """Return texts of random words, some of which tell the label."""
    g = np.random.default_rng(0)
    names = np.array([f"w{k:x}" for k in g.integers(0, 1 << 36, 20_000)])
    labels = g.integers(0, N_CLASSES, n_rows)
    drawn = (g.random((n_rows, WORDS)) ** 3 * len(names)).astype(int)
    drawn[:, :3] = labels[:, np.newaxis] * 7 + g.integers(0, 7, (n_rows, 3))
    return [(" ".join(names[row]), int(label)) for row, label in zip(drawn, labels, strict=True)]


@pytest.mark.slow
def test_a_fit_of_texts_stays_within_its_memory(tmp_path):
    with (tmp_path / "rows.csv").open("w") as file:
        file.write("text,label\n")
        file.writelines(f"{text},{label}\n" for text, label in texts(N_ROWS))
    limit = 64_000_000
    peak = said_number(MEASURE, json.dumps(["rows.csv", "a.model", limit]), folder=tmp_path)
    assert peak <= 1.2 * limit


@pytest.fixture(scope="module")
def dataset():
    words = [text.split() for text, _ in texts(2000)]
    places = {word: k for k, word in enumerate(sorted({word for row in words for word in row}))}
    X = np.zeros((len(words), len(places)), np.int8)
    for i, row in enumerate(words):
        for word in row:
            X[i, places[word]] += 1
    return Dataset.from_arrays(X, np.array([label for _, label in texts(2000)]))


def test_folds_that_do_not_fit_together_take_turns_to_the_same_scores(dataset):
    roomy = Validation(dataset, ThreadEngine(1), Limits(10**9))
    assert roomy.cross_validates
    tight = Validation(dataset, ThreadEngine(1), Limits(10**9))
    tight._keeps_problems = False
    candidate = Candidate(None)
    assert tight.attempt(candidate) == roomy.attempt(candidate)
    assert all(fold.ridges._problem is None for fold in tight._folds)
    assert all(fold.ridges._problem is not None for fold in roomy._folds)


def test_a_training_whose_time_is_over_ends_with_an_honest_gap(dataset):
    """One epoch was made, and the gap that is told holds: the optimum is not below the bound."""
    winner = Winner("sparse", Candidate(None), Calibration(), size=Size(1, 1.0, 1.0, 0.0, Calibration()))
    engine = ThreadEngine(1)
    now = time.monotonic()
    hurried = train_with_size(dataset, winner, engine, ends=now).model
    done = train_with_size(dataset, winner, engine).model
    assert hurried.n_iter == 1 < done.n_iter
    assert hurried.certificate["gap"] > done.certificate["gap"]
    assert hurried.certificate["lower"] <= done.objective <= hurried.objective


def test_a_fit_without_time_makes_one_trial_and_a_model(tmp_path):
    X, y = np.random.default_rng(0).standard_normal((3000, 6)), np.arange(3000) % 3
    X[:, 0] += y
    data = bigmc.ingest(X, tmp_path / "d", label=y, split={"train": 0.8, "test": 0.2})
    result = bigmc.fit(data, tmp_path / "m.model", time_limit=1e-9, memory_limit="200MB")
    assert len(result["trials"]) == 1
    assert result["test"]["accuracy"] > 0.5


@pytest.mark.exhaustive
def test_a_finished_fit_says_that_more_time_would_search_for_longer(tmp_path):
    """It stays finished, and the advice of the note leads to more trials."""
    g = np.random.default_rng(0)
    X = g.standard_normal((160, 3))
    y = (X.sum(axis=1) + g.standard_normal(160) > 0).astype(int)
    data = bigmc.ingest(X, tmp_path / "d", label=y, split="train=0.8,test=0.2")
    for made_with in (0.25, None):
        target = tmp_path / f"{made_with}.model"
        first = bigmc.fit(data, target, time_limit=made_with)
        made = target.read_bytes()
        for seconds in (0.1, 0.25, "1h", None):
            again = bigmc.fit(data, target, time_limit=seconds)
            longer = made_with is not None and seconds in ("1h", None)
            said = "the model was made before, and its time was over after 0.25 s; to search for longer, "
            assert again["notes"] == [*first["notes"], *([f"{said}add --overwrite"] if longer else [])]
            assert again["trials"] == first["trials"]
            assert target.read_bytes() == made
    hurried = bigmc.fit(data, tmp_path / "0.25.model")
    longer = bigmc.fit(data, tmp_path / "0.25.model", overwrite=True)
    assert len(first["trials"]) == len(longer["trials"]) > len(hurried["trials"])
