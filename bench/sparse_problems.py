"""The frozen problems of ``bench/sparse_race.py``: data, alpha, and the optimum errors are measured against.

The data of a problem are datasets on disk, made once. The peers get the same rows and the very values that
bigmc computes with, as arrays in files. Only the functions that make these need bigmc; what a peer's
interpreter calls needs NumPy and SciPy.
"""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

if TYPE_CHECKING:
    from bigmc.store.dataset import Dataset

HERE = Path(__file__).parent
#: Certified relative gap of the optimum that errors are measured against, as a share of the finest tolerance.
_REFERENCE = 0.05


@dataclass(frozen=True)
class Problem:
    """Data and penalty; `make` returns the rows to train on and those to test on."""

    name: str
    alpha: float
    make: Callable[[Path], tuple[Dataset, Dataset]]
    tolerances: tuple[float, ...] = (1e-1, 1e-2, 1e-3, 1e-4)
    memory: str | None = None
    """A limit that is too small for data and scores, for what is measured out of core."""


def _packages(folder: Path) -> tuple[Dataset, Dataset]:
    return _text(folder, "packages", text="text", label="section", group="source", ngrams=(1, 1))


def _glosses(folder: Path) -> tuple[Dataset, Dataset]:
    return _text(folder, "glosses", text="gloss", label="lexname", ngrams=(1, 1))


def _words(folder: Path) -> tuple[Dataset, Dataset]:
    """Every eighth word of 18 languages: as much as lightning can still hold twice over."""
    some = folder / "words-8th.csv"
    if not some.exists():
        _fetch(folder, "words")
        with (folder / "words.csv").open(newline="") as source, some.with_suffix(".partial").open("w") as out:
            out.writelines(line for number, line in enumerate(source) if number % 8 == 0)
        some.with_suffix(".partial").rename(some)
    return _text(folder, "words-8th", text="word", label="language", analyzer="char_wb", ngrams=(1, 3))


def _synthetic(folder: Path) -> tuple[Dataset, Dataset]:
    """Documents of some 90 distinct words each, from a Zipf-like law over 2^18 words; 7 classes.

    3,000 words, none of the 50 most frequent, say something about the class: they have random normal
    weights. The class is the one of the largest score; 5 % of the labels are drawn anew.
    """

    def arrays() -> tuple[Any, Any]:
        generator = np.random.default_rng(20131)
        n, d, m = 125_000, 1 << 18, 7
        lengths = np.clip(generator.lognormal(4.5, 0.5, n), 5, 2000).astype(np.int64)
        law = 1.0 / (np.arange(d) + 20.0)
        ranks = np.searchsorted(np.cumsum(law / law.sum()), generator.random(lengths.sum()))
        column = generator.permutation(d)
        words = column[np.minimum(ranks, d - 1)]
        rows = np.repeat(np.arange(n), lengths)
        X = sp.csr_array((np.ones(len(rows), np.int16), (rows, words)), (n, d))
        X.sum_duplicates()
        weights = np.zeros((d, m))
        weights[column[50:3050]] = generator.standard_normal((3000, m))
        y = np.argmax(X @ weights, axis=1)
        wrong = generator.random(n) < 0.05
        y[wrong] = generator.integers(0, m, wrong.sum())
        return X, y

    return _split(_arrays(folder / "synthetic.bigmc", arrays, weighting="l2"))


def _fashion(folder: Path) -> tuple[Dataset, Dataset]:
    """Pixels of 28 x 28 grey values over 255, in the split its authors give."""
    images = folder / "fashion"

    def part(name: str) -> Callable[[], tuple[Any, Any]]:
        def arrays() -> tuple[Any, Any]:
            _fetch(folder, "fashion")
            pixels = gzip.decompress((images / f"{name}-images-idx3-ubyte.gz").read_bytes())
            labels = gzip.decompress((images / f"{name}-labels-idx1-ubyte.gz").read_bytes())
            X = np.frombuffer(pixels, np.uint8, offset=16).reshape(-1, 784)
            return sp.csr_array(X.astype(np.float32) / np.float32(255)), np.frombuffer(
                labels, np.uint8, offset=8
            ).astype(np.int64)

        return arrays

    whole = {"weighting": "counts", "split": {"train": 1.0}}
    return (
        _arrays(folder / "fashion.bigmc", part("train"), **whole),
        _arrays(folder / "fashion-test.bigmc", part("t10k"), **whole),
    )


def _digits(folder: Path) -> tuple[Dataset, Dataset]:
    def arrays() -> tuple[Any, Any]:
        from sklearn.datasets import load_digits

        X, y = load_digits(return_X_y=True)
        return sp.csr_array(X / 16), y

    return _split(_arrays(folder / "digits.bigmc", arrays, weighting="counts"))


