"""A model in memory, or in a file that is read only after its use is planned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

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
        """Return the source of a saved model, without reading an array; `ModelError` if it is none."""
        outline = outline_of_file(path)
        return cls(outline, lambda: load_model(path), sha256(path), path.stat().st_size)
