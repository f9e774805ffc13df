"""The sets of ``bench/first_choice.py``: one Parquet table each, with columns text, label, group and split.

    python bench/first_choice_sets.py packages glosses lines --folder bench/data

Rows of one group (a source package, a text, a file, a place) are in one split. Where a peer could not finish
on all rows, everyone gets the same sample. Tables of numbers have their columns in place of text. Three
research sets that are not to be copied are read from ``--public``, where they are at hand.
"""

from __future__ import annotations

import argparse
import csv
import random
import re
import sys
import sysconfig
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))  # bigmc need not be installed

import data  # noqa: E402

SEED = 16
TEST_SHARE = 0.2
PUBLIC = ("questions", "webkb", "movie_reviews")
ENDINGS = frozenset({
    ".py", ".pyi", ".pyx", ".pxd", ".c", ".h", ".hpp", ".cpp", ".js", ".ts", ".css", ".html", ".xml", ".json",
    ".toml", ".rst", ".md", ".sh", ".f90",
})  # fmt: skip


@dataclass(frozen=True)
class Grouped:
    """Texts, labels, and what of each row must not be on both sides of the split."""

    texts: Sequence[str]
    labels: Sequence[Any]
    groups: Sequence[str]
    sample: int | None = None
    """Rows to keep, by whole groups in random order."""


def packages(folder: Path) -> Grouped:
    """Description of a package → archive section, split by source."""
    columns = _columns(data.packages(folder))
    return Grouped(columns["text"], columns["section"], columns["source"])


def glosses(folder: Path) -> Grouped:
    """Gloss of a synset → lexicographer file."""
    columns = _columns(data.glosses(folder))
    return Grouped(columns["gloss"], columns["lexname"], columns["gloss"])


def lines(folder: Path) -> Grouped:
    """Line of Python → the package it is from, split by file."""
    from bigmc.cli.demo import collect

    target = folder / "lines.csv"
    if not target.exists():
        collect(target)
    columns = _columns(target)
    return Grouped(columns["line"], columns["package"], columns["file"])


def strings(folder: Path) -> Grouped:
    """String of an interface → 98 languages."""
    columns = _columns(data.strings(folder))
    return Grouped(columns["string"], columns["language"], columns["string"])


def names(folder: Path) -> Grouped:
    """Name of a place → country."""
    columns = _columns(data.names(folder))
    return Grouped(columns["name"], columns["country"], columns["place"], sample=100_000)


def words(folder: Path) -> Grouped:
    """Word → 18 languages."""
    columns = _columns(data.words(folder))
    return Grouped(columns["word"], columns["language"], columns["word"], sample=200_000)


def tags(folder: Path) -> Grouped:
    """Description of a package → the set of its tags, split by source; tags of 50 packages or more."""
    table = pq.read_table(data.records(folder))
    counts = table.column("tags").combine_chunks().flatten().value_counts().to_pylist()
    frequent = {entry["values"] for entry in counts if entry["counts"] >= 50}
    rows = [
        (row["text"], kept, row["source"])
        for row in table.to_pylist()
        if (kept := [tag for tag in row["tags"] if tag in frequent])
    ]
    return Grouped(*zip(*rows, strict=True))


def snippets(folder: Path) -> Grouped:
    """One to five lines of a file that is installed here → the ending of its name, split by file."""
    generator, rows = random.Random(SEED), []
    files: dict[str, list[Path]] = {}
    for root in (sysconfig.get_paths()["stdlib"], sys.prefix):
        for file in sorted(Path(root).rglob("*.*")):
            if file.is_file() and not file.is_symlink():
                files.setdefault(file.suffix, []).append(file)
    for ending, some in sorted(files.items()):
        if ending not in ENDINGS or len(some) < 30:
            continue
        for file in generator.sample(some, min(len(some), 400)):
            lines = [line[:200] for line in file.read_text(errors="replace").splitlines() if line.strip()]
            for _ in range(3 if len(lines) > 3 else 0):
                first = generator.randrange(len(lines))
                text = "\n".join(lines[first : first + generator.randrange(1, 6)]).replace("\0", "")
                rows.append((text, ending, str(file)))
    return Grouped(*zip(*rows, strict=True))


def characters(folder: Path) -> Grouped:
    """Name of a character in Unicode, but for ideographs → its direction and category."""
    kinds: dict[str, list[str]] = {}
    for character in map(chr, range(sys.maxunicode + 1)):
        name = unicodedata.name(character, "")
        if name and not re.match("CJK|HANGUL SYLLABLE|TANGUT IDEOGRAPH|NUSHU|KHITAN", name):
            kind = unicodedata.bidirectional(character) + unicodedata.category(character)
            kinds.setdefault(kind, []).append(name)
    rows = [(name, kind, name) for kind, some in kinds.items() if len(some) >= 20 for name in some]
    return Grouped(*zip(*rows, strict=True))


TEXTS: dict[str, Callable[[Path], Grouped]] = {
    make.__name__: make
    for make in (packages, glosses, lines, strings, names, words, tags, snippets, characters)
}
TABLES = ("letter", "satimage", "pendigits", "optdigits", "shuttle")


def _columns(path: Path) -> dict[str, list[str]]:
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.reader(file)
        header = next(reader)
        return dict(zip(header, map(list, zip(*reader, strict=True)), strict=True))


def _split(groups: Sequence[str], sample: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows to keep in random order and, for each, whether it is to test on."""
    generator = np.random.default_rng(SEED)
    codes = pa.array(groups).dictionary_encode().indices.to_numpy()
    draw = generator.random(codes.max() + 1)[codes]
    rows = generator.permutation(len(codes))
    if sample is not None:
        share = sample / len(codes)
        rows, draw = rows[draw[rows] < share], draw / share
    return rows, draw[rows] < TEST_SHARE


def make(name: str, folder: Path) -> Path:
    """Write the table of a set unless it is there, and return its path."""
    target = folder / "sets" / f"{name}.parquet"
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    if name in TABLES:
        source = data.shuttle(folder) if name == "shuttle" else data.keel(folder) / f"{name}.csv"
        table = pa.csv.read_csv(source)
        rows, test = _split([str(row) for row in range(table.num_rows)], None)
        label = table.column("label").cast(pa.string())
        table = table.set_column(table.num_columns - 1, "label", label)
    else:
        made = TEXTS[name](folder)
        table = pa.table({"text": list(made.texts), "label": list(made.labels), "group": list(made.groups)})
        rows, test = _split(made.groups, made.sample)
    split = pa.array(np.where(test, "test", "train"))
    table = table.take(pa.array(rows)).append_column("split", split)
    aside = target.with_suffix(".partial")
    pq.write_table(table, aside)
    aside.rename(target)
    return target


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("sets", nargs="+", choices=[*TEXTS, *TABLES])
    parser.add_argument("--folder", type=Path, default=HERE / "data")
    given = parser.parse_args()
    for name in given.sets:
        path = make(name, given.folder)
        table = pq.read_table(path, columns=["label", "split"])
        print(path, table.num_rows, table.column("split").value_counts().to_pylist())


if __name__ == "__main__":
    main()
