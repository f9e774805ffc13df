"""Compare the features of a dataset with those of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bigmc.store.weighting import Weighting


def comparable(n_features: int, weighting: Weighting, spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the properties that make features the same, without nesting.

    The names of text columns are among them only where each has words of its own. What a dataset of matrices
    says of columns is what a model of arrays says, which is nothing.
    """
    fields: dict[str, Any] = {"n_features": n_features, "weighting": weighting_name(weighting)}
    for name, value in spec.items():
        if isinstance(value, Mapping):
            fields |= value
        else:
            fields[name] = bool(value) or None if name == "text" else value
    if fields.pop("by_column", False):
        fields["words_by_column"] = spec["text"]
    if fields.get("n_own") == n_features:
        del fields["n_own"]
    return {name: value for name, value in fields.items() if value not in ([], None)}


def describe_differences(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """Return a phrase for every difference between a model and a dataset, given as `comparable` does."""
    return [
        f"{name} is {_short(ours.get(name))} in the model and {_short(theirs.get(name))} in the dataset"
        for name in dict.fromkeys([*ours, *theirs])
        if ours.get(name) != theirs.get(name)
    ]


def _short(value: Any) -> str:
    text = "not given" if value is None else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def weighting_name(weighting: Weighting) -> str:
    """Return a weighting in a few words, such as ``idf+l2``."""
    return "+".join(name for name, on in weighting.to_dict().items() if on) or "counts"
