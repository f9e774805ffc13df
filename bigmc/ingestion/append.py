"""Further sources for a dataset that exists: an ingest of its own, whose manifest the dataset's then names.

The rows go on counting where the dataset ends, so that appending gives every row the id and the split that it
would have had in one ingest of all sources. Features, weighting, splits and seed are the dataset's. Classes
that were not seen before get the codes after those that were.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bigmc.engine import Engine
from bigmc.errors import DataError, StoreError
from bigmc.ingestion.columns.features import FeatureSpec
from bigmc.ingestion.job import Job
from bigmc.ingestion.parts.scan import expand_sources
from bigmc.ingestion.prepare import job_of
from bigmc.ingestion.readers import MATRICES
from bigmc.ingestion.sources.source import Source
from bigmc.options.ingest import IngestKeywords, IngestOptions
from bigmc.progress import ProgressCallback
from bigmc.store.dataset import Dataset
from bigmc.store.files import disk
from bigmc.store.files.atomic import IfBusy, exclusive, file_entry, remove_tree, write_atomic
from bigmc.store.files.layout import APPENDS, MANIFEST, WIP, Manifest, read_manifest
from bigmc.store.files.object_store import building_folder, publish
from bigmc.store.snapshot import append_address, append_folder
from bigmc.store.weighting import Weighting

_OF_AN_INGEST = {"sources", "first_row", "on_bad_row", "n_features", "features.n_own", "features.columns"}
"""What the recipe of an append may have otherwise than that of the dataset."""


@dataclass(frozen=True)
class Append:
    """An ingest into a dataset that exists, ready to run.

    Attributes
    ----------
    to : Path or str
        Dataset to append to, or its address.
    source : object
        What to read; what the dataset has already is passed over.
    asked : dict
        Options that were given: they must be those of the dataset, but for how files are read.
    limit : int
        Bytes that the ingest may add to the process.
    """

    to: Path | str
    source: Any
    asked: IngestKeywords
    limit: int

    def run(self, engine: Engine, progress: ProgressCallback) -> Dataset:
        """Append what the dataset does not have yet and return the dataset.

        Raises
        ------
        DataError
            If a source cannot be used or has changed since, or an option is not the dataset's.
        BusyError
            If another process appends to the dataset.
        MemoryLimitError
            If the memory limit cannot work.
        """
        with self._job(IfBusy.REFUSE) as job:
            if job is not None:
                job.run(engine, progress)
                self._publish(job, progress)
        dataset = Dataset.open(self.to)
        if len(dataset.ingests) > 1 and not isinstance(self.to, str):
            disk.try_clear(dataset.ingests[-1].path / WIP)  # left where it could not be removed before
        return dataset

    def run_part(self, number: int, count: int, engine: Engine, progress: ProgressCallback) -> dict[str, int]:
        """Write a part of what is to be appended, as :meth:`bigmc.ingestion.job.Job.run_part`."""
        with self._job(IfBusy.WAIT) as job:
            pass  # others do their parts meanwhile
        if job is None:
            return {"n_pieces": 0, "n_samples": 0}
        return job.run_part(number, count, engine, progress)

    @contextmanager
    def _job(self, if_busy: IfBusy) -> Iterator[Job | None]:
        """Yield what is to be done, None if the dataset has every source, while no other process appends."""
        Dataset.open(self.to)  # refuses before a lock is made where there is no dataset
        with exclusive(self._work / APPENDS / "lock", if_busy):
            before = Dataset.open(self.to)
            job = self._make_job(before)
            if job is not None:
                _clear_unwanted(job)
            yield job

    @property
    def _work(self) -> Path:
        """Folder that has ``appends/``: the dataset, or where what is sent to it is made."""
        return building_folder(self.to) if isinstance(self.to, str) else self.to

    def _make_job(self, before: Dataset) -> Job | None:
        manifests = [ingest.manifest for ingest in before.ingests]
        options, stored = options_of(manifests[0], self.to)
        sources = self._new_sources(manifests)
        if not sources:
            return None
        if (sources[0].format in MATRICES) != (not stored.columns):
            raise DataError(
                f"{sources[0].path}: {sources[0].format} data, and {self.to} was made of "
                + ("columns of tables" if stored.columns else "a matrix"),
                "append data of the form the dataset was made of",
            )
        if sources[0].format in MATRICES:
            self._check_width(sources, stored)
            options = replace(options, n_features=stored.n_own)
        folder = append_folder(self._work, len(manifests))
        job = job_of(sources, folder, options.but(self.asked), self.limit)
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
                "leave them out: what is appended is treated as the dataset was",
            )
        recipe = replace(
            job.recipe,
            features=features,
            first_row=sum(manifest.rows_in for manifest in manifests),
        )
        zero_based = None if stored.first_index is None else stored.first_index == 0
        return replace(job, recipe=recipe, hints=replace(job.hints, zero_based=zero_based), before=before)

    def _new_sources(self, manifests: list[Manifest]) -> list[Source]:
        """Return the sources that the dataset does not have.

        Raises
        ------
        DataError
            If a file was ingested and has changed since.
        """
        label, files = self.asked.get("label"), IngestOptions().but(self.asked)
        sources = expand_sources(self.source, files, None if isinstance(label, str) else label)
        known = [source for manifest in manifests for source in manifest.provenance["recipe"]["sources"]]
        ingested = {source["path"] for source in known if "changed" in source}
        known = [_fingerprint(source) for source in known]
        new = [source for source in sources if _fingerprint(source.identity()) not in known]
        for source in new:
            if not source.in_memory and source.identity()["path"] in ingested:
                raise DataError(
                    f"{source.path} was ingested into {self.to} and has changed since",
                    "give new rows in a file of another name",
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
        """Append the finished ingest, in one moment.

        A dataset on a disk has its manifest replaced by one that names it. In an object store its own
        manifest is created, under the number after the last one, which one of two writers is allowed.
        """
        if isinstance(self.to, str):
            if not publish(job.to, append_address(self.to, int(job.to.name)), progress):
                raise DataError(f"another process has appended to {self.to} meanwhile", "run it again")
            return
        manifest = read_manifest(self.to)
        entry = file_entry(job.to / MANIFEST, self.to)
        write_atomic(self.to / MANIFEST, replace(manifest, appends=(*manifest.appends, entry)).to_json())


def options_of(manifest: Manifest, path: Path | str) -> tuple[IngestOptions, FeatureSpec]:
    """Return the options a dataset was made with, and its features as fitted to its rows.

    Raises
    ------
    StoreError
        If the manifest does not say.
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
            written=stored.written.examples,
            missing_text=stored.written.missing,
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
            f"{path}: its manifest does not say how it was made ({error})", "ingest all sources anew"
        ) from None
    if hasher is not None:
        options = replace(
            options,
            hash_bits=hasher.hash_bits,
            ngrams=hasher.ngrams,
            analyzer=hasher.analyzer,
            lowercase=hasher.lowercase,
        )
    return options, stored


def _fingerprint(source: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what makes a source the same again: all of a file; of an array its contents, not its name."""
    return source if "changed" in source else {**source, "path": None}


def _clear_unwanted(job: Job) -> None:
    """Remove an ingest that was finished but not appended, if it is of other sources: nobody asks for it."""
    if (job.to / MANIFEST).exists() and read_manifest(job.to).signature != job.recipe.signature:
        remove_tree(job.to)
