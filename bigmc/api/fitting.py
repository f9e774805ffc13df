"""Fit the best model to raw data."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, cast

from bigmc import budget
from bigmc.api.data import ingest
from bigmc.api.resolve import Size, local_folder, resources_of
from bigmc.engine import EngineLike, Resources
from bigmc.errors import DataError
from bigmc.options.declare import time_limit_of
from bigmc.options.ingest import FEATURES, IngestKeywords, IngestOptions, columns_of, given_options
from bigmc.printable import listed
from bigmc.progress import ProgressCallback, silent

if TYPE_CHECKING:
    from bigmc.engine.ahead import Ahead
    from bigmc.ingestion.columns.column_kinds import ColumnKinds
    from bigmc.store.dataset import Dataset
    from bigmc.store.files.outputs import IfExists
    from bigmc.training.results import FitResult

R = TypeVar("R")

SPLITS = {"train": 0.9, "test": 0.1}
"""Default splits of raw data."""

FIRST_FIT = "bigmc.api.first_fit"
"""Module that a second process runs to compile the kernels of a first fit."""

KINDS: Mapping[str, Sequence[str]] = {
    "texts": ("text",),
    "numbers": ("dense", "numeric", "categorical", "one_hot", "date", "dates", "vector", "vectors"),
}
"""Arguments of that module, and the options of ingest, or features of a dataset, that each is for."""


def fit(
    source: Any,
    to: str | Path,
    *,
    dataset: str | Path | None = None,
    time_limit: float | str | None = None,
    max_features: int | None = None,
    label_thresholds: Literal["shared", "each"] = "shared",
    overwrite: bool = False,
    memory_limit: Size = None,
    engine: EngineLike = None,
    progress: ProgressCallback = silent,
    **options: Unpack[IngestKeywords],
) -> FitResult:
    """Find the best model for labelled data and evaluate it, without settings to choose.

    Raw data becomes a dataset beside the model; a few thousand rows decide between words and characters.
    Weighting, loss, ridge and penalty are searched on held-out rows of a sample. The best settings are
    trained on the split ``train``, calibrated, and evaluated on the split ``test``. If the search saw a part
    of the rows only, and there are 20,000 rows to test on, some of these first compare them with the plain
    ridge model, and the better of the two wins; the others are for the figures. If this
    function made the splits, the model is then trained on all rows. On numbers and categories boosting is
    trained too, and the better of the two wins, or a weighted sum of both. Killed at any moment,
    the same call resumes and makes the same model; after success it does nothing, and with a longer
    ``time_limit`` than one that ended the search says so. Any other model, fit or dataset at these places is
    refused, unless ``overwrite`` is given.

    Parameters
    ----------
    source : path, glob, folder, array, table, Dataset, or a list of these
        Raw data as for :func:`ingest`, or a dataset, whose splits are used.
    to : path
        Model to write; ``TO.fit/`` keeps the search.
    text, label
        Columns, as for :func:`ingest`. Where no column of features is named, all but the label are used: the
        first 20,000 rows (of more than 50 columns fewer) tell which ones are numbers, dates, categories or
        texts, whether some are missing, and how they are written: 1,234.50, 12 %, 31.12.2026, n/a. What may
        be read in two ways stays a text.
    dataset : path, optional
        Dataset to store raw data in; by default ``TO.dataset``.
    split : mapping or str, optional
        Splits of raw data, ``train`` and optionally ``test``; the model is then trained on ``train`` only. By
        default 0.9 and 0.1, and the final model is trained on all rows.
    time_limit : float or str, optional
        Seconds, or a text such as ``"5m"``, for everything: the search, and every training, ends with the
        best it has. There is at least one trial, and one training of one pass, however little time is left.
    max_features : int, optional
        Maximum number of features; the model is then linear, and trained with rows in memory. By default,
        for texts, the fewest without loss of accuracy.
    label_thresholds : {"shared", "each"}, optional
        For label sets: one threshold of the scores, chosen for micro-averaged F1, or one for each
        label, for macro-averaged F1. The latter is refused where rows have one label each.
    overwrite : bool, default=False
        Replace an existing file at ``to``, the search in ``TO.fit`` and the dataset ``TO.dataset`` of other
        data or options, and a fit that had less time. A dataset named with ``dataset`` is never replaced.
        ``TO.fit`` or ``TO.dataset`` with files that bigmc did not write is refused.
    memory_limit, engine, format, progress
        As for :func:`ingest`.
    **options
        Other options of :func:`ingest`, such as ``dense`` or ``ngrams``. By default some thousand rows tell
        ``analyzer``, ``ngrams``, ``hash_bits`` and, for several texts, ``words_by_column``.

    Returns
    -------
    dict
        ``learner`` and ``settings`` that won, ``trials``, ``sizes`` (quality of fewer features on held-out
        rows), ``test`` with the figures of :func:`evaluate` and the 95 % ``interval`` of the first one,
        ``baselines`` (the largest class, a plain ridge model), ``certificate``, ``n_nonzero_features``,
        ``columns`` (which became what, or were ``left_out``), ``value_formats`` (examples by column of
        numbers and dates in other formats than the usual), ``n_quarantined`` (rows of the dataset that were
        set aside), ``time_limit`` (seconds, if more might have made a better model), ``seconds`` and
        ``peak_memory_bytes``.

        ``notes`` say what counts as missing, whether a word is told apart in several text columns, which
        columns are ids, which alone tell the class of all rows looked at, which look like numbers or dates
        and are not read as such, on how many rows boosting was trained that had no time for all, and whether
        the model of an earlier call had less time.
    """
    from bigmc.engine.ahead import Ahead
    from bigmc.engine.processes import prompt_release
    from bigmc.ingestion.columns.column_kinds import ColumnKinds
    from bigmc.ingestion.hashing.unicode import forget_tables
    from bigmc.ingestion.parts.scan import is_dataset
    from bigmc.store.dataset import Dataset
    from bigmc.store.files.outputs import IfExists
    from bigmc.training.fit.fit import Fit
    from bigmc.training.fit.request import FitRequest, Splits
    from bigmc.training.search.label_thresholds import Thresholds
    from bigmc.training.search.limits import Limits, engine_for, kept_after_freeing, tidy_after

    started = time.monotonic()
    budget.reset_peak()
    given = given_options(options, "fit", signature(fit).parameters)
    if_exists = IfExists(overwrite)
    target = _target(to, source, if_exists)
    if label_thresholds not in ("shared", "each"):
        raise DataError(f"label_thresholds is {label_thresholds!r}", "choose shared or each")
    asked_seconds = time_limit_of(time_limit)
    kinds = ColumnKinds({})
    with (
        resources_of(memory_limit, engine, progress) as resources,
        prompt_release(resources.memory_limit),
        Ahead(resources.engine) as ahead,
    ):
        limit = resources.memory_limit
        if is_dataset(source):
            _refuse_for_dataset(source, given if dataset is None else {**given, "dataset": dataset})
            data, refit = Dataset.open(source), False
            ahead.expect(FIRST_FIT, _kinds(data.features), limit)
        else:
            resources = replace(resources, ends=started + asked_seconds)
            make = partial(_raw_data, source, target, dataset, given, resources, ahead)
            data, kinds = _replacing(make, source, target, if_exists) if dataset is None else make()
            forget_tables()  # training hashes nothing
            tidy_after(data)
            _refuse_few_groups(data, options.get("group"))
            refit = options.get("split") is None
        seconds = max(asked_seconds - (time.monotonic() - started), 0.0)
        thresholds = Thresholds(label_thresholds)
        splits = Splits("train", "test", refit and "test" in data.splits, thresholds)
        limits = Limits(limit, seconds, max_features, asked_seconds=asked_seconds)
        with prompt_release(kept_after_freeing(data, limit)):
            own_engine = engine_for(data, resources.engine)
            request = FitRequest(data, target, splits, limits, own_engine, progress, if_exists)
            result = Fit(request).run()
    result["columns"] = _columns(data.features, kinds.left_out)
    result["value_formats"] = _value_formats(data.features)
    result["notes"] = [*kinds.notes, *_note_on_words(data.features), *result["notes"]]
    result["n_quarantined"] = data.info().get("n_quarantined", 0)
    result["seconds"], result["peak_memory_bytes"] = time.monotonic() - started, budget.peak_memory()
    return result


def _refuse_for_dataset(source: Any, given: Mapping[str, Any]) -> None:
    """Raise `DataError` for options of an ingest: of a dataset they could change nothing."""
    named = [name for name, value in given.items() if value != getattr(IngestOptions, name, None)]
    if named:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in named)
        name = source if isinstance(source, str | Path) else "this"
        raise DataError(f"{name} is a dataset already, which {options} cannot change", "leave the option out")


def _refuse_few_groups(data: Dataset, group: str | None) -> None:
    """Raise `DataError` if there are so few groups that none of them is in the split to train on."""
    if group is not None and not data.splits.get("train"):
        raise DataError(
            f"{group!r} has so few groups that no row is in the split 'train', because groups stay whole",
            "leave --group out, or name a column of more groups",
        )


def _kinds(features: Mapping[str, Any]) -> list[str]:
    """Return which of `KINDS` the columns of a dataset are, or those in options of ingest."""
    return [kind for kind, columns in KINDS.items() if any(features.get(column) for column in columns)]


def _columns(features: Mapping[str, Any], left_out: Sequence[str]) -> dict[str, list[str]]:
    """Return the columns by type; those with filled missing numbers are also listed as ``filled``."""
    filling, names = features.get("filling"), features.get("dense", ())
    kinds = {
        "text": features.get("text", ()),
        "categorical": features.get("categorical", ()),
        "one_hot": [levels["column"] for levels in features.get("one_hot", ())],
        "numeric": features.get("numeric", ()),
        "dense": features.get("dense", ()),
        "dates": features.get("dates", ()),
        "filled": [names[place] for place in filling["flagged"] if place < len(names)] if filling else (),
        "left_out": left_out,
    }
    return {kind: list(names) for kind, names in kinds.items() if names}


def _note_on_words(features: Mapping[str, Any]) -> list[str]:
    """Return a sentence on the words of several text columns, if there are several."""
    if len(features.get("text", ())) < 2:
        return []
    apart = features["hasher"].get("by_column", False)
    said = "words are told apart by column" if apart else "words count the same"
    return [f"{said} in {listed(features['text'])}"]


def _value_formats(features: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return examples of how columns are written that are not as programs write numbers and dates."""
    from bigmc.ingestion.columns.value_formats import ValueFormats, examples_of

    formats = ValueFormats.from_dict(features["value_formats"]).formats if "value_formats" in features else ()
    return {column: list(examples_of(format)) for column, format in formats}


