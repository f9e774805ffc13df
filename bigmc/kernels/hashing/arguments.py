"""What kernels from text to counts take: arrays that belong together, by name."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# Within a kernel an integer is an int64, outside an int.
Int = Any
Bytes = NDArray[np.uint8]
Words = NDArray[np.uint32]
Shorts = NDArray[np.uint16]
Longs = NDArray[np.int64]
Ints = NDArray[np.int32]
Bits = NDArray[np.uint64]


class FoldedText(NamedTuple):
    """Folded documents, see `bigmc.kernels.hashing.folding`.

    Attributes
    ----------
    text : uint8 array
        The documents, one behind the other.
    bound : uint32 array
        Where each unit begins, and the last one ends.
    units : int64 array of shape (at least n_rows + 1,)
        Document ``k`` has the units ``units[k] .. units[k + 1]``.
    """

    text: Bytes
    bound: Words
    units: Longs


class NGrams(NamedTuple):
    """Which n-grams of a document count: the analyzer's code, smallest and largest n."""

    analyzer: Int
    n_min: Int
    n_max: Int


class Tile(NamedTuple):
    """N-grams of n units that begin with the units ``first + lo .. first + hi`` of a document.

    Attributes
    ----------
    first, lo, hi, n : int
    narrow : bool
        The document has one byte per character; only its ends are in `FoldedText.bound`.
    """

    first: Int
    lo: Int
    hi: Int
    n: Int
    narrow: Any


class Group(NamedTuple):
    """Documents next to each other.

    Attributes
    ----------
    first, n_units : int
        They have the units ``first .. first + n_units``.
    narrow : bool
        All of them have one byte per character.
    """

    first: Int
    n_units: Int
    narrow: Any


class HashScratch(NamedTuple):
    """What hashing works in.

    Attributes
    ----------
    reach : uint32 array of shape (at least the units of a document,)
        Length of the piece from each character to the next space.
    parts : uint32 array of shape (7, `bigmc.kernels.hashing.murmur.TILE`)
    counts : uint16 array of shape (2**14,)
        Of pairs of ASCII characters; zeros before and after.
    grouped : uint32 array of shape (`bigmc.kernels.hashing.ngrams.GROUP_SIZES`, ``TILE + WIDTH``)
        Hashes of the n-grams of several documents, a row for each n.
    """

    reach: Words
    parts: Words
    counts: Shorts
    grouped: Words


class Ranges(NamedTuple):
    """Ranges ``text[starts:starts + sizes]``."""

    text: Bytes
    starts: Words
    sizes: Words


class SpelledNames(NamedTuple):
    """Names with their hashes.

    Attributes
    ----------
    text : uint8 array
        The names, one behind the other.
    offsets : int64 array of shape (n_names + 1,)
        Name ``k`` is ``text[offsets[k]:offsets[k + 1]]``.
    hashes : uint32 array of shape (n_names,)
    """

    text: Bytes
    offsets: Longs
    hashes: Words


class MarkedText(NamedTuple):
    """Lower-cased documents, with a mark for every byte: 1 if it belongs to a word character.

    Attributes
    ----------
    text, marks : uint8 arrays
    text_words : uint64 array
        The memory of the text, eight bytes in one.
    begins : int64 array of shape (at least n_rows + 1,)
        Document ``k`` is ``begins[k] .. begins[k + 1]``.
    """

    text: Bytes
    marks: Bytes
    text_words: Bits
    begins: Longs


class WordLists(NamedTuple):
    """Words of documents, and what finding them works in.

    Attributes
    ----------
    starts, sizes : uint32 arrays
        Of each word; they have an entry for every run of word characters.
    units : int64 array of shape (at least n_rows + 1,)
        Document ``k`` has the words ``units[k] .. units[k + 1]``.
    bits : uint64 array
        Scratch: a bit for every byte.
    rank : uint32 array
        Scratch: an entry for every 64 bytes.
    kept : uint32 array
        Scratch: an entry for every run of word characters.
    """

    starts: Words
    sizes: Words
    units: Longs
    bits: Bits
    rank: Words
    kept: Words


class HashedRows(NamedTuple):
    """Documents as hashes; there are ``2**hash_bits`` features.

    Attributes
    ----------
    offsets : int64 array of shape (n_documents + 1,)
        Document ``k`` has the hashes ``offsets[k] .. offsets[k + 1]``.
    hashes : uint32 array
    times : uint16 array
        How often each counts.
    hash_bits : int
    """

    offsets: Longs
    hashes: Words
    times: Shorts
    hash_bits: Int


class HashList(NamedTuple):
    """Hashes that are filled.

    Attributes
    ----------
    hashes : uint32 array
    times : uint16 array of the same shape
        How often each counts.
    longest : int
        In documents of more n-grams every hash counts once.
    """

    hashes: Words
    times: Shorts
    longest: Int


class SortScratch(NamedTuple):
    """What sorting works in.

    Attributes
    ----------
    keys, spare : uint64 arrays of shape (`bigmc.kernels.hashing.rows.SORTED`,)
    heads : uint32 array of shape (`bigmc.kernels.hashing.rows.DIGITS`, ``1 << DIGIT``)
    ends : int64 array of shape (documents,)
    """

    keys: Bits
    spare: Bits
    heads: Words
    ends: Longs


class CountedRows(NamedTuple):
    """Rows that are filled: entry ``indptr[k]`` goes to ``indptr[k] - base`` of indices and values."""

    base: Int
    indptr: Longs
    indices: Ints
    values: Ints


class NameTable(NamedTuple):
    """A table of frequent names, see `bigmc.kernels.hashing.frequent_names.count_names`.

    Attributes
    ----------
    keys : uint32 array of shape (n_slots,)
        Hash of the name in each slot.
    seen, rank : int64 arrays of shape (n_slots,)
        Bounds on its count.
    lengths : uint32 array of shape (n_slots,)
        Its whole length.
    names : uint8 array of shape (n_slots, width)
    """

    keys: Words
    seen: Longs
    rank: Longs
    lengths: Words
    names: Bytes
