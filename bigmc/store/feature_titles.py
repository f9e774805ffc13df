"""What messages call a feature."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bigmc.errors import DataError

if TYPE_CHECKING:
    from bigmc.store.dataset import Dataset


def feature_title(dataset: Dataset, feature: int) -> str:
    """Return the name of a column of the table, ``column 'age'``, or the number of any other feature."""
    features = dataset.features
    dense = features.get("columns") or ([] if features.get("dates") else features.get("dense")) or []
    at = feature - (dataset.n_features - len(dense))
    return f"column {dense[at]!r}" if at >= 0 and dense else f"feature {feature}"


def gradient_not_finite(dataset: Dataset, feature: int) -> DataError:
    """Return the error of a feature whose gradient is infinite or NaN."""
    return DataError(
        f"the gradient of {feature_title(dataset, feature)} is not finite",
        "look for huge or non-finite values in it, or ingest with --weighting scaled",
    )
