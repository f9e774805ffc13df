"""What does not fit into the memory limit is refused with the limit that works."""

import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bigmc import api
from bigmc.budget import MemoryLimitError
from bigmc.engine import ThreadEngine
from bigmc.ingestion.columns import labels as label_module
from bigmc.ingestion.label_census import LabelCensus
from bigmc.ingestion.readers.chunks import Layout, Span, chunks, longest_record
from bigmc.ingestion.readers.record_limit import LongRecords
from bigmc.ingestion.sources.source import Source

CSV = Layout(quote=ord('"'), delimiter=ord(","))


def named_limit(error):
    return int(re.search(r"give --memory (\d+)MB", str(error.value))[1])


def works_at_once(run, small=64):
    """Check that a small limit is refused, that the one named works, and that a bit less does not."""
    with pytest.raises(MemoryLimitError) as refused:
        run(small)
    needed = named_limit(refused)
    with pytest.raises(MemoryLimitError):
        run(int(needed / 1.05))
    return run(needed)


def model_of_short_texts(folder, **options):
    """Train a model: of long texts counts would take four bytes, for which kernels are compiled anew."""
    texts = pa.table({"text": ["short", "a word"], "label": list("ab")})
    options |= {"text": "text", "label": "label", "split": {"train": 1.0}}
    api.ingest(texts, folder / "short.bigmc", **options)
    api.train("sparse", folder / "short.bigmc", folder / "m.model", alpha=1e-3, max_passes=1)
    return folder / "m.model"


def test_a_record_too_long_for_the_limit(tmp_path):
    long = '"' + "a word\n" * 430_000 + '"'
    (tmp_path / "t.csv").write_text("text,label\nshort,a\n" + f"{long},b\n" + "short,b\nlast,a\n")

    def run(megabytes):
        return api.ingest(
            tmp_path / "t.csv",
            tmp_path / "d.bigmc",
            text="text",
            label="label",
            memory_limit=f"{megabytes}MB",
            split={"train": 1.0},
            engine=ThreadEngine(2),
        )

    assert works_at_once(run).n_samples == 4
    model = model_of_short_texts(tmp_path)

    def predict(megabytes):
        to = tmp_path / "p.parquet"
        return api.predict(
            model, tmp_path / "t.csv", to, memory_limit=f"{megabytes}MB", engine=ThreadEngine(2)
        )

    with pytest.raises(MemoryLimitError) as refused:
        predict(50)
    with pytest.raises(MemoryLimitError):
        predict(int(named_limit(refused) / 1.05))
    assert predict(named_limit(refused))["n_samples"] == 4


@pytest.mark.parametrize(
    ("parquet", "hash_bits", "small"),
    [(False, 10, 64), (True, 10, 64), (False, 10, 40), (True, 10, 40), (False, 20, 64)],
)
def test_more_labels_than_the_limit_holds(tmp_path, monkeypatch, parquet, hash_bits, small):
    """Also where the limit is too small for any source, or for the features alone."""
    monkeypatch.setattr(label_module, "LABEL_BYTES", 20_000)
    rows = [{"text": f"w{i % 7}", "label": f"label {i % 3000}"} for i in range(6000)]
    if parquet:
        path = tmp_path / "t.parquet"
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path = tmp_path / "t.jsonl"
        path.write_text("\n".join(map(json.dumps, rows)))

    def run(megabytes):
        options = {"hash_bits": hash_bits, "memory_limit": f"{megabytes}MB", "engine": ThreadEngine(2)}
        return api.ingest(path, tmp_path / "d.bigmc", text="text", label="label", **options)

    assert len(works_at_once(run, small).classes) == 3000


