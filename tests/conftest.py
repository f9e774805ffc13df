"""What holds for all tests."""

import gc
import os
from collections import defaultdict
from importlib import import_module
from pkgutil import walk_packages

import pytest
import scipy.linalg  # noqa: F401  its BLAS is another one than NumPy's
from kept_cases import most_different
from threadpoolctl import threadpool_limits

import bigmc.kernels
from bigmc.engine import threads
from bigmc.kernels import compile_server
from bigmc.store import block
from bigmc.training.boosting import choose, rounds


def pytest_addoption(parser):
    """Let the whole suite be run."""
    parser.addoption("--exhaustive", action="store_true", help="run all tests, as .ci/whole does")


def pytest_collection_modifyitems(config, items):
    """Leave out what is marked as exhaustive, but for as many cases as the mark keeps."""
    if config.getoption("exhaustive"):
        return
    cases = defaultdict(list)
    for item in items:
        mark = item.get_closest_marker("exhaustive")
        if mark is not None:
            cases[item.path, item.originalname, mark.kwargs.get("keep", 0)].append(item)
    left_out = set()
    for (_, _, keep), of_one_test in cases.items():
        left_out |= set(of_one_test) - set(most_different(of_one_test, keep))
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport():
    """Collect no garbage while a failure is described.

    Its source is parsed for that, and before Python 3.11.8 a finaliser that runs meanwhile can end the whole
    run with a SystemError (https://github.com/python/cpython/issues/106905).
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.fixture(autouse=True, scope="module")
def what_was_imported_is_no_garbage():
    """Let garbage be looked for among what a file's own tests make.

    Every worker imports all files of tests and what they use, half a million objects and more, and each
    fit or ingest looks through all that are not frozen.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def without_waiting_for_the_disk():
    """Let nothing wait until contents have reached the disk: no test cuts the power.

    That files and folders are synced, and when, is tested by recorded calls. Commands that tests start wait.
    """
    before = os.fsync
    os.fsync = lambda handle: None
    yield
    os.fsync = before


@pytest.fixture(autouse=True, scope="session")
def sums_have_one_thread():
    """Let BLAS have one thread in what tests compare with, as in the products of matrices of the package.

    The workers keep the processors busy: threads of small products would do nothing but wait for each other,
    in loops. An optimum by SciPy took 31 CPU seconds so, and takes 0.3.
    """
    with threadpool_limits(1, "blas"):
        yield


@pytest.fixture(autouse=True, scope="session")
def one_thread_where_none_are_asked_for():
    """Let engines have one thread unless a test gives a number; commands have one for each processor.

    The workers keep the processors busy, and for data as small as in tests, handing over to threads takes
    longer than they save: a fifth of the processor time of the tests of the solvers.
    """
    before = threads.available_cpus
    threads.available_cpus = lambda: 1
    yield
    threads.available_cpus = before


@pytest.fixture(autouse=True, scope="session")
def kernels_are_compiled_once():
    """Let a process of its own compile kernels, as commands do: workers that miss the same one share it.

    It stays until the end: a new one compiles anew what kernels have in common.
    """
    for module in walk_packages(bigmc.kernels.__path__, f"{bigmc.kernels.__name__}."):
        import_module(module.name)
    compile_server.IDLE_SECONDS = 600.0
    compile_server.compile_elsewhere()


@pytest.fixture(scope="module")
def few_rounds_of_boosting():
    """Let searches try one and two rounds, for files of tests in which boosting is not the point.

    Whatever the time limit, a fit of few rows of numbers trains twenty averaged models of twelve rounds: most
    of its processor time.
    """
    before = {module: module.ROUNDS for module in (choose, rounds)}
    more_rounds, rounds.MORE_ROUNDS = rounds.MORE_ROUNDS, ()
    for module in before:
        module.ROUNDS = (1, 2)
    yield
    rounds.MORE_ROUNDS = more_rounds
    for module, own in before.items():
        module.ROUNDS = own


@pytest.fixture(autouse=True, scope="session")
def values_keep_their_types():
    """Let small tables in memory keep their values as stored, so that kernels are compiled for one type.

    Larger ones and those out of core do so anyway. As float64 they give the same bits and need no kernels of
    their own: `test_stored_types` tests that. Commands in processes of their own have float64, as users do.
    """
    before = block._MOST_WIDE_VALUES
    block._MOST_WIDE_VALUES = 0
    yield
    block._MOST_WIDE_VALUES = before
