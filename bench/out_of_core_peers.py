"""What Vowpal Wabbit, SGDClassifier and XGBoost reach on the problems of ``bench/out_of_core.py``.

    python bench/out_of_core_peers.py a b --size small

Each peer is a process of its own. It gets the rows and hashed features that bigmc stored, row by row of the
shards, l2-normalised, and is judged on the same rows held out. Vowpal Wabbit reads a text file of them and
keeps its cache; its table has as many bits as fit D/10 (at least 64 MB) at 16 bytes a weight. SGDClassifier
gets shard after shard; XGBoost reads the raw columns of (d) and (e) through its external memory.
One JSON line a run, kept in ``results/out_of_core_peers.jsonl``: seconds and CPU seconds of the training with
its reading, peak of anonymous memory above the imports, accuracy and, for two classes, log loss.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import scipy.sparse as sp
from memory_cap import anonymous
from numba import njit
from out_of_core import FLOOR, decoded_bytes, version
from out_of_core_problems import HERE, PROBLEMS, Place, make

PEERS = ("vw 1", "vw 5", "sgd", "xgboost")
_BYTES_PER_WEIGHT = 16
_SGD_PASSES = 5
_ROUNDS, _BINS = 20, 64


def shards(dataset: Path, classes: list[str]) -> Iterator[tuple[sp.csr_matrix, np.ndarray]]:
    """Yield the normalised rows of each shard and the codes of their labels, -1 for unknown ones."""
    import zarr

    codes = {label: code for code, label in enumerate(classes)}
    own = np.array([codes.get(label, -1) for label in labels_of(dataset)])
    for shard in sorted((dataset / "shards").iterdir()):
        rows = pq.read_table(shard / "rows.parquet", columns=["label", "norm"])
        x = zarr.open(shard / "x", mode="r")
        if isinstance(x, zarr.Array):
            values = sp.csr_matrix(x[:])
        else:
            arrays = [x[name][:] for name in ("data", "indices", "indptr")]
            arrays[:2] = arrays[0].astype(np.float32), arrays[1].astype(np.int32)
            values = sp.csc_matrix(tuple(arrays), shape=x.attrs["shape"]).tocsr()
            norms = np.maximum(rows.column("norm").to_numpy(), 1e-30)
            values = sp.diags((1 / norms).astype(np.float32)) @ values
        yield values.tocsr(), own[rows.column("label").to_numpy()]


def labels_of(dataset: Path) -> list[str]:
    return [str(label) for label in pq.read_table(dataset / "classes.parquet").column("label").to_pylist()]


@njit(cache=True)
def _lines(
    data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, labels: np.ndarray, out: np.ndarray
) -> int:
    """Write ``label | index:value …`` lines, values to four digits; return the bytes written."""
    at = 0
    digits = np.empty(12, np.uint8)
    for row in range(len(labels)):
        for position in range(-1, indptr[row + 1] - indptr[row]):
            number = labels[row] if position < 0 else indices[indptr[row] + position]
            value = 0.0 if position < 0 else data[indptr[row] + position]
            sign = 45 if number < 0 else 0
            number, n = abs(number), 0
            while n == 0 or number > 0:
                digits[n] = 48 + number % 10
                number, n = number // 10, n + 1
            if position >= 0:
                out[at] = 32
                at += 1
            if sign:
                out[at] = sign
                at += 1
            for k in range(n - 1, -1, -1):
                out[at] = digits[k]
                at += 1
            if position < 0:
                out[at], out[at + 1] = 32, 124
                at += 2
                continue
            out[at] = 58
            at += 1
            if value < 0:
                out[at] = 45
                at += 1
            scaled = int(abs(value) * 10_000 + 0.5)
            out[at], out[at + 1] = 48 + scaled // 10_000, 46
            for k in range(4):
                out[at + 5 - k] = 48 + scaled % 10
                scaled //= 10
            at += 6
        out[at] = 10
        at += 1
    return at


def write_lines(dataset: Path, classes: list[str], target: Path) -> None:
    """Write a dataset as Vowpal Wabbit reads it: labels from 1, or -1 and 1 of two."""
    if target.exists():
        return
    aside = target.with_suffix(".partial")
    with aside.open("wb") as file:
        for rows, codes in shards(dataset, classes):
            labels = 2 * codes - 1 if len(classes) == 2 else codes + 1
            for start in range(0, len(labels), 4096):
                some = rows[start : start + 4096]
                out = np.empty(24 * (some.nnz + some.shape[0]), np.uint8)
                arrays = (some.data, some.indices, some.indptr, labels[start : start + 4096])
                file.write(out[: _lines(*arrays, out)].data)
    aside.rename(target)


def run_vw(place: Place, classes: list[str], passes: int, limit: int) -> dict[str, Any]:
    """Train on the text file, then predict the rows held out."""
    files = {split: place.folder / f"{split}.vw" for split in ("train", "test")}
    for split, file in files.items():
        write_lines(place.dataset[split], classes, file)
    model, cache, said = (place.folder / f"{name}-{os.getpid()}" for name in ("vw", "cache", "predicted"))
    bits = min(27, math.floor(math.log2(limit / _BYTES_PER_WEIGHT) + 0.1))
    several = (
        ["--passes", str(passes), "-k", "--holdout_off", "--cache_file", str(cache)] if passes > 1 else []
    )
    loss = ["--loss_function", "logistic"]
    kind = loss if len(classes) == 2 else ["--oaa", str(len(classes)), *loss]
    vw = [sys.executable, "-m", "vowpalwabbit", "--quiet"]
    train = [*vw, "-d", str(files["train"]), *kind, *several, "-b", str(bits), "-f", str(model)]
    figures = measured(train)
    link = ["--link", "logistic"] if len(classes) == 2 else []
    predict = [*vw, "-t", "-d", str(files["test"]), "-i", str(model), "-p", str(said), *link]
    subprocess.run(predict, check=True)
    values = np.array([float(line.split()[0]) for line in said.read_text().splitlines()])
    truth = np.concatenate([codes for _, codes in shards(place.dataset["test"], classes)])
    for file in (model, cache, said):
        file.unlink(missing_ok=True)
    if len(classes) == 2:
        return figures | {"bits": bits} | judged(values, truth)
    return figures | {"bits": bits, "accuracy": float((values - 1 == truth).mean())}


def judged(probability: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Return accuracy and log loss of the probabilities of the second of two classes."""
    p = np.clip(np.where(truth == 1, probability, 1 - probability), 1e-12, 1)
    return {"accuracy": float((p > 0.5).mean()), "log_loss": float(-np.log(p).mean())}


