"""Some hundred random and mutated inputs of every format; ``.ci/fuzz`` tries far more."""

import os
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from faults import fuzz_readers

from bigmc.errors import DataError
from bigmc.ingestion.parts.scan import expand_sources, schema
from bigmc.ingestion.readers import footers

pytestmark = pytest.mark.slow


@pytest.mark.exhaustive(keep=3)
@pytest.mark.parametrize("one", fuzz_readers.FORMATS, ids=lambda one: one.__name__)
def test_readers_agree_with_independent_ones(one, tmp_path):
    seed = random.randrange(10**9)
    print(f"seed {seed}")
    for case in range(seed, seed + 40):
        one(random.Random(case), tmp_path)


def test_mutated_parquet_is_refused_or_read(tmp_path):
    seed = random.randrange(10**9)
    print(f"seed {seed}")
    assert fuzz_readers.fuzz_mutated_parquet(range(seed, seed + 60), tmp_path) == []


def test_a_footer_that_crashes_the_library_is_refused(tmp_path, monkeypatch):
    for name in ("a", "t", "z"):
        pq.write_table(pa.table({"t": ["x"] * (2 if name == "t" else 1)}), tmp_path / f"{name}.parquet")
    assert schema(expand_sources(tmp_path)).names == ["t"]
    read = pq.read_metadata
    crashing = lambda file: os.abort() if read(file).num_rows == 2 else read(file)  # noqa: E731
    monkeypatch.setattr(footers.pq, "read_metadata", crashing)
    with pytest.raises(DataError, match=r"t\.parquet: not a readable Parquet file"):
        schema(expand_sources(tmp_path))
