"""Find suspicious labels, such as ``NA``, two that differ only in case, or several that are joined."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from bigmc.ingestion.columns.known_labels import texts_by_meaning
from bigmc.printable import listed

LIKE_MISSING = frozenset({"na", "n/a", "#n/a", "nan", "null", "none", "nil", "nat", "?", "-", "unknown"})
"""Texts for missing values in other programs, in lower case; ingest treats every text as a label."""

_SHOWN = 5
_SEPARATORS = ("|", ";", ",")
_FEWEST_JOINED, _RECURRING = 4, 0.8
"""Labels with a separator, at least, and the share of them all parts of which other labels have too."""


def doubts_about_labels(classes: NDArray[Any]) -> list[str]:
    """Return a sentence for each kind of suspicious label among the classes of a dataset; mostly none."""
    texts = [label for label in classes.tolist() if isinstance(label, str)]
    warnings = []
    missing = [text for text in texts if text.strip().lower() in LIKE_MISSING]
    if missing:
        warnings.append(f"{_listed(missing)} counts as a label: leave such rows out if it stands for none")
    spaced = [text for text in texts if text != text.strip()]
    if spaced:
        warnings.append(f"the spaces of {_listed(spaced)} are part of the label")
    alike: dict[str, list[str]] = {}
    for text in texts:
        alike.setdefault(" ".join(text.split()).casefold(), []).append(text)
    twins = [text for some in alike.values() if len(some) > 1 for text in some]
    if twins:
        warnings.append(f"{_listed(twins)} differ in case or spaces only, and are classes of their own")
    equal = [text for some in texts_by_meaning(texts).values() if len(some) > 1 for text in some]
    if equal and not set(equal) <= set(twins):
        warnings.append(f"{_listed(equal)} are the same number or date, and classes of their own")
    warnings += [_about_joined(texts, separator) for separator in _SEPARATORS]
    return [warning for warning in warnings if warning]


def _about_joined(texts: Sequence[str], separator: str) -> str:
    """Return a sentence if labels look like several that a separator joins: nearly all parts recur."""
    joined = [text for text in texts if separator in text]
    parts = {text: [part.strip() for part in text.split(separator)] for text in texts}
    times = Counter(part for own in parts.values() for part in set(own))
    recurring = [text for text in joined if all(times[part] > 1 for part in parts[text])]
    if len(joined) < _FEWEST_JOINED or len(recurring) < _RECURRING * len(joined):
        return ""
    return (
        f"{_listed(joined)} look like several labels each; if they are, --label-separator "
        f"{shlex.quote(separator)} makes sets of them"
    )


def _listed(texts: Sequence[str]) -> str:
    return listed([repr(text) for text in texts], _SHOWN)