def measured(command: list[str]) -> dict[str, float]:
    """Run a command; seconds, CPU seconds and peak of its anonymous memory."""
    started = time.monotonic()
    process = subprocess.Popen(command)
    peak = [0]

    def watch() -> None:
        while (now := anonymous(process.pid)) > 0:
            peak[0] = max(peak[0], now)
            time.sleep(0.05)

    watcher = threading.Thread(target=watch)
    watcher.start()
    watcher.join()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return {
        "status": process.returncode,
        "seconds": round(time.monotonic() - started, 1),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "anonymous_bytes": peak[0],
    }


class Spent:
    """CPU and wall time of this process since the last look, and its peak."""

    def __init__(self) -> None:
        self._bare = anonymous("self")
        self._started, self._cpu = time.monotonic(), time.process_time()

    def look(self) -> dict[str, float]:
        status = Path("/proc/self/status").read_text()
        peak = int(re.search(r"VmHWM:\s+(\d+)", status)[1]) * 1024  # type: ignore[index]
        return {
            "seconds": round(time.monotonic() - self._started, 1),
            "cpu_seconds": round(time.process_time() - self._cpu, 1),
            "bare_bytes": self._bare,
            "peak_bytes": peak,
        }


def run_sgd(place: Place, classes: list[str]) -> Iterator[dict[str, Any]]:
    """Yield figures after each of some passes, shard after shard."""
    from sklearn.linear_model import SGDClassifier

    loss = "log_loss" if len(classes) == 2 else "hinge"
    model, spent = SGDClassifier(loss=loss, alpha=1e-6, random_state=0), Spent()
    known = np.arange(len(classes))
    for number in range(1, _SGD_PASSES + 1):
        for rows, codes in shards(place.dataset["train"], classes):
            model.partial_fit(rows, codes, classes=known)
        figures = {"passes": number, **spent.look()}
        truth, margin = [], []
        for rows, codes in shards(place.dataset["test"], classes):
            truth.append(codes)
            margin.append(model.decision_function(rows))
        scores, codes = np.concatenate(margin), np.concatenate(truth)
        if len(classes) == 2:
            yield figures | judged(1 / (1 + np.exp(-scores)), codes)
        else:
            yield figures | {"accuracy": float((scores.argmax(axis=1) == codes).mean())}


