import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import bigmc
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


INNER = """
from bigmc.kernels.decorators import inner_kernel

@inner_kernel
def factor():
    return {factor}
"""
OUTER = """
from bigmc.kernels.decorators import kernel
from bigmc.kernels.zz_inner import factor

@kernel
def scaled(x):
    return factor() * x
"""


@pytest.mark.exhaustive
def test_what_is_cached_is_used_while_no_file_of_the_kernels_has_another_content(tmp_path):
    package = tmp_path / "bigmc"
    shutil.copytree(Path(bigmc.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    kernels = package / "kernels"
    inner, outer = kernels / "zz_inner.py", kernels / "zz_outer.py"
    outer.write_text(OUTER)

    def compiled():
        """Return what the kernel returns of 1, and the compiled files that were written for it."""
        before = {file.name: file.stat().st_mtime_ns for file in kernels.rglob("*.nbc")}
        code = "from bigmc.kernels.zz_outer import scaled; print(scaled(1))"
        environment = os.environ | {"PYTHONPATH": str(tmp_path)}
        environment.pop("NUMBA_CACHE_DIR", None)
        command = [sys.executable, "-c", code]
        ran = subprocess.run(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, check=True)
        after = {file.name: file.stat().st_mtime_ns for file in kernels.rglob("*.nbc")}
        return int(ran.stdout), {name for name in after if after[name] != before.get(name)}

    inner.write_text(INNER.format(factor=2))
    value, written = compiled()
    assert (value, bool(written)) == (2, True)
    assert compiled() == (2, set())
    inner.write_text(INNER.format(factor=3))
    assert compiled()[0] == 3
