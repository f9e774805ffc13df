"""Polars frames that cannot be read: the error names the column, or the method to call."""

from __future__ import annotations

import pytest

import bigmc
from bigmc import api
from bigmc.errors import DataError

pl = pytest.importorskip("polars")


def frame():
    words = ["good", "bad", "fine"]
    rows = {"t": [f"{words[i % 3]} w{i % 7}" for i in range(60)], "y": [i % 3 for i in range(60)]}
    return pl.DataFrame(rows).with_columns(n=pl.col("y") * 2)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    api.ingest(frame(), folder / "d.bigmc", text="t", label="y", hash_bits=8)
    api.train("sparse", folder / "d.bigmc", folder / "m.model", alpha=1e-3)
    return folder / "m.model"


@pytest.mark.parametrize("name", ["n", "y"])
@pytest.mark.parametrize("lazy", [False, True])
def test_a_type_that_arrow_lacks_is_named_with_its_column(name, lazy, tmp_path):
    huge = frame().with_columns(pl.col(name).cast(pl.Int128))
    source = huge.lazy() if lazy else huge
    with pytest.raises(DataError, match=rf"the column '{name}' has the type Int128") as refused:
        api.ingest(source, tmp_path / "d.bigmc", text="t", label="y")
    cast = f"pl.col({name!r}).cast(pl.Int64)"
    assert cast in str(refused.value)
    cured = source.with_columns(eval(cast, {"pl": pl}))
    assert api.ingest(cured, tmp_path / "d.bigmc", text="t", label="y", hash_bits=8).n_samples == 60


@pytest.mark.parametrize("features", [{}, {"text": "t"}])
def test_a_fit_of_a_lazy_frame_asks_to_collect_it(features, tmp_path):
    for source in (frame().lazy(), [frame().lazy()]):
        with pytest.raises(DataError, match=r"lazy frame; call its method collect\(\) first"):
            bigmc.fit(source, tmp_path / "m.model", label="y", **features)


def test_rows_to_predict_in_a_lazy_frame(model, tmp_path):
    lazy = frame().lazy()
    ask = r"call its method collect\(\)"
    with pytest.raises(DataError, match=ask):
        api.load_model(model).predict(lazy)
    with pytest.raises(DataError, match=ask):
        api.predict(model, lazy, tmp_path / "p.parquet")
    with pytest.raises(DataError, match=ask):
        api.evaluate(model, lazy)
    assert api.load_model(model).predict(lazy.collect()).shape == (60,)
