import json
import re
import sys
import threading
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction import FeatureHasher
from sklearn.feature_extraction.text import HashingVectorizer

from bigmc.errors import DataError
from bigmc.ingestion.hashing import scratch as buffers
from bigmc.ingestion.hashing import unicode
from bigmc.ingestion.hashing.categories import categories_of, hash_categories
from bigmc.ingestion.hashing.hasher import TextHasher, hash_names
from bigmc.ingestion.hashing.unicode import case_kept_table, lower_table
from bigmc.kernels.hashing import folding, words
from bigmc.store.shards.csr import Rows

ANALYZERS = ["word", "char", "char_wb"]
RANGES = [(1, 1), (1, 2), (2, 5), (3, 3)]


def reference(hasher: TextHasher, documents: list[str]) -> Any:
    return HashingVectorizer(
        n_features=hasher.n_features, norm=None, alternate_sign=True, analyzer=hasher.analyzer,
        ngram_range=hasher.ngrams, lowercase=hasher.lowercase,
    ).transform(documents)  # fmt: skip


def assert_equal(rows: Rows, expected: Any) -> None:
    np.testing.assert_array_equal(rows.indptr, expected.indptr)
    np.testing.assert_array_equal(rows.indices, expected.indices)
    np.testing.assert_array_equal(rows.data, expected.data)
    assert rows.indptr.dtype == np.int64
    assert rows.indices.dtype == np.int32
    assert rows.n_features == expected.shape[1]


def check(hasher: TextHasher, documents: list[str]) -> None:
    assert_equal(hasher.transform(pa.array(documents, pa.string())), reference(hasher, documents))


# Hypothesis draws few of the characters that matter, so they are named.
spaces = "".join(c for c in map(chr, range(sys.maxunicode + 1)) if c.isspace())
letters = (
    "aAzZ09_-.,'ςσΣΑαİıIiߟẞǅǆÉéÑñЖж字あ한ªº²½Ⅷⅷ𐐀𐐨𝟘𝒜\u0301\u0307\u0345\u200d\u200c\u00ad\ufeff\U0001f468Kſ"
)
characters = st.one_of(
    st.sampled_from(letters + spaces), st.characters(exclude_categories=["Cs"]), st.sampled_from(" ab")
)
documents_of = st.lists(st.text(characters, max_size=60), min_size=1, max_size=6)


@settings(max_examples=300, deadline=None)
@given(
    documents=documents_of,
    analyzer=st.sampled_from(ANALYZERS),
    ngrams=st.tuples(st.integers(1, 7), st.integers(0, 6)).map(lambda p: (p[0], p[0] + p[1])),
    bits=st.integers(1, 30),
    lowercase=st.booleans(),
)
def test_any_text_equals_scikit_learn(
    documents: list[str], analyzer: Any, ngrams: tuple[int, int], bits: int, lowercase: bool
) -> None:
    check(TextHasher(analyzer, ngrams, bits, lowercase), documents)


HAND = [
    "", " ", "\n", "  ", "a", "ab", " a ", "a b", "ab cd", "ab  cd\n\n\tef ", "\t", "\r\n", "_",
    "__", "a_b 1 22",
    "ΟΔΟΣ ΣΟΦΟΣ Σ ΣΣ Σ. .Σ ΑΣ. ΑΣΑ 'ΑΣ' ΑΣ\u0301 Α\u0301Σ ΑΣ\u00ad Α\u00adΣ\u00adΑ Α:Σ ΑΣ1 1Σ",
    "ς σ Σς",
    "İstanbul İİ aİ İa DİYARBAKIR", "ıI iI", "Straße STRASSE ẞ ß ﬁ ŉ ǰ ΐ",
    "e\u0301te\u0301 n\u0303 \u0301 \u0301a",
    "क्षत्रिय नमस्ते ภาษาไทย", "\U0001f468\u200d\U0001f469\u200d\U0001f467 x\u200dy a\u200cb",
    "𐐀𐐁𐐂 𝟘𝟙 𝒜𝒷 𠀀𠀁 𞤀𞤁",
    "Ⱥ ȺȾ ȺȺȺȺȺȺȺȺȺȺȺȺȺȺȺȺ", "K K KK Å ÅÅ", "1\u0660\u0661 ²³ ½¾ Ⅷ ⅷ", "\x00 a\x00b \x7f \x80\x9f",
    "\ufeffab \ufffe\uffff",
    *("a" + s + "b" + s + s + "cd" + s for s in spaces), spaces, "x" * 300, "word " * 300, "é" * 5000,
]  # fmt: skip


