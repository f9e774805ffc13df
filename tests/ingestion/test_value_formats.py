"""Numbers and dates as people write them, against the readers of Python and pandas, and through a fit."""

import csv
import io
from datetime import datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from read_back import read_back

import bigmc
from bigmc.errors import DataError
from bigmc.ingestion.columns import number_formats
from bigmc.ingestion.columns.column_kinds import with_column_kinds
from bigmc.ingestion.columns.date_columns import as_dates
from bigmc.ingestion.columns.date_formats import EXAMPLES, date_format
from bigmc.ingestion.columns.number_columns import floats_in_format
from bigmc.ingestion.columns.number_formats import Doubt, NumberFormat, number_format
from bigmc.ingestion.columns.value_formats import MISSING_TEXTS, ValueFormats
from bigmc.model.feature_spec import check_feature_spec

VALUES = [1234.5, 12.0, 1234567.25, 0.5, 999.0, -8.75, 1000000.0]


def written(values, decimal, thousands):
    return [f"{v:,}".replace(",", "T").replace(".", decimal).replace("T", thousands) for v in values]


@pytest.mark.parametrize(("decimal", "thousands"), [(".", ","), (",", "."), (",", " "), (".", "'")])
@pytest.mark.parametrize("template", ["{}", "${}", "{} %", "{} kg", "EUR {}", "{}€"])
def test_numbers_are_read_as_pandas_reads_them_when_told(decimal, thousands, template):
    bare = written(VALUES, decimal, thousands)
    told = pd.read_csv(
        io.StringIO("x\n" + "\n".join(f'"{v}"' for v in bare)), decimal=decimal, thousands=thousands
    )
    texts = pa.array([template.format(text) for text in bare])
    format = number_format(texts)
    found = floats_in_format(texts, format, MISSING_TEXTS)
    np.testing.assert_array_equal(found.values, told["x"].astype(float))
    assert number_format(pa.array(format.examples)) == format
    assert NumberFormat.from_dict(format.to_dict()) == format


def test_units_that_multiply_signs_and_missing_values():
    assert number_format(pa.array(["1\xa0234,5", "3"])) == number_format(pa.array(["1 234,5", "3"]))
    texts = pa.array(["€1.5M", "€20K", "€0", "-€3K", "(€4K)", "N/A", " - ", None, "cheap"])
    format = number_format(texts[:5])
    found = floats_in_format(texts, format, MISSING_TEXTS)
    np.testing.assert_array_equal(found.values, [1.5e6, 2e4, 0, -3e3, -4e3, *[np.nan] * 4])
    assert found.absent.tolist() == [False] * 5 + [True] * 3 + [False]
    assert found.unreadable.tolist() == [False] * 8 + [True]


@pytest.mark.parametrize("negative", ["({})", "−{}", "- {}"])
def test_other_signs_are_read_in_plain_columns_too(negative, tmp_path):
    """A fit took the column for numbers and then stopped at the first of these."""
    amounts = [f"{i}.5" for i in range(40)]
    texts = [negative.format(text) if i % 3 else text for i, text in enumerate(amounts)]
    format = number_format(pa.array(texts))
    assert format.is_plain
    expected = [-float(text) if i % 3 else float(text) for i, text in enumerate(amounts)]
    assert floats_in_format(pa.array(texts), format, MISSING_TEXTS).values.tolist() == expected
    table = pa.table({"amount": texts, "label": ["a", "b"] * 20})
    assert bigmc.fit(table, tmp_path / "m.model", label="label", time_limit=1e-9)["columns"]["dense"] == [
        "amount"
    ]


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        (["1,234", "12345"], "thousands or before decimals"),
        (["5 kg", "7 lb"], "several units"),
        (["5 kg", "7"], "several units"),
        (["$5", "€7"], "several currencies"),
    ],
)
def test_what_may_be_read_in_two_ways_is_in_doubt(texts, reason):
    doubt = number_format(pa.array(texts))
    assert isinstance(doubt, Doubt)
    assert reason in doubt.reason


@pytest.mark.parametrize(
    "texts", [["A1"], ["1.2.3"], ["12:30"], ["1/2"], ["555-1234"], ["IV"], ["5)"], ["(5"], []]
)
def test_other_texts_are_no_numbers(texts):
    assert number_format(pa.array(texts, pa.string())) is None


