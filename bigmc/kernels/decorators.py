"""How numba compiles kernels: what it makes is cached, and runs without the interpreter's lock.

For every function numba compiles a second one that takes apart the arguments of a call from Python, and a
third for callers in C. Kernels have the second only where Python calls them, and none has the third: that
saves an eighth of the time to compile.
"""

from __future__ import annotations

from collections.abc import Callable
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
    compiled: Dispatcher[F] = _compile(**_OPTIONS)(function)
    for change in prepare:
        change(compiled)
    return compiled


def inner_kernel(function: F) -> Dispatcher[F]:
    """Compile a function that only kernels call; from Python it is refused."""
    return _for_kernels(_compile(**_OPTIONS, no_cpython_wrapper=True)(function))


def inlined_kernel(function: F) -> Dispatcher[F]:
    """Compile a function into each kernel that calls it; from Python it is refused."""
    return _for_kernels(_compile(**_OPTIONS, no_cpython_wrapper=True, forceinline=True)(function))


def _for_kernels(compiled: Dispatcher[F]) -> Dispatcher[F]:
    """Refuse calls from Python, which would jump to a function that is not there."""

    def refuse(*_: Any) -> NoReturn:
        raise TypeError(f"{compiled.py_func.__name__} is called by kernels only")

    # Where a call from Python would find compiled code, and what it would ask to compile.
    vars(compiled).update(_insert=lambda *_: None, _compile_for_args=refuse)
    return compiled
