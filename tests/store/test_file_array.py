"""Arrays whose elements lie in a file without a name."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from bigmc.store.files.checkpoint import FileCheckpoint
from bigmc.store.files.file_array import file_array, give_back_pages


def anonymous():
    return of_status("RssAnon")


def resident():
    return of_status("VmRSS")


def of_status(name):
    status = Path("/proc/self/status")
    for line in status.read_text().splitlines() if status.exists() else ():
        if line.startswith(name):
            return int(line.split()[1]) << 10
    pytest.skip("no figures of memory here")


def test_it_is_an_array_of_zeros_and_leaves_no_file(tmp_path):
    array = file_array((300, 7), np.float32, tmp_path)
    assert not list(tmp_path.iterdir())
    assert array.shape == (300, 7)
    assert array.dtype == np.float32
    assert not array.any()
    array[3:5] = 2.5
    assert array.sum() == 2.5 * 14
    assert file_array((0, 7), np.float32, tmp_path).shape == (0, 7)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no list of open files here")
def test_its_file_is_open_once_and_no_longer_than_the_array(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    arrays = [file_array((10,), np.float64, tmp_path) for _ in range(5)]
    assert len(os.listdir("/proc/self/fd")) == before + 5
    del arrays
    assert len(os.listdir("/proc/self/fd")) == before


def test_its_elements_are_no_memory_of_the_process(tmp_path):
    before = anonymous()
    array = file_array((1 << 23,), np.float64, tmp_path)
    array[:] = 1.0
    assert anonymous() - before < 16 << 20 < array.nbytes


def test_pages_given_back_are_no_memory_of_the_process_and_keep_their_content(tmp_path):
    array = file_array((1 << 23,), np.float64, tmp_path)
    array[:] = 1.0
    before = resident()
    give_back_pages(array[1000:-1000])
    assert before - resident() > array.nbytes - (16 << 20)
    assert array.sum() == array.size
    in_memory = np.ones(5000)
    for other in (in_memory, in_memory[7:], array[:0]):
        give_back_pages(other)
    assert in_memory.sum() == 5000


def test_a_checkpoint_of_a_mapped_array_leaves_no_pages_in_memory(tmp_path):
    array = file_array((1 << 23,), np.float64, tmp_path)
    array[:] = np.arange(len(array))
    give_back_pages(array)
    before, checkpoint = resident(), FileCheckpoint(tmp_path)
    checkpoint.save({}, {"large": array})
    read = checkpoint.load()[1]["large"]
    assert resident() - before < 16 << 20 < array.nbytes
    np.testing.assert_array_equal(read, np.arange(len(array)))


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="no such call here")
def test_a_full_disk_is_an_error_at_once(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="no space") as caught:
        file_array((10,), np.float64, tmp_path)
    assert caught.value.filename.startswith(f"{tmp_path}/")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("order", ["C", "F"])
def test_large_arrays_of_a_checkpoint_come_back_as_files(order, tmp_path):
    values = np.asarray(np.random.default_rng(0).random((1 << 19, 9)), order=order)
    checkpoint = FileCheckpoint(tmp_path)
    checkpoint.save({"n": 1}, {"large": values, "small": np.arange(3)})
    before = anonymous()
    meta, arrays = checkpoint.load()
    assert anonymous() - before < 16 << 20 < values.nbytes
    assert meta == {"n": 1}
    np.testing.assert_array_equal(arrays["large"], values)
    arrays["large"][0] = 0.0  # what is kept does not change with it
    np.testing.assert_array_equal(checkpoint.load()[1]["large"], values)
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint.npz"]


def test_a_damaged_large_array_is_an_error(tmp_path):
    checkpoint = FileCheckpoint(tmp_path)
    checkpoint.save({}, {"large": np.ones(5 << 20)})
    content = bytearray(checkpoint.path.read_bytes())
    content[len(content) // 2] ^= 1
    checkpoint.path.write_bytes(content)
    with pytest.raises(Exception, match="damaged"):
        checkpoint.load()
