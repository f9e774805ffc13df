"""The loop that every learner runs: certify, record, stop or improve, save; and again.

A learner is a `Method`: how to begin, what proves how good a state is, how to get a better one, and what of
it a checkpoint must hold. Histories, progress, checkpoints and their order are written once, in `run`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray

from bigmc.engine import Engine
from bigmc.progress import Progress, ProgressCallback, silent
from bigmc.solvers.certificate import Certificate
from bigmc.solvers.checkpoint import Checkpoint, load_run, save_run

#: What a certificate and the state it belongs to come to in numbers: one entry of a history.
Figures = dict[str, float]
#: Why a run ends whose next step would take longer than it has.
TIME_IS_OVER = "time_limit"
#: All that decides the result or the way to it: parameters and the shape of the data.
Fingerprint = Mapping[str, object]


@dataclass(frozen=True)
class Limits:
    """When training ends, and what it may use.

    It ends at a certificate with a gap of `tol`, or after `max_passes` over the data, checked at every
    certificate. The run may add `memory` bytes to the process.
    """

    tol: float
    max_passes: float
    memory: int


@dataclass(frozen=True)
class RunContext:
    """Where a run works, and its observers; only `ends` changes its result.

    Any number of workers of the engine gives the same bits. The state is saved in `checkpoint`, and read
    at the start. `progress` is called at every certificate. `scratch` is a folder for data that does not
    fit into memory; by default the system's for temporary files. At `ends`, a time of `time.monotonic`,
    the run stops, once something was improved.
    """

    engine: Engine
    checkpoint: Checkpoint | None = None
    progress: ProgressCallback = silent
    scratch: Path | None = None
    ends: float = math.inf

    def has_time(self, seconds: float) -> bool:
        """Return whether what takes so many seconds ends in time."""
        return time.monotonic() + seconds <= self.ends

    @property
    def local_engine(self) -> Engine:
        """Threads of this process, for what is in its memory."""
        return self.engine.local()


def pass_progress(figures: Figures, max_passes: float) -> Progress:
    """Return figures as the progress of a training that counts its passes."""
    total = int(max_passes) if math.isfinite(max_passes) else 0
    return Progress("train", int(figures["n_passes"]), total, "passes", figures)


class Packed(NamedTuple):
    """A state in a checkpoint: arrays, and JSON data without the keys ``run`` and ``version``."""

    meta: Mapping[str, Any]
    arrays: dict[str, NDArray[Any]]


class Resumable(Protocol):
    """What can go on from a checkpoint."""

    def pack(self) -> Packed:
        """Return what a checkpoint must hold, so that a resumed run gives the same bits."""


class Method(Resumable, Protocol):
    """A learner, as the loop sees it; it holds its state."""

    @property
    def history(self) -> list[Figures]:
        """Figures of every certificate so far; part of the state."""

    def start(self) -> None:
        """Begin: set the state of a new run."""

    def resume(self, saved: Packed) -> None:
        """Set the state that `pack` returned."""

    def certify(self) -> tuple[Certificate, Figures | None]:
        """Bound the optimum from the state; `improve` may use what was computed.

        No figures: there is nothing to record yet.
        """

    def message(self, figures: Figures) -> Progress:
        """Return what to tell about a certificate."""

    def reason_to_stop(self, certificate: Certificate) -> str | None:
        """Return why the run ends with the certified state, or None if it does not."""

    def improve(self) -> None:
        """Replace the certified state by a better one."""


class Outcome(NamedTuple):
    """How a run ended: the certificate of its last state, and why it is the last."""

    certificate: Certificate
    stopped: str


def run(method: Method, context: RunContext, fingerprint: Fingerprint, saved: Packed | None) -> Outcome:
    """Improve the state of a method until it says that the run ends.

    `fingerprint` describes the run and is saved with every state. The run resumes from `saved`, see
    `load`.
    """
    if saved is not None:
        method.resume(saved)
    else:
        method.start()
        save(method, context, fingerprint)
    is_improved, began = saved is not None, time.monotonic()
    while True:
        certificate, figures = method.certify()
        if figures is not None:
            method.history.append(figures)
            context.progress(method.message(figures))
        reason = method.reason_to_stop(certificate)
        if reason is None and is_improved and figures is not None:
            reason = None if context.has_time(time.monotonic() - began) else TIME_IS_OVER
        if reason is not None:
            return Outcome(certificate, reason)
        began, is_improved = time.monotonic(), True
        method.improve()
        save(method, context, fingerprint)


def load(context: RunContext, fingerprint: Fingerprint) -> Packed | None:
    """Return the saved state of a run, or None if there is none.

    `ModelError` if the checkpoint belongs to a run with other data or parameters.
    """
    saved = load_run(context.checkpoint, fingerprint) if context.checkpoint else None
    return None if saved is None else Packed(*saved)


def save(state: Resumable, context: RunContext, fingerprint: Fingerprint) -> None:
    """Save a state of a run, if it has a checkpoint."""
    if context.checkpoint is not None:
        save_run(context.checkpoint, fingerprint, *state.pack())
