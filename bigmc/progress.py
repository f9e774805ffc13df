"""Progress messages of long steps, whatever shows them."""

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
        Work finished and work in all, in ``unit``; ``total`` is 0 when unknown.
    unit : str
        Unit of ``done`` and ``total``, such as ``"rows"`` or ``"bytes"``.
    facts : mapping of str to float
        Further figures worth showing, such as ``{"rows/s": 1e6, "gap": 1e-3}``.
    """

    stage: str
    done: int
    total: int
    unit: str
    facts: Mapping[str, float] = field(default_factory=dict)


ProgressCallback = Callable[[Progress], None]


def silent(_: Progress) -> None:
    """Ignore progress: the default of every Python function."""
