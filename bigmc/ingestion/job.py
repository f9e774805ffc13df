"""The ingest job: init → part(i) → finish.

``init`` splits the sources into parts and writes the plan. One worker reads, hashes and writes each part
into its own folder, which a rename makes visible once it is complete. ``finish`` needs all parts.
It numbers the shards, merges small ones, assigns the final codes of labels and
publishes the manifest. Killed at any moment, the same job resumes with the missing parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from bigmc.budget import MemoryLimitError
from bigmc.engine import Engine, ThreadEngine
from bigmc.engine.processes import prompt_release
from bigmc.errors import StoreError
from bigmc.ingestion.columns.labels import TooManyLabels
from bigmc.ingestion.fit_feature_map import MAP, fit_map, mapping_shares
from bigmc.ingestion.label_census import bytes_of_labels
from bigmc.ingestion.memory import Load, Shares, divide, record_limit, refuse_large_chunks, smallest_limit
from bigmc.ingestion.parts.scan import Part, ReadHints, bytes_per_row, refuse_changed, scan
from bigmc.ingestion.parts.small_files import gather_small_files
from bigmc.ingestion.parts.spool import naming_streams, spool_beside
from bigmc.ingestion.progress import Meter
from bigmc.ingestion.readers.parquet import longest_text
from bigmc.ingestion.readers.record_limit import LongRecordError, LongRecords, RecordLimit, bytes_of_record
from bigmc.ingestion.recipe import Recipe
from bigmc.ingestion.sources.source import Source, no_rows
from bigmc.ingestion.target import LABELS, PARTS, PARTS_WITH_LABELS, is_published, refuse_foreign_folder
from bigmc.ingestion.workers import PartTask, write_part
from bigmc.ingestion.writing.part_receipt import NAMES, REJECTS, part_folder
from bigmc.ingestion.writing.pipeline import ALONE, Crew
from bigmc.ingestion.writing.publication import Publication
from bigmc.progress import Progress, ProgressCallback
from bigmc.store.dataset import Dataset
from bigmc.store.files import disk
from bigmc.store.files.atomic import PARTIAL, IfBusy, exclusive
from bigmc.store.files.layout import SHARDS, STATISTICS, WIP
from bigmc.store.files.work_file import damaged_work, read_work_file, write_work_file

ROWS_PER_PART = 60_000
"""Rows of the largest split in a part: a little below a full shard."""

SMALLEST_PART, LARGEST_PART = 1 << 20, 256 << 20
"""Bounds on the source bytes of a part."""

SKIPPED_LABELS = 1 << 16
"""Bytes for the labels of records that are too long to be read before there is memory for them."""


@dataclass(frozen=True)
class Job:
    """One ingest, ready to run.

    It makes the dataset `to`, or appends to the one `before`, with at most `limit` bytes above the bare
    process. `label_bytes` are those of the distinct labels; 0 if they are few, None before they are counted.
    """

    to: Path
    sources: Sequence[Source]
    recipe: Recipe
    limit: int
    hints: ReadHints
    before: Dataset | None = None
    label_bytes: int | None = None

    def run(self, engine: Engine, progress: ProgressCallback) -> Dataset:
        """Do the remaining work and return the dataset.

        `DataError` if the input is invalid, or the target was made with other parameters; `BusyError` if
        another process is working on the target; `MemoryLimitError` if the memory limit cannot work.
        """
        try:
            with naming_streams(self.sources):
                return self._run(self._at_the_data(engine), progress)
        finally:
            disk.try_clear(spool_beside(self.to))

    def _at_the_data(self, engine: Engine) -> Engine:
        """Return workers that can read the sources: other processes cannot read arrays in memory."""
        return engine.local() if self.sources[0].in_memory else engine

    def _run(self, engine: Engine, progress: ProgressCallback) -> Dataset:
        if not is_published(self.to, self.recipe):
            refuse_foreign_folder(self.to)
            self._refuse_small_limit(engine)
            with exclusive(self._lock), prompt_release(self.limit):
                if not is_published(self.to, self.recipe):  # finished by the previous holder of the lock
                    self._refuse_others()
                    for leftover in (self.to / WIP).glob(f"{PARTS}*/.*{PARTIAL}"):
                        disk.try_clear(leftover)
                    job, parts = self._prepared(engine, progress)
                    job.run_parts(parts, parts, engine, progress).finish(parts, engine, progress)
        disk.try_clear(self.to / WIP)
        return Dataset.open(self.to)

    def _refuse_small_limit(self, engine: Engine) -> None:
        """Raise `MemoryLimitError` if the limit is too small for any source, naming one that is enough."""
        try:
            self._divide(engine)
        except MemoryLimitError:
            self._divide(engine, self._scanned())
            raise

    def _scanned(self) -> list[Part]:
        """Split the sources into parts.

        `MemoryLimitError` if a record is too long; it names a limit that is enough for the labels as well.
        """
        part_bytes = self._part_bytes()
        try:
            return gather_small_files(scan(self.sources, part_bytes, self.hints), part_bytes)
        except LongRecordError as error:
            self._refuse_with_labels(error.n_bytes)
            raise

    def _refuse_with_labels(self, longest: int) -> None:
        """Raise `MemoryLimitError` if there are many labels, naming a limit for them and that record."""
        limit = self.hints.record_limit
        if limit is None or self.label_bytes is not None:
            return
        short = replace(limit, beyond=LongRecords.SKIP)
        parts = scan(self.sources, self._part_bytes(), replace(self.hints, record_limit=short))
        label_bytes = self._with_labels(parts, ThreadEngine(1), short).label_bytes if parts else 0
        if label_bytes:
            load = replace(self._load(parts), record_bytes=bytes_of_record(longest))
            divide(self.limit, replace(load, label_bytes=label_bytes + SKIPPED_LABELS))

    def run_part(self, number: int, count: int, engine: Engine, progress: ProgressCallback) -> dict[str, int]:
        """Write every ``count``-th part from ``number`` on, while other processes write the others.

        The first process makes the plan; the others wait for it. `run` publishes the dataset. Returns
        ``n_pieces`` and ``n_samples`` of the finished parts; zeros if the dataset is published. `DataError`,
        `BusyError`, `MemoryLimitError` as for `run`; also if another process does this part, or splits the
        work differently.
        """
        nothing = {"n_pieces": 0, "n_samples": 0}
        engine = self._at_the_data(engine)
        if is_published(self.to, self.recipe):
            return nothing
        refuse_foreign_folder(self.to)
        with ExitStack() as held, prompt_release(self.limit):
            with exclusive(self._lock, IfBusy.WAIT):
                if is_published(self.to, self.recipe):
                    return nothing
                self._refuse_others(count)
                job, parts = self._prepared(engine, progress)
                held.enter_context(exclusive(self.to / WIP / f"{number}-of-{count}.lock"))
            mine = parts[number::count]
            job.run_parts(mine, parts, engine, progress)
        return {"n_pieces": len(mine), "n_samples": sum(part.n_rows for part in mine)}

    def _refuse_others(self, count: int | None = None) -> None:
        """Raise an error while another process does a part of another number of parts."""
        for lock in (self.to / WIP).glob("*-of-*.lock"):
            if count is None or not lock.stem.endswith(f"-of-{count}"):
                with exclusive(lock):
                    pass

    def _prepared(self, engine: Engine, progress: ProgressCallback) -> tuple[Job, list[Part]]:
        """Return the plan, and the job with its feature map, made now or by an earlier run."""
        parts = self.init(progress)
        shares = self._divide(engine, parts)
        refuse_large_chunks(self.limit, self._load(parts))
        workers = engine.at_most(shares.most_threads)
        recipe = fit_map(self.recipe, parts, self.sources, shares, workers, self.to / WIP)
        labels = self.to / WIP / LABELS
        label_bytes = read_work_file(labels) if labels.exists() else None
        return replace(self, recipe=recipe, label_bytes=label_bytes), parts

    def init(self, progress: ProgressCallback) -> list[Part]:
        """Split the sources into parts and write the plan, or read the plan of an interrupted run.

        Unfinished work of another recipe is deleted, for example after a bad row
        was fixed or ``--on-bad-row quarantine`` was added.
        """
        plan = self.to / WIP / "plan.json"
        if plan.exists():
            stored = read_work_file(plan)
            if not isinstance(stored, dict) or stored.keys() != {"recipe", "parts"}:  # another whole file
                raise damaged_work(plan)
            if not self.recipe.differences(stored["recipe"]):
                return [Part.from_dict(part) for part in stored["parts"]]
            self._refuse_others()
            disk.unlink(plan)
        for found in (MAP, LABELS):
            disk.unlink(self.to / WIP / found)
        work = (self.to / WIP / name for name in (PARTS, PARTS_WITH_LABELS))
        for leftover in (*work, self.to / SHARDS, self.to / STATISTICS):
            disk.try_clear(leftover)
        for name in (NAMES, REJECTS):
            disk.unlink(self.to / name)
        n_bytes = sum(source.get("bytes", 0) for source in self.recipe.sources)
        progress(Progress("scan", 0, n_bytes, "bytes"))
        parts = self._scanned()
        if not parts:
            raise no_rows(self.sources[0])
        refuse_changed(parts, self.recipe.sources)  # its first rows told the types
        progress(Progress("scan", n_bytes, n_bytes, "bytes"))
        disk.make_folder(self._parts_folder)
        stored = {"recipe": self.recipe.to_dict(), "parts": [part.to_dict() for part in parts]}
        write_work_file(plan, stored)
        for folder in (self.to, self.to.parent):  # a power cut must not lose the plan and keep later files
            disk.sync(folder)
        return parts

    def run_parts(
        self, mine: Sequence[Part], parts: Sequence[Part], engine: Engine, progress: ProgressCallback
    ) -> Job:
        """Write the missing ones of some parts, as many at a time as memory allows.

        Returns the job whose parts these are: with many labels, each part is written again beside all of
        them.
        """
        meter = Meter(mine, progress)
        try:
            self._write_parts(mine, parts, engine, meter)
        except TooManyLabels:
            job = self._with_labels(parts, engine)
            disk.make_folder(job._parts_folder)
            write_work_file(self.to / WIP / LABELS, job.label_bytes)
            job._write_parts(mine, parts, engine, Meter(mine, progress))
            return job
        return self

    def _write_parts(self, mine: Sequence[Part], parts: Sequence[Part], engine: Engine, meter: Meter) -> None:
        missing = []
        for part in mine:
            if self._is_written(part):
                meter.skip(part)
            else:
                missing.append(part)
        shares = self._divide(engine, parts)
        # Each of these threads keeps its own buffers.
        workers = engine.at_most(shares.most_workers)
        n_threads = min(engine.n_threads, shares.most_threads)
        with (
            mapping_shares(self.recipe.features, shares, self.sources[0]) as mapped,
            Crew(n_threads, len(missing), workers.n_threads) if engine.shares_memory else ALONE as crew,
        ):
            task = PartTask(self.sources, self.recipe, mapped, self._parts_folder.absolute(), crew)
            for part, done in workers.map(write_part, missing, task, meter):
                meter.finish(part, *done)

    def finish(self, parts: Sequence[Part], engine: Engine, progress: ProgressCallback) -> None:
        """Publish the dataset.

        `StoreError` if a part is missing; `DataError` if the rows have fewer than two classes, or no
        features.
        """
        missing = [part.index for part in parts if not self._is_written(part)]
        if missing:
            raise StoreError(
                f"{self.to}: {len(missing)} of {len(parts)} parts are missing", "rerun the ingest"
            )
        n_threads = engine.n_threads if engine.shares_memory else 1
        finished = Publication(
            self.to, parts, self._parts_folder, self.recipe, self.limit, self.before, n_threads
        )
        finished.publish(self._n_features(parts), progress)

    def _is_written(self, part: Part) -> bool:
        return part_folder(self._parts_folder, part.index).exists()

    @property
    def _lock(self) -> Path:
        return self.to / WIP / "lock"

    def _n_features(self, parts: Sequence[Part]) -> int:
        own = int(parts[0].options.get("n_features", 0)) if parts else 0
        return self.recipe.features.n_features or own

    def _divide(self, engine: Engine, parts: Sequence[Part] = ()) -> Shares:
        """Return the share of each worker.

        `MemoryLimitError` if the limit does not allow one worker; the message names a limit that is enough
        for these parts, for which labels are counted and the longest texts measured.
        """
        load = self._load(parts)
        try:
            return divide(self.limit, load)
        except MemoryLimitError:
            if load.record_bytes and parts[0].format == "parquet":
                # Footers only have the sizes of columns; too long texts in them would fail only when read.
                columns = self.recipe.columns
                longest = max(longest_text(source.path, columns)[1] for source in self.sources)
                load = replace(load, record_bytes=max(load.record_bytes, bytes_of_record(longest)))
            if parts and self.label_bytes is None:
                load = replace(load, label_bytes=self._with_labels(parts, engine).label_bytes or 0)
            divide(self.limit, load)
            raise

    def _with_labels(self, parts: Sequence[Part], engine: Engine, records: RecordLimit | None = None) -> Job:
        """Return the job with the bytes of its labels, counted in a pass over them.

        Records beyond the limit `records`, by default that of the job's memory, are skipped if it says so.
        """
        load = self._load(parts)
        least = smallest_limit(load)
        allowed = record_limit(max(self.limit, least), load.n_features) if records is None else records
        shares = replace(divide(least, load), record_limit=allowed)
        task = PartTask(self.sources, self.recipe, shares, self._parts_folder.absolute())
        return replace(self, label_bytes=bytes_of_labels(parts, task, engine.at_most(1)))

    def _load(self, parts: Sequence[Part]) -> Load:
        load = Load.of_features(self.recipe.features, self._n_features(parts), self.label_bytes or 0)
        return replace(load, names=self.recipe.names).of(parts)

    @property
    def _parts_folder(self) -> Path:
        return self.to / WIP / (PARTS_WITH_LABELS if self.label_bytes else PARTS)

    def _part_bytes(self) -> int:
        """Return the approximate source bytes of one shard of the largest split."""
        largest = max(self.recipe.splits.values())
        row_bytes = bytes_per_row(self.sources[0])
        return int(np.clip(row_bytes * ROWS_PER_PART / largest, SMALLEST_PART, LARGEST_PART))
