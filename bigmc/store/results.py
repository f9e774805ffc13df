"""The result types of datasets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NotRequired, TypedDict


class DatasetInfo(TypedDict):
    """Figures of ``bigmc info --json``.

    ``label_sets`` is present only if labels are sets, ``n_quarantined`` only if rows were set aside.
    """

    n_samples: int
    n_features: int
    n_classes: int
    nnz: int
    n_shards: int
    splits: Mapping[str, int]
    bytes: int
    label_sets: NotRequired[bool]
    n_quarantined: NotRequired[int]
