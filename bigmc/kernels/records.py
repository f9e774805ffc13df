"""Where the records of a text file begin and end: the byte scans under the text readers.

A record of a delimited file (CSV, TSV) ends at a line break outside quotes; a record of the other
text formats is a line. The scan looks at 64 bytes at a time and stops only at a quote or, outside quotes,
at a line break, which keeps it well above the speed of a disk.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigmc.kernels.byte_masks import BLOCK, bit_count, equal_bytes, trailing_zeros
from bigmc.kernels.decorators import kernel

# What `split_records` remembers between two calls on the same buffer.
NEXT: Final = 0  # where the next block begins
START: Final = 1  # where the open record began
LINE: Final = 2  # line breaks so far
QUOTED: Final = 3  # 1 inside a quoted field
CLOSED: Final = 4  # where the last quoted field was closed
RETURN: Final = 5  # 1 when the byte before the buffer was a carriage return
RECORD_LINE: Final = 6  # line breaks before the open record
STATE_SIZE: Final = 7

NO_QUOTE: Final = -1

_ALL: Final = ~np.uint64(0)
_ONE: Final = np.uint64(1)
_FEED: Final = np.uint8(10)
_RETURN: Final = np.uint8(13)


class Buffer(NamedTuple):
    """Bytes of a text file, of which `size` count; `data` has at least `BLOCK` more."""

    data: NDArray[np.uint8]
    size: int


class Records(NamedTuple):
    """Byte offsets of each record, without its line break, and the number of line breaks before it."""

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    lines: NDArray[np.int64]


@kernel
def split_records(buffer: Buffer, quote: int, delimiter: int, state: NDArray[np.int64], out: Records) -> int:
    r"""Find the complete, non-empty records of a buffer that begins at a record; return their number.

    The grammar is pyarrow's CSV grammar: a quote opens a quoted field only at the start of a field,
    ``""`` inside a quoted field is a quote, a quote elsewhere is an ordinary character, and ``\n``,
    ``\r`` and ``\r\n`` outside quotes end a record. With ``quote = NO_QUOTE`` a record ends at ``\n``.
    `state`, of shape (STATE_SIZE,), is zero (and ``CLOSED = -2``) at first; it is updated, so that a call
    can continue where the last one stopped because `out`, of at least `BLOCK` records, was full.
    ``state[NEXT]`` is past the last block when the buffer is finished.
    """
    data, size = buffer
    starts, ends, lines = out
    quoting = quote != NO_QUOTE
    start = state[START]
    line = state[LINE]
    quoted = state[QUOTED] == 1
    closed = state[CLOSED]
    record_line = state[RECORD_LINE]
    n = 0
    base = state[NEXT]
    after_return = np.uint64(state[RETURN] if base == 0 else np.int64(quoting and data[base - 1] == _RETURN))
    while base < size and n + BLOCK <= starts.shape[0]:
        within = _ALL if size - base >= BLOCK else (_ONE << np.uint64(size - base)) - _ONE
        breaks = equal_bytes(data, base, _FEED) & within
        quotes = np.uint64(0)
        counted = breaks
        if quoting:
            quotes = equal_bytes(data, base, np.uint8(quote)) & within
            returns = equal_bytes(data, base, _RETURN) & within
            # Of a return and the feed behind it only the first counts.
            counted = returns | (breaks & ~((returns << _ONE) | after_return))
            after_return = returns >> np.uint64(BLOCK - 1)
            breaks |= returns
        left = _ALL
        while True:
            hits = (quotes if quoted else breaks | quotes) & left
            if hits == np.uint64(0):
                break
            low = np.uint64(trailing_zeros(hits))
            at = base + np.int64(low)
            bit = _ONE << low
            left = ~(bit | (bit - _ONE))
            if quoted:
                closed = at
                again = quotes & (bit << _ONE)
                left &= ~again  # the second of two quotes, which are one inside the field
                quoted = again != np.uint64(0)
            elif bit & quotes != np.uint64(0):
                quoted = at == start or closed == at - 1 or np.int64(data[at - 1]) == delimiter
            else:
                if at > start:
                    starts[n] = start
                    ends[n] = at
                    lines[n] = record_line
                    n += 1
                start = at + 1
                record_line = line + bit_count(counted & ~left)
        line += bit_count(counted)
        base += BLOCK
    state[NEXT] = base
    state[START] = start
    state[LINE] = line
    state[QUOTED] = 1 if quoted else 0
    state[CLOSED] = closed
    state[RECORD_LINE] = record_line
    return n


@kernel
def trim_lines(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    comment: int,
    keep: NDArray[np.bool_],
) -> None:
    """Strip white space around each line, in place, and mark the lines that hold a record.

    White space is that of JSON, and with comments that of Python, which has two characters more. `starts`
    and `ends` are narrowed to the contents. `comment` is the byte that begins a line without a record, or
    -1; `keep` is set to False for lines that are empty or a comment.
    """
    white = np.zeros(256, dtype=np.bool_)
    white[9] = white[10] = white[13] = white[32] = True
    white[11] = white[12] = comment >= 0
    for i in range(starts.shape[0]):
        lo = starts[i]
        hi = ends[i]
        while lo < hi and white[data[lo]]:
            lo += 1
        while hi > lo and white[data[hi - 1]]:
            hi -= 1
        starts[i] = lo
        ends[i] = hi
        keep[i] = lo < hi and np.int64(data[lo]) != comment


@kernel
def first_not_finite(
    indptr: NDArray[np.int64], data: NDArray[Any], missing: bool, offsets: NDArray[np.int64]
) -> None:
    """Write the offset in `data` of the first entry of each row that is NaN or infinite, or -1.

    If `missing`, NaN is a missing value, and is skipped. Row ``i`` has the entries ``indptr[i]:indptr[i +
    1]``.
    """
    for i in range(indptr.shape[0] - 1):
        offsets[i] = -1
        for k in range(indptr[i], indptr[i + 1]):
            if not (np.isfinite(data[k]) or (missing and np.isnan(data[k]))):
                offsets[i] = k
                break
