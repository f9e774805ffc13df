"""Train, select, publish and load models."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from inspect import signature
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Unpack

from bigmc.api.resolve import Size, local_folder, model_of, model_source, resources_of
from bigmc.engine import EngineLike
from bigmc.errors import DataError, ModelError
from bigmc.options.declare import check_names
from bigmc.options.path import PathKeywords, PathOptions
from bigmc.progress import ProgressCallback, silent

if TYPE_CHECKING:
    from bigmc.model import ModelSource
    from bigmc.store.dataset import Dataset
    from bigmc.training.results import PathResult, PublishResult, TrainResult


def train(
    learner: str,
    dataset: str | Path | Dataset,
    to: str | Path,
    *,
    split: str = "train",
    warm_start: str | Path | None = None,
    calibrate: float | None = None,
    overwrite: bool = False,
    memory_limit: Size = None,
    engine: EngineLike = None,
    progress: ProgressCallback = silent,
    **options: Any,
) -> TrainResult:
    """Train a learner on a split of a dataset and save the model.

    Killed at any moment, the same call resumes from its checkpoint and makes the same model; after success
    it does nothing.

    Parameters
    ----------
    learner : str
        ``"sparse"``, ``"boost"`` or ``"mrc"``.
    dataset : path or Dataset
        Data on disk.
    to : path
        Model file, device or pipe to write; ``TO.wip/`` holds the checkpoint during training.
    split : str, default="train"
        Split to train on.
    warm_start : path, optional
        Saved model to start from, such as yesterday's.
    calibrate : float, optional
        Share of the rows, at most 20,000, to hold out of training and to calibrate probabilities on. By
        default only models with the loss ``"log_loss"`` and minimax models have probabilities.
    overwrite : bool, default=False
        Replace another file at `to`, such as a model with other parameters; by default this is refused.
    memory_limit, engine, progress
        As for :func:`ingest`.
    **options
        Parameters of the estimator, such as ``alpha`` and ``tol``.

    Returns
    -------
    dict
        ``objective``, ``certificate`` with ``lower``, ``upper`` and ``gap``, ``converged``, ``n_iter``,
        ``n_passes``, ``n_nonzero_features``, ``seconds`` and ``peak_memory_bytes`` of this call (resident
        bytes of the whole process), ``memory_limit_bytes``, and ``file_bytes_read``: bytes of the dataset's
        compressed files that this process read. ``n_passes`` counts decoded bytes, also of scratch files.
        ``notes`` has warnings, such as of columns in different units.

    Raises
    ------
    BigmcError
        If an option is invalid, another file is at `to`, or the memory limit is too small; `DataError` if the
        data cannot be trained on, `StoreError` if there is no dataset, `BusyError` if another process makes
        the model.
    """
    from bigmc.options.learners import learner_options
    from bigmc.store.dataset import Dataset
    from bigmc.store.files.object_store import built
    from bigmc.store.files.outputs import IfExists, Output, OutputKind, refuse_inputs
    from bigmc.training.options import TrainOptions, calibration_rows
    from bigmc.training.run import train as run

    parameters = learner_options(learner, options, signature(train).parameters)
    data = Dataset.open(dataset)
    refuse_inputs(to, [data, warm_start])
    output = Output.at(to)
    with ExitStack() as held:
        resources = held.enter_context(resources_of(memory_limit, engine, progress))
        if output.kind is OutputKind.STREAM:
            target = Path(held.enter_context(TemporaryDirectory(prefix="bigmc-"))) / "model"
        elif output.kind is OutputKind.OBJECT:
            target = held.enter_context(built(to))
        else:
            target = output.path if Path(to).is_symlink() else Path(to)  # messages show the given path
        start = _start(warm_start, held)
        if_exists = IfExists(overwrite)
        held_out = None if calibrate is None else calibration_rows(calibrate, data[split].n_samples)
        asked = TrainOptions(parameters, split, start, calibration=held_out, if_exists=if_exists)
        trained = run(data, target, asked, resources)
        if output.kind is OutputKind.STREAM:
            output.write(target.read_bytes())
    trained["model"] = str(to)
    return trained


def sparse_path(
    dataset: str | Path | Dataset,
    to: str | Path,
    *,
    warm_start: str | Path | None = None,
    overwrite: bool = False,
    memory_limit: Size = None,
    engine: EngineLike = None,
    progress: ProgressCallback = silent,
    **options: Unpack[PathKeywords],
) -> PathResult:
    """Train the sparse learner for decreasing penalties, each from the model before, and choose the best.

    Killed at any moment, the same call resumes; after success it does nothing.

    Parameters
    ----------
    dataset : path or Dataset
        Data on disk.
    to : path
        Folder for the models, ``path.json`` with the table, ``path.png`` with the plot if matplotlib is
        installed, and ``best.model``.
    n_alphas : int, default=10
        Number of penalties, evenly spaced in their logarithm, from the largest with non-zero weights. More
        follow while the last one is the best.
    alpha_ratio : float, default=0.01
        The smallest penalty relative to the largest.
    alphas : sequence of float, optional
        The penalties, instead of the two options above.
    split : str, default="train"
        Training split.
    validation : str, default="valid"
        Validation split. If there is no split ``valid``, a fifth of the training rows, up to 20,000,
        validates.
    loss, penalty, l1_ratio, ridge, fit_intercept, class_weight, tol, max_passes, random_state
        As for :class:`SparseClassifier`; by default ``loss="multitask_squared_hinge"``, ``ridge=1e-5``,
        ``fit_intercept=False`` and ``tol=0.1``.
    warm_start : path, optional
        Model with the same features to start the first training from; each other training starts from the
        model before it. It should not have been trained on the validation rows.
    overwrite : bool, default=False
        Replace another path in the same folder; by default this is refused.
    memory_limit, engine, progress
        As for :func:`ingest`.

    Returns
    -------
    dict
        ``table``: for each penalty ``alpha``, ``n_nonzero_features``, ``objective``, ``gap``, ``accuracy``,
        ``macro_f1``, ``n_passes``, ``model`` and, for trainings of this call, ``seconds``; ``best``: the row
        with the highest accuracy on the validation rows, and among equals the fewest features;
        ``best_model``: its file; ``at_edge``: whether the best is the first or last penalty.

    Raises
    ------
    BigmcError
        If an option is unknown or invalid, or the folder has another path or files of the same names.
    """
    from bigmc.store.dataset import Dataset
    from bigmc.store.files.outputs import IfExists, refuse_inputs
    from bigmc.training.selection import PathRequest
    from bigmc.training.selection import sparse_path as run

    check_names(PathOptions, options, "a path", signature(sparse_path).parameters)
    asked = PathOptions(**options)
    folder, data = local_folder(to, "a path of models"), Dataset.open(dataset)
    refuse_inputs(folder, [data])
    if warm_start is not None and folder.resolve() in Path(warm_start).resolve().parents:
        raise DataError(f"{warm_start} is an input of this command, and inside {to}", "give another --to")
    with ExitStack() as held:
        if_exists = IfExists(overwrite)
        request = PathRequest(data, folder, asked, _start(warm_start, held), if_exists)
        return run(request, held.enter_context(resources_of(memory_limit, engine, progress)))


def publish(
    evaluations: Sequence[str | Path], to: str | Path, *, by: str = "accuracy", overwrite: bool = False
) -> PublishResult:
    """Publish the best of several evaluated models, atomically.

    Readers of the name find either the previous or the new model. Repeating the call does nothing.

    Parameters
    ----------
    evaluations : sequence of path
        Files written by :func:`evaluate` with ``to``, all for one split of one dataset.
    to : path
        File to publish as; a model published there before is replaced.
    by : {"accuracy", "macro_f1", "micro_f1"}, default="accuracy"
        Figure that decides, the last one for label sets; among equals the model with the fewest features
        wins.
    overwrite : bool, default=False
        Replace a file at `to` that was not published; by default this is refused.

    Returns
    -------
    dict
        ``published``, the chosen row ``best``, and the ``table`` of all.

    Raises
    ------
    DataError, ModelError
        If a file is not an evaluation, the data differ, or a model has changed since.
    """
    from bigmc.store.files.outputs import IfExists
    from bigmc.training import selection

    return selection.publish(evaluations, to, by, IfExists(overwrite))


def load_model(path: str | Path) -> Any:
    """Return the classifier saved at ``path``, ready to predict.

    Raises
    ------
    ModelError
        If it is not a model, is damaged, or has another version or kind.
    """
    from bigmc.estimators import classifier_of

    return classifier_of(model_of(path))


def _start(path: str | Path | None, held: ExitStack) -> ModelSource | None:
    """Return the model to start from; a local copy of it is kept until `held` is closed."""
    from bigmc.store.files.object_store import is_remote

    if path is None:
        return None
    if not is_remote(path) and not Path(path).exists():
        raise ModelError(f"there is no model to start from at {path}", "check the path")
    return held.enter_context(model_source(path))
