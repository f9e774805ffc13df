import numpy as np
import pytest

from bigmc.kernels.decorators import inlined_kernel, inner_kernel, kernel


@inner_kernel
def doubled(x):
    return 2 * x


@inlined_kernel
def raised(x):
    return x + 1


@kernel
def both(x):
    return doubled(raised(x))


@pytest.mark.parametrize("inner", [doubled, raised])
def test_only_kernels_call_what_has_no_entry_for_python(inner):
    for _ in range(2):  # not compiled yet, and compiled
        with pytest.raises(TypeError, match="kernels only"):
            inner(1.5)
        assert both(1.5) == 5.0
    with pytest.raises(TypeError, match="kernels only"):
        inner(np.float32(1.5))
