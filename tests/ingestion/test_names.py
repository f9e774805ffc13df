import sysconfig
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import HashingVectorizer

from bigmc.errors import DataError
from bigmc.ingestion.hashing import feature_names
from bigmc.ingestion.hashing.categories import categories_of
from bigmc.ingestion.hashing.feature_names import NameCounter, merge_names
from bigmc.ingestion.hashing.hasher import TextHasher, hash_names

Entry = tuple[int, str, int]


def sources() -> Iterator[str]:
    """Paragraphs of the standard library: real text on any machine."""
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        yield from path.read_text("utf-8", errors="replace").split("\n\n")


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return list(sources())


def exact(hasher: TextHasher, documents: list[str]) -> Counter[Entry]:
    """Count with scikit-learn's analyzer."""
    analyze = HashingVectorizer(
        analyzer=hasher.analyzer, ngram_range=hasher.ngrams, lowercase=hasher.lowercase
    ).build_analyzer()
    counts = Counter(name for document in documents for name in analyze(document))
    buckets, signs = hash_names(list(counts), hasher.hash_bits)
    entries = zip(buckets.tolist(), counts, signs.tolist(), strict=True)
    return Counter(dict(zip(entries, counts.values(), strict=True)))


def entries(table: pa.Table) -> Counter[Entry]:
    rows = zip(*(table[c].to_pylist() for c in ("bucket", "name", "sign")), strict=True)
    return Counter(dict(zip(rows, table["count"].to_pylist(), strict=True)))


@pytest.mark.parametrize(
    ("analyzer", "ngrams"),
    [
        ("word", (1, 1)),
        ("word", (1, 3)),
        ("char", (1, 3)),
        ("char_wb", (1, 3)),
        ("char_wb", (2, 2)),
        ("char_wb", (5, 6)),
    ],
)
def test_a_small_part_is_counted_exactly(texts: list[str], analyzer: Any, ngrams: tuple[int, int]) -> None:
    documents = [*texts[:200], "", " ", "Größe ΟΔΟΣ İx", "a b", "ЖЗИ й ЖЗИ кл", "ab\u2003 cd ef"]
    hasher = TextHasher(analyzer, ngrams, 18)
    counter = NameCounter(hasher, 1 << 19)
    counter.update(pa.array(documents))
    found = entries(counter.table())
    expected = exact(hasher, documents)
    long = {entry for entry in expected if len(entry[1].encode()) > feature_names.NAME_BYTES}
    assert counter.max_error == 0
    assert {e: n for e, n in found.items() if not e[1].endswith("…")} == {
        e: n for e, n in expected.items() if e not in long
    }
    assert sum(found.values()) == sum(expected.values())


@pytest.mark.exhaustive(keep=1)
@pytest.mark.parametrize(("analyzer", "ngrams"), [("word", (1, 2)), ("char_wb", (1, 3))])
def test_frequent_buckets_get_the_right_name(
    texts: list[str], analyzer: Any, ngrams: tuple[int, int]
) -> None:
    hasher = TextHasher(analyzer, ngrams, 16)
    counters = []
    half = len(texts) // 2
    for part in (texts[:half], texts[half:]):
        counter = NameCounter(hasher, 1 << 15)
        counter.update(pa.array(part))
        counters.append(counter)
    truth = exact(hasher, texts)
    best: dict[int, tuple[int, Entry]] = {}
    mass: Counter[int] = Counter()
    for entry, n in truth.items():
        mass[entry[0]] += n
        best[entry[0]] = max(best.get(entry[0], (0, entry)), (n, entry))
    merged = merge_names(counter.table() for counter in counters)
    found = entries(merged)
    top: dict[int, Entry] = {}
    for entry in found:
        top.setdefault(entry[0], entry)
    frequent = [bucket for bucket, _ in mass.most_common(1000)]
    right = sum(top.get(bucket) == best[bucket][1] for bucket in frequent)
    assert right >= 950
    # Sampled counts: within the summary's error and five standard deviations of drawing documents, for names
    # frequent enough that this says something.
    error = sum(counter.max_error for counter in counters)
    ratios = [found[top[b]] / truth[top[b]] for b in frequent if b in top and truth[top[b]] > 1500]
    assert len(ratios) > 20
    assert abs(np.median(ratios) - 1) < 0.15
    assert error < max(truth.values()) / 20
    # A bucket with two frequent names lists both.
    collisions = Counter(entry[0] for entry in found)
    assert max(collisions.values()) > 1


def test_batches_do_not_matter(texts: list[str]) -> None:
    array = pa.array(texts)
    hasher = TextHasher("word", (1, 2), 18)
    one = NameCounter(hasher, 1 << 12)
    one.update(array)
    many = NameCounter(hasher, 1 << 12)
    for start in range(0, len(array), 777):
        many.update(array[start : start + 777])
    assert one.table().equals(many.table())
    chunked = NameCounter(hasher, 1 << 12)
    chunked.update(pa.chunked_array([array[:5000], array[5000:]]).cast(pa.large_string()))
    assert one.table().equals(chunked.table())


