"""Trials of one command: every crash, every failing call; the same command again must complete it.

A trial ends as a line of `Outcome`; anything wrong is in its ``problems``.
"""

from __future__ import annotations

import builtins
import errno
import hashlib
import io
import os
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bigmc.errors import BigmcError
from bigmc.store.files.disk import SystemCalls
from faults import crash
from faults.commands import Command, result
from faults.recorder import CHANGES, SHORT, Call, Failing, FullDisk, Recorder, instead

EXPECTED = (OSError, BigmcError)
"""What a command may end with: the command line says these in one line."""


@dataclass
class Outcome:
    """How many trials there were, how many differed from each other, and what went wrong in them."""

    command: str
    kind: str
    trials: int = 0
    different: int = 0
    problems: list[str] = field(default_factory=list)
    states: list[str] = field(default_factory=list)
    """Digests of the states tried, where there are any."""


@dataclass(frozen=True)
class Recording:
    """A command that ran to its end: the folder before, its calls, and what it made."""

    folder: Path
    before: crash.Image
    log: list[Call]
    made: dict[str, bytes]


@dataclass(frozen=True)
class Tries:
    """Which crashes of a command are tried.

    Attributes
    ----------
    seed : int
        Of the power cuts.
    cuts : int
        Kinds of power cut after each call, beside the kill.
    part, parts : int
        The calls are cut into so many parts, of which this one is tried.
    one_in : int
        Of the different states one in so many is tried.
    """

    seed: int = 0
    cuts: int = 3
    part: int = 0
    parts: int = 1
    one_in: int = 1


def record(command: Command, inputs: Path, work: Path) -> Recording:
    """Run a command and keep every call it makes."""
    folder = work / command.name.replace(" ", "-")
    folder.mkdir()
    command.start(inputs, folder)
    before = crash.image_of(folder)
    with instead(Recorder()) as recorder:
        command.run(inputs, folder)
    return Recording(folder, before, recorder.log, result(folder))


