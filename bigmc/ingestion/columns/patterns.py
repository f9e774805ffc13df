"""Patterns such as ``x*`` in place of the names of many columns."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any, cast

from bigmc.errors import DataError
from bigmc.ingestion.parts.scan import expand_sources, schema
from bigmc.ingestion.readers import MATRICES
from bigmc.ingestion.sources.source import Source
from bigmc.options.ingest import FEATURES, IngestKeywords, IngestOptions
from bigmc.printable import listed

_COLUMNS = (*FEATURES, "keep")


def expand_patterns(options: IngestOptions, sources: Sequence[Source]) -> IngestOptions:
    """Return options with the columns that match a pattern, in the order of the data, in its place.

    ``*`` stands for any characters, ``?`` for one. A column that is so named is no pattern, and columns that
    another option names, the label and the like among them, do not match. Matrices have no columns.
    `DataError` if no column matches.
    """
    if sources[0].format in MATRICES or not _has_patterns(options):
        return options
    columns, path = schema(sources[:1], ()).names, sources[0].path
    known = frozenset(columns)
    named = {options.label, options.weight, options.group}
    for option in _COLUMNS:
        named |= {name for name in getattr(options, option) if not _is_pattern(name) or name in known}
    free = [name for name in columns if name not in named]
    expanded: dict[str, tuple[str, ...]] = {}
    for option in _COLUMNS:
        names: list[str] = []
        for name in getattr(options, option):
            if name in known or not _is_pattern(name):
                names.append(name)
                continue
            pattern = name.replace("[", "[[]")  # a bracket is itself
            matching = [column for column in free if fnmatchcase(column, pattern)]
            if not matching:
                raise DataError(
                    f"{path}: no column matches {name!r} of --{option.replace('_', '-')}",
                    f"the columns that no option names are: {listed(free) or 'none'}",
                )
            names += matching
        expanded[option] = tuple(names)
    return options.but(cast(IngestKeywords, expanded))


def expand_given(source: Any, given: IngestKeywords) -> IngestKeywords:
    """Return given options with their patterns expanded, as `expand_patterns` does."""
    options = IngestOptions().but(given)
    if not _has_patterns(options):
        return given
    expanded = expand_patterns(options, expand_sources(source, options))
    columns = {option: getattr(expanded, option) for option in _COLUMNS if option in given}
    return cast(IngestKeywords, {**given, **columns})


def _has_patterns(options: IngestOptions) -> bool:
    """Return whether an option that names columns may hold a pattern."""
    return any(_is_pattern(name) for option in _COLUMNS for name in getattr(options, option))


def _is_pattern(name: str) -> bool:
    return "*" in name or "?" in name
