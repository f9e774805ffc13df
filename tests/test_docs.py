"""What the documentation names is there."""

import re
from pathlib import Path
from pkgutil import resolve_name

import click

import bigmc
from bigmc.cli import app

ROOT = Path(bigmc.__file__).parent.parent
PACKAGE = ROOT / "bigmc"
CONTRIBUTING, ARCHITECTURE = ROOT / "CONTRIBUTING.md", ROOT / "docs" / "architecture.md"
#: The changelog is left out: it names what there was.
README, BENCHMARKS = ROOT / "README.md", ROOT / "bench" / "README.md"
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), README, BENCHMARKS, CONTRIBUTING]

LONG_PATH = re.compile(r"(?<![\w/.-])(?:bigmc|bench|tests|pipelines)/(?:[\w./-]*\w)?")
SHORT_PATH = re.compile(r"`((?:[\w-]+/)*(?:[\w-]+/|\w+\.py))`")
NAME = re.compile(r"\bbigmc(?:\.[A-Za-z]\w*)+")
QUOTED = re.compile(r"`(bigmc(?:\.\w+)+)`")
ROW = re.compile(r"^\| (`.*?) \|", re.MULTILINE)
SYMBOL = re.compile(r"^\| [^|]* \| ([^|]*`[^|]*) \|", re.MULTILINE)
COMMAND = re.compile(r"(?:^|[`$( ])bigmc ((?:[a-z]+ )+[^`\n]*)", re.MULTILINE)
OPTION = re.compile(r"(?<!\S)--[a-z][a-z0-9-]*")
#: Where benchmarks keep what they fetch.
FETCHED = "bench/data"
#: Ends of file names, which look like attributes of a module.
ENDINGS = (".whl", ".sif", ".toml", ".yml", ".yaml")


def named(pattern, pages=PAGES):
    """Return the page and what it names, for all of a pattern that pages name."""
    return [(page.name, found) for page in pages for found in pattern.findall(page.read_text())]


def resolves(name):
    try:
        resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


def test_paths_exist():
    paths = named(LONG_PATH)
    assert len(paths) > 30
    assert [(page, path) for page, path in paths if path != FETCHED and not (ROOT / path).exists()] == []


def test_paths_for_contributors_exist():
    """They are shortened, but end a path of the package or begin at the root."""
    ours = {f"/{path.relative_to(ROOT).as_posix()}" for path in PACKAGE.rglob("*")}
    paths = named(SHORT_PATH, [CONTRIBUTING, ARCHITECTURE])
    assert len(paths) > 30
    strange = [
        (page, path)
        for page, path in paths
        if not (ROOT / path).exists() and not any(own.endswith("/" + path.rstrip("/")) for own in ours)
    ]
    assert strange == []


def test_names_of_modules_and_functions_exist():
    names = [(page, name) for page, name in named(NAME) if not name.endswith(ENDINGS)]
    assert len(names) > 30
    assert [(page, name) for page, name in names if not resolves(name)] == []


def test_docstrings_and_comments_name_what_exists():
    """In full: modules that were moved are found here."""
    code = sorted(PACKAGE.rglob("*.py"))
    names = [(page, name) for page, name in named(QUOTED, code) if not resolves(name)]
    assert len(named(QUOTED, code)) > 100
    assert names == []


def test_the_tables_of_packages_have_every_package_and_module():
    there = {path.stem for path in PACKAGE.iterdir() if not path.name.startswith(("_", "py."))}
    for page in (CONTRIBUTING, ARCHITECTURE):
        rows = " ".join(ROW.findall(page.read_text()))
        assert there - set(re.findall(r"\w+", rows)) == set(), page.name


def test_the_names_of_symbols_are_in_the_code():
    words = {word for path in PACKAGE.rglob("*.py") for word in re.findall(r"\w+", path.read_text())}
    cells = SYMBOL.findall((ROOT / "docs" / "symbols.md").read_text())
    names = {
        word
        for cell in cells
        for quoted in re.findall(r"`([^`/]+)`", cell)
        for word in re.findall(r"\w+", quoted)
    }
    assert len(names) > 20
    assert names - words == set()


def unknown_options(line):
    """Return the options of a line after ``bigmc`` that its command does not have."""
    command, context, words = app, click.Context(app), line.split()
    known = {name for option in app.params for name in option.opts}
    while words and isinstance(command, click.Group) and (inner := command.get_command(context, words[0])):
        command, words = inner, words[1:]
    known |= {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
    given = re.split(r" [|;#] | && ", " ".join(words))[0]
    none = isinstance(command, click.Group)  # a sentence, or a group of which no command is named
    return [] if none else [option for option in OPTION.findall(given) if option not in known | {"--help"}]


def test_options_of_commands_exist():
    scripts = [path for path in (ROOT / "pipelines").rglob("*") if path.suffix in (".sh", ".md", ".yaml")]
    texts = [(page.name, page.read_text().replace("\\\n", " ")) for page in [*PAGES, *scripts]]
    lines = [(page, line) for page, text in texts for line in COMMAND.findall(text)]
    assert len([line for _, line in lines if OPTION.search(line)]) > 50
    assert [(page, line) for page, line in lines if unknown_options(line)] == []
    assert unknown_options("fit a.csv --to m.model --txt words") == ["--txt"]
