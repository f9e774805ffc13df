"""Commands do without pandas.

pyarrow imports pandas, where it is installed, at its first conversion to or from numpy. No command has a use
for it, and it takes .6 s and 60 MB or more of every process.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


class _WithoutPandas:
    """A finder of modules to which pandas is not installed."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Leave every module but pandas to the finders after this one."""
        if name == "pandas":
            raise ModuleNotFoundError("commands of bigmc do without pandas", name=name)
        return None


def leave_out_pandas() -> None:
    """Keep later imports from finding pandas; for processes that run nothing but a command."""
    sys.meta_path.insert(0, _WithoutPandas)
