"""Random and mutated files against independent readers: no raw exception, no row lost, no value different.

CSV is compared with Python's csv module, JSON lines with its json module, svmlight with a parser written
here, Parquet with pyarrow's whole-table reader. Mutated Parquet is read by a process of its own, since a
damaged file may crash the library; what the process says or how it ends is looked at here.
"""

from __future__ import annotations

import csv
import io
import json
import math
import random
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bigmc.budget import MemoryLimitError
from bigmc.errors import DataError
from bigmc.ingestion.parts.scan import ReadHints, ReadRequest, expand_sources, read, scan, schema
from faults.trials import Outcome

LETTERS = [*"abz019 ,;:.\"'{}[]\\/#+-eE_\t\n\réß😀\u2028\x00\ufeff", "\r\n"]


def rows_read(path, columns, types=None, part_bytes=1 << 20, batch_bytes=1 << 16):
    """Return what each record became: a tuple of values, or None for one set aside."""
    sources = expand_sources(path)
    hints = ReadHints(types=types or {}, columns=columns)
    schema(sources, columns, hints)
    rows = {}
    for part in scan(sources, part_bytes, hints):
        for batch in read(part, ReadRequest(columns, batch_bytes, "quarantine"), sources=sources):
            if batch.table is not None:
                values = zip(*(column.to_pylist() for column in batch.table.columns), strict=True)
            else:
                values = zip(batch.labels.to_pylist(), entries_of(batch.matrix), strict=True)
            for row, value in zip(batch.row.tolist(), values, strict=True):
                assert row not in rows
                rows[row] = value
            for reject in batch.rejects:
                assert reject.row not in rows
                rows[reject.row] = None
    assert sorted(rows) == list(range(len(rows))), "a row was lost"
    return [rows[i] for i in range(len(rows))]


def entries_of(rows):
    bounds = zip(rows.indptr[:-1].tolist(), rows.indptr[1:].tolist(), strict=True)
    indices, data = rows.indices.tolist(), rows.data.tolist()
    return [dict(zip(indices[lo:hi], data[lo:hi], strict=True)) for lo, hi in bounds]


def sizes(rng):
    return {"part_bytes": rng.choice([1, 50, 1 << 20]), "batch_bytes": rng.choice([1, 40, 1 << 16])}


def text(rng, most=8):
    return "".join(rng.choice(LETTERS) for _ in range(rng.randrange(most)))


def fuzz_csv(rng, folder):
    """Write rows as the csv module does, some with surplus fields or bytes that are not UTF-8."""
    n_columns = rng.randrange(1, 4)
    names = [f"c{i}" for i in range(n_columns)]
    lines, expected = [], []
    for _ in range(rng.randrange(1, 12)):
        fields = [text(rng) for _ in range(n_columns + (rng.random() < 0.1) - (rng.random() < 0.1))]
        if not fields or fields == [""]:
            continue
        out = io.StringIO()
        csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator=rng.choice(["\n", "\r\n"])).writerow(fields)
        raw, good = out.getvalue().encode(), len(fields) == n_columns
        if rng.random() < 0.1:
            raw, good = raw.replace(b'"', b'"\xe9', 1), False
        lines.append(raw)
        expected.append(tuple(fields) if good else None)
    path = folder / "t.csv"
    path.write_bytes((",".join(names) + "\n").encode() + b"".join(lines))
    assert rows_read(path, names, **sizes(rng)) == expected


def fuzz_any_csv(rng, folder):
    """Write any bytes; what Python's csv module and the reader both take as whole files must agree."""
    pieces = [*LETTERS[:26], '"', '"', ",", ",", "\n", "\n"]
    body = "".join(rng.choice(pieces) for _ in range(rng.randrange(60))).encode()
    if rng.random() < 0.3:
        body = mutated(rng, body)
    path = folder / "t.csv"
    path.write_bytes(b"a,b\n" + body)
    refused(lambda: rows_read(path, ["a", "b"], **sizes(rng)))


