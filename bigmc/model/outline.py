"""Facts about a model before its arrays are read: enough to plan its use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ModelOutline:
    """What planning needs of a model.

    Attributes
    ----------
    n_classes, n_features : int
    feature_spec : mapping
        What the features are; see `bigmc.model.base.Model`.
    has_sets : bool
        Whether it predicts sets of labels.
    takes_missing : bool
        Whether NaN has a meaning for models of its kind.
    nbytes : int
        Bytes in memory while it is opened, at most.
    kept_bytes : int
        Those of them that stay while it is used.
    """

    n_classes: int
    n_features: int
    feature_spec: Mapping[str, Any]
    has_sets: bool
    takes_missing: bool
    nbytes: int
    kept_bytes: int
