"""A model in memory, or in a file that is read only after its use is planned."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bigmc.errors import ModelError
from bigmc.model.base import Model
from bigmc.model.outline import ModelOutline
from bigmc.model.registry import load_model, outline_of_file
from bigmc.store.files.layout import sha256


@dataclass(frozen=True)
class ModelSource:
    """A model and what is known about it before it is in memory.

    `load` reads its file. `sha256` and `n_bytes` are those of the file; None if there is none.
    """

    outline: ModelOutline
    load: Callable[[], Model]
    sha256: str | None = None
    n_bytes: int | None = None

    @classmethod
    def of(cls, model: Model) -> ModelSource:
        """Return the source of a model in memory."""
        return cls(model.outline, lambda: model)

    @classmethod
    def of_file(cls, path: Path) -> ModelSource:
        """Return the source of a saved model, without reading an array; `ModelError` if it is none.

        So is one that another file replaces before `load` has read it: what was planned, and what a
        receipt says, is of the first one.
        """
        status = _status(path)
        with _unchanged(path, status):
            outline, digest = outline_of_file(path), sha256(path)

        def load() -> Model:
            with _unchanged(path, status):
                return load_model(path)

        return cls(outline, load, digest, None if status is None else status[0])


def _status(path: Path) -> tuple[int, int, int] | None:
    """Return bytes, time of change and number of a file, which tell it from others; None if it is gone."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns, status.st_ino


@contextmanager
def _unchanged(path: Path, status: tuple[int, int, int] | None) -> Iterator[None]:
    """Raise `ModelError` if a file is no longer the one of a status, also in the place of other errors."""
    try:
        yield
    except (ModelError, OSError):
        if _status(path) == status:
            raise
    if _status(path) != status:
        raise ModelError(f"{path}: the model has changed since the command began", "repeat the command")