def fuzz_jsonl(rng, folder):
    """Write objects of two columns, values of wrong types, and broken lines."""
    lines, expected = [], []
    for _ in range(rng.randrange(1, 12)):
        t, x = rng.choice([text(rng), None]), rng.choice([rng.randrange(-9, 9), 0.5, None])
        row = {"t": t, "x": x, text(rng): text(rng)}
        row.update(t=t, x=x)
        line, good = json.dumps(row, ensure_ascii=rng.random() < 0.5), (t, None if x is None else float(x))
        match rng.randrange(8):
            case 0:
                line, good = line[: rng.randrange(1, len(line))], None
            case 1:
                line, good = json.dumps({"t": 3, "x": x}), ("3", None if x is None else float(x))
            case 2:
                line, good = json.dumps({"t": t, "x": "3"}), None
        if "\n" in line or not line.strip():
            continue
        lines.append(line)
        expected.append(good)
    path = folder / "t.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8", newline="")
    types = {"t": pa.string(), "x": pa.float64()}
    assert rows_read(path, ["t", "x"], types, **sizes(rng)) == expected


def fuzz_any_jsonl(rng, folder):
    """Write mutated lines; those that both json and the reader take must agree."""
    line = json.dumps({"t": text(rng), "x": rng.random(), text(rng, 3): [1, {"a": None}]}).encode()
    lines = [mutated(rng, line).replace(b"\n", b" ") for _ in range(rng.randrange(1, 5))]
    path = folder / "t.jsonl"
    path.write_bytes(b"\n".join(lines))
    found = refused(lambda: rows_read(path, ["t", "x"], {"t": pa.string(), "x": pa.float64()}, **sizes(rng)))
    kept = [line for line in path.read_bytes().split(b"\n") if line.strip(b" \t\r")]
    if found is None:
        return
    assert len(found) == len(kept)
    for raw, row in zip(kept, found, strict=True):
        if row is not None:
            try:
                oracle = json.loads(raw)
            except ValueError:
                continue  # pyarrow takes a little more than json does
            if raw.count(b'"t"') == 1 and raw.count(b'"x"') == 1:
                t = oracle.get("t")
                t = t if t is None or isinstance(t, str) else None if t != t else str(t)
                assert row == (t, oracle.get("x")), raw


def fuzz_svmlight(rng, folder):
    """Write samples with comments, values that cannot be stored and indices in the wrong order."""
    lines, expected = [], []
    for _ in range(rng.randrange(1, 12)):
        label = rng.randrange(5)
        indices = sorted(rng.sample(range(1, 30), rng.randrange(6)))
        values = [rng.choice([1.0, -2.5, 1e-300, 3e300, rng.random()]) for _ in indices]
        good = (label, {i - 1: v for i, v in zip(indices, values, strict=True)})
        tokens = [f"{i}:{v!r}" for i, v in zip(indices, values, strict=True)]
        match rng.randrange(10):
            case 0 if len(tokens) > 1:
                tokens, good = tokens[::-1], None
            case 1:
                tokens, good = [*tokens, "40:nan"], None
            case 2:
                tokens, good = [*tokens, "x:1"], None
            case 3:
                tokens, good = [*tokens, "40:9007199254740993"], None
        lines.append(f"{label} {' '.join(tokens)}" + rng.choice(["", " # a comment", "\r"]))
        expected.append(good)
    path = folder / "t.svm"
    path.write_text("# head\n" + "\n".join(lines) + "\n1 40:1 41:1\n", newline="")
    found = rows_read(path, None, **sizes(rng))
    assert found[:-1] == expected
    assert found[-1] == (1, {39: 1.0, 40: 1.0})


def parquet_table(rng):
    n, kind = rng.randrange(1, 40), rng.choice([pa.string(), pa.large_string()])
    columns = {
        "t": pa.array([rng.choice([text(rng), None]) for _ in range(n)], kind),
        "x": pa.array([rng.choice([rng.random(), math.inf, None]) for _ in range(n)]),
        "i": pa.array([rng.randrange(-(2**62), 2**62) for _ in range(n)]),
        "l": pa.array([[text(rng, 3)] * rng.randrange(3) for _ in range(n)]),
    }
    if rng.random() < 0.3:
        columns["t"] = columns["t"].dictionary_encode()
    return pa.table(columns)


