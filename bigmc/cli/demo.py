"""A complete run on real text that every machine with Python has: its installed Python sources."""

from __future__ import annotations

import csv
import filecmp
import os
import sysconfig
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bigmc import api
from bigmc.api.resolve import local_folder
from bigmc.errors import DataError
from bigmc.progress import ProgressCallback, silent

N_PACKAGES = 12
LINES_PER_PACKAGE = 25_000
FEWEST_LINES = 5_000
SHORTEST_LINE = 16
WORDS_SEARCHED, WORDS_SHOWN = 40, 8
MIN_PACKAGES, MIN_LINES = 8, 200_000


def run(
    to: Path | str,
    *,
    memory_limit: str | int | None = None,
    progress: ProgressCallback = silent,
    tell: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Collect lines of code, ingest, train, evaluate and inspect; say what each step did.

    Parameters
    ----------
    to : path
        Folder for the text, the dataset and the model.
    memory_limit : str or int, optional
        Memory limit of each step.
    progress : callable, optional
        Called with :class:`bigmc.progress.Progress`.
    tell : callable, optional
        Called with each line of the account.

    Returns
    -------
    dict
        Figures of each step.
    """
    folder = local_folder(to, "the demonstration")
    folder.mkdir(parents=True, exist_ok=True)
    text, dataset, model = folder / "lines.csv", folder / "lines.bigmc", folder / "lines.model"

    tell("1. Text: lines of the Python sources installed here, labelled with the package they are from.")
    counts = collect(text)
    tell(
        f"   {sum(counts.values()):,} lines from {len(counts)} packages, {text.stat().st_size / 1e6:.0f} MB:"
        f" {', '.join(counts)}"
    )

    tell("\n2. bigmc ingest: hash words and word pairs into 2^18 columns, keep whole files in one split.")
    made = api.ingest(
        text,
        dataset,
        text="line",
        label="package",
        group="file",
        memory_limit=memory_limit,
        progress=progress,
    )
    info = made.info()
    tell(
        f"   {info['n_samples']:,} rows, {info['nnz']:,} non-zeros, {info['bytes'] / 1e6:.0f} MB on disk"
        f" ({info['bytes'] / max(info['nnz'], 1):.2f} bytes per non-zero); splits {info['splits']}"
    )

    tell("\n3. bigmc train sparse: ℓ1/ℓ2-regularised squared hinge, block coordinate descent.")
    trained = api.train("sparse", dataset, model, alpha=1e-4, memory_limit=memory_limit, progress=progress)
    bounds = trained["certificate"]
    tell(
        f"   objective {trained['objective']:.6f}; certificate: the optimum is between {bounds['lower']:.6f}"
        f" and {bounds['upper']:.6f} (gap {bounds['gap']:.1e});\n"
        f"   {trained['n_nonzero_features']:,} of {info['n_features']:,} features used,"
        f" {trained['n_passes']:.3g} passes over the data, {model.stat().st_size / 1e6:.1f} MB model"
    )

    tell("\n4. bigmc evaluate: on the files the model has not seen.")
    figures = api.evaluate(model, dataset, split="test", memory_limit=memory_limit, progress=progress)
    largest = max(counts.values()) / sum(counts.values())
    tell(
        f"   accuracy {figures['accuracy']:.3f}, macro F1 {figures['macro_f1']:.3f} on"
        f" {figures['n_samples']:,} lines (always the largest class: {largest:.3f})"
    )

    tell("\n5. bigmc inspect: the words that speak most for each class.")
    for entry in api.inspect(model, top=WORDS_SEARCHED)["classes"]:
        tell(f"   {entry['label']:<18} {'  '.join(_words(entry['features'])[:WORDS_SHOWN])}")
    tell(
        f"\nEverything is in {folder}; try: bigmc inspect {model}, or run a step again: it has nothing to do."
    )
    return {"text": counts, "info": info, "train": trained, "evaluate": figures}


def _words(features: list[dict[str, Any]]) -> list[str]:
    """Return the names of features that speak for a class: a hashed word counts with its sign."""
    named = [(f["weight"], f["names"][0]) for f in features if f["names"]]
    return [str(name["name"]) for weight, name in named if weight * name["sign"] > 0]


def collect(to: Path) -> dict[str, int]:
    """Write lines of the largest installed packages as CSV; return the number of lines of each package.

    Raises
    ------
    DataError
        If fewer than 8 packages or 200,000 lines are found.
    """
    packages = _packages()
    sizes = {name: sum(file.stat().st_size for file in files) for name, (_, files) in packages.items()}
    largest = sorted(sizes, key=lambda name: (-sizes[name], name))[:N_PACKAGES]
    counts: dict[str, int] = {}
    aside = to.with_suffix(".tmp")
    with aside.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow(["line", "package", "file"])
        for name in sorted(largest):
            folder, files = packages[name]
            lines = [(str(file.relative_to(folder)), line) for file in files for line in _lines(file)]
            if len(lines) < FEWEST_LINES:
                continue
            step = max(1.0, len(lines) / LINES_PER_PACKAGE)
            chosen = [lines[int(i * step)] for i in range(int(len(lines) / step))]
            writer.writerows((line, name, f"{name}/{file}") for file, line in chosen)
            counts[name] = len(chosen)
    if len(counts) < MIN_PACKAGES or sum(counts.values()) < MIN_LINES:
        aside.unlink()
        raise DataError(
            f"only {sum(counts.values())} lines of {len(counts)} packages are installed here",
            "install bigmc with its dependencies from PyPI, which bring their sources",
        )
    # A rerun must find the same file: otherwise its dataset would be that of another source.
    if to.exists() and filecmp.cmp(to, aside, shallow=False):
        aside.unlink()
    else:
        os.replace(aside, to)
    return counts


def _packages() -> dict[str, tuple[Path, list[Path]]]:
    """Return the folder and source files of every installed package; the standard library is ``python``."""
    installed, standard = Path(sysconfig.get_path("purelib")), Path(sysconfig.get_path("stdlib"))
    skip = ("site-packages", "dist-packages", "test", "idlelib")
    packages = {"python": (standard, _sources(standard, skip))}
    for folder in sorted(installed.iterdir()):
        if (folder / "__init__.py").exists():
            packages[folder.name] = folder, _sources(folder, skip=())
    return packages


def _sources(folder: Path, skip: tuple[str, ...]) -> list[Path]:
    found: list[Path] = []
    for path, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in skip and name != "__pycache__")
        found += [Path(path) / name for name in sorted(files) if name.endswith(".py")]
    return [file for file in found if file.is_file()]


def _lines(file: Path) -> Iterator[str]:
    """Yield each line of a file that has something to say."""
    try:
        with tokenize.open(file) as source:
            text = source.read()
    except (OSError, SyntaxError, UnicodeDecodeError):
        return
    for line in text.splitlines():
        stripped = line.strip()
        if len(stripped) >= SHORTEST_LINE and "\0" not in stripped:
            yield stripped
