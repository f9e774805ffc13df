"""How texts are cut into features: learning curves, and a choice that only more rows can make."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bigmc.errors import DataError
from bigmc.options.raw import FileOptions
from bigmc.training import pilot
from bigmc.training.pilot import (
    Hashing,
    Point,
    best_choice,
    choose_for_texts,
    choose_hashing,
    expected,
)
from bigmc.training.pilot_rows import FEWEST_ROWS, TEXT_SHARE, PilotColumns, PilotRows

MEMORY = 1 << 30


def test_a_learning_curve_is_a_power_of_the_number_of_rows():
    """Two points of the error 3 n^-0.4 say all others."""

    def error(n):
        return 3.0 * n**-0.4

    curve = [Point(n, n, 100, 1.0 - error(n), 7.0 * n**-0.2) for n in (500, 2000, 8000)]
    assert expected(curve, 40_000) == pytest.approx((1.0 - error(40_000), 7.0 * 40_000**-0.2))
    furthest = 8000 * pilot.FURTHEST
    assert expected(curve, 10**9) == pytest.approx((1.0 - error(furthest), 7.0 * furthest**-0.2))


def test_one_point_no_error_and_a_falling_quality_are_not_continued():
    assert expected([Point(10, 8, 2, 0.5, 1.0)], 10**6) == (0.5, 1.0)
    assert expected([Point(10, 8, 2, 0.5, 1.0), Point(40, 32, 8, 1.0, 0.0)], 10**6) == (1.0, 0.0)
    falling = [Point(10, 8, 2, 0.7, 1.0), Point(40, 32, 8, 0.6, 1.1)]
    assert expected(falling, 10**6) == pytest.approx((0.6, 1.1))
    assert expected([Point(10, 8, 2, 0.5, 1.0), Point(40, 32, 8, 0.6, 0.9)], 20) == (0.6, 0.9)


def test_a_choice_that_learns_faster_overtakes():
    slow, fast = Hashing("char_wb", (1, 4)), Hashing("word", (1, 2))
    points = {
        slow: [Point(2000, 1600, 400, 0.60, 1.0), Point(8000, 6400, 1600, 0.66, 0.8)],
        fast: [Point(2000, 1600, 400, 0.45, 1.2), Point(8000, 6400, 1600, 0.65, 0.8)],
    }
    assert best_choice(points, 6400) == slow
    assert best_choice(points, 100_000) == fast


def test_of_choices_with_about_the_same_quality_the_log_loss_decides():
    first, other = Hashing("word", (1, 1)), Hashing("char", (1, 5))
    points = {
        choice: [Point(8000, 6400, 1600, 0.870, 0.43), Point(16000, 12800, 3200, quality, log_loss)]
        for choice, quality, log_loss in ((first, 0.880, 0.40), (other, 0.879, 0.36))
    }
    assert best_choice(points, 16000) == other
    points[other][-1] = points[other][-1]._replace(log_loss=0.40)
    assert best_choice(points, 16000) == first


@pytest.mark.parametrize("n_rows", [600, 9000])
def test_pairs_of_words_are_taken_where_only_pairs_tell(n_rows):
    """The label is the order of two words, of which every bag of words has both."""
    generator = np.random.default_rng(3)
    words = np.array(["river", "mountain", "window", "garden"])
    first = generator.integers(0, 4, n_rows)
    second = (first + generator.integers(1, 4, n_rows)) % 4
    texts = pa.table({"text": np.char.add(np.char.add(words[first], " "), words[second])})
    labels = np.where((first - second) % 2 == 0, (first > second).astype(str), (first < second).astype(str))
    found = choose_for_texts(PilotRows(texts, labels), n_rows, MEMORY)
    assert found.hashing.analyzer == "word"
    assert found.hashing.ngrams == (1, 2)
    single = found.curves[Hashing("word", (1, 1))]
    assert single[-1].quality < 0.9 < found.curves[found.hashing][-1].quality


def test_little_memory_means_fewer_rows(monkeypatch):
    """A trial of all rows would take more than the limit."""
    generator = np.random.default_rng(4)
    texts = pa.table({"text": [" ".join(map(str, generator.integers(0, 500, 40))) for _ in range(6000)]})
    labels = generator.integers(0, 3, 6000).astype(str)
    most = {memory: _rows_tried(texts, labels, memory) for memory in (20_000_000, MEMORY)}
    assert most[20_000_000] < most[MEMORY] == 6000


def _rows_tried(texts, labels, memory):
    found = choose_for_texts(PilotRows(texts, labels), 6000, memory)
    return max(point.n_rows for curve in found.curves.values() for point in curve)


@pytest.mark.exhaustive
def test_long_texts_are_drawn_and_tried_only_as_far_as_there_is_memory(tmp_path):
    rng = np.random.default_rng(6)
    texts = [" ".join(map(str, rng.integers(0, 2000, 4000))) for _ in range(400)]
    table = pa.table({"text": texts, "label": rng.integers(0, 2, 400).astype(str)})
    pq.write_table(table, tmp_path / "long.parquet")
    columns = PilotColumns(("text",), "label")
    tried = {}
    for memory in (12_000_000, MEMORY):
        found = choose_hashing(tmp_path / "long.parquet", columns, FileOptions(), memory, None)
        tried[memory] = max(point.n_rows for curve in found.curves.values() for point in curve)
    row_bytes = table.nbytes / 400
    assert FEWEST_ROWS <= tried[12_000_000] < 1.3 * 12_000_000 / (TEXT_SHARE * row_bytes)
    assert tried[MEMORY] == 400


@pytest.mark.parametrize(("few_characters", "analyzer"), [(pilot.FEW_CHARACTERS, "char_wb"), (0, "word")])
def test_characters_are_tried_on_long_texts_where_they_are_few(monkeypatch, few_characters, analyzer):
    """Of inflected words the same one hardly comes back, its stem does."""
    monkeypatch.setattr(pilot, "FEW_CHARACTERS", few_characters)
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 2, 300)
    stems, others = (("morska", "gorska"), ("dolina", "ravnina", "planota"))
    texts = [
        " ".join(f"{stems[label] if k == 0 else rng.choice(others)}{rng.integers(10**6)}" for k in range(20))
        for label in labels
    ]
    assert np.mean([len(text) for text in texts]) > pilot.LONG_TEXT
    found = choose_for_texts(PilotRows(pa.table({"t": texts}), labels), len(texts), MEMORY)
    assert found.hashing.analyzer == analyzer


def test_characters_across_words_are_chosen_where_only_they_tell():
    """No word comes twice; whether the letters at a gap are the same is the label."""
    rng = np.random.default_rng(11)
    labels = rng.integers(0, 2, 600)
    numbers, letters = rng.integers(10**5, 10**6, (600, 2)), rng.integers(0, 3, 600)
    seconds = (letters + np.where(labels, rng.integers(1, 3, 600), 0)) % 3
    texts = [
        f"{first}{'abc'[end]} {'abc'[start]}{second}"
        for (first, second), end, start in zip(numbers, letters, seconds, strict=True)
    ]
    found = choose_for_texts(PilotRows(pa.table({"t": texts}), labels), len(texts), MEMORY)
    assert found.hashing.analyzer == "char"
    across, within = (found.curves[cut][-1].quality for cut in (found.hashing, Hashing("char_wb", (2, 5))))
    assert across > 0.9 > within


@pytest.mark.exhaustive
def test_little_memory_means_fewer_buckets():
    """Weights of every bucket fit: those of a training that keeps its samples elsewhere."""
    assert pilot.most_bits(1 << 34, 20) >= 20
    for memory, n_classes in ((128 * 10**6, 100), (64 * 10**6, 3), (10**9, 5000)):
        bits = pilot.most_bits(memory, n_classes)
        assert 8 * n_classes << bits <= memory < 200 * n_classes << bits
        rng = np.random.default_rng(0)
        labels = rng.permutation(np.arange(60) % min(n_classes, 20))
        texts = pa.table({"t": [" ".join(map(str, rng.integers(0, 50, 5))) for _ in labels]})
        sample = PilotRows(texts, labels.astype(str))
        found = pilot.choose_for_texts(sample, 10**6, memory)
        assert found.hash_bits == min(20, pilot.most_bits(memory, min(n_classes, 20)))
    assert pilot.choose_for_texts(sample, 10**6, memory, bits=18).hash_bits == 18


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_files_whose_texts_have_different_types_are_read_together(kind, tmp_path):
    texts = pa.array([f"word{i % 2} other" for i in range(100)])
    table = pa.table({"text": texts, "label": pa.array(["a", "b"] * 50)})
    pq.write_table(table, tmp_path / "1.parquet")
    pq.write_table(table.cast(pa.schema([("text", kind), ("label", kind)])), tmp_path / "2.parquet")
    found = choose_hashing(str(tmp_path), PilotColumns(("text",), "label"), FileOptions(), MEMORY, 12)
    assert found is not None
    assert found.curves[found.hashing][-1].n_rows == 200


def test_files_whose_labels_have_different_types_are_refused(tmp_path):
    table = pa.table({"text": ["a b"] * 60, "label": [1, 2] * 30})
    pq.write_table(table, tmp_path / "1.parquet")
    pq.write_table(table.set_column(1, "label", table["label"].cast(pa.string())), tmp_path / "2.parquet")
    with pytest.raises(DataError, match=r"column 'label' is string in .*, but int64 in"):
        choose_hashing(str(tmp_path), PilotColumns(("text",), "label"), FileOptions(), MEMORY, 12)


@pytest.mark.parametrize("separator", [None, ";"])
def test_label_sets_choose_characters_where_only_parts_of_words_tell(tmp_path, separator):
    """No word comes twice; which syllables it is made of are its labels, in any number and order."""
    rng = np.random.default_rng(8)
    syllables = ["tar", "mon", "vel", "qui"]
    texts, sets = [], []
    for _ in range(1500):
        own = rng.random(4) < 0.4
        parts = [s for s, has in zip(syllables, own, strict=True) if has] + [f"{rng.integers(10**6)}"]
        texts.append("".join(rng.permutation(parts)))
        sets.append([s.upper() for s, has in zip(syllables, own, strict=True) if has])
    labels = sets if separator is None else [separator.join(row) or "[]" for row in sets]
    pq.write_table(pa.table({"t": texts, "y": labels}), tmp_path / "t.parquet")
    columns = PilotColumns(("t",), "y", label_separator=separator)
    found = choose_hashing(tmp_path / "t.parquet", columns, FileOptions(), MEMORY, None)
    assert found.hashing.analyzer == "char_wb"
    assert found.curves[found.hashing][-1].quality > 0.9 > found.curves[Hashing("word", (1, 1))][-1].quality


@pytest.mark.exhaustive(keep=1)
@pytest.mark.parametrize("opposite", [False, True])
def test_words_are_told_apart_where_columns_mean_other_things(opposite):
    """Rare words of a class are in either column; or those of the body speak for the other class."""
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 2, 1200)
    own = rng.integers(0, 300, (2, 1200)) * 2 + np.array([labels, labels ^ opposite])
    words = rng.permutation(600)  # whose letters do not tell the class
    of_rows = zip("ab", words[own], strict=True)
    texts = pa.table({name: [f"word{k} the" for k in row] for name, row in of_rows})
    for given in (None, True, False) if opposite else (None,):
        found = choose_for_texts(PilotRows(texts, labels, words_by_column=given), 1200, MEMORY)
        tried = {choice.words_by_column for choice in found.curves}
        assert tried == ({False, True} if given is None else {given})
        if given is None:
            assert found.hashing.words_by_column == opposite


def test_of_one_text_column_nothing_else_is_tried():
    texts = pa.table({"a": ["one two", "three"] * 50})
    found = choose_for_texts(PilotRows(texts, np.array(["x", "y"] * 50)), 100, MEMORY)
    assert {choice.words_by_column for choice in found.curves} == {False}
