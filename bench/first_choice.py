"""Which learner to reach for first: accuracy, probabilities, time, memory and size on texts and tables.

    python bench/first_choice.py packages letter --methods LinearSVC "VW 5" "bigmc fit"
    python bench/first_choice.py --table

Every method gets the same rows (``bench/first_choice_sets.py``) and is processes of its own from the raw
Parquet table to the predictions of the rows held out; those are judged by the same code. Peers have one
thread. bigmc runs with its defaults: ``bigmc fit``, which searches, and ``bigmc ingest``, ``train`` and
``predict``, one fit. ``bigmc fit --group`` is told which of the rows to train on belong together; no other
method is. The defaults were chosen on packages, glosses, lines and questions; other sets judge.
One JSON line a run, kept in ``results/first_choice.jsonl``; runs that are there are not repeated.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from first_choice_peers import PEERS, judged
from first_choice_sets import HERE, PUBLIC, SEED, TABLES, TEXTS, make

ROOT = HERE.parent
KINDS = {"questions": "pair", "strings": "char", "names": "char", "words": "char"}
"""What a text is made into where it is not words; as a user of the peers would choose."""
GROUPED = "bigmc fit --group"
OURS = ("bigmc fit", GROUPED, "bigmc train")
COLUMNS = ("set", "method", "accuracy", "log loss", "ECE", "s", "CPU s", "peak MB", "model MB")


def sides(name: str, folder: Path, public: Path | None) -> tuple[Path, Path]:
    """Write the two sides of the split, rows in random order and without the split's column."""
    paths = tuple(folder / "sides" / f"{name}-{side}.parquet" for side in ("train", "test"))
    if not all(path.exists() for path in paths):
        if name in PUBLIC and public is None:
            raise SystemExit(f"{name} is read from --public")
        source = public / f"{name}.parquet" if name in PUBLIC and public else make(name, folder)
        table = pq.read_table(source)
        table = table.take(pa.array(np.random.default_rng(SEED).permutation(table.num_rows)))
        paths[0].parent.mkdir(parents=True, exist_ok=True)
        for path, side in zip(paths, ("train", "test"), strict=True):
            rows = table.filter(pc.equal(table.column("split"), side)).drop_columns("split")
            pq.write_table(rows.combine_chunks(), path)
    return paths[0], paths[1]


_METER = """
import json, resource, subprocess, sys
status = subprocess.run(sys.argv[2:]).returncode
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
seconds, peak = usage.ru_utime + usage.ru_stime, usage.ru_maxrss << 10
figures = {"status": status, "cpu_seconds": seconds, "peak_bytes": peak}
json.dump(figures, open(sys.argv[1], "w"))
"""
"""Runs a command and writes its figures. The peak of a process counts what its parent held when it started:
after the words were made here, every command seemed to have taken 6 GB, so that a small process starts it."""


def timed(command: Sequence[str], limit: int) -> tuple[dict[str, float], str]:
    """Run a command with so many CPU seconds; return the figures of all its processes, and its output."""
    started = time.monotonic()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode
    with tempfile.NamedTemporaryFile() as figures:
        meter = [sys.executable, "-I", "-S", "-c", _METER, figures.name]
        process = subprocess.run(
            [*meter, "prlimit", f"--cpu={limit}", *command],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            check=True,
        )
        return json.load(figures) | {"seconds": time.monotonic() - started}, process.stdout


def run_peer(method: str, name: str, train: Path, test: Path, limit: int) -> dict[str, Any]:
    script = str(HERE / "first_choice_peers.py")
    kind = KINDS.get(name, "word")
    spent, said = timed([sys.executable, script, str(train), str(test), method, kind], limit)
    return spent | (json.loads(said) if spent["status"] == 0 else {})


