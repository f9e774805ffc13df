"""The table of ``bench/out_of_core.py``: how far each run was from the optimum after how many reads."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WITHIN = (1e-2, 1e-3)
COLUMNS = (
    *("problem", "limit MB", "loss", "penalty", "1e-2 after", "1e-3 after", "gap 1e-2", "gap 1e-3"),
    *("reads", "gap", "CPU s", "s", "above bare MB", "accuracy", "status"),
)


@dataclass(frozen=True)
class Bounds:
    """Where the optimum of an objective is known to lie."""

    lower: float = -math.inf
    upper: float = math.inf

    def with_run(self, run: dict[str, Any]) -> Bounds:
        """Return the bounds that one more run leaves."""
        lower = max((entry.get("lower", -math.inf) for entry in run["course"]), default=-math.inf)
        upper = min((entry["objective"] for entry in run["course"]), default=math.inf)
        return Bounds(max(self.lower, lower), min(self.upper, upper))


def objective_of(run: dict[str, Any]) -> tuple[Any, ...]:
    """Return what two runs must share to minimise the same objective."""
    return tuple(run[key] for key in ("problem", "size", "alpha", "loss", "penalty", "ridge"))


def reads(run: dict[str, Any], entry: dict[str, float]) -> float:
    """Return bytes read and written over D, or declared passes where no bytes are counted."""
    return float(entry.get("n_reads", entry.get("n_passes", math.nan)))


def first(run: dict[str, Any], within: float, best: float | None) -> float:
    """Return the reads until the objective, or without `best` the proved gap, is within a share."""
    for entry in run["course"]:
        short = entry["gap"] if best is None else (entry["objective"] - best) / best
        if short <= within:
            return reads(run, entry)
    return math.inf


def rows(results: Path) -> Iterator[tuple[str, ...]]:
    """Yield the cells of each run, the last one of each kind."""
    runs = [json.loads(line) for line in results.read_text().splitlines()]
    bounds: dict[tuple[Any, ...], Bounds] = defaultdict(Bounds)
    latest: dict[tuple[Any, ...], dict[str, Any]] = {}
    for run in runs:
        bounds[objective_of(run)] = bounds[objective_of(run)].with_run(run)
        latest[*objective_of(run), run["share"] or 0] = run
    for _, run in sorted(latest.items(), key=lambda item: str(item[0])):
        if not run["course"]:
            cells = ["–"] * 6
        else:
            best = bounds[objective_of(run)].upper
            reached = [first(run, share, best) for share in WITHIN] + [first(run, s, None) for s in WITHIN]
            final = run["course"][-1]
            cells = [_number(value) for value in (*reached, reads(run, final))] + [f"{final['gap']:.1e}"]
        size = "" if run["size"] == "full" else f" {run['size']}"
        share = f" (D/{run['share']})" if run["share"] else ""
        memory = f"{run['memory'] / 1e6:.0f}{share}" if run["memory"] else "none"
        yield (
            *(run["problem"] + size, memory, run["loss"], run["penalty"], *cells),
            *(f"{run['cpu_seconds']:.0f}", f"{run['seconds']:.0f}"),
            f"{run['anonymous_above_bare_bytes'] / 1e6:.0f}",
            f"{run['accuracy']:.4f}" if "accuracy" in run else "–",
            "" if run["status"] == 0 else run["error"][:80] or f"ended with {run['status']}",
        )


def _number(value: float) -> str:
    return f"{value:.1f}" if math.isfinite(value) else "–"


def print_table(results: Path) -> None:
    """Print the runs as a table in Markdown, and how well each optimum is known."""
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    for cells in rows(results):
        print(f"| {' | '.join(cells)} |")
