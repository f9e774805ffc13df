"""The interface of datasets that blocks and statistics use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bigmc.store.shards.shard import Shard
from bigmc.store.weighting import Weighting


class ColumnStore(Protocol):
    """Shards of equal width, and the weighting of their values; see `bigmc.store.dataset.Dataset`."""

    @property
    def shards(self) -> Sequence[Shard]: ...  # noqa: D102
    @property
    def base(self) -> NDArray[np.int64]: ...  # noqa: D102
    @property
    def n_features(self) -> int: ...  # noqa: D102
    @property
    def weighting(self) -> Weighting: ...  # noqa: D102
    @property
    def dtype(self) -> np.dtype[Any]: ...  # noqa: D102