def crashes(
    command: Command, inputs: Path, work: Path, tries: Tries, known: frozenset[str] = frozenset()
) -> Outcome:
    """Run a command again from every state a crash may leave; states that are equal are tried once."""
    found = record(command, inputs, work)
    outcome, seen = Outcome(command.name, "crash"), set(known)
    low, high = (len(found.log) * part // tries.parts for part in (tries.part, tries.part + 1))
    for number, image in crash.states(found.before, found.log, tries.seed, tries.cuts, range(low, high)):
        outcome.trials += 1
        digest = _digest(image, found.folder)
        if digest in seen:
            continue
        seen.add(digest)
        outcome.states.append(digest)
        if len(outcome.states) % tries.one_in:
            continue
        outcome.different += 1
        with _folder(work) as folder:
            crash.materialise(image, found.folder, folder)
            problem = again(command, inputs, folder, found.made)
        if problem:
            call = found.log[number]
            outcome.problems.append(f"after call {number}, {call.name} {call.path[-60:]}: {problem}")
    return outcome


def again(command: Command, inputs: Path, folder: Path, made: dict[str, bytes]) -> str | None:
    """Run a command to its end and return in what its result is another, if in anything."""
    try:
        command.run(inputs, folder)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return differences(result(folder), made)


def differences(now: dict[str, bytes], made: dict[str, bytes]) -> str | None:
    """Return which files differ, if any do."""
    other = sorted(name for name in now.keys() | made.keys() if now.get(name) != made.get(name))
    return f"other files: {', '.join(other[:4])}" if other else None


ERRORS = {
    "open": (errno.EMFILE, errno.ENOSPC, errno.EACCES),
    "write": (errno.ENOSPC, errno.EIO, errno.EFBIG, SHORT),
    "sync": (errno.EIO, errno.ENOSPC),
    "close": (errno.EIO, errno.ENOSPC),
    "rename": (errno.EIO, errno.ENOSPC, errno.EACCES),
    "mkdir": (errno.ENOSPC, errno.EACCES),
    "unlink": (errno.EIO, errno.EACCES),
    "rmdir": (errno.EIO, errno.EACCES),
    "truncate": (errno.EIO,),
}


def failures(
    command: Command, inputs: Path, work: Path, seed: int = 0, each: int = 2, names: tuple[str, ...] = CHANGES
) -> Outcome:
    """Let calls of these names fail with every error, one or all from one on, and run the command again."""
    found = record(command, inputs, work)
    outcome, rng = Outcome(command.name, "error"), random.Random(f"{seed} {names}")
    for name in names:
        n_calls = sum(call.name == name for call in found.log)
        for error in ERRORS[name]:
            for at in sorted(rng.sample(range(1, n_calls + 1), min(each, n_calls))):
                lasting = error != SHORT and rng.random() < 0.3
                what = f"{name} {at} {errno.errorcode.get(error, 'short write')}{' and on' * lasting}"
                _fail(command, inputs, work, found, Failing(name, at, error, lasting), what, outcome)
    return outcome


def full_disk(command: Command, inputs: Path, work: Path, seed: int = 0, each: int = 12) -> Outcome:
    """Let the disk be full from some call on: whatever needs space fails, what frees it works."""
    found = record(command, inputs, work)
    outcome, rng = Outcome(command.name, "full disk"), random.Random(seed)
    n_calls = sum(call.name in FullDisk.FAILS or call.other == "create" for call in found.log)
    for at in sorted(rng.sample(range(1, n_calls + 1), min(each, n_calls))):
        _fail(command, inputs, work, found, FullDisk(at), f"full from call {at} on", outcome)
    return outcome


def _fail(
    command: Command,
    inputs: Path,
    work: Path,
    found: Recording,
    failing: SystemCalls,
    what: str,
    outcome: Outcome,
) -> None:
    outcome.trials += 1
    outcome.different += 1
    with _folder(work) as folder:
        command.start(inputs, folder)
        problem = _fail_once(command, inputs, folder, found.made, failing)
    if problem:
        outcome.problems.append(f"{what}: {problem}")


def _fail_once(command, inputs, folder, made, failing) -> str | None:
    try:
        with instead(failing):
            command.run(inputs, folder)
    except EXPECTED:
        pass
    except Exception as error:
        return f"raw {type(error).__name__}: {error}"
    else:
        # What is only tidying up may fail without a word; what was made must be whole.
        now = {name: data for name, data in result(folder).items() if name in made}
        if now != made:
            return f"silent: {differences(now, made)}"
    return again(command, inputs, folder, made)


def unreadable(command: Command, inputs: Path, work: Path, seed: int = 0, each: int = 20) -> Outcome:
    """Let the n-th look at a file fail."""
    found = record(command, inputs, work)
    outcome, rng = Outcome(command.name, "read error"), random.Random(seed)
    with _reads(0, 0) as counted, _folder(work) as folder:
        command.start(inputs, folder)
        command.run(inputs, folder)
    places = sorted(rng.sample(range(1, counted["seen"] + 1), min(each, counted["seen"])))
    for at in places:
        outcome.trials += 1
        error = rng.choice((errno.EIO, errno.EMFILE, errno.EACCES))
        problem = None
        with _folder(work) as folder:
            command.start(inputs, folder)
            try:
                with _reads(at, error):
                    command.run(inputs, folder)
            except EXPECTED:
                pass
            except Exception as caught:
                problem = f"raw {type(caught).__name__}: {caught}"
            problem = problem or again(command, inputs, folder, found.made)
        if problem:
            outcome.problems.append(f"read {at} {errno.errorcode[error]}: {problem}")
    outcome.different = outcome.trials
    return outcome


@contextmanager
def _reads(at: int, error: int) -> Iterator[dict[str, int]]:
    """Let the n-th opening of a file by Python, or reading of a chunk, fail."""
    seen = {"seen": 0}
    plain_open, plain_read = io.open, os.preadv

    def count(path: object) -> None:
        seen["seen"] += 1
        if seen["seen"] == at:
            raise OSError(error, os.strerror(error), str(path))

    def opening(file, *args, **kwargs):
        if isinstance(file, str | Path) and any(str(file).endswith(e) for e in _OURS):
            count(file)
        return plain_open(file, *args, **kwargs)

    def reading(handle, buffers, offset):
        count(None)
        return plain_read(handle, buffers, offset)

    io.open = builtins.open = opening
    os.preadv = reading
    try:
        yield seen
    finally:
        io.open = builtins.open = plain_open
        os.preadv = plain_read


_OURS = (".json", ".parquet", ".model", ".npz", ".csv", ".npy")


def _digest(image: crash.Image, folder: Path) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for path, content in sorted(image.items()):
        name = path.removeprefix(str(folder))
        digest.update(name.encode() + b"\0" + (b"/" if content is None else content) + b"\0")
    return digest.hexdigest()


@contextmanager
def _folder(work: Path) -> Iterator[Path]:
    folder = work / "again"
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
