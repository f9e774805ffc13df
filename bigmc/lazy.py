"""Import libraries at their first use, since many commands do not need them."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class LazyModule:
    """A module that is imported when one of its attributes is first used.

    Parameters
    ----------
    name : str
        Name such as ``pyarrow.compute``, which builds its functions' signatures and docstrings at import:
        .02 s in every process.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(import_module(self._name), attribute)
        setattr(self, attribute, value)  # found without a call from now on
        return value