def _files(source: Any) -> Iterator[str | Path]:
    """Yield the local files and folders of a source, including those in patterns and folders."""
    from bigmc.ingestion.parts.scan import is_dataset, list_files
    from bigmc.ingestion.parts.spool import is_pipe
    from bigmc.store.files.object_store import is_remote
    from bigmc.store.files.outputs import paths_in

    for item in paths_in([source]):
        if isinstance(item, str | Path) and not is_remote(item) and not is_pipe(str(item)):
            yield item
            yield from () if is_dataset(item) else list_files(str(item))


def _raw_data(
    source: Any,
    to: Path,
    dataset: str | Path | None,
    options: IngestKeywords,
    resources: Resources,
    ahead: Ahead,
) -> tuple[Dataset, ColumnKinds]:
    """Return raw data as a dataset, and what was found out about its columns.

    The dataset is made unless it exists; a dataset of other data is refused.
    """
    from bigmc.engine.processes import tidy
    from bigmc.ingestion.columns.column_kinds import ColumnKinds, with_column_kinds

    place = _own_dataset(to) if dataset is None else dataset
    label = options.get("label")
    kinds = ColumnKinds(options)
    if isinstance(label, str):
        if not any(options.get(kind) for kind in FEATURES):
            _refuse_stream(source)
        kinds = with_column_kinds(source, options)
        options = kinds.options
        tidy()
    ahead.expect(FIRST_FIT, _kinds(options), resources.memory_limit)
    if "text" in options and isinstance(label, str):
        options = _with_hashing(Path(f"{to}.fit"), source, options, resources)
    elif label is None and not _has_own_labels(source, options):
        raise DataError("no label column is given", "name it with --label")
    asked: IngestKeywords = {"split": SPLITS, **options}
    limit, engine, progress = resources.memory_limit, resources.engine, resources.progress
    return ingest(source, place, memory_limit=limit, engine=engine, progress=progress, **asked), kinds


