"""What messages call a feature: the name of a column, where features are columns."""

import numpy as np
import pytest

from bigmc.store.dataset import Dataset
from bigmc.store.feature_titles import feature_title, gradient_not_finite


def dataset_of(features):
    """A dataset of four features, of which `features` says where they are from."""
    plain = Dataset.from_arrays(np.eye(4))
    return Dataset(plain.shards, plain.class_labels, 4, plain.weighting, features)


@pytest.mark.parametrize(
    ("features", "titles"),
    [
        ({"columns": ["a", "b", "c", "d"]}, ["column 'a'", "column 'b'", "column 'c'", "column 'd'"]),
        ({"dense": ["a", "b"]}, ["feature 0", "feature 1", "column 'a'", "column 'b'"]),  # after hashed ones
        ({"dense": ["a", "b"], "dates": ["day"]}, ["feature 0", "feature 1", "feature 2", "feature 3"]),
        ({"dense": None}, ["feature 0", "feature 1", "feature 2", "feature 3"]),
        ({}, ["feature 0", "feature 1", "feature 2", "feature 3"]),
    ],
)
def test_columns_have_names_and_other_features_numbers(features, titles):
    dataset = dataset_of(features)
    assert [feature_title(dataset, feature) for feature in range(4)] == titles
    assert titles[3] in str(gradient_not_finite(dataset, 3))
