import numpy as np
import pyarrow as pa
import pytest

import bigmc
from bigmc.errors import DataError
from bigmc.ingestion.columns.labels import LabelCoder, LabelTypes, find_missing, merge_classes, recode
from bigmc.options.label_kind import LabelKind


@pytest.mark.parametrize(
    ("labels", "missing"),
    [
        (["a", None, ""], [False, True, True]),
        ([1, None, 0], [False, True, False]),
        ([1.5, float("nan"), None], [False, True, True]),
        ([True, False, None], [False, False, True]),
        ([None, None, None], [True, True, True]),
    ],
)
def test_missing_labels(labels, missing):
    assert find_missing(pa.array(labels)).tolist() == missing


@pytest.mark.parametrize("sets", [False, True])
def test_labels_that_numpy_would_shorten_are_bad_rows(sets, tmp_path):
    """Two labels became one class twice, and the dataset could not be opened."""
    texts = ["a", "a\0", "b\0c", "a"]
    labels = [[text, "z"] if i else [] for i, text in enumerate(texts)] if sets else texts
    table = pa.table({"text": ["word"] * 4, "label": labels})
    with pytest.raises(DataError, match="row 1: the label ends with a NUL character"):
        bigmc.ingest(table, to=tmp_path / "d", text="text", label="label")
    dataset = bigmc.ingest(table, to=tmp_path / "d", text="text", label="label", on_bad_row="quarantine")
    assert dataset.classes.tolist() == [*np.unique(["a", "b\0c", "z"] if sets else ["a", "b\0c"])]
    assert dataset.n_samples == 3


def test_codes_of_parts_become_codes_of_the_dataset():
    parts = [
        pa.array(["pear", "fig", "pear"]),
        pa.array(["apple", "fig"]).dictionary_encode(),
        pa.array(["kiwi"]),
    ]
    coders = [LabelCoder() for _ in parts]
    codes = [coder.encode(labels) for coder, labels in zip(coders, parts, strict=True)]
    classes = merge_classes((coder.values for coder in coders), LabelTypes.GUESSED)
    every = [label for part in parts for label in part.to_pylist()]
    expected, inverse = np.unique(every, return_inverse=True)
    assert classes == expected.tolist()
    recoded = recode((coder.values for coder in coders), classes)
    final = [mine[c] for mine, c in zip(recoded, codes, strict=True)]
    assert np.concatenate(final).tolist() == inverse.tolist()


@pytest.mark.parametrize(
    ("values", "types", "classes"),
    [
        (["10", "9", "-1"], LabelTypes.GUESSED, [-1, 9, 10]),
        (["10", "9", "-1"], LabelTypes.GIVEN, ["-1", "10", "9"]),
        (["01", "1"], LabelTypes.GUESSED, ["01", "1"]),
        (["1", "1.0"], LabelTypes.GUESSED, ["1", "1.0"]),
        ([str(2**63), "1"], LabelTypes.GUESSED, ["1", str(2**63)]),
        ([2.0, 1.0], LabelTypes.GUESSED, [1, 2]),
        ([2.5, 1.0], LabelTypes.GUESSED, [1.0, 2.5]),
        ([True, False], LabelTypes.GIVEN, [False, True]),
    ],
)
def test_type_of_the_classes(values, types, classes):
    merged = merge_classes([values[:1], values], types)
    assert merged == classes
    assert [type(value) for value in merged] == [type(value) for value in classes]
    assert sorted(next(recode([values], merged)).tolist()) == list(range(len(classes)))


def test_integers_in_one_part_and_floats_in_another():
    assert merge_classes([[1, 2], [2.0, 3.5]], LabelTypes.GIVEN) == [1.0, 2.0, 3.5]


@pytest.mark.parametrize(
    ("parts", "reason"),
    [([["a"], ["a"]], "only the class 'a'"), ([[], []], "no class"), ([["a"], [1]], "several types")],
)
def test_labels_that_cannot_be_classes(parts, reason):
    with pytest.raises(DataError, match=reason):
        merge_classes(parts, LabelTypes.GIVEN)


def test_sets_of_one_label_are_refused_in_terms_of_sets():
    with pytest.raises(
        DataError, match="sets of one label only, 'a'; where a row has a label or not, give a"
    ):
        merge_classes([["a"], ["a"]], LabelTypes.GIVEN, kind=LabelKind.SET)
    with pytest.raises(DataError, match="empty sets of labels only"):
        merge_classes([[], []], LabelTypes.GIVEN, kind=LabelKind.SET)


def test_bad_rows_that_may_have_had_the_other_classes_are_counted():
    with pytest.raises(DataError, match="only the class 'a'; 1,200 bad rows were set aside"):
        merge_classes([["a"]], LabelTypes.GIVEN, 1200)


@pytest.mark.parametrize(
    "labels", [pa.array([{"a": 1}]), pa.array([[[1]], []]), pa.array([2**64 - 1], pa.uint64())]
)
def test_types_that_cannot_name_a_class(labels):
    with pytest.raises(DataError, match="label"):
        LabelCoder().encode(labels)


@pytest.mark.parametrize(
    "kind",
    [pa.list_(pa.string()), pa.large_list(pa.string()), pa.list_(pa.dictionary(pa.int8(), pa.string()))],
)
def test_lists_are_sets_of_codes(kind):
    coder = LabelCoder()
    labels = pa.array([["b", "a", "b"], [], ["c", "a"]]).cast(kind)
    assert coder.encode(labels).to_pylist() == [[0, 1], [], [1, 2]]
    assert coder.encode(labels.slice(2)).to_pylist() == [[1, 2]]
    assert (coder.values, coder.sets) == (["b", "a", "c"], True)
    holes = pa.array([["a", None], None, [""], ["a"], []]).cast(kind)
    assert find_missing(holes).tolist() == [True, True, True, False, False]
