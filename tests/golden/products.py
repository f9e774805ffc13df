"""Makes the fixed set: small datasets of every kind, a model of every learner, and what they predict."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import platform
import random
from importlib.metadata import version
from pathlib import Path

import llvmlite.binding
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json

import bigmc

PACKAGES = ("numpy", "scipy", "numba", "llvmlite", "zarr", "numcodecs", "pyarrow", "scikit-learn", "highspy")

#: Name, source and options of `bigmc.ingest`. Manifests name the absolute path of a file, and models the
#: manifest they were trained with: only datasets that no model is trained on are made of files.
DATASETS: dict[str, tuple[str, dict[str, object]]] = {
    "texts": (
        "texts.csv",
        {"text": "text", "categorical": "colour", "numeric": "size", "weighting": "tfidf", "hash_bits": 10},
    ),
    "letters": (
        "texts.csv",
        {"text": "text", "analyzer": "char_wb", "ngrams": (2, 4), "group": "colour", "keep": "size"},
    ),
    "numbers": ("numbers.csv", {"dense": [f"x{j}" for j in range(6)]}),
    "waves": ("numbers.csv", {"dense": ["x0", "x1", "x2"], "standardize": True, "fourier": 16}),
    "sets": ("sets.jsonl", {"text": "text", "hash_bits": 12}),
    "lines": ("sets.jsonl", {"text": "text", "hash_bits": 12}),
}

OF_FILES = ("letters", "lines")

#: Name, learner, dataset and options of `bigmc.train`.
MODELS: dict[str, tuple[str, str, dict[str, object]]] = {
    "group lasso": ("sparse", "texts", {"alpha": 1e-3}),
    "log loss": (
        "sparse",
        "texts",
        {"alpha": 1e-3, "loss": "log_loss", "penalty": "l1", "fit_intercept": True},
    ),
    "ridge": ("sparse", "texts", {"alpha": 0.0, "ridge": 1e-3, "fit_intercept": True}),
    "of sets": ("sparse", "sets", {"alpha": 1e-3, "loss": "multilabel_ranking"}),
    "stumps": ("boost", "numbers", {"n_rounds": 6, "max_depth": 1}),
    "trees": ("boost", "numbers", {"n_rounds": 3, "max_depth": 3}),
    "minimax": ("mrc", "waves", {"lambda0": 0.05, "k_max": 8}),
}


def environment() -> dict[str, str]:
    """Return what the bytes depend on beside the code."""
    features = llvmlite.binding.get_host_cpu_features().flatten()
    processor = {
        "machine": platform.machine(),
        "processor": llvmlite.binding.get_host_cpu_name(),
        "instructions": hashlib.sha256(features.encode()).hexdigest()[:16],
    }
    return {name: version(name) for name in PACKAGES} | processor


def write_sources(folder: Path) -> None:
    """Write the files that everything is made of."""
    draw = random.Random(0)
    words = [f"w{i}é" if i % 7 == 0 else f"Word{i}" for i in range(300)]
    for name, n_rows in (("texts.csv", 700), ("more.csv", 80)):
        with open(folder / name, "w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file)
            rows.writerow(["text", "colour", "size", "label"])
            for _ in range(n_rows):
                y = draw.randrange(5)
                text = " ".join(draw.choices(words[y * 50 : y * 50 + 100], k=draw.randrange(3, 20)))
                rows.writerow([text, f"c{draw.randrange(9)}", draw.randrange(100), f"k{y}"])
    with open(folder / "numbers.csv", "w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow([*(f"x{j}" for j in range(6)), "label"])
        for _ in range(500):
            y = draw.randrange(3)
            rows.writerow([*(round(draw.gauss(y * (j % 3 == 0), 1), 3) for j in range(6)), y])
    with open(folder / "sets.jsonl", "w", encoding="utf-8") as file:
        for _ in range(300):
            own = sorted(draw.sample(range(6), draw.randrange(0, 4)))
            text = " ".join(draw.choice(words[y * 40 : y * 40 + 60]) for y in [*own, 6] for _ in range(4))
            file.write(json.dumps({"text": text, "label": [f"t{y}" for y in own]}) + "\n")
    for path in folder.iterdir():
        os.utime(path, (1_000_000_000, 1_000_000_000))


def make(folder: Path) -> None:
    """Make everything in the current folder."""
    write_sources(folder)
    for name, (source, options) in DATASETS.items():
        data = source if name in OF_FILES else _table(source)
        bigmc.ingest(data, f"{name}.bigmc", label="label", memory_limit="1GB", **options)
    options = DATASETS["letters"][1]
    bigmc.ingest("more.csv", "letters.bigmc", append=True, label="label", memory_limit="1GB", **options)
    for name, (learner, data, options) in MODELS.items():
        bigmc.train(learner, f"{data}.bigmc", f"{name}.model", memory_limit="1GB", **options)
        bigmc.predict(f"{name}.model", f"{data}.bigmc", f"{name}.parquet", scores=True, memory_limit="1GB")
        bigmc.predict(f"{name}.model", DATASETS[data][0], f"{name}.csv", memory_limit="1GB")


def _table(source: str) -> pa.Table:
    """Read a source; a dataset of a table names no path."""
    return pa_json.read_json(source) if source.endswith(".jsonl") else pa_csv.read_csv(source)


def digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file in a folder but those that name its path."""
    made = {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    path_of = str(folder.absolute()).encode()
    return {
        str(path.relative_to(folder)): hashlib.sha256(data).hexdigest()
        for path, data in made.items()
        if path_of not in data
    }
