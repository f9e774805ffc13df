"""Write and read the chunk files of zarr v3 arrays directly; any zarr reader can open them.

An array is one row of elements: one-dimensional, or two-dimensional, chunked by whole columns and
stored column after column (zarr's ``transpose`` codec). Chunks are blosc-lz4 with a crc32c.

Measured by thread time on hashed Python source, words and pairs (23 M entries) and characters 1 to 3; the
rows of a shard, as differences; bytes per entry, and M entries per second packed and decoded:

====================  =====  ======  ======   =====  ======  ======
bitshuffle and        words  packed  decoded  chars  packed  decoded
====================  =====  ======  ======   =====  ======  ======
lz4hc 5 (version 1)   1.42   31      660      .61    55      750
lz4 9                 1.50   370     1030     .67    470     1130
lz4 1                 1.54   530     1040     .71    590     1210
zstd 1                1.34   140     280      .57    200     330
====================  =====  ======  ======   =====  ======  ======

lz4hc took a fifth of the processor time of an ingest, and decoding, which every out-of-core pass needs, is
slower, for 5 to 10 % fewer bytes. Without differences (``numcodecs.delta``, a dependency of zarr)
rows take a tenth to a fifth more. Eight-byte floats have random low bits: shuffling whole bytes is
twice as fast and 3 % smaller.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import threading
from collections.abc import Mapping
from concurrent.futures import Executor
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from bigmc.kernels.csc import undo_delta
from bigmc.store.files import disk
from bigmc.store.files.layout import FileEntry, damaged
from bigmc.store.files.untrusted import parse_json

#: Elements of a chunk. A block of features takes one slice of every shard and decodes whole chunks, on
#: average one too many per shard. Bytes read over size, and M entries per second of processor time, for
#: four shards of 1.4 M entries in slices of 0.28 M (`bench/store.py --shards 4`):
#:
#:    64 Ki  1.22  216      128 Ki  1.39  207      256 Ki  1.73  128      1 Mi  3.35  88
#:
#: (one run on a busy machine). 64 Ki is as fast there and better for narrower slices (0.09 M entries: 1.81
#: and 140 against 2.46 and 113), for twice as many files. Larger chunks compress no better (1.486 and
#: 1.483 bytes per entry for 128 and 256 Ki). Decoding a part of a chunk is not possible: numcodecs 0.16
#: has no partial blosc decoder, and delta starts at the front.
CHUNK = 1 << 17

#: Maximum elements of a chunk that is read, unless one column has more.
_MOST_CHUNK = 1 << 20

_CRC_BYTES = 4


class Form(Enum):
    """Storage of the elements of an array: plain, or as differences, for increasing integers."""

    PLAIN = "plain"
    DIFFERENCES = "differences"


class Codec(NamedTuple):
    """Blosc's compressor, its level, and its shuffle: bits (``bitshuffle``) or bytes."""

    name: str
    level: int
    shuffle: Literal["shuffle", "bitshuffle"] = "bitshuffle"


@cache
def _blosc() -> Any:
    """Return blosc, imported late: predictions of raw files do without numcodecs."""
    from numcodecs import blosc

    # Blosc's own threads would compete with our threads over parts.
    blosc.use_threads = False
    return blosc


def _codec(dtype: np.dtype[Any], form: Form) -> Codec:
    """Return the compression of the elements of an array.

    Multi-byte integers are mostly small, and their upper bits repeat the sign.
    lz4 compresses these worse (0.55 bytes per entry) than zstd (0.35).
    """
    if dtype.kind == "i" and dtype.itemsize > 1 and form is Form.PLAIN:
        return Codec("zstd", 1)
    return Codec("lz4", 9, "shuffle" if dtype == np.float64 else "bitshuffle")


def _readable(dtype: np.dtype[Any], form: Form) -> tuple[Codec, ...]:
    """Return the compressions of arrays in this version and in version 1 of the store."""
    return _codec(dtype, form), Codec("lz4hc", 5)


