"""The version of the package, which datasets record."""

__version__ = "0.1.0"
