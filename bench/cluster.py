"""Threads beside a Dask cluster of one and two workers here: seconds, tasks, bytes; and 100 machines.

    python bench/data.py packages --to bench/data
    python bench/cluster.py [--data bench/data/packages.csv] [--dataset words.bigmc] [--kills 12]

Ingest of the package descriptions (63,666 texts, 58 classes, words and pairs hashed to 2^14 columns),
training of the boosted and the minimax learner, evaluation and prediction, each by one thread, two
threads, and a ``LocalCluster`` of one and two workers of one thread. With ``--dataset`` the sparse learner is
trained on another dataset, out of core within ``--memory``, which is then evaluated and predicted by a
boosted model of its first shards. All engines have done a small run before the clock starts.

One JSON line a step: seconds on the wall, seconds of processor of this process (``here``: with the scheduler,
which runs in it) and of the workers (``there``), tasks, bytes of pickled arguments and results. At the
end the ratio of one worker to one thread, and `extrapolate`. ``--kills`` trains and ingests that many times
with a worker killed at a random moment, and compares every byte with the undisturbed run; with ``--dataset``
the sparse learner too.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import os
import random
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import bigmc
from bigmc.engine import ThreadEngine
from bigmc.engine.dask import DaskEngine

ENGINES = ("1 thread", "2 threads", "1 worker", "2 workers")
TEXT: dict[str, Any] = {
    "text": "text", "label": "section", "group": "source", "on_bad_row": "quarantine", "names": False,
}  # fmt: skip
#: Steps over so few rows that what does not grow with them, such as sending the model, is most of it.
FEW = ("evaluate", "predict", "predict raw")
#: The sparse learner's options by loss: those of bench/words.py, and few passes.
SPARSE: dict[str, dict[str, Any]] = {
    "multitask_squared_hinge": {"alpha": 2e-4, "ridge": 1e-6, "max_passes": 3},
    "log_loss": {"alpha": 2e-4, "ridge": 1e-6, "max_passes": 5},
}
#: Machines of the extrapolation, threads of each, its rows, and bytes a second into one machine.
WORKERS, ROWS, NETWORK = 100, 10**9, 1e9
#: Seconds of the scheduler for a task: Dask's documentation says some 0.2 to 1 ms.
TASK = 1e-3


@contextmanager
def engine_of(name: str) -> Iterator[tuple[Any, Callable[[], float]]]:
    """Yield an engine, and what tells the processor seconds of its workers so far."""
    count = int(name.split()[0])
    if "thread" in name:
        yield ThreadEngine(count), lambda: 0.0
        return
    from distributed import Client, LocalCluster

    options = {"host": "127.0.0.1", "dashboard_address": None, "threads_per_worker": 1}
    with (
        LocalCluster(n_workers=count, memory_limit=0, **options) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield DaskEngine(client), lambda: sum(client.run(time.process_time).values())


def timed(
    step: str, name: str, engine: Any, there: Callable[[], float], rows: int, run: Callable[[], Any]
) -> dict[str, Any]:
    """Run a step, print its figures and return them."""
    usage = engine.usage()
    clock, here, before = time.perf_counter(), time.process_time(), there()
    run()
    figures = {
        "step": step, "engine": name, "rows": rows, "seconds": round(time.perf_counter() - clock, 2),
        "here": round(time.process_time() - here, 2), "there": round(there() - before, 2),
    }  # fmt: skip
    figures |= {key: value - usage[key] for key, value in engine.usage().items()}
    print(json.dumps(figures), flush=True)
    return figures


def steps(
    folder: Path, data: Path, other: Path | None, memory: str, engine: Any, rounds: int
) -> Iterator[tuple[str, int, Callable[[], Any]]]:
    """Yield name, rows and work of every step."""
    dataset, options = folder / "packages.bigmc", {"engine": engine, "memory_limit": "1GB"}
    yield "ingest", 63_666, lambda: bigmc.ingest(data, dataset, hash_bits=14, **TEXT, **options)
    opened = bigmc.open_dataset(dataset)
    n = opened.n_samples
    boost, mrc = folder / "boost.model", folder / "mrc.model"
    more = {"C": 1e5, "n_rounds": rounds, "tol": 1e-9}
    yield "train boost", n, lambda: bigmc.train("boost", dataset, boost, **more, **options)
    yield "train mrc", n, lambda: bigmc.train("mrc", dataset, mrc, k_max=1, tol=1e-9, **options)
    split = opened.splits["test"]
    yield "evaluate", split, lambda: bigmc.evaluate(mrc, dataset, **options)
    yield "predict", n, lambda: bigmc.predict(mrc, dataset, folder / "p.parquet", **options)
    raw = folder / "raw.parquet"
    yield (
        "predict raw", 63_666,
        lambda: bigmc.predict(mrc, data, raw, on_bad_row="quarantine", **options),
    )  # fmt: skip
    if other is not None:
        large = bigmc.open_dataset(other)
        model = folder.parent / "other.model"
        if not model.exists():
            few = large["train"].subset(range(4))
            bigmc.MultiBoostClassifier(C=1e5, n_rounds=4, memory_limit="4GB").fit(few).save(model)
        rows = large.splits["test"]
        name = other.name.removesuffix(".bigmc")
        for loss, chosen in SPARSE.items():
            sparse = {"loss": loss, "engine": engine, "memory_limit": memory} | chosen
            train = partial(bigmc.train, "sparse", other, folder / f"{loss}.model", **sparse)
            yield f"train sparse {name}, {loss}", large.splits["train"], train
        yield f"evaluate {name}", rows, lambda: bigmc.evaluate(model, other, **options)
        to = folder / "o.parquet"
        yield f"predict {name}", rows, lambda: bigmc.predict(model, other, to, split="test", **options)


def warm(folder: Path, data: Path, engine: Any) -> None:
    """Have every process load its libraries and kernels."""
    small = folder / "small.csv"
    with open(data, newline="") as source, open(small, "w", newline="") as file:
        csv.writer(file).writerows(itertools.islice(csv.reader(source), 2000))
    for _, _, run in steps(folder / "warm", small, None, "", engine, 2):
        run()


def extrapolate(figures: list[dict[str, Any]]) -> None:
    """Print what 100 workers would need for 10^9 rows, from the figures of one, and what would limit them.

    ``workers``: processor seconds of the workers per row, times rows, over them. ``coordinator``: those
    of this process per row (reduction, master problem, publishing, the scheduler), which do not shrink.
    ``tasks``: 1 ms for each, as many per row as here. ``network``: bytes moved per row, in and out of this
    machine at 1 GB/s. Memory of this process is said below the table: it ends boosting before time does.
    """
    print(f"\n{ROWS:.0e} rows on {WORKERS} workers of one thread, in hours, from the figures of one worker")
    print(f"{'step':18} {'workers':>8} {'coordinator':>12} {'tasks':>8} {'network':>8}  bottleneck")
    for entry in figures:
        if entry["engine"] != "1 worker" or entry["step"] in FEW:
            continue
        factor = ROWS / entry["rows"] / 3600
        hours = {
            "workers": entry["there"] * factor / WORKERS,
            "coordinator": entry["here"] * factor,
            "tasks": entry["tasks"] * TASK * factor,
            "network": entry["bytes_moved"] * factor / NETWORK,
        }
        worst = max(hours, key=lambda name: hours[name])
        shown = "  ".join(
            f"{value:{width}.2f}" for value, width in zip(hours.values(), (7, 11, 7, 7), strict=True)
        )
        print(f"{entry['step']:18} {shown}  {worst}")
    duals = ROWS * (64 + 2) * 4 + 12 * ROWS  # 58 classes are padded to 64: bigmc.solvers.boosting.memory_plan
    print(f"boosting keeps {duals / 1e9:.0f} GB of dual weights in this process, the minimax learner 12 GB")


def kills(folder: Path, data: Path, other: Path | None, memory: str, count: int) -> None:
    """Kill a worker of two at a random moment of a run, so many times over ingest and the learners."""
    draw = random.Random(0)
    options = {"memory_limit": "1GB"}
    source = folder / "true.bigmc"
    bigmc.ingest(data, source, hash_bits=14, **TEXT, **options)
    jobs: dict[str, Callable[[Path, Any], Any]] = {
        "ingest": lambda to, engine: bigmc.ingest(data, to, hash_bits=14, engine=engine, **TEXT, **options),
        "boost": lambda to, engine: bigmc.train(
            "boost", source, to, n_rounds=4, tol=1e-9, engine=engine, **options
        ),
        "mrc": lambda to, engine: bigmc.train("mrc", source, to, k_max=1, tol=1e-9, engine=engine, **options),
    }
    if other is not None:
        for loss, chosen in SPARSE.items():
            sparse = {"loss": loss, "memory_limit": memory} | chosen
            jobs[f"sparse {loss}"] = lambda to, engine, more=sparse: bigmc.train(
                "sparse", other, to, engine=engine, **more
            )
    seconds, truth = {}, {"ingest": content(source)}
    for name, job in jobs.items():
        started = time.monotonic()
        job(folder / f"true.{name}", None)
        seconds[name], truth[name] = time.monotonic() - started, content(folder / f"true.{name}")
    from distributed import Client, LocalCluster

    cluster_options = {"host": "127.0.0.1", "dashboard_address": None, "threads_per_worker": 1}
    for number in range(count):
        name = list(jobs)[number % len(jobs)]
        after = draw.random() * seconds[name]
        with (
            LocalCluster(n_workers=2, memory_limit=0, **cluster_options) as cluster,
            Client(cluster) as client,
        ):
            victim = min(client.run(os.getpid).values())
            timer = threading.Timer(after, os.kill, (victim, signal.SIGKILL))
            timer.start()
            to = folder / f"killed-{number}"
            jobs[name](to, client)
            timer.join()
            same = content(to) == truth[name]
        print(json.dumps({"killed in": name, "after": round(after, 2), "same bytes": same}), flush=True)


def content(path: Path) -> dict[str, bytes]:
    """Return the bytes of a file or of all files below a folder."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=Path(__file__).parent / "data" / "packages.csv")
    parser.add_argument("--dataset", type=Path)
    parser.add_argument("--memory", default="192MB")
    parser.add_argument("--engines", nargs="*", default=ENGINES)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--kills", type=int, default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        if asked.kills:
            kills(Path(scratch), asked.data, asked.dataset, asked.memory, asked.kills)
            return
        figures = []
        for name in asked.engines:
            with engine_of(name) as (engine, there):
                folder = Path(scratch) / name.replace(" ", "-")
                (folder / "warm").mkdir(parents=True)
                warm(folder, asked.data, engine)
                for step, rows, run in steps(
                    folder, asked.data, asked.dataset, asked.memory, engine, asked.rounds
                ):
                    figures.append(timed(step, name, engine, there, rows, run))
                shutil.rmtree(folder)
    by_step = {(entry["step"], entry["engine"]): entry for entry in figures}
    for step in dict.fromkeys(entry["step"] for entry in figures):
        thread, worker = by_step.get((step, "1 thread")), by_step.get((step, "1 worker"))
        if thread and worker:
            cpu = (worker["here"] + worker["there"]) / max(thread["here"], 1e-9)
            ratio = {"step": step, "worker/thread": round(worker["seconds"] / thread["seconds"], 2)}
            print(json.dumps(ratio | {"worker/thread, processor": round(cpu, 2)}))
    extrapolate(figures)


if __name__ == "__main__":
    main()
