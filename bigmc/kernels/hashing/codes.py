"""Categories as codes: positions in the list of a column's values."""

from __future__ import annotations

from bigmc.kernels.decorators import kernel
from bigmc.kernels.hashing.arguments import Ints, Words


@kernel
def hashes_of_codes(codes: Ints, hashes: Words, out: Words) -> None:
    """Write the hash of each row's category; `out` may be a column of a 2-D array."""
    for i in range(codes.shape[0]):
        out[i] = hashes[codes[i]]
