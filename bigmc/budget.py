"""Memory limits: plan the memory of a run before it starts, and measure what it used.

A memory limit counts what a run adds to the bare process (interpreter and imported libraries). Every
array that a step keeps is an :class:`Item` of its :class:`Plan`. A plan that does not fit is refused,
with its figures, before any work is done. The short-lived processes that compile kernels at their first use
on a machine are not counted. This module imports nothing else of the package.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?\s*", re.IGNORECASE)

_MEGABYTE = 10**6
#: Parameter of glibc's `mallopt`, and the bytes from which an array is large.
_MMAP_THRESHOLD, _LARGE_ARRAY = -3, 1 << 19
T = TypeVar("T")

SMALLEST_LIMIT, LARGEST_LIMIT = 32 * _MEGABYTE, 10**15
"""Bytes below which no step can work, and bytes that no step should ever need."""

_CLOSE = 0.05
"""Relative difference below which two figures look the same to a reader."""

BARE_WORKER, WORKER_PART = 370 * 10**6, 0.8
"""Measured bytes of a Dask worker that has imported the package; share of its limit at which it pauses."""


class MemoryLimitError(MemoryError, ValueError):
    """The memory limit is too small; the message has the figures, and `cure` a way out, such as a limit."""

    def __init__(self, message: str, cure: str) -> None:
        self.message = message
        self.cure = cure
        super().__init__(f"{message}; {cure}")

    def __reduce__(self) -> tuple[type[MemoryLimitError], tuple[str, str]]:
        """Pickle message and cure, for errors from worker processes."""
        return type(self), (self.message, self.cure)


def parse_bytes(size: str | int | float) -> int:
    """Return a size in bytes, from a number or a text such as ``"512MB"`` (powers of ten) or ``"2GiB"``.

    `ValueError` if it is not a positive size.
    """
    if isinstance(size, str):
        match = _SIZE.fullmatch(size)
        if match is None:
            raise ValueError(f"{size!r} is not a size in bytes; write it like 512MB, 2GB or 1.5GiB")
        number, unit, binary = match.groups()
        if binary and not unit:
            raise ValueError(f"{size!r} is not a size in bytes; write it like 512MB, 2GB or 1.5GiB")
        scale = _BINARY_UNITS[unit.upper()] if binary else _UNITS[unit.upper()]
        size = float(number) * scale
    if not 0 < size < 2**63:
        raise ValueError(f"{size!r} is not a positive size in bytes")
    return int(size)


def format_bytes(n_bytes: float) -> str:
    """Return ``n_bytes`` as text, in powers of ten with three digits: ``1.53 GB``."""
    for unit in ("B", "KB", "MB", "GB"):
        if abs(n_bytes) < 1000:
            return f"{n_bytes:.0f} {unit}" if unit == "B" else f"{n_bytes:.3g} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.3g} TB"


def usable_memory() -> int:
    """Return the bytes this process may use: the least of the container's limits and the machine's memory."""
    candidates = [_kilobytes(Path("/proc/meminfo"), "MemTotal")]
    for limit in _cgroup_limits():
        try:
            candidates.append(int(limit.read_text()))
        except (OSError, ValueError):  # "max" means no limit; or there is no such controller
            continue
    return min(candidates)


def default_limit() -> int:
    """Return the default memory limit: half of the usable memory, in bytes."""
    return usable_memory() // 2


def resolve_limit(limit: str | int | float | None, process_memory: int | None = None) -> int:
    """Return ``limit`` in bytes, or the default limit if it is None.

    Worker processes are killed at `process_memory` bytes, including code and libraries.
    `MemoryLimitError` if the limit is not a size, below :data:`SMALLEST_LIMIT`, or more than the
    processes may use.
    """
    try:
        n_bytes = default_limit() if limit is None else parse_bytes(limit)
    except ValueError as error:
        raise MemoryLimitError(
            f"the memory limit is invalid: {error}", "give one such as --memory 2GB"
        ) from None
    if n_bytes < SMALLEST_LIMIT:
        raise MemoryLimitError(
            f"a memory limit of {format_bytes(n_bytes)} cannot work",
            f"give at least {format_bytes(SMALLEST_LIMIT)}; above that a command names what it needs",
        )
    if process_memory is None:
        return n_bytes
    usable = int(WORKER_PART * process_memory) - BARE_WORKER
    if usable < SMALLEST_LIMIT or (limit is not None and n_bytes > usable):
        needed = (max(n_bytes if limit is not None else 0, SMALLEST_LIMIT) + BARE_WORKER) / WORKER_PART
        raise MemoryLimitError(
            f"a worker's process is killed at {format_bytes(process_memory)}, which leaves "
            f"{format_bytes(max(usable, 0))} for work, and the memory limit of each is "
            f"{format_bytes(n_bytes if limit is not None else SMALLEST_LIMIT)}",
            f"give a smaller --memory, or start the workers with --memory-limit {-(-needed // 10**6):.0f}MB",
        )
    return min(n_bytes, usable)


def current_memory() -> int:
    """Return the resident bytes of this process."""
    return _status("VmRSS")


def peak_memory() -> int:
    """Return the largest resident bytes of this process since :func:`reset_peak`, or its start."""
    return _status("VmHWM")


def reset_peak() -> None:
    """Restart the measurement of the peak, if the kernel allows it."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:  # not permitted in some containers: the peak then counts from the start of the process
        return


