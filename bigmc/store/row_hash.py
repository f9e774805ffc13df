"""Choose rows by a hash of their number: SplitMix64 (Steele, Lea and Flood 2014)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: Increment of SplitMix64's state before each number: 2⁶⁴ over the golden ratio.
GAMMA = 0x9E3779B97F4A7C15


def mix(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Apply SplitMix64's finaliser, a bijection of 64 bits, to every state."""
    mixed = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def splitmix64(states: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return SplitMix64's next number for every state."""
    return mix((states + np.uint64(1)) * np.uint64(GAMMA))


def unit_interval(hashes: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Return numbers in [0, 1) from the upper 53 bits of hashes."""
    return np.asarray((hashes >> np.uint64(11)) * 2.0**-53, dtype=np.float64)
