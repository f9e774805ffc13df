"""Resolve arguments of the functions: models or their paths, workers and their memory limit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bigmc import budget
from bigmc.engine import EngineLike, Resources, opened
from bigmc.errors import DataError
from bigmc.progress import ProgressCallback

if TYPE_CHECKING:
    from bigmc.estimators import Classifier
    from bigmc.model import Model, ModelSource
    from bigmc.store.files.outputs import Output

Size = str | int | None


def model_of(model: str | Path | Model | Classifier) -> Model:
    """Return a model, the model of a fitted classifier, or the model in a file."""
    from bigmc.model import load_model as load
    from bigmc.store.files.object_store import local_file

    if not isinstance(model, str | Path):
        own: Model = getattr(model, "model_", model)
        return own
    with local_file(model) as file:
        return load(file)


@contextmanager
def model_source(model: str | Path | Model | Classifier) -> Iterator[ModelSource]:
    """Yield the source of a model; a model given by its path is not read yet."""
    from bigmc.model import ModelSource
    from bigmc.store.files.object_store import local_file

    if not isinstance(model, str | Path):
        yield ModelSource.of(model_of(model))
        return
    with local_file(model) as file:
        yield ModelSource.of_file(file)


def is_folder(path: str | Path) -> bool:
    """Return whether a path holds a folder, expected to be a dataset, rather than a model file."""
    from bigmc.ingestion.parts.scan import is_dataset
    from bigmc.store.files.object_store import is_remote

    if is_remote(path):
        return is_dataset(path)
    if not Path(path).exists():
        raise DataError(f"there is nothing at {path}", "check the path")
    return Path(path).is_dir()


def local_folder(path: str | Path, what: str) -> Path:
    """Return the path of a result, which must be on a local disk."""
    from bigmc.store.files.object_store import is_remote

    if is_remote(path):
        raise DataError(f"{path}: {what} needs a local disk", "give a path on this machine with --to")
    return Path(path)


def place_of(path: Path) -> Output:
    """Return the output of a small file that a command writes beside its result.

    `DataError` if it is a folder, or its folder does not exist.
    """
    from bigmc.store.files.outputs import Output

    return Output.at(path)


def writes_to_stdout(to: str) -> bool:
    """Return whether a result written to `to` goes to the standard output of this process."""
    from bigmc.store.files.outputs import descriptor_of

    return descriptor_of(to) == 1


@contextmanager
def resources_of(memory_limit: Size, engine: EngineLike, progress: ProgressCallback) -> Iterator[Resources]:
    """Yield the workers for a call, and the memory limit of each."""
    from bigmc.engine.processes import prepare_process

    with opened(engine, prepare_process) as workers:
        yield Resources(workers, budget.resolve_limit(memory_limit, workers.process_memory), progress)
