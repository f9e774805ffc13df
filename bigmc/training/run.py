"""One training run: locked, resumable, and saved atomically.

``MODEL.wip/`` holds the run's request, checkpoint and lock until the model is saved.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc import budget
from bigmc.engine import Engine, Resources
from bigmc.engine.processes import prompt_release
from bigmc.errors import BigmcError, DataError, ModelError
from bigmc.learners import Learner, learner_of
from bigmc.model import Model, load_model
from bigmc.progress import Progress, ProgressCallback
from bigmc.store.dataset import Dataset
from bigmc.store.files.checkpoint import CHECKPOINT, FileCheckpoint
from bigmc.store.files.outputs import IfExists
from bigmc.store.files.work_file import read_work_file, write_work_file
from bigmc.store.files.work_folder import WorkFolder
from bigmc.training.feature_names import feature_names
from bigmc.training.gradient_norms import model_to_start_from, save_norms
from bigmc.training.options import HeldOut, TrainOptions
from bigmc.training.results import TrainResult
from bigmc.training.search.trials import Truth

_REQUEST = "training.json"
_WORK_FILES = (_REQUEST, CHECKPOINT, "bigmc-*")
"""All unfinished work; the last ones are scratch files of solvers."""

_SHOWN = 60
"""Maximum characters of a parameter in a message."""


def train(data: Dataset, target: Path, options: TrainOptions, resources: Resources) -> TrainResult:
    """Train, resume a training, or return a finished model; see :func:`bigmc.api.train`."""
    started = time.monotonic()
    budget.reset_peak()
    read_before = data.bytes_read
    learner = learner_of(options.learner)
    samples = data[options.split]
    params = _recorded(data, learner, options)
    _check_place(target)
    folder = WorkFolder.of(target, _WORK_FILES)
    if not _is_trained(target, params, options.if_exists):
        with folder.locked() as work, prompt_release():
            if not _is_trained(target, params, options.if_exists):
                _claim(work, params, target)
                try:
                    trained = _trained(samples, learner, options, resources, work)
                except DataError:  # to resume would fail again
                    folder.forget()
                    raise
                names = feature_names(data, trained.used_features, resources.memory_limit // 16)
                if options.keep_norms:
                    save_norms(trained, target)
                label = data.label_source  # a model trained on rows in memory lacks it
                replace(trained, params=params, names=names, label_source=label).save(target)
    folder.clear()
    model = load_model(target)
    return {
        "model": str(target),
        "objective": model.objective,
        "certificate": dict(model.certificate),
        "converged": model.certificate["gap"] <= learner.tolerance,
        "tol": learner.tolerance,
        "n_iter": model.n_iter,
        "n_passes": model.n_passes,
        "n_nonzero_features": len(model.used_features),
        "seconds": time.monotonic() - started,
        "peak_memory_bytes": budget.peak_memory(),
        "memory_limit_bytes": resources.memory_limit,
        "file_bytes_read": data.bytes_read - read_before,
        "notes": list(learner.doubts(samples, model)),
    }


def _recorded(data: Dataset, learner: Learner, options: TrainOptions) -> Mapping[str, Any]:
    """Return the record of a model's options: a run with the same record has nothing to do.

    `BigmcError` if rows are to be held out for calibration, but the learner uses every row.
    """
    params = learner.recorded()
    params |= {"learner": options.learner.learner, "dataset": data.identity, "split": options.split}
    if options.held_out is not None:
        params["held_out"] = options.held_out.share
    if options.calibration is not None:
        if not learner.takes_weights:
            cure = "leave --calibrate out: it has its own probabilities"
            raise BigmcError(f"training {learner.kind} uses every row", cure)
        params["calibrated_on"] = options.calibration.share
    if options.start is not None:
        params["warm_start"] = options.start.sha256
    return params


def _check_place(target: Path) -> None:
    """Raise an error if a path cannot become a file."""
    if target.is_dir():
        raise ModelError(f"{target} is a folder", "give the path of a file with --to")
    if not target.parent.is_dir():
        raise ModelError(f"there is no folder {target.parent}", "create it, or give another --to")


def _trained(
    samples: Dataset, learner: Learner, options: TrainOptions, resources: Resources, work: Path
) -> Model:
    """Return the model, from the checkpoint in the folder of unfinished work if there is one."""
    calibration, engine = options.calibration, resources.engine
    model = learner.train(
        samples,
        replace(resources, progress=_towards(learner.tolerance, resources.progress)),
        checkpoint=FileCheckpoint(work),
        scratch=work,
        start=None if options.start is None else model_to_start_from(options.start),
        sample_weight=_weights(samples, options.held_out or calibration, engine),
    ).model
    return model if calibration is None else _calibrated(model, calibration.rows(samples, engine)[0])


def _towards(tol: float, progress: ProgressCallback) -> ProgressCallback:
    """Return a callback that adds the target gap to the progress."""

    def tell(message: Progress) -> None:
        progress(replace(message, facts={**message.facts, "tol": tol}) if "gap" in message.facts else message)

    return tell


def _weights(samples: Dataset, held_out: HeldOut | None, engine: Engine) -> NDArray[np.float64] | None:
    """Return sample weights that hold rows out of a training, or None."""
    if held_out is None:
        return None
    weights = np.ones(samples.n_samples)
    weights[held_out.rows(samples, engine)[1]] = 0.0
    return weights


def _calibrated(model: Model, rows: Dataset) -> Model:
    """Return a model calibrated on held-out rows, for label sets also with a threshold."""
    verdict = Truth.of(rows).judge(model.dataset_scores(rows))
    threshold = model.label_threshold if verdict.threshold is None else verdict.threshold
    return replace(model, calibration=verdict.calibration, label_threshold=threshold)


def _is_trained(target: Path, params: Mapping[str, Any], if_exists: IfExists) -> bool:
    """Return whether the model exists; raise an error for any other file, unless it may be replaced."""
    if not target.exists():
        return False
    try:
        cure = "delete it, give another --to, or add --overwrite"
        _refuse_other(load_model(target).params, params, f"the model {target}", cure)
    except ModelError:
        if if_exists is IfExists.REPLACE:
            return False
        raise
    return True


def _claim(work: Path, params: Mapping[str, Any], target: Path) -> None:
    """Record the request of the training; raise an error if the folder has another one.

    If no state was saved yet, there is nothing to lose, and a corrected command just starts.
    """
    file = work / _REQUEST
    if file.exists() and FileCheckpoint(work).path.exists():
        cure = f"delete {work}, or give another --to"
        stored = read_work_file(file, work)
        _refuse_other(stored, params, f"an unfinished training of {target}", cure)
    else:
        write_work_file(file, params)


def _refuse_other(stored: Mapping[str, Any], params: Mapping[str, Any], what: str, cure: str) -> None:
    asked = json.loads(json.dumps(params))
    differences = [
        "another dataset"
        if name == "dataset"
        else f"{name}: it has {_shown(stored.get(name))}, asked for {_shown(asked.get(name))}"
        for name in sorted(stored.keys() | asked.keys())
        if stored.get(name) != asked.get(name)
    ]
    if stored.get("learner") != asked.get("learner"):  # then all else differs too
        names = (_shown(own.get("learner")) for own in (stored, asked))
        differences = ["learner: it has {}, asked for {}".format(*names)]
    if differences:
        raise ModelError(f"{what} was made with other parameters ({', '.join(differences)})", cure)


def _shown(value: object) -> str:
    """Return a parameter as JSON, truncated if it is long."""
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
