"""Patterns in place of the names of columns: the same bytes as from the names, and clear refusals."""

import pytest

import bigmc
from bigmc.errors import DataError


@pytest.fixture
def wide(tmp_path):
    """A table whose columns have awkward names, one of which looks like a pattern."""
    path = tmp_path / "wide.csv"
    rows = "".join(
        f"{k},{k % 3},{k * 2},a{k % 2},b{k},{k % 5},{'yes' if k % 3 else 'no'}\n" for k in range(60)
    )
    path.write_text("x1,x*,x10,kind 1,kind 2,id,y\n" + rows)
    return path


def manifest(path):
    return (path / "manifest.json").read_bytes()


def test_a_pattern_gives_the_bytes_of_the_names(wide, tmp_path):
    named = {"dense": ["x1", "x10", "x*"], "categorical": ["kind 1", "kind 2"], "label": "y", "hash_bits": 6}
    bigmc.ingest(wide, tmp_path / "named.bigmc", **named)
    patterns = {"dense": ["x1?", "x1", "x*"], "categorical": "kind*"}
    with pytest.raises(DataError, match="no column matches 'x2"):
        bigmc.ingest(wide, tmp_path / "p.bigmc", **named | patterns | {"dense": "x2*"})
    dataset = bigmc.ingest(wide, tmp_path / "p.bigmc", **named | patterns)
    assert dataset.features["dense"] == ["x10", "x1", "x*"]  # "x*" is a column's name
    ordered = named | {"dense": ["x1", "x1?", "x*"], "categorical": "kind ?"}
    bigmc.ingest(wide, tmp_path / "o.bigmc", **ordered)
    assert manifest(tmp_path / "o.bigmc") == manifest(tmp_path / "named.bigmc")


def test_what_other_options_name_does_not_match(wide, tmp_path):
    options = {"label": "y", "one_hot": "kind 1", "keep": "id"}
    for dense, reason in (
        (["x?0", "x1*"], "the column 'x10' is named 2 times"),
        ("[x]1*", r"no column matches '\[x\]1\*' of --dense; .* are: x1, x\*, x10, kind 2$"),
    ):
        with pytest.raises(DataError, match=reason):
            bigmc.ingest(wide, tmp_path / "d.bigmc", dense=dense, **options)
    dataset = bigmc.ingest(wide, tmp_path / "d.bigmc", dense="x1*", categorical="*2", **options)
    assert (dataset.features["dense"], dataset.features["categorical"]) == (["x1", "x10"], ["kind 2"])


@pytest.mark.exhaustive
def test_a_fit_takes_patterns(wide, tmp_path):
    options = {"label": "y", "split": "train=0.7,test=0.3"}
    patterns = {"dense": "x1*", "categorical": "kind*"}
    named = {"dense": ["x1", "x10"], "categorical": ["kind 1", "kind 2"]}
    one, other = (
        bigmc.fit(wide, tmp_path / name, time_limit=0.0, **options, **columns)
        for name, columns in (("p.model", patterns), ("n.model", named))
    )
    assert one["columns"] == other["columns"]
    assert (tmp_path / "p.model").read_bytes() == (tmp_path / "n.model").read_bytes()
