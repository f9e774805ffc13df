"""List the strongest features of each class, by name if names were kept."""

from __future__ import annotations

from typing import cast

import numpy as np

from bigmc.inference.results import ClassFeatures, FeatureName, Inspection, WeightedFeature
from bigmc.model import Model
from bigmc.options.declare import check_count


def inspect(model: Model, top: int = 20, n_classes: int | None = None) -> Inspection:
    """Return the `top` features with the largest weights for each of the first `n_classes` classes.

    Features are in the order of decreasing absolute weight. A name of a hashed feature has a ``sign``,
    with which its occurrences count, and a ``count``; several names are a known collision. A column of
    arrays has its own name; without names the list is empty. `DataError` if `top` is no count.
    """
    check_count("top", top)
    names = _feature_names(model)
    classes: list[ClassFeatures] = []
    for c, label in enumerate(model.classes[:n_classes].tolist()):
        features, weights = model.class_weights(c)
        # Equal weights in the order of the features.
        order = np.argsort(-np.abs(weights), kind="stable")[:top]
        strongest: list[WeightedFeature] = [
            {"index": int(features[j]), "weight": float(weights[j]), "names": names.get(int(features[j]), [])}
            for j in order
            if weights[j] != 0
        ]
        figures = {"label": label, **model.class_figures(c), "features": strongest}
        classes.append(cast(ClassFeatures, figures))
    return {
        "n_features": model.n_features,
        "n_nonzero_features": len(model.used_features),
        "classes": classes,
    }


def _feature_names(model: Model) -> dict[int, list[FeatureName]]:
    names: dict[int, list[FeatureName]] = {}
    if model.names is not None:
        for entry in model.names.to_pylist():
            # Binary weighting also turns -1 into 1, so the sign of the hash has no effect.
            entry["sign"] = 1 if model.weighting.binary else entry["sign"]
            names.setdefault(entry.pop("bucket"), []).append(entry)
    columns = model.feature_spec.get("columns")
    if columns is not None:
        names |= {j: [{"name": columns[j], "sign": 1, "count": None}] for j in model.used_features.tolist()}
    return names
