"""Commands from dataclasses: a function that takes one frozen object becomes a command with its options."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

import typer

from bigmc.cli.settings import with_settings
from bigmc.options.declare import KEY, Option, argument, option, required
from bigmc.options.raw import RawOptions

A = TypeVar("A")
GIVEN = "given"
"""Key of the metadata of a field that stands for the options of a class."""


@dataclass(frozen=True, kw_only=True)
class Shown:
    """Options of every command that has a result."""

    as_json: bool = option(False, "Print one JSON object.", "--json")


@dataclass(frozen=True, kw_only=True)
class Limited(Shown):
    """Options of commands whose memory can be limited."""

    memory: str | None = option(
        None, "Memory limit above the bare process, like 512MB or 2GB.", metavar="SIZE"
    )


@dataclass(frozen=True, kw_only=True)
class Working(Limited):
    """Options of commands that work on data."""

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
class Training(Working, Replacing):
    """Options of commands that train a model."""

    dataset: str = argument("Dataset.", metavar="DATASET")
    to: str = required("Model to make.")
    split: str = option("train", "Split to train on.")


SHARED_BY_ENVIRONMENT = ("memory", "threads", "scheduler", "scheduler_file")
"""Options that a variable such as ``BIGMC_MEMORY`` gives to all commands."""

_METAVARS: Mapping[Any, str] = {
    bool: "",
    int: "N",
    float: "NUMBER",
    str: "TEXT",
    list[str]: "TEXT",
    Path: "FILE",
}
"""What stands for a value of a type in the help."""


def as_command(function: Callable[[A], None]) -> Callable[..., None]:
    """Return a command whose options are the fields of the function's only parameter.

    Fields without an `Option` are no options of the command. A field made by `given` stands for the options
    of another class: it receives those that were given, by their names.
    """
    [kind] = [hint for name, hint in get_type_hints(function).items() if name != "return"]
    declared = _declared(kind)
    shared = {item.name for base in (RawOptions, Replacing, Working) for item in fields(base)}
    declared.sort(
        key=lambda item: (
            not item.option.is_argument,
            item.default is not MISSING,
            item.name in shared,
        )
    )

    @functools.wraps(function)
    def run(**values: Any) -> None:
        asked: dict[str, Any] = {item.name: {} for item in fields(kind) if GIVEN in item.metadata}
        for item in declared:
            value = item.parsed(values[item.name])
            if value is None and item.default is not None:
                continue  # not given
            if item.group is None:
                asked[item.name] = value
            elif value is not None:
                asked[item.group][item.name] = value
        function(kind(**asked))

    parameters = [item.parameter() for item in declared]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_settings(run)


def given(options: type[Any]) -> Any:
    """Return a field that stands for the options of a class, and receives those that were given."""
    return field(metadata={GIVEN: options})


@dataclass(frozen=True)
class _Declared:
    """An option of a command.

    Attributes
    ----------
    hint : type
        What its value is once parsed.
    default : object
        Default of the field; `MISSING` where it must be given.
    group : str or None
        Field made by `given` that receives it.
    """

    name: str
    hint: Any
    default: Any
    option: Option
    group: str | None = None

    def parameter(self) -> inspect.Parameter:
        """Return the parameter of the command that stands for it."""
        option = self.option
        has_default = self.default is not MISSING
        default: Any = self.default if has_default else inspect.Parameter.empty
        if self.group is not None or isinstance(default, tuple):
            default = None
        hint = self._hint(default)
        if option.parse is not None and isinstance(default, float):
            default = str(default)
        info: Any
        if option.is_argument:
            info = typer.Argument(help=option.help, metavar=option.metavar, show_default=False)
        else:
            variable = f"BIGMC_{self.name.upper()}" if self.name in SHARED_BY_ENVIRONMENT else None
            shown: Any = option.shown if option.shown is not None else has_default
            if default is None and isinstance(self.default, str):
                shown = self.default
            info = typer.Option(
                *self._flags(hint, default),
                help=option.help,
                metavar=self._metavar(hint),
                envvar=variable,
                show_envvar=variable is not None,
                show_default=shown,
                min=option.minimum,
            )
        kind = inspect.Parameter.KEYWORD_ONLY
        return inspect.Parameter(self.name, kind, default=default, annotation=Annotated[hint, info])

    def _hint(self, default: Any) -> Any:
        """Return the type that the parser knows: texts where they are parsed here, lists for sequences."""
        if self.option.parse is not None:
            return str if isinstance(default, str | float) else str | None
        hint = list[str] if self.hint == Sequence[str] else self.hint
        return hint | None if default is None else hint

    def _metavar(self, hint: Any) -> str | None:
        """Return what stands for the value in the help; None where typer lists the choices.

        A flag has no value, and texts and numbers are called so instead of by their Python types.
        """
        if self.option.metavar is not None or self.option.is_argument:
            return self.option.metavar
        kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
        return next((_METAVARS[kind] for kind in kinds if kind in _METAVARS), None)

    def _flags(self, hint: Any, default: Any) -> tuple[str, ...]:
        if self.option.flags:
            return self.option.flags
        flag = "--" + self.name.replace("_", "-")
        return (f"{flag}/--no-{flag[2:]}",) if hint is bool and default is not False else (flag,)

    def parsed(self, value: Any) -> Any:
        """Return the value that a text stands for, and texts of an option that was repeated as a tuple."""
        if self.hint == Sequence[str] and value is not None:
            return tuple(value)
        if self.option.parse is None or not isinstance(value, str):
            return value
        try:
            return self.option.parse(value)
        except ValueError as error:
            flag = (self.option.flags or ("--" + self.name.replace("_", "-"),))[0]
            raise typer.BadParameter(str(error), param_hint=flag) from None


def _declared(kind: type[Any], group: str | None = None) -> list[_Declared]:
    """Return the options of a class, those that `given` stands for in its place."""
    hints = get_type_hints(kind)
    found: list[_Declared] = []
    for item in fields(kind):
        if GIVEN in item.metadata:
            found += _declared(item.metadata[GIVEN], item.name)
        elif KEY in item.metadata:
            default = item.default if item.default_factory is MISSING else item.default_factory()
            found.append(_Declared(item.name, hints[item.name], default, item.metadata[KEY], group))
    return found
