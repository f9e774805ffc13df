"""The demo's text: collected from what is installed, the same at every run."""

import csv

import pytest

from bigmc.cli import demo
from bigmc.errors import DataError

pytestmark = pytest.mark.slow


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A standard library and nine packages; limits small enough for them."""
    for name, value in {
        "MIN_LINES": 200,
        "LINES_PER_PACKAGE": 40,
        "FEWEST_LINES": 10,
        "N_PACKAGES": 10,
    }.items():
        monkeypatch.setattr(demo, name, value)
    paths = {"stdlib": tmp_path / "lib", "purelib": tmp_path / "lib" / "site-packages"}
    monkeypatch.setattr(demo.sysconfig, "get_path", lambda name: str(paths[name]))
    folders = [paths["stdlib"], *(paths["purelib"] / f"package_{k}" for k in range(9))]
    for k, folder in enumerate(folders):
        (folder / "inner" / "__pycache__").mkdir(parents=True)
        (folder / "__init__.py").write_text("short\n" + f"import something_of_{k}  # café\n" * 30)
        lines = "".join(f"def function_{i}_of_{k}(argument):\n" for i in range(30))
        (folder / "inner" / "code.py").write_text(lines)
        (folder / "inner" / "latin.py").write_bytes(b"# -*- coding: latin-1 -*-\nname = 'caf\xe9 au lait'\n")
        (folder / "inner" / "broken.py").write_bytes(b"name = 'caf\xe9 that is not UTF-8'\n")
        (folder / "inner" / "__pycache__" / "code.py").write_text("this_must_not_be_read = True\n")
        (folder / "data.txt").write_text("this_must_not_be_read = True\n")
    (paths["stdlib"] / "test").mkdir()
    (paths["stdlib"] / "test" / "x.py").write_text("this_must_not_be_read = True\n")
    (paths["purelib"] / "tiny").mkdir()
    (paths["purelib"] / "tiny" / "__init__.py").write_text("this_must_not_be_read = True\n")
    return paths


def test_lines_of_every_package_with_their_file(installed, tmp_path):
    counts = demo.collect(tmp_path / "lines.csv")
    with (tmp_path / "lines.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert set(counts) == {"python", *(f"package_{k}" for k in range(9))}
    assert sum(counts.values()) == len(rows)
    assert all(count == 40 for count in counts.values())  # of 60, spread over the files
    text = [row["line"] for row in rows]
    assert not any("must_not" in line or "short" in line for line in text)
    files = {row["file"] for row in rows if row["package"] == "package_3"}
    folder = "package_3"
    assert files >= {f"{folder}/__init__.py", f"{folder}/inner/code.py"}
    assert files <= {f"{folder}/__init__.py", f"{folder}/inner/code.py", f"{folder}/inner/latin.py"}
    mine = [row["line"] for row in rows if row["package"] == folder and "latin" not in row["file"]]
    assert [line for line in mine if "_of_4" not in line] == []


def test_another_file_is_not_replaced(installed, tmp_path):
    for name in ("lines.csv", "lines.tmp"):
        (tmp_path / name).write_text("mine")
    with pytest.raises(DataError, match="was not written by bigmc demo"):
        demo.collect(tmp_path / "lines.csv")
    assert {(tmp_path / name).read_text() for name in ("lines.csv", "lines.tmp")} == {"mine"}
    assert not list(tmp_path.glob(".*"))


def test_rerun_leaves_the_file_alone(installed, tmp_path):
    file = tmp_path / "lines.csv"
    demo.collect(file)
    before = file.read_bytes(), file.stat().st_mtime_ns
    demo.collect(file)
    assert (file.read_bytes(), file.stat().st_mtime_ns) == before
    assert not list(tmp_path.glob("*.tmp"))
    (installed["purelib"] / "package_3" / "more.py").write_text("one_more_line_of_3 = 1234\n" * 50)
    demo.collect(file)
    assert file.read_bytes() != before[0]


def test_too_little_text_is_refused(installed, tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "MIN_LINES", 10**6)
    with pytest.raises(DataError, match="400 lines of 10 packages"):
        demo.collect(tmp_path / "lines.csv")
    assert not (tmp_path / "lines.csv").exists()


def test_this_machine_has_enough():
    """Sizes as promised: at least 8 classes; the lines are not read here, which takes seconds."""
    packages = demo.installed_packages()
    large = [name for name, (_, files) in packages.items() if sum(f.stat().st_size for f in files) > 10**6]
    assert len(large) >= demo.MIN_PACKAGES
    assert demo.N_PACKAGES * demo.LINES_PER_PACKAGE >= demo.MIN_LINES
