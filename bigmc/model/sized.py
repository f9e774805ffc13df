"""Memory of a model, from the sizes of its arrays in memory or in its file."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from numpy.typing import NDArray

from bigmc.model.feature_names import NAME_COST, sizes_of_names
from bigmc.store.files.npy import ArraySize

LABEL_COST = 128
"""Bytes of a label in addition to its array: as an object of Python, in a list and in a set."""


class Sized(ABC):
    """A model as the sizes of its arrays; `bigmc.model.base.Model` is one, and its kinds extend it."""

    classes: NDArray[Any]
    n_features: int
    column_scale: NDArray[Any] | None
    names: pa.Table | None

    @abstractmethod
    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the kind's own fields, as named arrays of numbers or plain text."""

    @property
    def nbytes(self) -> int:
        """Bytes in memory while the model is opened; the same as of its file, by its sizes alone."""
        return self.bytes_of(self._stored_sizes(), self.n_features)

    @property
    def kept_bytes(self) -> int:
        """Bytes in memory while the model is used."""
        return self.nbytes - self.unpacked_bytes(self._stored_sizes())

    def _stored_sizes(self) -> dict[str, ArraySize]:
        sizes = {"classes": ArraySize.of(self.classes), **self._sizes()}
        if self.column_scale is not None:
            sizes["column_scale"] = ArraySize.of(self.column_scale)
        if self.names is not None:
            sizes |= sizes_of_names(self.names)
        return sizes

    def _sizes(self) -> dict[str, ArraySize]:
        """Return the sizes of the arrays of `to_arrays`."""
        return {name: ArraySize.of(array) for name, array in self.to_arrays().items()}

    @classmethod
    def bytes_of(cls, sizes: Mapping[str, ArraySize], n_features: int) -> int:
        """Return the bytes in memory, while it is opened, of a model whose file has these arrays."""
        n_classes = math.prod(sizes["classes"].shape)
        return sum(size.nbytes for size in sizes.values()) + LABEL_COST * n_classes + _cost_of_names(sizes)

    @classmethod
    def unpacked_bytes(cls, sizes: Mapping[str, ArraySize]) -> int:
        """Return the bytes that are freed when a model has been opened."""
        return _cost_of_names(sizes)


def _cost_of_names(sizes: Mapping[str, ArraySize]) -> int:
    """Return the bytes for checking the names, besides their arrays."""
    names = sizes.get("names_ends")
    return 0 if names is None else NAME_COST * math.prod(names.shape)
