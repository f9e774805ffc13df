"""Options from a TOML file: shared options at the top, then one table per command."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from bigmc.errors import DataError


def defaults_of(path: Path, context: click.Context) -> Mapping[str, Any]:
    """Return the options in a file, as defaults for the parser, in the context of the program.

    `DataError` if the file cannot be read, or names an option or a command that does not exist.
    """
    import tomllib  # imported only if a file is given

    try:
        options = tomllib.loads(path.read_text())
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}", "check --config") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is not TOML: {error}", "write lines such as memory = '2GB'") from None
    shared = {name: value for name, value in options.items() if not isinstance(value, dict)}
    tables = {name: value for name, value in options.items() if isinstance(value, dict)}
    used: set[str] = set()
    defaults = _of_group(path, "bigmc", _commands(context, context.command), shared, tables, used)
    _refuse_unknown(path, "no command has an option", set(shared) - used)
    return defaults


def _commands(context: click.Context, group: click.Command) -> Mapping[str, Any]:
    """Return the commands of a group by name; nested groups are nested mappings."""
    assert isinstance(group, click.Group)
    commands: dict[str, Any] = {}
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        commands[name] = _commands(context, command) if isinstance(command, click.Group) else command
    return commands


def _of_group(
    path: Path,
    group: str,
    commands: Mapping[str, Any],
    shared: Mapping[str, Any],
    tables: Mapping[str, Any],
    used: set[str],
) -> Mapping[str, Any]:
    unknown = sorted(set(tables) - set(commands))
    if unknown:
        raise DataError(f"{path}: there is no command {unknown[0]!r}", f"use {', '.join(commands)}")
    defaults: dict[str, Any] = {}
    for name, command in commands.items():
        table, full_name = tables.get(name, {}), f"{group} {name}"
        if isinstance(command, Mapping):
            inner = {key: value for key, value in table.items() if isinstance(value, dict)}
            outer = {key: value for key, value in table.items() if key not in inner}
            known: set[str] = set()
            defaults[name] = _of_group(path, full_name, command, {**shared, **outer}, inner, known)
            _refuse_unknown(path, f"no command of {full_name} has an option", set(outer) - known)
            used |= known
            continue
        options = {_key(flag): param for param in command.params for flag in param.opts if flag[0] == "-"}
        own = {_key(key): value for key, value in table.items()}
        _refuse_unknown(path, f"{full_name} has no option", set(own) - set(options))
        values = {key: value for key, value in shared.items() if _key(key) in options} | own
        used |= set(values)
        defaults[name] = {}
        for key, value in values.items():
            option = options[_key(key)]
            defaults[name][option.name] = _default(f"{path}: {key} of {full_name}", option, value)
    return defaults


def _refuse_unknown(path: Path, reason: str, unknown: set[str]) -> None:
    if unknown:
        raise DataError(f"{path}: {reason} {min(unknown)!r}", "check its spelling")


def _default(where: str, option: click.Parameter, value: Any) -> Any:
    """Return a value as a command line gives it, a text or several.

    Of other types the parser makes what they are not: 2 of 2.7, and 1 of true.
    """
    values = value if isinstance(value, list) else [value]
    if isinstance(value, list) and not option.multiple:
        raise DataError(f"{where} is a list", "give one value")
    if any(isinstance(one, list | dict) for one in values):
        raise DataError(f"{where} has a list or table in it", "give a list of single values")
    texts = [str(one).lower() if isinstance(one, bool) else str(one) for one in values]
    for text in texts:
        try:
            option.type.convert(text, option, None)
        except click.BadParameter as error:  # the parser's error would not name the file
            raise DataError(f"{where}: {error.message.rstrip('.')}", "change its value") from None
    return texts if option.multiple else texts[0]


def _key(name: str) -> str:
    """Return an option's name with hyphens, for hyphens or underscores."""
    return name.lstrip("-").replace("_", "-")


def load_config(context: click.Context, path: Path | None) -> None:
    """Make the options in a file the defaults of all commands; command line and environment override them."""
    if path is not None:
        context.default_map = dict(defaults_of(path, context))
