"""Parameters from Python that the command line cannot give, and what identifies a source."""

import dask.array as da
import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp

from bigmc import api
from bigmc.budget import MemoryLimitError
from bigmc.errors import DataError
from bigmc.ingestion.memory import Load, divide
from bigmc.ingestion.parts.scan import expand_sources

X = np.arange(20.0).reshape(10, 2)
Y = np.arange(10) % 2


@pytest.mark.parametrize(
    ("source", "options", "reason"),
    [
        (X, {}, "without labels"),
        (X, {"label": "y"}, "no named columns"),
        (X, {"label": Y, "on_bad_row": "drop"}, "'drop'; choose fail or quarantine"),
        (X, {"label": Y, "text": "t"}, "no named columns"),
        (X, {"label": Y, "group": "g"}, "no named columns"),
        (X, {"label": Y, "split": [0.8, 0.2]}, "not shares by name"),
        (X, {"label": Y[:5]}, "10 rows but labels"),
        (X, {"label": Y, "n_features": 3}, "2 features, not 3"),
        (X, {"label": Y, "weighting": "tfidf"}, "counts or l2"),
        (X, {"label": np.zeros(10, int)}, "only the class 0"),
        (X * np.nan, {"label": Y}, "row 0: feature 0 is nan"),
        (np.where(X == 7, np.inf, X), {"label": Y}, "row 3: feature 1 is inf"),
        ([X, X[:, :1]], {"label": [Y, Y]}, "different widths"),
        (sp.csr_array((10, 2)), {"label": Y}, "no features"),
        (X[:, :, None], {"label": Y}, "3 dimensions"),
        (X.astype(str), {"label": Y}, "type"),
        (pa.table({"a": [1.0, 2.0]}), {"label": Y, "dense": "a"}, "separate labels"),
        (object(), {"label": Y}, "not a source"),
        (pa.table({"a": [1.0, 2.0], "y": [0, 1]}), {"label": "z", "dense": "a"}, "no column 'z'"),
    ],
)
def test_refused_with_reason(source, options, reason, tmp_path):
    with pytest.raises(DataError, match=reason):
        api.ingest(source, tmp_path / "d.bigmc", **options)


def test_missing_labels_of_an_array(tmp_path):
    labels = np.array([0, 1, np.nan, 1, 0, 1, 0, 1, 0, 1])
    with pytest.raises(DataError, match="row 2: the label is missing"):
        api.ingest(X, tmp_path / "d.bigmc", label=labels)
    dataset = api.ingest(X, tmp_path / "d.bigmc", label=labels, on_bad_row="quarantine")
    assert dataset.n_samples == 9


def test_a_changed_array_is_another_source(tmp_path):
    api.ingest(X, tmp_path / "d.bigmc", label=Y)
    api.ingest(X.copy(), tmp_path / "d.bigmc", label=Y)
    for changed, labels in ((X + 1, Y), (X, 1 - Y)):
        with pytest.raises(DataError, match="other parameters"):
            api.ingest(changed, tmp_path / "d.bigmc", label=labels)


def test_a_changed_file_is_named_without_the_values_that_follow_from_it(tmp_path):
    """Their lists filled a screen, and the changed file was easily missed."""
    data = tmp_path / "d.csv"
    options = {"one_hot": "kind", "dense": "size", "label": "y", "missing": "fill"}
    data.write_text("kind,size,y\nu,1,a\nv,2,b\n")
    api.ingest(data, tmp_path / "d.bigmc", **options)
    data.write_text("kind,size,y\nu,1,a\nw,3,b\n")
    with pytest.raises(DataError, match=r"other parameters \(sources: .*d\.csv has changed since\)"):
        api.ingest(data, tmp_path / "d.bigmc", **options)
    with pytest.raises(DataError, match=r"has changed since; seed: it has 0, asked for 1\)"):
        api.ingest(data, tmp_path / "d.bigmc", seed=1, **options)


@pytest.mark.parametrize(
    "make",
    [
        lambda k: np.eye(3) * k,
        lambda k: sp.csr_array(np.eye(3) * k),
        lambda k: da.from_array(np.eye(3) * k, chunks=2),
        lambda k: pa.table({"a": [1, k]}),
    ],
)
def test_identity_tells_equal_from_different(make):
    [one], [same], [other] = (expand_sources(make(k)) for k in (2, 2, 3))
    assert one.identity() == same.identity()
    assert one.identity() != other.identity()


def test_a_dask_chunk_beyond_the_share_is_refused(tmp_path):
    array = da.zeros((40_000, 200), chunks=(40_000, 200))
    with pytest.raises(MemoryLimitError, match=r"64 MB.*rechunk"):
        api.ingest(array, tmp_path / "d.bigmc", label=np.arange(40_000) % 2, memory_limit="80MB")


def test_shares_use_the_limit():
    load = Load(1 << 18, names=True)
    small, large = (divide(limit, load) for limit in (64_000_000, 400_000_000))
    assert small.batch_bytes < large.batch_bytes
    assert small.buffer_bytes < large.buffer_bytes
    assert divide(10**9, Load(1 << 18)).name_capacity == 0
    with pytest.raises(MemoryLimitError, match="57MB or more"):
        divide(30_000_000, load)
