"""A model in memory, or in a file that is read only after its use is planned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bigmc.model.base import Model
from bigmc.model.outline import ModelOutline
from bigmc.model.registry import load_model, outline_of_file
from bigmc.store.files.atomic import sha256


@dataclass(frozen=True)
class ModelSource:
    """Where a model comes from, and what is known of it before it is in memory.

    Attributes
    ----------
    outline : ModelOutline
    load : callable
        Returns the model; reads its file.
    sha256 : str or None
        Of its file; None of a model that is in memory only.
    n_bytes : int or None
        Of its file.
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
        """Return the source of a saved model, of which no array is read yet.

        Raises
        ------
        ModelError
            If the file is absent or no bigmc model.
        """
        outline = outline_of_file(path)
        return cls(outline, lambda: load_model(path), sha256(path), path.stat().st_size)
