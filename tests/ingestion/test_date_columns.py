"""Dates as numbers, against Python's calendar, and through ingest, training and prediction."""

from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import bigmc
from bigmc import api
from bigmc.errors import BigmcError, DataError
from bigmc.ingestion.columns.date_columns import as_dates, part_names
from bigmc.ingestion.parts.scan import expand_sources

TIMES = [
    datetime(2026, 11, 25, 8, 30),
    datetime(1969, 12, 31, 23, 59, 59),
    datetime(2000, 2, 29),
    datetime(1858, 3, 1, 12),
    datetime(2100, 1, 1),
]
UTC_TIMES = [time.replace(tzinfo=UTC) for time in TIMES]
FURTHER_EAST = timezone(timedelta(hours=5, minutes=30))


def expected(times):
    return [
        [(t.date() - date(2000, 1, 1)).days, t.month, t.weekday(), t.hour + t.minute / 60 + t.second / 3600]
        for t in times
    ]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([t.isoformat() for t in TIMES]),
        pa.array([f" {t.isoformat(sep=' ')}Z " for t in TIMES], pa.large_string()),
        pa.array([t.isoformat() for t in TIMES]).dictionary_encode(),
        pa.array(TIMES, pa.timestamp("s")),
        pa.array(TIMES, pa.timestamp("us")),
        pa.array(UTC_TIMES, pa.timestamp("ms", "Europe/Berlin")),
        pa.array([t.astimezone(FURTHER_EAST).isoformat() for t in UTC_TIMES]),
    ],
)
def test_numbers_are_those_of_the_calendar(column):
    found = as_dates(column)
    np.testing.assert_allclose(found.values, expected(TIMES), rtol=1e-12)
    assert not found.absent.any()
    assert not found.unreadable.any()


def test_whole_days_missing_and_other_values():
    found = as_dates(pa.array([date(2001, 1, 2), None], pa.date32()))
    assert found.values[0].tolist() == [367, 1, 1, 0]
    assert np.isnan(found.values[1]).all()
    assert found.absent.tolist() == [False, True]
    found = as_dates(pa.array(["2001-01-02", "", None, "2001-02-30", "soon"]))
    assert found.values[0].tolist() == [367, 1, 1, 0]
    assert np.isnan(found.values[1:]).all()
    assert found.absent.tolist() == [False, True, True, False, False]
    assert found.unreadable.tolist() == [False, False, False, True, True]


def rows(n=400, seed=0):
    generator = np.random.default_rng(seed)
    days = generator.integers(0, 3000, n)
    when = [datetime(2015, 1, 1) + timedelta(days=day, hours=day % 24) for day in days.tolist()]
    return pd.DataFrame(
        {
            "when": [t.isoformat() for t in when],
            "x": generator.standard_normal(n),
            "label": ["weekend" if t.weekday() >= 5 else "week" for t in when],
        }
    )


@pytest.mark.parametrize("form", ["csv", "parquet", "timestamps"])
def test_a_model_learns_from_the_day_of_the_week(tmp_path, form):
    table = rows()
    source = tmp_path / ("t.csv" if form == "csv" else "t.parquet")
    if form == "csv":
        table.to_csv(source, index=False)
    else:
        given = table.assign(when=pd.to_datetime(table["when"])) if form == "timestamps" else table
        given.to_parquet(source, index=False)
    options = {"date": "when", "dense": "x", "label": "label", "split": {"train": 1.0}}
    dataset = bigmc.ingest(source, tmp_path / "d", **options)
    assert dataset.features["columns"] == ["x", *part_names(["when"])]
    bigmc.train("boost", dataset, to=tmp_path / "m", max_depth=2, n_rounds=20)
    model = bigmc.load_model(tmp_path / "m")
    others = rows(200, seed=1)
    assert np.mean(model.predict(others.drop(columns="label")) == others["label"].to_numpy()) > 0.97


def test_times_among_dates_are_not_lost(tmp_path):
    """Arrow takes the type of the first value: a time beside a date in the same call lost its hour."""
    # days that bytes hold: kernels are compiled for them anyway
    days = [datetime(2000, 1, 1, hour) for hour in range(24)] * 5
    table = pa.table({"day": days, "label": [str(day.hour > 11) for day in days]})
    dataset = bigmc.ingest(table, to=tmp_path / "d", date="day", label="label")
    model = bigmc.SparseClassifier(ridge=0.01, fit_intercept=True).fit(dataset)
    mixed = [date(2000, 1, 1), datetime(2000, 1, 1, 20), None, date(2000, 1, 2)]
    rows = [{"day": day} for day in mixed if day is not None]
    alone = np.concatenate([model.decision_function([row]) for row in rows])
    np.testing.assert_array_equal(model.decision_function(rows), alone)
    frame = pd.DataFrame({"day": pd.Series([row["day"] for row in rows], dtype=object)})
    np.testing.assert_array_equal(model.decision_function(frame), alone)
    with pytest.raises(DataError, match="'day' has dates and times"):
        bigmc.ingest(
            iter([{"day": day, "label": "a"} for day in mixed]), to=tmp_path / "e", date="day", label="label"
        )
    of_dates = pd.DataFrame({"day": pd.Series([date(2000, 1, 1), pd.NaT], dtype=object)})
    assert expand_sources(of_dates)[0].data.schema.field("day").type == pa.date32()


def test_missing_dates_are_filled_and_no_dates_are_bad_rows(tmp_path):
    table = rows(50)
    table.loc[3, "when"] = None
    table.to_parquet(tmp_path / "t.parquet")
    options = {"date": "when", "label": "label", "split": {"train": 1.0}}
    with pytest.raises(DataError, match="'when' is missing"):
        bigmc.ingest(tmp_path / "t.parquet", tmp_path / "a", **options)
    dataset = bigmc.ingest(tmp_path / "t.parquet", tmp_path / "b", missing="fill", **options)
    names = dataset.features["columns"]
    assert names[4:] == [f"{name} is missing" for name in part_names(["when"])]
    days = as_dates(pa.array(table["when"])).values[:, 0]
    assert dataset.features["filling"]["values"][0] == pytest.approx(np.nanmean(days))
    table.loc[3, "when"] = "soon"
    table.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(DataError, match="'when' is not a date"):
        bigmc.ingest(tmp_path / "t.csv", tmp_path / "c", missing="fill", **options)


def test_dates_are_appended_and_models_of_text_and_dates_are_no_pipelines_of_texts(tmp_path):
    days = [f"2000-01-{1 + k % 31:02d}" for k in range(60)]  # that bytes hold: see above
    table = rows(60).assign(text="a word", when=days)
    table.to_parquet(tmp_path / "t.parquet")
    options = {"text": "text", "date": "when", "label": "label", "split": {"train": 1.0}}
    bigmc.ingest(tmp_path / "t.parquet", tmp_path / "d", **options)
    rows(40, seed=1).assign(text="another", when=days[:40]).to_parquet(tmp_path / "more.parquet")
    grown = bigmc.ingest(tmp_path / "more.parquet", tmp_path / "d", append=True)
    assert grown.n_samples == 100
    bigmc.train("sparse", tmp_path / "d", to=tmp_path / "m", alpha=0.0, ridge=0.1)
    with pytest.raises(BigmcError, match="several columns"):
        api.to_sklearn(tmp_path / "m")
