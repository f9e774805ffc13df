"""svmlight records: their feature indices described, their numbers parsed.

Digits are recognised and added up eight at a time, without a branch for each (D. Lemire, "Number parsing at a
gigabyte per second", 2021, section 5). A number that is a whole number below 2^53 times, or divided by, an
exact power of ten is parsed with one rounding (W. D. Clinger, "How to read floating point numbers
accurately", 1990). A record with other numbers, or with whatever else stands in their place, is marked for
Python's ``float``.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigmc.kernels.byte_masks import load_eight, trailing_zeros
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
_ROOM_FOR_EIGHT: Final = 10**9  # and one below this takes eight more
_TENS: Final = np.array([10**k for k in range(9)])

# Of eight bytes in one number, the first of them lowest.
_ONE: Final = np.uint64(1)
_ONES: Final = np.uint64(0x0101010101010101)
_ZEROS: Final = np.uint64(0x3030303030303030)
_ABOVE_NINE: Final = np.uint64(0x7676767676767676)  # added to what is 10 or more it sets the highest bit
_HIGH: Final = np.uint64(0x8080808080808080)
_PAIRS: Final = np.uint64(0x00FF00FF00FF00FF)
_FOURS: Final = np.uint64(0x0000FFFF0000FFFF)


class SvmlightRows(NamedTuple):
    """Rows to be written; those of the records that are kept are the first.

    `record` is the record of each row; `odd` whether the label or a value needs another parser, so that
    the row's numbers do not count.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: NDArray[np.float64]
    labels: NDArray[np.float64]
    record: NDArray[np.int64]
    odd: NDArray[np.bool_]


class Description(NamedTuple):
    """Facts about records.

    `smallest` and `largest` are the first and last index; ``2**62`` and ``-1`` for a record without
    features. `flags` is the sum of the flags of this module that hold.
    """

    smallest: NDArray[np.int64]
    largest: NDArray[np.int64]
    flags: NDArray[np.uint8]


@inlined_kernel
def _is_white(byte: Any) -> Any:
    return byte == 32 or (byte >= 9 and byte <= 13)


@inlined_kernel
def _add_up(values: np.uint64, count: Any) -> Any:
    """Return the number of ``count`` digits, the first of which is the lowest of eight bytes."""
    half = np.uint64(32 - 4 * count)
    values = (values << half) << half  # zeros before the digits, of which there may be none
    values = ((values * np.uint64(1 + (10 << 8))) >> np.uint64(8)) & _PAIRS
    values = ((values * np.uint64(1 + (100 << 16))) >> np.uint64(16)) & _FOURS
    return np.int64((values * np.uint64(1 + (10000 << 32))) >> np.uint64(32))


@inlined_kernel
def eight_digits(data: NDArray[np.uint8], at: Any, end: Any) -> tuple[Any, Any]:
    """Return the number that up to eight digits from ``at`` on are, and how many.

    None are read where they continue beyond ``end``, or fewer than eight bytes are left in the buffer.
    """
    if at + 8 > data.shape[0]:
        return np.int64(0), np.int64(0)
    values = load_eight(data, at) ^ _ZEROS
    others = ((values + _ABOVE_NINE) | values) & _HIGH
    count = trailing_zeros(others) >> 3
    if count > end - at:
        return np.int64(0), np.int64(0)
    return _add_up(values, count), count


@inlined_kernel
def _parse_index(data: NDArray[np.uint8], at: Any, end: Any) -> tuple[Any, Any, Any]:
    """Parse digits; the index, or one above 2**40, where it ends, and whether there is a digit."""
    index, digits = eight_digits(data, at, end)
    at += digits
    if digits == 0 or digits == 8:
        while at < end and data[at] >= 48 and data[at] <= 57:
            if index < 1 << 40:
                index = index * 10 + np.int64(data[at]) - 48
            digits += 1
            at += 1
    return index, at, digits > 0


@inlined_kernel
def _are(eight: np.uint64, byte: int) -> np.uint64:
    """Set the highest bit of the first of eight bytes that is ``byte``, and maybe of later ones."""
    differ = eight ^ (np.uint64(byte) * _ONES)
    return (differ - _ONES) & ~differ & _HIGH


@inlined_kernel
def _parse_short(data: NDArray[np.uint8], at: Any, end: Any) -> tuple[Any, Any, bool]:
    """Parse ``[-]digits[.digits]`` of less than eight bytes, without a branch; else like `_parse_number`."""
    if at + 8 > data.shape[0]:
        return 0.0, at, False
    eight = load_eight(data, at)
    size = trailing_zeros((eight - np.uint64(33) * _ONES) & ~eight & _HIGH) >> 3  # up to white space
    negative = np.int64(data[at] == 45)
    eight >>= np.uint64(8 * negative)
    count = size - negative
    point = min(trailing_zeros(_are(eight, 46)) >> 3, count)
    before = (_ONE << np.uint64(8 * point & 63)) - _ONE
    has_point = np.int64(point < count)
    eight = (eight & before) | ((eight >> np.uint64(8 * has_point)) & ~before)
    count -= has_point
    values = eight ^ _ZEROS
    others = trailing_zeros(((values + _ABOVE_NINE) | values) & _HIGH) >> 3
    if size == 8 or size > end - at or count < 1 or others < count:
        return 0.0, at, False
    stop = data[at + size]
    if (stop != 32) & (np.uint8(stop - np.uint8(9)) > 4):  # no white space; with `_is_white` half as fast
        return 0.0, at, False
    number = np.float64(_add_up(values, count)) / _POWERS[count - point]
    return -number if negative else number, at + size, True