@pytest.mark.exhaustive(keep=2)
@pytest.mark.parametrize(("ending", "small"), [("csv", 40), ("csv", 90), ("jsonl", 64)])
def test_long_records_together_with_many_labels(tmp_path, monkeypatch, ending, small):
    """Also the labels of the long records are new; they may be first and last, and one after the other."""
    monkeypatch.setattr(label_module, "LABEL_BYTES", 20_000)
    long = "a word " * 900_000
    rows = [{"text": f"w{i % 7}", "label": f"label {i % 3000}"} for i in range(6000)]
    for at, label in ((0, "first"), (2500, "middle"), (2501, "next"), (6003, "last")):
        rows.insert(at, {"text": long, "label": label})
    path = tmp_path / f"t.{ending}"
    if ending == "csv":
        path.write_text("text,label\n" + "".join(f'"{row["text"]}",{row["label"]}\n' for row in rows))
    else:
        path.write_text("\n".join(map(json.dumps, rows)))

    def run(megabytes):
        options = {"hash_bits": 10, "memory_limit": f"{megabytes}MB", "engine": ThreadEngine(2)}
        return api.ingest(path, tmp_path / "d.bigmc", text="text", label="label", **options)

    assert len(works_at_once(run, small).classes) == 3004


@pytest.mark.parametrize("most", [80, 3000, 100_000])
def test_records_that_are_too_long_are_skipped_and_no_others(tmp_path, most):
    rng = np.random.default_rng(0)
    records = []
    for i in range(400):
        quoted = b"".join(rng.choice([b"a", b"\n", b'""', b",", b"\r\n"]) for _ in range(rng.integers(60)))
        long = b"x" * int(rng.integers(60_000)) if i % 9 in (4, 5) else b""
        records.append(b'"' + quoted + long + b'",' + b'y"z' * int(rng.integers(3)))
    path = tmp_path / "t.csv"
    path.write_bytes(b"\n".join(records) + b"\n")
    for size in (64, 1 << 10, 1 << 20):
        found = [
            chunk.raw(i)
            for chunk in chunks(Source(str(path), "csv"), CSV, Span(0, None, 1), size, most, LongRecords.SKIP)
            for i in range(len(chunk.starts))
        ]
        assert found == [record for record in records if len(record) <= most]


@pytest.mark.parametrize("source", ["table", "file"])
def test_a_label_longer_than_the_least_limit_allows(source, tmp_path):
    """The labels, more than a part may hold, are counted with the limit that was given."""
    labels = [letter * 1_500_000 for letter in "abc"]
    table = pa.table(
        {"text": [f"w{k % 7} v" for k in range(30)], "label": [labels[k % 3] for k in range(30)]}
    )
    pq.write_table(table, tmp_path / "t.parquet")
    rows = {"table": table, "file": tmp_path / "t.parquet"}[source]
    found = api.ingest(rows, tmp_path / "d", text="text", label="label", memory_limit="200MB")
    assert found.classes.tolist() == labels


def test_labels_that_every_part_can_hold_are_not_charged(tmp_path, monkeypatch):
    """Each of eight files has a few labels of its own, together they are more than one part may have."""
    monkeypatch.setattr(label_module, "LABEL_BYTES", 20_000)
    for number in range(8):
        rows = [{"text": f"w{i % 7}" + 1000 * " x", "label": f"{number} {i % 30}"} for i in range(600)]
        (tmp_path / f"{number}.jsonl").write_text("\n".join(map(json.dumps, rows)))

    def run(megabytes):
        options = {"hash_bits": 10, "memory_limit": f"{megabytes}MB", "engine": ThreadEngine(2)}
        files = sorted(tmp_path.glob("*.jsonl"))
        return api.ingest(files, tmp_path / "d.bigmc", text="text", label="label", **options)

    assert len(works_at_once(run, 40).classes) == 240


@pytest.mark.parametrize("n_labels", [10, 16_000, 100_000])
def test_a_census_of_labels_is_close_and_rather_too_high(n_labels):
    whole, halves = LabelCensus(), [LabelCensus(), LabelCensus()]
    for i in range(n_labels):
        whole.add(f"{i:08d}")
        halves[i % 2].add(f"{i:08d}")
        halves[0].add(f"{i:08d}")
    exact = n_labels * label_module.label_cost("00000000")
    joined = LabelCensus()
    for half in halves:
        joined.add_all(half)
    assert joined.n_bytes == whole.n_bytes
    assert exact <= whole.n_bytes <= 1.08 * exact
    assert len(whole.kept) <= 1 << 14


