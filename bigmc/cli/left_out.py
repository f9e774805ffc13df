"""Skip the import of parts of libraries that no command uses.

pyarrow imports pandas, where it is installed, at its first conversion to or from numpy: that takes .6 s and
60 MB or more of every process. numba imports yaml for a file of settings in the current folder, and at the
first call of a kernel it looks for extensions in all installed packages: a twentieth of a short command.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_EXTENSIONS = "numba.core.entrypoints"


class _NoExtensions:
    """Loads the module that looks for extensions of numba, as one that finds none."""

    @staticmethod
    def create_module(spec: ModuleSpec) -> None:
        """Leave it to Python to make the module."""

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """Give the module the one function that numba calls."""
        vars(module)["init_all"] = lambda: None


_LOADER: Any = _NoExtensions()  # `importlib.abc`, to be derived from, would take time itself


class _LeftOut:
    """A finder of modules to which some are not installed."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Leave every module but those of this file to the finders after this one."""
        if name == "pandas" or (name == "yaml" and _numba_is_being_imported()):
            raise ModuleNotFoundError(f"commands of bigmc do without {name}", name=name)
        return ModuleSpec(name, _LOADER) if name == _EXTENSIONS else None


def _numba_is_being_imported() -> bool:
    return "numba" in sys.modules and not hasattr(sys.modules["numba"], "njit")


def leave_out_unused() -> None:
    """Keep later imports from finding these; for processes that run nothing but a command."""
    sys.meta_path.insert(0, _LeftOut)
