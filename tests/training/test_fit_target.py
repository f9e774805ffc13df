"""A fit or a path never writes over a file that is not its own, nor into what it reads."""

import os

import numpy as np
import pytest

import bigmc
from bigmc import api
from bigmc.errors import BigmcError, DataError, ModelError
from bigmc.model import LinearModel
from bigmc.store.files.atomic import remove_tree

pytestmark = pytest.mark.usefixtures("few_rounds_of_boosting")

OPTIONS = {"text": "text", "label": "label", "hash_bits": 6, "memory_limit": "200MB"}
QUICKLY = {**OPTIONS, "time_limit": 0.0}


@pytest.fixture
def rows(tmp_path):
    (tmp_path / "in").mkdir()
    lines = [f"w{i % 7} w{i % 5} {'abc'[i % 3]}{i % 2},{'abc'[i % 3]}" for i in range(120)]
    (tmp_path / "in" / "rows.csv").write_text("text,label\n" + "\n".join(lines) + "\n")
    return tmp_path / "in" / "rows.csv"


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("source", ["rows.csv", "*.csv", "."])
@pytest.mark.parametrize("link", [None, os.link, os.symlink])
def test_a_fit_does_not_replace_what_it_reads(rows, source, link, tmp_path):
    to = rows
    if link is not None:
        link(rows, tmp_path / "to")
        to = tmp_path / "to"
    before = contents(tmp_path)
    with pytest.raises(DataError, match="is an input of this command"):
        bigmc.fit(rows.parent / source, to, **OPTIONS)
    assert contents(tmp_path) == before


def test_a_fit_does_not_write_into_its_dataset(rows, tmp_path):
    api.ingest(rows, tmp_path / "d.bigmc", **OPTIONS)
    before = contents(tmp_path)
    with pytest.raises(DataError, match="inside one"):
        bigmc.fit(tmp_path / "d.bigmc", tmp_path / "d.bigmc" / "m.model")
    with pytest.raises(DataError, match="inside one"):
        api.sparse_path(tmp_path / "d.bigmc", tmp_path / "d.bigmc")
    with pytest.raises(DataError, match="inside one"):
        api.sparse_path(tmp_path / "d.bigmc", tmp_path / "d.bigmc" / "path")
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    "options", [{"label": "y"}, {"hash_bits": 9}, {"dataset": "x"}, {"on_bad_row": "quarantine"}]
)
def test_a_dataset_takes_no_options_of_an_ingest(rows, options, tmp_path):
    """They changed nothing, without a word."""
    api.ingest(rows, tmp_path / "d.bigmc", **OPTIONS)
    flag = f"--{next(iter(options)).replace('_', '-')}"
    with pytest.raises(DataError, match=rf"d\.bigmc is a dataset already, which {flag} cannot change; leave"):
        bigmc.fit(tmp_path / "d.bigmc", tmp_path / "m", **options)
    assert not (tmp_path / "m.fit").exists()


def other_model(to):
    LinearModel("sparse", np.arange(2), 2, np.arange(2), np.eye(2), np.zeros(2)).save(to)


@pytest.mark.parametrize("write", [lambda to: to.write_text("mine"), other_model])
def test_a_fit_does_not_replace_another_file(rows, write, tmp_path):
    write(tmp_path / "m")
    before = contents(tmp_path)
    with pytest.raises(ModelError, match="not the result of the same command"):
        bigmc.fit(rows, tmp_path / "m", **OPTIONS)
    assert contents(tmp_path) == before


def test_a_fit_does_not_replace_the_model_of_other_rows(rows, tmp_path):
    bigmc.fit(rows, tmp_path / "m", time_limit=0.0, **OPTIONS)
    rows.write_text(rows.read_text() + "w1 a1,a\n" * 9)
    model = (tmp_path / "m").read_bytes()
    with pytest.raises(BigmcError):
        bigmc.fit(rows, tmp_path / "m", dataset=tmp_path / "other", time_limit=0.0, **OPTIONS)
    for entry in (tmp_path / "m.fit").iterdir():
        entry.unlink()
    with pytest.raises(ModelError, match="not the result of the same command"):
        bigmc.fit(rows, tmp_path / "m", dataset=tmp_path / "other", time_limit=0.0, **OPTIONS)
    assert (tmp_path / "m").read_bytes() == model


def test_a_fit_needs_a_file_for_its_model(rows, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="is not the path of a file"):
        bigmc.fit(rows, tmp_path / "pipe", **OPTIONS)


def test_a_refused_path_leaves_the_folder_as_it_was(rows, tmp_path):
    api.ingest(rows, tmp_path / "d.bigmc", **OPTIONS)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "003.model").write_text("mine")
    with pytest.raises(ModelError, match="003"):
        api.sparse_path(tmp_path / "d.bigmc", tmp_path / "mine", alphas=[1e-2])
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["003.model"]
    start = tmp_path / "mine" / "004.model"
    other_model(start)
    with pytest.raises(DataError, match="is an input of this command"):
        api.sparse_path(tmp_path / "d.bigmc", start.parent, warm_start=start, overwrite=True)
    assert start.exists()


