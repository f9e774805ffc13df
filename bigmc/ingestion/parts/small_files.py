"""Combine many small files into one part, to save folders, receipts and shards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from bigmc.ingestion.readers import FILE_FORMATS
from bigmc.ingestion.readers.base import Part

SMALL = 16
"""A file is small if this number of such files fit into a part."""

MOST_FILES = 256
"""Maximum files of a part, which one worker reads one after the other."""


def gather_small_files(parts: Sequence[Part], part_bytes: int) -> list[Part]:
    """Combine parts of neighbouring small files, and renumber parts; row ids do not change.

    Only sizes decide, so every scan of the same files gives the same parts. The files of an ingest have types
    that go together (checked by `bigmc.ingestion.parts.scan.schema`).
    """
    parts_of = Counter(part.source for part in parts)
    groups: list[list[Part]] = []
    after_small = False
    for part in parts:
        whole = parts_of[part.source] == 1 and part.format in FILE_FORMATS
        small = whole and part.n_bytes * SMALL <= part_bytes
        if small and after_small and _has_place(groups[-1], part, part_bytes):
            groups[-1].append(part)
        else:
            groups.append([part])
        after_small = small
    return [_joined(index, group) for index, group in enumerate(groups)]


def _has_place(group: Sequence[Part], part: Part, part_bytes: int) -> bool:
    return len(group) < MOST_FILES and sum(other.n_bytes for other in [*group, part]) <= part_bytes


def _joined(index: int, group: Sequence[Part]) -> Part:
    if len(group) == 1:
        return replace(group[0], index=index)
    return replace(
        group[0],
        index=index,
        n_rows=sum(part.n_rows for part in group),
        n_bytes=sum(part.n_bytes for part in group),
        longest=max(part.longest for part in group),
        footer_bytes=max(part.footer_bytes for part in group),
        files=tuple(group),
    )
