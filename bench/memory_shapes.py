"""Nine shapes of data that strain memory, each ingested, trained on and predicted under a hard cap.

    python bench/memory_shapes.py --memory 64MB --to /tmp/shapes

Each step is one ``bigmc`` command in a process of its own, which the kernel kills when it takes more than
the bare imports and 1.2 times ``--memory``. A step may be done within its limit, or refuse with a limit that
would do: then that limit is tried at once, and must work, unless the machine has less memory. One JSON line
per step; the exit status is 1 if a process was killed, took more than its limit, or refused the limit that it
had named. With ``--steps`` only these are measured, and what they need of the others is kept from before or
made without a cap.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from memory_cap import bare_bytes, run

SHARE = 1.2
TOO_LARGE = "more than this machine has"
TEXT = ["--text", "text", "--label", "label"]


def write_csv(to: Path, n_rows: int, row: Callable[[random.Random, int], list[object]]) -> None:
    """Write rows of a text and a label, or of more columns named c0, c1, … and a label."""
    rng = random.Random(0)
    with to.open("w", newline="") as file:
        writer = csv.writer(file)
        first = row(rng, 0)
        names = ["text"] if len(first) == 2 else [f"c{j}" for j in range(len(first) - 1)]
        writer.writerow([*names, "label"])
        writer.writerow(first)
        writer.writerows(row(rng, i) for i in range(1, n_rows))


def words(rng: random.Random, n: int, vocabulary: int) -> str:
    """Return a text of `n` words, the first of the vocabulary more often."""
    return " ".join(f"w{int(rng.random() ** 3 * vocabulary)}" for _ in range(n))


def many_labels(folder: Path) -> list[str]:
    write_csv(folder / "s.csv", 1_000_000, lambda rng, i: [words(rng, 3, 5000), f"label {i}"])
    return [str(folder / "s.csv"), *TEXT]


def long_documents(folder: Path) -> list[str]:
    write_csv(folder / "s.csv", 40, lambda rng, i: [words(rng, 900_000, 200_000), i % 2])
    return [str(folder / "s.csv"), *TEXT]


def wide_dense(folder: Path) -> list[str]:
    rng = np.random.default_rng(0)
    columns = {f"x{j}": rng.standard_normal(2000) for j in range(5000)}
    table = pa.table({**columns, "label": rng.integers(0, 3, 2000)})
    pq.write_table(table, folder / "s.parquet", row_group_size=500)
    return [
        str(folder / "s.parquet"),
        "--label",
        "label",
        *(w for j in range(5000) for w in ("--dense", f"x{j}")),
    ]


def short_rows(folder: Path) -> list[str]:
    letters = "abcdefghijklmnopqrstuvwxyz"
    write_csv(folder / "s.csv", 2_000_000, lambda rng, i: ["".join(rng.choices(letters, k=9)), i % 150])
    return [str(folder / "s.csv"), *TEXT, "--analyzer", "char_wb", "--ngrams", "1-3"]


def many_rows(folder: Path) -> list[str]:
    def row(rng: random.Random, i: int) -> list[object]:
        first = int(rng.random() * 1000)
        return [f"w{first} v{int(rng.random() * 1000)}", f"c{first % 7}"]

    write_csv(folder / "s.csv", 12_000_000, row)
    return [str(folder / "s.csv"), *TEXT, "--hash-bits", "18"]


def categories(folder: Path) -> list[str]:
    def row(rng: random.Random, i: int) -> list[object]:
        return [*(int(rng.random() ** 4 * 50_000) for _ in range(30)), i % 2]

    write_csv(folder / "s.csv", 300_000, row)
    names = [w for j in range(30) for w in ("--categorical", f"c{j}")]
    return [str(folder / "s.csv"), "--label", "label", *names, "--hash-bits", "20"]


def label_sets(folder: Path) -> list[str]:
    def row(rng: random.Random, i: int) -> list[object]:
        return [words(rng, 30, 30_000), "|".join(f"t{int(rng.random() ** 3 * 2000)}" for _ in range(8))]

    write_csv(folder / "s.csv", 60_000, row)
    return [str(folder / "s.csv"), *TEXT, "--label-separator", "|"]


def many_classes(folder: Path) -> list[str]:
    write_csv(folder / "s.csv", 200_000, lambda rng, i: [words(rng, 20, 30_000), f"class {i % 5000}"])
    return [str(folder / "s.csv"), *TEXT, "--hash-bits", "14"]


def many_files(folder: Path) -> list[str]:
    rng = random.Random(0)
    (folder / "s").mkdir(exist_ok=True)
    for number in range(2000):
        rows = ({"text": words(rng, 60, 50_000), "label": f"c{i % 7}"} for i in range(60))
        (folder / "s" / f"{number}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return [str(folder / "s"), *TEXT]


SHAPES = {
    shape.__name__: shape
    for shape in (
        many_labels,
        long_documents,
        wide_dense,
        short_rows,
        many_rows,
        categories,
        label_sets,
        many_classes,
        many_files,
    )
}


def attempt(step: str, command: list[str], limit: int, log: Path) -> tuple[str, dict[str, object]]:
    """Run a step under its cap; return ``done``, ``refused``, ``overrun`` or ``killed``, and its figures."""
    with log.open("w") as errors:
        figures = run(step, command, limit, *bare_bytes(step), share=SHARE, stderr=errors)
    said = log.read_text()
    figures["said"] = said.strip().splitlines()[-1:] if figures["status"] else []
    if figures["status"] == 0:
        return "done" if figures["within_limit"] else "overrun", figures
    if figures["status"] == 1 and "--memory" in said and "Traceback" not in said:
        return ("refused" if figures["within_limit"] else "overrun"), figures
    return "killed" if figures["status"] < 0 else "failed", figures


def with_named_limit(step: str, command: list[str], log: Path) -> tuple[int | None, str, dict[str, object]]:
    """Try a step again with the limit that its refusal named; return that limit, the outcome and figures."""
    needed = named_limit(log.read_text())
    if needed is None:
        return None, "unnamed", {}
    if needed > os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"):
        return needed, TOO_LARGE, {}
    return needed, *attempt(step, command, needed, log)


def named_limit(said: str) -> int | None:
    """Return the limit that a refusal says would do, in bytes."""
    found = re.search(r"--memory (\d+(?:\.\d+)?)\s*([KMG]B)", said)
    units = {"KB": 10**3, "MB": 10**6, "GB": 10**9}
    return int(float(found[1]) * units[found[2]]) if found else None


STEPS = ("ingest", "train", "predict")
LOSS = ["--loss", "multitask_squared_hinge", "--alpha", "1e-3", "--max-passes", "3"]
PRINTED = ("status", "seconds", "anonymous_above_bare_bytes", "named_limit", "with_it", "said", "then")
PLENTY = "2GB"
"""Limit of what is made without a cap."""


def commands_of(name: str, folder: Path) -> dict[str, tuple[list[str], Path]]:
    """Write the source of a shape unless it is there; return the command of each step, and what it makes."""
    written = folder / "source.json"
    if not written.exists():
        written.write_text(json.dumps(SHAPES[name](folder)))
    ingest = json.loads(written.read_text())
    dataset, model, predictions = folder / "d.bigmc", folder / "m.model", folder / "p.parquet"
    return {
        "ingest": (["ingest", *ingest, "--to", str(dataset)], dataset),
        "train": (["train", "sparse", str(dataset), "--to", str(model), *LOSS], model),
        "predict": (["predict", str(model), ingest[0], "--to", str(predictions)], predictions),
    }


def measure(step: str, command: list[str], limit: int, log: Path) -> tuple[bool, dict[str, object]]:
    """Try a step, and the limit that it names; return whether it kept its promise, and the figures."""
    outcome, figures = attempt(step, command, limit, log)
    if outcome == "refused":
        needed, second, more = with_named_limit(step, command, log)
        figures |= {"named_limit": needed, "with_it": second, "then": more.get("said", [])}
        if "anonymous_above_bare_bytes" in more:
            figures["anonymous_above_bare_bytes"] = more["anonymous_above_bare_bytes"]
        if second not in ("done", TOO_LARGE):
            outcome = f"refused, then {second}"
    figures["outcome"] = outcome
    return outcome in ("done", "refused"), figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--memory", default="64MB", help="limit of every step")
    parser.add_argument("--to", type=Path, default=Path("memory-shapes"), help="folder to work in")
    parser.add_argument("--shapes", nargs="+", default=[*SHAPES], choices=[*SHAPES])
    parser.add_argument("--steps", nargs="+", default=[*STEPS], choices=STEPS)
    given = parser.parse_args()
    limit = named_limit(f"--memory {given.memory}")
    assert limit is not None
    held = True
    for name in given.shapes:
        folder = given.to / f"{name}-{given.memory}"
        folder.mkdir(parents=True, exist_ok=True)
        for step, (command, made) in commands_of(name, folder).items():
            if step in given.steps:
                subprocess.run(["rm", "-rf", str(made), f"{made}.wip"], check=True)
                kept, figures = measure(step, command, limit, folder / "log")
                held &= kept
                shown = {"shape": name, "step": step, "limit": limit, "outcome": figures["outcome"]}
                print(json.dumps(shown | {k: figures[k] for k in PRINTED if k in figures}), flush=True)
            if not made.exists() and any(later in given.steps for later in STEPS[STEPS.index(step) + 1 :]):
                bigmc = [sys.executable, "-m", "bigmc", *command, "--memory", PLENTY]
                if subprocess.run(bigmc, check=False).returncode:
                    break
    sys.exit(not held)


if __name__ == "__main__":
    main()
