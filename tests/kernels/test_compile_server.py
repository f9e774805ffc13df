import os
import pickle
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numba
import pytest
from llvmlite import binding as llvm

import bigmc
from bigmc import kernels

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


def called(before: str, cache: Path) -> str:
    """Return what a process of its own says of a call: the result, and whether it was in the cache."""
    root = str(Path(bigmc.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", CALL.format(before=before)],
        env={**os.environ, "PYTHONPATH": root, "NUMBA_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with the kernel of the call."""
    cache = tmp_path_factory.mktemp("filled")
    called("", cache)
    return cache


@pytest.fixture
def own(filled: Path, tmp_path: Path) -> Path:
    """A copy of it, which a test may change."""
    return shutil.copytree(filled, tmp_path / "own")


@pytest.mark.exhaustive(keep=2)
@pytest.mark.parametrize(
    ("before", "hits", "misses"),
    [
        ("", 1, 0),
        ("sys.executable = None", 0, 1),
        ("sys.executable = '/nowhere/python'", 0, 1),
        ("sys.executable = '/bin/false'", 0, 1),
    ],
    ids=["a child compiles", "no program is known", "no child can start", "the child fails"],
)
def test_a_kernel_is_compiled_by_a_child_or_here(before: str, hits: int, misses: int, tmp_path: Path) -> None:
    assert called(before, tmp_path) == f"[1, 1, 3] {hits} {misses}"


IMPORTED_LATER = """
import sys
import numpy as np
from bigmc.kernels.compile_server import compile_elsewhere
compile_elsewhere()
from bigmc.kernels.csc import undo_delta
undo_delta(np.array([1, 0, 2], np.uint16))
print("numba.np.linalg" in sys.modules)
"""


def test_a_kernel_imported_later_is_loaded_without_what_only_a_compiler_needs(filled: Path) -> None:
    root = str(Path(bigmc.__file__).parents[1])
    env = {**os.environ, "PYTHONPATH": root, "NUMBA_CACHE_DIR": str(filled)}
    command = [sys.executable, "-c", IMPORTED_LATER]
    assert subprocess.check_output(command, env=env, text=True) == "False\n"


def test_an_index_of_an_older_version_whose_types_are_gone_is_made_anew(own: Path) -> None:
    (index,) = own.rglob("csc.undo_delta*.nbi")
    with index.open("rb") as file:
        version = pickle.load(file)
    index.write_bytes(pickle.dumps(version) + b"cbigmc.kernels.csc\n_Gone\n.")
    assert called("", own) == "[1, 1, 3] 1 0"


TAKING_TURNS = """
import subprocess
import sys
import time
import numpy as np
from numba.core.caching import IndexDataCacheFile
from bigmc.kernels.compile_server import compile_elsewhere
from bigmc.kernels.csc import undo_delta
compile_elsewhere()
started, start = [], subprocess.Popen
def noted(*args, **options):
    started.append(args)
    return start(*args, **options)
subprocess.Popen = noted
read = IndexDataCacheFile._load_index
def slowly_read(file):
    found = read(file)
    time.sleep(0.2)
    return found
IndexDataCacheFile._load_index = slowly_read
values = np.array([1, 0, 2], sys.argv[1])
{before}
undo_delta(values)
assert values.tolist() == [1, 1, 3]
print(len(started))
"""


def at_once(before: str, types: list[str], cache: Path) -> list[int]:
    """Return how many children processes started that call the kernel for these types at once."""
    root = str(Path(bigmc.__file__).parents[1])
    env = {**os.environ, "PYTHONPATH": root, "NUMBA_CACHE_DIR": str(cache)}
    code = TAKING_TURNS.format(before=before)
    commands = [[sys.executable, "-c", code, each] for each in types]
    running = [subprocess.Popen(command, env=env, stdout=subprocess.PIPE) for command in commands]
    return [int(process.communicate(timeout=120)[0]) for process in running]


def test_of_processes_that_miss_the_same_kernel_one_lets_it_be_compiled(tmp_path: Path) -> None:
    assert sorted(at_once("", ["uint16"] * 3, tmp_path)) == [0, 0, 1]


@pytest.mark.exhaustive
def test_kernels_saved_at_once_have_files_of_their_own(tmp_path: Path) -> None:
    at_once("sys.executable = '/nowhere/python'", ["uint16", "int64"], tmp_path)
    assert len(list(tmp_path.rglob("*.nbc"))) == 2
    assert called("", tmp_path) == "[1, 1, 3] 1 0"


@pytest.mark.exhaustive
def test_a_file_that_holds_the_kernel_for_other_types_is_not_run(tmp_path: Path) -> None:
    at_once("", ["uint16", "float64"], tmp_path)
    one, other = (file.read_bytes() for file in sorted(tmp_path.rglob("*.nbc")))
    for file, content in zip(sorted(tmp_path.rglob("*.nbc")), (other, one), strict=True):
        file.write_bytes(content)
    assert called("", tmp_path) == "[1, 1, 3] 1 0"


SEVERAL = """
import os
import subprocess
import numpy as np
from bigmc.kernels.compile_server import compile_elsewhere
from bigmc.kernels.csc import undo_delta
compile_elsewhere()
started, start = [], subprocess.Popen
def noted(*args, **options):
    started.append(start(*args, **options))
    return started[-1]
subprocess.Popen = noted
def call(dtype):
    values = np.array([1, 0, 2], dtype)
    undo_delta(values)
    assert values.tolist() == [1, 1, 3]
call(np.uint16), call(np.uint32)
assert len(started) == 1  # one child for both
if os.fork() == 0:
    call(np.int32)
    os._exit(len(started) != 2)
assert os.wait()[1] == 0  # a fork has a child of its own
started[0].kill()
started[0].wait()
call(np.int64)
assert len(started) == 2  # one that has ended is replaced
assert sum(undo_delta.stats.cache_hits.values()) == 3
started[1].stdin.close()
assert started[1].wait(60) == 0  # it ends with the process that started it
"""


@pytest.mark.exhaustive
def test_a_child_compiles_until_it_or_its_process_ends(tmp_path: Path) -> None:
    root = str(Path(bigmc.__file__).parents[1])
    env = {**os.environ, "PYTHONPATH": root, "NUMBA_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", SEVERAL], env=env, check=True)


def test_a_child_without_work_ends() -> None:
    idle = "from bigmc.kernels.compile_server import serve; serve(0.1)"
    root = str(Path(bigmc.__file__).parents[1])
    env = {**os.environ, "PYTHONPATH": root}
    with subprocess.Popen([sys.executable, "-c", idle], env=env, stdin=subprocess.PIPE) as child:
        assert child.wait(60) == 0  # though nobody closed its input


def test_a_warm_kernel_starts_no_process(filled: Path) -> None:
    assert called("import subprocess; subprocess.Popen = None", filled) == "[1, 1, 3] 1 0"


CALLED = """
import gc
import numpy as np
from numba import njit
from llvmlite import binding as llvm
parsed, parse = [], llvm.parse_bitcode
def counted(*args):
    parsed.append(parse(*args))
    return parsed[-1]
llvm.parse_bitcode = counted
from bigmc.kernels.csc import undo_delta
from bigmc.kernels.compile_server import compile_elsewhere
compile_elsewhere()
undo_delta(np.array([1, 0, 2], np.uint16))
print([module.closed for module in parsed])
@njit
def twice(values):
    undo_delta(values)
    undo_delta(values)
values = np.array([1, 0, 2], np.uint16)
twice(values)
print(values.tolist(), len(parsed))
"""


def test_what_others_are_compiled_from_is_freed_and_read_again_where_one_is(filled: Path) -> None:
    root = str(Path(bigmc.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", CALLED],
        env={**os.environ, "PYTHONPATH": root, "NUMBA_CACHE_DIR": str(filled)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["[True]", "[1, 2, 5] 2"]


IN_TWO_PROCESSES = """
import sys
import numpy as np
from bigmc.kernels.compile_server import compile_elsewhere
from bigmc.kernels.minimax import _threshold, subset_masks, subset_values
scores = np.array([[3.0, 2.5, 0.0], [1.0, 1.0, 0.9]])
if sys.argv[1] == "child":
    compile_elsewhere()
    values = np.empty(2)
    subset_values(scores, np.ones(1), values, np.empty(1))
    print(values.round(12).tolist())
else:
    masks = np.empty((2, 1), np.uint8)
    subset_masks(scores, masks)
    print(masks.tolist(), len(_threshold.stats.cache_hits), len(_threshold.stats.cache_misses))
"""


@pytest.mark.exhaustive
def test_what_only_kernels_call_is_kept_without_machine_code(tmp_path: Path) -> None:
    """A child keeps it for the kernels that call it, also for those that another process compiles itself."""
    env = {
        **os.environ, "PYTHONPATH": str(Path(bigmc.__file__).parents[1]), "NUMBA_CACHE_DIR": str(tmp_path)
    }  # fmt: skip
    said = [
        subprocess.check_output([sys.executable, "-c", IN_TWO_PROCESSES, who], env=env, text=True).strip()
        for who in ("child", "itself")
    ]
    # (3 + 2.5 - 1) / 2 and (1 + 1 + 0.9 - 1) / 3, of the subsets of two and three classes
    assert said == [str([2.25, round(1.9 / 3, 12)]), "[[3], [7]] 1 0"]
    sizes: dict[str, list[int]] = {"minimax._threshold": [], "minimax.subset_values": []}
    for name, found in sizes.items():
        for path in tmp_path.rglob(f"{name}-*.nbc"):
            _, _, (machine_code, _) = pickle.loads(path.read_bytes())[0]
            sections = llvm.ObjectFileRef.from_data(machine_code).sections()
            found += [sum(part.size() for part in sections if part.is_text())]
    assert sizes["minimax._threshold"] == [0]
    assert min(sizes["minimax.subset_values"]) > 0


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


def test_a_cache_that_may_only_be_read_is_used_through_links(
    filled: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    given, own = filled, tmp_path / f"bigmc-kernels-{os.getuid()}"
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(given))
    monkeypatch.setattr("os.access", lambda *_: False)  # the superuser may write anywhere
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(given))  # numba may be imported before
    for _ in range(2):
        kernels._choose_cache()
    assert str(own) == numba.core.config.CACHE_DIR
    assert os.environ["NUMBA_CACHE_DIR"] == str(own)
    assert called("sys.executable = '/nowhere/python'", own) == "[1, 1, 3] 1 0"
    before = {path: path.read_bytes() for path in given.rglob("*") if path.is_file()}
    at_once("sys.executable = '/nowhere/python'", ["int64"], own)  # compiles another one
    assert {path: path.read_bytes() for path in given.rglob("*") if path.is_file()} == before


def test_a_home_folder_that_may_not_be_entered_is_passed_over(tmp_path):
    """As that of root, whose HOME a container's other users may have."""
    home = tmp_path / "home"
    (home / ".cache").mkdir(parents=True)
    home.chmod(0)
    child = os.fork()
    if not child:
        status = 2
        with suppress(OSError):
            if os.getuid() == 0:
                os.setuid(65534)  # permissions do not bind root
            nearest = kernels._nearest(home / ".cache" / "numba")
            status = 0 if nearest in home.parents or nearest == home else 1
        os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    home.chmod(0o700)