def give_back_large_arrays() -> None:
    """Make glibc map every large array separately, so that freeing it returns its memory to the system.

    By default glibc raises the threshold up to 32 MB as arrays are freed. Smaller arrays then fragment the
    heap: training with 64 MB exceeded its limit by 3 MB. Has no effect with other C libraries.
    """
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, _LARGE_ARRAY)


def give_back_free_pages() -> None:
    """Return free pages inside glibc's heap to the system; no effect with other C libraries.

    By default glibc keeps pages that are freed between arrays still in use.
    """
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


@dataclass(frozen=True)
class Item:
    """Something that stays in memory during a step: its description for the user, and bytes."""

    name: str
    n_bytes: int


@dataclass(frozen=True)
class Plan:
    """The memory that a step will need: everything that is in memory at the same time."""

    limit: int
    items: tuple[Item, ...]

    @classmethod
    def of(cls, limit: int, items: Iterable[tuple[str, int]]) -> Plan:
        """Return the plan with these ``(name, bytes)`` items."""
        return cls(limit, tuple(Item(name, int(n_bytes)) for name, n_bytes in items))

    @property
    def total(self) -> int:
        """Bytes of all items."""
        return sum(item.n_bytes for item in self.items)

    @property
    def free(self) -> int:
        """Bytes of the limit that are left."""
        return self.limit - self.total

    def check(self, step: str) -> Plan:
        """Return the plan itself if it fits.

        `MemoryLimitError` if it does not; it lists the items, largest first, and a limit that works.
        """
        if self.free >= 0:
            return self
        raise PlanTooLargeError(step, self.total, self.items, self.limit)


class PlanTooLargeError(MemoryLimitError):
    """The items of a plan exceed the limit.

    If the items do not add up to the bytes `needed`, as in a plan that was not the best one, the message
    names the largest two without figures.
    """

    def __init__(self, step: str, needed: int, items: tuple[Item, ...], limit: int) -> None:
        self.step, self.needed, self.items, self.limit = step, needed, items, limit
        listed = sorted((item for item in items if item.n_bytes), key=lambda item: -item.n_bytes)
        total = sum(item.n_bytes for item in listed)
        if abs(total - needed) <= _CLOSE * needed:
            parts = ", ".join(f"{item.name} {format_bytes(item.n_bytes)}" for item in listed)
        else:
            parts = "above all for " + " and ".join(item.name for item in listed[:2])
        super().__init__(
            f"{step} needs {format_bytes(needed)} ({parts}), more than the limit of {format_bytes(limit)}",
            f"give --memory {-(-max(needed, SMALLEST_LIMIT) // _MEGABYTE)}MB or more",
        )

    def __reduce__(self) -> Any:
        """Pickle the figures, for errors from worker processes."""
        return type(self), (self.step, self.needed, self.items, self.limit)


def plan_within(limit: int, plan: Callable[[int], T]) -> T:
    """Return the plan for a limit; if it does not fit, raise an error with the least limit that does.

    The memory of a step often grows with its limit, because buffers and blocks take a share of it. Then
    the total of a plan that does not fit is not a limit that works; the least one, in whole megabytes, is
    found by a search. `plan` makes the plan for a limit in bytes and raises `MemoryLimitError` if it does
    not fit; if a limit fits, every larger limit must fit too.
    """
    try:
        return plan(limit)
    except MemoryLimitError as error:
        refusal = error
    least = least_limit(lambda n_bytes: _refusal(plan, n_bytes) is None, limit)
    last = _refusal(plan, least - _MEGABYTE)
    if isinstance(last, PlanTooLargeError):
        raise PlanTooLargeError(last.step, least, last.items, limit)
    raise MemoryLimitError(refusal.message, f"give --memory {least // _MEGABYTE}MB or more")


def least_limit(fits: Callable[[int], bool], refused: int) -> int:
    """Return the least limit above `refused` that fits, in bytes: a whole number of megabytes.

    Every limit above one that fits must fit too. `MemoryLimitError` if not even :data:`LARGEST_LIMIT`
    fits.
    """
    low = max(refused, SMALLEST_LIMIT - _MEGABYTE) // _MEGABYTE
    high = low + 1
    while not fits(high * _MEGABYTE):
        if high * _MEGABYTE >= LARGEST_LIMIT:
            raise MemoryLimitError(
                f"this needs more than {format_bytes(LARGEST_LIMIT)} of memory",
                "give fewer features or classes",
            )
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle * _MEGABYTE) else (middle, high)
    return high * _MEGABYTE


def _refusal(plan: Callable[[int], object], limit: int) -> MemoryLimitError | None:
    try:
        plan(limit)
    except MemoryLimitError as error:
        return error
    return None


def _status(field: str) -> int:
    return _kilobytes(Path("/proc/self/status"), field)


def _kilobytes(path: Path, field: str) -> int:
    for line in path.read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"{path} has no field {field}")


def _cgroup_limits() -> list[Path]:
    """Return the files that may hold a memory limit, of cgroup v2 and v1, from leaf to root."""
    root = Path("/sys/fs/cgroup")
    files = [root / "memory.max", root / "memory" / "memory.limit_in_bytes"]
    try:
        memberships = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return files
    for line in memberships:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base, name = root, "memory.max"
        elif "memory" in controllers.split(","):
            base, name = root / "memory", "memory.limit_in_bytes"
        else:
            continue
        group = base / path.lstrip("/")
        while group != base and base in group.parents:
            files.append(group / name)
            group = group.parent
    return files
