"""A complete run on text that every machine with Python has: its installed Python sources."""

from __future__ import annotations

import csv
import filecmp
import os
import shlex
import sysconfig
import time
import tokenize
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bigmc import api
from bigmc.api.resolve import local_folder
from bigmc.engine.threads import available_cpus
from bigmc.errors import DataError
from bigmc.progress import ProgressCallback, silent

HEADER = ("line", "package", "file")
N_PACKAGES = 12
LINES_PER_PACKAGE = 15_000
FEWEST_LINES = 5_000
SHORTEST_LINE = 16
EXPLAINED = "n_samples, n_features = X.shape"
CLASSES_SHOWN, WORDS_SHOWN = 2, 3
MIN_PACKAGES, MIN_LINES = 8, 100_000
FIT_SECONDS = 40


def run(
    to: Path | str,
    *,
    memory_limit: str | int | None = None,
    progress: ProgressCallback = silent,
    tell: Callable[[str], None] = print,
) -> Mapping[str, object]:
    """Collect lines of code, ingest, fit, compare and report, with a message for each step.

    The text, the dataset and the model are written to the folder `to`. Returns the figures of each step.
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

    tell(
        "\n2. bigmc fit: hash n-grams, keep whole files on one side, search the settings, train, calibrate,"
        f" measure,\n   in {FIT_SECONDS} s at most."
    )
    fitted = api.fit(
        text,
        model,
        dataset=dataset,
        text="line",
        label="package",
        group="file",
        time_limit=FIT_SECONDS,
        memory_limit=memory_limit,
        progress=progress,
    )
    data = api.open_dataset(dataset)
    info = data.info()
    tell(_about_dataset(info, data.features["hasher"]))
    tell(_about_fit(fitted, model))

    tell("\n3. The same lines elsewhere.")
    peer = peer_accuracy(text, data)
    shares = fitted["baselines"]
    tell(
        f"   scikit-learn, HashingVectorizer of words and pairs, SGDClassifier: {peer.accuracy:.3f} in"
        f" {peer.seconds:.0f} s; always the largest class: {shares['largest_class']:.3f}"
    )

    tell(f"\n4. bigmc explain: what speaks for the package of the line {EXPLAINED!r}.")
    for entry in api.explain(model, EXPLAINED, WORDS_SHOWN).classes[:CLASSES_SHOWN]:
        words = "  ".join(f"{word.word} {word.value:+.2f}" for word in entry.words)
        tell(f"   {entry.label}, probability {entry.probability:.3f}: {words}")
    page = folder / "lines.html"
    api.report(model, page, dataset=dataset, memory_limit=memory_limit, progress=progress)
    tell(f"\n5. bigmc report: {page}")
    tell(f"\nEverything is in {folder}. Next, for example:")
    tell(f"bigmc explain {shlex.quote(str(model))} 'import numpy as np' --classes 2")
    return {"text": counts, "info": info, "fit": fitted, "peer": peer._asdict(), "report": str(page)}


def _about_dataset(info: Mapping[str, Any], hasher: Mapping[str, Any]) -> str:
    unit = "words" if hasher["analyzer"] == "word" else "characters"
    shortest, longest = hasher["ngrams"]
    pieces = f"single {unit}" if longest == 1 else f"{shortest} to {longest} {unit} in a row"
    return (
        f"   {pieces}, hashed into 2^{hasher['hash_bits']} columns:"
        f" {info['n_samples']:,} rows, splits {info['splits']};\n"
        f"   {info['nnz']:,} non-zeros, {info['bytes'] / 1e6:.0f} MB on disk"
        f" ({info['bytes'] / max(info['nnz'], 1):.2f} bytes per non-zero)"
    )


def _about_fit(fitted: Mapping[str, Any], model: Path) -> str:
    test, bounds = fitted["test"], fitted["certificate"]
    low, high = test["interval"]
    return (
        f"   {len(fitted['trials'])} trials on {fitted['n_search_rows']:,} rows; the best is"
        f" {fitted['settings']}\n"
        f"   accuracy {test['accuracy']:.3f} (95 % interval {low:.3f} to {high:.3f}) on"
        f" {test['n_samples']:,} lines of files that it has not seen, log loss {test['log_loss']:.2f}\n"
        f"   certificate: the training objective is within {bounds['gap']:.1e} of its optimum;"
        f" {fitted['seconds']:.0f} s, {model.stat().st_size / 1e6:.1f} MB model"
    )


class Peer(NamedTuple):
    """Accuracy of scikit-learn on the test lines, and its time in seconds."""

    accuracy: float
    seconds: float


def peer_accuracy(text: Path, dataset: Any) -> Peer:
    """Train scikit-learn's linear classifier on the training lines and measure it on the test lines."""
    from sklearn.feature_extraction.text import HashingVectorizer
    from sklearn.linear_model import SGDClassifier

    with text.open(newline="", encoding="utf-8") as file:
        rows = [(row["line"], row["package"]) for row in csv.DictReader(file)]
    parts = {name: _row_ids(dataset[name]) for name in ("train", "test")}
    started = time.monotonic()
    vectorizer = HashingVectorizer(n_features=1 << 18, ngram_range=(1, 2))
    X = {name: vectorizer.transform([rows[i][0] for i in ids]) for name, ids in parts.items()}
    y = {name: [rows[i][1] for i in ids] for name, ids in parts.items()}
    learner = SGDClassifier(alpha=1e-5, random_state=0, n_jobs=available_cpus()).fit(X["train"], y["train"])
    return Peer(float(learner.score(X["test"], y["test"])), time.monotonic() - started)