@inlined_kernel
def _parse_number(data: NDArray[np.uint8], at: Any, end: Any) -> tuple[Any, Any, bool]:
    """Parse ``[+-]digits[.digits][e[+-]digits]`` up to white space, a comment or ``end``.

    Returns the number, where it ends, and whether it is exact; if not, neither of the others counts.
    """
    negative = False
    if at < end and (data[at] == 43 or data[at] == 45):
        negative = data[at] == 45
        at += 1
    mantissa, digits = eight_digits(data, at, end)
    at += digits
    power = np.int64(0)
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
            if mantissa < _ROOM_FOR_EIGHT:
                more, count = eight_digits(data, at + 1, end)
                mantissa = mantissa * _TENS[count] + more
                digits += count
                power -= count
                at += count
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


@inlined_kernel
def flag_label(data: NDArray[np.uint8], start: Any, end: Any) -> tuple[Any, Any]:
    """Return what is wrong with a label, and where it ends."""
    at, flag = start, 0
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
    if at - start > 15:
        flag |= FRACTIONAL_LABEL  # float64, through which labels are parsed, is not exact there
    return flag, at


@inlined_kernel
def _flag_index(data: NDArray[np.uint8], at: Any, end: Any, last: Any) -> tuple[Any, Any, Any]:
    """Return an index, where it ends, and what is wrong with it; ``last`` is that before."""
    flag = 0
    if end - at >= 4 and data[at] == 113 and data[at + 1] == 105 and data[at + 2] == 100:
        flag |= HAS_QID
    if data[at] == 43:
        at += 1
    index, at, is_number = _parse_index(data, at, end)
    if not is_number or at >= end or data[at] != 58:
        flag |= BAD_INDEX
    elif index >= 2147483647:
        flag |= HUGE_INDEX
    elif index <= last:
        flag |= NOT_INCREASING
    return index, at, flag


@inlined_kernel
def _flag_rest(data: NDArray[np.uint8], at: Any, end: Any) -> tuple[Any, Any]:
    """Return what is wrong with the rest of a token, and where it ends."""
    while at + 8 <= end:
        eight = load_eight(data, at)
        ends = (eight - np.uint64(33) * _ONES) & ~eight & _HIGH | _are(eight, 35)
        size, plain = trailing_zeros(ends) >> 3, trailing_zeros(_are(eight, 95)) >> 3
        if plain < size:
            break
        at += size
        if size < 8:
            return 0, at
    flag = 0
    while at < end and data[at] > 32 and data[at] != 35:
        if data[at] == 95:
            flag |= BAD_TOKEN
        at += 1
    return flag, at


@kernel
def describe_svmlight(
    data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64], described: Description
) -> None:
    """Read the feature indices of svmlight records, and their errors; not the values.

    `starts` and `ends` are the byte offsets of the records; `described` is filled.
    """
    for i in range(starts.shape[0]):
        end = ends[i]
        flag, at = flag_label(data, starts[i], end)
        first, last = np.int64(1) << 62, np.int64(-1)
        while at < end and data[at] != 35:
            if data[at] <= 32:
                at += 1
                continue
            index, at, wrong = _flag_index(data, at, end, last)
            if wrong & ~NOT_INCREASING == 0:
                first, last = min(first, index), max(last, index)
            more, at = _flag_rest(data, at, end)
            flag |= wrong | more
        described.smallest[i], described.largest[i], described.flags[i] = first, last, flag


@kernel
def parse_svmlight(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    base: int,
    n_features: int,
    described: Description,
    rows: SvmlightRows,
) -> np.int64:
    """Parse records, and describe them as `describe_svmlight` does; return the number of valid ones.

    `base` is the index of the first feature. `rows` is filled with the records whose indices are valid;
    it has space for an entry in three bytes of each record.
    """
    n, k = np.int64(0), np.int64(0)
    rows.indptr[0] = 0
    for i in range(starts.shape[0]):
        end = ends[i]
        flag, at = flag_label(data, starts[i], end)
        rows.labels[k], _, all_exact = _parse_number(data, starts[i], end)
        first, last = np.int64(1) << 62, np.int64(-1)
        n = rows.indptr[k]
        while at < end and data[at] != 35:
            if data[at] <= 32:
                at += 1
                continue
            index, at, wrong = _flag_index(data, at, end, last)
            flag |= wrong
            if wrong & ~NOT_INCREASING == 0:
                first, last = min(first, index), max(last, index)
                rows.indices[n] = index - base
                number, behind, exact = _parse_short(data, at + 1, end)
                if not exact:
                    number, behind, exact = _parse_number(data, at + 1, end)
                rows.values[n], at = number, behind
                n += 1
                if exact:  # nothing of the token is left
                    continue
                all_exact = False
            more, at = _flag_rest(data, at, end)
            flag |= more
        described.smallest[i], described.largest[i], described.flags[i] = first, last, flag
        if flag & ~FRACTIONAL_LABEL == 0 and first >= base and last - base < n_features:
            rows.record[k], rows.odd[k] = i, not all_exact
            k += 1
            rows.indptr[k] = n
    return k
