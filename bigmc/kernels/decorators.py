"""How numba compiles kernels: what it makes is cached, and runs without the interpreter's lock.

For every function numba compiles a second one that takes apart the arguments of a call from Python, and a
third for callers in C. Kernels have the second only where Python calls them, and none has the third: that
saves an eighth of the time to compile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from numba import njit

_OPTIONS = {"cache": True, "nogil": True, "no_cfunc_wrapper": True}


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function that Python calls."""
    return njit(**_OPTIONS)(function)


def inner_kernel(function: Callable[..., Any]) -> Any:
    """Compile a function that only kernels call; from Python it is refused."""
    return _for_kernels(njit(**_OPTIONS, no_cpython_wrapper=True)(function))


def inlined_kernel(function: Callable[..., Any]) -> Any:
    """Compile a function into each kernel that calls it; from Python it is refused."""
    return _for_kernels(njit(**_OPTIONS, no_cpython_wrapper=True, forceinline=True)(function))


def _for_kernels(compiled: Any) -> Any:
    """Refuse calls from Python, which would jump to a function that is not there."""

    def refuse(*_: Any) -> NoReturn:
        raise TypeError(f"{compiled.__name__} is called by kernels only")

    compiled._insert = lambda *_: None  # compiled code that a call from Python would find
    compiled._compile_for_args = refuse
    return compiled