def _target(to: str | Path, source: Any, if_exists: IfExists) -> Path:
    """Return where the model is to be written; raise an error if it may not be."""
    from bigmc.store.files.outputs import IfExists, Output, OutputKind, refuse_inputs
    from bigmc.training.fit.fit import refuse_other_file

    local_folder(to, "a fit")
    refuse_inputs(to, _files(source))
    output = Output.at(to)
    if output.kind is not OutputKind.FILE:
        raise DataError(f"{to} is not the path of a file", "give the path of a file with --to")
    target = output.path if Path(to).is_symlink() else Path(to)  # messages show the given path
    if if_exists is IfExists.REFUSE:
        refuse_other_file(target)
    return target


def _own_dataset(to: Path) -> Path:
    """Return the dataset that belongs to a model."""
    return Path(f"{to}.dataset")


def _replacing(make: Callable[[], R], source: Any, to: Path, if_exists: IfExists) -> R:
    """Make the dataset of a model, in place of one of other data or options if that may be replaced."""
    from bigmc.ingestion.recipe import OtherRecipeError
    from bigmc.store.files.outputs import IfExists
    from bigmc.training.fit.fit import forget_fit

    try:
        return make()
    except OtherRecipeError as error:
        if if_exists is IfExists.REFUSE:
            cure = "give another --to, or replace model and dataset with --overwrite"
            raise DataError(error.message, cure) from None
    folder, place = Path(f"{to}.fit"), _own_dataset(to)
    for file in _files(source):
        if not {folder.resolve(), place.resolve()}.isdisjoint(Path(file).resolve().parents):
            raise DataError(f"{file} is in a folder that is to be replaced", "move it, or give another --to")
    forget_fit(to, folder, place)
    return make()


