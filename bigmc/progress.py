"""Progress messages of long steps, independent of their display."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Progress:
    """One message of a running step.

    Attributes
    ----------
    stage : str
        Name of the step, such as ``"ingest"`` or ``"pass 3"``.
    done, total : int
        Finished and total work, in ``unit``; ``total`` is 0 if unknown.
    unit : str
        Unit of ``done`` and ``total``, such as ``"rows"`` or ``"bytes"``.
    facts : mapping of str to float
        Further figures to show, such as ``{"rows/s": 1e6, "gap": 1e-3}``.
    """

    stage: str
    done: int
    total: int
    unit: str
    facts: Mapping[str, float] = field(default_factory=dict)


ProgressCallback = Callable[[Progress], None]


def silent(_: Progress) -> None:
    """Ignore progress; the default of the Python functions."""
