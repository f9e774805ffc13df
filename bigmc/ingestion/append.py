"""Append sources to an existing dataset: a separate ingest, whose manifest the dataset's manifest then names.

Row numbers continue from the end of the dataset, so every row gets the same id and split as in one ingest of
all sources. Features, weighting, splits and seed are the dataset's. New classes get the next codes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from bigmc.engine import Engine
from bigmc.errors import DataError, StoreError
from bigmc.ingestion.columns.features import FeatureSpec
from bigmc.ingestion.job import Job
from bigmc.ingestion.parts.scan import expand_sources
from bigmc.ingestion.prepare import job_of
from bigmc.ingestion.readers import MATRICES
from bigmc.ingestion.recipe import DIGESTS
from bigmc.ingestion.sources.same_content import is_same
from bigmc.ingestion.sources.source import Source
from bigmc.options.ingest import IngestKeywords, IngestOptions
from bigmc.options.raw import RawOptions
from bigmc.progress import ProgressCallback
from bigmc.store.dataset import Dataset
from bigmc.store.files import disk
from bigmc.store.files.atomic import IfBusy, exclusive, remove_tree, write_atomic
from bigmc.store.files.layout import APPENDS, MANIFEST, WIP, Manifest, append_name, file_entry, read_manifest
from bigmc.store.files.object_store import Address, publish
from bigmc.store.weighting import Weighting

_OF_AN_INGEST = {
    "sources",
    "first_row",
    "on_bad_row",
    "label_separator",  # how texts are read: the dataset has sets
    "n_features",
    "features.n_own",
    "features.columns",
}
"""Fields in which the recipe of an append may differ from that of the dataset."""

_OF_READING = {option.name for option in fields(RawOptions)}
"""Options that only say how files are read."""


@dataclass(frozen=True)
class Append:
    """An ingest into an existing dataset, ready to run.

    `to` is the dataset or its address; sources that it already has are skipped. The options in `asked` must
    equal those of the dataset, except options for reading files. The ingest may add `limit` bytes to the
    process.
    """

    to: Path | str
    source: Any
    asked: IngestKeywords
    limit: int

    def run(self, engine: Engine, progress: ProgressCallback) -> Dataset:
        """Append what the dataset does not have yet and return the dataset.

        `DataError` if a source is invalid or has changed, or an option differs from the dataset's;
        `BusyError` if another process appends to the dataset; `MemoryLimitError` if the memory limit cannot
        work.
        """
        with self._job(IfBusy.REFUSE) as job:
            if job is not None:
                job.run(engine, progress)
                self._publish(job, progress)
        dataset = Dataset.open(self.to)
        if len(dataset.ingests) > 1 and not isinstance(self.to, str):
            disk.try_clear(dataset.ingests[-1].path / WIP)  # left over if an earlier removal failed
        return dataset

    def run_part(self, number: int, count: int, engine: Engine, progress: ProgressCallback) -> dict[str, int]:
        """Write a part of the append, as :meth:`bigmc.ingestion.job.Job.run_part`."""
        with self._job(IfBusy.WAIT) as job:
            pass  # others do their parts at the same time
        if job is None:
            return {"n_pieces": 0, "n_samples": 0}
        return job.run_part(number, count, engine, progress)

    @contextmanager
    def _job(self, if_busy: IfBusy) -> Iterator[Job | None]:
        """Yield the job, or None if the dataset has every source, while holding the lock for appends."""
        Dataset.open(self.to)  # raises an error before making a lock if there is no dataset
        with exclusive(self._work / APPENDS / "lock", if_busy):
            before = Dataset.open(self.to)
            job = self._make_job(before)
            if job is not None:
                _clear_unwanted(job)
            yield job

    @property
    def _work(self) -> Path:
        """Folder with ``appends/``: the dataset, or the local folder where an upload is built."""
        return Address(self.to).building if isinstance(self.to, str) else self.to

    def _make_job(self, before: Dataset) -> Job | None:
        manifests = [ingest.manifest for ingest in before.ingests]
        listed = self._listed()
        sources = self._new_sources(listed, manifests)
        if sources:
            return self._checked_job(sources, manifests, before)
        if self.asked.keys() - _OF_READING:  # other options are refused even with nothing to append
            self._checked_job(listed[:1], manifests, before)
        return None

    def _checked_job(self, sources: list[Source], manifests: list[Manifest], before: Dataset) -> Job:
        """Return the job that appends sources.

        `DataError` if the sources are of another kind, or an option differs from the dataset's.
        """
        options, stored = options_of(manifests[0], self.to)
        if (sources[0].format in MATRICES) != (not stored.columns):
            raise DataError(
                f"{sources[0].path} is {sources[0].format} data, but {self.to} was made from "
                + ("columns of tables" if stored.columns else "a matrix"),
                "append data of the same kind",
            )
        if sources[0].format in MATRICES:
            self._check_width(sources, stored)
            options = replace(options, n_features=stored.n_own)
        folder = self._work / append_name(len(manifests))
        job = job_of(sources, folder, options.but(self.asked), self.limit, stored)
        features = job.recipe.features.with_fitted(stored)
        differences = [
            change
            for change in replace(job.recipe, features=features).differences(
                manifests[0].provenance["recipe"]
            )
            if change.split(":")[0] not in _OF_AN_INGEST
        ]
        if differences:
            raise DataError(
                f"the dataset {self.to} was made with other parameters ({'; '.join(differences)})",
                "leave these options out: an append uses those of the dataset",
            )
        recipe = replace(
            job.recipe, features=features, first_row=sum(manifest.rows_in for manifest in manifests)
        )
        zero_based = None if stored.first_index is None else stored.first_index == 0
        return replace(job, recipe=recipe, hints=replace(job.hints, zero_based=zero_based), before=before)

    def _listed(self) -> list[Source]:
        """Return all given sources."""
        label, files = self.asked.get("label"), IngestOptions().but(self.asked)
        return expand_sources(self.source, files, None if isinstance(label, str) else label)

    def _new_sources(self, sources: Sequence[Source], manifests: list[Manifest]) -> list[Source]:
        """Return the sources that the dataset does not have.

        `DataError` if a file was ingested and has changed since.
        """
        known = [source for manifest in manifests for source in manifest.provenance["recipe"]["sources"]]
        files = {source["path"]: source for source in known if "changed" in source}
        known = [_fingerprint(source) for source in known]
        digests: dict[str, str] = {}
        for manifest in manifests:
            digests |= manifest.provenance.get(DIGESTS, {})
        new = []
        for source in sources:
            asked = source.identity()
            if _fingerprint(asked) in known:
                continue
            if source.in_memory or asked["path"] not in files:
                new.append(source)
            elif not is_same(asked, files[asked["path"]], digests):
                raise DataError(
                    f"{source.path} was ingested into {self.to} and has changed since",
                    "put new rows into a new file",
                )
        return new

    def _check_width(self, sources: Sequence[Source], stored: FeatureSpec) -> None:
        widths = {int(source.data.shape[1]) for source in sources if source.data is not None}
        width = self.asked.get("n_features")
        widths |= set() if width is None else {width}
        others = widths - {stored.n_own}
        if others:
            raise DataError(
                f"{sources[0].path}: {max(others)} features, and {self.to} has {stored.n_own}",
                "append samples with the features of the dataset",
            )

    def _publish(self, job: Job, progress: ProgressCallback) -> None:
        """Append the finished ingest atomically.

        On disk, the dataset's manifest is replaced by one that names the append. In an object store, the
        append's manifest is created under the next number, which only one writer can do.
        """
        if isinstance(self.to, str):
            address = f"{self.to.rstrip('/')}/{append_name(int(job.to.name))}"
            if not publish(job.to, address, progress):
                raise DataError(f"another process has appended to {self.to} in the meantime", "run it again")
            return
        manifest = read_manifest(self.to)
        entry = file_entry(job.to / MANIFEST, self.to)
        disk.sync(job.to.parent)  # a power cut must not keep the manifest and lose the folders it names
        disk.sync(self.to)
        write_atomic(self.to / MANIFEST, replace(manifest, appends=(*manifest.appends, entry)).to_json())


def options_of(manifest: Manifest, path: Path | str) -> tuple[IngestOptions, FeatureSpec]:
    """Return the options of a dataset, and its fitted features.

    `StoreError` if the manifest does not have them.
    """
    try:
        recipe = manifest.provenance["recipe"]
        stored = FeatureSpec.from_dict(manifest.features)
        hasher, mapping = stored.hasher, recipe.get("mapping")
        options = IngestOptions(
            text=stored.text,
            label=recipe["label"],
            label_separator=recipe.get("label_separator"),
            weight=recipe.get("weight"),
            categorical=stored.categorical,
            numeric=stored.numeric,
            dense=stored.dense,
            date=stored.dates,
            vector=stored.vector_columns,
            value_format=stored.value_formats.examples,
            missing_text=stored.value_formats.missing,
            odd_as_missing=stored.value_formats.odd,
            keep=recipe["keep"],
            standardize=mapping is not None or bool(stored.filling and stored.filling.deviations),
            fourier=mapping["fourier"] if mapping else 0,
            gamma=mapping["gamma"] if mapping else None,
            one_hot=tuple(levels.column for levels in stored.one_hot),
            missing=stored.missing_as,
            weighting=Weighting.from_dict(manifest.weighting).name,
            split={name: recipe["splits"][name] for name in recipe["order_of_splits"]},
            group=recipe["group"],
            seed=recipe["seed"],
            names=recipe["names"],
        )
    except KeyError as error:
        raise StoreError(
            f"{path}: the manifest does not have the options of the ingest ({error})",
            "ingest all sources again",
        ) from None
    if hasher is not None:
        options = replace(
            options,
            hash_bits=hasher.hash_bits,
            ngrams=hasher.ngrams,
            analyzer=hasher.analyzer,
            lowercase=hasher.lowercase,
            words_by_column=hasher.by_column,
        )
    return options, stored


def _fingerprint(source: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the identity of a source: for a file all fields, for an array its contents, not its name."""
    return source if "changed" in source else {**source, "path": None}


def _clear_unwanted(job: Job) -> None:
    """Remove a finished ingest that was not appended, if it has other sources."""
    if (job.to / MANIFEST).exists() and read_manifest(job.to).signature != job.recipe.signature:
        remove_tree(job.to)
