"""Compressed text is read forward, once by each thread, wherever its parts are read."""

import gzip
from concurrent.futures import ThreadPoolExecutor

import pytest

from bigmc.errors import DataError
from bigmc.ingestion.parts.scan import ReadHints, ReadRequest, expand_sources, read, scan
from bigmc.ingestion.sources import kept_open, text_from
from bigmc.ingestion.sources.source import open_text
from bigmc.options.raw import FileOptions

LINES = [f'{i},"text {i}\n of two lines"' for i in range(5000)]
HINTS = ReadHints(most_rows=100)


@pytest.fixture(params=["gz", "latin-1"])
def source(request, tmp_path):
    text = "\n".join(["id,t", *LINES])
    path = tmp_path / ("a.csv.gz" if request.param == "gz" else "a.csv")
    path.write_bytes(
        gzip.compress(text.encode()) if request.param == "gz" else (text + "é").encode("latin-1")
    )
    return expand_sources(path, FileOptions() if request.param == "gz" else FileOptions(encoding="latin-1"))


@pytest.fixture
def opened(monkeypatch):
    found = []
    monkeypatch.setattr(text_from, "open_text", lambda file: found.append(file) or open_text(file))
    monkeypatch.setattr(kept_open, "_here", type(kept_open._here)())
    return found


def ids_of(part):
    batches = list(read(part, ReadRequest(["id"], 1 << 12)))
    assert sum(batch.n_bytes for batch in batches) == part.n_bytes
    return [int(i) for batch in batches for i in batch.table["id"].to_pylist()]


def test_a_compressed_file_is_one_part_unless_parts_are_asked_for(source):
    assert len(scan(source, 10_000)) == 1
    parts = scan(source, 10_000, HINTS)
    assert len(parts) > 5
    assert sum(part.n_rows for part in parts) == 5000
    assert max(part.n_bytes for part in parts) < 11_000


@pytest.mark.parametrize("order", ["as they are", "every second one", "backwards"])
def test_parts_are_read_in_any_order(source, opened, order):
    parts = scan(source, 10_000, HINTS)
    opened.clear()
    ways = {"as they are": parts, "every second one": parts[::2] + parts[1::2], "backwards": parts[::-1]}
    found = {part.index: ids_of(part) for part in ways[order]}
    assert [i for index in sorted(found) for i in found[index]] == list(range(5000))
    assert len(opened) == {"as they are": 1, "every second one": 2, "backwards": len(parts)}[order]


def test_every_thread_reads_on_from_its_own_part(source, opened):
    parts = scan(source, 10_000, HINTS)
    opened.clear()
    with ThreadPoolExecutor(3) as pool:
        found = [i for ids in pool.map(ids_of, parts) for i in ids]
    assert found == list(range(5000))
    assert len(opened) <= 3


def test_nothing_stays_open_at_the_end_or_after_an_error(tmp_path, opened):
    path = tmp_path / "a.csv.gz"
    text = "\n".join(["id,t", *LINES]).encode()
    path.write_bytes(gzip.compress(text))
    parts = scan(expand_sources(path), 10_000, HINTS)
    for part in parts:
        ids_of(part)
    assert kept_open._here.reader is None
    begun = read(parts[0], ReadRequest(["id"], 1 << 12))
    next(begun)
    begun.close()
    assert kept_open._here.reader is None
    ids_of(parts[0])
    assert kept_open._here.reader is not None
    path.write_bytes(gzip.compress(text)[:-2000])
    kept_open._here.reader.close()
    kept_open._here.reader = None
    with pytest.raises(DataError):
        ids_of(parts[-1])
    assert kept_open._here.reader is None


def test_another_file_of_the_same_name_is_not_read_on_from(tmp_path, opened):
    """As threads of workers would, which scan nothing themselves."""
    path = tmp_path / "a.csv.gz"
    found = []
    for first in (10_000, 20_000):
        path.unlink(missing_ok=True)
        path.write_bytes(gzip.compress("\n".join(["id", *map(str, range(first, first + 5000))]).encode()))
        with ThreadPoolExecutor(1) as pool:
            parts = pool.submit(scan, expand_sources(path), 10_000, HINTS).result()
        found.append(ids_of(parts[len(found)])[0])
    assert found[0] == 10_000
    assert found[1] == 20_000 + parts[0].n_rows
