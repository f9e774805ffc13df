"""Size and speed of the store on hashed text, beside zarr's own reader and scipy's files.

    python bench/store.py [--docs 60000] [--shards 1] [--ngrams 2]

The text is the Python source installed beside this interpreter, cut into pieces of 20 lines and hashed
by scikit-learn to 2^18 features. One JSON object per line on stdout. Best of three runs, page cache warm.
"""

from __future__ import annotations

import argparse
import json
import sysconfig
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
import zarr
from sklearn.feature_extraction.text import HashingVectorizer

from bigmc.store.block import BlockBuffers, read_block, stream_blocks
from bigmc.store.dataset import Dataset
from bigmc.store.files.layout import SHARDS, ShardEntry
from bigmc.store.publish import finish_dataset
from bigmc.store.shards import write
from bigmc.store.shards.csr import Rows
from bigmc.store.verify import verify
from bigmc.store.weighting import Weighting


def pieces(wanted: int) -> Iterator[tuple[str, int]]:
    """Yield `wanted` pieces of source and the number of the package each comes from."""
    found: list[tuple[str, str]] = []
    for root in (Path(sysconfig.get_path("stdlib")), Path(sysconfig.get_path("purelib"))):
        for path in sorted(root.rglob("*.py")):
            lines = path.read_text(encoding="utf8", errors="replace").split("\n")
            package = path.relative_to(root).parts[0]
            found += [("\n".join(lines[i : i + 20]), package) for i in range(0, max(len(lines) - 10, 0), 20)]
    packages = {name: c for c, name in enumerate(sorted({p for _, p in found}))}
    chosen = np.random.default_rng(0).permutation(len(found))[:wanted]
    for i in chosen:
        yield found[i][0], packages[found[i][1]] % 20


def best(run: Callable[[], Any], repeat: int = 3) -> float:
    """Return the shortest time of some runs in seconds."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def best_cpu(run: Callable[[], Any], repeat: int = 5) -> float:
    """Return the least processor time of some runs in seconds: on a busy machine the fairer figure."""
    times = []
    for _ in range(repeat):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return min(times)


def tell(**fields: Any) -> None:
    """Print one line of JSON."""
    print(json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in fields.items()}), flush=True)


def store(path: Path, X: sp.csr_matrix, labels: np.ndarray, shard_rows: int) -> list[ShardEntry]:
    """Write the shards of a dataset."""
    entries = []
    for s, start in enumerate(range(0, X.shape[0], shard_rows)):
        part = X[start : start + shard_rows]
        rows = Rows(part.indptr.astype(np.int64), part.indices, part.data, X.shape[1])
        ids = np.arange(start, start + part.shape[0])
        table = pa.table({"label": labels[ids], "row_id": ids})
        entries.append(write.write_shard(path / SHARDS / f"{s:06d}", rows, table))
    return entries


def finish(path: Path, entries: list[ShardEntry], X: sp.csr_matrix) -> Dataset:
    """Complete the dataset."""
    return finish_dataset(
        path, entries, classes=np.arange(20), n_features=X.shape[1], weighting=Weighting(), features={},
        provenance={}, rows_in=X.shape[0],
    )  # fmt: skip


def read_with_zarr(dataset: Dataset) -> None:
    """Decode all shards through zarr's API."""
    for entry in sorted((dataset.path / SHARDS).iterdir()):
        group = zarr.open_group(entry / "x", mode="r")
        for name in ("data", "indices", "indptr"):
            group[name][:]


def main() -> None:
    """Run everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--docs", type=int, default=60_000)
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--ngrams", type=int, default=2)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    texts, codes = zip(*pieces(options.docs), strict=True)
    hashing = HashingVectorizer(n_features=2**18, ngram_range=(1, options.ngrams), norm=None)
    X, labels = hashing.transform(texts), np.array(codes, np.int32)
    X.sort_indices()
    nnz, shard_rows = X.nnz, -(-X.shape[0] // options.shards)
    tell(what="data", rows=X.shape[0], nnz=nnz, ones=float(np.mean(np.abs(X.data) == 1)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "text.bigmc"
        store(path, X[:100], labels, shard_rows)  # compile
        seconds = best(lambda: store(path, X, labels, shard_rows), 2)
        entries = store(path, X, labels, shard_rows)
        tell(what="write shards", mnnz_per_s=nnz / seconds / 1e6)
        start = time.perf_counter()
        dataset = finish(path, entries, X)
        tell(what="finish", seconds=time.perf_counter() - start)
        sizes: dict[str, int] = {}
        for file in path.rglob("*"):
            if file.is_file():
                parts = file.relative_to(path).parts
                name = (
                    parts[0] if parts[0] != SHARDS else "/".join(parts[2:4]) if parts[2] == "x" else parts[2]
                )
                sizes[name] = sizes.get(name, 0) + file.stat().st_size
        tell(what="bytes per nnz", total=sum(sizes.values()) / nnz, **{k: v / nnz for k, v in sizes.items()})
        tell(what="verify", gb_per_s=sum(sizes.values()) / best(lambda: verify(path)) / 1e9)

        buffers = BlockBuffers()
        readers = {
            "read_block": lambda: read_block(dataset, 0, dataset.n_features, buffers),
            "zarr": lambda: read_with_zarr(dataset),
        }
        for name, run in readers.items():
            tell(
                what="decode", reader=name, mnnz_per_s=nnz / best(run) / 1e6,
                mnnz_per_cpu_s=nnz / best_cpu(run) / 1e6,
            )  # fmt: skip
        for compressed in (False, True):
            file = path.parent / "x.npz"
            sp.save_npz(file, X.tocsc(), compressed=compressed)
            cpu = best_cpu(lambda file=file: sp.load_npz(file), 1 if compressed else 3)
            tell(
                what="decode", reader="scipy npz" + compressed * " compressed",
                mnnz_per_cpu_s=nnz / cpu / 1e6, bytes_per_nnz=file.stat().st_size / nnz,
            )  # fmt: skip

        for bits in (16, 17, 18, 20):
            write.CHUNK = 1 << bits
            other = Path(folder) / f"chunk{bits}.bigmc"
            chunked = finish(other, store(other, X, labels, shard_rows), X)
            for slice_entries in (100_000, 500_000, 2_000_000):
                ranges = chunked.plan(
                    3 * slice_entries * chunked.n_shards + 8 * chunked.n_shards * 2**18 // 10
                )
                before = chunked.bytes_read
                chunked.column_nnz()

                def stream(chunked: Dataset = chunked, ranges: Any = ranges) -> None:
                    for _ in stream_blocks(chunked, ranges):
                        pass

                repeat = 3
                cpu = best_cpu(stream, repeat)
                amount = (chunked.bytes_read - before) / repeat / sum(e.bytes for e in entries)
                tell(
                    what="blocks", chunk=1 << bits, entries_per_slice=slice_entries, n_blocks=len(ranges),
                    mnnz_per_cpu_s=nnz / cpu / 1e6, bytes_read_over_size=amount,
                )  # fmt: skip


if __name__ == "__main__":
    main()
