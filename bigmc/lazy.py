"""Libraries that are imported when something of them is used: many commands get along without."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class LazyModule:
    """A module that is imported when one of its attributes is first used.

    Parameters
    ----------
    name : str
        Such as ``pyarrow.compute``, whose functions get their signatures and docstrings when it is imported:
        that takes .02 s of every process.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(import_module(self._name), attribute)
        setattr(self, attribute, value)  # found without a call from now on
        return value
