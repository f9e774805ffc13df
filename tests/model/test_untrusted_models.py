"""Models of strangers: headers that lie are refused in one line, before memory is taken."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from bigmc import api
from bigmc.errors import BigmcError, ModelError
from bigmc.model import BoostedModel, LinearModel, Trees, load_model
from bigmc.model.archive import read_archive, write_archive
from bigmc.model.registry import verify_model
from bigmc.store.shards.csr import Rows
from bigmc.store.weighting import Weighting
from bigmc.training.gradient_norms import digest_of, norms_beside

SPEC = {
    "text": ["review"],
    "categorical": [],
    "numeric": [],
    "dense": [],
    "hasher": {"analyzer": "word", "ngrams": [1, 2], "hash_bits": 8, "lowercase": True},
    "n_own": 0,
    "first_index": None,
}


@pytest.fixture
def path(tmp_path):
    model = LinearModel(
        "sparse", np.array(["a", "b"]), 256, np.array([3, 9]), np.ones((2, 2)), np.zeros(2),
        feature_spec=SPEC, certificate={"lower": 0.0, "upper": 1.0, "gap": 1.0}, objective=1.0,
    )  # fmt: skip
    model.save(tmp_path / "a.model")
    return tmp_path / "a.model"


def forge(path: Path, change) -> None:
    """Change header and members as the model's author could: the digests are right."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    header = json.loads(members.pop("model.json"))
    change(header, members)
    if isinstance(header, dict):
        header["members"] = {name: hashlib.sha256(content).hexdigest() for name, content in members.items()}
    write(path, json.dumps(header), members)


def write(path: Path, header: str, members) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, content in [("model.json", header), *sorted(members.items())]:
            archive.writestr(zipfile.ZipInfo(name), content)


def refused(path: Path) -> str:
    problems = verify_model(path)
    assert len(problems) == 1
    with pytest.raises(ModelError) as caught:
        load_model(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("value", [None, 7, "review", [7], {}])
@pytest.mark.parametrize("name", ["text", "categorical", "numeric", "dense", "columns"])
def test_columns_that_are_no_names_are_refused(name, value, path):
    forge(path, lambda header, _: header["feature_spec"].update({name: value}))
    assert f"{name} is" in refused(path)


WRONG = {
    "feature_spec": [None, 7, [], "x"],
    "n_features": [None, -1, 2**31, 1.5, True, "many"],
    "n_iter": [None, -1, "x"],
    "n_passes": [None, "x"],
    "history": [None, {}, [1]],
    "params": [None, []],
    "certificate": [None, [], {"gap": "x"}, {"gap": None}],
    "weighting": [None, {}, {"l2": 1}],
    "objective": [None, "x", []],
    "label_source": ["x", {}, {"column": 3, "separator": None}, {"column": "y", "separator": 1}],
    "label_threshold": ["x", []],
    "kind": [None, 7, [], "other"],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in WRONG for value in WRONG[name]])
def test_headers_of_other_types_are_refused(name, value, path):
    forge(path, lambda header, _: header.update({name: value}))
    refused(path)


@pytest.mark.parametrize("hasher", [7, [], {"hash_bits": "8"}, {"hash_bits": 8, "ngrams": 1}])
def test_a_hasher_that_is_none_is_refused(hasher, path):
    forge(path, lambda header, _: header["feature_spec"].update(hasher=hasher))
    refused(path)


@pytest.mark.parametrize("depth", [70, 900, 100_000])
def test_a_header_nested_deeply_is_refused(depth, path):
    nested = '{"format": "bigmc-model", "version": 1, "members": {}, "x": ' + "[" * depth + "]" * depth + "}"
    write(path, nested, {})
    assert "nested" in refused(path)


def npy(header: str, data: bytes = b"") -> bytes:
    text = header.encode().ljust(118) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


ARRAYS = {
    "22 GB": npy("{'descr': '<f8', 'fortran_order': False, 'shape': (3000000000,)}", b"12345678"),
    "a negative shape": npy("{'descr': '<f8', 'fortran_order': False, 'shape': (-1,)}", b"12345678"),
    "too many dimensions": npy("{'descr': '<f8', 'fortran_order': False, 'shape': " + str((0,) * 40) + "}"),
    "objects": npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", b"12345678"),
    "no header": npy("os.system('true')"),
    "a nested header": npy("(" * 100),
    "nothing": b"",
    "another version": b"\x93NUMPY\x09\x00" + b"\0" * 80,
    "records": npy("{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (1,)}", b"12345678"),
}


