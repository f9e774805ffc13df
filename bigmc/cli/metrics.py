"""Figures of a run as OpenMetrics text, for the collector that reads such files."""

from __future__ import annotations

import math
import os
import re
import time
from pathlib import Path

from bigmc.budget import peak_memory
from bigmc.progress import Progress


def write_metrics(
    path: Path, command: str, seconds: float, last: Progress | None, error: BaseException | None
) -> None:
    """Replace a file by the figures of a run that has ended.

    Parameters
    ----------
    path : Path
    command : str
        Such as ``train sparse``; the label of every figure.
    seconds : float
        Duration of the run.
    last : Progress or None
        The last message of the run, whose figures are written too.
    error : BaseException or None
        What ended it too early.
    """
    figures = {
        "bigmc_run_succeeded": float(error is None),
        "bigmc_run_seconds": seconds,
        "bigmc_run_end_timestamp_seconds": time.time(),
        "bigmc_run_peak_memory_bytes": float(peak_memory()),
    }
    if last is not None:
        figures[f"bigmc_done_{_name(last.unit)}"] = float(last.done)
        figures |= {f"bigmc_{_name(name)}": float(value) for name, value in last.facts.items()}
    lines = []
    for name, value in figures.items():
        if math.isfinite(value):
            lines += [f"# TYPE {name} gauge", f'{name}{{command="{command}"}} {value!r}']
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    with open(aside, "w") as file:
        file.write("\n".join([*lines, "# EOF", ""]))
    os.replace(aside, path)


def _name(text: str) -> str:
    """Return a text as part of a figure's name."""
    return re.sub(r"[^a-zA-Z0-9]+", "_", text.replace("/s", "_per_second")).strip("_").lower()