def test_a_unit_has_sixteen_characters_and_behind_them_eight_letters_at_most():
    for unit in ("l", "km2", "kilowattstunden3", "kilowattstunden/Jahr", "a/bc.d%e/fgh.ijkletters3"):
        assert number_format(pa.array([f"5 {unit}", "7"])) != number_format(pa.array(["5", "7"]))
        assert number_format(pa.array([f"5 {unit}"])).units == ((unit, 1.0),)
    for unit in ("m2", "km4", "kilowattstundenproJahrzehnt", "a/bc.d%e/fgh.ijk.letters", "x" * 30):
        assert number_format(pa.array([f"5 {unit}"])) is None


def test_texts_without_digits_are_not_taken_apart(monkeypatch):
    """That takes a hundred times as long as to see that a text has none, for each column of words."""
    monkeypatch.setattr(number_formats, "_parts", lambda texts: pytest.fail(f"{texts} taken apart"))
    assert number_format(pa.array(["red", "green 7", "blue"])) is None
    found = floats_in_format(pa.array(["1", "", " 2", None]), NumberFormat(), MISSING_TEXTS)
    np.testing.assert_array_equal(found.values, [1, np.nan, 2, np.nan])


TIMES = [
    datetime(2020, 12, 31, 15, 45),
    datetime(1999, 2, 28),
    datetime(2024, 2, 29, 0, 5),
    datetime(1970, 1, 13),
]


@pytest.mark.parametrize(
    "pattern",
    [
        "%m/%d/%Y",
        "%d.%m.%Y",
        "%d/%m/%Y %H:%M",
        "%m/%d/%y %I:%M %p",
        "%Y/%m/%d",
        "%d-%b-%y",
        "%B %d, %Y",
        "%d %b %Y",
    ],
)
def test_dates_are_read_as_python_reads_them_when_told(pattern):
    texts = [time.strftime(pattern) for time in TIMES]
    format = date_format(pa.array(texts))
    found = as_dates(pa.array([*texts, "?", "soon"]), format, MISSING_TEXTS)
    told = as_dates(pa.array([datetime.strptime(text, pattern) for text in texts], pa.timestamp("us")))
    np.testing.assert_array_equal(found.values[:-2], told.values)
    assert found.absent.tolist() == [False] * 4 + [True, False]
    assert found.unreadable.tolist() == [False] * 5 + [True]
    assert ValueFormats.like([f"when={EXAMPLES[format]}"]).of_dates("when") == format


@pytest.mark.parametrize(
    "texts", [["2/29/2021", "12/31/2020"], ["31.12.2020", "12/31/2020"], ["10.04.12"], ["Mai"]]
)
def test_what_no_form_fits_are_no_dates(texts):
    assert date_format(pa.array(texts)) is None


def test_day_and_month_that_no_value_tells_apart():
    assert "month or with the day" in date_format(pa.array(["1/2/2020", "3/4/2021"])).reason
    assert date_format(pa.array(["1/2/2020", "13/4/2021"])) == "day, month, year"


def table(n, seed):
    rng = np.random.default_rng(seed)
    price, share = rng.normal(5_000, 900, n), rng.random(n)
    month, day = rng.integers(1, 13, n), rng.integers(1, 29, n)
    frame = pd.DataFrame(
        {
            "price": [f"${v:,.2f}" for v in price],
            "share": [f"{100 * v:.1f}%" for v in share],
            "when": [f"{m}/{d}/2020" for m, d in zip(month, day, strict=True)],
            "size": [f"{v:.3f}" for v in rng.normal(size=n)],
            "noted": [f"{k % 9 + 1}/{k % 11 + 1}/2020" for k in range(n)],
            "plain": [f"{k}" for k in rng.integers(0, 50, n)],
        }
    )
    for place, (name, missing) in enumerate(
        [("price", "n/a"), ("share", "-"), ("when", "NA"), ("size", "?")]
    ):
        frame.loc[place::17, name] = missing
    up = (price - 5_000) / 900 + 3 * (share - 0.5) + (month > 6)
    return frame.assign(label=np.where(up > 0.5, "up", "down"))


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("value_formats")
    table(400, 0).to_csv(folder / "t.csv", index=False)
    return folder, bigmc.fit(str(folder / "t.csv"), folder / "m", label="label", time_limit=0.0)


def test_fit_reads_what_people_write_and_says_so(fitted):
    _, result = fitted
    assert result["columns"] == {
        "one_hot": ["noted"],
        "dense": ["price", "share", "size", "plain"],
        "dates": ["when"],
        "filled": ["price", "share", "size"],
    }
    assert set(result["value_formats"]) == {"price", "share", "when"}
    *missing, doubt = result["notes"]
    assert missing == [
        "'n/a' counts as missing in price",
        "'-' counts as missing in share",
        "'NA' counts as missing in when",
        "'?' counts as missing in size",
    ]
    assert doubt.startswith("noted is not read as numbers or dates: '1/1/2020' may begin with")


