"""What a fit cannot do within its memory it says before it searches."""

import re

import numpy as np
import pytest
import scipy.sparse

import bigmc
from bigmc.budget import MemoryLimitError
from bigmc.engine import ThreadEngine
from bigmc.store.dataset import Dataset
from bigmc.training.search import search_rows
from bigmc.training.search.best_model import check_ridge_memory
from bigmc.training.search.limits import Limits
from bigmc.training.search.ridges import Ridges
from bigmc.training.search.search import Search
from bigmc.training.search.trials import Candidate
from bigmc.training.search.validation import Validation

LABELS = np.arange(3000) % 40


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """3,000 rows of 250,000 features and 40 classes: few entries, and 80 MB for weights of every feature."""
    generator = np.random.default_rng(0)
    columns = generator.integers(0, 250_000, (3000, 300))
    rows = np.repeat(np.arange(3000), 300)
    X = scipy.sparse.csr_array((np.ones(rows.size), (rows, columns.ravel())), shape=(3000, 250_000))
    to = tmp_path_factory.mktemp("fit-memory") / "d"
    return bigmc.ingest(X, to, label=LABELS, split={"train": 0.8, "test": 0.2})


def test_a_limit_too_small_for_the_ridge_model_is_refused_before_the_search(dataset, tmp_path, monkeypatch):
    def search(*_):
        raise AssertionError("the search began")

    monkeypatch.setattr(Search, "__init__", search)
    with pytest.raises(MemoryLimitError, match="memory") as refused:
        bigmc.fit(dataset, tmp_path / "m.model", memory_limit="64MB")
    named = re.search(r"memory_limit[ =]*(\d+\w+)|--memory (\d+\w+)", str(refused.value))
    with pytest.raises(AssertionError, match="the search began"):
        bigmc.fit(dataset, tmp_path / "m.model", memory_limit=named.group(1) or named.group(2))


def test_with_little_memory_the_search_reads_fewer_rows(dataset, monkeypatch):
    """Trials and the rows they read stay within the limit, where fewer rows can do that."""
    monkeypatch.setattr(search_rows, "FEWEST_IN_LITTLE_MEMORY", 1000)
    train = dataset["train"]
    needed = Ridges.memory(train) + train.nnz * (2 + train.dtype.itemsize)
    roomy, tight = (
        Validation(train, ThreadEngine(1), Limits(int(share * needed), few_rows=0)) for share in (2.0, 1.0)
    )
    assert roomy.n_rows == train.n_samples
    assert 1000 <= tight.n_rows < train.n_samples
    assert tight.descends_duals
    assert Ridges.memory(tight.sample) <= needed


def test_trials_leave_memory_for_the_rows_of_the_search(dataset, monkeypatch):
    planned = []

    class Learner:
        def train(self, samples, resources, **_):
            planned.append(resources.memory_limit)
            raise StopIteration

    monkeypatch.setattr("bigmc.training.search.validation.learner_of", lambda options: Learner())
    validation = Validation(dataset["train"], ThreadEngine(1), Limits(10**9, few_rows=0))
    with pytest.raises(StopIteration):
        validation.attempt(Candidate("counts", "log_loss"))
    assert planned == [10**9 - validation.sample.decoded_bytes]


def test_a_refusal_names_what_blocks_of_rows_take_not_all_rows():
    generator = np.random.default_rng(0)
    X = scipy.sparse.random_array((60_000, 5000), density=0.01, rng=generator, format="csr")
    data = Dataset.from_arrays(X, generator.integers(0, 20, 60_000), shard_rows=6000)
    with pytest.raises(MemoryLimitError) as refused:
        check_ridge_memory(data, Limits(16 * 10**6))
    named = int(re.search(r"(\d+)MB", str(refused.value).split("give")[1])[1]) * 10**6
    assert named < 0.7 * Ridges.memory(data)
    check_ridge_memory(data, Limits(named))
