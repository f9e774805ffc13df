"""Kernels that are not compiled yet: a process of its own compiles them, so that this one stays small.

Compiling takes some 130 MB that a process never gives back. With `compile_elsewhere` a kernel that is
missing in numba's cache is compiled by a child process for exactly the types it was called with, and
loaded from the cache when the child has ended. A warm cache is used as ever. Where no cache can be written,
or no process be started, the kernel is compiled here.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from importlib import import_module
from typing import Any

from numba.core.caching import FunctionCache
from numba.core.dispatcher import Dispatcher


class _ChildCache(FunctionCache):
    """Numba's cache of one kernel, filled by another process."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled kernel, or None if it must be compiled here."""
        found = super().load_overload(sig, target_context)
        if found is None and _compile_in_child(self._py_func, sig):
            found = super().load_overload(sig, target_context)
        return found


def compile_elsewhere() -> None:
    """Let every kernel imported so far be compiled by a child process when it is called."""
    for name, module in list(sys.modules.items()):
        if name.startswith(f"{__package__}."):
            for kernel in vars(module).values():
                if isinstance(kernel, Dispatcher) and type(vars(kernel).get("_cache")) is FunctionCache:
                    vars(kernel)["_cache"] = _ChildCache(kernel.py_func)


def _compile_in_child(function: Any, sig: Any) -> bool:
    request = pickle.dumps((function.__module__, function.__name__, sig))
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__],
            input=request,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
    except OSError:
        return False
    return done.returncode == 0


if __name__ == "__main__":
    module, name, sig = pickle.loads(sys.stdin.buffer.read())  # from the process that started this one
    getattr(import_module(module), name).compile(sig)
