"""Training in a fraction of the memory that the data needs: course, proof and accuracy on seven problems.

    python bench/out_of_core.py a b --size small --shares 2 4 10 --losses squared_hinge
    python bench/out_of_core.py --table

Every training is one ``bigmc train`` in a process of its own that the kernel ends when it takes more than its
bare imports and 1.2 times the limit. The limit is a share of D, the decoded bytes of the rows to train on
(non-zeros × (2 + bytes of a value)), and at least 64 MB (32 MB for the small versions). One JSON line a
training, kept in ``results/out_of_core.jsonl``. ``--table`` prints what they come to: reads (bytes read and
written over D) until the objective was within 1e-2 and 1e-3 of the optimum, and until that gap was proved.
The optimum lies between the bounds of all runs of the same problem, and is taken to be the smaller objective;
``--reference`` adds a run in memory to them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from memory_cap import ROOT, anonymous, bare_bytes, capped
from out_of_core_problems import HERE, PROBLEMS, Place, make
from out_of_core_table import print_table

FLOOR = {"full": 64_000_000, "mid": 64_000_000, "small": 32_000_000}
"""Smallest limit in bytes, by size of the problem."""
CAP_SHARE = 1.2
_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Training:
    """What one command is to do."""

    problem: str
    size: str
    alpha: float
    loss: str
    penalty: str
    ridge: float
    memory: int | None
    """Bytes of the limit; none for a reference, which has what it needs."""
    share: int | None
    tol: float
    max_passes: int
    most_cpu_seconds: float


@dataclass
class Watched:
    """What was seen of a process from outside: its peak, and its time at each line that it wrote."""

    peak_anonymous: int = 0
    lines: list[tuple[float, float, str]] = field(default_factory=list)
    """Seconds, CPU seconds and text of each line of progress."""


def decoded_bytes(dataset: Path) -> int:
    """Return non-zeros × (2 + bytes of a value), by the manifest."""
    shards = json.loads((dataset / "manifest.json").read_text())["shards"]
    sizes = {"int8": 1, "int16": 2, "int32": 4, "float32": 4, "float64": 8}
    return sum(int(shard["nnz"]) * (2 + sizes[shard["dtype"]]) for shard in shards)


def cpu_seconds(process: int) -> float:
    """Return user and system time of a running process, 0 once it has ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICK


def watch(process: subprocess.Popen[str], watched: Watched, most_cpu_seconds: float) -> None:
    """Sample the peak of a process until it ends; kill it where it takes more time than it may."""
    while (now := anonymous(process.pid)) > 0:
        watched.peak_anonymous = max(watched.peak_anonymous, now)
        if cpu_seconds(process.pid) > most_cpu_seconds:
            process.kill()
        time.sleep(0.05)


def train(training: Training, place: Place, model: Path, cap_share: float = CAP_SHARE) -> dict[str, Any]:
    """Run one training under its cap and return its figures."""
    bare, bare_anonymous = bare_bytes("train")
    cap = bare + round((training.memory or 1 << 40) * cap_share)
    command = [
        *(sys.executable, "-m", "bigmc", "train", "sparse", str(place.dataset["train"]), "--to", str(model)),
        *("--alpha", str(training.alpha), "--loss", training.loss, "--penalty", training.penalty),
        *("--ridge", str(training.ridge), "--tol", str(training.tol)),
        *("--max-passes", str(training.max_passes), "--json", "--log", "json"),
        *(("--memory", str(training.memory)) if training.memory else ()),
        *(("--l1-ratio", "0.5") if training.penalty == "sparse_group" else ()),
    ]
    started = time.monotonic()
    watched = Watched()
    with capped(cap) as (kind, enter):
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            preexec_fn=enter,
            text=True,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        watcher = threading.Thread(target=watch, args=(process, watched, training.most_cpu_seconds))
        watcher.start()
        for line in process.stderr:
            spent = time.monotonic() - started
            watched.lines.append((spent, cpu_seconds(process.pid), line.rstrip()))
        said = process.stdout.read()
        watcher.join()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return {
        **asdict(training),
        "status": process.returncode,
        "seconds": round(time.monotonic() - started, 1),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "anonymous_above_bare_bytes": watched.peak_anonymous - bare_anonymous,
        "cap": kind,
        "course": course(watched, model),
        "said": json.loads(said) if process.returncode == 0 else {},
        "error": "" if process.returncode == 0 else " | ".join(text for *_, text in watched.lines[-4:]),
    }


def course(watched: Watched, model: Path) -> list[dict[str, float]]:
    """Return objective, bounds, reads and times after rounds and certificates, exact if the run ended."""
    entries = [
        {**event, "seconds": spent, "cpu_seconds": cpu}
        for spent, cpu, text in watched.lines
        if (event := parse(text)).get("step") == "train" and "gap" in event
    ]
    if not model.exists():
        return entries
    import bigmc

    by_pass = {entry["n_passes"]: entry for entry in entries}
    for certified in bigmc.load_model(model).history_:
        by_pass[certified["n_passes"]] = by_pass.get(certified["n_passes"], {}) | certified
    return [by_pass[n_passes] for n_passes in sorted(by_pass)]