@pytest.mark.parametrize("analyzer", ANALYZERS)
@pytest.mark.parametrize("ngrams", [*RANGES, (1, 3), (6, 9)])
def test_cases_by_hand_equal_scikit_learn(analyzer: Any, ngrams: tuple[int, int]) -> None:
    for bits, lowercase in ((18, True), (18, False), (3, True), (30, True)):
        check(TextHasher(analyzer, ngrams, bits, lowercase), HAND)


@pytest.mark.parametrize("size", [4, 5, 6, 7])
def test_text_lower_cased_in_pieces_equals_scikit_learn(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unicode, "LOWERED_BYTES", size)
    check(TextHasher("word", (1, 2), 18), [f"Ⱥ {document}" for document in HAND])


@pytest.mark.exhaustive(keep=1)
@pytest.mark.parametrize("lowercase", [True, False])
def test_every_code_point_folds_as_python_does(lowercase: bool) -> None:
    table = lower_table() if lowercase else case_kept_table()
    for cp in range(0x110000):
        c = chr(cp)
        low = c.lower() if lowercase else c
        if cp == 0x130 and lowercase:
            assert low == "i\u0307"
            assert table[cp] & folding.CODE_POINT == ord("i")
        else:
            assert table[cp] & folding.CODE_POINT == ord(low)
            assert low.lower() == low or not lowercase  # what Python lower-cased stays as it is
            if not 0xD800 <= cp < 0xE000:
                # The buffers rely on this.
                assert len(low.encode()) <= 1.5 * len(c.encode())
    folded = "".join(map(chr, table & folding.CODE_POINT))
    for pattern, flag in ((r"\w", words.IS_WORD), (r"\s", folding.IS_SPACE)):
        assert [m.start() for m in re.finditer(pattern, folded)] == np.flatnonzero(table & flag).tolist()


@pytest.mark.exhaustive
def test_a_sigma_beside_every_code_point_folds_as_python_does() -> None:
    points = [chr(cp) for cp in range(0x110000) if not 0xD800 <= cp < 0xE000]
    around = [f"Σ{c} AΣ{c} AΣ{c}A {c}Σ A{c}Σ" for c in points]
    _, _, offsets, text = next(unicode.string_pieces(pa.array(around), piece_bytes=1 << 30))
    _, text = unicode.lower_sigmas(offsets, text)
    for a, b, document in zip(offsets, offsets[1:], around, strict=False):
        assert text[a:b].tobytes().decode().lower() == document.lower(), document


@pytest.mark.exhaustive(keep=1)
@pytest.mark.parametrize("analyzer", ANALYZERS)
def test_every_code_point_alone_and_in_a_word(analyzer: Any) -> None:
    points = [chr(cp) for cp in range(0x110000) if not 0xD800 <= cp < 0xE000]
    if analyzer != "word":
        # scikit-learn takes long; what is left are all with a case, all spaces and some of the others.
        points = [c for c in points if c.lower() != c or c.upper() != c or c.isspace() or ord(c) % 37 == 0]
    # A document for each code point would take scikit-learn ten times as long.
    documents = [" ".join(f"{c} x{c}y" for c in points[k : k + 50]) for k in range(0, len(points), 50)]
    check(TextHasher(analyzer, (1, 1) if analyzer == "word" else (1, 3)), documents)


