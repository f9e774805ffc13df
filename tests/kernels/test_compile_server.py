import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import bigmc
from bigmc.kernels import compile_server

pytestmark = pytest.mark.slow

CALL = """
import sys
import numpy as np
from bigmc.kernels.csc import undo_delta
from bigmc.kernels.compile_server import compile_elsewhere
compile_elsewhere()
{before}
values = np.array([1, 0, 2], np.uint16)
undo_delta(values)
print(values.tolist(), sum(undo_delta.stats.cache_hits.values()), sum(undo_delta.stats.cache_misses.values()))
"""


@pytest.mark.parametrize(
    ("before", "hits", "misses"),
    [("", 1, 0), ("sys.executable = '/nowhere/python'", 0, 1), ("sys.executable = '/bin/false'", 0, 1)],
    ids=["a child compiles", "no child can start", "the child fails"],
)
def test_a_kernel_is_compiled_by_a_child_or_here(before: str, hits: int, misses: int, tmp_path: Path) -> None:
    root = str(Path(bigmc.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", CALL.format(before=before)],
        env={**os.environ, "PYTHONPATH": root, "NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == f"[1, 1, 3] {hits} {misses}"


SEVERAL = """
import os
import numpy as np
from bigmc.kernels import compile_server as cold
from bigmc.kernels.csc import undo_delta
cold.compile_elsewhere()
seen = []
def call(dtype):
    values = np.array([1, 0, 2], dtype)
    undo_delta(values)
    assert values.tolist() == [1, 1, 3]
    seen.append(cold._child.process.pid)
call(np.uint16), call(np.uint32)
assert seen[0] == seen[1]  # one child for both
if os.fork() == 0:
    call(np.int32)
    os._exit(seen[2] == seen[1])
assert os.wait()[1] == 0  # a fork has a child of its own
cold._child.process.kill()
cold._child.process.wait()
call(np.int64)
assert seen[2] != seen[1]  # one that has ended is replaced
assert sum(undo_delta.stats.cache_hits.values()) == 3
child = cold._child.process
child.stdin.close()
assert child.wait(60) == 0  # it ends with the process that started it
"""


def test_a_child_compiles_until_it_or_its_process_ends(tmp_path: Path) -> None:
    root = str(Path(bigmc.__file__).parents[1])
    env = {**os.environ, "PYTHONPATH": root, "NUMBA_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", SEVERAL], env=env, check=True)


def test_a_child_without_work_ends() -> None:
    idle = "from bigmc.kernels import compile_server as cold; cold._IDLE = 0.1; cold._serve()"
    root = str(Path(bigmc.__file__).parents[1])
    env = {**os.environ, "PYTHONPATH": root}
    with subprocess.Popen([sys.executable, "-c", idle], env=env, stdin=subprocess.PIPE) as child:
        assert child.wait(60) == 0  # though nobody closed its input


def test_a_warm_kernel_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    from bigmc.kernels.csc import undo_delta

    undo_delta(np.array([1, 0, 2], np.uint16))  # compiled, and in the cache
    monkeypatch.setattr(compile_server, "_compile_in_child", lambda *_: pytest.fail("the cache is warm"))
    cache = compile_server._ChildCache(undo_delta.py_func)
    assert cache.load_overload(undo_delta.signatures[0], undo_delta.targetctx) is not None


def test_modules_beside_the_data_are_not_imported(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for shadowed in ("numpy", "random"):
        (data / f"{shadowed}.py").write_text("open('executed', 'w').close()\nraise SystemExit\n")
    (tmp_path / "program.py").write_text(CALL.format(before=""))
    root = str(Path(bigmc.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, tmp_path / "program.py"],
        env={**os.environ, "PYTHONPATH": root, "NUMBA_CACHE_DIR": str(tmp_path / "cache")},
        cwd=data,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[1, 1, 3] 1 0"
    assert not (data / "executed").exists()
