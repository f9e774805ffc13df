"""Making models, and choosing among them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from bigmc import budget
from bigmc.api.resolve import Size, local_folder, model_of
from bigmc.engine import EngineLike, Resources, opened
from bigmc.errors import DataError
from bigmc.progress import ProgressCallback, silent

if TYPE_CHECKING:
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

    Killed at any moment, the same call continues from its checkpoint to the same model; after success
    it does nothing.

    Parameters
    ----------
    learner : str
        Name of a learner: ``"sparse"``.
    dataset : path or Dataset
        Data on disk.
    to : path
        Model to make; ``TO.wip/`` holds the checkpoint meanwhile. A device or pipe is written into.
    split : str, default="train"
        Split to train on.
    warm_start : path, optional
        Saved model to start from, such as that of yesterday's data.
    calibrate : float, optional
        Share of the rows, of 20,000 at most, that training leaves out; from them the scores of the model
        become probabilities. By default only models of the loss ``"log_loss"`` and of minimax have any.
    overwrite : bool, default=False
        Replace another file at `to`, such as a model of other parameters; by default it is refused.
    memory_limit, engine, progress
        As for :func:`ingest`.
    **options
        Parameters of the estimator, such as ``alpha`` and ``tol``.

    Returns
    -------
    dict
        ``objective``, ``certificate`` with ``lower``, ``upper`` and ``gap``, ``converged``, ``n_iter``,
        ``n_passes``, ``n_nonzero_features``, ``seconds`` and ``peak_memory_bytes`` of this call (resident
        bytes of the whole process), ``memory_limit_bytes``, and ``bytes_read``, by this process.
    """
    from bigmc.engine.processes import prepare_process
    from bigmc.options.learners import learner_options
    from bigmc.store.dataset import Dataset
    from bigmc.store.files.object_store import built, local_file
    from bigmc.store.files.outputs import IfExists, Output, OutputKind, refuse_inputs
    from bigmc.training.options import TrainOptions, calibration_rows
    from bigmc.training.run import train as run

    parameters = learner_options(learner, options)
    data = Dataset.open(dataset)
    refuse_inputs(to, [data, warm_start])
    output = Output.at(to)
    with ExitStack() as held:
        workers = held.enter_context(opened(engine, prepare_process))
        if output.kind is OutputKind.STREAM:
            target = Path(held.enter_context(TemporaryDirectory(prefix="bigmc-"))) / "model"
        elif output.kind is OutputKind.OBJECT:
            target = held.enter_context(built(to))
        else:
            target = output.path if Path(to).is_symlink() else Path(to)  # messages name what was given
        start = None if warm_start is None else held.enter_context(local_file(warm_start))
        if_exists = IfExists.REPLACE if overwrite else IfExists.REFUSE
        held_out = None if calibrate is None else calibration_rows(calibrate, data[split].n_samples)
        asked = TrainOptions(parameters, split, start, calibration=held_out, if_exists=if_exists)
        limit = budget.resolve_limit(memory_limit, workers.process_memory)
        trained = run(data, target, asked, Resources(workers, limit, progress))
        if output.kind is OutputKind.STREAM:
            output.write(target.read_bytes())
    trained["model"] = str(to)
    return trained


