"""The work of one ingest worker: plain data in, a part on disk out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bigmc.ingestion.memory import Shares
from bigmc.ingestion.parts.scan import Part
from bigmc.ingestion.progress import Meter
from bigmc.ingestion.recipe import Recipe
from bigmc.ingestion.sources.source import Source
from bigmc.ingestion.writing.part_receipt import part_folder
from bigmc.ingestion.writing.part_writer import PartWriter
from bigmc.ingestion.writing.pipeline import ALONE, Crew
from bigmc.store.feature_map import Moments


@dataclass(frozen=True)
class PartTask:
    """What all parts of an ingest have in common.

    Finished parts are in `folder`, and relative paths of sources start from `base`, both absolute. The crew
    are the threads of this process that have no part of their own.
    """

    sources: Sequence[Source]
    recipe: Recipe
    shares: Shares
    folder: Path
    crew: Crew = ALONE
    base: str = field(default_factory=os.getcwd)

    def target(self, part: Part) -> Path:
        """Return the folder of a finished part."""
        return part_folder(self.folder, part.index)

    def writer(self, part: Part) -> PartWriter:
        """Return what writes a part."""
        return PartWriter(part, self.sources, self.recipe, self.shares, self.target(part), self.base)


def write_part(part: Part, task: PartTask, meter: Meter) -> tuple[int, int]:
    """Write a part, unless it is there; return its rows and source bytes."""
    if not task.target(part).exists():  # on a cluster a worker that was given up may have finished it
        for n_rows, n_bytes in task.writer(part).run(task.crew):
            meter.add(part, n_rows, n_bytes)
    task.crew.end_part()
    return part.n_rows, part.n_bytes


def moments_of(part: Part, task: PartTask) -> Moments:
    """Return the moments of the dense features of a part's rows."""
    return task.writer(part).moments()
