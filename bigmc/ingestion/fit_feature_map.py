"""Fit the feature map of an ingest in a first pass over the sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from bigmc.engine import Engine
from bigmc.errors import DataError
from bigmc.ingestion.columns.features import FeatureSpec
from bigmc.ingestion.memory import BATCH_COST, Shares
from bigmc.ingestion.parts.scan import Part, bytes_per_row
from bigmc.ingestion.recipe import Recipe
from bigmc.ingestion.sources.source import Source
from bigmc.ingestion.workers import PartTask, moments_of
from bigmc.store.feature_map import FeatureMap, Moments
from bigmc.store.files.work_file import made_once

MAP = "map.json"
"""File of the map in the work folder, for a resumed run."""

MAP_COST = 24
"""Bytes per output feature of a map for a row: angles, waves and the result."""


def fit_map(
    recipe: Recipe,
    parts: Sequence[Part],
    sources: Sequence[Source],
    shares: Shares,
    engine: Engine,
    folder: Path,
) -> Recipe:
    """Return the recipe with its feature map fitted to the rows of its first split.

    The recipe of an append keeps the map of the dataset. `DataError` if there are no such rows, or the
    features cannot be standardised.
    """
    if recipe.mapping is None or recipe.features.map is not None:
        return recipe
    mapping = recipe.mapping

    def fitted() -> Mapping[str, Any]:
        total = Moments(0, np.zeros(1), np.zeros(1))
        for _, moments in engine.map(moments_of, parts, PartTask(sources, recipe, shares, folder.absolute())):
            total = total + moments
        if not total.count:
            first = next(iter(recipe.splits))
            raise DataError(
                f"the split {first!r} has no rows to compute means and deviations from", "change the splits"
            )
        return FeatureMap.fit(total, mapping["fourier"], mapping["gamma"], recipe.seed).to_dict()

    feature_map = FeatureMap.from_dict(made_once(folder / MAP, fitted))
    return replace(recipe, features=replace(recipe.features, map=feature_map))


@contextmanager
def mapping_shares(features: FeatureSpec, shares: Shares, source: Source) -> Iterator[Shares]:
    """Yield shares with smaller batches if a feature map makes rows longer.

    Matrix products then use a single thread each, since the workers are threads already.
    """
    if features.map is None:
        yield shares
        return
    mapped = MAP_COST * features.map.n_features / bytes_per_row(source)
    share = BATCH_COST / (BATCH_COST + mapped)
    with threadpool_limits(1, "blas"):
        yield replace(shares, batch_bytes=max(1 << 12, int(shares.batch_bytes * share)))
