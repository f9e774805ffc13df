import os

import numpy as np

from bigmc.solvers.sparse.scratch.scratch_arrays import ScratchArrays


def test_arrays_come_back_where_the_system_writes_a_few_bytes_at_a_time(tmp_path, monkeypatch):
    """A write may be cut short, as by a signal: what is left is written behind it."""
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda handle, data, at: write(handle, data[:5], at))
    arrays = [np.arange(n, dtype=np.uint16) * 7 for n in (300, 0, 1, 50)]
    scratch = ScratchArrays(tmp_path, 0)
    stored = [scratch.hold(array) for array in arrays]
    for array, place in zip(arrays, stored, strict=True):
        np.testing.assert_array_equal(scratch.read(place, np.empty(300, np.uint16)), array)
    scratch.close()
