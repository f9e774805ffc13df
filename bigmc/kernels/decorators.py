"""Decorators of kernels: numba compiles them, caches the code, and runs it without the interpreter's lock.

Numba looks only at the file of a kernel to find out whether what it cached is still right, although functions
of other files are compiled into it. Here the contents of all files of the kernels count as well, so that
nothing old is called after one of them has changed.

For every function numba compiles a second one that takes apart the arguments of a call from Python, and a
third for callers in C. Kernels have the second only where Python calls them, and none has the third: that
saves an eighth of the time to compile.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from numba import njit

if TYPE_CHECKING:
    from numba.core.dispatcher import Dispatcher

F = TypeVar("F", bound=Callable[..., Any])

_compile: Any = njit  # whose declaration leaves out two of its options
_OPTIONS = {"cache": True, "nogil": True, "no_cfunc_wrapper": True}

prepare: list[Callable[[Dispatcher[Any]], None]] = []
"""What is done to each kernel that is declared from now on: see `bigmc.kernels.compile_server`."""


def kernel(function: F) -> Dispatcher[F]:
    """Compile a function that Python calls."""
    compiled: Dispatcher[F] = _compiled(function)
    for change in prepare:
        change(compiled)
    return compiled


def inner_kernel(function: F) -> Dispatcher[F]:
    """Compile a function that only kernels call; from Python it is refused."""
    return _for_kernels(_compiled(function, no_cpython_wrapper=True))


def inlined_kernel(function: F) -> Dispatcher[F]:
    """Compile a function into each kernel that calls it; from Python it is refused."""
    return _for_kernels(_compiled(function, no_cpython_wrapper=True, forceinline=True))


def _compiled(function: F, **options: bool) -> Dispatcher[F]:
    compiled: Dispatcher[F] = _compile(**_OPTIONS, **options)(function)
    file = getattr(vars(compiled).get("_cache"), "_cache_file", None)  # none where numba is told not to cache
    if file is not None:
        file._source_stamp = (file._source_stamp, _sources())
    return compiled


@cache
def _sources() -> str:
    """Return a digest of the files of all kernels."""
    digest = blake2b(digest_size=16)
    folder = Path(__file__).parent
    for file in sorted(folder.rglob("*.py")):
        content = file.read_bytes()
        digest.update(f"{file.relative_to(folder).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def _for_kernels(compiled: Dispatcher[F]) -> Dispatcher[F]:
    """Refuse calls from Python, which would jump to a function that is not there."""

    def refuse(*_: Any) -> NoReturn:
        raise TypeError(f"{compiled.py_func.__name__} is called by kernels only")

    # Where a call from Python would find compiled code, and what it would ask to compile.
    vars(compiled).update(_insert=lambda *_: None, _compile_for_args=refuse)
    return compiled