def test_a_name_takes_64_bytes() -> None:
    assert sum(array.nbytes for array in NameCounter(TextHasher(), 1 << 10)._table) == 64 << 10
    with pytest.raises(DataError, match="power of two"):
        NameCounter(TextHasher(), 1000)


def test_a_full_table_keeps_the_frequent_and_bounds_its_error() -> None:
    rng = np.random.default_rng(0)
    draws = rng.zipf(1.3, 60_000) % 50_000
    documents = [" ".join(f"w{k:05d}" for k in row) for row in draws.reshape(-1, 60)]
    hasher = TextHasher("word", (1, 1), 20)
    counter = NameCounter(hasher, 1 << 10)
    counter.update(pa.array(documents))
    found = entries(counter.table())
    truth = exact(hasher, documents)
    assert len(found) == 1 << 10
    for entry, n in found.items():
        assert truth[entry] - counter.max_error <= n <= truth[entry]
    for entry, n in truth.items():
        assert entry in found or n <= counter.max_error
    assert {e for e, _ in truth.most_common(100)} <= set(found)


def test_long_names_are_cut_between_characters() -> None:
    counter = NameCounter(TextHasher("word", (1, 1), 18), 8)
    counter.update(pa.array(["ж" * 30, "x" + "ж" * 30, "y" * 40]))
    assert set(counter.table()["name"].to_pylist()) == {"ж" * 20 + "…", "x" + "ж" * 19 + "…", "y" * 40}


def test_merging_adds_up_and_keeps_to_its_size() -> None:
    def table(rows: list[tuple[int, str, int, int]]) -> pa.Table:
        return pa.table([list(c) for c in zip(*rows, strict=True)], schema=feature_names.SCHEMA)

    a = table([(1, "one", 1, 5), (1, "uno", -1, 7), (2, "two", 1, 1)])
    b = table([(1, "one", 1, 4), (0, "nil", 1, 2), (2, "deux", 1, 1)])
    assert (
        merge_names([a, b]).to_pylist()
        == table(
            [(0, "nil", 1, 2), (1, "one", 1, 9), (1, "uno", -1, 7), (2, "deux", 1, 1), (2, "two", 1, 1)]
        ).to_pylist()
    )
    assert merge_names([a, b], per_bucket=1)["name"].to_pylist() == ["nil", "one", "deux"]
    assert merge_names([]).schema == feature_names.SCHEMA
    big = [
        table([(k, f"name{k}", 1, k + 1) for k in range(start, start + 2000)])
        for start in range(0, 10_000, 2000)
    ]
    merged = merge_names(big, max_bytes=100_000)
    assert 80_000 < merged.nbytes <= 100_000
    assert min(merged["count"].to_pylist()) == 10_001 - len(merged)
    assert merged.equals(merge_names(big, max_bytes=100_000))


def test_nothing_is_counted_and_nulls_are_refused() -> None:
    counter = NameCounter(TextHasher())
    counter.update(pa.array([], pa.string()))
    assert counter.table().num_rows == 0
    with pytest.raises(DataError, match="null"):
        counter.update(pa.array(["a", None]))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(max_size=20), min_size=1, max_size=60), st.text(max_size=5))
def test_categories_are_counted_as_they_are_hashed(values: list[str], column: str) -> None:
    counter = NameCounter(TextHasher(), 1 << 12)
    counter.update_categories(categories_of(pa.array(values), column))
    expected = Counter(f"{column}={value}" for value in values)
    buckets, signs = hash_names(list(expected), 18)
    table = zip(buckets.tolist(), expected, signs.tolist(), strict=True)
    long = [name for name in expected if len(name.encode()) > feature_names.NAME_BYTES]
    found = {entry: n for entry, n in entries(counter.table()).items() if not entry[1].endswith("…")}
    assert found == {e: expected[e[1]] for e in table if e[1] not in long and not e[1].endswith("…")}


def test_categories_that_take_each_others_place_are_counted_row_by_row() -> None:
    """A value that lost its place in the table and comes again is a new one, also within one batch."""
    rng = np.random.default_rng(0)
    values = [f"v{min(value, 500)}" for value in rng.zipf(1.2, 4000).tolist()]
    together, apart = NameCounter(TextHasher(), 64), NameCounter(TextHasher(), 64)
    together.update_categories(categories_of(pa.array(values).dictionary_encode(), "c"))
    for value in values:
        apart.update_categories(categories_of(pa.array([value]), "c"))
    assert together.table() == apart.table()
    true = Counter(values)
    assert len(true) > 3 * 64
    assert all(row["count"] <= true[row["name"][2:]] for row in together.table().to_pylist())