def _row_ids(dataset: Any) -> list[int]:
    ids: list[int] = []
    for shard in dataset.shards:
        ids += shard.table(["row_id"]).column("row_id").to_pylist()
    return ids


def collect(to: Path) -> dict[str, int]:
    """Write lines of the largest installed packages as CSV; return the number of lines of each package.

    `DataError` if fewer than 8 packages or 100,000 lines are found, or another file is at the path.
    """
    packages = installed_packages()
    sizes = {name: sum(file.stat().st_size for file in files) for name, (_, files) in packages.items()}
    largest = sorted(sizes, key=lambda name: (-sizes[name], name))[:N_PACKAGES]
    counts: dict[str, int] = {}
    aside = to.with_name(f".{to.name}.partial")
    with aside.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow(HEADER)
        for name in sorted(largest):
            folder, files = packages[name]
            sources = [(str(file.relative_to(folder)), file) for file in files]
            lines = [(source, line) for source, file in sources for line in _lines(file)]
            if len(lines) < FEWEST_LINES:
                continue
            step = max(1.0, len(lines) / LINES_PER_PACKAGE)
            chosen = [lines[int(i * step)] for i in range(int(len(lines) / step))]
            writer.writerows((line, name, f"{name}/{file}") for file, line in chosen)
            counts[name] = len(chosen)
    if len(counts) < MIN_PACKAGES or sum(counts.values()) < MIN_LINES:
        aside.unlink()
        raise DataError(
            f"only {sum(counts.values())} lines of {len(counts)} packages were found",
            "install bigmc with its dependencies from PyPI, which bring their sources",
        )
    # A rerun must find the same file: otherwise its dataset would be that of another source.
    if to.exists() and filecmp.cmp(to, aside, shallow=False):
        aside.unlink()
    elif to.exists() and not _is_own(to):
        aside.unlink()
        raise DataError(f"{to} was not written by bigmc demo", "give another --to")
    else:
        os.replace(aside, to)
    return counts


def _is_own(file: Path) -> bool:
    """Return whether a file is one that `collect` wrote."""
    with file.open("rb") as stream:
        return stream.readline(80).strip().decode("ascii", "replace") == ",".join(HEADER)


def installed_packages() -> dict[str, tuple[Path, list[Path]]]:
    """Return the folder and source files of every installed package; the standard library is ``python``."""
    installed, standard = Path(sysconfig.get_path("purelib")), Path(sysconfig.get_path("stdlib"))
    skip = ("site-packages", "dist-packages", "test", "idlelib")
    packages = {"python": (standard, _sources(standard, skip))}
    for folder in sorted(installed.iterdir()):
        if (folder / "__init__.py").exists():
            packages[folder.name] = folder, _sources(folder, skip=())
    return packages


def _sources(folder: Path, skip: tuple[str, ...]) -> list[Path]:
    files_of_package: list[Path] = []
    for path, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in skip and name != "__pycache__")
        files_of_package += [Path(path) / name for name in sorted(files) if name.endswith(".py")]
    return [file for file in files_of_package if file.is_file()]


def _lines(file: Path) -> Iterator[str]:
    """Yield the lines of a file that are long enough."""
    try:
        with tokenize.open(file) as source:
            text = source.read()
    except (OSError, SyntaxError, UnicodeDecodeError):
        return
    for line in text.splitlines():
        stripped = line.strip()
        if len(stripped) >= SHORTEST_LINE and "\0" not in stripped:
            yield stripped
