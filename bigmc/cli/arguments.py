"""Commands from dataclasses: the fields of a function's one parameter become the options of a command."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import click

from bigmc.cli.settings import settings_options, with_settings
from bigmc.cli.values import Parsed, Text
from bigmc.options.declare import KEY, Option, argument, option, required
from bigmc.options.raw import RawOptions

A = TypeVar("A")
GIVEN = "given"
"""Metadata key of a field that holds the options of another class."""


@dataclass(frozen=True, kw_only=True)
class Shown:
    """Options of every command that prints a result."""

    as_json: bool = option(False, "Print one JSON object.", "--json")


@dataclass(frozen=True, kw_only=True)
class Limited(Shown):
    """Options of commands whose memory can be limited."""

    memory: str | None = option(
        None,
        "Memory that the command may add to the bare process, like 512MB or 2GB; by default half of the "
        "machine's or container's.",
        metavar="SIZE",
    )


@dataclass(frozen=True, kw_only=True)
class Working(Limited):
    """Options of commands that work on data."""

    threads: int | None = option(None, "Number of threads; by default all processors.", minimum=1)
    scheduler: str | None = option(
        None,
        "Dask scheduler; its workers must see the same files. --memory then applies to each process.",
        metavar="ADDRESS",
    )
    scheduler_file: Path | None = option(
        None, "Scheduler file of the Dask cluster, instead of --scheduler.", metavar="FILE"
    )


@dataclass(frozen=True, kw_only=True)
class Replacing:
    """Options of commands that write a result."""

    overwrite: bool = option(False, "Replace an existing file at --to.")


@dataclass(frozen=True, kw_only=True)
class Training(Working, Replacing):
    """Options of commands that train a model."""

    dataset: str = argument("Dataset.", metavar="DATASET")
    to: str = required("Model to write.")
    split: str = option("train", "Split to train on.")


SHARED_BY_ENVIRONMENT = ("memory", "threads", "scheduler", "scheduler_file")
"""Options that a variable such as ``BIGMC_MEMORY`` sets for all commands."""

_METAVARS: Mapping[Any, str] = {int: "N", float: "NUMBER", str: "TEXT", list[str]: "TEXT", Path: "FILE"}
"""Placeholders for values of a type in the help."""


def as_command(function: Callable[[A], None]) -> click.Command:
    """Return a command whose options are the fields of the function's only parameter.

    Fields without an `Option` are ignored. A field made by `given` adds the options of another class and
    receives those that were given, by name.
    """
    [kind] = [hint for name, hint in get_type_hints(function).items() if name != "return"]
    declared = _declared(kind)
    shared = {item.name for base in (RawOptions, Replacing, Working) for item in fields(base)}
    declared.sort(
        key=lambda item: (not item.option.is_argument, item.default is not MISSING, item.name in shared)
    )

    def run(**values: Any) -> None:
        asked: dict[str, Any] = {item.name: {} for item in fields(kind) if GIVEN in item.metadata}
        for item in declared:
            value = item.value(values[item.name])
            if value is None and item.default is not None:
                continue  # not given
            if item.group is None:
                asked[item.name] = value
            elif value is not None:
                asked[item.group][item.name] = value
        function(kind(**asked))

    return click.Command(
        function.__name__,
        params=[*(item.parameter() for item in declared), *settings_options()],
        callback=with_settings(run),
        help=function.__doc__,
    )


def given(options: type[Any]) -> Any:
    """Return a field that adds the options of a class, and receives those that were given."""
    return field(metadata={GIVEN: options})


@dataclass(frozen=True)
class _Declared:
    """An option of a command.

    `hint` is the type of the parsed value, `default` that of the field, `MISSING` if it is required, and
    `group` the field made by `given` that receives it.
    """

    name: str
    hint: Any
    default: Any
    option: Option
    group: str | None = None

    def parameter(self) -> click.Parameter:
        """Return the click parameter of the option."""
        option, is_list = self.option, self._is_list
        if option.is_argument:
            n_values = -1 if is_list else 1
            return click.Argument(
                [self.name], True, option.help, type=Text(), nargs=n_values, metavar=option.metavar
            )
        is_given = self.default is not MISSING
        default = None if self.group is not None or isinstance(self.default, tuple) else self.default
        variable = f"BIGMC_{self.name.upper()}" if self.name in SHARED_BY_ENVIRONMENT else None
        shown: Any = option.shown if option.shown is not None else is_given
        if default is None and isinstance(self.default, str):
            shown = self.default
        described = option.help
        if isinstance(shown, str):  # click would write it in parentheses
            described, shown = f"{option.help}  [default: {shown}]", False
        more: Mapping[str, Any] = {"default": default} if is_given else {"required": True}
        return click.Option(
            [self.name, *self._flags(default)],
            type=self._type(),
            is_flag=self._kind is bool or None,
            multiple=is_list,
            help=described,
            metavar=option.metavar or _METAVARS.get(str if option.parse is not None else self._kind),
            envvar=variable,
            show_envvar=variable is not None,
            show_default=shown,
            **more,
        )

    @property
    def _kind(self) -> Any:
        """Type of a given value."""
        kinds = get_args(self.hint) if isinstance(self.hint, UnionType) else (self.hint,)
        kind = next(kind for kind in kinds if kind is not type(None))
        return list[str] if kind == Sequence[str] else kind

    @property
    def _is_list(self) -> bool:
        return self.option.parse is None and self._kind == list[str]

    def _type(self) -> click.ParamType[Any]:
        """Return the click type that converts the given text."""
        kind = self._kind
        if self.option.parse is not None:
            return Parsed(self.option.parse)
        if get_origin(kind) is Literal:
            return click.Choice(get_args(kind))
        if kind is int and self.option.minimum is not None:
            return click.IntRange(min=self.option.minimum)
        if kind is Path:
            return click.Path(path_type=Path)
        return {bool: click.BOOL, int: click.INT, float: click.FLOAT}.get(kind) or Text()

    def _flags(self, default: Any) -> tuple[str, ...]:
        if self.option.flags:
            return self.option.flags
        flag = "--" + self.name.replace("_", "-")
        return (f"{flag}/--no-{flag[2:]}",) if self._kind is bool and default is not False else (flag,)

    def value(self, value: Any) -> Any:
        """Return a value as the field holds it: lists as declared, None if the option was not given."""
        if not self._is_list:
            return value
        return (tuple(value) if self.hint == Sequence[str] else list(value)) if value else None


def _declared(kind: type[Any], group: str | None = None) -> list[_Declared]:
    """Return the options of a class, including those of its fields made by `given`."""
    hints = get_type_hints(kind)
    declared: list[_Declared] = []
    for item in fields(kind):
        if GIVEN in item.metadata:
            declared += _declared(item.metadata[GIVEN], item.name)
        elif KEY in item.metadata:
            default = item.default if item.default_factory is MISSING else item.default_factory()
            declared.append(_Declared(item.name, hints[item.name], default, item.metadata[KEY], group))
    return declared