def fit_other_rows(rows, to):
    """Fit one set of rows and put others into their file."""
    bigmc.fit(rows, to, time_limit=0.0, **OPTIONS)
    rows.write_text("text,label\n" + "".join(f"x{i % 4} {'pq'[i % 2]},{'pq'[i % 2]}\n" for i in range(80)))


def test_overwrite_replaces_the_fit_of_other_rows(rows, tmp_path):
    """Its search and its dataset with it."""
    fit_other_rows(rows, tmp_path / "m")
    with pytest.raises(DataError, match=r"other parameters .*replace model and dataset with --overwrite"):
        bigmc.fit(rows, tmp_path / "m", **OPTIONS)
    bigmc.fit(rows, tmp_path / "m", overwrite=True, **QUICKLY)
    bigmc.fit(rows, tmp_path / "new", **QUICKLY)
    made = (tmp_path / "m").read_bytes()
    assert bigmc.load_model(tmp_path / "m").classes_.tolist() == ["p", "q"]
    assert made == (tmp_path / "new").read_bytes()
    assert bigmc.open_dataset(tmp_path / "m.dataset").n_samples == 80

    before = contents(tmp_path / "m.dataset")
    bigmc.fit(rows, tmp_path / "m", overwrite=True, **QUICKLY)  # the same again: nothing to do
    assert contents(tmp_path / "m.dataset") == before


@pytest.mark.parametrize("n_removed", [0, 1])
def test_a_replacement_that_was_killed_is_repeated(rows, n_removed, tmp_path, monkeypatch):
    fit_other_rows(rows, tmp_path / "m")
    removed = []

    def removing(folder):
        if len(removed) == n_removed:
            raise KeyboardInterrupt
        removed.append(folder)
        remove_tree(folder)

    with monkeypatch.context() as patch:
        patch.setattr("bigmc.training.fit.fit.remove_tree", removing)
        with pytest.raises(KeyboardInterrupt):
            bigmc.fit(rows, tmp_path / "m", overwrite=True, **QUICKLY)
    bigmc.fit(rows, tmp_path / "m", overwrite=True, **QUICKLY)
    assert bigmc.load_model(tmp_path / "m").classes_.tolist() == ["p", "q"]


@pytest.mark.parametrize("write", [lambda to: to.write_text("mine"), other_model])
def test_overwrite_replaces_another_file(rows, write, tmp_path):
    write(tmp_path / "m")
    bigmc.fit(rows, tmp_path / "m", overwrite=True, time_limit=0.0, **OPTIONS)
    assert bigmc.load_model(tmp_path / "m").classes_.tolist() == ["a", "b", "c"]


def test_overwrite_replaces_a_search_with_other_limits(rows, tmp_path):
    bigmc.fit(rows, tmp_path / "m", **QUICKLY)
    with pytest.raises(ModelError, match=r"other data, memory limit or max_features; .*--overwrite"):
        bigmc.fit(rows, tmp_path / "m", max_features=2, **OPTIONS)
    bigmc.fit(rows, tmp_path / "m", max_features=2, overwrite=True, **QUICKLY)
    assert api.info(tmp_path / "m")["n_nonzero_features"] <= 2


def test_overwrite_keeps_the_rows_that_it_reads_and_a_named_dataset(rows, tmp_path):
    fit_other_rows(rows, tmp_path / "m")
    moved = tmp_path / "m.dataset" / "rows.csv"
    rows.rename(moved)
    named = tmp_path / "named"
    bigmc.ingest(moved, named, **OPTIONS)
    before = contents(tmp_path)
    with pytest.raises(DataError, match=r"rows.csv is in a folder that is to be replaced"):
        bigmc.fit(moved, tmp_path / "m", overwrite=True, **QUICKLY)
    with pytest.raises(DataError, match=r"the dataset .*named was made with other parameters"):
        bigmc.fit(moved, tmp_path / "m", dataset=named, overwrite=True, **{**QUICKLY, "hash_bits": 7})
    assert {**contents(tmp_path), **before} == before


@pytest.mark.parametrize("folder", ["m.fit", "m.dataset"])
def test_overwrite_removes_no_folder_with_files_of_others(rows, folder, tmp_path):
    fit_other_rows(rows, tmp_path / "m")
    (tmp_path / folder / "mine.txt").write_text("mine")
    before = contents(tmp_path)
    with pytest.raises(ModelError, match=rf"{folder} has files that are not of bigmc"):
        bigmc.fit(rows, tmp_path / "m", overwrite=True, **QUICKLY)
    assert {**contents(tmp_path), **before} == before


def test_overwrite_removes_no_search_beside_files_of_others(rows, tmp_path):
    bigmc.fit(rows, tmp_path / "m", **QUICKLY)
    (tmp_path / "m.fit" / "mine.txt").write_text("mine")
    before = contents(tmp_path)
    with pytest.raises(ModelError, match=r"m\.fit has files that are not of bigmc"):
        bigmc.fit(rows, tmp_path / "m", max_features=2, overwrite=True, **QUICKLY)
    assert {**contents(tmp_path), **before} == before
