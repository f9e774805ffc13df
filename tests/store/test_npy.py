"""Arrays in NumPy's format: a header is believed only as far as the file reaches."""

import io
import json
import zipfile

import numpy as np
import pytest

from bigmc.errors import ModelError, StoreError
from bigmc.model.archive import read_archive, write_archive
from bigmc.store.files.checkpoint import FileCheckpoint
from bigmc.store.files.npy import read_npy


def npy(shape, n_bytes, dtype="<f8"):
    """A file whose header says ``shape`` and whose body has ``n_bytes``."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": dtype, "fortran_order": False, "shape": shape})
    return stream.getvalue() + bytes(n_bytes)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0).reshape(2, 3),
        np.array(["é", "abc"]),
        np.float32(3.5),
        np.zeros((0, 4)),
        np.zeros(3, bool),
    ],
    ids=str,
)
def test_what_numpy_wrote_comes_back(array):
    stream = io.BytesIO()
    np.save(stream, array)
    found = read_npy(stream.getvalue())
    assert found.dtype == np.asarray(array).dtype
    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize(
    ("shape", "n_bytes"), [((3_000_000_000,), 800), ((2**40, 2**40), 8), ((3,), 16), ((3,), 32), ((-1,), 8)]
)
def test_a_header_that_does_not_fit_the_file_is_refused_before_memory_is_taken(shape, n_bytes):
    with pytest.raises(ValueError, match=r"bytes|negative|shape"):
        read_npy(npy(shape, n_bytes))


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY", b"\x93NUMPY\x01\x00\xff\xff{", npy((1,), 8)[:20]])
def test_what_is_no_npy_file_is_refused(content):
    with pytest.raises(ValueError, match=r"."):
        read_npy(content)


def test_a_model_and_a_checkpoint_that_lie_are_refused(tmp_path):
    write_archive(tmp_path / "m", {}, {"a": np.zeros(3)})
    with zipfile.ZipFile(tmp_path / "m") as archive:
        header = json.loads(archive.read("model.json"))
    import hashlib

    lie = npy((3_000_000_000,), 80)
    header["members"] = {"a.npy": hashlib.sha256(lie).hexdigest()}
    with zipfile.ZipFile(tmp_path / "m", "w") as archive:
        archive.writestr("model.json", json.dumps(header))
        archive.writestr("a.npy", lie)
    with pytest.raises(ModelError, match="not a plain array"):
        read_archive(tmp_path / "m")
    checkpoint = FileCheckpoint(tmp_path)
    checkpoint.save({"x": 1}, {"a": np.zeros(3)})
    with zipfile.ZipFile(checkpoint.path, "a") as archive:
        archive.writestr("array.b.npy", lie)
    with pytest.raises(StoreError, match="damaged"):
        checkpoint.load()


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_files_of_two_versions_are_read(version):
    """The second is for headers of more than 65,535 bytes, the third for names of fields in Unicode."""
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.arange(5.0), version=version)
    if version == (3, 0):
        with pytest.raises(ValueError, match=r"version .* is not supported"):
            read_npy(stream.getvalue())
    else:
        np.testing.assert_array_equal(read_npy(stream.getvalue()), np.arange(5.0))
