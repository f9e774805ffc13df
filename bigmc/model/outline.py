"""Facts about a model before its arrays are read: enough to plan its use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bigmc.store.label_source import LabelSource


@dataclass(frozen=True)
class ModelOutline:
    """What planning needs of a model; see `bigmc.model.base.Model`.

    `nbytes` is the maximum of bytes in memory while it is opened, of which `kept_bytes` stay while it is
    used.
    """

    n_classes: int
    n_features: int
    feature_spec: Mapping[str, Any]
    has_sets: bool
    takes_missing: bool
    nbytes: int
    kept_bytes: int
    label_source: LabelSource | None = None
