"""Columns of chosen features, compressed, cut into chunks of randomly drawn samples.

A chunk has the same share of the samples of (nearly) every shard, so that its loss represents that of all.
Compressed, the chosen columns are mostly a small part of the bytes of the data. Those that fit stay in
memory; the others go to a scratch file, which costs less to read again than the shards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigmc.engine import Engine, ThreadEngine, for_each
from bigmc.kernels.csc import undo_delta
from bigmc.solvers.sparse.columns import Columns
from bigmc.solvers.sparse.scratch.chunk import Chunk, Samples
from bigmc.solvers.sparse.scratch.layer_reader import stored_blocks
from bigmc.solvers.sparse.scratch.layer_writer import Layer, LayerWriter
from bigmc.solvers.sparse.scratch.row_scales import RowsOf
from bigmc.solvers.sparse.scratch.scratch_arrays import ScratchArrays, ShardPlaces, Stored
from bigmc.solvers.sparse.scratch.shard_blocks import Block, Watch, decoded_blocks
from bigmc.store.dataset import Dataset
from bigmc.store.sample import hashed_shares
from bigmc.store.shards.shard import Shard

#: Entries decoded at once, and features whose offsets are looked at together.
PIECE_ENTRIES, PIECE_FEATURES = 1 << 18, 1 << 16
#: A chunk takes samples of at most about so many shards: each has its own offsets.
_PIECES = 16
#: Pieces of a part of a shard at least, unless a shard is one: beside its scores are those of a piece.
_PART_PIECES = 4


@dataclass(frozen=True, slots=True)
class Piece:
    """Samples of one shard that belong to one chunk."""

    shard: int
    part: int
    chunk: int
    n_rows: int


class Spill:
    """Compressed columns of the candidates; without layers there are labels and scales only.

    Parameters
    ----------
    weights : float64 array of shape (n_samples,) or None
        Of the samples.
    seed : int
        Which samples go to which chunk depends on it and on their ids alone.
    folder : Path or None
        Of the file, by default the system's for temporary files.
    rows_of : callable
        Gives labels and scales of each shard, see `bigmc.solvers.sparse.scratch.row_scales`.
    most_held : int
        Bytes of columns that stay in memory, at most.
    shard_parts : int
        Parts that passes cut a shard into.
    engine : Engine, optional
        Of this process, whose threads decode chunks.

    Attributes
    ----------
    layers : list of Layer
    n_parts : int
        Parts of every shard, each of which has its samples in one chunk.
    n_bytes : int
        Decoded bytes read from shards, and bytes read from and written to the file.
    """

    def __init__(
        self,
        dataset: Dataset,
        weights: NDArray[np.float64] | None,
        n_chunks: int,
        seed: int,
        folder: Path | None,
        rows_of: RowsOf,
        most_held: int = 0,
        shard_parts: int = 1,
        engine: Engine | None = None,
    ) -> None:
        self._dataset, self._seed, self._engine = dataset, seed, engine or ThreadEngine(1)
        self._arrays = ScratchArrays(folder, most_held)
        self._column_scale = dataset.column_scale()
        self.n_chunks = n_chunks
        self.layers: list[Layer] = []
        self.n_bytes = 0
        self._shard_parts = shard_parts
        self.n_parts = max(1, min(n_chunks, _PIECES * n_chunks // max(dataset.n_shards, 1)))
        cuts = shard_parts > 1 or (self.n_parts > 1 and dataset.n_shards <= 2 * _PIECES)
        if cuts and self.n_parts < _PART_PIECES * shard_parts:
            # few shards spread evenly over the chunks if these have the same number of pieces of each; many
            # do anyway, and then a chunk would have offsets of all of them
            self.n_parts = -(-_PART_PIECES * shard_parts // n_chunks) * n_chunks
        self._rows: dict[int, ShardPlaces] = {}
        self.pieces = [
            piece for s in range(dataset.n_shards) for piece in self._place_rows(s, weights, *rows_of(s))
        ]
        self._weighted = weights is not None

    @property
    def held_bytes(self) -> int:
        """Bytes of columns in memory."""
        return self._arrays.held_bytes

    @property
    def size(self) -> tuple[int, int]:
        """Bytes of columns in memory, and number of features in all layers."""
        return self.held_bytes, sum(map(len, self.features_by_layer))

    @property
    def most_pieces(self) -> int:
        """Pieces that a chunk has at most."""
        return max(Counter(piece.chunk for piece in self.pieces).values(), default=0)

    @property
    def features(self) -> NDArray[np.int64]:
        """Features of all layers, layer by layer."""
        return np.concatenate([np.empty(0, np.int64), *self.features_by_layer])

    @property
    def features_by_layer(self) -> list[NDArray[np.int64]]:
        """Features of each layer, increasing."""
        return [layer.features for layer in self.layers]

    def close(self) -> None:
        """Give the file back."""
        self._arrays.close()

    def drop_columns(self) -> None:
        """Forget all layers, and give back the memory they take."""
        self.layers = []
        self._arrays.drop_held()

    def _place_rows(
        self,
        s: int,
        weights: NDArray[np.float64] | None,
        labels: NDArray[np.int32],
        scale: NDArray[np.float32],
    ) -> list[Piece]:
        """Write labels and scales of the samples of a shard, piece by piece."""
        first, parts = self._first_chunk(s), self._parts(s)
        stored: dict[int, list[Stored]] = {}
        pieces = []
        for part in range(self.n_parts):
            rows = np.flatnonzero(parts == part)
            if not len(rows):
                continue
            arrays: list[NDArray[Any]] = [rows.astype(np.uint16), labels[rows].ravel(), scale[rows]]
            if weights is not None:
                arrays.append(weights[self._dataset.base[s] + rows])
            stored[part] = [self._write(array) for array in arrays]
            pieces.append(Piece(s, part, (first + part) % self.n_chunks, len(rows)))
        self._rows[s] = ShardPlaces.of(stored, self.n_parts)
        return pieces

    def put_scales(self, s: int, scale: NDArray[np.float32]) -> None:
        """Write other scales of the rows of a shard."""
        parts = self._parts(s)
        for part in self._present_parts(s):
            self._rows[s].of_part(part)[2] = self._write(scale[parts == part])

    def rows_of_shard(self, s: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return labels and scales of the samples of a shard, in their order; not counted."""
        samples, _ = self.samples_of([piece for piece in self.pieces if piece.shard == s])
        return samples.label_sets(), samples.row_scale(None)

    def _first_chunk(self, s: int) -> int:
        generator = np.random.default_rng([self._seed, self._dataset.n_shards])
        return int(generator.permutation(self._dataset.n_shards)[s]) * self.n_parts % self.n_chunks

    def _parts(self, s: int) -> NDArray[np.int16]:
        """Return the part of its shard each sample is in."""
        ids = self._dataset.shards[s].table(["row_id"]).column("row_id").to_numpy()
        shares = hashed_shares(ids, self._seed + 1)
        return np.asarray((shares * self.n_parts).astype(np.int16))

    def add(self, features: NDArray[np.int64], watches: Sequence[Watch] = ()) -> None:
        """Write the columns of increasing `features` as one more layer.

        With `watches` all columns of all shards are read, for them to look at too. Only the first layer stays
        in memory, as far as it fits.
        """
        writer = self.writer(features)
        self.read_columns(writer, range(self._dataset.n_shards), watches)
        self.put(writer)

    def writer(self, features: NDArray[np.int64]) -> LayerWriter:
        """Return what writes the columns of increasing `features`, once it has seen all shards."""
        shares = np.cumsum(self._dataset.column_nnz(features)) / max(self._dataset.n_samples, 1)
        store = self._arrays.write if self.layers else self._arrays.hold
        return LayerWriter(features, shares, self._parts_of, store)

    def move(self, old: Spill, features: NDArray[np.int64]) -> None:
        """Write the first layer from the columns of another spill, which gives them back on the way."""
        writer = self.writer(features)
        for s in range(self._dataset.n_shards):
            columns = writer.of_shard(s, self._dataset.shards[s].n_rows)
            for block in old.blocks_of_shard(s):
                columns.add(block)
            columns.finish()
            old.give_back(s)
        self.n_bytes += old.n_bytes
        old.n_bytes = 0
        self.put(writer)

    def blocks_of_shard(self, s: int) -> Iterator[Block]:
        """Put the columns of all layers together, for one shard."""
        places = {part: self._positions((s, part)) for part in self._present_parts(s)}
        self.n_bytes += self._file_bytes(s)
        return stored_blocks(self.layers, s, places, self._dataset.dtype, self._arrays.read)

    def give_back(self, s: int) -> None:
        """Give back the memory of the columns of a shard and of those before it."""
        keys = [(s, part) for part in self._present_parts(s)]
        self._arrays.give_back(
            max((layer.held_up_to(key) for layer in self.layers for key in keys), default=0)
        )

    @property
    def column_bytes(self) -> tuple[int, int]:
        """Compressed bytes of the columns in memory, and in the file."""
        return self.held_bytes, sum(self._file_bytes(s) for s in range(self._dataset.n_shards))

    def _file_bytes(self, s: int) -> int:
        """Return the bytes of the columns of a shard that are in the file."""
        return sum(layer.file_bytes((s, part)) for part in self._present_parts(s) for layer in self.layers)

    def read_columns(self, writer: LayerWriter, shards: Iterable[int], watches: Sequence[Watch] = ()) -> None:
        """Let a writer see its columns of some shards; with `watches` all columns are read."""
        for s in shards:
            shard = self._dataset.shards[s]
            seen_by = [watch.of_shard(s, shard.n_rows) for watch in (writer, *watches)]
            for block in self._blocks(shard, None if watches else writer.layer.features):
                for watch in seen_by:
                    watch.add(block)
            for watch in seen_by:
                watch.finish()

    def most_decoded(self, features: NDArray[np.int64]) -> int:
        """Return the entries decoded at most to write the columns of increasing `features`, one at least.

        Each is decoded with those up to the next, where that is less than what is decoded at once.
        """
        up_to_next = np.add.reduceat(self._dataset.column_nnz()[: features[-1] + 1], features)
        return int(np.minimum(up_to_next, PIECE_ENTRIES * self._dataset.n_shards).sum())

    def decoded(self, s: int) -> Iterator[Block]:
        """Decode all columns of a shard."""
        return self._blocks(self._dataset.shards[s], None)

    def put(self, writer: LayerWriter) -> None:
        """Add the layer of a writer that has seen all shards."""
        self.n_bytes += writer.n_bytes
        self.layers.append(writer.layer)

    def _parts_of(self, s: int) -> tuple[NDArray[np.int16], list[int]]:
        """Return the part of each row of a shard, and the parts that have rows."""
        return self._parts(s), self._present_parts(s)

    def _present_parts(self, s: int) -> list[int]:
        return self._rows[s].parts

    def _blocks(self, shard: Shard, features: NDArray[np.int64] | None) -> Iterator[Block]:
        """Decode ranges of columns: those between the first and last of some `features`, or all."""
        for block in decoded_blocks(self._dataset, shard, PIECE_ENTRIES, PIECE_FEATURES, features):
            self.n_bytes += len(block.indices) * self._dataset.entry_bytes
            yield block

    def _write(self, array: NDArray[Any]) -> Stored:
        stored = self._arrays.write(array)
        self.n_bytes += stored.file_bytes
        return stored

    def chunk(self, number: int) -> Chunk:
        """Read a chunk."""
        return self.read(self.pieces_of_chunk(number))

    def read(self, pieces: Sequence[Piece]) -> Chunk:
        """Read the samples of some pieces together."""
        chunk = self._load(pieces)
        self.n_bytes += chunk.n_bytes
        return chunk

    def chunks(self, numbers: Iterable[int] | None = None) -> Iterator[Chunk]:
        """Read chunks in turn, by default all, but for those whose samples have no weight."""
        for number in range(self.n_chunks) if numbers is None else numbers:
            chunk = self.chunk(number)
            if not chunk.samples.weightless:
                yield chunk

    def pieces_of_chunk(self, number: int) -> list[Piece]:
        """Return the pieces of a chunk."""
        return [piece for piece in self.pieces if piece.chunk == number]

    def pieces_of_shard(self, s: int, number: int, shard_parts: int) -> list[Piece]:
        """Return the pieces of one of the parts of a shard whose scores a pass has in memory together."""
        return [
            piece
            for piece in self.pieces
            if piece.shard == s and piece.part * shard_parts // self.n_parts == number
        ]

    def load(self, piece: Piece) -> Chunk:
        """Read the samples of a piece. Safe to call from several threads, and not counted."""
        return self._load([piece])

    def samples_of(self, pieces: Sequence[Piece]) -> tuple[Samples, NDArray[np.int64]]:
        """Return labels and scales of some pieces of a shard, and the places of the samples in it.

        They are in the order of the shard; not counted.
        """
        samples, positions = self._samples(pieces)
        places = np.concatenate(positions).astype(np.int64)
        order = np.argsort(places)
        weights = None if samples.weights is None else samples.weights[order]
        labels, scale = samples.label_sets()[order], samples.row_scale(None)[order]
        return Samples(self._dataset, labels, scale, weights, self._column_scale), places[order]

    def _load(self, pieces: Sequence[Piece]) -> Chunk:
        base = np.concatenate([[0], np.cumsum([piece.n_rows for piece in pieces], dtype=np.int64)])
        samples, positions = self._samples(pieces)
        held = [self._columns(n, layer, pieces, base) for n, layer in enumerate(self.layers)]
        keys = [(piece.shard, piece.part) for piece in pieces]
        n_bytes = sum(self._rows[s].file_bytes(part) for s, part in keys)
        n_bytes += sum(layer.file_bytes(key) for key in keys for layer in self.layers)
        return Chunk(samples, held, positions, n_bytes)

    def _samples(self, pieces: Sequence[Piece]) -> tuple[Samples, list[NDArray[np.uint16]]]:
        """Return labels and scales of some pieces, and the places of each one's samples in its shard."""
        positions, labels, scales, weights = [], [], [], []
        for piece in pieces:
            own = self._rows[piece.shard].stored(piece.part)
            positions.append(self._positions((piece.shard, piece.part)))
            labels.append(self._arrays.read(own[1], np.empty(own[1].size, np.int32)))
            scales.append(self._arrays.read(own[2], np.empty(piece.n_rows, np.float32)))
            if self._weighted:
                weights.append(self._arrays.read(own[3], np.empty(piece.n_rows)))
        most = max(len(codes) // piece.n_rows for codes, piece in zip(labels, pieces, strict=True))
        together = np.full((sum(piece.n_rows for piece in pieces), most), -1, np.int32)
        first = 0
        for codes, piece in zip(labels, pieces, strict=True):
            rows = codes.reshape(piece.n_rows, -1)
            together[first : first + piece.n_rows, : rows.shape[1]] = rows
            first += piece.n_rows
        samples = Samples(
            self._dataset,
            together,
            np.concatenate(scales),
            np.concatenate(weights) if weights else None,
            self._column_scale,
        )
        return samples, positions

    def _positions(self, key: tuple[int, int]) -> NDArray[np.uint16]:
        """Return the rows of a shard that one of its parts has."""
        stored = Stored.of(self._rows[key[0]].of_part(key[1])[0])
        return self._arrays.read(stored, np.empty(stored.size, np.uint16))

    def _columns(
        self, number: int, layer: Layer, pieces: Sequence[Piece], base: NDArray[np.int64]
    ) -> Columns:
        n_columns = len(layer.features)
        indptr = np.zeros((len(pieces), n_columns + 1), np.int64)
        counts = np.empty(n_columns, np.int32)
        start = 0
        for offsets, piece in zip(indptr, pieces, strict=True):
            self._arrays.read(layer.counts((piece.shard, piece.part)), counts)
            np.cumsum(counts, out=offsets[1:])
            offsets += start
            start = int(offsets[-1])
        indices, data = np.empty(start, np.uint16), np.empty(start, self._dataset.dtype)

        def decode(number: int) -> None:
            at, piece = int(indptr[number, 0]), pieces[number]
            for rows, values in layer.entries((piece.shard, piece.part)):
                undo_delta(self._arrays.read(rows, indices[at:]))
                self._arrays.read(values, data[at:])
                at += rows.size

        for_each(self._engine, decode, range(len(pieces)))
        return Columns(number, layer.features, np.arange(n_columns), indptr, indices, data, base, start)
