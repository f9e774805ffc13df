"""The program: its commands, and how errors end it."""

from __future__ import annotations

import atexit
import errno
import gc
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import click

from bigmc.budget import MemoryLimitError
from bigmc.cli.config import load_config
from bigmc.cli.interrupt import hold_closed_streams, stopped_by_closed_pipe, stopped_by_signals
from bigmc.cli.left_out import leave_out_unused
from bigmc.cli.screen import TOLD
from bigmc.cli.settings import ENVIRONMENT
from bigmc.errors import BigmcError
from bigmc.printable import printable
from bigmc.version import __version__

_HOMES = {
    "demo": "inference",
    "fit": "fitting",
    "ingest": "data",
    "train": "training",
    "path": "training",
    "evaluate": "inference",
    "predict": "inference",
    "inspect": "inference",
    "explain": "inference",
    "report": "inference",
    "export": "inference",
    "publish": "inference",
    "info": "data",
    "verify": "data",
    "warm": "data",
}
"""Commands in the order of the help, and the modules of this package that define them."""

_SPINNING = "18"
"""Logarithm of the processor cycles for which a thread of OpenBLAS spins before it sleeps: .1 ms. By default,
28 ms or so, the threads spin for a twentieth of a short command before they are given anything to do."""

_GC_THRESHOLDS = (150_000, 20, 100)
"""Thresholds of the garbage collector's three generations."""


class _Commands(click.Group):
    """The commands; the module of a command is imported when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        return list(_HOMES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of a name, or None."""
        if cmd_name not in _HOMES:
            return None
        command: click.Command = getattr(import_module(f"bigmc.cli.{_HOMES[cmd_name]}"), cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments name; by itself click would know no similar names."""
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            raise click.NoSuchCommand(error.command_name, possibilities=_HOMES, ctx=ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; by itself click would exit with 1 if its output is closed."""
        with stopped_by_closed_pipe():
            return super().invoke(ctx)


@click.group(
    "bigmc",
    cls=_Commands,
    help="Multiclass learning on data larger than memory, with a proof of how good the answer is.",
    no_args_is_help=True,
    context_settings={"auto_envvar_prefix": ENVIRONMENT, "max_content_width": 110},
)
@click.version_option(
    __version__, prog_name="bigmc", message="%(prog)s %(version)s", allow_from_autoenv=False
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    envvar="BIGMC_CONFIG",
    show_envvar=True,
    help="TOML file with options.",
)
@click.pass_context
def app(context: click.Context, config: Path | None) -> None:
    """Run a command, with defaults from a file."""
    load_config(context, config)


def main() -> NoReturn:
    """Run the command line; exit with 0, 1 (data or model error), 2 (usage error), or one of docs/cli.md."""
    hold_closed_streams()
    leave_out_unused()
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", _SPINNING)  # read when numpy is imported
    # Imports make many objects and hardly any garbage: searches for cycles took a fifth of a short command.
    gc.set_threshold(*_GC_THRESHOLDS)
    # The process frees all memory at its end: a search for cycles then took a tenth of a short command.
    atexit.register(gc.freeze)
    try:
        with stopped_by_signals():
            app(standalone_mode=True)
    except (BigmcError, MemoryLimitError) as error:
        _fail(str(error), error)
    except MemoryError as error:
        _fail("the machine is out of memory; give a smaller --memory", error)
    except OSError as error:
        _fail(_describe(error), error)
    sys.exit(0)


def _describe(error: OSError) -> str:
    where = f" while writing {error.filename}" if error.filename else ""
    if error.errno == errno.ENOSPC:
        return f"no space left on the disk{where}; free some space there and repeat the command: it resumes"
    if error.errno == errno.EFBIG:
        return f"a file would exceed the system's size limit{where}; raise the limit (ulimit -f) and rerun"
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM) and error.filename:
        reason = os.strerror(error.errno)
        return f"{error.filename}: {reason}; check the permissions, or give a place that you may write to"
    reason = os.strerror(error.errno) if error.errno else str(error)
    return f"{error.filename}: {reason}" if error.filename else reason


def _fail(message: str, error: BaseException) -> NoReturn:
    if TOLD not in getattr(error, "__notes__", ()):
        print(printable(f"bigmc: {' '.join(message.split())}"), file=sys.stderr)
    sys.exit(1)
