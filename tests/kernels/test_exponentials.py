"""Exponentials by vector instructions against numpy in extended precision."""

import numpy as np
import pytest
from numba import njit

from bigmc.kernels.linear.parallel.exponentials import lanes_exp, lanes_growth, lanes_largest
from bigmc.kernels.linear.parallel.simd import LANES

EIGHT = np.uint64(LANES)


@njit
def exponentials(x, shift, out):
    total = x.dtype.type(0)
    for q in range(np.uint64(len(x)) // EIGHT):
        total += lanes_exp(x, q * EIGHT, shift, out, q * EIGHT)
    return total


@njit
def growths(x, shares, out):
    for q in range(np.uint64(len(x)) // EIGHT):
        for r in range(EIGHT):
            shares[:] = 0
            shares[r] = 1
            out[q * EIGHT + r] = lanes_growth(shares, np.uint64(0), 2.0, x, q * EIGHT, 0.25)


@njit
def largest(x):
    return lanes_largest(x, np.uint64(8))


@pytest.mark.parametrize(("dtype", "lowest"), [(np.float32, -86.9), (np.float64, -707.9)])
def test_exponentials_are_right_to_the_last_bits(dtype, lowest):
    x = np.concatenate([np.linspace(lowest, 0, 4000), -np.logspace(-12, 1, 4000), [0.0] * 8]).astype(dtype)
    out = np.empty_like(x)
    total = exponentials(x, dtype(0), out)
    expected = np.exp(x.astype(np.longdouble))
    assert np.abs(out / expected - 1).max() < 1.5 * np.finfo(dtype).eps
    assert total == pytest.approx(float(expected.sum()), rel=1e-4)
    assert (out[-8:] == 1).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_far_below_is_zero_and_what_is_no_number_stays_none(dtype):
    x = np.array([0, -1e30, -np.inf, np.nan, -800, -1, -2, -3], dtype)
    out = np.empty_like(x)
    assert np.isnan(exponentials(x, dtype(0), out))
    assert (out[[1, 2, 4]] == 0).all()
    assert np.isnan(out[3])


def test_growth_keeps_the_digits_of_small_changes_and_has_no_infinity():
    x = np.concatenate([np.linspace(-300, 300, 4000), np.logspace(-12, 0, 2000) + 0.25, [1e6, -1e6] * 4])
    out = np.empty_like(x)
    growths(x, np.zeros(8), out)
    expected = np.expm1(2.0 * (x[:-8] - 0.25).astype(np.longdouble))
    assert np.abs(out[:-8] / expected - 1).max() < 4 * np.finfo(float).eps
    assert np.isfinite(out).all()
    assert out[-1] == -1


def test_the_largest_of_a_group():
    assert largest(np.r_[np.full(8, 99.0), [1, 5, -3, 7, 2, 6.5, 0, -8]]) == 7
