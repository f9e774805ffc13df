"""UUIDs and digests that differ in every row are left out by `fit`; codes and repeated ids never are."""

import hashlib
import uuid

import numpy as np
import pandas as pd
import pytest

from bigmc.errors import DataError
from bigmc.ingestion.columns.column_kinds import with_column_kinds
from bigmc.options.ingest import columns_of

N = 60


def frame(**columns):
    rng = np.random.default_rng(3)
    return pd.DataFrame({**columns, "x": rng.normal(size=N), "y": rng.choice(list("ab"), N)})


def uuids(n=N):
    rng = np.random.default_rng(5)
    return [str(uuid.UUID(bytes=rng.bytes(16))) for _ in range(n)]


def digests(name):
    return [hashlib.new(name, str(k).encode()).hexdigest() for k in range(N)]


@pytest.mark.parametrize(
    "ids",
    [
        uuids(),
        [f"{{{each.upper()}}}" for each in uuids()],
        [each.replace("-", "") for each in uuids()],
        digests("md5"),
        digests("sha1"),
        digests("sha256"),
        [*uuids()[:-3], None, None, None],
    ],
    ids=["uuid", "braces", "plain", "md5", "sha1", "sha256", "some missing"],
)
def test_random_ids_are_left_out_and_said_aloud(ids, tmp_path):
    frame(id=ids).to_csv(tmp_path / "a.csv", index=False)
    for source in (frame(id=ids), tmp_path / "a.csv"):
        found = with_column_kinds(source, {"label": "y"})
        assert found.left_out == ("id",)
        assert columns_of(found.options.get("text")) == ()
        assert any("left out (--text id, beside other columns, uses it)" in note for note in found.notes)


@pytest.mark.parametrize(
    "values",
    [
        [f"{kind}-{k:05d}" for k, kind in enumerate(np.random.default_rng(1).choice(["A", "B"], N))],
        [*uuids()[:-1], uuids()[0]],
        [*uuids()[:-1], "unknown id"],
        [each[:31] for each in digests("md5")],
        digests("sha512"),
        [f"order {each}" for each in uuids()],
    ],
    ids=["codes", "one repeated", "one other", "too short", "too long", "with a word"],
)
def test_other_texts_stay(values):
    found = with_column_kinds(frame(id=values), {"label": "y"})
    assert found.left_out == ()
    assert found.notes == ()


def test_few_rows_are_not_enough_to_tell():
    assert with_column_kinds(frame(id=uuids()).head(9), {"label": "y"}).left_out == ()


def test_named_they_are_used():
    found = with_column_kinds(frame(id=uuids()), {"label": "y", "text": "id", "dense": "x"})
    assert found.left_out == ()
    assert columns_of(found.options.get("text")) == ("id",)


def test_alone_they_are_used_with_a_note():
    found = with_column_kinds(frame(id=uuids()).drop(columns="x"), {"label": "y"})
    assert found.left_out == ()
    assert columns_of(found.options.get("text")) == ("id",)
    assert any(note.endswith("tells nothing of new rows: used") for note in found.notes)


def test_an_id_beside_columns_without_values_is_used():
    alone = frame(id=uuids()).assign(x=None)
    assert with_column_kinds(alone, {"label": "y"}).left_out == ("x",)
    with pytest.raises(DataError, match="usable feature columns"):
        with_column_kinds(alone.drop(columns="id"), {"label": "y"})
