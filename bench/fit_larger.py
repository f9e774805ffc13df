"""`bigmc fit` on files several times larger than its memory limit: does it end, within it, with what quality?

    python bench/fit_larger.py long --memory 128MB --to /tmp/larger
    python bench/fit_larger.py table --memory 128MB 4GB --to /tmp/larger

long    windows of some 4,000 characters of the Python sources installed here → their package, 10 packages
short   the same of some 160 characters, 100 packages and modules
table   15 numbers, two large categories and a small one → one of four classes, made with a seed
sentences  two to eight sentences of descriptions of Debian packages → archive section; a third of them, at
        least one, are of that section, the others of any
places  8 numbers, one of 300 places and a small category → one of two classes, by a product of two numbers

The files have ``--bytes`` (700 MB). One JSON line for each limit: anonymous
memory above bare imports, and what the fit says. Files and datasets that are there are used again.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import re
import subprocess
import sys
import sysconfig
import threading
from pathlib import Path

import data
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
from memory_cap import bare_bytes
from out_of_core import Watched, watch

SHAPES = {"long": (10, 4000), "short": (100, 160)}
"""Classes, and characters of a text on average."""
MOST_TEXT = 8 << 20
"""Characters taken from one class."""
TABLE_ROWS = 100_000
SENTENCE = re.compile(r"(?<=\.)\s|\n\s*\n|\n \* ")


def sources(n_classes: int, deep: bool) -> list[tuple[str, str]]:
    """Return name and text of the largest packages, or of these and their modules."""
    roots = [Path(sysconfig.get_paths()[name]) for name in ("stdlib", "purelib")]
    files: dict[str, list[Path]] = {}
    for root in roots:
        for file in root.rglob("*.py"):
            parts = file.relative_to(root).parts
            if "test" in parts or (root == roots[0] and "site-packages" in parts):
                continue
            name = ".".join(parts[: 2 if deep and len(parts) > 2 else 1]).removesuffix(".py")
            files.setdefault(name, []).append(file)
    sizes = {name: sum(file.stat().st_size for file in some) for name, some in files.items()}
    found = []
    for name in sorted(sizes, key=lambda name: (-sizes[name], name))[:n_classes]:
        text = ""
        for file in sorted(files[name]):
            text += file.read_text(encoding="utf-8", errors="ignore").replace("\0", "")
            if len(text) > MOST_TEXT:
                break
        found.append((name, " ".join(text.split())))
    return found


def write_texts(to: Path, n_bytes: int, n_classes: int, window: int) -> None:
    """Write windows of the sources; the class number k has a share of 1 / (k + 3)."""
    rng, texts = random.Random(0), sources(n_classes, n_classes > 50)
    weights = [1 / (k + 3) for k in range(len(texts))]
    with to.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow(["text", "label"])
        while out.tell() < n_bytes:
            for name, text in rng.choices(texts, weights, k=1000):
                start = rng.randrange(max(1, len(text) - window))
                stop = start + rng.randrange(window // 2, window * 3 // 2)
                writer.writerow([" ".join(text[start:stop].split()[1:]), name])


def write_sentences(to: Path, n_bytes: int) -> None:
    """Write sentences of descriptions, drawn with a seed, of the sections with 150 packages or more."""
    rows = pd.read_csv(data.packages(to.parent)).dropna()
    pools = {
        section: [piece for text in texts for piece in SENTENCE.split(text) if len(piece) > 20]
        for section, texts in rows.groupby("section")["text"]
        if len(texts) >= 150
    }
    every, names = [piece for pieces in pools.values() for piece in pieces], list(pools)
    rng, weights = random.Random(0), [len(pools[name]) ** 0.7 for name in names]
    with to.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow(["text", "label"])
        while out.tell() < n_bytes:
            for name in rng.choices(names, weights, k=1000):
                n = rng.randrange(2, 9)
                own = max(1, 3 * n // 10)
                pieces = rng.choices(pools[name], k=own) + rng.choices(every, k=n - own)
                writer.writerow([" ".join(" ".join(pieces).split()), name])


def write_table(to: Path, n_bytes: int) -> None:
    """Write rows whose class is drawn by scores of numbers, categories and a few products of both."""
    g, n = np.random.default_rng(0), TABLE_ROWS
    weights, cities = g.standard_normal((15, 4)), g.standard_normal((400, 4))
    shops, colours = (
        g.standard_normal((30_000, 4)) * 0.7,
        np.array(["red", "green", "blue", "white", "black"]),
    )
    with to.open("wb") as out:
        first = True
        while out.tell() < n_bytes:
            x = g.standard_normal((n, 15)).round(4)
            x[:, 3], x[:, 4] = np.exp(x[:, 3] * 2).round(2), (x[:, 4] * 1000).round()
            city, shop = (400 * g.random(n) ** 2).astype(int), (30_000 * g.random(n) ** 3).astype(int)
            colour = g.integers(0, len(colours), n)
            seen = np.tanh(np.c_[x[:, :3], np.log1p(x[:, 3]), x[:, 4] / 1000, x[:, 5:]])
            scores = seen @ weights + 1.5 * cities[city] + shops[shop]
            scores += 2.0 * (x[:, :4] > 0.5) * (colour == 2)[:, None]
            label = np.argmax(scores + 1.5 * g.gumbel(size=scores.shape), axis=1)
            columns = {f"x{j}": x[:, j] for j in range(15)} | {"colour": colours[colour]}
            columns["city"] = np.char.add("city", city.astype(str))
            columns["shop"] = np.char.add("shop ", shop.astype(str))
            columns["label"] = np.array(["low", "middle", "high", "other"])[label]
            pa.csv.write_csv(pa.table(columns), out, pa.csv.WriteOptions(include_header=first))
            first = False


def write_places(to: Path, n_bytes: int) -> None:
    """Write rows whose class depends on a product of two numbers, a place, and a number of some rows."""
    g, n = np.random.default_rng(0), TABLE_ROWS
    places, kinds = g.standard_normal(300), np.array(["a", "b", "c", "dd"])
    with to.open("wb") as out:
        first = True
        while out.tell() < n_bytes:
            x, place, kind = g.standard_normal((n, 8)).round(4), g.integers(0, 300, n), g.integers(0, 4, n)
            scores = x[:, 0] * x[:, 1] + places[place] + (kind == 1) * x[:, 2] + 0.5 * g.logistic(size=n)
            columns = {f"x{j}": x[:, j] for j in range(8)} | {"kind": kinds[kind]}
            columns["place"] = np.char.add("c", place.astype(str))
            columns["label"] = np.where(scores > 0.3, "yes", "no")
            pa.csv.write_csv(pa.table(columns), out, pa.csv.WriteOptions(include_header=first))
            first = False


MADE = {"sentences": write_sentences, "table": write_table, "places": write_places}


def make(name: str, folder: Path, n_bytes: int) -> Path:
    """Return the file of a problem, made unless it is there."""
    target = folder / f"{name}.csv"
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        aside = target.with_suffix(".partial")
        if name in MADE:
            MADE[name](aside, n_bytes)
        else:
            write_texts(aside, n_bytes, *SHAPES[name])
        aside.rename(target)
    return target


def fit(source: Path, memory: str, time_limit: str) -> dict[str, object]:
    """Run one fit and return its figures."""
    model = source.with_name(f"{source.stem}-{memory}.model")
    command = [
        *(sys.executable, "-m", "bigmc", "fit", str(source), "--to", str(model), "--label", "label"),
        *("--memory", memory, "--time", time_limit, "--threads", "1", "--json", "--quiet"),
    ]
    _, bare = bare_bytes("train")
    process, watched = subprocess.Popen(command, stdout=subprocess.PIPE, text=True), Watched()
    watcher = threading.Thread(target=watch, args=(process, watched, float("inf")))
    watcher.start()
    said, _ = process.communicate()
    watcher.join()
    figures: dict[str, object] = {"source": source.stem, "memory": memory, "status": process.returncode}
    figures["above_bare_bytes"] = watched.peak_anonymous - bare
    return figures | (json.loads(said) if process.returncode == 0 else {})


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("problem", choices=(*SHAPES, *MADE))
    parser.add_argument("--memory", nargs="+", default=["128MB"])
    parser.add_argument("--time", default="60s")
    parser.add_argument("--bytes", type=int, default=700_000_000)
    parser.add_argument("--to", type=Path, default=Path(__file__).parent / "data" / "larger")
    given = parser.parse_args()
    source = make(given.problem, given.to.resolve(), given.bytes)
    for memory in given.memory:
        print(json.dumps(fit(source, memory, given.time)), flush=True)


if __name__ == "__main__":
    main()
