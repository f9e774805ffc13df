"""The commands of bigmc on small data, each as a function of the folder it works in."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bigmc import api
from bigmc.engine import ThreadEngine
from bigmc.ingestion import job as job_module
from bigmc.model import load_model
from bigmc.model.summed import SumModel

SMALL = {"memory_limit": "64MB", "engine": ThreadEngine(1)}
#: Of each model in the inputs, rows that it can predict and the dataset it was trained on.
MODELS = {
    "s.model": ("rows.csv", "d.bigmc"),
    "b.model": ("numbers.csv", "n.bigmc"),
    "m.model": ("numbers.csv", "n.bigmc"),
    "sum.model": ("numbers.csv", "n.bigmc"),
}
TEXT = {"text": "text", "label": "label", "hash_bits": 6, "on_bad_row": "quarantine", **SMALL}


@dataclass(frozen=True)
class Command:
    """A command to be interrupted.

    Attributes
    ----------
    name : str
    run : callable
        Given the inputs and the folder to work in.
    start : callable, optional
        Puts into that folder what is there before.
    """

    name: str
    run: Callable[[Path, Path], object]
    start: Callable[[Path, Path], object] = lambda inputs, folder: None


def make_inputs(folder: Path) -> None:
    """Write sources, a dataset of texts and one of numbers, and a model of each kind."""
    rng = random.Random(0)
    for name, n in (("rows.csv", 60), ("more.csv", 30)):
        lines = [
            "bad row"
            if i % 29 == 28
            else f"w{rng.randrange(20)} w{rng.randrange(9)} {'xyz'[i % 3]}{rng.randrange(3)},{'xyz'[i % 3]}"
            for i in range(n)
        ]
        (folder / name).write_text("text,label\n" + "\n".join(lines) + "\n")
    values = np.random.default_rng(0)
    table = ["a,b,c,label"]
    for i in range(60):
        a, b, c = values.normal(size=3) + i % 2
        table.append(f"{a:.4f},{b:.4f},{c:.4f},{i % 2}")
    (folder / "numbers.csv").write_text("\n".join(table) + "\n")
    _ingest_text(folder, folder)
    _ingest_numbers(folder, folder)
    for command in (_sparse, _boost, _mrc, _evaluate):
        command(folder, folder)
    _sum(folder)


def _ingest_text(inputs: Path, folder: Path) -> None:
    api.ingest(inputs / "rows.csv", folder / "d.bigmc", split={"train": 0.6, "test": 0.4}, **TEXT)


def _ingest_numbers(inputs: Path, folder: Path) -> None:
    api.ingest(
        inputs / "numbers.csv", folder / "n.bigmc", dense=["a", "b", "c"], label="label", standardize=True,
        split={"train": 0.7, "test": 0.3}, weighting="counts", **SMALL,
    )  # fmt: skip


def _append(inputs: Path, folder: Path) -> None:
    api.ingest(inputs / "more.csv", folder / "d.bigmc", append=True, on_bad_row="quarantine", **SMALL)


def _parts(inputs: Path, folder: Path) -> None:
    options = {"split": {"train": 0.6, "test": 0.4}, **TEXT}
    for number in range(2):
        api.ingest_part(inputs / "rows.csv", folder / "d.bigmc", (number, 2), **options)
    api.ingest(inputs / "rows.csv", folder / "d.bigmc", **options)


def _sparse(inputs: Path, folder: Path) -> None:
    api.train("sparse", inputs / "d.bigmc", folder / "s.model", alpha=3e-2, tol=1e-2, max_passes=4, **SMALL)


def _calibrated(inputs: Path, folder: Path) -> None:
    options = {"alpha": 3e-2, "tol": 1e-2, "max_passes": 4, "loss": "log_loss", "calibrate": 0.3}
    api.train("sparse", inputs / "d.bigmc", folder / "c.model", **options, **SMALL)


def _boost(inputs: Path, folder: Path) -> None:
    api.train("boost", inputs / "n.bigmc", folder / "b.model", n_rounds=3, C=10.0, **SMALL)


def _mrc(inputs: Path, folder: Path) -> None:
    api.train("mrc", inputs / "n.bigmc", folder / "m.model", tol=0.05, **SMALL)


def _sum(folder: Path) -> None:
    """Write a sum of models, as a fit of numbers makes it where it errs less than either."""
    api.train(
        "sparse", folder / "n.bigmc", folder / "part.model", alpha=3e-2, tol=1e-2, max_passes=4, **SMALL
    )
    parts = [load_model(folder / name) for name in ("part.model", "b.model")]
    SumModel.of(parts, np.array([0.5, 2.0])).save(folder / "sum.model")


def _path(inputs: Path, folder: Path) -> None:
    api.sparse_path(
        inputs / "d.bigmc", folder / "path", alphas=[5e-2, 3e-2], max_passes=2, tol=1e-1, **SMALL
    )  # fmt: skip


def _fit(inputs: Path, folder: Path) -> None:
    api.fit(inputs / "d.bigmc", folder / "f.model", **SMALL)


def _fit_numbers(inputs: Path, folder: Path) -> None:
    api.fit(inputs / "n.bigmc", folder / "f.model", **SMALL)


def _fit_rows(inputs: Path, folder: Path) -> None:
    api.fit(inputs / "rows.csv", folder / "f.model", **TEXT)


def _warm_path(inputs: Path, folder: Path) -> None:
    options = {"alphas": [5e-2], "max_passes": 2, "tol": 1e-1, "warm_start": inputs / "s.model"}
    api.sparse_path(inputs / "d.bigmc", folder / "path", **options, **SMALL)


def _predict(inputs: Path, folder: Path) -> None:
    api.predict(
        inputs / "s.model", inputs / "rows.csv", folder / "p.parquet", on_bad_row="quarantine", **SMALL
    )


def _evaluate(inputs: Path, folder: Path) -> None:
    api.evaluate(inputs / "s.model", inputs / "d.bigmc", to=folder / "e.json", **SMALL)


def _evaluate_rows(inputs: Path, folder: Path) -> None:
    api.evaluate(
        inputs / "sum.model", inputs / "numbers.csv", label="label", to=folder / "rows.json", **SMALL
    )  # fmt: skip


def _publish(inputs: Path, folder: Path) -> None:
    api.publish([inputs / "e.json"], folder / "best.model")


def _report(inputs: Path, folder: Path) -> None:
    api.report(inputs / "s.model", folder / "r.html", **SMALL)


def _export(inputs: Path, folder: Path) -> None:
    api.export(inputs / "m.model", folder / "m.md", dataset=inputs / "n.bigmc")


def _with_dataset(inputs: Path, folder: Path) -> None:
    shutil.copytree(inputs / "d.bigmc", folder / "d.bigmc")


COMMANDS = (
    Command("ingest", _ingest_text),
    Command("ingest numbers", _ingest_numbers),
    Command("append", _append, _with_dataset),
    Command("parts", _parts),
    Command("train sparse", _sparse),
    Command("train calibrated", _calibrated),
    Command("train boost", _boost),
    Command("train mrc", _mrc),
    Command("path", _path),
    Command("path warm", _warm_path),
    Command("fit", _fit),
    Command("fit numbers", _fit_numbers),
    Command("fit rows", _fit_rows),
    Command("predict", _predict),
    Command("evaluate", _evaluate),
    Command("evaluate rows", _evaluate_rows),
    Command("publish", _publish),
    Command("report", _report),
    Command("export", _export),
)


def small_parts() -> None:
    """Let an ingest of a few rows have several parts."""
    job_module.SMALLEST_PART, job_module.ROWS_PER_PART = 1 << 9, 20


def result(folder: Path) -> dict[str, bytes]:
    """Return what a command has made, without locks and what in the files of a fit no two runs share."""
    from faults.recorder import contents

    made = contents(folder)
    kept = {name: data for name, data in made.items() if not name.endswith("lock")}
    return {name: _comparable(data) if ".fit/" in name else data for name, data in kept.items()}


def _comparable(data: bytes) -> bytes:
    """Return the JSON of a work file without seconds and folders; anything else as it is."""
    text = data.partition(b"\n")[2]
    try:
        json.loads(text)
    except ValueError:
        return data
    text = re.sub(rb'"seconds": [^,}]+', b'"seconds": 0', text)
    return re.sub(rb'"model": "[^"]*/', b'"model": "', text)
