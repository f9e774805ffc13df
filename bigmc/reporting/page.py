"""The report on a model: what it is, how good it is, and its strongest features."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bigmc.budget import format_bytes
from bigmc.model import Model
from bigmc.reporting.certificate import bounds, percent, statements
from bigmc.reporting.history import course
from bigmc.reporting.markup import Content, Markup, element, figure, join, name, table
from bigmc.reporting.quality import quality
from bigmc.reporting.search import search, sizes
from bigmc.reporting.style import STYLE

_SHOWN = ("learner", "split", "dataset", "search", "sizes")
"""Parameters shown elsewhere on the page."""
_LISTED = 12
"""Entries of a long list that are shown."""

_READING = (
    "A positive weight speaks for the class, a negative one against it. A hashed word counts with a sign, "
    "and the weight shown is that of the word itself. The number after it is an estimate of how often it "
    "occurs; words after “also” fall on the same feature."
)

#: The page loads nothing and runs nothing, whatever the data contains.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(
    model: Model, strongest: Mapping[str, Any], evaluated: Mapping[str, Any] | None, file_bytes: int | None
) -> Markup:
    """Return the page.

    `strongest` is the result of `bigmc.inference.inspection.inspect`, of all or the first classes.
    `evaluated` is that of `bigmc.evaluate` with ``per_class``, the ``split``, whether it was
    ``trained_on``, and perhaps ``confusion``. `file_bytes` is the size of the model's file.
    """
    trials, curve = model.params.get("search"), model.params.get("sizes")
    title = f"bigmc model: {model.kind}, {model.n_classes:,} classes"
    parts = [
        _header(title, model, evaluated),
        _section("Certificate", *_certificate(model)),
        _section("Course of the training", *course(model.history)),
        *([_section("Search for the settings", *search(trials))] if trials else []),
        *([_section("Accuracy and size", *sizes(curve))] if curve else []),
        *([] if evaluated is None else [_section("Evaluation", *quality(evaluated))]),
        _section("Strongest features of each class", *_strongest(model, strongest)),
        _section("Training", *_training(model)),
        _section("Features", *_features(model)),
        _section("Model", table((), _figures(model, file_bytes), "facts")),
    ]
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("style", Markup(STYLE)),
    )
    body = element("body", element("main", *parts))
    return Markup(f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n")


def _header(title: str, model: Model, evaluated: Mapping[str, Any] | None) -> Markup:
    lead = element("p", _summary(model), class_="lead")
    return element("header", element("h1", title), lead, _tiles(model, evaluated))


def _section(title: str, *content: Content) -> Markup:
    return element("section", element("h2", title), *content)


def _summary(model: Model) -> Markup:
    params = model.params
    learner, split = str(params.get("learner", model.kind)), params.get("split")
    on = "" if split is None else f" on the split “{split}” of a dataset"
    chosen = (
        f"Trained by the learner “{learner}”{on}. It decides between {model.n_classes:,} classes by "
        f"{len(model.used_features):,} of {model.n_features:,} features."
    )
    if isinstance(model.label_threshold, tuple):
        chosen += " A sample has every label whose score is above a threshold of its own."
    elif model.label_threshold is not None:
        chosen += f" A sample has every label whose score is above {model.label_threshold:.4g}."
    return join([chosen])


def _tiles(model: Model, evaluated: Mapping[str, Any] | None) -> Markup:
    gap = bounds(model)[2]
    facts: list[tuple[str, Content]] = [
        ("classes", figure(model.n_classes)),
        ("features used", figure(len(model.used_features))),
        ("objective", figure(model.objective, 4)),
        ("gap of the certificate", figure(gap, 3) if math.isfinite(gap) else "none"),
        ("passes over the data", figure(model.n_passes, 3)),
    ]
    if evaluated is not None:
        facts.append((f"accuracy on “{evaluated['split']}”", percent(evaluated["accuracy"])))
    tiles = [element("div", element("dt", label), element("dd", value)) for label, value in facts]
    return element("dl", *tiles, class_="tiles")


def _certificate(model: Model) -> Iterator[Markup]:
    lower, upper, gap = bounds(model)
    gap_name = "gap, relative to the upper bound" if model.gap_is_relative else "gap, a difference"
    rows = [
        ("lower bound", figure(lower)),
        ("optimum", "somewhere between" if math.isfinite(lower) else "unknown"),
        ("upper bound", figure(upper)),
        (gap_name, figure(gap)),
        ("objective of the model", figure(model.objective)),
    ]
    yield table((), rows, "facts")
    for sentence in statements(model):
        yield element("p", sentence)
    yield element(
        "p",
        "A certificate is about the training. How often the model is right on samples it has not seen is "
        "found by an evaluation only.",
        class_="note",
    )


def _training(model: Model) -> Iterator[Markup]:
    record: list[tuple[Content, Content]] = [
        (label, element("code", str(model.params[key])))
        for key, label in (("learner", "learner"), ("split", "split"), ("dataset", "digest of the dataset"))
        if key in model.params
    ]
    record += [("iterations", figure(model.n_iter)), ("passes over the data", figure(model.n_passes))]
    yield table((), record, "facts")
    others = {key: value for key, value in model.params.items() if key not in _SHOWN}
    if others:
        yield element("h3", "Parameters")
        yield table((), _settings(others), "facts")


def _features(model: Model) -> Iterator[Markup]:
    rows: list[tuple[Content, Content]] = [("weighting", str(model.info()["weighting"]))]
    yield table((), [*rows, *_settings(model.feature_spec)], "facts")
    if not model.feature_spec:
        yield element("p", "The features are the columns of an array.", class_="note")


def _figures(model: Model, file_bytes: int | None) -> Iterator[tuple[Content, Content]]:
    yield "features of the data", figure(model.n_features)
    yield "features used", figure(len(model.used_features))
    for key, value in model.figures().items():
        yield {"nnz": "weights that are not zero"}.get(key, key.replace("_", " ")), figure(value)
    yield "names kept", figure(0 if model.names is None else model.names.num_rows)
    yield "in memory when it scores", _bytes(model.nbytes)
    if file_bytes is not None:
        yield "its file", _bytes(file_bytes)


def _bytes(count: int) -> Markup:
    return element("data", format_bytes(count), value=repr(count))


def _settings(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[Content, Content]]:
    """Yield nested settings by their dotted names, in the order of the alphabet."""
    for key, value in sorted(values.items()):
        if isinstance(value, Mapping):
            yield from _settings(value, f"{prefix}{key}.")
        else:
            yield prefix + key, _setting(value)


def _setting(value: Any) -> Content:
    if value is None or isinstance(value, bool):
        return {None: "–", True: "yes", False: "no"}[value]
    if isinstance(value, int | float):
        return figure(value) if abs(value) < 1e15 else str(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        first = join(part for item in value[:_LISTED] for part in (", ", _setting(item)))[2:]
        more = f" … and {len(value) - _LISTED:,} more" if len(value) > _LISTED else ""
        return join([Markup(first), more]) if value else "none"
    return element("code", str(value))


def _strongest(model: Model, strongest: Mapping[str, Any]) -> Iterator[Markup]:
    entries = strongest["classes"]
    yield element("p", _READING, class_="note")
    if len(entries) < model.n_classes:
        cut = f"These are the first {len(entries):,} of {model.n_classes:,} classes"
        yield element("p", f"{cut}; “bigmc inspect” lists all.", class_="note")
    yield element("div", *(_class(entry) for entry in entries), class_="classes")


def _class(entry: Mapping[str, Any]) -> Markup:
    others = [
        element("span", f"{key.replace('_', ' ')} ", figure(value), class_="note")
        for key, value in entry.items()
        if key not in ("label", "features")
    ]
    features = entry["features"]
    largest = max((abs(feature["weight"]) for feature in features), default=0.0)
    rows = [_feature(feature, largest) for feature in features]
    listed = table((), rows, "features") if rows else element("p", "No feature has weight.")
    return element("article", element("h3", name(entry["label"])), *others, listed)


def _feature(feature: Mapping[str, Any], largest: float) -> tuple[Content, ...]:
    names = feature["names"]
    if not names:
        weight, words = feature["weight"], [Markup(element("span", f"feature {feature['index']}"))]
    else:
        known, *collisions = names
        weight, words = feature["weight"] * known["sign"], [name(known["name"])]
        if known["count"] is not None:
            words.append(join([" ", element("span", figure(known["count"]), class_="count")]))
        if collisions:
            also = join(part for other in collisions for part in (", ", name(other["name"])))
            words.append(join([" ", element("span", "also ", Markup(also[2:]), class_="also")]))
    side = "for" if weight > 0 else "against"
    bar = element("div", "", class_=f"bar {side}", style=f"width:{100 * abs(weight) / largest:.1f}%")
    signed = element("data", f"{weight:+.4f}".replace("-", "−"), value=repr(weight))
    return signed, bar, join(words)