def sparse_path(
    dataset: str | Path | Dataset,
    to: str | Path,
    *,
    n_alphas: int = 10,
    alpha_ratio: float = 1e-2,
    alphas: Sequence[float] | None = None,
    split: str = "train",
    validation: str = "valid",
    warm_start: str | Path | None = None,
    overwrite: bool = False,
    memory_limit: Size = None,
    engine: EngineLike = None,
    progress: ProgressCallback = silent,
    **options: Any,
) -> PathResult:
    """Train the sparse learner along falling penalties, each model the start of the next, and choose one.

    Killed at any moment, the same call continues; after success it does nothing.

    Parameters
    ----------
    dataset : path or Dataset
        Data on disk.
    to : path
        Folder for the models, ``path.json`` with the table, ``path.png`` with the plot where matplotlib is
        installed, and ``best.model``.
    n_alphas : int, default=10
        Penalties, evenly spaced in their logarithm, from the largest that leaves any weight. More follow as
        long as the last one is the best.
    alpha_ratio : float, default=0.01
        The smallest penalty relative to the largest.
    alphas : sequence of float, optional
        The penalties themselves, instead.
    split, validation : str
        Splits to train on and to choose by. Without a split ``valid`` a fifth of the rows to train on, up to
        20,000, chooses.
    warm_start : path, optional
        Model of the same features that the first training starts from; the others start from the one before
        them. One that was trained on the rows to choose by has seen them.
    overwrite : bool, default=False
        Replace another path in the same folder; by default it is refused.
    memory_limit, engine, progress
        As for :func:`ingest`.
    **options
        Parameters of the estimator other than ``alpha``.

    Returns
    -------
    dict
        ``table``: for each penalty ``alpha``, ``n_nonzero_features``, ``objective``, ``gap``, ``accuracy``,
        ``macro_f1``, ``n_passes``, ``model`` and, of trainings of this call, ``seconds``; ``best``: the row
        with the highest accuracy on the validation rows, of equals the one with the fewest features;
        ``best_model``: its file; ``at_edge``: whether the best is the first or last penalty.
    """
    from bigmc.store.dataset import Dataset
    from bigmc.store.files.object_store import local_file
    from bigmc.store.files.outputs import IfExists, refuse_inputs
    from bigmc.training import selection
    from bigmc.training.options import PathOptions

    folder, data = local_folder(to, "a path of models"), Dataset.open(dataset)
    refuse_inputs(folder, [data])
    if warm_start is not None and folder.resolve() in Path(warm_start).resolve().parents:
        raise DataError(f"{warm_start} is an input of this command, and in {to}", "give another --to")
    with ExitStack() as held:
        chosen = PathOptions(
            n_alphas,
            alpha_ratio,
            None if alphas is None else tuple(float(alpha) for alpha in alphas),
            split,
            validation,
            options,
            IfExists.REPLACE if overwrite else IfExists.REFUSE,
            None if warm_start is None else held.enter_context(local_file(warm_start)),
        )
        workers = held.enter_context(opened(engine))
        limit = budget.resolve_limit(memory_limit, workers.process_memory)
        return selection.sparse_path(data, folder, chosen, Resources(workers, limit, progress))


def publish(
    evaluations: Sequence[str | Path], to: str | Path, *, by: str = "accuracy", overwrite: bool = False
) -> PublishResult:
    """Choose the best of evaluated models and give it its public name, all at once.

    Readers of the name find the model from before or the new one, whole. Done again it does nothing.

    Parameters
    ----------
    evaluations : sequence of path
        Files written by :func:`evaluate` with ``to``, all of one split of one dataset.
    to : path
        Public name; a model that was published there before is replaced.
    by : {"accuracy", "macro_f1"}, default="accuracy"
        Figure to choose by; of equals the model with the fewest features.
    overwrite : bool, default=False
        Replace another file at `to`, which was not published; by default it is refused.

    Returns
    -------
    dict
        ``published``, the chosen row ``best``, and the ``table`` of all.

    Raises
    ------
    DataError, ModelError
        If a file is not an evaluation, they are of different data, or a model has changed since.
    """
    from bigmc.store.files.outputs import IfExists
    from bigmc.training import selection

    return selection.publish(evaluations, to, by, IfExists.REPLACE if overwrite else IfExists.REFUSE)


def load_model(path: str | Path) -> Any:
    """Return the classifier saved at ``path``, ready to predict.

    Raises
    ------
    ModelError
        If it is no model, damaged or of another version or kind.
    """
    from bigmc.estimators import classifier_of

    return classifier_of(model_of(path))
