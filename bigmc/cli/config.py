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
    defaults = _of_group(path, _commands(context, context.command), shared, tables, used)
    unknown = set(shared) - used
    if unknown:
        raise DataError(f"{path}: no command has an option {min(unknown)!r}", "check its spelling")
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
        table = tables.get(name, {})
        if isinstance(command, Mapping):
            inner = {key: value for key, value in table.items() if isinstance(value, dict)}
            wider = {**shared, **{key: value for key, value in table.items() if key not in inner}}
            defaults[name] = _of_group(path, command, wider, inner, used)
            continue
        options = {_key(flag): param for param in command.params for flag in param.opts if flag[0] == "-"}
        own = {_key(key): value for key, value in table.items()}
        for key in own:
            if key not in options:
                raise DataError(f"{path}: bigmc {name} has no option {key!r}", "check its spelling")
        values = {key: value for key, value in shared.items() if _key(key) in options} | own
        used |= set(values)
        defaults[name] = {
            options[_key(key)].name: _default(options[_key(key)], value) for key, value in values.items()
        }
    return defaults


def _default(option: click.Parameter, value: Any) -> Any:
    """Return a value as the parser takes it: a text for an option that may be repeated is one of them."""
    return [value] if option.multiple and isinstance(value, str) else value


def _key(name: str) -> str:
    """Return an option's name with hyphens, for hyphens or underscores."""
    return name.lstrip("-").replace("_", "-")


def load_config(context: click.Context, path: Path | None) -> None:
    """Make the options in a file the defaults of all commands; command line and environment override them."""
    if path is not None:
        context.default_map = dict(defaults_of(path, context))
