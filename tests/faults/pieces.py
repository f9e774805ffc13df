"""Runs the fault suite in pieces, each in a process of its own, and keeps what each found.

A piece that crashes, is killed or runs out of memory is a problem that the file names, and the next one runs.
Called again with the same file, only the pieces that are missing run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from faults.trials import Outcome

MOST_PROBLEMS = 20
"""Problems of a piece that are kept in full."""


@dataclass(frozen=True)
class Piece:
    """A part of the suite that can be run alone.

    Attributes
    ----------
    name : str
        Says which, with its seed.
    run : callable
        Given a new folder and the set of states tried before, returns the outcome.
    """

    name: str
    run: Callable[[Path, Results], Outcome]


class Results:
    """Outcomes in a file of JSON lines, one a piece.

    Parameters
    ----------
    path : Path
        Read first; lines that a crash cut off are ignored.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.lines: list[dict[str, Any]] = []
        if path.exists():
            for line in path.read_text().splitlines():
                try:
                    self.lines.append(json.loads(line))
                except ValueError:
                    continue

    def has(self, name: str) -> bool:
        """Return whether a piece has run."""
        return any(line["piece"] == name for line in self.lines)

    def states(self, command: str) -> set[str]:
        """Return the digests of the states of a command that were tried."""
        return {digest for line in self.lines if line["command"] == command for digest in line["states"]}

    def add(self, line: dict[str, Any]) -> None:
        """Keep the outcome of a piece."""
        self.lines.append(line)
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def table(self) -> str:
        """Return the sums by kind and command."""
        sums: dict[tuple[str, str], list[float]] = {}
        for line in self.lines:
            figures = line["trials"], line["different"], line["n_problems"], line["cpu_seconds"]
            for key in ((line["kind"], line["command"]), ("total", line["kind"])):
                total = sums.setdefault(key, [0, 0, 0, 0.0])
                for i, figure in enumerate(figures):
                    total[i] += figure
        rows = [
            f"{kind:12} {command:32} {n:7.0f} trials {tried:7.0f} different {bad:4.0f} wrong {seconds:5.0f} s"
            for (kind, command), (n, tried, bad, seconds) in sorted(sums.items())
        ]
        return "\n".join(rows)


def run_pieces(pieces: Iterable[Piece], results: Results, work: Path, seconds: float) -> bool:
    """Run the pieces that the results lack, until the seconds are over; return whether all have run."""
    commit, end = _commit(), time.monotonic() + seconds
    for number, piece in enumerate(pieces):
        if results.has(piece.name):
            continue
        if time.monotonic() > end:
            return False
        here = work / f"piece-{number}"
        here.mkdir()
        line = _in_child(piece, here, results) | {"piece": piece.name, "commit": commit}
        line["n_problems"] = len(line["problems"])
        line["problems"] = line["problems"][:MOST_PROBLEMS]
        results.add(line)
        print(
            f"{piece.name:44} {line['trials']:6} trials {line['different']:6} different "
            f"{line['n_problems']:4} wrong {line['cpu_seconds']:7.1f} s",
            flush=True,
        )
        for problem in line["problems"]:
            print(f"    {problem}", flush=True)
        subprocess.run(["rm", "-rf", str(here)], check=True)
    return True


def _in_child(piece: Piece, work: Path, results: Results) -> dict[str, Any]:
    """Run a piece in a forked process; one that ends without an outcome is a problem."""
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(out)
        try:
            said = json.dumps(asdict(piece.run(work, results)))
        except BaseException:
            said = json.dumps(asdict(_failed(piece.name, traceback.format_exc()[-2000:])))
        with os.fdopen(into, "w") as pipe:
            pipe.write(said)
        sys.stdout.flush()
        os._exit(0)
    os.close(into)
    with os.fdopen(out) as pipe:
        text = pipe.read()
    _, status, usage = os.wait4(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    peak = usage.ru_maxrss // 1024
    if not text:
        at = work / "at"
        last = at.read_text() if at.exists() else "its beginning"
        text = json.dumps(
            asdict(_failed(piece.name, f"the process ended with {code} at {last}, peak {peak} MB"))
        )
    found: dict[str, Any] = json.loads(text)
    return found | {"cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1), "peak_mb": peak}


def _failed(name: str, problem: str) -> Outcome:
    return Outcome(name, name.split("/")[0], problems=[problem])


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
