"""svmlight records: their feature indices described, their numbers parsed.

A number that is a whole number below 2^53 times, or divided by, an exact power of ten is parsed with one
rounding (W. D. Clinger, "How to read floating point numbers accurately", 1990). A record with other numbers,
or with whatever else stands in their place, is marked for Python's ``float``.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigmc.kernels.decorators import inlined_kernel, kernel

# What `describe_svmlight` says about a record.
FRACTIONAL_LABEL: Final = 1
HAS_QID: Final = 2
BAD_INDEX: Final = 4
NOT_INCREASING: Final = 8
SEVERAL_LABELS: Final = 16
BAD_TOKEN: Final = 32
HUGE_INDEX: Final = 64
NO_LABEL: Final = 128

_POWERS: Final = np.array([10.0**k for k in range(23)])  # exact as doubles
_EXACT: Final = 1 << 53
_BEYOND: Final = np.int64(10_000)  # an exponent that is certainly too large
_MOST: Final = 10**17  # a mantissa below this takes another digit


class SvmlightRows(NamedTuple):
    """Rows that are filled.

    Attributes
    ----------
    indptr : int64 array of shape (n_records + 1,)
    indices : int32 array
    values : float64 array
    labels : float64 array of shape (n_records,)
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: NDArray[np.float64]
    labels: NDArray[np.float64]


@kernel
def describe_svmlight(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    smallest: NDArray[np.int64],
    largest: NDArray[np.int64],
    flags: NDArray[np.uint8],
) -> None:
    """Read the feature indices of svmlight records, and what is wrong with them; not the values.

    Parameters
    ----------
    data : uint8 array
        The buffer.
    starts, ends : int64 arrays of shape (n_records,)
        Byte offsets of the records.
    smallest, largest : int64 arrays of shape (n_records,)
        Filled with the first and last index; ``2**62`` and ``-1`` for a record without features.
    flags : uint8 array of shape (n_records,)
        Filled with the sum of the flags of this module that hold.
    """
    for i in range(starts.shape[0]):
        at = starts[i]
        end = ends[i]
        flag = 0
        first = np.int64(1) << 62
        last = np.int64(-1)
        while at < end and data[at] > 32 and data[at] != 35:
            byte = data[at]
            if byte == 44:
                flag |= SEVERAL_LABELS
            elif byte == 58:
                flag |= NO_LABEL
            elif byte == 95:
                flag |= BAD_TOKEN
            if not ((byte >= 48 and byte <= 57) or byte == 43 or byte == 45):
                flag |= FRACTIONAL_LABEL
            at += 1
        if at - starts[i] > 15:
            flag |= FRACTIONAL_LABEL  # float64, through which labels are parsed, is not exact there
        while at < end and data[at] != 35:
            if data[at] <= 32:
                at += 1
                continue
            if end - at >= 4 and data[at] == 113 and data[at + 1] == 105 and data[at + 2] == 100:
                flag |= HAS_QID
            if data[at] == 43:
                at += 1
            index = np.int64(0)
            digits = 0
            while at < end and data[at] >= 48 and data[at] <= 57:
                if index < 1 << 40:
                    index = index * 10 + np.int64(data[at]) - 48
                digits += 1
                at += 1
            if digits == 0 or at >= end or data[at] != 58:
                flag |= BAD_INDEX
            elif index >= 2147483647:
                flag |= HUGE_INDEX
            else:
                if index <= last:
                    flag |= NOT_INCREASING
                first = min(first, index)
                last = max(last, index)
            while at < end and data[at] > 32 and data[at] != 35:
                if data[at] == 95:
                    flag |= BAD_TOKEN
                at += 1
        smallest[i] = first
        largest[i] = last
        flags[i] = flag


@inlined_kernel
def _is_white(byte: Any) -> Any:
    return byte == 32 or (byte >= 9 and byte <= 13)


@inlined_kernel
def _parse_number(data: NDArray[np.uint8], at: Any, end: Any) -> tuple[Any, Any, bool]:
    """Parse ``[+-]digits[.digits][e[+-]digits]`` up to white space, a comment or ``end``.

    Returns the number, where it ends, and whether it is exact; if not, neither of the others counts.
    """
    negative = False
    if at < end and (data[at] == 43 or data[at] == 45):
        negative = data[at] == 45
        at += 1
    mantissa = np.int64(0)
    power = np.int64(0)
    digits = 0
    behind = np.int64(0)
    while at < end:
        byte = data[at]
        if byte >= 48 and byte <= 57:
            if mantissa >= _MOST:
                return 0.0, at, False
            mantissa = mantissa * 10 + np.int64(byte) - 48
            digits += 1
            power -= behind
        elif byte == 46 and behind == 0:
            behind = np.int64(1)
        else:
            break
        at += 1
    if digits > 0 and at < end and (data[at] | 32) == 101:
        at += 1
        below = at < end and data[at] == 45
        if at < end and (data[at] == 43 or data[at] == 45):
            at += 1
        exponent = np.int64(0)
        digits = 0
        while at < end and data[at] >= 48 and data[at] <= 57:
            exponent = min(exponent * 10 + np.int64(data[at]) - 48, _BEYOND)
            digits += 1
            at += 1
        power += -exponent if below else exponent
    ended = at == end or _is_white(data[at]) or data[at] == 35
    if digits == 0 or not ended or mantissa > _EXACT or power < -22 or power > 22:
        return 0.0, at, False
    number = np.float64(mantissa)
    number = number * _POWERS[power] if power >= 0 else number / _POWERS[-power]
    return -number if negative else number, at, True


@kernel
def parse_svmlight(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    base: int,
    rows: SvmlightRows,
    odd: NDArray[np.bool_],
) -> None:
    """Parse records whose indices are known to be right.

    Parameters
    ----------
    data : uint8 array
        The buffer.
    starts, ends : int64 arrays of shape (n_records,)
        Byte offsets of the records.
    base : int
        Index of the first feature.
    rows : SvmlightRows
        Filled; has space for an entry in three bytes of each record.
    odd : bool array of shape (n_records,)
        Filled: whether the label or a value is not parsed here; the record's numbers do not count then.
    """
    n = np.int64(0)
    rows.indptr[0] = 0
    for i in range(starts.shape[0]):
        at = starts[i]
        end = ends[i]
        rows.labels[i], at, exact = _parse_number(data, at, end)
        all_exact = exact
        while at < end and not _is_white(data[at]) and data[at] != 35:
            at += 1
        while at < end and data[at] != 35:
            if data[at] <= 32:
                at += 1
                continue
            index = np.int64(0)
            while data[at] != 58:
                if data[at] != 43:
                    index = index * 10 + np.int64(data[at]) - 48
                at += 1
            rows.indices[n] = index - base
            rows.values[n], at, exact = _parse_number(data, at + 1, end)
            all_exact &= exact
            while at < end and data[at] > 32 and data[at] != 35:
                at += 1
            n += 1
        rows.indptr[i + 1] = n
        odd[i] = not all_exact
