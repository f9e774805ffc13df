"""Resolve arguments of the functions: models or their paths, workers and their memory limit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from bigmc import budget
from bigmc.engine import EngineLike, Resources, opened
from bigmc.errors import DataError, ModelError
from bigmc.progress import ProgressCallback

if TYPE_CHECKING:
    from bigmc.model import Model, ModelSource
    from bigmc.store.files.outputs import Output

    class FittedClassifier(Protocol):
        """A classifier of bigmc, of texts too, after `fit`."""

        @property
        def model_(self) -> Model:
            """The fitted model."""

    AnyModel = str | Path | Model | FittedClassifier

Size = str | int | None


def model_of(model: AnyModel) -> Model:
    """Return a model, the model of a fitted classifier, or the model in a file.

    `ModelError` if it is none of these.
    """
    from bigmc.model import Model
    from bigmc.model import load_model as load
    from bigmc.store.files.object_store import local_file

    if not isinstance(model, str | Path):
        own = getattr(model, "model_", model)
        if not isinstance(own, Model):
            said = f"a {type(model).__name__} that is not fitted, or no model of bigmc"
            raise ModelError(said, "give the path of a model, what bigmc.load_model returns, or fit it first")
        return own
    with local_file(model) as file:
        return load(file)


@contextmanager
def model_source(model: AnyModel) -> Iterator[ModelSource]:
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


def place_of(path: str | Path, option: str = "--to") -> Output:
    """Return the output of a small file that a command writes beside its result, named by an option.

    `DataError` if it is a folder, or its folder does not exist.
    """
    from bigmc.store.files.outputs import Output

    return Output.at(path, option)


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