@pytest.mark.exhaustive(keep=1)
@pytest.mark.parametrize("analyzer", ANALYZERS)
def test_a_document_of_a_megabyte(analyzer: Any) -> None:
    rng = np.random.default_rng(0)
    alphabet = np.array(list("abcdefghijklmnopqrstuvwxyzäöüß    \n"))
    document = "".join(rng.choice(alphabet, 1_000_000))
    check(TextHasher(analyzer, (1, 2), 22), ["ab", document, "", "cd ef"])
    assert buffers.scratch.nbytes <= buffers.KEEP_BYTES


def test_buffers_that_one_setting_widened_serve_the_next() -> None:
    short = [f"ab cd {i}" for i in range(20_000)]
    for order in (((1, 1), (1, 2)), ((1, 2), (1, 1))):
        scratch = buffers.scratch
        scratch.__init__()  # type: ignore[misc]
        TextHasher("word", order[0]).transform(pa.array(["ab " * 100_000]))
        check(TextHasher("word", order[1]), short)
        n_bytes = len(scratch.lowered) - words.MARGIN
        assert len(scratch.starts) > n_bytes // 2 + buffers.FOLD_ROWS
        if order[1] == (1, 2):
            assert len(scratch.folded) > len(scratch.lowered) + buffers.FOLD_ROWS
            assert len(scratch.bound) >= len(scratch.starts)
        else:
            assert len(scratch.hashes) >= len(scratch.starts)


def test_one_long_run_without_a_space() -> None:
    for analyzer in ANALYZERS:
        check(TextHasher(analyzer, (1, 4), 30), ["x" * 200_000, "ab" * 100_000, " " * 100_000, "Ж" * 100_000])


def test_counts_beyond_int16_and_sums_that_cancel() -> None:
    hasher = TextHasher("word", (1, 1), 1)
    rows = hasher.transform(pa.array(["ab " * 40_000, "ab cd ef gh ij kl"]))
    assert rows.data.dtype == np.int32
    assert_equal(rows, reference(hasher, ["ab " * 40_000, "ab cd ef gh ij kl"]))
    assert hasher.transform(pa.array(["ab " * 30_000])).data.dtype == np.int16
    documents = [f"w{i} w{i + 1} w{i + 2} w{i + 3}" for i in range(100)]
    rows = hasher.transform(pa.array(documents))
    assert (rows.data == 0).any()
    assert_equal(rows, reference(hasher, documents))


def test_slices_chunks_and_wide_offsets_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    documents = HAND * 3
    hasher = TextHasher("char_wb", (1, 3), 12)
    expected = reference(hasher, documents)
    for type_ in (pa.string(), pa.large_string()):
        array = pa.array(documents, type_)
        assert_equal(hasher.transform(array), expected)
        assert_equal(hasher.transform(array[7:50]), expected[7:50])
        assert_equal(
            hasher.transform(pa.chunked_array([array[:9], array[9:9], array[9:60], array[60:]])), expected
        )
    assert_equal(hasher.transform(pa.array(documents).dictionary_encode()), expected)
    monkeypatch.setattr(unicode, "PIECE_BYTES", 50)
    with monkeypatch.context() as small:
        small.setattr(buffers, "PIECE_ENTRIES", 8)
        small.setattr(buffers, "FOLD_BYTES", 16)
        small.setattr(buffers, "FOLD_ROWS", 3)
        buffers.scratch.__init__()  # type: ignore[misc]
        assert_equal(hasher.transform(pa.array(documents)), expected)
    buffers.scratch.__init__()  # type: ignore[misc]


