"""All settings that determine a dataset: equal recipes give equal datasets."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bigmc.errors import DataError
from bigmc.ingestion.columns.features import FeatureSpec
from bigmc.ingestion.sources.same_content import as_stored
from bigmc.options.raw import OnBadRow
from bigmc.store.files.layout import Manifest
from bigmc.store.weighting import Weighting

DIGESTS = "sha256"
"""Key of a manifest's provenance: the digests of local files."""


class OtherRecipeError(DataError):
    """A dataset was made from other sources, or with other parameters."""


@dataclass(frozen=True)
class Recipe:
    """Parameters of an ingest, as JSON data; `bigmc.ingest` describes the options among them.

    `sources` are identities: path, size and time of change, or shape and digest of an array. `label` is None
    for sources that carry their labels. `splits` has the share of each split, and `group` the column whose
    value decides the split, instead of the row number. `n_features` is the width that was given; None: as the
    sources tell. `mapping` says what dense features become: ``fourier``, 0 for standardised ones, and
    ``gamma``. `first_row` is the id of the first row: 0, or where the dataset ends that these rows are
    appended to.
    """

    sources: tuple[Mapping[str, Any], ...]
    features: FeatureSpec
    weighting: Weighting
    label: str | None
    splits: Mapping[str, float]
    group: str | None
    keep: tuple[str, ...]
    seed: int
    on_bad_row: OnBadRow
    n_features: int | None = None
    names: bool = True
    mapping: Mapping[str, Any] | None = None
    label_separator: str | None = None
    weight: str | None = None
    first_row: int = 0

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns to read from a table, without repetition."""
        extra = [name for name in (self.label, self.group, self.weight) if name is not None]
        return tuple(dict.fromkeys((*self.features.columns, *extra, *self.keep)))

    @property
    def category_only_columns(self) -> tuple[str, ...]:
        """Columns that are hashed as categories, and nothing else is made of."""
        features = self.features
        others = {*features.text, *features.numeric, *features.dense, *features.dates, *self.keep}
        others |= {*features.vector_columns}
        others |= {name for name in (self.label, self.group, self.weight) if name is not None}
        return tuple(name for name in features.categorical if name not in others)

    @property
    def only_categories(self) -> bool:
        """Whether all features are hashed categories."""
        features = self.features
        others = (*features.text, *features.numeric, *features.numbers, *features.one_hot)
        return bool(features.categorical) and not others

    def to_dict(self) -> Mapping[str, Any]:
        """Return the recipe as JSON data, without the feature map, which is fitted later."""
        data = {
            "sources": [dict(source) for source in self.sources],
            "features": replace(self.features, map=None).to_dict(),
            "weighting": self.weighting.to_dict(),
            "label": self.label,
            "splits": dict(self.splits),
            "order_of_splits": list(self.splits),  # which JSON with sorted keys would lose
            "group": self.group,
            "keep": list(self.keep),
            "seed": self.seed,
            "on_bad_row": self.on_bad_row,
            "n_features": self.n_features,
            "names": self.names,
        }
        others = {
            "mapping": None if self.mapping is None else dict(self.mapping),
            "label_separator": self.label_separator,
            "weight": self.weight,
            "first_row": self.first_row or None,
        }
        return data | {name: value for name, value in others.items() if value is not None}

    @property
    def signature(self) -> str:
        """SHA-256 of the recipe."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()

    def refuse_other(self, dataset: Path | str, manifest: Manifest) -> None:
        """Raise `OtherRecipeError` if a dataset was made by another recipe."""
        if manifest.signature != self.signature:
            stored, digests = manifest.provenance.get("recipe", {}), manifest.provenance.get(DIGESTS, {})
            same = replace(self, sources=as_stored(self.sources, stored.get("sources", ()), digests))
            if manifest.signature == same.signature:
                return
            differences = same.differences(stored)
            if any(phrase.startswith("sources:") for phrase in differences):  # other rows, other values
                differences = [phrase for phrase in differences if not phrase.startswith(_READ_FROM_ROWS)]
            raise OtherRecipeError(
                f"the dataset {dataset} was made with other parameters ({'; '.join(differences)})",
                "delete it, or give another --to",
            )

    def differences(self, other: Mapping[str, Any]) -> list[str]:
        """Return one phrase for each parameter in which a stored recipe differs from this one."""
        mine, theirs = _leaves(self.to_dict()), _leaves(other)
        return [
            _changed_sources(theirs.get(name, []), mine[name])
            if name == "sources"
            else _changed(name, theirs.get(name), mine.get(name))
            for name in sorted(dict.fromkeys((*mine, *theirs)), key=lambda name: name.startswith("features."))
            if mine.get(name) != theirs.get(name)
        ]


_READ_FROM_ROWS = ("features.one_hot:", "features.columns:", "features.filling.", "features.vectors:")
"""Phrases about what no option says: values of categories, means of numbers, and lengths of lists."""


def _changed_sources(stored: Sequence[Mapping[str, Any]], asked: Sequence[Mapping[str, Any]]) -> str:
    before, now = ([source["path"] for source in sources] for sources in (stored, asked))
    if before == now:
        changed = next(b["path"] for a, b in zip(stored, asked, strict=True) if a != b)
        return f"sources: {changed} has changed since"
    return f"sources: it has {_short(before)}, asked for {_short(now)}"


def _changed(name: str, stored: Any, asked: Any) -> str:
    """Return what differs; of lists only what one of them alone has, if there is such."""
    if isinstance(stored, list) and isinstance(asked, list):
        alone = [value for value in stored if value not in asked], [v for v in asked if v not in stored]
        if alone != ([], []) and alone != (stored, asked):
            said = zip(("it also has", "also asked for"), alone, strict=True)
            return f"{name}: {', '.join(f'{text} {_short(values)}' for text, values in said if values)}"
    return f"{name}: it has {_short(stored)}, asked for {_short(asked)}"


def _leaves(values: Mapping[str, Any], prefix: str = "") -> Mapping[str, Any]:
    """Return the values of nested mappings by their dotted names, lists as JSON has them."""
    leaves: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            leaves |= _leaves(value, f"{prefix}{name}.")
        else:
            leaves[prefix + name] = json.loads(json.dumps(value))
    return leaves


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 160 else text[:157] + "..."