def run_xgboost(place: Place, classes: list[str]) -> dict[str, Any]:
    """Boost trees on batches of the raw columns that XGBoost keeps in files of its own."""
    import xgboost as xgb

    codes = {label: code for code, label in enumerate(classes)}

    def arrays(table: Any) -> tuple[np.ndarray, np.ndarray]:
        labels = np.array([codes[str(label)] for label in table.column("label").to_pylist()])
        columns = table.drop_columns("label").columns
        return np.column_stack([column.to_numpy().astype(np.float32) for column in columns]), labels

    class Batches(xgb.DataIter):
        def __init__(self) -> None:
            self.file, self.at = pq.ParquetFile(place.table["train"]), 0
            super().__init__(cache_prefix=str(place.folder / "xgboost"))

        def next(self, input_data: Any) -> bool:
            if self.at == self.file.num_row_groups:
                return False
            X, y = arrays(self.file.read_row_group(self.at))
            input_data(data=X, label=y)
            self.at += 1
            return True

        def reset(self) -> None:
            self.at = 0

    spent = Spent()
    binary = len(classes) == 2
    objective = {"objective": "binary:logistic"} if binary else {"num_class": len(classes)}
    chosen = {
        "objective": "multi:softprob",
        "tree_method": "hist",
        "nthread": 1,
        "max_bin": _BINS,
        **objective,
    }
    model = xgb.train(chosen, xgb.ExtMemQuantileDMatrix(Batches(), max_bin=_BINS), num_boost_round=_ROUNDS)
    figures = {"rounds": _ROUNDS, **spent.look()}
    X, truth = arrays(pq.read_table(place.table["test"]))
    said = model.predict(xgb.DMatrix(X))
    if binary:
        return figures | judged(said, truth)
    return figures | {"accuracy": float((said.argmax(axis=1) == truth).mean())}


def run(name: str, peer: str, size: str, folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the figures of one peer on one problem."""
    place = make(name, size, folder)
    classes = labels_of(place.dataset["train"])
    if peer.startswith("vw"):
        limit = max(FLOOR["full"], decoded_bytes(place.dataset["train"]) // 10)
        yield run_vw(place, classes, int(peer.split()[1]), limit)
    elif peer == "sgd":
        yield from run_sgd(place, classes)
    elif PROBLEMS[name].features.get("text") is None:
        yield run_xgboost(place, classes)


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("problems", nargs="+", choices=PROBLEMS)
    parser.add_argument("--size", choices=("full", "mid", "small"), default="full")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=PEERS)
    parser.add_argument("--folder", type=Path, default=HERE / "data")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    folder = given.folder.resolve()
    if not given.one:
        for name in given.problems:
            for peer in given.peers:
                command = [sys.executable, __file__, name, "--size", given.size, "--peers", peer]
                subprocess.run([*command, "--folder", str(folder), "--one"], check=False)
        return
    results = HERE / "results" / "out_of_core_peers.jsonl"
    results.parent.mkdir(exist_ok=True)
    (name,), (peer,) = given.problems, given.peers
    for figures in run(name, peer, given.size, folder):
        line = json.dumps({"problem": name, "size": given.size, "peer": peer, **figures, "at": version()})
        print(line, flush=True)
        with results.open("a") as file:
            file.write(f"{line}\n")


if __name__ == "__main__":
    main()
