"""Weighting of values while they are read; the store keeps them raw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from bigmc.errors import DataError

_ALWAYS_WRITTEN = {"binary", "l2", "idf"}
_NAMED = {
    "counts": {},
    "binary": {"binary": True},
    "l2": {"l2": True},
    "tfidf": {"l2": True, "idf": True},
    "scaled": {"scaled": True},
}


@dataclass(frozen=True)
class Weighting:
    """Value used = stored value × row scale × column scale, as scikit-learn computes it.

    With `binary` every stored entry counts as 1, explicit zeros included, as in
    ``HashingVectorizer(binary=True)``. With `l2` each row is divided by its Euclidean norm; a row of norm
    0 stays 0. With `idf` each column is multiplied by ``ln((1 + n) / (1 + df)) + 1`` as in
    ``TfidfTransformer(smooth_idf=True)``, ``df`` being the stored entries of the column. With `scaled`,
    which excludes `idf`, each column is divided by its standard deviation, a constant column by 1.
    """

    binary: bool = False
    l2: bool = False
    idf: bool = False
    scaled: bool = False

    def __post_init__(self) -> None:
        if not all(isinstance(value, bool) for value in asdict(self).values()):  # as read from a file
            raise TypeError(f"the weighting is {asdict(self)}")

    @property
    def scales_columns(self) -> bool:
        """Whether columns have scales, which a model stores."""
        return self.idf or self.scaled

    @classmethod
    def named(cls, name: str) -> Weighting:
        """Return the weighting called ``"counts"``, ``"binary"``, ``"l2"``, ``"tfidf"`` or ``"scaled"``."""
        if name not in _NAMED:
            raise DataError(f"no weighting is called {name!r}", f"use one of {', '.join(_NAMED)}")
        return cls(**_NAMED[name])

    @property
    def name(self) -> str | None:
        """Name by which `named` makes it, or None."""
        return next((name for name, fields in _NAMED.items() if Weighting(**fields) == self), None)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Weighting:
        """Return the weighting written by `to_dict`; `TypeError` if it is none."""
        if missing := _ALWAYS_WRITTEN - set(fields):
            raise TypeError(f"it does not say {', '.join(sorted(missing))}")
        return cls(**fields)

    def to_dict(self) -> dict[str, bool]:
        """Return the fields as a dict for JSON; `scaled` only if it is set."""
        flags: dict[str, bool] = asdict(self)
        if not self.scaled:
            del flags["scaled"]
        return flags
