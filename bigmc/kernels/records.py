"""Where the records of a text file begin and end: the byte scans under the text readers.

A record of a delimited file (CSV, TSV) ends at a line break outside quotes; a record of the other
text formats is a line. The scan looks at eight bytes at a time and stops only at a quote or a line
break, which keeps it well above the speed of a disk.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

# What `split_records` remembers between two calls on the same buffer.
WORD: Final = 0  # eight-byte word to go on with
START: Final = 1  # where the open record began
LINE: Final = 2  # line breaks so far
QUOTED: Final = 3  # 1 inside a quoted field
CLOSED: Final = 4  # where the last quoted field was closed
RETURN: Final = 5  # 1 when the byte before the buffer was a carriage return
RECORD_LINE: Final = 6  # line breaks before the open record
STATE_SIZE: Final = 7

NO_QUOTE: Final = -1

_ONES: Final = np.uint64(0x0101010101010101)
_HIGH: Final = np.uint64(0x8080808080808080)
_PLACE: Final = np.uint64(0x0001020304050607)
_NEWLINES: Final = np.uint64(0x0A0A0A0A0A0A0A0A)
_RETURNS: Final = np.uint64(0x0D0D0D0D0D0D0D0D)


class Buffer(NamedTuple):
    """Bytes of a text file.

    Attributes
    ----------
    words : uint64 array
        Eight bytes at a time, padded to whole words.
    data : uint8 array
        The same memory as bytes.
    size : int
        Number of bytes that count.
    """

    words: NDArray[np.uint64]
    data: NDArray[np.uint8]
    size: int


class Records(NamedTuple):
    """Byte offsets of each record, without its line break, and the number of line breaks before it."""

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    lines: NDArray[np.int64]


@njit(cache=True, nogil=True, fastmath=False)
def split_records(buffer: Buffer, quote: int, delimiter: int, state: NDArray[np.int64], out: Records) -> int:
    r"""Find the complete, non-empty records of a buffer that begins at a record.

    The grammar is pyarrow's CSV grammar: a quote opens a quoted field only at the start of a field,
    ``""`` inside a quoted field is a quote, a quote elsewhere is an ordinary character, and ``\n``,
    ``\r`` and ``\r\n`` outside quotes end a record. With ``quote = NO_QUOTE`` a record ends at ``\n``.

    Parameters
    ----------
    buffer : Buffer
    quote, delimiter : int
        Byte values; ``quote = NO_QUOTE`` for plain lines.
    state : int64 array of shape (STATE_SIZE,)
        Zeros (and ``CLOSED = -2``) at first; updated, so that a call can go on where the last one
        ran out of room.
    out : Records
        Filled.

    Returns
    -------
    n_records : int
        Number of records found. ``state[WORD]`` is past the last word when the buffer is finished.
    """
    words, data, size = buffer
    starts, ends, lines = out
    quoting = quote != NO_QUOTE
    quotes = np.uint64(quote if quoting else 10) * _ONES
    breaks = _RETURNS if quoting else _NEWLINES
    start = state[START]
    line = state[LINE]
    quoted = state[QUOTED] == 1
    closed = state[CLOSED]
    record_line = state[RECORD_LINE]
    n_words = (size + 7) // 8
    n = 0
    word = state[WORD]
    while word < n_words:
        if n + 8 > starts.shape[0]:
            break
        x = words[word]
        a = x ^ _NEWLINES
        b = x ^ breaks
        c = x ^ quotes
        # Marks every byte sought; a byte right above one may be marked too, and is passed over below.
        hits = (((a - _ONES) & ~a) | ((b - _ONES) & ~b) | ((c - _ONES) & ~c)) & _HIGH
        while hits != 0:
            low = hits & (~hits + np.uint64(1))
            hits ^= low
            at = word * 8 + np.int64(((low >> np.uint64(7)) * _PLACE) >> np.uint64(56))
            if at >= size:
                break
            byte = np.int64(data[at])
            if byte == 10 or (quoting and byte == 13):
                follows = quoting and byte == 10 and (data[at - 1] == 13 if at > 0 else state[RETURN] == 1)
                if not follows:
                    line += 1
                if not quoted:
                    if at > start:
                        starts[n] = start
                        ends[n] = at
                        lines[n] = record_line
                        n += 1
                    start = at + 1
                    record_line = line
            elif quoting and byte == quote:
                if quoted:
                    quoted = False
                    closed = at
                elif at == start or closed == at - 1 or np.int64(data[at - 1]) == delimiter:
                    quoted = True
        word += 1
    state[WORD] = word
    state[START] = start
    state[LINE] = line
    state[QUOTED] = 1 if quoted else 0
    state[CLOSED] = closed
    state[RECORD_LINE] = record_line
    return n


@njit(cache=True, nogil=True, fastmath=False)
def trim_lines(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    comment: int,
    keep: NDArray[np.bool_],
) -> None:
    """Strip white space around each line, in place, and say which lines hold a record.

    White space is that of JSON, and with comments that of Python, which has two characters more.

    Parameters
    ----------
    data : uint8 array
        The buffer.
    starts, ends : int64 arrays of shape (n_lines,)
        Byte offsets of the lines; narrowed to their content.
    comment : int
        Byte that begins a line without a record; -1 when there is none.
    keep : bool array of shape (n_lines,)
        Set to False for lines that are empty or a comment.
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


@njit(cache=True, nogil=True, fastmath=False)
def first_not_finite(
    indptr: NDArray[np.int64], data: NDArray[Any], missing: bool, found: NDArray[np.int64]
) -> None:
    """Find the first entry of each row that is NaN or infinite.

    Parameters
    ----------
    indptr : int64 array of shape (n_rows + 1,)
        Entries of row ``i`` are ``indptr[i]:indptr[i + 1]``.
    data : float array
        The entries.
    missing : bool
        NaN is a missing value, and not looked for.
    found : int64 array of shape (n_rows,)
        Filled with the offset of the entry in ``data``, or -1.
    """
    for i in range(indptr.shape[0] - 1):
        found[i] = -1
        for k in range(indptr[i], indptr[i + 1]):
            if not (np.isfinite(data[k]) or (missing and np.isnan(data[k]))):
                found[i] = k
                break
