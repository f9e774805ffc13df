"""Assign rows to splits, by a hash of their number or group."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from numbers import Real

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigmc.errors import DataError
from bigmc.store.row_hash import splitmix64, unit_interval

_CURE = "write it like train=0.8,test=0.2"


def parse_splits(text: str) -> dict[str, float]:
    """Return the shares in a text such as ``train=0.8,test=0.2``; a lone name takes everything.

    `DataError` if the text cannot be read or the shares do not add up to 1.
    """
    shares: dict[str, float] = {}
    for item in text.split(","):
        name, _, share = item.partition("=")
        try:
            value = float(share) if share else 1.0
        except ValueError:
            raise DataError(f"{share!r} is not a share of a split", _CURE) from None
        if name.strip() in shares:
            raise DataError(f"the split {name.strip()!r} is named twice", _CURE)
        shares[name.strip()] = value
    return check_splits(shares)


def check_splits(shares: Mapping[str, float]) -> dict[str, float]:
    """Return the shares if they are positive and add up to 1.

    `DataError` if they do not, or a name is not made of letters, digits, ``_`` and ``-``.
    """
    if not isinstance(shares, Mapping) or not all(isinstance(share, Real) for share in shares.values()):
        raise DataError(f"the splits are {shares!r}, not shares by name", _CURE)
    for name, share in shares.items():
        if not re.fullmatch(r"[\w-]+", name):
            raise DataError(f"{name!r} cannot be the name of a split: use letters, digits, - and _", _CURE)
        if not 0 < share <= 1:
            raise DataError(f"the split {name!r} has the share {share:g}, not above 0 and up to 1", _CURE)
    if abs(sum(shares.values()) - 1) > 1e-9:
        raise DataError(f"the shares of the splits add up to {sum(shares.values()):g}, not 1", _CURE)
    return dict(shares)


def assign_splits(fractions: NDArray[np.float64], shares: Mapping[str, float]) -> NDArray[np.intp]:
    """Return for each number in [0, 1) the position of the split whose interval holds it."""
    edges = np.cumsum(list(shares.values()))[:-1]
    return np.searchsorted(edges, fractions, side="right")


def row_fractions(rows: NDArray[np.int64], seed: int) -> NDArray[np.float64]:
    """Return a number in [0, 1) for each row number: SplitMix64 (Steele, Lea and Flood 2014)."""
    with np.errstate(over="ignore"):
        states = rows.astype(np.uint64) + np.uint64(seed % 2**64) * np.uint64(0xD1342543DE82EF95)
        return unit_interval(splitmix64(states))


_LONGER = re.compile(r"(-?[0-9]+)\.0+|([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]00:00:00(\.0+)?")
"""Texts of whole numbers and days that are written longer than needed."""


def check_group_type(schema: pa.Schema, group: str | None) -> None:
    """Raise `DataError` if the column of groups has values that cannot be compared."""
    if group is None or not pa.types.is_nested(kind := schema.field(group).type):
        return
    cure = "give a column of texts, numbers or dates, or a field of objects"
    raise DataError(f"the groups in {group!r} have type {kind}", cure)


def group_hashes(groups: pa.Array, seed: int) -> NDArray[np.uint64]:
    """Return a hash for each row, the same for all rows of a group.

    Files of other days may have another type for the same groups, such as floats for ids some of which are
    missing: ``7``, ``7.0`` and the text ``7.0`` are one group, and so are a day and its midnight.
    """
    encoded = groups.dictionary_encode()
    values = encoded.dictionary.to_pylist()
    key = (seed % 2**64).to_bytes(8, "little")
    digests = (hashlib.blake2b(_name(v).encode(), digest_size=8, key=key).digest() for v in values)
    by_group = np.array([int.from_bytes(digest, "little") for digest in digests], dtype=np.uint64)
    hashes: NDArray[np.uint64] = by_group[np.asarray(encoded.indices)]
    return hashes


def _name(group: object) -> str:
    """Return a group as a text, the shortest of those that mean the same."""
    if isinstance(group, float) and group.is_integer():
        return str(int(group))  # a large one would have an exponent
    text = str(group)
    longer = _LONGER.fullmatch(text)
    return text if longer is None else longer[1] or longer[2]
