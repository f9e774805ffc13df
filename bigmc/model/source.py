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
from bigmc.store.files.layout import sha256, state_of


@dataclass(frozen=True)
class ModelSource:
    """A model and what is known about it before it is in memory.

    `load` reads its file. `sha256`, `n_bytes` and `path` are those of the file; None if there is none.
    """

    outline: ModelOutline
    load: Callable[[], Model]
    sha256: str | None = None
    n_bytes: int | None = None
    path: Path | None = None

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
        state = state_of(path)
        with _unchanged(path, state):
            outline, digest = outline_of_file(path), sha256(path)

        def load() -> Model:
            with _unchanged(path, state):
                return load_model(path)

        return cls(outline, load, digest, None if state is None else state[1], path)


@contextmanager
def _unchanged(path: Path, state: tuple[int, int, int] | None) -> Iterator[None]:
    """Raise `ModelError` if a file is no longer in a state of before, also in the place of other errors."""
    try:
        yield
    except (ModelError, OSError):
        if state_of(path) == state:
            raise
    if state_of(path) != state:
        raise ModelError(f"{path}: the model has changed since the command began", "repeat the command")
