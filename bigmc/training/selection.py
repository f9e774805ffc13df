"""Choose one of several models: from a path of the sparse learner, or from separate evaluations.

Every point of a path is a separate training that starts from the previous point (Blondel, Seki and
Uehara 2013, figure 5, plot accuracy against features along such a path), so a killed path resumes at its
current point.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import numpy as np

from bigmc.engine import Resources
from bigmc.errors import BigmcError, DataError, ModelError, StoreError
from bigmc.inference.evaluation.evaluate import evaluate
from bigmc.inference.evaluation.evaluation_file import Subject
from bigmc.inference.evaluation.labelled import LabelledDataset
from bigmc.learners import learner_of
from bigmc.learners.sparse import SparseLearner
from bigmc.model import ModelSource, load_model
from bigmc.options.inference import EvaluateOptions
from bigmc.options.path import VALID, PathOptions
from bigmc.solvers.loop import RunContext
from bigmc.solvers.sparse import largest_alpha
from bigmc.store.dataset import Dataset
from bigmc.store.files import disk
from bigmc.store.files.atomic import replacing, write_atomic
from bigmc.store.files.layout import sha256
from bigmc.store.files.object_store import local_file, read_file
from bigmc.store.files.outputs import IfExists, Output, refuse_inputs
from bigmc.store.files.receipt import Receipt
from bigmc.store.files.untrusted import parse_json
from bigmc.store.files.work_file import read_work_file, write_work_file
from bigmc.store.files.work_folder import WorkFolder
from bigmc.training.gradient_norms import norms_beside, with_norms
from bigmc.training.options import HeldOut, TrainOptions
from bigmc.training.results import EvaluatedModel, PathResult, PathRow, PublishResult
from bigmc.training.run import train

TABLE, PLOT, BEST = "path.json", "path.png", "best.model"
WORK, CLAIM = "path.wip", "asked.json"

Figure = Literal["accuracy", "macro_f1", "micro_f1"]
_OF_SETS: Figure = "micro_f1"
FIGURES: tuple[Figure, ...] = ("accuracy", "macro_f1", _OF_SETS)
"""Figures to compare models by; the last only for label sets."""

EVALUATED = tuple(Subject.__dataclass_fields__)
"""Fields of a file of ``bigmc evaluate --to`` besides the figures."""

MORE_ALPHAS = 20
"""Maximum number of further penalties below the smallest, while each is better."""
HELD_OUT_SHARE, HELD_OUT_ROWS, HELD_OUT_SEED = 0.2, 20_000, 0x7A11D
"""Share and maximum of validation rows if there is no validation split."""

_LARGEST = 0.99
"""The path starts at this share of the penalty that makes all weights zero."""


class PathRequest(NamedTuple):
    """The request of a path of models.

    Attributes
    ----------
    start : ModelSource or None
        Saved model to start the training with the largest penalty from.
    if_exists : IfExists
        What to do with another path in the same folder.
    """

    data: Dataset
    to: Path
    options: PathOptions
    start: ModelSource | None = None
    if_exists: IfExists = IfExists.REFUSE

    def fingerprint(self) -> Mapping[str, Any]:
        """Return what determines the models, as JSON data."""
        start = {} if self.start is None else {"warm_start": self.start.sha256}
        own = {"dataset": self.data.identity, **start, **self.options.fingerprint()}
        return cast(Mapping[str, Any], json.loads(json.dumps(own)))


def sparse_path(request: PathRequest, resources: Resources) -> PathResult:
    """Train for decreasing penalties and choose a model; see :func:`bigmc.api.sparse_path`."""
    data, to, options = request.data, request.to, request.options
    learner = learner_of(options.learner(1.0))  # checks the options
    if to.exists() and not to.is_dir():
        raise ModelError(f"{to} is a file", "give the path of a folder with --to")
    if options.validation != VALID:
        data[options.validation]  # raise errors before any work
    learner.check_data(data[options.split])
    asked = request.fingerprint()
    work = WorkFolder(to / WORK, to, [CLAIM])
    result = _finished(to, asked)
    if result is None:
        _others(to, asked, request.if_exists)
        with work.locked():
            result = _finished(to, asked) or _make_path(request, resources, asked)
    for leftover in to.glob("*.model.wip"):  # a power cut may have restored removed files
        disk.try_clear(leftover)
    work.clear()
    return {**result, "best_model": str(to / BEST)}


def _make_path(request: PathRequest, resources: Resources, asked: Mapping[str, Any]) -> PathResult:
    """Train and evaluate missing models, choose one and write the table."""
    data, to, options, before, if_exists = request
    _claim(to, asked, if_exists)
    validation = _validation(data, options, resources)
    alphas = options.alphas or _spaced(data[options.split], options, resources)
    table: list[PathRow] = []
    seconds: list[float | None] = []
    grid = sorted({float(alpha) for alpha in alphas}, reverse=True)
    most = len(grid) if options.alphas or len(grid) < 2 else len(grid) + MORE_ALPHAS
    for k in range(most):
        if k == len(grid):
            if _best(table) is not table[-1]:
                break  # the validation score got worse
            grid.append(grid[-1] * grid[-1] / grid[-2])
        target = to / f"{k:03d}.model"
        row, took = _point(data, target, grid[k], before, validation, options, resources)
        table.append(row)
        seconds.append(took)
        before = ModelSource.of_file(target)
    best = _best(table)
    by = _figure_of(table)
    with replacing(to / BEST) as file, (to / best["model"]).open("rb") as model:
        shutil.copyfileobj(model, file)
    _draw(table, best, by, to / PLOT)
    at_edge = len(table) > 1 and best in (table[0], table[-1])
    result: PathResult = {"asked": asked, "table": table, "best": best, "at_edge": at_edge}
    written = {**result, "sha256": _digest(result)}
    write_atomic(to / TABLE, json.dumps(written, indent=1).encode())
    timed: list[PathRow] = [{**row, "seconds": took} for row, took in zip(table, seconds, strict=True)]
    return {**result, "table": timed, "best": timed[table.index(best)]}


def _figure_of(table: Sequence[PathRow]) -> Figure:
    """Return the figure to compare the models by."""
    return _OF_SETS if _OF_SETS in table[0] else "accuracy"


def _best(table: Sequence[PathRow]) -> PathRow:
    """Return the best row; the fewest features win ties."""
    by = _figure_of(table)
    return max(table, key=lambda row: (row[by], -row["n_nonzero_features"]))


class ValidationRows(NamedTuple):
    """The validation rows.

    Attributes
    ----------
    held_out : HeldOut or None
        Set if they are rows of the training split, held out of training.
    """

    samples: Dataset
    held_out: HeldOut | None


def _validation(data: Dataset, options: PathOptions, resources: Resources) -> ValidationRows:
    """Return a split, or rows of the training split if there is no split ``valid``."""
    if options.validation != VALID or VALID in data.splits:
        return ValidationRows(data[options.validation], None)
    held_out = HeldOut(min(HELD_OUT_SHARE, HELD_OUT_ROWS / data[options.split].n_samples), HELD_OUT_SEED)
    return ValidationRows(held_out.rows(data[options.split], resources.engine)[0], held_out)


def _point(
    data: Dataset,
    target: Path,
    alpha: float,
    before: ModelSource | None,
    validation: ValidationRows,
    options: PathOptions,
    resources: Resources,
) -> tuple[PathRow, float | None]:
    """Return the figures of one penalty, with the seconds of its training if it was trained now."""
    seen = target.with_suffix(".json")
    known = _read_row(seen, target) if target.exists() else None
    if known is not None:
        return known, None
    learner = options.learner(alpha)
    asked = TrainOptions(learner, options.split, before, keep_norms=True, held_out=validation.held_out)
    was_there = target.exists()
    trained = train(data, target, asked, resources)
    if was_there and not norms_beside(target).exists():  # the next model would have other bits without them
        disk.unlink(target)
        trained = train(data, target, asked, resources)
    measured = EvaluateOptions(split=options.validation)
    local = replace(resources, engine=validation.samples.seen_by(resources.engine))
    model = with_norms(load_model(target), target)  # they are its own, or this raises an error
    figures = evaluate(model, LabelledDataset(validation.samples), measured, local)
    row: dict[str, object] = {
        "alpha": alpha,
        "n_nonzero_features": trained["n_nonzero_features"],
        "objective": trained["objective"],
        "n_passes": trained["n_passes"],
        "gap": trained["certificate"]["gap"],
        **{name: figures[name] for name in FIGURES if name in figures},
        "model": target.name,
    }
    kept = {**row, "model_sha256": sha256(target), "norms_sha256": _norms_digest(target)}
    write_atomic(seen, json.dumps({**kept, "sha256": _digest(kept)}).encode())
    return cast(PathRow, row), trained["seconds"]


def _read_row(file: Path, model: Path) -> PathRow | None:
    """Return the stored figures of a model; None if it must be evaluated again.

    `ModelError` if the model or its norms have changed since, because later models start from them.
    """
    try:
        row: dict[str, object] = dict(parse_json(file.read_bytes()))
        if row.pop("sha256") != _digest(row):
            return None
        measured, norms = row.pop("model_sha256"), row.pop("norms_sha256")
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return None
    if measured != sha256(model):
        raise ModelError(f"{model} has changed since it was evaluated", "delete it to train it again")
    if norms != _norms_digest(model):
        raise ModelError(
            f"{norms_beside(model)} has changed since it was written, or is gone",
            f"delete {model.name} to train it again",
        )
    return cast(PathRow, row)


def _norms_digest(model: Path) -> str | None:
    """Return the SHA-256 of the norms beside a model, from which the next training starts."""
    norms = norms_beside(model)
    return sha256(norms) if norms.exists() else None


def _digest(row: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(row).encode()).hexdigest()


def _finished(to: Path, asked: Mapping[str, Any]) -> PathResult | None:
    """Return the result of the same path if it exists, without times."""
    try:
        saved = dict(parse_json((to / TABLE).read_bytes()))
        digest = saved.pop("sha256", None)  # there was none before
        if saved["asked"] != asked or digest not in (None, _digest(saved)):
            return None
        rows = [{**row, "seconds": None} for row in saved["table"]]
        best = {**saved["best"], "seconds": None}
        return cast(PathResult, {**saved, "table": rows, "best": best})
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _others(to: Path, asked: Mapping[str, Any], if_exists: IfExists) -> list[Path] | None:
    """Return existing files with the names of this path's; None if this path was already started.

    `ModelError` if there are any, and they may not be replaced.
    """
    try:
        if read_work_file(to / WORK / CLAIM) == asked:
            return None
    except StoreError:
        pass  # the owner of the files is unknown: raise the error below
    numbered = [
        file for kind in ("model", "json", "norms.npy") for file in to.glob(f"[0-9][0-9][0-9].{kind}")
    ]
    taken = [file for file in (to / TABLE, to / PLOT, to / BEST) if file.exists()] + numbered
    if taken and if_exists is IfExists.REFUSE:
        raise ModelError(
            f"{to} has a path with other data or parameters, or files of the same names: {taken[0].name}",
            "give another --to, or replace them with --overwrite",
        )
    return taken


def _claim(to: Path, asked: Mapping[str, Any], if_exists: IfExists) -> None:
    """Record the path of a folder; raise an error if it has other files with the same names."""
    others = _others(to, asked, if_exists)
    if others is None:
        return
    for file in others:
        disk.clear(file)
    write_work_file(to / WORK / CLAIM, asked)
    for folder in (to, to.parent):  # a power cut must not lose the record and keep later models
        disk.sync(folder)


def publish(
    evaluations: Sequence[str | Path], to: str | Path, by: str, if_exists: IfExists = IfExists.REFUSE
) -> PublishResult:
    """Publish the best of several evaluated models; see :func:`bigmc.api.publish`."""
    if by not in FIGURES:
        raise BigmcError(f"models cannot be compared by {by!r}", f"choose {' or '.join(FIGURES)}")
    table = [_evaluation(path) for path in evaluations]
    for path, row in zip(evaluations, table, strict=True):
        if (row["dataset"], row["split"]) != (table[0]["dataset"], table[0]["split"]):
            raise ModelError(
                f"{evaluations[0]} and {path} were evaluated on different data",
                "evaluate all models on one split",
            )
        if by not in row:
            raise ModelError(f"{path} has no {by}, which needs sets of labels", "choose by another figure")
    best = max(table, key=lambda row: (row[by], -row["n_nonzero_features"]))
    with local_file(best["model"]) as model:
        try:
            content = model.read_bytes()
        except OSError as error:
            said = f"{best['model']}: the model that was evaluated cannot be read ({error.strerror})"
            raise ModelError(said, "restore it, or evaluate another one") from None
    digest = hashlib.sha256(content).hexdigest()
    if digest != best["model_sha256"]:
        raise ModelError(f"{best['model']} is not the model that was evaluated", "evaluate it again")
    refuse_inputs(to, [*evaluations, *(row["model"] for row in table)])
    output = Output.at(to)
    there = output.digest()
    if there != digest or not output.is_own():
        if there not in (None, digest) and not output.is_own():
            output.refuse_existing(if_exists)
        output.write_receipt(Receipt({"command": "publish"}, digest, replaces_sha256=there))
    if there != digest:
        output.write(content)
    return {"published": str(to), "best": best, "table": table}


def _evaluation(path: str | Path) -> EvaluatedModel:
    content = read_file(path)
    if content is None:
        raise DataError(f"there is no evaluation at {path}", "make it with bigmc evaluate --to")
    try:
        evaluation = json.loads(content)
        figures = {name: evaluation[name] for name in FIGURES if name in evaluation or name != _OF_SETS}
        row = {name: evaluation[name] for name in EVALUATED}
        if not (isinstance(row["model"], str) and all(isinstance(f, float) for f in figures.values())):
            raise TypeError
        return cast(EvaluatedModel, figures | row)
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{path} is not an evaluation", "make it with bigmc evaluate --to") from None


def _spaced(samples: Dataset, options: PathOptions, resources: Resources) -> list[float]:
    """Return penalties evenly spaced in their logarithm, from the largest with non-zero weights."""
    learner = SparseLearner(options.learner(1.0))  # any penalty
    weights = learner.weights(samples)
    run = learner.solver_run(samples, weights, resources.memory_limit, RunContext(resources.engine))
    top = _LARGEST * largest_alpha(run)
    return np.geomspace(top, top * options.alpha_ratio, options.n_alphas).tolist()  # type: ignore[no-any-return]


def _draw(table: Sequence[Mapping[str, Any]], best: Mapping[str, Any], by: str, target: Path) -> None:
    """Plot the deciding figure against the number of features with weight, if matplotlib is installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.add_subplot()
    axes.plot([row["n_nonzero_features"] for row in table], [row[by] for row in table], "o-")
    axes.plot([best["n_nonzero_features"]], [best[by]], "o", ms=12, mfc="none", label="chosen")
    for row in table:
        place = (row["n_nonzero_features"], row[by])
        axes.annotate(f"{row['alpha']:.2g}", place, xytext=(4, -10), textcoords="offset points", fontsize=7)
    axes.set_xscale("symlog")
    axes.set_xlabel("features with weight")
    axes.set_ylabel(f"{by.replace('_', ' ')} on the validation split")
    axes.legend(loc="lower right")
    with replacing(target) as file:
        figure.savefig(file, format="png", dpi=150, metadata={"Software": None})