@pytest.mark.parametrize("analyzer", ANALYZERS)
@pytest.mark.parametrize("ngrams", [(1, 3), (2, 2), (4, 6), (1, 12)])
@pytest.mark.parametrize("letters", ["ab", "aé 漢", "b, c"])
def test_short_documents_hashed_together(analyzer: Any, ngrams: tuple[int, int], letters: str) -> None:
    random = np.random.default_rng(len(letters))
    sizes = [0, 1, 2, 62, 63, 64, 65, 0, 510, 511, 512, 513, *random.integers(0, 70, 60)]
    documents = ["".join(random.choice(list(letters + "  x"), size)) for size in sizes]
    documents += [" ".join(["word"] * n) for n in (511, 1, 512, 513, 3)]
    check(TextHasher(analyzer, ngrams, 20), [*documents, "ascii", *documents[::-1]])


@pytest.mark.exhaustive(keep=1)
@pytest.mark.parametrize("analyzer", ANALYZERS)
def test_documents_sorted_and_documents_counted_in_a_table(analyzer: Any) -> None:
    rng = np.random.default_rng(1)
    alphabet = np.array(list("abcdefghijklmnop   Ж"))
    sizes = [0, 1, 60, 0, 2000, 9000, 3, 30_000, 0, 8000, 300_000, 5, 4000, 4000]
    documents = ["".join(rng.choice(alphabet, size)) for size in sizes]
    for ngrams, bits in (((1, 1), 18), ((1, 3), 30), ((2, 2), 9), ((5, 8), 23), ((1, 2), 1)):
        check(TextHasher(analyzer, ngrams, bits), documents)


@pytest.mark.parametrize(
    "empty", [pa.array([], pa.string()), pa.chunked_array([], pa.string()), pa.nulls(0, pa.string())]
)
def test_no_documents_give_no_rows(empty: Any) -> None:
    rows = TextHasher().transform(empty)
    assert rows.n_rows == 0
    assert len(rows.data) == len(rows.indices) == 0


def test_nulls_are_refused() -> None:
    with pytest.raises(DataError, match=r"row 1.*null"):
        TextHasher().transform(pa.array(["ab cd", None, "ef"]))


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(DataError, match="type"):
        TextHasher().transform(pa.array([[1]]))
    broken = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(np.array([0, 2, 5], np.int32)), pa.py_buffer(b"ab\xff\xfecd")]
    )
    for analyzer in ANALYZERS:
        with pytest.raises(DataError, match=r"row 1.*UTF-8"):
            TextHasher(analyzer).transform(broken)  # type: ignore[arg-type]


def test_code_points_of_every_length_equal_scikit_learn() -> None:
    points = [*range(0x80, 0xD800, 7), *range(0xE000, 0x10FFFF, 101), 0x7FF, 0x800, 0xFFFF, 0x10000, 0x10FFFF]
    for analyzer, lowercase in (("char", False), ("char", True), ("char_wb", False), ("word", False)):
        check(TextHasher(analyzer, (1, 2), 30, lowercase), [f"a{chr(cp)}b" for cp in points])


@pytest.mark.parametrize(
    "data",
    [b"\x80", b"\xc1\x80", b"\xc3", b"\xc3a", b"\xe0\x80\x80", b"\xe2\x82", b"\xed\xa0\x80", b"\xef\xbf",
     b"\xf0\x80\x80\x80", b"\xf0\x9f\x98", b"\xf4\x90\x80\x80", b"\xff", b"\xf8\x88\x80\x80\x80"],
)  # fmt: skip
@pytest.mark.parametrize("after", [b"", b"a", b"\xc3\xa9"])
def test_what_python_does_not_decode_is_refused(data: bytes, after: bytes) -> None:
    with pytest.raises(UnicodeDecodeError):
        (data + after).decode()
    offsets = np.array([0, 2, 2 + len(data + after)], np.int32)
    texts = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(offsets), pa.py_buffer(b"ab" + data + after)]
    )
    for analyzer, lowercase in product(ANALYZERS, (True, False)):
        with pytest.raises(DataError, match=r"row 1.*UTF-8"):
            TextHasher(analyzer, lowercase=lowercase).transform(texts)  # type: ignore[arg-type]


