"""The whole fault suite, in pieces: ``python -m faults.whole [--seed N] [--to FILE] [KIND …]``.

By default all kinds run, see docs/faults.md. What a piece found is a line of the file as soon as it ends, and
pieces that the file has are passed over: the same command continues a run. At the end the sums are printed;
the exit status is 2 if ``--seconds`` were over before the end, else 1 if anything went wrong.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from faults import damage, fuzz_readers, hostile, together, trials
from faults.commands import COMMANDS, make_inputs, small_parts
from faults.pieces import Piece, Results, run_pieces

KINDS = ("crash", "error", "full", "read", "damage", "hostile", "together", "fuzz")
PARTS = {
    "ingest": 20,
    "parts": 20,
    "ingest numbers": 8,
    "append": 6,
    "path": 4,
    "fit": 2,
    "fit numbers": 3,
    "fit rows": 10,
}
"""Into how many pieces the crashes of a command are cut; one where it is not named."""
FUZZ_INPUTS, FUZZ_PIECE = 20_000, 500


def pieces(inputs: Path, seed: int) -> Iterator[tuple[str, Piece]]:
    """Yield all pieces, each with its kind."""
    for command in COMMANDS:
        parts = PARTS.get(command.name, 1)
        for part in range(parts):
            tries = trials.Tries(seed, 3, part, parts)
            name = f"crash/{command.name}/{part + 1} of {parts}/seed {seed}"
            yield "crash", Piece(name, partial(_crashes, command, inputs, tries))
    for kind, trial in (("error", trials.failures), ("full", trials.full_disk), ("read", trials.unreadable)):
        for command in COMMANDS:
            run = partial(_plain, partial(trial, command, inputs, seed=seed))
            yield kind, Piece(f"{kind}/{command.name}/seed {seed}", run)
    for kind, listed in (("damage", damage.all_trials()), ("hostile", hostile.all_trials())):
        for name, trial in listed:
            run = partial(_plain, partial(trial, inputs, seed=seed))
            yield kind, Piece(f"{kind}/{name}/seed {seed}", run)
    for name, together_trial in together.all_trials():
        yield "together", Piece(f"together/{name}", partial(_plain, partial(together_trial, inputs)))
    for first in range(0, FUZZ_INPUTS, FUZZ_PIECE):
        seeds = range(first + 1_000_000 * seed, first + FUZZ_PIECE + 1_000_000 * seed)
        yield "fuzz", Piece(f"fuzz/{seeds.start} to {seeds.stop}", partial(_fuzz, seeds))


def _crashes(command, inputs: Path, tries: trials.Tries, work: Path, results: Results) -> trials.Outcome:
    return trials.crashes(command, inputs, work, tries, frozenset(results.states(command.name)))


def _plain(run, work: Path, results: Results) -> trials.Outcome:
    return run(work=work)


def _fuzz(seeds: range, work: Path, results: Results) -> trials.Outcome:
    return fuzz_readers.outcome(seeds, work)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", default=[*KINDS], metavar="KIND")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="pieces whose names contain this")
    parser.add_argument("--to", type=Path, help="file of what was found, read first (default: a new one)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no piece after these")
    asked = parser.parse_args()
    to = asked.to or Path(tempfile.gettempdir()) / f"bigmc-faults-{time.time_ns()}.jsonl"
    print(f"seed {asked.seed}, results in {to}", flush=True)
    small_parts()
    results = Results(to)
    with tempfile.TemporaryDirectory(prefix="bigmc-faults-") as name:
        work = Path(name)
        inputs = work / "inputs"
        inputs.mkdir()
        make_inputs(inputs)
        wanted = (
            piece
            for kind, piece in pieces(inputs, asked.seed)
            if kind in asked.kinds and asked.only in piece.name
        )
        ended = run_pieces(wanted, results, work, asked.seconds)
    print(results.table())
    return int(any(line["n_problems"] for line in results.lines)) if ended else 2


if __name__ == "__main__":
    sys.exit(main())