PROBLEMS = {
    problem.name: problem
    for problem in (
        Problem("digits", 1e-2, _digits),
        Problem("packages", 1e-4, _packages),
        Problem("glosses", 1e-4, _glosses),
        Problem("synthetic", 1e-4, _synthetic, memory="40MB"),
        Problem("words", 2e-4, _words, (1e-1, 1e-2, 1e-3), "192MB"),
        Problem("fashion", 1e-3, _fashion, (1e-1, 1e-2)),
    )
}


def _text(folder: Path, name: str, **columns: Any) -> tuple[Dataset, Dataset]:
    import bigmc

    target = folder / f"{name}.bigmc"
    if not (target / "manifest.json").exists():
        if not (folder / f"{name}.csv").exists():
            _fetch(folder, name)
        bigmc.ingest(folder / f"{name}.csv", target, on_bad_row="quarantine", **columns)
    return _split(bigmc.open_dataset(target))


def _arrays(target: Path, arrays: Callable[[], tuple[Any, Any]], **options: Any) -> Dataset:
    import bigmc

    if not (target / "manifest.json").exists():
        X, y = arrays()
        bigmc.ingest(X, target, label=y, **options)
    return bigmc.open_dataset(target)


def _split(dataset: Dataset) -> tuple[Dataset, Dataset]:
    return dataset["train"], dataset["test"]


def _fetch(folder: Path, name: str) -> None:
    subprocess.run([sys.executable, HERE / "data.py", name, "--to", folder], check=True)


def prepare(problem: Problem, folder: Path) -> None:
    """Make the datasets of a problem and the arrays of its peers, unless they are there."""
    target = _matrices(problem, folder)
    if target.exists():
        return
    partial = target.with_name(f"{target.name}.partial")
    partial.mkdir(parents=True, exist_ok=True)
    for split, dataset in zip(("train", "test"), problem.make(folder), strict=True):
        X = used_values(dataset)
        for part in ("data", "indices", "indptr"):
            np.save(partial / f"{split}-{part}.npy", getattr(X, part))
        np.save(partial / f"{split}-labels.npy", dataset.labels())
    np.save(partial / "shape.npy", [dataset.n_features, dataset.n_classes])
    partial.rename(target)


def used_values(dataset: Dataset) -> sp.csr_array:
    """Return stored values times row and column scale, as float64."""
    from bigmc.store.block import read_block

    block = read_block(dataset, 0, dataset.n_features)
    columns = dataset.column_scale()
    rows = dataset.row_scale(columns).astype(np.float64)
    shards = []
    for shard, offsets in enumerate(block.indptr):
        entries = slice(int(offsets[0]), int(offsets[-1]))
        arrays = (block.data[entries].astype(np.float64), block.indices[entries], offsets - offsets[0])
        shape = (int(block.base[shard + 1] - block.base[shard]), dataset.n_features)
        shards.append(sp.csc_array(arrays, shape).tocsr())
    X = sp.diags_array(rows) @ sp.vstack(shards)
    return sp.csr_array(X if columns is None else X @ sp.diags_array(columns.astype(np.float64)))


def load(problem: Problem, folder: Path, split: str) -> tuple[sp.csr_matrix, np.ndarray, int]:
    """Return the rows of a split, the codes of their classes, and the number of classes."""
    source = _matrices(problem, folder)
    n_features, n_classes = np.load(source / "shape.npy")
    data, indices, indptr, labels = (
        np.load(source / f"{split}-{part}.npy") for part in ("data", "indices", "indptr", "labels")
    )
    X = sp.csr_matrix(
        (data, indices.astype(np.int32), indptr.astype(np.int32)), (len(labels), int(n_features))
    )
    return X, labels.astype(np.int64), int(n_classes)


def _matrices(problem: Problem, folder: Path) -> Path:
    return folder / f"{problem.name}.arrays"


def optimum(problem: Problem, folder: Path, alpha: float) -> dict[str, float]:
    """Return bounds of the smallest objective, from bigmc; found once, then kept.

    Their gap is a twentieth of the finest tolerance. A run that was killed goes on where it was.
    """
    target = folder / f"{problem.name}-{alpha:g}.optimum.json"
    if not target.exists():
        import bigmc
        from bigmc.store.files.checkpoint import FileCheckpoint

        learner = bigmc.SparseClassifier(alpha, tol=_REFERENCE * problem.tolerances[-1], max_passes=5000)
        unfinished = target.with_suffix(".checkpoint")
        learner.fit_dataset(problem.make(folder)[0], checkpoint=FileCheckpoint(unfinished), progress=_tell)
        bounds = learner.certificate_
        figures = {"lower": bounds.lower, "upper": bounds.upper, "gap": bounds.gap}
        target.write_text(json.dumps(figures))
        shutil.rmtree(unfinished)
    return json.loads(target.read_text())


def _tell(progress: Any) -> None:
    facts = progress.facts
    print(f"reference: objective {facts['objective']:.9g}, gap {facts['gap']:.2g}", file=sys.stderr)
