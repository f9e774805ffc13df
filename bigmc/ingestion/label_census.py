"""Count the labels in the sources and their memory, if there may be too many."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from bigmc.engine import Engine
from bigmc.ingestion.columns.labels import label_cost, plain
from bigmc.ingestion.parts.scan import Part
from bigmc.ingestion.workers import PartTask

SAMPLE = 1 << 14
"""Maximum number of labels kept; with half as many, one estimate in three is off by 1.1 %."""

MARGIN = 1.04
"""Factor on the estimate, so that it is too low only once in many thousands."""


@dataclass
class LabelCensus:
    """Estimate distinct labels from a sample of their hashes.

    Labels whose hash has `bits` zero low bits are kept, one in ``2**bits``: by hash, the bytes that the label
    takes.
    """

    bits: int = 0
    kept: dict[int, int] = field(default_factory=dict)

    def add(self, value: object) -> None:
        """Count a label."""
        digest = hashlib.blake2b(str(value).encode(), digest_size=8).digest()
        self._keep(int.from_bytes(digest, "little"), label_cost(value))

    def add_all(self, other: LabelCensus) -> None:
        """Count the labels of another census."""
        self._thin(other.bits)
        for key, n_bytes in other.kept.items():
            self._keep(key, n_bytes)

    @property
    def n_bytes(self) -> int:
        """Estimated bytes of all distinct labels, rather too high than too low."""
        exact = sum(self.kept.values()) << self.bits
        return int(exact * MARGIN) if self.bits else exact

    def _keep(self, key: int, n_bytes: int) -> None:
        if key & ((1 << self.bits) - 1) == 0:
            self.kept[key] = n_bytes
            if len(self.kept) > SAMPLE:
                self._thin(self.bits + 1)

    def _thin(self, bits: int) -> None:
        if bits > self.bits:
            self.bits = bits
            mask = (1 << bits) - 1
            self.kept = {key: n_bytes for key, n_bytes in self.kept.items() if key & mask == 0}


def bytes_of_labels(parts: Sequence[Part], task: PartTask, engine: Engine) -> int:
    """Estimate the bytes of the distinct labels of all parts, in a pass over the label column.

    It is 0 if the labels of each part fit into a worker's share for labels.
    """
    total, most = LabelCensus(), 0
    for _, census in engine.map(count_part, parts, task):
        total.add_all(census)
        most = max(most, census.n_bytes)
    return total.n_bytes if most > task.shares.label_bytes else 0


def count_part(part: Part, task: PartTask) -> LabelCensus:
    """Return the census of a part."""
    census = LabelCensus()
    for labels in task.writer(part).labels():
        for value in plain(labels).unique().to_pylist():
            census.add(value)
    return census
