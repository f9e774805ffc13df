"""Where a solver's state is kept between runs, and the check that it is the state of this run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from numpy.typing import NDArray

from bigmc.errors import ModelError


class Checkpoint(Protocol):
    """Where the state is kept between runs; `save` must be atomic."""

    def save(self, meta: Mapping[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Replace the saved state."""

    def load(self) -> tuple[Mapping[str, Any], dict[str, NDArray[Any]]] | None:
        """Return the saved state, if there is any."""


def with_own_lists(meta: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a copy that does not change as a run goes on, since solvers append to lists."""
    return {name: list(value) if isinstance(value, list) else value for name, value in meta.items()}


class MemoryCheckpoint:
    """Keeps the last saved state in memory: a run of this process can be continued with more rounds.

    Arrays are not copied, so it is for solvers that replace them, as boosting does: the sparse learner
    changes some of them in place as it goes on.
    """

    def __init__(self) -> None:
        self._saved: tuple[Mapping[str, Any], dict[str, NDArray[Any]]] | None = None

    def save(self, meta: Mapping[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Replace the state."""
        self._saved = with_own_lists(meta), arrays

    def load(self) -> tuple[Mapping[str, Any], dict[str, NDArray[Any]]] | None:
        """Return the state that was saved last, if any."""
        return self._saved


#: Changes when a solver saves something else: older unfinished runs cannot be resumed.
VERSION = 11


def save_run(
    checkpoint: Checkpoint, run: Mapping[str, Any], meta: Mapping[str, Any], arrays: dict[str, NDArray[Any]]
) -> None:
    """Save a state together with the description of the run it belongs to.

    `run` has everything that determines the result or the way to it: parameters and the shape of the
    data. `meta` is JSON data, without the keys ``run`` and ``version``.
    """
    checkpoint.save({"version": VERSION, "run": dict(run), **meta}, arrays)


def load_run(
    checkpoint: Checkpoint, run: Mapping[str, Any]
) -> tuple[Mapping[str, Any], dict[str, NDArray[Any]]] | None:
    """Return ``(meta, arrays)`` as saved by `save_run` for this run, or None if nothing was.

    `ModelError` if it belongs to a run with other data or parameters, naming each difference, or was
    written by another version of a solver.
    """
    saved = checkpoint.load()
    if saved is None:
        return None
    meta, arrays = saved
    if meta.get("version") != VERSION:
        raise ModelError("the checkpoint was written by another version of bigmc", "remove it and train anew")
    stored = meta["run"]
    other = [name for name in run if stored.get(name) != run[name]]
    if other:
        was = ", ".join(f"{name}={stored.get(name)!r} (now {run[name]!r})" for name in other)
        raise ModelError(f"the checkpoint belongs to another run: {was}", "remove it or use its parameters")
    return {name: value for name, value in meta.items() if name not in ("run", "version")}, arrays
