"""Delivering a result, its receipt and the rows that were set aside."""

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

from bigmc.errors import DataError
from bigmc.store.feature_map import Moments
from bigmc.store.files.outputs import IfExists, Output, OutputKind, refuse_inputs
from bigmc.store.files.receipt import Receipt


def test_a_receipt_is_of_the_same_command_inputs_and_options():
    """Also after it was written: JSON makes lists of tuples."""
    made = {"command": "predict", "columns": ("a", "b"), "options": {"top": 3}}
    receipt = Receipt({**made, "columns": ["a", "b"]}, "0" * 64)
    for known in (receipt, Receipt.from_json(receipt.to_json())):
        assert known.is_of(made)
        assert not known.is_of({**made, "options": {"top": 4}})


def receipt_of(content: bytes, rejects: bytes | None = None) -> Receipt:
    digests = {
        name: hashlib.sha256(data).hexdigest() for name, data in (("r", content), ("j", rejects or b""))
    }
    return Receipt(made={}, sha256=digests["r"], rejects_sha256=digests["j"] if rejects else None)


def deliver(folder: Path, content: bytes, rejects: bytes | None = None) -> Output:
    made, aside = folder / "made", folder / "aside"
    made.write_bytes(content)
    if rejects:
        aside.write_bytes(rejects)
    output = Output.at(folder / "result.parquet")
    output.deliver(made, receipt_of(content, rejects), aside if rejects else None)
    return output


def test_a_result_comes_with_its_receipt_and_the_rows_set_aside(tmp_path):
    output = deliver(tmp_path, b"result", b"rows")
    assert output.path.read_bytes() == b"result"
    assert output.rejects.read_bytes() == b"rows"
    assert not (tmp_path / "made").exists()
    assert not (tmp_path / "aside").exists()
    assert output.receipt() == receipt_of(b"result", b"rows")
    assert output.is_own()


def test_rows_set_aside_before_go_when_there_are_none_now(tmp_path):
    assert deliver(tmp_path, b"result", b"rows").rejects.exists()
    again = deliver(tmp_path, b"other")
    assert not again.rejects.exists()
    assert again.path.read_bytes() == b"other"


def test_a_result_that_was_changed_has_no_receipt_and_is_not_replaced(tmp_path):
    output = deliver(tmp_path, b"result")
    output.path.write_bytes(b"edited")
    assert output.receipt() is None
    assert not output.is_own()
    with pytest.raises(DataError, match="is not the result of the same command"):
        output.refuse_existing(IfExists.REFUSE)
    output.refuse_existing(IfExists.REPLACE)


def test_what_a_name_means(tmp_path):
    """A file, an object, standard output, a device and a pipe."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("file")
    assert Output.at(tmp_path / "link").path == tmp_path.resolve() / "file"
    for name, kind in (
        (tmp_path / "file", OutputKind.FILE),
        ("s3://bucket/folder/name.parquet", OutputKind.OBJECT),
        ("-", OutputKind.STREAM),
        ("/dev/null", OutputKind.STREAM),
        (tmp_path / "pipe", OutputKind.STREAM),
    ):
        assert Output.at(name).kind is kind
    made = Output.at("s3://bucket/folder/name.parquet")
    assert made.name == "s3://bucket/folder/name.parquet"
    assert made.path.name == "name.parquet"
    assert made.path != Output.at("s3://bucket/other/name.parquet").path


def test_inputs_and_what_lies_in_them_are_no_places_for_a_result(tmp_path):
    source, other = tmp_path / "source", tmp_path / "other.csv"
    source.mkdir()
    other.write_text("a\n")
    (tmp_path / "link").symlink_to(other)
    (tmp_path / "linked").symlink_to(source)
    for to in (other, tmp_path / "link", source / "new", tmp_path / "linked" / "new"):
        with pytest.raises(DataError, match="is an input of this command"):
            refuse_inputs(to, [source, other])
    for to in ("s3://bucket/data", "s3://bucket/data/", "s3://bucket/data/new"):
        with pytest.raises(DataError, match="is an input of this command"):
            refuse_inputs(to, ["s3://bucket/data/"])
    for to in ("s3://bucket/data2", tmp_path / "source2", tmp_path / "new"):
        refuse_inputs(to, [source, other, "s3://bucket/data", None])
    with pytest.raises(DataError, match="is a folder"):
        Output.at(source)
    with pytest.raises(DataError, match="there is no folder"):
        Output.at(tmp_path / "missing" / "file")


def test_a_stream_is_written_into_and_holds_nothing(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    output = Output.at(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        output.write_new(b"one", IfExists.REFUSE)
        output.write_new(b"two", IfExists.REFUSE)
        assert os.read(reader, 100) == b"onetwo"
    finally:
        os.close(reader)
    output.refuse_existing(IfExists.REFUSE)
    output.refuse_existing_rejects(IfExists.REFUSE)
    output.write_receipt(receipt_of(b"one"))
    assert (output.exists(), output.content(), output.digest(), output.receipt()) == (False, None, None, None)
    assert not output.is_own()
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_a_file_that_this_process_has_open_stays_open(tmp_path):
    with open(tmp_path / "file", "wb") as file:
        output = Output.at(f"/dev/fd/{file.fileno()}")
        assert output.kind is OutputKind.STREAM
        output.write(b"one")
        output.write(b"two")
        file.write(b"three")
    assert (tmp_path / "file").read_bytes() == b"onetwothree"


def test_rows_set_aside_by_others_are_not_replaced(tmp_path):
    output = Output.at(tmp_path / "result.parquet")
    output.refuse_existing_rejects(IfExists.REFUSE)
    output.rejects.write_bytes(b"of another command")
    with pytest.raises(DataError, match=r"result\.parquet\.rejects\.parquet"):
        output.refuse_existing_rejects(IfExists.REFUSE)
    output.refuse_existing_rejects(IfExists.REPLACE)
    assert deliver(tmp_path, b"result").rejects.read_bytes() == b"of another command"
    assert output.receipt() == receipt_of(b"result")
    deliver(tmp_path, b"result", b"rows").refuse_existing_rejects(IfExists.REFUSE)
    output.rejects.write_bytes(b"edited")
    assert output.receipt() is None
    with pytest.raises(DataError, match=r"result\.parquet\.rejects\.parquet"):
        output.refuse_existing_rejects(IfExists.REFUSE)


def test_moments_of_nothing_add_nothing():
    nothing, some = Moments.of(np.zeros((0, 2))), Moments.of(np.array([[1.0, 2.0], [3.0, 6.0]]))
    both = nothing + nothing
    assert (both.count, both.mean.tolist()) == (0, [0.0, 0.0])
    for total in (nothing + some, some + nothing):
        assert total.count == 2
        np.testing.assert_allclose(total.scatter, [2.0, 8.0])
