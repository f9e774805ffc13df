"""MLflow flavour: stores models as bigmc's own files, without pickle, and records fits as runs.

Needs ``bigmc[mlflow]``. The functions have the names and meanings of those in MLflow's own flavours.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import mlflow
from mlflow import pyfunc
from mlflow.models import Model as MLflowModel
from mlflow.models.signature import ModelSignature
from mlflow.types import DataType, ParamSchema, ParamSpec
from mlflow.utils.autologging_utils import autologging_integration, safe_patch

from bigmc import api
from bigmc.errors import DataError
from bigmc.version import __version__

FLAVOR_NAME = "bigmc"
DATA, ARCHIVE = "data", "model.bigmc"
"""Where MLflow puts the files of a model, and the name of bigmc's."""

_OF_RESULTS = ("learner", "settings")
"""What a result tells besides figures."""

_MOST_CHARACTERS = 250
"""Longest text of a parameter; MLflow's stores refuse longer ones."""

_SIGNATURE = ModelSignature(params=ParamSchema([ParamSpec("proba", DataType.boolean, False)]))
"""MLflow hands on only parameters that a signature has, and compares columns with those that it has."""


def save_model(
    model: Any,
    path: str | Path,
    mlflow_model: MLflowModel | None = None,
    signature: ModelSignature | None = None,
    input_example: Any = None,
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Write a model into a new folder as an MLflow model of the flavours ``bigmc`` and ``python_function``.

    Parameters
    ----------
    model : path or fitted classifier
        A file that `bigmc.train` or `bigmc.fit` made, or a classifier to save.
    path : path
        Folder to create.
    mlflow_model : mlflow.models.Model, optional
        Given by MLflow's logging.
    signature : mlflow.models.ModelSignature, optional
        Columns, and parameters of predictions; by default any columns, and ``proba``.
    input_example : data frame, array, list or dict, optional
        Rows to store as an example.
    metadata : mapping, optional
        What else to store with the model.

    Raises
    ------
    DataError
        If the folder exists and is not empty.
    """
    folder = Path(path)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DataError(f"{folder} is not an empty folder", "give the path of a new one")
    classifier = api.load_model(model) if isinstance(model, str | Path) else model
    written = mlflow_model if mlflow_model is not None else MLflowModel()
    written.signature = _SIGNATURE if signature is None else signature
    written.add_flavor(FLAVOR_NAME, data=f"{DATA}/{ARCHIVE}", bigmc_version=__version__)
    with tempfile.TemporaryDirectory() as scratch:
        classifier.save(Path(scratch) / ARCHIVE)
        pyfunc.save_model(
            str(folder),
            loader_module=__name__,
            data_path=str(Path(scratch) / ARCHIVE),
            mlflow_model=written,
            input_example=input_example,
            metadata=None if metadata is None else dict(metadata),
            pip_requirements=[f"bigmc=={__version__}"],
        )


def log_model(model: Any, name: str, **options: Any) -> Any:
    """Record a model as an artifact of the active run, or of a new one.

    Parameters
    ----------
    model : path or fitted classifier
        As for `save_model`.
    name : str
        Name of the logged model.
    **options
        Options of `mlflow.models.Model.log`, such as ``registered_model_name``.

    Returns
    -------
    mlflow.models.model.ModelInfo
    """
    flavour = sys.modules[__name__]
    return MLflowModel.log(artifact_path=None, name=name, flavor=flavour, model=model, **options)


def load_model(model_uri: str, dst_path: str | None = None) -> Any:
    """Return the classifier of an MLflow model, as `bigmc.load_model` does; nothing in it is executed."""
    folder = mlflow.artifacts.download_artifacts(artifact_uri=model_uri, dst_path=dst_path)
    flavor = MLflowModel.load(folder).flavors[FLAVOR_NAME]  # earlier versions kept the file elsewhere
    return api.load_model(Path(folder) / flavor["data"])


class _Predictor:
    """The object behind `mlflow.pyfunc.load_model`: predicts labels, or probabilities with ``proba``."""

    def __init__(self, classifier: Any) -> None:
        self._classifier = classifier

    def predict(self, model_input: Any, params: Mapping[str, Any] | None = None) -> Any:
        """Return a label for each row of a data frame, array or list of texts."""
        proba = bool((params or {}).get("proba"))
        return self._classifier.predict_proba(model_input) if proba else self._classifier.predict(model_input)

    def get_raw_model(self) -> Any:
        """Return the classifier."""
        return self._classifier


def _load_pyfunc(data_path: str) -> _Predictor:
    """Return the predictor of a stored model, for MLflow."""
    return _Predictor(api.load_model(data_path))


@autologging_integration(FLAVOR_NAME)  # type: ignore[untyped-decorator]
def autolog(log_models: bool = True, disable: bool = False, silent: bool = False) -> None:
    """Record each later `bigmc.fit` and `bigmc.train` as a run: options, figures and the model.

    The first one within a run of yours becomes part of it; each later one is a run nested in it.

    Parameters
    ----------
    log_models : bool, default=True
        Whether to record the model file as an artifact of the run.
    disable, silent : bool
        As for every flavour of MLflow.
    """

    def recorded(original: Callable[..., Any], *args: Any, **options: Any) -> Any:
        parameters = _parameters(args, options)
        with _run_without({*parameters, *_OF_RESULTS}):
            mlflow.log_params(parameters)
            result = original(*args, **options)
            mlflow.log_metrics(_metrics(result))
            mlflow.log_params({name: result[name] for name in _OF_RESULTS if name in result})
            if log_models:
                log_model(result["model"], name=_name_of(Path(result["model"]).stem))
        return result

    for function in ("fit", "train"):
        safe_patch(FLAVOR_NAME, api, function, recorded, manage_run=True)


def _run_without(names: set[str]) -> AbstractContextManager[Any]:
    """Return the active run, or one nested in it if it has one of some parameters: they cannot change."""
    known = mlflow.get_run(mlflow.active_run().info.run_id).data.params
    return mlflow.start_run(nested=True) if names & known.keys() else nullcontext()


def _name_of(stem: str) -> str:
    """Return a name that MLflow takes for a model."""
    return re.sub("""[/:.%"']""", "-", stem) or FLAVOR_NAME


def _parameters(args: Sequence[Any], options: Mapping[str, Any]) -> dict[str, str]:
    """Return the given options as texts, without data in memory."""
    positional = {f"argument_{number}": value for number, value in enumerate(args)}
    plain = {
        name: value
        for name, value in {**positional, **options}.items()
        if isinstance(value, str | int | float | Path | tuple | list | dict)
    }
    return {name: str(value)[:_MOST_CHARACTERS] for name, value in plain.items()}


def _metrics(figures: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """Return the numbers of a result; those of nested mappings get joined names."""
    metrics: dict[str, float] = {}
    for name, value in figures.items():
        if isinstance(value, Mapping):
            metrics |= _metrics(value, f"{prefix}{name}_")
        elif isinstance(value, int | float):
            metrics[prefix + name] = float(value)
    return metrics
