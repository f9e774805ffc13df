"""What can go wrong in a way the user can fix.

Every error is one line for a person: what is wrong, where (file, line or row), and the cure.
The command line prints it and exits with 1; in Python it is an ordinary ``ValueError``.
"""

from __future__ import annotations


class BigmcError(ValueError):
    """Base of all errors that name a cure instead of showing a traceback.

    Parameters
    ----------
    message : str
        What is wrong and where.
    cure : str, optional
        What the user can do about it; appended after a semicolon.
    """

    def __init__(self, message: str, cure: str | None = None) -> None:
        self.message = message
        self.cure = cure
        super().__init__(f"{message}; {cure}" if cure else message)


class DataError(BigmcError):
    """The input cannot be used: a missing file, a broken row, NaN, a single class."""


class StoreError(BigmcError):
    """A dataset on disk cannot be used: absent, incomplete, damaged, of another version."""


class ModelError(BigmcError):
    """A model cannot be used: damaged, of another version, made for other features."""


class BusyError(BigmcError):
    """Another process is writing the same target."""
