"""The figures of an evaluation, worst classes first, and the calibration of probabilities."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bigmc.reporting.certificate import percent
from bigmc.reporting.markup import Content, Markup, element, figure, join, name, table
from bigmc.reporting.plots import Curve, plot

_WORST = 20
"""Classes shown."""
_MISTAKES = 3
"""Most frequent mistakes shown of each."""

_FITTED = {"micro_f1": "micro F1", "macro_f1": "macro F1"}
"""Names of the figures that fits of label sets go by."""
_NAMES = {
    "log_loss": "log loss",
    "brier": "Brier score",
    "calibration_error": "expected calibration error",
    "top_5_accuracy": "label among the five most probable classes",
    "roc_auc": "area under the ROC curve",
}
"""Names of the figures of probabilities on the page."""


def quality(evaluated: Mapping[str, Any]) -> Iterator[Markup]:
    """Yield how often the model is right, and which classes it mistakes for which."""
    rows: list[tuple[Content, Content]] = [
        ("split", element("code", evaluated["split"])),
        ("samples", figure(evaluated["n_samples"])),
    ]
    sets = "micro_f1" in evaluated
    if sets:
        rows += [
            ("sets of labels that are right as a whole", figure(evaluated["accuracy"])),
            ("micro F1", figure(evaluated["micro_f1"])),
            (
                "pairs of a label and a class that is none in the wrong order",
                figure(evaluated["ranking_loss"]),
            ),
            ("precision of the classes scored as high as a label", figure(evaluated["ranking_precision"])),
        ]
    else:
        rows.append(("accuracy", figure(evaluated["accuracy"])))
    rows += [
        *_beside(evaluated),
        ("macro F1", figure(evaluated["macro_f1"])),
        ("samples of labels that the model does not know", figure(evaluated["n_unknown_labels"])),
    ]
    yield table((), rows, "facts")
    if evaluated["trained_on"]:
        yield element(
            "p",
            "These are the samples the model was trained on: the figures say nothing of new ones.",
            class_="warning",
        )
    if evaluated.get("refitted"):
        yield element(
            "p",
            "A model with the same settings answered, which had not seen these samples; the model itself was "
            "then trained on all.",
            class_="note",
        )
    if "per_class" in evaluated:
        yield from _classes(evaluated)
    yield from _probabilities(evaluated)


def _beside(evaluated: Mapping[str, Any]) -> Iterator[tuple[Content, Content]]:
    """Yield the interval of the figure that a fit goes by, and what simple models reach."""
    by, others = _FITTED.get(str(evaluated.get("by")), "accuracy"), evaluated.get("baselines", {})
    if "interval" in evaluated:
        low, high = evaluated["interval"]
        yield f"{by}, 95 % interval", join([figure(low), " to ", figure(high)])
    largest = others.get("largest_class")
    if "per_class" in evaluated and "micro_f1" not in evaluated:
        most = max(figures["support"] for figures in evaluated["per_class"].values())
        largest = most / evaluated["n_samples"]
    if largest is not None:
        yield "accuracy of always answering the largest class", figure(largest)
    if "plain_ridge" in others:
        yield f"{by} of a plain ridge model", figure(others["plain_ridge"])


def _classes(evaluated: Mapping[str, Any]) -> Iterator[Markup]:
    """Yield the quality of each class, the worst first."""
    per_class, confusion = evaluated["per_class"], evaluated.get("confusion")
    worst = sorted(per_class, key=lambda label: per_class[label]["f1"])[:_WORST]
    yield element("h3", "Classes, lowest F1 first")
    if len(worst) < len(per_class):
        yield element("p", f"These are {len(worst)} of {len(per_class):,} classes.", class_="note")
    if confusion is None and "micro_f1" not in evaluated:
        yield element("p", "There are too many classes to list what they are mistaken for.", class_="note")
    last = () if confusion is None else ("most often taken for",)
    head = ("class", "samples", "precision", "recall", "F1", *last)
    yield table(head, [_class(label, per_class[label], confusion) for label in worst], "figures")


def _class(label: Any, figures: Mapping[str, Any], confusion: Mapping[str, Any] | None) -> list[Content]:
    shares = [figures[key] for key in ("precision", "recall", "f1")]
    scores = [element("data", f"{share:.3f}", value=repr(share)) for share in shares]
    last = [] if confusion is None else [_mistakes(label, confusion)]
    return [name(label), figure(figures["support"]), *scores, *last]


def _mistakes(label: Any, confusion: Mapping[str, Any]) -> Markup:
    """Return the class that a class is most often mistaken for, and the share of its samples."""
    labels = confusion["labels"]
    row = confusion["matrix"][labels.index(label)]
    wrong = [(count, c) for c, count in enumerate(row) if count and labels[c] != label]
    wrong.sort(key=lambda pair: (-pair[0], pair[1]))
    listed = []
    for count, c in wrong[:_MISTAKES]:
        often = join([" ", figure(count), " (", percent(count / sum(row)), ")"])
        listed.append(element("span", name(labels[c]), often, class_="entry"))
    return join(listed or ["–"])


def _probabilities(evaluated: Mapping[str, Any]) -> Iterator[Markup]:
    """Yield the figures of an evaluation's probabilities; nothing if it has none."""
    bins = evaluated.get("reliability")
    if not bins:
        return
    yield element("h3", "Probabilities")
    rows: list[tuple[Content, Content]] = [
        (title, figure(evaluated[key])) for key, title in _NAMES.items() if key in evaluated
    ]
    yield table((), rows, "facts")
    points = [(entry["confidence"], entry["accuracy"]) for entry in bins]
    ends = points[0][0], points[-1][0]
    curves = [
        Curve("share of right answers", points, "#1f6feb"),
        Curve("perfectly calibrated", [(x, x) for x in ends], "#888888"),
    ]
    yield element(
        "p", "How often the most probable class is right, by its probability; on the line it is as often."
    )
    yield plot(curves, "probability of the answer", "reliability of the probabilities", 480, 300)
