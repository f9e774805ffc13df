"""Sets of labels on a cluster: datasets, models, figures and predictions are those of one process."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bigmc
from bigmc import api
from bigmc.engine import ThreadEngine

pytestmark = pytest.mark.slow


@pytest.mark.exhaustive
def test_workers_give_the_bytes_of_threads(engine_of, tmp_path, monkeypatch):
    monkeypatch.setattr("bigmc.ingestion.job.SMALLEST_PART", 1 << 12)
    monkeypatch.setattr("bigmc.ingestion.job.ROWS_PER_PART", 100)
    generator = np.random.default_rng(0)
    words = np.array(["goal", "match", "bank", "share", "cell", "atom", "song", "band"])
    rows = [generator.choice(8, 3, replace=False) for _ in range(600)]
    table = {
        "text": [" ".join(words[r]) for r in rows],
        "topics": [[f"t{j}" for j in set(r // 2)] for r in rows],
    }
    source = tmp_path / "a.parquet"
    pq.write_table(pa.table(table), source, row_group_size=50)
    seen = []
    for name, engine in (("threads", ThreadEngine(1)), ("workers", engine_of(2))):
        at = tmp_path / name
        at.mkdir()
        common = {"engine": engine, "memory_limit": "300MB"}
        dataset = bigmc.ingest(source, at / "d", text="text", label="topics", hash_bits=8, **common)
        api.train("sparse", at / "d", at / "m", loss="multilabel_ranking", alpha=1e-2, **common)
        figures = api.evaluate(at / "m", at / "d", **common)
        api.predict(at / "m", source, at / "p.parquet", **common)
        predicted = pq.read_table(at / "p.parquet").to_pylist()
        seen.append((dataset.identity, (at / "m").read_bytes(), figures, predicted))
    assert seen[0] == seen[1]