def test_threads_do_not_disturb_each_other() -> None:
    documents = HAND * 20
    hashers = [TextHasher(a, r, 18) for a in ANALYZERS for r in RANGES[:3]]  # type: ignore[arg-type]
    texts = pa.array(documents)
    expected = [h.transform(texts) for h in hashers]
    found: list[Rows | None] = [None] * len(hashers)

    def work(k: int) -> None:
        found[k] = hashers[k].transform(texts)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(len(hashers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for a, b in zip(found, expected, strict=True):
        assert a is not None
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize(
    "parameters",
    [
        {"analyzer": "words"}, {"ngrams": (0, 1)}, {"ngrams": (2, 1)}, {"ngrams": 2}, {"ngrams": (1.0, 2)},
        {"ngrams": (1, 2, 3)}, {"hash_bits": 0}, {"hash_bits": 31}, {"hash_bits": 1.5}, {"lowercase": "yes"},
    ],
)  # fmt: skip
def test_parameters_are_checked(parameters: dict[str, Any]) -> None:
    with pytest.raises(DataError):
        TextHasher(**parameters)


def test_parameters_survive_json() -> None:
    hasher = TextHasher("char", (2, 4), 20, False)
    assert TextHasher.from_dict(json.loads(json.dumps(hasher.to_dict()))) == hasher
    with pytest.raises(DataError, match="colour"):
        TextHasher.from_dict({"colour": 1})


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(max_size=40), max_size=8), st.text(max_size=9), st.integers(1, 30))
def test_names_equal_feature_hasher(values: list[str], name: str, bits: int) -> None:
    indices, signs = hash_names([f"{name}={value}" for value in values], bits)
    assert indices.dtype == np.int32
    assert signs.dtype == np.int8
    if values:
        expected = FeatureHasher(2**bits, input_type="dict").transform({name: value} for value in values)
        np.testing.assert_array_equal(indices, expected.indices)
        np.testing.assert_array_equal(signs, expected.data)
    else:
        assert len(indices) == len(signs) == 0


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.text(max_size=9), st.integers(-9, 9), st.booleans()), min_size=1, max_size=40),
    st.integers(1, 30),
)
def test_categories_of_several_columns_equal_feature_hasher(rows: list[tuple[Any, ...]], bits: int) -> None:
    expected = FeatureHasher(2**bits, input_type="dict", dtype=np.int32).transform(
        {f"c{k}": str(value) for k, value in enumerate(row)} for row in rows
    )
    columns = [pa.array(values) for values in zip(*rows, strict=True)]
    encoded = [column.dictionary_encode() for column in columns]
    unused = pa.DictionaryArray.from_arrays(
        encoded[0].indices.cast(pa.int64()), pa.concat_arrays([encoded[0].dictionary, pa.array(["no row"])])
    )
    for given_as in (
        columns,
        encoded,
        [unused, *columns[1:]],
        [columns[0].cast(pa.string_view()), *encoded[1:]],
    ):
        categories = [categories_of(column, f"c{k}") for k, column in enumerate(given_as)]
        assert_equal(hash_categories(categories, bits), expected)


@pytest.mark.exhaustive
def test_categories_of_many_rows_and_many_columns() -> None:
    rng = np.random.default_rng(0)
    for n_rows, width in ((9_000, 1), (5, 9_000)):
        values = rng.integers(0, 50, (n_rows, width))
        expected = FeatureHasher(2**10, input_type="dict", dtype=np.int32).transform(
            {f"c{k}": str(value) for k, value in enumerate(row)} for row in values.tolist()
        )
        categories = [categories_of(pa.array(values[:, k]), f"c{k}") for k in range(width)]
        assert_equal(hash_categories(categories, 10), expected)


def test_missing_categories_are_refused() -> None:
    for column in (pa.array(["a", None]), pa.array(["a", None]).dictionary_encode()):
        with pytest.raises(DataError, match="row 1"):
            categories_of(column, "c")
