"""The whole fault suite: ``python -m faults.whole [--seed N] [KIND …]``; see docs/faults.md.

Kinds are crash, error, read, damage, hostile and together; by default all. It prints a table and ends with 1
if anything went wrong.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from faults import damage, hostile, together, trials
from faults.commands import COMMANDS, make_inputs, small_parts

KINDS = ("crash", "error", "read", "damage", "hostile", "together")


def outcomes(kinds: list[str], only: str, seed: int, work: Path) -> Iterator[trials.Outcome]:
    """Yield the outcome of each kind of trial of each command."""
    inputs = work / "inputs"
    inputs.mkdir()
    make_inputs(inputs)
    for number, command in enumerate(c for c in COMMANDS if only in c.name):
        for kind in kinds:
            here = work / f"{kind}-{number}"
            here.mkdir()
            if kind == "crash":
                yield trials.crashes(command, inputs, here, seed)
            elif kind == "error":
                yield trials.failures(command, inputs, here, seed)
            elif kind == "read":
                yield trials.unreadable(command, inputs, here, seed)
    if "damage" in kinds:
        yield from damage.all_outcomes(inputs, work, seed)
    if "hostile" in kinds:
        yield from hostile.all_outcomes(inputs, work, seed, 200)
    if "together" in kinds:
        yield from together.all_outcomes(inputs, work)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("kinds", nargs="*", default=[*KINDS])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="commands whose names contain this")
    asked = parser.parse_args()
    print(f"seed {asked.seed}", flush=True)
    small_parts()
    wrong, totals = 0, {}
    started = time.process_time()
    with tempfile.TemporaryDirectory(prefix="bigmc-faults-") as work:
        for one in outcomes(asked.kinds, asked.only, asked.seed, Path(work)):
            print(
                f"{one.kind:12} {one.command:26} {one.trials:6} trials {one.different:6} different "
                f"{len(one.problems):4} wrong",
                flush=True,
            )
            for problem in one.problems[:20]:
                print(f"    {problem}", flush=True)
            wrong += len(one.problems)
            total = totals.setdefault(one.kind, [0, 0, 0])
            for i, n in enumerate((one.trials, one.different, len(one.problems))):
                total[i] += n
    for kind, (n, different, bad) in totals.items():
        print(f"total {kind:12} {n:6} trials {different:6} different {bad:4} wrong")
    print(f"{time.process_time() - started:.0f} s of processor time")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
