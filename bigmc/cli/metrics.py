"""Write the figures of a run as OpenMetrics text, for a collector that reads files."""

from __future__ import annotations

import math
import re
import time
from pathlib import Path

from bigmc.budget import peak_memory
from bigmc.errors import DataError
from bigmc.progress import Progress

_FIRST = "bigmc_run_succeeded"


def refuse_other_file(path: Path) -> None:
    """Raise `DataError` if a path is not that of a metrics file of a run, or of a new file."""
    from bigmc.api.resolve import place_of  # imported late: ``--help`` does not need it

    if place_of(path, "--metrics").exists():  # false for devices and pipes
        with path.open("rb") as file:
            beginning = file.readline(80)
        if beginning and not beginning.startswith(f"# TYPE {_FIRST} ".encode()):
            raise DataError(
                f"{path} is not a metrics file that bigmc wrote", "give another name with --metrics"
            )


def write_metrics(
    path: Path, command: str, seconds: float, last: Progress | None, error: BaseException | None
) -> None:
    """Write the figures of a finished run to a file, device or pipe, replacing those of an earlier run.

    `command` is the label of every figure; the figures of the last message are written too, and whether
    an error ended the run. `DataError` if the path holds another file.
    """
    from bigmc.api.resolve import place_of

    refuse_other_file(path)
    figures = {
        _FIRST: float(error is None),
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
    place_of(path, "--metrics").write("\n".join([*lines, "# EOF", ""]).encode())


def _name(text: str) -> str:
    """Return a text as a part of a metric's name."""
    return re.sub(r"[^a-zA-Z0-9]+", "_", text.replace("/s", "_per_second")).strip("_").lower()