class ByteCounter:
    """Counts the bytes read from files by all threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.total = 0

    def add(self, n: int) -> None:
        """Count `n` bytes."""
        with self._lock:
            self.total += n


class ArrayWriter:
    """Writes one array, chunk after chunk, into a new folder.

    The shape is ``(size,)`` or ``(n_rows, n_columns)``; the second is given and stored column after
    column. A chunk has at most `chunk` elements, rounded down to whole columns. Paths in `files` are
    relative to `root`.
    """

    def __init__(
        self,
        folder: Path,
        root: Path,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        *,
        form: Form = Form.PLAIN,
        chunk: int = CHUNK,
    ) -> None:
        self.files: list[FileEntry] = []
        self._folder, self._root, self._form = folder, root, form
        self._size = int(np.prod(shape))
        column = shape[0] if len(shape) == 2 else 1
        units = max(1, min(chunk // max(column, 1), shape[-1]))
        self._buffer = np.zeros(units * max(column, 1), dtype)
        self._filled = self._given = 0
        self._first = "0/" if len(shape) == 2 else ""
        chunk_shape = [max(column, 1), units] if len(shape) == 2 else [units]
        self._codec = _codec(np.dtype(dtype), form)
        disk.make_folder(folder / "c" / self._first)
        metadata = _metadata(shape, dtype, chunk_shape, form, self._codec)
        self._write("zarr.json", json.dumps(metadata, indent=1).encode())

    def append(self, values: NDArray[Any], pool: Executor | None = None) -> None:
        """Write the next elements in stored order; a pool compresses several chunks at once."""
        flat = values.reshape(-1)
        self._given += flat.size
        if pool is not None and not self._filled:
            whole = flat.size // self._buffer.size * self._buffer.size
            for content in pool.map(self._packed, flat[:whole].reshape(-1, self._buffer.size)):
                self._write_chunk(content)
            flat = flat[whole:]
        while flat.size:
            n = min(flat.size, self._buffer.size - self._filled)
            self._buffer[self._filled : self._filled + n] = flat[:n]
            self._filled += n
            flat = flat[n:]
            if self._filled == self._buffer.size:
                self._flush()

    def close(self) -> list[FileEntry]:
        """Write the last chunk, padded with zeros as in zarr, and return all files written."""
        if self._filled:
            self._buffer[self._filled :] = 0
            self._flush()
        if self._given != self._size:
            raise ValueError(f"{self._folder} got {self._given} elements instead of {self._size}")
        return self.files

    def _flush(self) -> None:
        self._write_chunk(self._packed(self._buffer))
        self._filled = 0

    def _packed(self, chunk: NDArray[Any]) -> bytes:
        """Return a chunk as it is stored."""
        if self._form is Form.DIFFERENCES:
            chunk = np.diff(chunk, prepend=chunk.dtype.type(0))
        name, level, shuffle = self._codec
        blosc = _blosc()
        packed: bytes = blosc.compress(chunk, name.encode(), level, getattr(blosc, shuffle.upper()))
        return packed + int(google_crc32c.value(packed)).to_bytes(_CRC_BYTES, "little")

    def _write_chunk(self, content: bytes) -> None:
        self._write(f"c/{self._first}{len(self.files) - 1}", content)

    def _write(self, name: str, content: bytes) -> None:
        path = self._folder / name
        disk.write_file(path, content)
        digest = hashlib.sha256(content).hexdigest()
        self.files.append(FileEntry(path.relative_to(self._root).as_posix(), len(content), digest))


def _metadata(
    shape: tuple[int, ...], dtype: np.dtype[Any], chunk_shape: list[int], form: Form, codec: Codec
) -> Mapping[str, Any]:
    """Return zarr.json of an array."""
    codecs: list[Mapping[str, Any]] = []
    if form is Form.DIFFERENCES:
        codecs.append({"name": "numcodecs.delta", "configuration": {"dtype": dtype.str}})
    if len(shape) == 2:
        codecs.append({"name": "transpose", "configuration": {"order": [1, 0]}})
    endian = {"configuration": {"endian": "little"}} if dtype.itemsize > 1 else {}
    codecs.append({"name": "bytes", **endian})
    packing = {"typesize": dtype.itemsize, "cname": codec.name, "clevel": codec.level, "blocksize": 0}
    codecs.append({"name": "blosc", "configuration": {**packing, "shuffle": codec.shuffle}})
    codecs.append({"name": "crc32c"})
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(shape),
        "data_type": dtype.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk_shape}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0,
        "codecs": codecs,
        "attributes": {"encoding-type": "array", "encoding-version": "0.2.0"},
        "storage_transformers": [],
    }


class _Scratch(threading.local):
    """Memory of one thread: the raw chunk file, and per kind of array the last decoded chunk.

    Keeping that chunk lets many small sequential reads, as for a few columns of a shard, decode each
    chunk only once.
    """

    def __init__(self) -> None:
        self.packed = np.empty(0, np.uint8)
        self.decoded: dict[tuple[str, np.dtype[Any]], NDArray[Any]] = {}
        self.holds: dict[tuple[str, np.dtype[Any]], tuple[int, int]] = {}


_scratch = _Scratch()
_serial = itertools.count()


class ArrayReader:
    """Reads ranges of one array's elements, in stored order, directly from its chunk files.

    `expected` has the SHA-256 of every file, by its path in the folder. A chunk is checked when it is
    first read; from then on its crc32c must stay the same. This detects exchanged chunks, at a one-time
    cost of 0.6 ns per byte. `StoreError` if zarr.json is missing, damaged or describes an array that
    `ArrayWriter` does not write.
    """

    def __init__(self, folder: Path, counter: ByteCounter, expected: Mapping[str, str] | None = None) -> None:
        file = folder / "zarr.json"
        try:
            text = file.read_bytes()
            digest = hashlib.sha256(text).hexdigest()
            fields = parse_json(text)
            self.shape = tuple(int(n) for n in fields["shape"])
            self.dtype = np.dtype(fields["data_type"])
            chunk_shape = [int(n) for n in fields["chunk_grid"]["configuration"]["chunk_shape"]]
            differences = fields["codecs"][0]["name"] == "numcodecs.delta"
            self._form = Form.DIFFERENCES if differences else Form.PLAIN
            described = (
                _metadata(self.shape, self.dtype, chunk_shape, self._form, codec)
                for codec in _readable(self.dtype, self._form)
            )
            known = any(fields == metadata for metadata in described)
            known = known and _is_plausible(self.shape, chunk_shape)
        except OSError as error:
            raise damaged(file, f"cannot be read ({error.strerror})") from None
        except (ValueError, KeyError, TypeError, IndexError):
            known = False
        if expected is not None and digest != expected.get("zarr.json"):
            raise damaged(file, "its contents have changed")
        if not known:
            raise damaged(file, "does not describe an array as bigmc writes it")
        counter.add(len(text))
        self.size = int(np.prod(self.shape))
        self._counter = counter
        self._chunk = int(np.prod(chunk_shape))
        self._below = "c/0/" if len(self.shape) == 2 else "c/"
        self._prefix = f"{folder}/{self._below}"
        self._kind = (folder.name, self.dtype)
        self._serial = next(_serial)
        self._expected = expected
        self._checked: dict[int, int] = {}

    def read(self, start: int, stop: int, out: NDArray[Any]) -> None:
        """Read the elements ``start`` to ``stop`` into `out`, converted to its dtype."""
        at = 0
        while start < stop:
            number, offset = divmod(start, self._chunk)
            n = min(stop - start, self._chunk - offset)
            target = out[at : at + n]
            if n == self._chunk and target.dtype == self.dtype and target.flags.c_contiguous:
                self._decode(number, target)
            else:
                target[:] = self._decoded(number)[offset : offset + n]
            at += n
            start += n

    def _decoded(self, number: int) -> NDArray[Any]:
        """Return a chunk in this thread's memory, decoded unless it was the last one."""
        held = _scratch.decoded.get(self._kind)
        if held is None or held.size < self._chunk:
            held = _scratch.decoded[self._kind] = np.empty(self._chunk, self.dtype)
            _scratch.holds.pop(self._kind, None)
        chunk = held[: self._chunk]
        if _scratch.holds.get(self._kind) != (self._serial, number):
            _scratch.holds.pop(self._kind, None)
            self._decode(number, chunk)
            _scratch.holds[self._kind] = (self._serial, number)
        return chunk

    def _decode(self, number: int, target: NDArray[Any]) -> None:
        """Read, check and decode one chunk into `target`."""
        path = self._prefix + str(number)
        # No chunk is larger than its elements plus blosc's header; one byte more shows a longer file.
        most = target.nbytes + _blosc().MAX_OVERHEAD + _CRC_BYTES + 1
        if _scratch.packed.size < most:
            _scratch.packed = np.empty(most, np.uint8)
        buffer = _scratch.packed[:most]
        try:
            handle = os.open(path, os.O_RDONLY)
            try:
                size = os.preadv(handle, [buffer.data], 0)
            finally:
                os.close(handle)
        except OSError as error:
            raise damaged(path, f"cannot be read ({error.strerror})") from None
        self._counter.add(size)
        body, checksum = buffer[: max(size - _CRC_BYTES, 0)], buffer[max(size - _CRC_BYTES, 0) : size]
        blosc = _blosc()
        if len(body) < blosc.MAX_OVERHEAD or google_crc32c.value(body) != int.from_bytes(checksum, "little"):
            raise damaged(path, "is damaged: its checksum does not match")
        # Blosc checks neither length itself: bytes 4-7 are the decoded size, 12-15 the packed one.
        sizes = body[4:16].view("<u4")
        if sizes[0] != target.nbytes or sizes[2] != len(body):
            raise damaged(path, f"is another chunk: it holds {sizes[0]} bytes instead of {target.nbytes}")
        self._compare(number, path, buffer[:size], int.from_bytes(checksum, "little"))
        try:
            blosc.decompress(body, target)
        except (RuntimeError, ValueError) as error:
            raise damaged(path, f"cannot be decoded ({error})") from None
        if self._form is Form.DIFFERENCES:
            undo_delta(target)

    def _compare(self, number: int, path: str, content: NDArray[np.uint8], checksum: int) -> None:
        """Raise an error if a chunk is not the one written here."""
        if self._expected is None:
            return
        before = self._checked.get(number)
        if before is None:
            if hashlib.sha256(content.data).hexdigest() != self._expected.get(f"{self._below}{number}"):
                raise damaged(path, "its contents have changed")
            self._checked[number] = checksum
        elif before != checksum:
            raise damaged(path, "has changed since it was first read")


def _is_plausible(shape: tuple[int, ...], chunk_shape: list[int]) -> bool:
    """Return whether an array has chunks like those of `ArrayWriter`, which fit into memory."""
    column = shape[0] if len(shape) == 2 else 1
    full = [max(column, 1)] if len(shape) == 2 else []
    most = max(_MOST_CHUNK, column)
    return (
        len(shape) in (1, 2)
        and min(shape) >= 0
        and chunk_shape[:-1] == full
        and 0 < math.prod(chunk_shape) <= most
    )
