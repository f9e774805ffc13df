"""What a run tells and saves on its way, in numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import ThreadEngine
from bigmc.progress import Progress
from bigmc.solvers.checkpoint import with_own_lists
from bigmc.solvers.loop import RunContext

Step = dict[str, float]
Saved = tuple[Mapping[str, Any], dict[str, NDArray[Any]]]


class Course:
    """The messages of a run and its checkpoints, one step each; also the checkpoint that it uses.

    An array counts as its size and the sum of its absolute values, with weights, so that the places matter.

    Parameters
    ----------
    begins : tuple, optional
        One of the `saved` of an earlier course, from which the run resumes; by default it begins anew.
    """

    def __init__(self, begins: Saved | None = None) -> None:
        self.steps: list[Step] = []
        self.saved: list[Saved] = []
        self.content = self.result = b""
        self._begins = begins

    @property
    def context(self) -> RunContext:
        """What the run is given."""
        return RunContext(ThreadEngine(1), self, self.tell)

    def tell(self, message: Progress) -> None:
        """Note a message."""
        self.steps.append(dict(_numbers(message.stage, {"done": message.done, **message.facts})))

    def save(self, meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Note a state; of its history the messages tell."""
        self.saved.append((with_own_lists(meta), {name: array.copy() for name, array in arrays.items()}))
        own = {name: value for name, value in meta.items() if name not in ("run", "version", "history")}
        self.steps.append(dict(_numbers("saved", {**own, **arrays})))

    def load(self) -> Saved | None:
        """Return the state to begin with, if there is one."""
        return self._begins and (with_own_lists(self._begins[0]), self._begins[1])

    def end(self, history: Any, *arrays: Any) -> Course:
        """Note what the run leaves: its arrays are `result`, with its history, without times, `content`."""
        told = [{key: value for key, value in entry.items() if "seconds" not in key} for entry in history]
        self.result = b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)
        self.content = json.dumps(told, sort_keys=True, default=float).encode() + self.result
        self.steps.append(dict(_numbers("end", {"history": told[-1:], "arrays": list(arrays)})))
        return self


def _numbers(name: str, value: Any) -> Iterator[tuple[str, float]]:
    """Yield every number of nested data with its name, but for times and what is not finite."""
    if isinstance(value, Mapping):
        for key, own in value.items():
            yield from _numbers(f"{name} {key}", own) if "seconds" not in key else ()
    elif isinstance(value, np.ndarray):
        yield f"size of {name}", value.size
        if value.dtype.kind in "biuf":
            finite = np.nan_to_num(np.abs(value.ravel().astype(float)), posinf=0.0)
            yield f"sum of {name}", float(finite @ (1 + np.arange(value.size) % 7))
    elif isinstance(value, list | tuple):
        yield f"length of {name}", len(value)
        for place, own in enumerate(value):
            yield from _numbers(f"{name} {place}", own)
    elif isinstance(value, int | float | np.number) and np.isfinite(value):
        yield name, float(value)
