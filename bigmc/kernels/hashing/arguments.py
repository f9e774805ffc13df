"""Arguments of the kernels from text to counts: arrays that belong together, by name."""

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
    """Folded documents, one after another, see `bigmc.kernels.hashing.folding`.

    `bound` has the beginning of each unit, and the end of the last. Document ``k`` has the units
    ``units[k] .. units[k + 1]``.
    """

    text: Bytes
    bound: Words
    units: Longs


class NGrams(NamedTuple):
    """The n-grams of a document that count: the analyzer's code, smallest and largest n."""

    analyzer: Int
    n_min: Int
    n_max: Int


class Tile(NamedTuple):
    """N-grams of n units that begin with the units ``first + lo .. first + hi`` of a document.

    A `narrow` document has one byte per character; only its ends are in `FoldedText.bound`.
    """

    first: Int
    lo: Int
    hi: Int
    n: Int
    narrow: Any


class Group(NamedTuple):
    """Neighbouring documents, with the units ``first .. first + n_units``.

    If `narrow`, all of them have one byte per character.
    """

    first: Int
    n_units: Int
    narrow: Any


class HashScratch(NamedTuple):
    """Scratch memory of hashing.

    `reach`, of at least the units of a document, is the length of the piece from each character to the
    next space. `parts` has the shape (7, `bigmc.kernels.hashing.murmur.TILE`). `counts`, of shape
    (2**14,), is for pairs of ASCII characters, and zero before and after. `grouped`, of shape
    (`bigmc.kernels.hashing.ngrams.GROUP_SIZES`, ``TILE + WIDTH``), has hashes of the n-grams of several
    documents, a row for each n.
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
    """Names, one after another, with their hashes: name ``k`` is ``text[offsets[k]:offsets[k + 1]]``."""

    text: Bytes
    offsets: Longs
    hashes: Words


class MarkedText(NamedTuple):
    """Lower-cased documents, with a mark for every byte: 1 if it belongs to a word character.

    `text_words` is the memory of the text, eight bytes in one. Document ``k`` is ``begins[k] .. begins[k
    + 1]``.
    """

    text: Bytes
    marks: Bytes
    text_words: Bits
    begins: Longs


class WordLists(NamedTuple):
    """Words of documents, and scratch memory for finding them.

    `starts` and `sizes` are those of each word, with space for every run of word characters; document
    ``k`` has the words ``units[k] .. units[k + 1]``. Of the scratch, `bits` has a bit for every byte,
    `rank` an element for every 64 bytes, and `kept` one for every run of word characters.
    """

    starts: Words
    sizes: Words
    units: Longs
    bits: Bits
    rank: Words
    kept: Words


class HashedRows(NamedTuple):
    """Documents as hashes, with their counts; there are ``2**hash_bits`` features.

    Document ``k`` has the hashes ``offsets[k] .. offsets[k + 1]``.
    """

    offsets: Longs
    hashes: Words
    times: Shorts
    hash_bits: Int


class HashList(NamedTuple):
    """Hashes to be written, with their counts; in documents of more than `longest` n-grams all count once."""

    hashes: Words
    times: Shorts
    longest: Int


class SortScratch(NamedTuple):
    """Scratch memory of sorting; see `bigmc.kernels.hashing.rows` for the constants.

    `keys` and `spare` have the shape (`SORTED`,), `heads` the shape (`DIGITS`, ``1 << DIGIT``), and
    `ends` an element for every document.
    """

    keys: Bits
    spare: Bits
    heads: Words
    ends: Longs


class CountedRows(NamedTuple):
    """Rows to be written: entry ``indptr[k]`` goes to ``indptr[k] - base`` of indices and values."""

    base: Int
    indptr: Longs
    indices: Ints
    values: Ints


class NameTable(NamedTuple):
    """A table of frequent names, see `bigmc.kernels.hashing.frequent_names.count_names`.

    Each slot has the hash of a name, bounds on its count, its whole length, and its first bytes.
    """

    keys: Words
    seen: Longs
    rank: Longs
    lengths: Words
    names: Bytes