@pytest.mark.parametrize("what", ARRAYS)
def test_arrays_that_are_not_there_are_refused(what, path):
    forge(path, lambda _, members: members.update({"intercept.npy": ARRAYS[what]}))
    refused(path)


BAD_NORMS = {
    **dict.fromkeys(ARRAYS, "is damaged|does not hold"),
    "another length": "does not hold the norms of 256 features",
    "NaN": "holds norms that are negative or not finite",
    "negative": "holds norms that are negative or not finite",
    "of another model": "is damaged, or the norms of another model",
}


@pytest.mark.parametrize("what", BAD_NORMS)
def test_bad_norms_beside_a_warm_start_are_refused(what, path):
    stream = io.BytesIO()
    values = np.ones(5 if what == "another length" else 256, np.float32)
    values[0] = {"NaN": np.nan, "negative": -1}.get(what, 1)
    np.save(stream, values)
    content = ARRAYS.get(what, stream.getvalue())
    model = load_model(path)
    if what == "of another model":
        model = replace(model, intercept=model.intercept + 1)
    norms_beside(path).write_bytes(content + digest_of(content, model))
    labels = np.array(list("abab"))
    dataset = api.ingest(np.eye(4, 256), path.with_name("d"), label=labels, split={"train": 1.0})
    with pytest.raises(BigmcError, match=f"^[^;]*norms.npy ({BAD_NORMS[what]}).*; delete it"):
        api.train("sparse", dataset, path.with_name("b.model"), warm_start=path)


def _with_all_arrays(kind: str):
    if kind == "linear":
        columns = {"bucket": [3, 9], "name": ["one", "two"], "sign": [1, -1], "count": [5, None]}
        return LinearModel(
            "sparse", np.array(["a", "b"]), 16, np.array([3, 9]), np.ones((2, 2)), np.zeros(2),
            weighting=Weighting(idf=True), column_scale=np.ones(16, np.float32), names=pa.table(columns),
        )  # fmt: skip
    trees = Trees.of(
        np.array([[0], [2]], np.int32), np.array([[0.5], [1.5]]), np.zeros((2, 1), np.bool_),
        np.array([[-1, 1], [1, -1]], np.int8), np.arange(2),
    )  # fmt: skip
    ends, members, weights = np.array([0, 2]), np.arange(2, dtype=np.int32), np.ones(2)
    return BoostedModel("boost", np.arange(2), 3, trees, ends, members, weights, 1, 1.0)


_OTHERS = {
    "complex": lambda array: array.astype(complex),
    "texts": lambda array: np.full(array.shape, "a"),
    "half": lambda array: array.astype(np.float16),
    "float": lambda array: array.astype(float),
    "whole": lambda array: array.astype(np.int64),
    "swapped": lambda array: array.astype(array.dtype.newbyteorder(">")),
    "one": lambda array: np.array(1.0),
    "empty": lambda array: array[:0],
    "deep": lambda array: array[None, None],
    "nan": lambda array: array * np.nan,
    "negative": lambda array: -1 - array.astype(np.int64),
    "large": lambda array: (100 + 0 * array.astype(np.int64)).astype(array.dtype),
}


@pytest.mark.exhaustive(keep=8)
@pytest.mark.parametrize("kind", ["linear", "boosted"])
@pytest.mark.parametrize("change", _OTHERS.values(), ids=[*_OTHERS])
def test_arrays_of_any_other_type_or_shape_are_refused_or_used(kind, change, tmp_path):
    """Whatever the author of a model puts in it, there is no error but those in one line."""
    _with_all_arrays(kind).save(tmp_path / "a.model")
    header, arrays = read_archive(tmp_path / "a.model")
    rows = Rows(np.array([0, 2]), np.array([0, 2], np.int32), np.ones(2, np.float32), header["n_features"])
    for name, array in arrays.items():
        if array.dtype.kind == "U":
            continue
        write_archive(tmp_path / "b.model", header, arrays | {name: change(array)})
        try:
            model = load_model(tmp_path / "b.model")
        except ModelError:
            continue
        assert model.scores(rows).shape == (1, 2)
        assert np.isfinite(model.scores(rows)).all(), name
        api.inspect(tmp_path / "b.model")
        api.report(tmp_path / "b.model", tmp_path / "r.html", overwrite=True)


@pytest.mark.parametrize("more", [b"\0", b"PK\x05\x06", b"x" * 5000])
def test_bytes_after_the_end_are_refused(more, path):
    whole = path.read_bytes()
    path.write_bytes(whole + more)
    with pytest.raises(ModelError, match="after its end"):
        load_model(path)
    path.write_bytes(whole)
    assert list(load_model(path).classes) == ["a", "b"]
