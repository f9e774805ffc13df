"""Commands from dataclasses: a function that takes one frozen object becomes a command with its options."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

import typer

from bigmc.cli.settings import with_settings
from bigmc.options.declare import KEY, Option, argument, option, required

A = TypeVar("A")


@dataclass(frozen=True, kw_only=True)
class Shown:
    """Options of every command that has a result."""

    as_json: bool = option(False, "Print one JSON object.", "--json")


@dataclass(frozen=True, kw_only=True)
class Working(Shown):
    """Options of commands that work on data."""

    memory: str | None = option(
        None, "Memory limit above the bare process, like 512MB or 2GB.", metavar="SIZE"
    )
    threads: int | None = option(None, "Threads; by default all processors.", minimum=1)
    scheduler: str | None = option(
        None,
        "Work on a Dask cluster that sees the same files, not on threads; --memory is for each process.",
        metavar="ADDRESS",
    )
    scheduler_file: Path | None = option(None, "The same; the file its scheduler wrote.", metavar="FILE")


@dataclass(frozen=True, kw_only=True)
class Replacing:
    """Options of commands that write a result."""

    overwrite: bool = option(False, "Replace another file at --to, which is refused otherwise.")


@dataclass(frozen=True, kw_only=True)
class FileShape:
    """Options of commands that read raw files: how these are written."""

    format: str | None = option(None, "csv, tsv, jsonl, parquet or svmlight; by default from the name.")
    delimiter: str | None = option(None, "Character between the fields of delimited text, or tab.")
    columns: str | None = option(
        None, "Names of all columns, where the file has no header line.", metavar="A,B,C"
    )
    encoding: str | None = option(None, "Of text files, such as latin-1, cp1252 or utf-16.", shown="utf-8")

    def files(self) -> dict[str, Any]:
        """Return how the files are written, as arguments of the functions of `bigmc.api`."""
        columns = None if self.columns is None else self.columns.split(",")
        return {
            "format": self.format,
            "delimiter": self.delimiter,
            "columns": columns,
            "encoding": self.encoding,
        }


@dataclass(frozen=True, kw_only=True)
class Raw(FileShape):
    """Options of commands that read raw files row by row."""

    on_bad_row: Literal["fail", "quarantine"] = option("fail", "fail: stop at it. quarantine: set it aside.")


@dataclass(frozen=True, kw_only=True)
class Training(Working, Replacing):
    """Options of commands that train a model."""

    dataset: str = argument("Dataset.", metavar="DATASET")
    to: str = required("Model to make.")
    split: str = option("train", "Split to train on.")


SHARED_BY_ENVIRONMENT = ("memory", "threads", "scheduler", "scheduler_file")
"""Options that a variable such as ``BIGMC_MEMORY`` gives to all commands."""


def as_command(function: Callable[[A], None]) -> Callable[..., None]:
    """Return a command whose options are the fields of the function's only parameter.

    Fields without an `Option` are no options of the command.
    """
    [kind] = [hint for name, hint in get_type_hints(function).items() if name != "return"]
    hints = get_type_hints(kind)
    declared = [item for item in fields(kind) if KEY in item.metadata]
    shared = {item.name for base in (Raw, Replacing, Working) for item in fields(base)}
    declared.sort(
        key=lambda item: (
            not item.metadata[KEY].is_argument,
            item.default is not MISSING,
            item.name in shared,
        )
    )

    @functools.wraps(function)
    def run(**values: Any) -> None:
        for item in declared:
            values[item.name] = _parsed(item, values[item.name])
        function(kind(**values))

    parameters = [_parameter(item, hints[item.name]) for item in declared]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_settings(run)


def _parameter(item: Field[Any], hint: Any) -> inspect.Parameter:
    """Return the parameter of a command that a field describes."""
    declared: Option = item.metadata[KEY]
    has_default = item.default is not MISSING
    default: Any = item.default if has_default else inspect.Parameter.empty
    if declared.parse is not None:
        hint = str if isinstance(item.default, str | float) else str | None
        default = str(default) if isinstance(default, float) else default
    shown: Any = declared.shown if declared.shown is not None else has_default
    if declared.is_argument:
        info: Any = typer.Argument(help=declared.help, metavar=declared.metavar, show_default=False)
    else:
        flag = "--" + item.name.replace("_", "-")
        if hint is bool and default is False:
            flags = declared.flags or (flag,)
        else:
            flags = declared.flags or ((f"{flag}/--no-{flag[2:]}",) if hint is bool else (flag,))
        variable = f"BIGMC_{item.name.upper()}" if item.name in SHARED_BY_ENVIRONMENT else None
        info = typer.Option(
            *flags,
            help=declared.help,
            metavar=declared.metavar,
            envvar=variable,
            show_envvar=variable is not None,
            show_default=shown,
            min=declared.minimum,
        )
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(item.name, kind, default=default, annotation=Annotated[hint, info])


def _parsed(item: Field[Any], value: Any) -> Any:
    """Return the value that a text stands for."""
    parse = item.metadata[KEY].parse
    if parse is None or not isinstance(value, str):
        return value
    try:
        return parse(value)
    except ValueError as error:
        flag = (item.metadata[KEY].flags or ("--" + item.name.replace("_", "-"),))[0]
        raise typer.BadParameter(str(error), param_hint=flag) from None
