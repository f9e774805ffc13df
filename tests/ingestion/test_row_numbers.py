"""Columns that number the rows are found by `fit`, whatever wrote them; other columns never are."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from read_back import read_back

import bigmc
from bigmc import api
from bigmc.errors import DataError
from bigmc.ingestion.columns.column_kinds import with_column_kinds
from bigmc.options.ingest import columns_of


def frame(n=200):
    """Return rows sorted by class, as many published tables are."""
    rng = np.random.default_rng(3)
    y = np.sort(rng.integers(0, 3, n))
    return pd.DataFrame({"x": rng.normal(size=n) + y, "z": rng.normal(size=n), "y": np.array(list("abc"))[y]})


def kinds_of(source):
    found = with_column_kinds(source, {"label": "y"})
    return columns_of(found.options.get("dense")), found.left_out, found.notes


def test_an_index_written_to_a_file_is_left_out_and_said_aloud(tmp_path):
    frame().to_csv(tmp_path / "a.csv")  # pandas gives the index no name
    dense, left_out, notes = kinds_of(tmp_path / "a.csv")
    assert (dense, left_out) == (("x", "z"), ("column 1",))
    assert any("column 1 numbers the rows" in note and "--dense 'column 1'" in note for note in notes)
    frame().reset_index(names="rownames").to_parquet(tmp_path / "b.parquet")
    assert kinds_of(tmp_path / "b.parquet")[:2] == (("x", "z"), ("rownames",))
    assert kinds_of(frame().reset_index(names="id"))[1] == ("id",)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("anew", [True, False])
def test_rows_of_several_files_are_numbered_in_each_or_through_all(tmp_path, first, anew):
    rows = frame(90)
    rows["id"] = np.arange(first, 90 + first)
    for k in range(3):
        part = rows[k * 30 : k * 30 + 30].copy()
        part["id"] -= k * 30 * anew
        part.to_csv(tmp_path / f"{k}.csv", index=False)
    assert kinds_of(tmp_path / "*.csv")[1] == ("id",)


def test_bad_rows_do_not_hide_row_numbers(tmp_path):
    lines = frame(40).to_csv(index_label="id").splitlines()
    lines[20] = lines[20] + ",too,many"
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    assert kinds_of(tmp_path / "a.csv")[1] == ("id",)


@pytest.mark.parametrize(
    "values",
    [
        np.arange(200) + 1900,  # years
        np.arange(200) * 2,
        np.arange(200) // 2,
        np.r_[np.arange(199), 198],
        np.r_[0, np.arange(200)[2:], 200],
        np.arange(200) + 0.5,
        np.arange(200)[::-1],
        np.sort(np.random.default_rng(0).integers(0, 200, 200)),
        np.where(np.arange(200) == 77, np.nan, np.arange(200)),
    ],
)
def test_other_sorted_numbers_stay(values, tmp_path):
    rows = frame().assign(n=values)
    rows.to_csv(tmp_path / "a.csv", index=False)
    for source in (rows, tmp_path / "a.csv"):
        dense, left_out, _ = kinds_of(source)
        assert "n" in dense
        assert left_out == ()


def test_shuffled_row_numbers_are_used_and_doubted():
    rows = frame().reset_index(names="n").sample(frac=1.0, random_state=0)
    dense, left_out, notes = kinds_of(rows)
    assert "n" in dense
    assert left_out == ()
    assert any("n has every number up to 200 once" in note for note in notes)
    (note,) = kinds_of(rows.assign(n=rows.n * 2))[2]
    assert note.startswith("n alone tells the class")  # the table was sorted by it


def test_the_index_of_rows_drawn_from_a_table_is_left_out(tmp_path):
    rows = frame().sample(frac=0.6, random_state=0)
    rows.to_csv(tmp_path / "a.csv")
    rows.to_parquet(tmp_path / "b.parquet")
    named = rows.set_axis([f"row of {k}" for k in rows.index])  # as R names rows
    named.to_csv(tmp_path / "c.csv")
    for file, name in [("a.csv", "column 1"), ("b.parquet", "__index_level_0__"), ("c.csv", "column 1")]:
        dense, left_out, notes = kinds_of(tmp_path / file)
        assert (dense, left_out) == (("x", "z"), (name,))
        option = "--text" if file == "c.csv" else "--dense"
        assert any(name in note and f"left out ({option} " in note for note in notes)


@pytest.mark.parametrize(
    ("name", "is_id"),
    [
        *(
            (name, True)
            for name in ("id", "ID", "Id", "user_id", "userId", "order id", "Unnamed: 0", "index")
        ),
        *((name, False) for name in ("paid", "humid", "n", "idle", "index_of_prices", "Unnamed: 3")),
    ],
)
def test_different_integers_are_an_id_if_they_are_named_so(name, is_id):
    rows = frame().sample(frac=0.6, random_state=0).reset_index(names=name)
    assert kinds_of(rows)[:2] == ((("x", "z"), (name,)) if is_id else ((name, "x", "z"), ()))
    repeated = rows.assign(**{name: rows[name] // 2})
    assert kinds_of(repeated)[0] == (name, "x", "z")
    assert kinds_of(rows.assign(**{name: rows[name] + 0.5}))[0] == (name, "x", "z")


@pytest.mark.exhaustive
def test_a_model_needs_no_row_numbers_and_a_named_column_is_used(tmp_path):
    rows = frame(300)
    rows.to_csv(tmp_path / "a.csv")
    found = api.fit(tmp_path / "a.csv", tmp_path / "m.model", label="y")
    assert found["columns"]["left_out"] == ["column 1"]
    assert found["test"]["accuracy"] < 0.95  # with the row number, all are right
    model = bigmc.load_model(tmp_path / "m.model")
    assert len(model.predict(rows[["z", "x"]])) == 300
    api.predict(tmp_path / "m.model", tmp_path / "a.csv", tmp_path / "p.csv")
    assert pd.read_csv(tmp_path / "p.csv")["predicted_label"].tolist() == model.predict(rows).tolist()
    named = with_column_kinds(tmp_path / "a.csv", {"label": "y", "dense": ["*"]})
    assert columns_of(named.options["dense"]) == ("column 1", "x", "z")
    alone = pa.table({"id": np.arange(50), "y": ["a", "b"] * 25})
    assert kinds_of(alone)[0] == ("id",)


def test_columns_without_a_name_have_their_place_for_one(tmp_path):
    lines = ["x,,y,,", *(f"{k % 7},{k % 5},{'ab'[k % 2]},," for k in range(60))]
    (tmp_path / "sheet.csv").write_text("\n".join(lines) + "\n")
    dense, left_out, _ = kinds_of(tmp_path / "sheet.csv")
    assert (dense, left_out) == (("x", "column 2"), ("column 4", "column 5"))
    data = api.ingest(
        tmp_path / "sheet.csv", tmp_path / "d", dense="column 2", label="y", split={"train": 1.0}
    )
    matrix, _ = read_back(data)
    expected = pd.read_csv(tmp_path / "sheet.csv")["Unnamed: 1"].to_numpy()
    assert matrix.toarray()[:, 0].tolist() == expected.tolist()
    with pytest.raises(DataError, match="the columns are: x, column 2, y, column 4, column 5"):
        api.ingest(tmp_path / "sheet.csv", tmp_path / "e", dense="nothing", label="y")
    (tmp_path / "twice.csv").write_text("column 2,,y\n1,2,a\n3,4,b\n")
    with pytest.raises(DataError, match="2 columns have the name 'column 2'"):
        api.ingest(tmp_path / "twice.csv", tmp_path / "f", dense="column 2", label="y")
