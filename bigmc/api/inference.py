"""Use models: predict, inspect and explain."""

from __future__ import annotations

import time
from collections.abc import Mapping
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from bigmc import budget
from bigmc.api.resolve import Size, model_of, model_source, resources_of
from bigmc.engine import EngineLike
from bigmc.errors import DataError
from bigmc.options.declare import check_names
from bigmc.options.inference import PredictKeywords, PredictOptions
from bigmc.progress import ProgressCallback, silent

if TYPE_CHECKING:
    from bigmc.api.resolve import AnyModel
    from bigmc.inference.dataset_input import DatasetInput
    from bigmc.inference.explain import Explanation
    from bigmc.inference.raw_input import RawInput
    from bigmc.inference.results import Inspection, PredictResult


def predict(
    model: AnyModel,
    source: Any,
    to: str | Path,
    *,
    overwrite: bool = False,
    memory_limit: Size = None,
    engine: EngineLike = None,
    progress: ProgressCallback = silent,
    **options: Unpack[PredictKeywords],
) -> PredictResult:
    """Predict the labels of raw files or of a dataset, and write them to a file.

    Raw files are hashed like the model's training data, with the parameters in the model. Killed at any
    moment, the same call resumes; after success it does nothing.

    Parameters
    ----------
    model : path, Model or fitted classifier
        Model.
    source : path, glob, array, or Dataset
        Raw data or a dataset; ``"-"`` is standard input, whose JSON lines are predicted as they arrive.
    to : path
        File with ``row_id``, ``predicted_label``, or the list ``predicted_labels`` if labels are sets,
        and ``score_<class>`` or ``probability_<class>`` on request. Rows of raw data, or of one split
        of a dataset, are in the order of the source. CSV or JSON lines if the name ends with ``.csv`` or
        ``.jsonl``, else Parquet; names of other formats, such as ``.xlsx``, are refused. ``"-"`` is
        standard output. It, devices and pipes get JSON lines unless the name says otherwise.
    split : str, optional
        Split of a dataset; by default all its rows.
    scores : bool, default=False
        Write the score of every class.
    proba : bool, default=False
        Write the probability of every class instead, if the model has probabilities.
    keep : str or sequence of str, optional
        Columns of the source to copy to the predictions, such as an id; from a dataset, columns that
        ingest kept.
    on_bad_row : {"fail", "quarantine"}
        Stop at an invalid raw row, or list it in ``TO.rejects.parquet``.
    overwrite : bool, default=False
        Replace another file at `to`; by default this is refused.
    format, delimiter, columns, encoding, memory_limit, engine, progress
        As for :func:`ingest`.

    Returns
    -------
    dict
        ``n_samples``, ``n_quarantined``, ``seconds`` and ``peak_memory_bytes``; where there are any,
        ``n_odd_values``, which are no numbers or dates and count as missing as in training.
    """
    from bigmc.engine.processes import prompt_release
    from bigmc.inference.predict import PredictionCounts, PredictionJob
    from bigmc.inference.stdin import StreamPredictor
    from bigmc.inference.writers import refuse_other_formats
    from bigmc.ingestion.parts.spool import STDIN
    from bigmc.store.files.outputs import IfExists, Output, refuse_inputs

    started = time.monotonic()
    budget.reset_peak()
    check_names(PredictOptions, options, "predict", signature(predict).parameters)
    asked = PredictOptions(**options)  # type: ignore[arg-type]
    if isinstance(source, str) and source == STDIN:
        refuse_inputs(to, [model])
        output = refuse_other_formats(Output.at(to))
        counts = PredictionCounts(StreamPredictor(model_of(model), asked, output).run(), 0)
    else:
        rows = _rows_to_predict(source, asked)
        refuse_inputs(to, [model, source, rows.sources])
        output = refuse_other_formats(Output.at(to))
        if_exists = IfExists(overwrite)
        with (
            model_source(model) as known,
            resources_of(memory_limit, engine, progress) as resources,
            prompt_release(),
        ):
            job = PredictionJob(known, output, asked, resources)
            counts = job.run(rows, if_exists)
    result: PredictResult = {
        "predictions": str(to),
        "n_samples": counts.n_samples,
        "n_quarantined": counts.n_quarantined,
        "seconds": time.monotonic() - started,
        "peak_memory_bytes": budget.peak_memory(),
    }
    return {**result, "n_odd_values": counts.n_odd_values} if counts.n_odd_values else result


def _rows_to_predict(source: Any, asked: PredictOptions) -> DatasetInput | RawInput:
    """Return the rows of a source: a dataset, a split of it, or raw files and arrays."""
    from bigmc.inference.dataset_input import DatasetInput
    from bigmc.inference.raw_input import RawInput
    from bigmc.ingestion.parts.scan import expand_sources, is_dataset
    from bigmc.store.dataset import Dataset

    if is_dataset(source):
        dataset = Dataset.open(source)
        identity = dataset.identity if dataset.path else None
        return DatasetInput(dataset if asked.split is None else dataset[asked.split], identity)
    sources = expand_sources(source, asked)  # first: a dataset that is not there is no raw data
    if asked.split is not None:
        raise DataError("raw data has no splits", "leave --split out, or give a dataset")
    return RawInput(sources)


def inspect(model: AnyModel, top: int = 20) -> Inspection:
    """Return the features with the largest weights for each class.

    Parameters
    ----------
    model : path, Model or fitted classifier
        Model.
    top : int, default=20
        Maximum number of features per class.

    Returns
    -------
    dict
        ``n_features``, ``n_nonzero_features`` and ``classes``: for each class ``label``, further facts of its
        kind of model (for linear models ``intercept``), and ``features``, by decreasing
        absolute weight: ``index``, ``weight`` and ``names``. A name of a hashed feature has a ``sign``, with
        which its occurrences count, and a ``count``; several names are a known collision. A column
        of arrays has its own name; without names the list is empty.
    """
    from bigmc.inference import inspection

    return inspection.inspect(model_of(model), top)


def explain(model: AnyModel, sample: str | Mapping[str, Any], top: int = 10) -> Explanation:
    """Return which words, or other named features, of one sample speak for which class.

    Parameters
    ----------
    model : path, Model or fitted classifier
        Model.
    sample : str or dict
        A text, or the columns that the model was trained on. If these are not a single text column, also a
        JSON object.
    top : int, default=10
        Maximum number of words per class.

    Raises
    ------
    DataError
        If a column is missing, or the model was trained on arrays, whose features have no names.
    """
    from bigmc.inference.explain import explain as explain_sample
    from bigmc.inference.explain import parsed
    from bigmc.inference.samples import SampleReader

    known = model_of(model)
    reader = SampleReader.of(known)
    return explain_sample(known, reader, parsed(sample, reader.spec), top)
