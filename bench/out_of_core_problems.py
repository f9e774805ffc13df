"""The seven problems of ``bench/out_of_core.py``: data too large for the memory they are trained in.

    python bench/out_of_core_problems.py a b --size small --folder bench/data

Made once from data that anyone gets (``bench/data.py``). Where a set is small its texts are repeated: the
first copy as it is, in every further one each word (each letter of a name) is dropped with a probability.
The rows to test on are other sources, places or words than those to train on, and are not repeated. A problem
is a folder of two Parquet tables, ``train`` and ``test``, and a dataset made of each.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))  # bigmc need not be installed

import data  # noqa: E402

SEED = 15
DROPPED = 0.25
"""Probability that a word of a repeated text is left out."""
DROPPED_LETTER = 0.12
TEST_SHARE = 0.05
GROUP_ROWS = 1 << 17
"""Rows of a row group of the Parquet tables."""

Tables = tuple[Iterable[pa.Table], pa.Table]
"""Rows to train on, in pieces, and rows to test on."""


@dataclass(frozen=True)
class Problem:
    """Rows, how they become features, and the strengths of the penalty they are trained with."""

    about: str
    rows: Callable[[Path, float], Tables]
    """Make the rows from the folder of raw data and a number of copies (or of millions of rows)."""
    copies: dict[str, float]
    """Copies by size; "mid" has about 300 MB of decoded non-zeros, "full" more."""
    features: dict[str, Any]
    """Options of ``bigmc.ingest``."""
    alphas: tuple[float, float, float]
    """For the first loss; the second is the one whose course is measured."""
    losses: tuple[str, ...] = ("squared_hinge", "log_loss")


def descriptions(folder: Path, copies: float) -> Tables:
    """Package descriptions → the 24 largest archive sections."""
    table = _csv(data.packages(folder)).rename_columns(["text", "label", "group"])
    return _copied(_largest(table, 24), copies, words=True)


def maintainers(folder: Path, copies: float) -> Tables:
    """Description and dependencies of a package → its maintainer."""
    table = pq.read_table(data.records(folder))
    texts = pc.binary_join_element_wise(table["text"], table["depends"], " ")
    renamed = {"text": texts, "label": table["maintainer"], "group": table["source"]}
    return _copied(pa.table(renamed), copies, words=True)


def names(folder: Path, copies: float) -> Tables:
    """Names of places → the 150 countries with most of them."""
    table = _csv(data.names(folder)).rename_columns(["text", "label", "group"])
    return _copied(_largest(table, 150), copies, words=False)


def words(folder: Path, copies: float) -> Tables:
    """Words → languages; less than one copy is a share of the words."""
    table = _csv(data.words(folder)).rename_columns(["text", "label"])
    return _copied(table.append_column("group", table["text"]), copies, words=False)


def images(folder: Path, millions: float) -> Tables:
    """Noisy clothes → 10 kinds: 200 bounded random features of Fashion-MNIST with pixels left out."""
    source = data.fashion(folder)

    def part(name: str) -> tuple[np.ndarray, np.ndarray]:
        pixels = gzip.decompress((source / f"{name}-images-idx3-ubyte.gz").read_bytes())
        labels = gzip.decompress((source / f"{name}-labels-idx1-ubyte.gz").read_bytes())
        return (
            np.frombuffer(pixels, np.uint8, offset=16).reshape(-1, 784).astype(np.float32) / 255,
            np.frombuffer(labels, np.uint8, offset=8).astype(np.int64),
        )

    generator = np.random.default_rng(SEED)
    directions = generator.standard_normal((784, 200), dtype=np.float32) / 8
    offsets = generator.uniform(-1, 1, 200).astype(np.float32)

    def features(pixels: np.ndarray, labels: np.ndarray) -> pa.Table:
        seen = pixels * (generator.random(pixels.shape, dtype=np.float32) < 0.5)
        values = np.tanh(seen @ directions + offsets)
        columns = {f"x{j}": np.ascontiguousarray(values[:, j]) for j in range(values.shape[1])}
        return pa.table({**columns, "label": labels})

    def train() -> Iterator[pa.Table]:
        pixels, labels = part("train")
        left, rows = round(millions * 1e6), 20_000
        while left > 0:
            chosen = generator.integers(0, len(labels), min(rows, left))
            left -= len(chosen)
            yield features(pixels[chosen], labels[chosen])

    test = features(*part("t10k"))
    return train(), test


N_CATEGORICALS, N_CROSSED = 30, 6


def categoricals(_: Path, millions: float) -> Tables:
    """30 categoricals of Zipf's law and 6 pairs of them → yes or no.

    The columns have from 4 to 10^6 values. A tenth of the values of every second column, and of every pair,
    have a normal effect; the label is drawn by the logistic of their sum. A quarter of the labels are "yes".
    """
    generator = np.random.default_rng(SEED)
    sizes = np.geomspace(4, 1e6, N_CATEGORICALS).astype(np.int64)
    laws = [np.cumsum(law / law.sum()) for law in (1 / np.arange(1, size + 1) ** 1.1 for size in sizes)]
    pairs = [(2 * j, 2 * j + 5) for j in range(N_CROSSED)]
    crossed_sizes = [int(sizes[a] * sizes[b]) for a, b in pairs]

    def effects(size: int) -> np.ndarray:
        values = generator.standard_normal(size)
        return np.where(generator.random(size) < 0.1, values, 0).astype(np.float32)

    single = [effects(int(size)) if j % 2 == 0 else None for j, size in enumerate(sizes)]
    double = [effects(size) for size in crossed_sizes]

    def draw(n: int) -> pa.Table:
        columns: dict[str, np.ndarray] = {}
        logit = np.full(n, -1.3, np.float32)
        drawn = []
        for j, law in enumerate(laws):
            codes = np.minimum(np.searchsorted(law, generator.random(n)), sizes[j] - 1)
            drawn.append(codes)
            columns[f"c{j}"] = codes.astype(np.int32)
            if (effect := single[j]) is not None:
                logit += effect[codes]
        for number, (a, b) in enumerate(pairs):
            codes = drawn[a] * sizes[b] + drawn[b]
            columns[f"p{number}"] = codes.astype(np.int32)
            logit += double[number][codes]
        yes = generator.random(n) < 1 / (1 + np.exp(-logit))
        return pa.table({**columns, "label": np.where(yes, "yes", "no")})

    test = draw(200_000)
    n_rows = round(millions * 1e6)
    return (draw(min(GROUP_ROWS, n_rows - done)) for done in range(0, n_rows, GROUP_ROWS)), test


def _csv(path: Path) -> pa.Table:
    """Return the columns of a file of text, as strings."""
    with path.open(encoding="utf-8") as file:
        types = dict.fromkeys(file.readline().strip().split(","), pa.string())
    return pa.csv.read_csv(
        path,
        parse_options=pa.csv.ParseOptions(newlines_in_values=True),
        convert_options=pa.csv.ConvertOptions(column_types=types, strings_can_be_null=False),
    )


def _largest(table: pa.Table, n_labels: int) -> pa.Table:
    """Return the rows of the most frequent labels."""
    counts = pc.value_counts(table["label"])
    order = pc.sort_indices(counts.field("counts"), sort_keys=[("", "descending")])[:n_labels]
    return table.filter(pc.is_in(table["label"], counts.field("values").take(order)))


def _copied(table: pa.Table, copies: float, words: bool) -> Tables:
    """Split by group, and repeat the rows to train on; each copy has an order of its own."""
    generator = np.random.default_rng(SEED)
    groups = table.column("group").combine_chunks().dictionary_encode()
    codes = groups.indices.to_numpy()
    held_out = generator.random(len(groups.dictionary)) < TEST_SHARE
    train = table.filter(pa.array(~held_out[codes])).drop_columns("group").combine_chunks()
    test = table.filter(pa.array(held_out[codes])).drop_columns("group")

    def pieces() -> Iterator[pa.Table]:
        left, number = copies, 0
        while left > 0:
            order = generator.permutation(train.num_rows)[: round(min(left, 1) * train.num_rows)]
            rows = train.take(pa.array(order))
            yield _thinned(rows, generator, words) if number else rows
            left, number = left - 1, number + 1

    test = test.take(pa.array(generator.permutation(test.num_rows)[:200_000]))
    return pieces(), test


def _thinned(rows: pa.Table, generator: np.random.Generator, words: bool) -> pa.Table:
    """Drop words, or letters, of every text at random; the first one stays."""
    texts = rows.column("text").to_pylist()
    points = np.frombuffer("".join(texts).encode("utf-32-le"), np.uint32)
    ends = np.cumsum([len(text) for text in texts])
    starts = np.concatenate([[0], ends[:-1]])
    first = np.zeros(len(points), bool)
    first[starts[starts < len(points)]] = True
    if words:
        begins = first.copy()
        begins[1:] |= np.isin(points[:-1], (32, 10))
        word = np.cumsum(begins) - 1
        stays = (generator.random(word[-1] + 1) >= DROPPED)[word] | first[np.flatnonzero(begins)][word]
    else:
        stays = (generator.random(len(points)) >= DROPPED_LETTER) | first
    kept = np.concatenate([[0], np.cumsum(stays)])
    joined = points[stays].tobytes().decode("utf-32-le")
    thinned = [joined[kept[a] : kept[b]] for a, b in zip(starts, ends, strict=True)]
    return pa.table({"text": thinned, "label": rows.column("label")})


_LETTERS = {"text": "text", "label": "label", "analyzer": "char_wb", "ngrams": (1, 3), "hash_bits": 18}
_PAIRS = {"text": "text", "label": "label", "ngrams": (1, 2), "hash_bits": 20}
PROBLEMS = {
    "a": Problem(
        "descriptions, words and pairs, 2^20, 24 sections",
        descriptions, {"full": 50, "mid": 18, "small": 6}, _PAIRS, (6e-5, 2e-4, 6e-4),
    ),
    "b": Problem(
        "descriptions, char_wb 1-3, 2^18, 24 sections",
        descriptions, {"full": 11, "mid": 4, "small": 1.3}, _LETTERS, (6e-5, 2e-4, 6e-4),
    ),
    "c": Problem(
        "place names, char_wb 1-3, 2^18, 150 countries",
        names, {"full": 4, "mid": 3.4, "small": 0.9}, _LETTERS, (3e-5, 1e-4, 3e-4),
    ),
    "d": Problem(
        "dense, 1.5 M x 200, 10 classes",
        images, {"full": 1.5, "mid": 0.3, "small": 0.07},
        {"dense": [f"x{j}" for j in range(200)], "label": "label"}, (1.5e-3, 5e-3, 1.5e-2),
    ),
    "e": Problem(
        "10 M rows of 36 categoricals, 2^20, 2 classes",
        categoricals, {"full": 10, "mid": 3, "small": 0.75},
        {
            "categorical": [f"c{j}" for j in range(N_CATEGORICALS)] + [f"p{j}" for j in range(N_CROSSED)],
            "label": "label", "hash_bits": 20,
        }, (3e-6, 1e-5, 1e-4), ("log_loss", "squared_hinge"),
    ),
    "f": Problem(
        "words, char_wb 1-3, 2^18, 18 languages",
        words, {"full": 1, "mid": 0.25, "small": 0.0625}, _LETTERS, (6e-5, 2e-4, 6e-4),
    ),
    "g": Problem(
        "packages, words to triples, 2^20, 2,200 maintainers",
        maintainers, {"full": 9, "mid": 6, "small": 1}, _PAIRS | {"ngrams": (1, 3), "weighting": "tfidf"},
        (3e-2, 1e-1, 3e-1),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Place:
    """Where the files of a problem lie."""

    folder: Path
    table: dict[str, Path] = field(init=False)
    dataset: dict[str, Path] = field(init=False)

    def __post_init__(self) -> None:
        splits = ("train", "test")
        object.__setattr__(self, "table", {split: self.folder / f"{split}.parquet" for split in splits})
        object.__setattr__(self, "dataset", {split: self.folder / f"{split}.bigmc" for split in splits})


def make(name: str, size: str, raw: Path) -> Place:
    """Make the tables and datasets of a problem unless they are there; print what that took."""
    import bigmc

    problem = PROBLEMS[name]
    place = Place(raw / "ooc" / (name if size == "full" else f"{name}_{size}"))
    if not all(path.exists() for path in place.table.values()):
        place.folder.mkdir(parents=True, exist_ok=True)
        train, test = problem.rows(raw, problem.copies[size])
        _write(place.table["train"], train)
        _write(place.table["test"], [test])
    for split, path in place.dataset.items():
        clock, cpu = time.monotonic(), time.process_time()
        made = bigmc.ingest(
            place.table[split], path, split={split: 1.0}, names=False, **problem.features,
        )  # fmt: skip
        info = made.info()
        spent = {"seconds": time.monotonic() - clock, "cpu_seconds": time.process_time() - cpu}
        print(json.dumps({"problem": name, "size": size, "split": split, **spent, **info}), flush=True)
    return place


def _write(target: Path, tables: Iterable[pa.Table]) -> None:
    aside = target.with_suffix(".partial")
    writer = None
    for table in tables:
        writer = writer or pq.ParquetWriter(aside, table.schema, compression="zstd")
        writer.write_table(table, row_group_size=GROUP_ROWS)
    if writer is None:
        shutil.rmtree(aside, ignore_errors=True)
        raise ValueError(f"no rows for {target}")
    writer.close()
    aside.rename(target)


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("problems", nargs="+", choices=PROBLEMS)
    parser.add_argument("--size", choices=("full", "mid", "small"), default="full")
    parser.add_argument("--folder", type=Path, default=HERE / "data")
    given = parser.parse_args()
    for name in given.problems:
        make(name, given.size, given.folder.resolve())


if __name__ == "__main__":
    main()