def parse(line: str) -> dict[str, Any]:
    """Return the event that a line of ``--log json`` is, without fields if it is none."""
    try:
        event = json.loads(line)
    except json.JSONDecodeError:
        return {}
    return event if isinstance(event, dict) else {}


def accuracy(model: Path, place: Place) -> dict[str, float]:
    """Return what ``bigmc evaluate`` says of the rows held out."""
    command = [
        *(sys.executable, "-m", "bigmc", "evaluate", str(model), str(place.dataset["test"])),
        *("--split", "test", "--json"),
    ]
    said = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True)
    if said.returncode:
        return {}
    figures = json.loads(said.stdout)
    names = ("accuracy", "macro_f1", "log_loss", "ece")
    return {name: figures[name] for name in names if isinstance(figures.get(name), float)}


def compile_kernels(training: Training, place: Place, model: Path) -> None:
    """Begin a training without a cap: the processes that compile kernels would count for it.

    Some kernels are first used by the rounds after the first certificate, and by the next one.
    """
    train(replace(training, max_passes=6), place, model, cap_share=1e3)
    model.unlink(missing_ok=True)


def run(trainings: Sequence[Training], folder: Path, results: Path, compile_first: bool) -> None:
    """Do the trainings in turn and append a line for each."""
    results.parent.mkdir(parents=True, exist_ok=True)
    compiled = set()
    for training in trainings:
        place = make(training.problem, training.size, folder)
        model = place.folder / f"run-{os.getpid()}.model"
        kind = (training.problem, training.loss, training.penalty)
        if compile_first and kind not in compiled:
            compile_kernels(training, place, model)
            compiled.add(kind)
        figures = train(training, place, model)
        figures |= {"decoded_bytes": decoded_bytes(place.dataset["train"])}
        if model.exists():
            figures |= accuracy(model, place)
            model.unlink()
        figures |= {"version": version(), "at": time.strftime("%Y-%m-%d %H:%M", time.gmtime())}
        with results.open("a") as file:
            file.write(json.dumps(figures) + "\n")
        shown = {key: value for key, value in figures.items() if key not in ("course", "said")}
        print(json.dumps(shown), flush=True)


def version() -> str:
    """Return the commit that is measured."""
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def planned(given: argparse.Namespace) -> list[Training]:
    """Return the trainings that the options ask for."""
    trainings = []
    for name in given.problems:
        n_bytes = decoded_bytes(make(name, given.size, given.folder).dataset["train"])
        for loss in given.losses or PROBLEMS[name].losses[:1]:
            for share in [None] if given.reference else given.shares:
                trainings.append(
                    Training(
                        name,
                        given.size,
                        given.alpha or PROBLEMS[name].alphas[1],
                        loss,
                        given.penalty,
                        given.ridge,
                        max(FLOOR[given.size], n_bytes // share) if share else None,
                        share,
                        given.tol,
                        given.max_passes,
                        given.most_cpu_seconds,
                    )
                )
    return trainings


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("problems", nargs="*", metavar=f"{{{','.join(PROBLEMS)}}}")
    parser.add_argument("--size", choices=("full", "mid", "small"), default="full")
    parser.add_argument("--shares", nargs="+", type=int, default=[2, 4, 10], help="D over the limit")
    parser.add_argument("--losses", nargs="+", help="by default the first of each problem")
    parser.add_argument("--penalty", default="l1/l2")
    parser.add_argument("--alpha", type=float, help="by default the middle one of each problem")
    parser.add_argument("--ridge", type=float, default=0.0)
    parser.add_argument("--tol", type=float, default=1e-3)
    parser.add_argument("--max-passes", type=int, default=30)
    parser.add_argument("--most-cpu-seconds", type=float, default=1800, help="for each training")
    parser.add_argument("--reference", action="store_true", help="no limit, to learn where the optimum is")
    parser.add_argument("--compile-first", action="store_true", help="where kernels may not be compiled yet")
    parser.add_argument("--table", action="store_true", help="print the table of the runs there are")
    parser.add_argument("--folder", type=Path, default=HERE / "data")
    given = parser.parse_args()
    if unknown := set(given.problems) - set(PROBLEMS):
        parser.error(f"no such problem: {', '.join(sorted(unknown))}")
    given.folder = given.folder.resolve()
    results = HERE / "results" / "out_of_core.jsonl"
    run(planned(given), given.folder, results, given.compile_first)
    if given.table:
        print_table(results)


if __name__ == "__main__":
    main()