def fuzz_parquet(rng, folder):
    """Write tables of several types and layouts."""
    table, path = parquet_table(rng), folder / "t.parquet"
    pq.write_table(
        table,
        path,
        row_group_size=rng.randrange(1, 50),
        compression=rng.choice(["none", "snappy", "zstd", "gzip"]),
        data_page_version=rng.choice(["1.0", "2.0"]),
        use_dictionary=rng.random() < 0.5,
    )
    columns = rng.sample(table.schema.names, rng.randrange(1, 5))
    expected = [tuple(row[name] for name in columns) for row in table.to_pylist()]
    assert rows_read(path, columns, **sizes(rng)) == expected


def mutated(rng, content):
    """Return bytes with a few of them changed, removed, repeated or cut off."""
    data = bytearray(content)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(5):
            case 0 if at < len(data):
                data[at] = rng.randrange(256)
            case 1:
                del data[at : at + rng.randrange(1, 9)]
            case 2:
                data[at:at] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 9)))
            case 3:
                del data[at:]
            case 4 if at < len(data):
                data[at] ^= 1 << rng.randrange(8)
    return bytes(data)


def refused(run):
    """Return what ``run`` gives, or None if it is refused in one line."""
    message = ""
    try:
        return run()
    except (DataError, MemoryLimitError) as error:
        message = str(error)
    assert "\n" not in message
    return None


def read_mutated_parquet(folder, seeds):
    """Read mutated files; of each say its number before and how it ended after."""
    for seed in seeds:
        rng = random.Random(seed)
        path = Path(folder) / f"m{seed}.parquet"
        pq.write_table(parquet_table(rng), path, row_group_size=20)
        path.write_bytes(mutated(rng, path.read_bytes()))
        print(seed, flush=True)
        for columns in (["t"], ["x", "i", "l"]):
            refused(lambda p=path, c=columns: rows_read(p, c))
        path.unlink()
    print("all", flush=True)


def fuzz_mutated_parquet(seeds, folder):
    """Return the seeds of the files that ended a process, each of which is tried on its own."""
    crashed = []
    seeds = list(seeds)
    while seeds:
        code = (
            f"from faults import fuzz_readers; fuzz_readers.read_mutated_parquet({str(folder)!r}, {seeds!r})"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            cwd=Path(__file__).parents[1],
            check=False,
        )
        lines = done.stdout.split()
        if lines and lines[-1] == "all":
            break
        if not lines or "Traceback" in done.stderr:
            raise AssertionError(f"mutated Parquet {lines[-1:]}: {done.stderr[-2000:]}")
        crashed.append(int(lines[-1]))
        seeds = seeds[seeds.index(crashed[-1]) + 1 :]
    return crashed


FORMATS = (
    fuzz_csv, fuzz_any_csv, fuzz_jsonl, fuzz_any_jsonl, fuzz_svmlight, fuzz_parquet,
)  # fmt: skip


def outcome(seeds, folder):
    """Read an input of each seed, every eighth a mutated Parquet file; ``folder/at`` has the current one."""
    done = Outcome("readers", "fuzz")
    plain = [seed for seed in seeds if seed % 8]
    for seed in plain:
        one = FORMATS[seed % len(FORMATS)]
        (folder / "at").write_text(f"{one.__name__} with seed {seed}")
        try:
            one(random.Random(seed), folder)
        except Exception as error:
            done.problems.append(f"{one.__name__} with seed {seed}: {error!r}")
    (folder / "at").write_text("mutated Parquet")
    mutated_seeds = [seed for seed in seeds if seed % 8 == 0]
    crashed = fuzz_mutated_parquet(mutated_seeds, folder)
    done.problems += [f"a mutated Parquet file with seed {seed} ended its process" for seed in crashed]
    done.trials = done.different = len(plain) + len(mutated_seeds)
    return done
