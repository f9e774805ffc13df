"""What may be on a disk after a crash: calls replayed in memory, those that were not synced lost or not.

A process that is killed leaves what its calls so far have made. After a power cut less may be left:

* of a file, what was there when it was last synced, or some beginning of what was written since, or zeros;
* of a folder's names, those there when it was last synced; of later changes any may be there or not.

That is what POSIX promises; most file systems promise more.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from faults.recorder import Call

Image = dict[str, bytes | None]
"""Contents by path; None for a folder."""


@dataclass
class _File:
    content: bytearray = field(default_factory=bytearray)
    synced: bytes = b""

    def is_safe(self) -> bool:
        return bytes(self.content) == self.synced


@dataclass
class _Change:
    """A change of names, and whether it is sure to survive."""

    name: str
    path: str
    other: str
    file: _File | None
    sure: bool = False
    moved: dict[str, _File | None] = field(default_factory=dict)

    def folders(self) -> set[str]:
        return {str(PurePosixPath(path).parent) for path in (self.path, self.other) if path}


class Replay:
    """A disk in memory, brought forward call by call.

    Parameters
    ----------
    before : Image
        What was there, all of it synced.
    """

    def __init__(self, before: Image) -> None:
        self._before = before
        self._now: dict[str, _File | None] = {}
        self._start: dict[str, _File | None] = {}
        for path, content in before.items():
            file = None if content is None else _File(bytearray(content), content)
            self._now[path] = self._start[path] = file
        self._changes: list[_Change] = []
        self._opened: dict[str, _File | str] = {}

    def apply(self, number: int, call: Call) -> None:
        """Carry out a call of the log, the one of this number."""
        if call.name == "open":
            self._open(str(number), call)
        elif call.name in ("write", "truncate"):
            file = self._opened[call.path]
            assert isinstance(file, _File)
            if call.name == "truncate":
                del file.content[call.number :]
                file.content.extend(bytes(call.number - len(file.content)))
            else:
                file.content.extend(bytes(max(0, call.number - len(file.content))))
                file.content[call.number : call.number + len(call.content)] = call.content
        elif call.name == "sync":
            self._sync(call.path)
        elif call.name != "close":
            self._change(_Change(call.name, call.path, call.other, None))

    def _open(self, number: str, call: Call) -> None:
        if call.path not in self._now and call.other == "create":
            self._change(_Change("create", call.path, "", _File()))
        found = self._now.get(call.path)
        if isinstance(found, _File):
            if call.number:
                found.content.clear()
            self._opened[number] = found
        else:
            self._opened[number] = call.path

    def _sync(self, number: str) -> None:
        synced = self._opened[number]
        if isinstance(synced, _File):
            synced.synced = bytes(synced.content)
        else:
            for change in self._changes:
                change.sure = change.sure or synced in change.folders()

    def _change(self, change: _Change) -> None:
        self._changes.append(change)
        if change.name == "rename":
            change.moved = _under(self._now, change.path)
        _carry_out(self._now, change)

    def killed(self) -> Image:
        """Return what a process that is killed now leaves."""
        return {path: None if file is None else bytes(file.content) for path, file in self._now.items()}

    def lost(self) -> Image:
        """Return what a power cut now leaves at least."""
        return self._image(lambda _: False, lambda file: file.synced)

    def cut(self, rng: random.Random) -> Image:
        """Return what a power cut now may leave."""

        def left(file: _File) -> bytes:
            if file.is_safe():
                return file.synced
            n = rng.randrange(len(file.content) + 1)
            return rng.choice([file.synced, bytes(file.content), bytes(file.content[:n]), bytes(n)])

        share = rng.choice([0.2, 0.5, 0.8])
        return self._image(lambda _: rng.random() < share, left)

    def _image(self, keeps, left) -> Image:
        files = dict(self._start)
        for change in self._changes:
            if change.sure or keeps(change):
                _carry_out(files, change)
        return {path: None if file is None else left(file) for path, file in files.items()}


def _carry_out(files: dict[str, _File | None], change: _Change) -> None:
    """Change names; what cannot be, because an earlier change was lost, is not."""
    parent = str(PurePosixPath(change.other or change.path).parent)
    if change.name in ("create", "mkdir"):
        if parent in files and change.path not in files:
            files[change.path] = change.file
    elif change.name == "unlink" or (
        change.name == "rmdir" and not any(path.startswith(f"{change.path}/") for path in files)
    ):
        files.pop(change.path, None)
    elif change.name == "rename" and parent in files and (change.sure or change.path in files):
        # Where a synced folder has it, it is there, even if the folder it came from was lost.
        moved = _under(files, change.path) or change.moved
        for path in _under(files, change.other):
            del files[change.other + path]
        for path in _under(files, change.path):
            del files[change.path + path]
        files |= {change.other + path: file for path, file in moved.items()}


def _under(files: dict[str, _File | None], path: str) -> dict[str, _File | None]:
    """Return a file, or a folder with all in it, by the rest of the paths."""
    return {p.removeprefix(path): file for p, file in files.items() if p == path or p.startswith(f"{path}/")}


def states(
    before: Image, log: Sequence[Call], seed: int, cuts: int, calls: range | None = None
) -> Iterator[tuple[int, Image]]:
    """Yield what a crash after each of these calls may leave: a kill, and so many kinds of power cut.

    With each state comes the number of its call. A state depends on nothing but the log, the seed and that.
    """
    replay = Replay(before)
    for number, call in enumerate(log):
        replay.apply(number, call)
        if calls is not None and number not in calls:
            continue
        rng = random.Random(f"{seed} {number}")
        yield number, replay.killed()
        if cuts:
            yield number, replay.lost()
        for _ in range(cuts - 1):
            yield number, replay.cut(rng)


def image_of(folder: Path) -> Image:
    """Return what is in a folder, by absolute paths."""
    found: Image = {str(folder): None}
    for path in sorted(folder.rglob("*")):
        found[str(path)] = None if path.is_dir() else path.read_bytes()
    return found


def materialise(image: Image, old: Path, new: Path) -> None:
    """Write an image of one folder into another."""
    for path in sorted(image):
        if path != str(old) and not path.startswith(f"{old}/"):
            continue
        target, content = new / Path(path).relative_to(old), image[path]
        if content is None:
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.write_bytes(content)
