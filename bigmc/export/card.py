"""Model cards in Markdown: description, certificate, evaluation and caveats."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from bigmc.model import Model
from bigmc.reporting.certificate import bounds

_LISTED = 20
"""Maximum number of classes listed."""

_SHOWN_PARAMS = ("loss", "penalty", "alpha", "ridge", "tol", "C", "n_rounds", "max_depth", "class_weight")


def model_card(model: Model, name: str, evaluation: Mapping[str, Any] | None = None) -> str:
    """Return the card with a heading, such as the file's name, and the result of `bigmc.evaluate`."""
    parts = [
        f"---\nlibrary_name: bigmc\ntags:\n- {model.kind}\n- multiclass\n---\n",
        f"# {_plain(name)}\n",
        _summary(model),
        "## Certificate\n",
        _certificate(model),
        "## Data\n",
        _data(model),
        "## Evaluation\n",
        _evaluation(evaluation),
        "## Use\n",
        f"```python\nimport bigmc\n\nmodel = bigmc.load_model({json.dumps(name)})\n"
        f"model.predict({_example(model)})\n```\n",
        "The file holds arrays and JSON only; nothing in it is executed.\n",
    ]
    return "\n".join(parts)


def _summary(model: Model) -> str:
    params = {key: model.params[key] for key in _SHOWN_PARAMS if model.params.get(key) is not None}
    settings = ", ".join(f"{key} {_figure(value)}" for key, value in params.items())
    used = len(model.used_features)
    return (
        f"A {model.kind} model of {model.n_classes:,} classes, trained with bigmc. "
        f"{used:,} of {model.n_features:,} features have weight.\n\n"
        f"Settings: {settings or 'defaults'}.\n"
    )


def _certificate(model: Model) -> str:
    lower, upper, gap = bounds(model)
    if not (math.isfinite(lower) and math.isfinite(upper)):
        return "Nothing is certified: no lower bound of the objective is known.\n"
    kind = "relative gap" if model.gap_is_relative else "gap"
    notes = "".join(f"\n\n{note}" for note in model.certificate_notes())
    return (
        f"The optimum of the {model.objective_name} lies between {lower:.6g} and {upper:.6g} "
        f"({kind} {gap:.2g}, after {model.n_passes:.3g} passes over the data).{notes}\n"
    )


def _data(model: Model) -> str:
    spec = model.feature_spec
    rows = [("classes", _classes(model)), ("weighting", model.weighting.name or "as given")]
    for role, names in _columns(spec).items():
        rows.append((f"{role} columns", ", ".join(f"`{_plain(column)}`" for column in names)))
    if spec.get("hasher"):
        rows.append(("hashing", ", ".join(f"{key} {value}" for key, value in spec["hasher"].items())))
    if model.params.get("dataset"):
        rows.append(("dataset (digest)", f"`{_plain(str(model.params['dataset']))}`"))
    if model.params.get("split"):
        rows.append(("trained on the split", _plain(str(model.params["split"]))))
    return _table(("", ""), rows)


def _columns(spec: Mapping[str, Any]) -> dict[str, Sequence[str]]:
    """Return the columns that samples need, by their role."""
    named = {role: spec.get(role, ()) for role in ("text", "categorical", "numeric", "dense", "dates")}
    named["vector"] = [vector["column"] for vector in spec.get("vectors", ())]
    named["one-hot"] = [levels["column"] for levels in spec.get("one_hot", ())]
    return {role: names for role, names in named.items() if names}


def _classes(model: Model) -> str:
    shown = [f"`{_plain(str(label))}`" for label in model.classes[:_LISTED].tolist()]
    more = f" and {model.n_classes - _LISTED:,} more" if model.n_classes > _LISTED else ""
    return ", ".join(shown) + more


def _evaluation(evaluation: Mapping[str, Any] | None) -> str:
    if evaluation is None:
        return "Not measured here: `bigmc evaluate` measures a model on rows it was not trained on.\n"
    numbers = {key: value for key, value in evaluation.items() if isinstance(value, int | float)}
    own = numbers.pop("trained_on_these_rows", False)
    note = "\nThe model was trained on these rows: the figures say nothing of new ones.\n" if own else ""
    return _table(("figure", "value"), [(key, _figure(value)) for key, value in numbers.items()]) + note


def _example(model: Model) -> str:
    spec = model.feature_spec
    columns = [name for names in _columns(spec).values() for name in names]
    if len(columns) == 1 and spec.get("text"):
        return '["a text"]'
    return "[{" + ", ".join(f"{json.dumps(name)}: ..." for name in columns) + "}]" if columns else "X"


def _figure(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else _plain(str(value))


def _table(head: tuple[str, str], rows: list[tuple[str, str]]) -> str:
    lines = [f"| {head[0]} | {head[1]} |", "|---|---|", *(f"| {key} | {value} |" for key, value in rows)]
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """Return a text on one line, escaped for Markdown."""
    shown = " ".join(text.split()).replace("|", "\\|").replace("`", "'")
    return shown.replace("<", "&lt;").replace("[", "\\[")
