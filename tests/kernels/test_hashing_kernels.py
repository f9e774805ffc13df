import numpy as np
import pytest
from numba import njit
from sklearn.utils import murmurhash3_32

from bigmc.ingestion.hashing.hasher import features_of
from bigmc.kernels.hashing import final_sigma, murmur, rows


@njit
def murmur3(data, start, size):
    return murmur.murmur3(data, start, size)


@njit
def feature(h, mask):
    return rows.feature(h, mask)


@pytest.mark.parametrize("size", [*range(41), 1000])
def test_murmur3_equals_scikit_learn(size: int) -> None:
    rng = np.random.default_rng(size)
    for start in (0, 1, 5):
        data = rng.integers(0, 256, start + size + murmur.PADDING, dtype=np.uint8)
        expected = murmurhash3_32(data[start : start + size].tobytes(), seed=0, positive=True)
        assert murmur3(data, start, size) == expected


@pytest.mark.parametrize("bits", [1, 18, 30])
def test_feature_of_the_hash_without_absolute_value(bits: int) -> None:
    n = 2**bits
    # The rule of scikit-learn's _hashing_fast.pyx for -2**31.
    expected = {2**31: ((2**31 - 1 - (n - 1)) % n, -1), 2**31 - 1: ((2**31 - 1) % n, 1)}
    expected |= {2**32 - 1: (1 % n, -1), 0: (0, 1)}
    for h, (index, sign) in expected.items():
        assert feature(np.uint32(h), n - 1) == (index, sign == -1)
    indices, signs = features_of(np.array(list(expected), np.uint32), bits)
    assert list(zip(indices.tolist(), signs.tolist(), strict=True)) == list(expected.values())


def test_sigmas_are_found_wherever_they_are() -> None:
    for text, found in (("", False), ("Σ", True), ("aΣ", True), ("x" * 100 + "Σ", True), ("ΞΠσς", False)):
        assert final_sigma.has_sigma(np.frombuffer(text.encode(), np.uint8)) == found