def test_a_model_reads_new_rows_as_it_read_the_old_ones(fitted):
    """Numbers and dates of a data frame, with nothing left to read, give the same scores."""
    folder, _ = fitted
    new = table(300, 1)
    told = new.assign(
        price=pd.to_numeric(new.price.str.replace(r"[$,]", "", regex=True), errors="coerce"),
        share=pd.to_numeric(new.share.str.rstrip("%"), errors="coerce"),
        when=pd.to_datetime(new["when"], format="%m/%d/%Y", errors="coerce"),
        size=pd.to_numeric(new["size"], errors="coerce"),
    )
    model = bigmc.load_model(folder / "m")
    scores = model.decision_function(new)
    np.testing.assert_array_equal(scores, model.decision_function(told))
    assert np.mean(model.predict(new) == new.label) > 0.85
    new.drop(columns="label").to_csv(folder / "new.csv", index=False)
    bigmc.predict(folder / "m", str(folder / "new.csv"), folder / "said.csv")
    with open(folder / "said.csv", newline="") as file:
        assert [row["predicted_label"] for row in csv.DictReader(file)] == model.predict(new).tolist()
    with pytest.raises(DataError, match="column 'price' is not a number"):
        model.predict(new.assign(price="dear"))


def test_ingest_takes_examples_and_appends_alike(tmp_path):
    table(100, 0).to_csv(tmp_path / "a.csv", index=False)
    table(100, 1).to_csv(tmp_path / "b.csv", index=False)
    options = {"label": "label", "dense": ["price", "share", "size"], "date": "when", "missing": "fill"}
    examples = {"price": "$1,234.50", "share": "12%", "when": "12/31/2020"}
    texts = ["N/A", "-", "na", "?"]
    with pytest.raises(DataError, match="column 'price' is not a number"):
        bigmc.ingest(str(tmp_path / "a.csv"), to=tmp_path / "c", **options)
    first = bigmc.ingest(
        str(tmp_path / "a.csv"), to=tmp_path / "d", value_format=examples, missing_text=texts, **options
    )
    later = bigmc.ingest(str(tmp_path / "b.csv"), to=tmp_path / "d", append=True)
    assert later.features == first.features
    assert later.n_samples == 200


def test_an_example_settles_a_doubt(tmp_path):
    asked = {"label": "label", "value_format": ("noted=31/12/2020",)}
    found = with_column_kinds(table(200, 0), asked)
    assert found.options["date"] == ("when", "noted")
    assert "noted=25/11/2026" in found.options["value_format"]
    assert not any("noted" in note for note in found.notes)


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        (["price"], "names no column"),
        (["price=dear"], "neither a number nor a date"),
        (["price=1/2/2020"], "month or with the day"),
        (["label=5 kg"], "'label' has an example, and is neither a number nor a date"),
    ],
)
def test_examples_that_do_not_tell_are_refused(tmp_path, examples, message):
    table(20, 0).to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(DataError, match=message):
        bigmc.ingest(
            str(tmp_path / "a.csv"), to=tmp_path / "d", label="label", dense="plain", value_format=examples
        )


def test_many_values_that_are_no_numbers_make_a_text_and_are_told(tmp_path):
    frame = table(100, 0)
    frame.loc[[3, 5], "plain"] = ["12 or so", "few"]
    [doubt] = [doubt for doubt in with_column_kinds(frame, {"label": "label"}).notes if "plain" in doubt]
    assert "2 of 100 values are not numbers, such as '12 or so'" in doubt


def mistyped():
    """Return a table in which few values of each column are odd, and the same without these."""
    rng = np.random.default_rng(5)
    n = 600
    number, day = rng.normal(10, 3, n).round(2), pd.date_range("2020-01-05", periods=n, freq="7h")
    label = np.where(number > 10, "a", "b")
    clean = {"x": number.astype(str), "price": [f"${1000 + v:,.2f}" for v in number]}
    clean |= {"day": day.strftime("%d/%m/%Y"), "iso": day.strftime("%Y-%m-%d"), "label": label}
    odd = {"x": {17: "12.3x", 90: "1O.2"}, "price": {5: "call us"}, "day": {40: "31/02/2021", 7: "soon"}}
    odd["iso"] = {3: "2020-02-30"}
    typed, gaps = pd.DataFrame(clean), pd.DataFrame(clean)
    for column, texts in odd.items():
        typed.loc[list(texts), column] = list(texts.values())
        gaps.loc[list(texts), column] = None
    return typed, gaps


