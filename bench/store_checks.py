"""What it costs that nothing read is trusted: processor seconds of the checks beside those of the commands.

    python bench/store_checks.py [--rows 40000] [--columns 400]

A table of random numbers, which hardly compresses, is ingested, opened and trained on in this process, on one
thread. Opening is timed in turns with the checks and with functions that do nothing in their place. Within
ingest and training, where the machine's noise is larger than the checks, the processor seconds inside the
checks are added up. One JSON line per command.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from bigmc import api
from bigmc.engine import ThreadEngine
from bigmc.ingestion.writing import part_receipt, shard_placement
from bigmc.store import snapshot
from bigmc.store.dataset import Dataset
from bigmc.store.shards import disk_shard
from bigmc.store.shards.zarr_chunks import ArrayReader

OPENING = [(owner, name) for owner in (disk_shard, snapshot) for name in ("check_sizes", "check_file")]
READING = [*OPENING, (ArrayReader, "_compare")]
WRITING = [
    (module, name)
    for module in (part_receipt, shard_placement)
    for name in ("read_work_file", "read_work_table", "write_work_file")
    if hasattr(module, name)
]
LEARNERS: dict[str, dict[str, Any]] = {
    "sparse": {"alpha": 1e-3, "max_passes": 10},
    "boost": {"n_rounds": 5, "max_depth": 1},
    "mrc": {"tol": 0.05, "k_max": 5},
}
OPTIONS: dict[str, Any] = {"memory_limit": "256MB", "engine": ThreadEngine(1)}


@contextmanager
def timed(places: list[tuple[Any, str]]) -> Iterator[list[float]]:
    """Add up the processor seconds that this process spends in some functions."""
    spent: list[float] = []

    def wrap(plain: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            start = time.thread_time()
            try:
                return plain(*args, **kwargs)
            finally:
                spent.append(time.thread_time() - start)

        return call

    with ExitStack() as stack:
        for owner, name in places:
            stack.enter_context(mock.patch.object(owner, name, wrap(getattr(owner, name))))
        yield spent


def share(name: str, places: list[tuple[Any, str]], command: Callable[[], object]) -> None:
    """Print what part of a command its checks take."""
    with timed(places) as spent:
        start = time.process_time()
        command()
        total = time.process_time() - start
    figures = {"command": name, "cpu_seconds": round(total, 2), "of_checks": round(sum(spent), 3)}
    print(json.dumps(figures | {"share": round(sum(spent) / (total - sum(spent)), 4)}), flush=True)


def opening(path: Path, turns: int = 15) -> None:
    """Print the seconds of opening a dataset with and without the checks."""
    n_bytes = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    seconds: dict[str, list[float]] = {"with": [], "without": []}
    for _ in range(turns):
        for how in seconds:
            with ExitStack() as stack:
                for owner, name in OPENING if how == "without" else []:
                    stack.enter_context(mock.patch.object(owner, name))
                start = time.process_time()
                Dataset.open(path)
                seconds[how].append(time.process_time() - start)
    medians = {how: statistics.median(times) for how, times in seconds.items()}
    more = (medians["with"] - medians["without"]) * 1e9 / n_bytes
    figures = {how: round(1000 * median, 2) for how, median in medians.items()}
    print(
        json.dumps({"command": "open", "mb": n_bytes // 10**6, "ms": figures, "more_ms_per_gb": 1000 * more})
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--columns", type=int, default=400)
    parser.add_argument("--learners", nargs="+", default=[*LEARNERS], choices=[*LEARNERS])
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    X = rng.standard_normal((given.rows, given.columns)).astype(np.float32)
    y = (X[:, :4] @ rng.standard_normal((4, 5))).argmax(axis=1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        to = folder / "d.bigmc"
        share("ingest", WRITING, lambda: api.ingest(X, to, label=y, **OPTIONS))
        opening(to)
        for learner in given.learners:
            asked = LEARNERS[learner]
            train = partial(api.train, learner, to, folder / f"{learner}.model", **asked, **OPTIONS)
            share(f"train {learner}", READING, train)


if __name__ == "__main__":
    main()