def test_the_longest_record_is_measured_without_holding_it(tmp_path):
    rng = np.random.default_rng(1)
    path = tmp_path / "t.csv"
    pieces = [b"h,k\n"]
    for i in range(40):
        quoted = b"".join(rng.choice([b"a", b"\n", b'""', b",", b"\r\n"]) for _ in range(rng.integers(60)))
        long = b"x" * int(rng.integers(300_000)) if i % 9 == 4 else b""
        pieces.append(b'"' + quoted + long + b'",' + b'y"z' * int(rng.integers(3)) + b"\n")
    path.write_bytes(b"".join(pieces) * 3)
    records = [
        (int(line), int(end - start))
        for chunk in chunks(Source(str(path), "csv"), CSV, Span(0, None, 1), 1 << 24)
        for line, start, end in zip(chunk.lines, chunk.starts, chunk.ends, strict=True)
    ]
    assert longest_record(Source(str(path), "csv"), CSV, Span(0, None, 1)) == max(
        records, key=lambda record: record[1]
    )


def test_the_longest_text_of_a_parquet_file_is_named_not_the_first_long_one(tmp_path):
    texts = ["short", "a word " * 250_000, "short", "a word " * 700_000, "short", "a word " * 300_000]
    table = pa.table({"text": texts, "label": list("ab") * 3})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=2)

    def run(megabytes):
        limits = {"memory_limit": f"{megabytes}MB", "engine": ThreadEngine(1), "split": {"train": 1.0}}
        options = {"text": "text", "label": "label", "hash_bits": 10}
        return api.ingest(tmp_path / "t.parquet", tmp_path / "d.bigmc", **options, **limits)

    assert works_at_once(run, 56).n_samples == 6
    model_of_short_texts(tmp_path, hash_bits=10)

    def predict(megabytes):
        limits = {"memory_limit": f"{megabytes}MB", "engine": ThreadEngine(1)}
        return api.predict(tmp_path / "m.model", tmp_path / "t.parquet", tmp_path / "p.parquet", **limits)

    assert works_at_once(predict, 44)["n_samples"] == 6


@pytest.mark.exhaustive(keep=1)
@pytest.mark.parametrize(("megabytes", "n_columns"), [(40, 2000), (64, 3000)])
def test_a_parquet_file_of_so_many_columns_that_its_footer_is_too_large(megabytes, n_columns, tmp_path):
    """Refused before it is read, whether the limit is too small for any source or for this one."""
    rng = np.random.default_rng(0)
    names = [f"x{j}" for j in range(n_columns)]
    table = pa.table({name: rng.standard_normal(12) for name in names} | {"label": list("ab") * 6})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=3)

    def run(megabytes):
        limits = {"memory_limit": f"{megabytes}MB", "engine": ThreadEngine(2)}
        return api.ingest(tmp_path / "t.parquet", tmp_path / "d.bigmc", dense=names, label="label", **limits)

    assert works_at_once(run, megabytes).n_samples == 12


def test_a_text_file_of_many_columns(tmp_path):
    """Each column takes memory while it is parsed, also for one row."""
    names = [f"x{j}" for j in range(8000)]
    rows = [",".join([*map(str, range(8000)), label]) for label in "ab" * 4]
    (tmp_path / "t.csv").write_text("\n".join([",".join([*names, "label"]), *rows]))

    def run(megabytes):
        limits = {"memory_limit": f"{megabytes}MB", "engine": ThreadEngine(2)}
        return api.ingest(tmp_path / "t.csv", tmp_path / "d.bigmc", dense=names, label="label", **limits)

    with pytest.raises(MemoryLimitError, match="8,000 columns"):
        run(64)
    assert works_at_once(run).n_samples == 8


def test_a_limit_too_small_for_any_source_names_one_that_fits_these(tmp_path):
    (tmp_path / "t.csv").write_text('text,label\n"' + "a word " * 430_000 + '",b\nshort,a\n')

    def run(megabytes):
        limits = {"memory_limit": f"{megabytes}MB", "engine": ThreadEngine(2), "split": {"train": 1.0}}
        options = {"text": "text", "label": "label", "hash_bits": 18}
        return api.ingest(tmp_path / "t.csv", tmp_path / "d.bigmc", **options, **limits)

    assert works_at_once(run, 40).n_samples == 2
