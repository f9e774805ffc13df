"""The command line: arguments to one function each, results on stdout, progress on stderr."""

from bigmc.cli.program import app, main
from bigmc.cli.training import train_app

__all__ = ["app", "main", "train_app"]
