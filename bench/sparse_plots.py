"""Draw the JSON lines of ``bench/sparse_race.py``: the figures and the table of the paper, on these data.

    python bench/sparse_plots.py RESULTS.jsonl --to figures [--clock cpu_seconds]

Of runs to a tolerance: relative error of the objective, test accuracy and features with weights against time
(figures 2 to 4 of Blondel, Seki and Uehara 2013), one picture per problem and alpha with a line per run.
Of runs along alphas: accuracy against features with weights (figure 5), and the smallest, median and
largest training times (table 2), printed as Markdown.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from matplotlib import colormaps
from matplotlib.figure import Figure

Line = dict[str, Any]
PANELS = (("relative", "relative error of the objective"), ("accuracy", "test accuracy"),
          ("nonzero_rows", "features with weights"))  # fmt: skip


def groups(lines: Iterable[Line], *keys: str) -> dict[tuple[Any, ...], list[Line]]:
    found: dict[tuple[Any, ...], list[Line]] = defaultdict(list)
    for line in lines:
        found[tuple(line[key] for key in keys)].append(line)
    return found


def draw_convergence(lines: list[Line], clock: str, target: Path) -> None:
    """Draw every panel against time; a method without a trace is one point."""
    figure = Figure(figsize=(15, 4.5), layout="constrained")
    colours = dict(zip(groups(lines, "method"), colormaps["tab20"].colors, strict=False))
    for axes, (key, label) in zip(figure.subplots(1, len(PANELS)), PANELS, strict=True):
        for (method,), runs in groups(lines, "method").items():
            for run in runs:
                points = [(p[clock], p[key]) for p in run["trace"] if p[clock] > 0 and p.get(key, 0) > 0]
                if points:
                    axes.plot(
                        *zip(*points, strict=True), color=colours[method,], lw=1, label=method,
                        marker="o" if len(points) < 3 else "", ms=4,
                    )  # fmt: skip
        axes.set(xscale="log", xlabel=clock.replace("_", " "), ylabel=label)
        if key != "accuracy":
            axes.set_yscale("log")
        if key == "relative":
            axes.set_ylim(1e-5, 10)
        axes.grid(alpha=0.3)
    handles = {}
    for axes in figure.axes:
        handles |= dict(zip(*axes.get_legend_handles_labels()[::-1], strict=True))
    figure.legend(handles.values(), handles.keys(), loc="outside right upper", fontsize="small")
    figure.suptitle(f"{lines[0]['problem']}, alpha = {lines[0]['alpha']:g}")
    figure.savefig(target, dpi=120)


def draw_paths(lines: list[Line], target: Path) -> None:
    """Draw accuracy against features with weights, a panel per problem, a point per alpha (mean of seeds)."""
    problems = groups(lines, "problem")
    figure = Figure(figsize=(5 * len(problems), 4.5), layout="constrained")
    for axes, ((problem,), group) in zip(
        figure.subplots(1, len(problems), squeeze=False)[0], problems.items(), strict=True
    ):
        for (method,), runs in groups(group, "method").items():
            points = sorted(
                tuple(statistics.fmean(run[key] for run in same) for key in ("nonzero_rows", "accuracy"))
                for same in groups(runs, "alpha").values()
            )
            points = [point for point in points if point[0] > 0]
            axes.plot(*zip(*points, strict=True), marker="o", ms=4, label=method)
        axes.set(xscale="log", xlabel="features with weights", ylabel="test accuracy", title=problem)
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    figure.savefig(target, dpi=120)


def print_times(lines: list[Line], clock: str) -> None:
    """Print the times over the alphas, each the mean over the seeds."""
    print(f"| problem | method | {clock}: min | median | max |\n|---|---|---|---|---|")
    for (problem, method), runs in groups(lines, "problem", "method").items():
        times = [statistics.fmean(run[clock] for run in same) for same in groups(runs, "alpha").values()]
        columns = (f"{f(times):.2f}" for f in (min, statistics.median, max))
        print(f"| {problem} | {method} | {' | '.join(columns)} |")


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--to", type=Path, default=Path("figures"))
    parser.add_argument("--clock", choices=("seconds", "cpu_seconds"), default="seconds")
    arguments = parser.parse_args()
    arguments.to.mkdir(parents=True, exist_ok=True)
    lines = [json.loads(line) for file in arguments.results for line in file.read_text().splitlines()]
    runs = [line for line in lines if "trace" in line]
    for (problem, alpha), group in groups([r for r in runs if r["optimum"]], "problem", "alpha").items():
        draw_convergence(group, arguments.clock, arguments.to / f"{problem}-{alpha:g}.png")
    path = [run for run in runs if not run["optimum"]]
    if path:
        draw_paths(path, arguments.to / "paths.png")
        print_times(path, arguments.clock)


if __name__ == "__main__":
    main()
