"""The command line: arguments to one function each, results on stdout, progress on stderr."""

from bigmc.cli.program import app, main

__all__ = ["app", "main"]
