"""Which svmlight records may widen the range of the indices, before any of them is described or parsed."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigmc.kernels.decorators import inlined_kernel, kernel
from bigmc.kernels.svmlight import eight_digits, flag_label


class Extent(NamedTuple):
    """What is known of the records before: extreme indices, and whether all labels are integers.

    Without any indices these are ``2**62`` and ``-1``.
    """

    smallest: int
    largest: int
    whole_labels: bool


@inlined_kernel
def _has_comment_or_q(data: NDArray[np.uint8]) -> Any:
    """Return whether there is a ``#``, or the ``q`` of ``qid``."""
    has_any = np.uint8(0)
    for at in range(data.shape[0]):
        has_any |= np.uint8(data[at] == 35) | np.uint8(data[at] == 113)
    return has_any != 0


@inlined_kernel
def _plain_index(data: NDArray[np.uint8], at: Any, end: Any) -> Any:
    """Return the index of up to seven digits before a colon, -1 where something else is."""
    index, digits = eight_digits(data, at, end)
    at += digits
    is_plain = digits > 0 and digits < 8 and at < end and data[at] == 58
    return index if is_plain else np.int64(-1)


@kernel
def find_wider(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    known: Extent,
    wider: NDArray[np.int64],
) -> np.int64:
    """Find the records that may extend what is known of those before; the others need no description.

    The indices of a record increase, or it is a bad one, which does not count: if its first and last are
    within the known ones, those between change nothing. Their numbers are written to `wider`, of shape
    (n_records,), and their count is returned.
    """
    n = np.int64(0)
    is_odd = _has_comment_or_q(data)
    for i in range(starts.shape[0]):
        end = ends[i]
        flag, at = flag_label(data, starts[i], end)
        while at < end and data[at] <= 32:
            at += 1
        may_widen = is_odd or (flag != 0 and known.whole_labels)
        if not may_widen and at < end:
            while data[end - 1] <= 32:
                end -= 1
            last = end
            while last > at and data[last - 1] > 32:
                last -= 1
            largest = _plain_index(data, last, end)
            may_widen = _plain_index(data, at, end) < known.smallest or largest < 0 or largest > known.largest
        if may_widen:
            wider[n] = i
            n += 1
    return n
