"""The program: its commands, and how it ends when something is wrong."""

from __future__ import annotations

import atexit
import errno
import gc
import os
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from bigmc.budget import MemoryLimitError
from bigmc.cli import data, fitting, inference, training
from bigmc.cli.config import load_config
from bigmc.cli.interrupt import stopped_by_closed_pipe, stopped_by_signals
from bigmc.cli.screen import TOLD
from bigmc.cli.settings import ENVIRONMENT
from bigmc.cli.without_pandas import leave_out_pandas
from bigmc.errors import BigmcError
from bigmc.printable import printable
from bigmc.version import __version__


class _Commands(TyperGroup):
    """The commands; Click would end with 1 where an output is closed."""

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        """Run a command."""
        with stopped_by_closed_pipe():
            return super().invoke(ctx)


_GC_THRESHOLDS = (50_000, 20, 100)
"""New objects before a search for cycles among the youngest, and so many of these before one of the older."""

app = typer.Typer(
    name="bigmc",
    cls=_Commands,
    help="Multiclass learning on data larger than memory, with a proof of how good the answer is.",
    no_args_is_help=True,
    context_settings={"auto_envvar_prefix": ENVIRONMENT},
    pretty_exceptions_enable=False,
)
for command in (
    fitting.fit,
    *(data.ingest, data.info, data.verify, data.warm, training.path),
    *(inference.evaluate, inference.publish, inference.predict),
    *(inference.inspect, inference.explain),
    *(inference.report, inference.export, inference.demo),
):
    app.command()(command)
app.add_typer(training.train_app, name="train")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"bigmc {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Show the version.", allow_from_autoenv=False
        ),
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", envvar="BIGMC_CONFIG", help="TOML file with options."),
    ] = None,
) -> None:
    load_config(context, config)


def main() -> NoReturn:
    """Run the command line; exit with 0, 1 (data or model error), 2 (usage error), or one of docs/cli.md."""
    leave_out_pandas()
    # Imports make many objects and hardly any garbage: searches for cycles took a fifth of a short command.
    gc.set_threshold(*_GC_THRESHOLDS)
    # All memory goes with the process: a search for cycles while Python ends took a tenth of a short command.
    atexit.register(gc.freeze)
    try:
        with stopped_by_signals():
            app(standalone_mode=True)
    except (BigmcError, MemoryLimitError) as error:
        _fail(str(error), error)
    except MemoryError as error:
        _fail("the machine has no memory left; give a smaller --memory", error)
    except OSError as error:
        _fail(_describe(error), error)
    sys.exit(0)


def _describe(error: OSError) -> str:
    where = f" while writing {error.filename}" if error.filename else ""
    if error.errno == errno.ENOSPC:
        return f"no space is left on the disk{where}; free some and run the same command again, it continues"
    if error.errno == errno.EFBIG:
        return (
            f"a file would grow beyond what this system allows{where}; raise the limit (ulimit -f) and rerun"
        )
    reason = os.strerror(error.errno) if error.errno else str(error)
    return f"{error.filename}: {reason}" if error.filename else reason


def _fail(message: str, error: BaseException) -> NoReturn:
    if TOLD not in getattr(error, "__notes__", ()):
        print(printable(f"bigmc: {' '.join(message.split())}"), file=sys.stderr)
    sys.exit(1)