def run_ours(method: str, name: str, train: Path, test: Path, limit: int) -> dict[str, Any]:
    """Run the commands of bigmc and judge the predictions that they wrote."""
    columns = ["--label", "label"]
    if name in TABLES:
        dense = [column for column in pq.read_schema(train).names if column != "label"]
        columns += [option for column in dense for option in ("--dense", column)]
    else:
        columns += ["--text", "text"]
        short = KINDS.get(name) == "char"
        columns += ["--analyzer", "char_wb", "--ngrams", "1-3"] if short and method == "bigmc train" else []
        columns += ["--group", "group"] if method == GROUPED else []
    with tempfile.TemporaryDirectory(dir=train.parent) as scratch:
        model, dataset, said = (str(Path(scratch) / part) for part in ("m.model", "d.bigmc", "p.parquet"))
        predict = ["predict", model, str(test), "--to", said]
        predict += [] if method == "bigmc train" else ["--proba"]
        commands = {
            "bigmc fit": [["fit", str(train), "--to", model, *columns], predict],
            GROUPED: [["fit", str(train), "--to", model, *columns], predict],
            "bigmc train": [
                ["ingest", str(train), "--to", dataset, *columns, "--split", "train=1"],
                ["train", "sparse", dataset, "--to", model],
                predict,
            ],
        }[method]
        total = {"status": 0, "seconds": 0.0, "cpu_seconds": 0.0, "peak_bytes": 0}
        for command in commands:
            spent, _ = timed([sys.executable, "-m", "bigmc", *command], limit)
            total = {
                "status": spent["status"],
                "peak_bytes": max(total["peak_bytes"], spent["peak_bytes"]),
                **{key: total[key] + spent[key] for key in ("seconds", "cpu_seconds")},
            }
            if spent["status"]:
                return total
        truth = pq.read_table(test).column("label").to_pylist()
        figures = judged_table(pq.read_table(said), truth)
        return total | figures | {"model_bytes": Path(model).stat().st_size}


def judged_table(said: pa.Table, truth: list[Any]) -> dict[str, float]:
    """Judge a table of predictions in the order of its rows."""
    said = said.sort_by("row_id")
    columns = [column for column in said.column_names if column.startswith("probability_")]
    probability = np.column_stack([said.column(c).to_numpy() for c in columns]) if columns else None
    classes = [column.removeprefix("probability_") for column in columns]
    predicted = "predicted_labels" if isinstance(truth[0], list) else "predicted_label"
    return judged(truth, said.column(predicted).to_pylist(), probability, classes)


def runs_in(results: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the latest run of each method on each set."""
    lines = results.read_text().splitlines() if results.exists() else []
    return {(run["set"], run["method"]): run for run in map(json.loads, lines)}


def shown(results: Path) -> None:
    """Print the latest run of each method on each set."""
    latest = runs_in(results)
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    order = [*TEXTS, *PUBLIC, *TABLES]
    methods = [*PEERS, *OURS]
    for key in sorted(latest, key=lambda key: (order.index(key[0]), methods.index(key[1]))):
        run = latest[key]
        if run["status"]:
            print(f"| {' | '.join(key)} | not done after {run['cpu_seconds']:.0f} CPU s |")
            continue
        known = {name: f"{run[name]:.4f}" for name in ("log_loss", "ece") if name in run}
        cells = (
            *key,
            f"{run.get('accuracy', run.get('micro_f1')):.4f}",
            known.get("log_loss", "–"),
            known.get("ece", "–"),
            f"{run['seconds']:.1f}",
            f"{run['cpu_seconds']:.1f}",
            f"{run['peak_bytes'] / 1e6:.0f}",
            f"{run['model_bytes'] / 1e6:.3f}",
        )
        print(f"| {' | '.join(cells)} |")


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    known = (*TEXTS, *PUBLIC, *TABLES)
    parser.add_argument("sets", nargs="*", metavar=f"{{{','.join(known)}}}")
    parser.add_argument("--methods", nargs="+", choices=[*PEERS, *OURS], help="by default all that apply")
    parser.add_argument("--limit", type=int, default=900, help="CPU seconds of each command")
    parser.add_argument("--again", action="store_true", help="repeat runs that are in the results")
    parser.add_argument("--public", type=Path, help="folder of the research sets")
    parser.add_argument("--folder", type=Path, default=HERE / "data")
    parser.add_argument("--table", action="store_true", help="print the table of the runs there are")
    given = parser.parse_args()
    if unknown := set(given.sets) - set(known):
        parser.error(f"no such set: {', '.join(sorted(unknown))}")
    results = HERE / "results" / "first_choice.jsonl"
    results.parent.mkdir(exist_ok=True)
    done = runs_in(results)
    for name in given.sets:
        train, test = sides(name, given.folder.resolve(), given.public)
        for method in given.methods or [*PEERS, *OURS]:
            if method not in ("bigmc fit", GROUPED) and (method == "LightGBM") != (name in TABLES):
                continue  # one fit without a search is for texts
            if method == GROUPED and "group" not in pq.read_schema(train).names:
                continue
            if (name, method) in done and not given.again:
                continue
            function = run_ours if method in OURS else run_peer
            figures = function(method, name, train, test, given.limit)
            line = json.dumps({"set": name, "method": method, **figures})
            print(line, flush=True)
            with results.open("a") as file:
                file.write(f"{line}\n")
    if given.table:
        shown(results)


if __name__ == "__main__":
    main()
