"""The reference of the command line as Markdown, from the commands themselves."""

from collections.abc import Iterator

import click

from bigmc.cli import app


def command_reference() -> str:
    """Return one section for each command: what it does, its usage, arguments and options."""
    return "\n".join(_section(app, click.Context(app, info_name="bigmc"), "Options"))


def _section(command: click.Command, context: click.Context, title: str) -> Iterator[str]:
    """Yield the lines of a command and, for a group, of the commands in it."""
    level = len(context.command_path.split())
    yield f"{'#' * level} {title}\n\n{command.help}\n"
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"```console\n$ {context.command_path} {usage}\n```\n"
    records = [param.get_help_record(context) for param in command.get_params(context)]
    yield from (f"* `{names}`: {text}".rstrip(": ") for names, text in filter(None, records))
    yield ""
    if isinstance(command, click.Group):
        inner = {name: command.get_command(context, name) for name in command.list_commands(context)}
        yield from (f"* `{name}`: {one.help}" for name, one in inner.items() if one is not None)
        yield ""
        for name, one in inner.items():
            if one is not None:
                below = click.Context(one, parent=context, info_name=name)
                yield from _section(one, below, f"`{below.command_path}`")
