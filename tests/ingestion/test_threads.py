"""What an ingest writes follows from the input, the options and the memory limit: threads change no byte."""

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest

from bigmc import api
from bigmc.engine import ThreadEngine
from bigmc.ingestion import job as job_module
from bigmc.ingestion.columns import labels as label_module
from bigmc.ingestion.memory import Load, divide
from bigmc.store.files.layout import read_manifest

NUMBERS = [f"x{k}" for k in range(32)]
DENSE = {"dense": NUMBERS, "label": "label", "standardize": True}
WORDS = {"text": ["x0", "x1"], "label": "label", "hash_bits": 10, "names": True}
CATEGORIES = {"categorical": NUMBERS[:2], "label": "label", "hash_bits": 10, "names": True}


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """60,000 rows of two texts or categories, most of them new, or of 32 numbers; later labels are many."""
    path = tmp_path_factory.mktemp("threads") / "rows.csv"
    values = np.random.default_rng(0).integers(0, 100_000, (len(NUMBERS), 60_000))
    number = np.arange(60_000)
    labels = np.where(number < 45_000, number % 10, number % 3000)
    pa_csv.write_csv(pa.table([*values, labels], names=[*NUMBERS, "label"]), path)
    return path


def contents(folder):
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.exhaustive(keep=2)
@pytest.mark.parametrize("options", [WORDS, CATEGORIES, DENSE], ids=["words", "categories", "dense"])
def test_any_number_of_threads_writes_the_same_bytes_in_little_memory(options, rows, tmp_path):
    written = []
    for n_threads in (1, 5):
        to = tmp_path / f"{n_threads}.bigmc"
        api.ingest(rows, to, **options, memory_limit="72MB", engine=ThreadEngine(n_threads))
        written.append(contents(to))
    assert written[0] == written[1]
    if options is DENSE:  # the limit is so tight that it cuts shards
        assert max(shard.rows for shard in read_manifest(to).shards) < 45_000


@pytest.mark.exhaustive
def test_parts_written_before_many_labels_were_found_are_like_the_later_ones(rows, tmp_path, monkeypatch):
    """One run, with any number of threads, and several processes end with the same shards."""
    monkeypatch.setattr(label_module, "LABEL_BYTES", 3000)
    monkeypatch.setattr(job_module, "ROWS_PER_PART", 20_000)
    limits = DENSE | {"memory_limit": "72MB"}
    whole, parts = tmp_path / "whole.bigmc", tmp_path / "parts.bigmc"
    api.ingest(rows, whole, **limits, engine=ThreadEngine(5))
    for number in range(2):
        api.ingest_part(rows, parts, (number, 2), **limits, engine=ThreadEngine(1))
    api.ingest(rows, parts, **limits, engine=ThreadEngine(1))
    assert contents(parts) == contents(whole)


def test_workers_have_room_for_whole_shards_or_there_is_one():
    load = Load(1 << 18, names=True, samples_bytes=60_000_000)
    assert [divide(limit * 10**6, load).most_workers for limit in (60, 400, 512, 1000)] == [1, 1, 2, 5]
    for limit in (80, 400, 512, 1000):
        shares = divide(limit * 10**6, load)
        assert shares.most_threads == 2 * shares.most_workers
        assert shares.most_workers == 1 or shares.buffer_bytes >= load.samples_bytes
    assert divide(60_000_000, load).most_threads == 1
