"""The version of this package; it is recorded in every dataset."""

__version__ = "0.1.0"
