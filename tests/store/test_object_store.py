"""Paths of the local disk where an address of an object store may be given."""

from bigmc.store.object_store import built, local_file, read_file


def test_a_path_is_read_and_written_where_it_is(tmp_path):
    path = tmp_path / "file"
    assert read_file(path) is None
    assert read_file(tmp_path) is None
    for content in (b"one", b"other"):
        with built(path) as there:
            there.write_bytes(content)
        assert read_file(str(path)) == content
        with local_file(path) as there:
            assert there == path
