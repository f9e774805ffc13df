"""Keep commands from importing pandas.

pyarrow imports pandas, if it is installed, at its first conversion to or from numpy. Commands do not need
it, and it takes .6 s and at least 60 MB in every process.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


class _WithoutPandas:
    """A module finder that hides pandas."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Leave every module but pandas to the finders after this one."""
        if name == "pandas":
            raise ModuleNotFoundError("commands of bigmc do not use pandas", name=name)
        return None


def leave_out_pandas() -> None:
    """Keep later imports from finding pandas; only for processes that run a command."""
    sys.meta_path.insert(0, _WithoutPandas)