def _has_own_labels(source: Any, options: IngestKeywords) -> bool:
    """Return whether the rows of a source begin with their labels, which have no column: svmlight."""
    from bigmc.ingestion.parts.scan import expand_sources
    from bigmc.ingestion.parts.spool import read_once

    if read_once(source):
        return False
    return expand_sources(source, IngestOptions().but(options))[0].format == "svmlight"


def _with_hashing(folder: Path, source: Any, options: IngestKeywords, resources: Resources) -> IngestKeywords:
    """Return the options of ingest with the hashing chosen by a pilot, unless hashing is given."""
    from bigmc.engine.processes import tidy
    from bigmc.store.files import disk
    from bigmc.store.files.work_file import made_once
    from bigmc.training.fit.fit import HASHING
    from bigmc.training.pilot import choose_hashing
    from bigmc.training.pilot_rows import PilotColumns

    if not {"analyzer", "ngrams"}.isdisjoint(options):
        return options
    _refuse_stream(source)

    def advice() -> Mapping[str, Any]:
        of_labels = options["label"], options.get("group"), options.get("label_separator")
        by_column = options.get("words_by_column")
        columns = PilotColumns(columns_of(options["text"]), *of_labels, by_column)
        files = IngestOptions().but(options)
        limit, seconds = resources.memory_limit, max(resources.ends - time.monotonic(), 0.0)
        pilot = choose_hashing(source, columns, files, limit, options.get("hash_bits"), seconds)
        tidy()
        disk.make_folder(folder)
        return {} if pilot is None else {**pilot.hashing._asdict(), "hash_bits": pilot.hash_bits}

    advised = made_once(folder / HASHING, advice, folder)
    if "ngrams" in advised:
        advised["ngrams"] = tuple(advised["ngrams"])
    return cast(IngestKeywords, {**advised, **options})


def _refuse_stream(source: Any) -> None:
    """Raise an error for a source whose rows come only once, where some are tried before all are read."""
    from bigmc.ingestion.parts.spool import read_once
    from bigmc.ingestion.sources.in_memory import COLLECT, is_lazy_frame

    before = "a fit looks at rows before it reads them all, which it cannot do with a"
    dataset = "make a dataset with bigmc ingest, and fit that"
    items = source if isinstance(source, list | tuple) else [source]
    if any(is_lazy_frame(item) for item in items):
        raise DataError(f"{before} lazy frame", f"{COLLECT}; if its rows do not fit into memory, {dataset}")
    if read_once(source):
        raise DataError(f"{before} pipe or a stream", dataset)
