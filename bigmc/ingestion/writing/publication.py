"""Publish the finished parts of an ingest as a dataset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from bigmc.engine.processes import trim, trim_if_full
from bigmc.errors import DataError
from bigmc.ingestion.columns.labels import LabelTypes, agree_on_sets, extend_classes, merge_classes, recode
from bigmc.ingestion.hashing.feature_names import merge_names
from bigmc.ingestion.memory import FIXED_COST
from bigmc.ingestion.parts.scan import Part
from bigmc.ingestion.readers import TEXT_FORMATS
from bigmc.ingestion.readers.rejects import REJECT_SCHEMA
from bigmc.ingestion.recipe import DIGESTS, Recipe
from bigmc.ingestion.sources.same_content import content_digests
from bigmc.ingestion.writing.part_receipt import NAMES, REJECTS, PartReceipt, part_folder
from bigmc.ingestion.writing.pipeline import Crew
from bigmc.ingestion.writing.shard_placement import PartShard, Placing
from bigmc.lazy import LazyModule
from bigmc.options.label_kind import LabelKind
from bigmc.progress import ProgressCallback
from bigmc.store.dataset import Dataset
from bigmc.store.files.atomic import replacing
from bigmc.store.files.layout import ShardEntry
from bigmc.store.publish import finish_dataset
from bigmc.version import __version__

pq = LazyModule("pyarrow.parquet")

MERGE_LIMIT, MOST_MERGES = 256_000_000, 4
"""Shards are merged several at once where the memory limit has so many bytes for each. What each has, and so
the row groups of its table, does not depend on the number of threads."""

NAMES_BYTES = 50_000_000
"""Largest table of feature names of a dataset."""


@dataclass(frozen=True)
class Publication:
    """What is done once every part is there, in `folder`; killed, it is done again.

    `limit` is in bytes above the bare process. `before` is the dataset these parts are appended to, as it was
    before.
    """

    to: Path
    parts: Sequence[Part]
    folder: Path
    recipe: Recipe
    limit: int
    before: Dataset | None
    n_threads: int = 1

    def publish(self, n_features: int, progress: ProgressCallback) -> None:
        """Give shards their numbers and labels their final codes, and write the manifest.

        `DataError` if the rows have fewer than two classes, or no features.
        """
        parts = self.parts
        trim()  # once in an ingest: what is left to do needs little of what the parts have freed
        # Without their labels, which are read again where they are needed: every part may have all of them.
        receipts = [replace(self._receipt(part), labels=[]) for part in parts]
        classes = self._classes(receipts)
        trim_if_full()
        with Crew(self._n_at_once) as crew:
            helpers = crew.helpers
            names = None if helpers is None else helpers.submit(self._write_names, receipts)
            digests = None if helpers is None else helpers.submit(content_digests, self.recipe.sources)
            entries = self._place_shards(receipts, classes, n_features, progress)
            extra_files = self._write_names(receipts) if names is None else names.result()
            contents = content_digests(self.recipe.sources) if digests is None else digests.result()
        extra_files += self._write_rejects(receipts)
        if not sum(entry.nnz for entry in entries):
            raise self._without_features()
        provenance = {"recipe": self.recipe.to_dict(), "bigmc": __version__}
        provenance |= {DIGESTS: contents} if contents else {}
        map = self.recipe.features.map
        own = (len(map.mean) if map else n_features) if not self.recipe.features.columns else 0
        first_index = parts[0].options.get("first_index")
        features = replace(self.recipe.features, n_own=own, first_index=first_index)
        finish_dataset(
            self.to,
            entries,
            classes=np.array(classes),
            n_features=n_features,
            weighting=self.recipe.weighting,
            features=features.to_dict(),
            provenance=provenance,
            rows_in=sum(receipt.rows_in for receipt in receipts),
            rows_quarantined=sum(receipt.rows_quarantined for receipt in receipts),
            signature=self.recipe.signature,
            beside=0 if self.before is None else self.before.nnz,
            extra_files=extra_files,
            memory_limit=self._memory,
            n_threads=self._n_at_once,
            progress=progress,
        )

    @property
    def _n_at_once(self) -> int:
        """Threads that have `MERGE_LIMIT` bytes each, at least one."""
        return max(1, min(self.n_threads, self.limit // MERGE_LIMIT))

    @property
    def _memory(self) -> int:
        return (self.limit - FIXED_COST) // 3

    def _receipt(self, part: Part) -> PartReceipt:
        return PartReceipt.read(part_folder(self.folder, part.index))

    def _without_features(self) -> DataError:
        features, cure = self.recipe.features, "name columns that have values"
        if features.text and features.hasher is not None and features.hasher.analyzer == "word":
            cure += "; texts without words of two letters need --analyzer char"
        return DataError(f"{self.parts[0].path}: the rows have no features", cure)

    def _classes(self, receipts: Sequence[PartReceipt]) -> list[object]:
        guessed = self.parts[0].format in TEXT_FORMATS - {"jsonl"}
        types = LabelTypes.GUESSED if guessed else LabelTypes.GIVEN
        labels = (self._labels(part) for part in self.parts)
        sets = agree_on_sets([receipt.sets for receipt in receipts])
        if self.before is not None and self.before.has_sets != sets:
            has = "a set of labels" if self.before.has_sets else "one label"
            cure = "append rows with one label, without --label-separator"
            if self.before.has_sets:
                cure = "append lists, or texts and what separates the labels in them (--label-separator)"
            raise DataError(f"rows of the dataset have {has}, and those of {self.parts[0].path} do not", cure)
        if self.before is None:
            kind = LabelKind.SET if sets else LabelKind.ONE
            return merge_classes(labels, types, sum(each.rows_quarantined for each in receipts), kind)
        return extend_classes(self.before.classes.tolist(), labels)

    def _place_shards(
        self,
        receipts: Sequence[PartReceipt],
        classes: list[object],
        n_features: int,
        progress: ProgressCallback,
    ) -> list[ShardEntry]:
        """Put the shards in their final places, small ones merged; earlier attempts may have done some."""
        shards = [
            PartShard(part_folder(self.folder, part.index) / local.name, local, codes)
            for part, receipt, codes in zip(
                self.parts,
                receipts,
                recode((self._labels(part) for part in self.parts), classes),
                strict=True,
            )
            for local in receipt.shards
        ]
        most = max(1, min(MOST_MERGES, self.limit // MERGE_LIMIT))
        n_threads = min(self._n_at_once, most)
        placing = Placing(self.to, self.folder, n_features, self._memory // most, n_threads)
        return placing.place(shards, progress)

    def _labels(self, part: Part) -> list[object]:
        return self._receipt(part).labels

    def _tables(self, receipts: Sequence[PartReceipt], name: str) -> Iterator[pa.Table]:
        for receipt in receipts:
            yield from receipt.read_tables(self.folder, name)

    def _write_names(self, receipts: Sequence[PartReceipt]) -> list[str]:
        if not any(file.path == NAMES for receipt in receipts for file in receipt.tables):
            return []
        limit = min(NAMES_BYTES, self.limit // 16)
        names = merge_names(self._tables(receipts, NAMES), max_bytes=limit)
        columns = self.recipe.features.column_names(names.schema)
        with replacing(self.to / NAMES) as file:
            pq.write_table(pa.concat_tables([names, columns]), file, compression="zstd")
        del names
        trim_if_full()
        return [NAMES]

    def _write_rejects(self, receipts: Sequence[PartReceipt]) -> list[str]:
        if not any(file.path == REJECTS for receipt in receipts for file in receipt.tables):
            return []
        with (
            replacing(self.to / REJECTS) as file,
            pq.ParquetWriter(file, REJECT_SCHEMA, compression="zstd") as writer,
        ):
            for table in self._tables(receipts, REJECTS):
                writer.write_table(table)
        return [REJECTS]
