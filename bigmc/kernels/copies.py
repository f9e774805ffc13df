# mypy: disable-error-code="no-untyped-def, no-untyped-call"
"""Copies between arrays, without numba's assignment to slices.

For each ``out[:n] = values`` numba compiles code that writes an error message with both shapes, which takes
one or two seconds in every kernel that has one.
"""

from __future__ import annotations

from bigmc.kernels.decorators import inlined_kernel


@inlined_kernel
def copy_to(values, out):
    """Write values to the beginning of an array, which is as long or longer."""
    for k in range(values.shape[0]):
        out[k] = values[k]
