"""Arrow strings before folding: tables, pieces, and the documents that only Python can lower-case."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bigmc.errors import DataError
from bigmc.kernels import hashing_fold as folding

Nulls = Literal["refuse", "empty"]

# str.lower makes two code points of the first and looks around the second (final sigma).
SPECIAL_CODE_POINTS = (0x130, 0x3A3)

PIECE_BYTES = 4 << 20  # text looked at in one go


@functools.cache
def fold_table(lowercase: bool) -> NDArray[np.uint32]:
    r"""Tabulate what folding makes of every code point, as the running Python knows it.

    Parameters
    ----------
    lowercase : bool
        Whether letters are lower-cased.

    Returns
    -------
    uint32 array of shape (0x110000,)
        The folded code point in the low 21 bits, and whether that is a word character (``\w``) or white space
        (``\s``) in the flags `bigmc.kernels.hashing_fold.IS_WORD` and ``IS_SPACE``. Of the two special code
        points, which never reach the table when it lower-cases, only the flags are right.
    """
    table = np.arange(0x110000, dtype=np.uint32)
    surrogates = slice(0xD800, 0xE000)
    plain = np.delete(table, np.r_[surrogates, list(SPECIAL_CODE_POINTS)])
    if lowercase:
        lowered = plain.astype("<u4").tobytes().decode("utf-32-le").lower()
        table[plain] = np.frombuffer(lowered.encode("utf-32-le"), "<u4")
    flags = np.zeros(len(table), np.uint32)
    # Not by chr(): a million strings of one character would take 90 MB for a moment.
    everything = np.arange(0x110000, dtype="<u4").tobytes().decode("utf-32-le", "surrogatepass")
    for pattern, flag in ((r"\w+", folding.IS_WORD), (r"\s+", folding.IS_SPACE)):
        for run in re.finditer(pattern, everything):
            flags[run.start() : run.end()] |= flag
    table |= flags[table]
    table.setflags(write=False)
    return table


def string_pieces(
    texts: pa.Array | pa.ChunkedArray, nulls: Nulls = "refuse", piece_bytes: int | None = None
) -> Iterator[tuple[int, pa.Array, NDArray[np.int64], NDArray[np.uint8]]]:
    """Walk through the strings of an Arrow array by pieces of some megabytes.

    Parameters
    ----------
    texts : pyarrow Array or ChunkedArray
        Strings: ``string`` or ``large_string``, or what casts to it without loss (views, dictionaries).
    nulls : {"refuse", "empty"}
        Whether a missing string is an error or an empty string.
    piece_bytes : int, optional
        Text in a piece, unless one string is longer; `PIECE_BYTES` if not given.

    Yields
    ------
    first : int
        Row of the piece's first string.
    piece : pyarrow Array
        The strings.
    offsets : int64 array of shape (len(piece) + 1,)
        Where each string begins and ends in ``data``.
    data : uint8 array
        The UTF-8 bytes, not copied.

    Raises
    ------
    DataError
        If the array holds no strings, or a null that is to be refused.
    """
    if texts.null_count:
        if nulls == "refuse":
            row = pc.index(texts.is_null(), True).as_py()
            raise DataError(f"row {row}: the text is missing (null)", "fill or quarantine missing texts")
        texts = texts.cast(pa.large_string()).fill_null("")
    piece_bytes = piece_bytes or PIECE_BYTES
    first = 0
    for chunk in texts.chunks if isinstance(texts, pa.ChunkedArray) else [texts]:
        if chunk.type not in (pa.string(), pa.large_string()):
            try:
                chunk = chunk.cast(pa.large_string())
            except pa.ArrowException as error:
                raise DataError(f"texts have the type {chunk.type}", "give a column of strings") from error
        if len(chunk) == 0:
            continue
        wide = chunk.type == pa.large_string()
        _, starts, data = chunk.buffers()
        ends: NDArray[Any] = np.frombuffer(starts, np.int64 if wide else np.int32)
        offsets: NDArray[np.int64] = ends[chunk.offset : chunk.offset + len(chunk) + 1].astype(
            np.int64, copy=False
        )
        text = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
        start = 0
        while start < len(chunk):
            stop = int(np.searchsorted(offsets, offsets[start] + piece_bytes, side="right")) - 1
            stop = min(max(stop, start + 1), len(chunk))
            yield first + start, chunk[start:stop], offsets[start : stop + 1], text
            start = stop
        first += len(chunk)


def lower_special(
    piece: pa.Array, offsets: NDArray[np.int64], text: NDArray[np.uint8]
) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Offsets and bytes in which Python has lower-cased the documents that no table can.

    The two arrays given are returned where there is none of them, which is the rule.
    """
    special = np.empty(len(piece), np.bool_)
    if folding.special_rows(offsets, text, special) == 0:
        return offsets, text
    mask = pa.array(special)
    piece = piece.cast(pa.large_string())
    documents = [document.lower() for document in piece.filter(mask).to_pylist()]
    piece = pc.replace_with_mask(piece, mask, pa.array(documents, pa.large_string()))
    [(_, _, offsets, text)] = string_pieces(piece, piece_bytes=1 << 62)
    return offsets, text
