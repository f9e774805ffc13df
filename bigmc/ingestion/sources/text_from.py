"""Text files from any byte on; of those that can only be read forward, one stays open on each thread."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

from bigmc.ingestion.sources.kept_open import kept_open
from bigmc.ingestion.sources.source import TextFile, is_seekable, open_text, status_of

_PIECE = 1 << 20


class _Forward(io.RawIOBase):
    """A text that is read forward from its beginning; the first `position` bytes are behind."""

    def __init__(self, file: TextFile) -> None:
        self.position = 0
        self._stream: Any = open_text(file)
        self._ahead = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._ahead and len(buffer):
            n, buffer[:1], self._ahead = 1, self._ahead, b""
        else:
            n = int(self._stream.readinto(buffer))
        self.position += n
        return n

    def go_to(self, start: int) -> None:
        """Read up to a byte, or to the end."""
        while self.position < start and self.read(min(start - self.position, _PIECE)):
            pass

    def at_end(self) -> bool:
        """Return whether there are no more bytes."""
        self._ahead = self._ahead or self._stream.read(1)
        return not self._ahead

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()


@contextmanager
def text_from(file: TextFile, start: int) -> Iterator[BinaryIO]:
    """Open the text of a file at byte `start`.

    A compressed file, or one of another encoding, cannot be entered in the middle: it is read up to there,
    from the end of the part before if that is still open.
    """
    if is_seekable(file):
        with open_text(file) as whole:
            whole.seek(start)
            yield whole
        return
    identity = (file.path, file.dialect, status_of(file.path))
    with kept_open(identity, start, lambda: _Forward(file)) as stream:
        stream.go_to(start)
        yield cast(BinaryIO, stream)
