"""scikit-learn's `set_output` of the vectoriser: what scikit-learn's own transformers of sparse data do."""

import numpy as np
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler

import bigmc

TEXTS = ["river sea boat", "sky wing nest", "river wing"]


def test_default_output_is_accepted_in_a_pipeline():
    vectorizer = bigmc.HashingVectorizer(n_features=2**8, keep_names=True)
    plain = vectorizer.fit_transform(TEXTS)
    steps = make_pipeline(bigmc.HashingVectorizer(n_features=2**8, keep_names=True))
    found = steps.set_output(transform="default").fit_transform(TEXTS)
    assert (found != plain).nnz == 0


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_frames_are_refused_as_scikit_learn_refuses_sparse_data(kind):
    pytest.importorskip(kind)
    vectorizer = bigmc.HashingVectorizer(n_features=2**8, keep_names=True).set_output(transform=kind)
    with pytest.raises(ValueError, match="sparse") as ours:
        vectorizer.fit_transform(TEXTS)
    counts = CountVectorizer().fit_transform(TEXTS)
    with pytest.raises(ValueError, match="sparse") as theirs:
        MaxAbsScaler().set_output(transform=kind).fit_transform(counts)
    assert str(ours.value) == str(theirs.value)


def test_names_of_columns_go_through_a_column_transformer():
    import pandas as pd

    table = pd.DataFrame({"text": TEXTS, "number": [1.0, 2.0, 3.0]})
    columns = ColumnTransformer(
        [("text", bigmc.HashingVectorizer(n_features=2**8, keep_names=True), "text")], remainder="passthrough"
    )
    columns.fit(table)
    names = columns.get_feature_names_out()
    assert names[-1] == "remainder__number"
    assert {"text__river", "text__wing"} <= set(names)
    assert len(np.unique(names)) == columns.transform(table).shape[1]
