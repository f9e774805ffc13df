"""The minimax learner as a real process: killed with SIGKILL, and held to its memory limit."""

import json
import os
import signal

import pytest
from measured import said_number
from sklearn.datasets import load_digits

import bigmc
from bigmc import api
from bigmc.engine import ThreadEngine

pytestmark = pytest.mark.slow

MEASURE = """
import json, sys
import bigmc.api, bigmc.ingestion, bigmc.estimators, bigmc.cli
import bigmc.inference.evaluation.evaluate, bigmc.inference.predict
from bigmc import budget
from bigmc.engine import ThreadEngine
bare = budget.current_memory()
budget.reset_peak()
bigmc.api.train("mrc", "d.bigmc", "limited.model", **json.loads(sys.argv[1]), engine=ThreadEngine(2))
print(budget.peak_memory() - bare)
"""
#: Both the first-order steps and the linear program are met on the way.
OPTIONS = {"tol": 1e-6, "memory_limit": "64MB"}


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    here = tmp_path_factory.mktemp("minimax")
    X, y = load_digits(return_X_y=True)
    api.ingest(X[y < 4], here / "d.bigmc", label=y[y < 4], standardize=True, memory_limit="200MB")
    train(here, "m.model")
    return here


def train(here, to):
    api.train("mrc", here / "d.bigmc", here / to, **OPTIONS, engine=ThreadEngine(1))


def killed_at(work, count, when):
    """Run `work` in a forked process that kills itself around its `count`-th commit; return its exit."""
    pid = os.fork()
    if pid == 0:
        try:
            replace, calls = os.replace, 0

            def killing(*arguments):
                nonlocal calls
                calls += 1
                if calls == count and when == "before":
                    os.kill(os.getpid(), signal.SIGKILL)
                replace(*arguments)
                if calls == count:
                    os.kill(os.getpid(), signal.SIGKILL)

            os.replace = killing
            work()
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1]


@pytest.mark.exhaustive(keep=2)
@pytest.mark.parametrize(("count", "when"), [(2, "before"), (3, "after"), (6, "after"), (9, "before")])
def test_killed_anywhere_the_same_command_ends_with_the_same_bytes(here, count, when):
    model = bigmc.load_model(here / "m.model")
    assert model.history_[0]["n_constraints"] == 0
    assert model.history_[-1]["n_constraints"] > 0
    to = f"{when}{count}.model"
    assert killed_at(lambda: train(here, to), count, when) == signal.SIGKILL
    assert not (here / to).exists()
    train(here, to)
    assert (here / to).read_bytes() == (here / "m.model").read_bytes()


@pytest.mark.exhaustive
def test_peak_above_the_bare_imports_is_within_the_limit(here):
    assert said_number(MEASURE, json.dumps(OPTIONS), folder=here) <= 64_000_000