def test_few_odd_values_count_as_missing_and_are_told_by_line(tmp_path):
    typed, gaps = mistyped()
    for name, frame in (("typed", typed), ("gaps", gaps)):
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    found = with_column_kinds(str(tmp_path / "typed.csv"), {"label": "label"})
    assert (found.options["dense"], found.options["date"]) == (("x", "price"), ("day", "iso"))
    assert found.options["odd_as_missing"] == ("x", "price", "day", "iso")
    assert "2 of 600 values of x are no number" in found.notes[0]
    assert "'12.3x' in line 19, '1O.2' in line 92" in found.notes[0]
    kinds = with_column_kinds(str(tmp_path / "gaps.csv"), {"label": "label"}).options
    assert "odd_as_missing" not in kinds
    sets = [
        bigmc.ingest(str(tmp_path / f"{name}.csv"), to=tmp_path / name, **options)
        for name, options in (("typed", found.options), ("gaps", kinds))
    ]
    matrices = [read_back(data)[0].toarray() for data in sets]
    np.testing.assert_array_equal(*matrices)


def test_a_model_takes_odd_values_as_missing_and_counts_them(tmp_path):
    typed, gaps = mistyped()
    options = with_column_kinds(typed, {"label": "label"}).options
    bigmc.ingest(typed, to=tmp_path / "d", **options)
    bigmc.train("sparse", tmp_path / "d", to=tmp_path / "m", alpha=0.001)
    said = {}
    for name, frame in (("typed", typed.assign(x=typed.x.replace("12.3x", "another"))), ("gaps", gaps)):
        counts = bigmc.predict(tmp_path / "m", frame, to=tmp_path / f"{name}.parquet", scores=True)
        said[name] = pd.read_parquet(tmp_path / f"{name}.parquet")
        assert counts.get("n_odd_values", 0) == (6 if name == "typed" else 0)
        assert counts["n_samples"] == 600
    pd.testing.assert_frame_equal(said["typed"], said["gaps"])
    model = bigmc.load_model(tmp_path / "m")
    with pytest.warns(UserWarning, match="6 values are no numbers or dates"):
        model.predict(typed)


def test_categories_with_a_rare_text_stay_categories():
    rng = np.random.default_rng(0)
    levels = rng.integers(1, 4, 1000).astype(str)
    levels[:4] = "4+"
    frame = pd.DataFrame({"number": levels, "label": rng.choice(["a", "b"], 1000)})
    assert with_column_kinds(frame, {"label": "label"}).options["one_hot"] == ("number",)


def test_odd_values_of_a_column_that_may_not_be_missing_are_refused(tmp_path):
    typed, _ = mistyped()
    with pytest.raises(DataError, match="odd values of the column 'x' cannot count as missing"):
        bigmc.ingest(typed, to=tmp_path / "d", label="label", dense="x", odd_as_missing="x")


@pytest.mark.parametrize(
    "changed",
    [
        {"formats": {"x": {"date": 3}}, "missing": []},
        {"formats": {"x": {"number": {}}}, "missing": []},
        {"formats": {"x": {}}, "missing": []},
        {
            "formats": {
                "x": {"number": {"decimal": ".", "thousands": "", "prefix": "", "units": [["", "1"]]}}
            },
            "missing": [],
        },
        {"formats": {}, "missing": [3]},
        {"formats": []},
        [],
    ],
)
def test_a_file_that_says_nonsense_is_refused(changed):
    with pytest.raises(ValueError, match=r"formats|column|number|unit|missing|decimal|date is 3"):
        check_feature_spec({"value_formats": changed}, 1)


def test_a_format_of_a_later_version_is_refused():
    with pytest.raises(DataError, match="use a later version"):
        ValueFormats.from_dict({"formats": {"x": {"date": "lunar"}}, "missing": []})


def test_numbers_that_stand_for_missing_ones_are_found_among_plain_numbers():
    column = pa.array(["1.5", "-999", "2"])
    plain = floats_in_format(column, NumberFormat(), ("n/a",))
    assert plain.values.tolist() == [1.5, -999.0, 2.0]
    assert not plain.absent.any()
    assert not plain.unreadable.any()
    with_missing = floats_in_format(column, NumberFormat(), ("n/a", "-999"))
    assert with_missing.absent.tolist() == [False, True, False]
    assert floats_in_format(pa.array(["1", "nan"]), NumberFormat(), ("nan",)).absent.tolist() == [False, True]
