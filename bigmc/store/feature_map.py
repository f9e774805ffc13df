"""Transform dense features before they are stored: standardisation, then random Fourier features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.errors import DataError


@dataclass(frozen=True)
class Moments:
    """Number, mean and sum of squared differences from the mean of each feature of some samples."""

    count: int
    mean: NDArray[np.float64]
    scatter: NDArray[np.float64]

    @classmethod
    def of(cls, values: NDArray[Any]) -> Moments:
        """Return the moments of the rows of an array."""
        wide = np.asarray(values, np.float64)
        if not len(wide):
            return cls(0, np.zeros(wide.shape[1]), np.zeros(wide.shape[1]))
        mean = wide.mean(axis=0)
        with np.errstate(over="ignore"):  # `FeatureMap.fit` refuses features whose squares are infinite
            return cls(len(wide), mean, np.square(wide - mean).sum(axis=0))

    def __add__(self, other: Moments) -> Moments:
        """Return the moments of both sets of samples, by the update of Chan, Golub and LeVeque (1979)."""
        count = self.count + other.count
        if not count:
            return self
        share = other.count / count
        with np.errstate(over="ignore", invalid="ignore"):  # as above
            apart = other.mean - self.mean
            scatter = self.scatter + other.scatter + self.count * share * apart**2
            return Moments(count, self.mean + share * apart, scatter)


@dataclass(frozen=True)
class FeatureMap:
    """Map to standardised features, or to random Fourier features of these.

    Each feature becomes ``(x − mean) / deviation``, with the population standard deviation of the samples
    it was fitted to; a constant feature becomes 0. With `fourier` features, an even number, these become
    ``√(2 / fourier) [cos(Wᵀx), sin(Wᵀx)]``, the columns of W drawn from a normal distribution of variance
    ``2 gamma``, whose products approximate ``exp(−gamma ‖x − x'‖²)`` (Rahimi and Recht, 2008). They are
    drawn by NumPy's RandomState, whose numbers never change. The values are in single precision.
    """

    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    fourier: int = 0
    gamma: float = 1.0
    seed: int = 0

    @classmethod
    def fit(cls, moments: Moments, fourier: int, gamma: float | None, seed: int) -> FeatureMap:
        """Return the map for samples with these moments; `gamma` is by default 1 / number of features.

        `DataError` if a feature is not finite, or too large for its square.
        """
        deviation = np.sqrt(moments.scatter / max(moments.count, 1))
        refused = np.flatnonzero(~(np.isfinite(moments.mean) & np.isfinite(deviation)))
        if len(refused):
            raise DataError(
                f"dense feature {refused[0]} (counted from 0) is not finite, or too large to standardise",
                "leave it out, or divide it by a constant",
            )
        # Rounding gives constants a tiny deviation: treat it as 0.
        deviation[deviation <= 1e-14 * np.abs(moments.mean)] = 0.0
        chosen = 1.0 / len(deviation) if gamma is None else gamma
        return cls(tuple(moments.mean.tolist()), tuple(deviation.tolist()), fourier, chosen, seed)

    @property
    def n_features(self) -> int:
        """Number of output features."""
        return self.fourier or len(self.mean)

    @cached_property
    def _frequencies(self) -> NDArray[np.float64]:
        draw = np.random.RandomState(self.seed).standard_normal
        draws = draw((len(self.mean), self.fourier // 2))
        frequencies: NDArray[np.float64] = draws * np.sqrt(2.0 * self.gamma)
        return frequencies

    def transform(self, values: NDArray[Any]) -> NDArray[np.float32]:
        """Return the features of samples, shape (n_samples, n_features)."""
        deviation = np.array(self.deviation)
        inverse = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=deviation > 0)
        standard = (np.asarray(values, np.float64) - np.array(self.mean)) * inverse
        if not self.fourier:
            single: NDArray[np.float32] = standard.astype(np.float32)
            return single
        angles = standard @ self._frequencies
        waves: NDArray[np.float32] = np.empty((len(angles), self.fourier), np.float32)
        np.cos(angles, out=waves[:, : self.fourier // 2], casting="same_kind")
        np.sin(angles, out=waves[:, self.fourier // 2 :], casting="same_kind")
        waves *= np.float32(np.sqrt(2.0 / self.fourier))
        return waves

    def to_dict(self) -> Mapping[str, Any]:
        """Return the map as JSON data."""
        return {
            "mean": list(self.mean),
            "deviation": list(self.deviation),
            "fourier": self.fourier,
            "gamma": self.gamma,
            "map_seed": self.seed,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> FeatureMap:
        """Return the map that `to_dict` wrote."""
        mean, deviation = tuple(data["mean"]), tuple(data["deviation"])
        return cls(mean, deviation, data["fourier"], data["gamma"], data["map_seed"])


def check_fourier(fourier: int, gamma: float | None) -> None:
    """Raise `DataError` if the number of random Fourier features, or gamma, is invalid."""
    if not 0 <= fourier < 2**20 or fourier % 2:
        raise DataError(
            f"fourier is {fourier}",
            "give an even number: random Fourier features are pairs of a cosine and a sine",
        )
    if gamma is not None and not 0 < gamma < np.inf:
        raise DataError(f"gamma is {gamma}", "give a finite number above 0")
