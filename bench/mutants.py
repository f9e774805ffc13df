"""How much the tests notice: small mistakes are put into a copy of the code, and its tests are run on each.

    python bench/mutants.py --draw 300 --processes 2 --coverage tests.coverage --to mutants.jsonl

Mistakes are drawn with a seed from `bigmc/store`, `bigmc/solvers` and `bigmc/objectives`: a comparison turned
or shifted, an operator exchanged, a number off by one, a condition negated, a statement left out, a result
replaced by None. The quick tests of these folders and ``tests/golden``, or ``--tests``, run once under
coverage.py (which only this needs), and the file ``--coverage`` keeps which test executes which line. Each
mistake is tried against the tests that execute its line, those of the quickest files first, one of which must
fail. Tests that use more than `CPU_SECONDS` count as noticing: it is processor time, so that a busy machine
changes nothing. So do tests that take `WAIT_SECONDS` in all, since a mistake may let them wait for ever
without using any: who opens a named pipe to read waits for a writer. One JSON line per mistake says the
file, the line, what was changed, whether it was noticed, and by how many tests it was tried; at the end
stands the share that was. A file of results that exists already is continued.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import multiprocessing
import os
import queue
import random
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FOLDERS = ("store", "solvers", "objectives")
CPU_SECONDS = 120
WAIT_SECONDS = 1800.0
"""Far more than `CPU_SECONDS`: only tests that wait for ever, not those on a busy machine, take as long."""
TEST_SECONDS = 60.0
"""Most seconds of tests, as they took under coverage, that a mistake is tried against; at least one file."""

COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
OPERATORS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.And: ast.Or, ast.Or: ast.And, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """A mistake: the number of the node in its file's tree, and what becomes of it."""

    file: str
    node: int
    line: int
    change: str


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Yield every mistake that can be put into a file; docstrings, types and messages are left alone."""
    tree = ast.parse(path.read_text())
    passive = {id(n) for owner in ast.walk(tree) for n in _passive(owner)}
    for number, node in enumerate(ast.walk(tree)):
        if id(node) not in passive and (change := _change(node)):
            yield Mutant(str(path.relative_to(ROOT)), number, getattr(node, "lineno", 0), change)


def _passive(owner: ast.AST) -> Iterator[ast.AST]:
    """Yield what does not act: annotations, raised messages, decorators."""
    parts: list[ast.AST | None] = []
    if isinstance(owner, ast.arg | ast.AnnAssign):
        parts.append(owner.annotation)
    if isinstance(owner, ast.FunctionDef):
        parts += [owner.returns, *owner.decorator_list]
    if isinstance(owner, ast.Raise):
        parts.append(owner.exc)
    for part in parts:
        if part is not None:
            yield from ast.walk(part)


def _change(node: ast.AST) -> str:
    """Return the name of the mistake that fits a node, or nothing."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
        return "comparison"
    if isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign) and type(node.op) in OPERATORS:
        return "operator"
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return "number"
    if isinstance(node, ast.If | ast.While):
        return "condition"
    if isinstance(node, ast.Return) and not _is_none(node.value):
        return "result"
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return "statement"
    return ""


def _is_none(value: ast.expr | None) -> bool:
    return value is None or (isinstance(value, ast.Constant) and value.value is None)


def mutated(text: str, mutant: Mutant) -> str:
    """Return the source with the mistake in it."""
    tree = copy.deepcopy(ast.parse(text))
    node = next(node for number, node in enumerate(ast.walk(tree)) if number == mutant.node)
    if isinstance(node, ast.Compare):
        node.ops[0] = COMPARISONS[type(node.ops[0])]()
    elif isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign):
        node.op = OPERATORS[type(node.op)]()
    elif isinstance(node, ast.Constant):
        node.value = node.value + 1
    elif isinstance(node, ast.If | ast.While):
        node.test = ast.UnaryOp(ast.Not(), node.test)
    elif isinstance(node, ast.Return | ast.Expr):
        node.value = ast.Constant(None)
    return ast.unparse(ast.fix_missing_locations(tree))


def copy_project(folder: Path) -> Path:
    """Copy what the tests need, with the compiled kernels; returns the copy."""
    copied = folder / "project"
    skip = shutil.ignore_patterns(".git", ".venv*", "*.bigmc", "site", "data", ".mypy_cache", ".hypothesis")
    shutil.copytree(ROOT, copied, ignore=skip)
    return copied


class Watch:
    """A plugin of pytest: tells coverage.py which test runs, and adds up the seconds of each."""

    def __init__(self, coverage: Any) -> None:
        self._coverage = coverage
        self.seconds: dict[str, float] = {}

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._coverage.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration


def measure(path: Path, tests: list[str]) -> None:
    """Run tests under coverage.py; its database goes to a file, the seconds of each test beside it."""
    import coverage
    import pytest

    os.chdir(ROOT)
    coverage_of = coverage.Coverage(data_file=path, source=["bigmc"])
    watch = Watch(coverage_of)
    coverage_of.start()
    pytest.main(["-q", "--exhaustive", "-m", "not slow", *tests], plugins=[watch])
    coverage_of.stop()
    coverage_of.save()
    path.with_suffix(".seconds").write_text(json.dumps(watch.seconds))


