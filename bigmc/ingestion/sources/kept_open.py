"""What can only be read forward stays open on its thread, for the next part of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Protocol, TypeVar, cast


class Forward(Protocol):
    """What is read from its beginning; the first `position` bytes or rows are behind."""

    position: int

    def at_end(self) -> bool:
        """Return whether there is no more."""

    def close(self) -> None:
        """Close the file."""


class _Here(threading.local):
    """What this thread keeps, and of which file."""

    identity: object = None
    reader: Forward | None = None

    def give_up(self) -> None:
        if self.reader is not None:
            self.reader.close()
        self.reader = None


_here = _Here()
F = TypeVar("F", bound=Forward)


@contextmanager
def kept_open(identity: object, start: int, open_anew: Callable[[], F]) -> Iterator[F]:
    """Give what this thread kept, if it is the same and not beyond `start`, or else open it anew.

    It stays open for the next time, unless it is at its end or there was an error. The identity must have the
    time of the file's last change: threads of workers live on after a run, and the file may be another.
    """
    if not (_here.reader is not None and _here.identity == identity and _here.reader.position <= start):
        _here.give_up()
    reader = open_anew() if _here.reader is None else cast(F, _here.reader)
    _here.reader = None
    with ExitStack() as closed_by:
        closed_by.callback(reader.close)
        yield reader
        if not reader.at_end():
            closed_by.pop_all()
            _here.give_up()  # another one, begun meanwhile
            _here.identity, _here.reader = identity, reader
