"""Store an evaluation in a JSON file with its model and data, for `bigmc publish`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

from bigmc.inference.results import Evaluation
from bigmc.options.inference import EvaluateOptions
from bigmc.store.files.outputs import Output


@dataclass(frozen=True)
class Subject:
    """The model and the data that were measured.

    The model's path is absolute; `dataset` is a digest. Of equally good models the one with fewer
    non-zero features is published.
    """

    model: str
    model_sha256: str
    dataset: str
    split: str
    n_nonzero_features: int


def write_figures(output: Output, subject: Subject, figures: Mapping[str, Any]) -> None:
    """Write the figures with the model and data that they describe."""
    output.write(json.dumps({**asdict(subject), **figures}, indent=1).encode())


def stored_figures(
    output: Output, subject: Subject, options: EvaluateOptions, labels: Iterable[Any]
) -> Evaluation | None:
    """Return the figures that an earlier run of the same evaluation wrote; None if it did not.

    `labels` are those of model and dataset: JSON has turned labels that are keys into texts.
    """
    try:
        stored = json.loads(output.content() or b"")
    except (ValueError, RecursionError):
        return None
    if not isinstance(stored, dict):
        return None
    own = asdict(subject)
    details = {"per_class": options.per_class, "confusion": options.confusion}
    if any(stored.get(name) != value for name, value in own.items()):
        return None
    if any((name in stored) != asked for name, asked in details.items()):
        return None
    if stored.get("propensities") != options.propensities:
        return None
    figures = {name: value for name, value in stored.items() if name not in own}
    if options.per_class:
        known = {_json_key(label): label for label in labels}
        figures["per_class"] = {known.get(key, key): row for key, row in figures["per_class"].items()}
    return cast(Evaluation, figures)


def _json_key(label: Any) -> str:
    return str(next(iter(json.loads(json.dumps({label: 0})))))