class Coverage:
    """Which tests execute which lines, and how long they take.

    Parameters
    ----------
    path : Path
        Database of coverage.py, made if it is missing.
    tests : list of str
        What to run for it.
    """

    def __init__(self, path: Path, tests: list[str]) -> None:
        if not path.with_suffix(".seconds").exists():
            child = multiprocessing.get_context("spawn").Process(
                target=measure, args=(path.absolute(), tests)
            )
            child.start()
            child.join()
        self._seconds: dict[str, float] = json.loads(path.with_suffix(".seconds").read_text())
        self._database = sqlite3.connect(path)

    def tests_of(self, file: str, line: int) -> list[str]:
        """Return the tests that execute a line, or its file where none does, the quickest files first."""
        found = self._contexts(file, lambda numbits: _has(numbits, line)) or self._contexts(file, bool)
        chosen: list[str] = []
        left = TEST_SECONDS
        for test in sorted(found, key=lambda test: self._seconds.get(test, 0.0)):
            left -= self._seconds.get(test, 0.0)
            if chosen and left < 0:
                break
            chosen.append(test)
        first = {test.partition("::")[0]: place for place, test in reversed([*enumerate(chosen)])}
        return sorted(chosen, key=lambda test: first[test.partition("::")[0]])

    def _contexts(self, file: str, executes: Callable[[bytes], bool]) -> set[str]:
        rows = self._database.execute(
            "select context.context, line_bits.numbits from line_bits join context on context.id ="
            " line_bits.context_id join file on file.id = line_bits.file_id where file.path like ?",
            (f"%/{file}",),
        )
        return {context for context, numbits in rows if executes(numbits) and context in self._seconds}


def _has(numbits: bytes, line: int) -> bool:
    """Return whether a line is in a set of lines as coverage.py stores it: bit by bit."""
    return line // 8 < len(numbits) and bool(numbits[line // 8] & 1 << line % 8)


def noticed(mutant: Mutant, project: Path, tests: list[str]) -> bool:
    """Put the mistake into a copy of the project and return whether one of the tests fails."""
    target = project / mutant.file
    original, written = target.read_text(), target.stat()
    target.write_text(mutated(original, mutant))
    command = [sys.executable, "-m", "pytest", "-q", "--exhaustive", "-x", "-p", "no:cacheprovider"]
    try:
        done = subprocess.run(
            [*command, *tests],
            cwd=project,
            env={**os.environ, "PYTHONPATH": str(project), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            check=False,
            timeout=WAIT_SECONDS,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS)),
        )
    except subprocess.TimeoutExpired:
        return True
    finally:
        target.write_text(original)
        os.utime(target, ns=(written.st_atime_ns, written.st_mtime_ns))  # its compiled form is valid again
    return done.returncode != 0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draw", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--folders", nargs="+", default=FOLDERS, help="try only those drawn of these")
    parser.add_argument("--coverage", type=Path, default=Path("mutants.coverage"))
    parser.add_argument("--tests", type=Path, help="file of the tests to use, one a line")
    parser.add_argument("--to", type=Path, default=Path("mutants.jsonl"))
    given = parser.parse_args()
    files = [path for folder in FOLDERS for path in sorted((ROOT / "bigmc" / folder).rglob("*.py"))]
    every = [mutant for path in files for mutant in mutants_of(path)]
    drawn = random.Random(given.seed).sample(every, min(given.draw, len(every)))
    known = [json.loads(line) for line in given.to.read_text().splitlines()] if given.to.exists() else []
    done = {(row["file"], row["node"]) for row in known}
    every_test = [*(f"tests/{folder}" for folder in FOLDERS), "tests/golden"]
    tests = every_test if given.tests is None else given.tests.read_text().splitlines()
    coverage = Coverage(given.coverage, tests)
    wanted = [mutant for mutant in drawn if Path(mutant.file).parts[1] in given.folders]
    todo = [mutant for mutant in wanted if (mutant.file, mutant.node) not in done]
    with (
        tempfile.TemporaryDirectory() as folder,
        given.to.open("a") as out,
        ThreadPoolExecutor(given.processes) as pool,
    ):
        copies: queue.Queue[Path] = queue.Queue()
        for number in range(given.processes):
            copies.put(copy_project(Path(folder, str(number))))

        def tried(mutant: Mutant, tests: list[str]) -> bool:
            project = copies.get()
            try:
                return bool(tests) and noticed(mutant, project, tests)
            finally:
                copies.put(project)

        chosen = [coverage.tests_of(mutant.file, mutant.line) for mutant in todo]
        for mutant, tests, seen in zip(todo, chosen, pool.map(tried, todo, chosen), strict=True):
            row = {**asdict(mutant), "noticed": seen, "tests": len(tests)}
            known.append(row)
            out.write(json.dumps(row) + "\n")
            out.flush()
    print(f"{sum(row['noticed'] for row in known)} of {len(known)} mistakes were noticed")
    for row in known:
        if not row["noticed"]:
            print(f"  {row['file']}:{row['line']} {row['change']}")


if __name__ == "__main__":
    main()
