"""The label column of raw data, as JSON and back."""

import pytest

from bigmc.store.label_source import LabelSource


@pytest.mark.parametrize("source", [LabelSource("stars"), LabelSource("tags", ";")])
def test_what_is_written_is_read(source):
    assert LabelSource.from_dict(source.to_dict()) == source
    assert set(source.to_dict()) == {"column", "separator"}


@pytest.mark.parametrize("stored", ["stars", ["stars"], {"column": 3, "separator": None}, {"column": "a"}])
def test_anything_else_is_refused(stored):
    with pytest.raises((ValueError, KeyError)):
        LabelSource.from_dict(stored)
    assert LabelSource.from_dict(None) is None
