"""Errors that the user can fix.

Every message is one line: what is wrong, where (file, line or row), and the cure.
The command line prints it and exits with 1; in Python it is an ordinary ``ValueError``.
"""

from __future__ import annotations


class BigmcError(ValueError):
    """Base class of all errors that name a cure.

    Parameters
    ----------
    message : str
        What is wrong and where.
    cure : str, optional
        How to fix it; appended after a semicolon.
    """

    def __init__(self, message: str, cure: str | None = None) -> None:
        self.message = message
        self.cure = cure
        super().__init__(f"{message}; {cure}" if cure else message)


class DataError(BigmcError):
    """The input is invalid: a missing file, a broken row, NaN, a single class."""


class StoreError(BigmcError):
    """A dataset on disk is missing, incomplete, damaged or from another version."""


class ModelError(BigmcError):
    """A model is damaged, from another version, or made for other features."""


class BusyError(BigmcError):
    """Another process is writing the same target."""
