"""svmlight files against scikit-learn's reader of the whole file."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from bigmc.errors import DataError
from bigmc.ingestion.parts.scan import Part, ReadHints, ReadRequest, expand_sources, read, scan
from bigmc.ingestion.readers import text_parts


def everything(source, part_bytes=1 << 20, batch_bytes=1 << 16, on_bad_row="fail", **options):
    parts = scan(expand_sources(source), part_bytes, ReadHints(**options))
    batches = []
    for part in parts:
        part = Part.from_dict(json.loads(json.dumps(part.to_dict())))
        here = list(read(part, ReadRequest(None, batch_bytes, on_bad_row)))
        assert sum(b.n_rows + len(b.rejects) for b in here) == part.n_rows
        batches += here
    return batches


def matrix_of(batches):
    return sp.vstack(
        [
            sp.csr_matrix((m.data, m.indices, m.indptr), shape=(m.n_rows, m.n_features))
            for m in (b.matrix for b in batches)
        ]
    )


def labels_of(batches):
    return np.concatenate([b.labels.to_numpy() for b in batches])


@pytest.mark.parametrize("zero_based", [True, False])
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(("part_bytes", "batch_bytes"), [(1, 1), (300, 100), (1 << 20, 1 << 20)])
def test_any_parts_give_the_matrix_of_scikit_learn(tmp_path, zero_based, whole, part_bytes, batch_bytes):
    values = sp.random(40, 30, 0.2, random_state=0).toarray()
    values[3, 0] = 1.5
    matrix = sp.csr_matrix(values)
    labels = np.arange(40) % 5 - 2 + (0.0 if whole else 0.25)
    path = tmp_path / "t.svm"
    dump_svmlight_file(matrix, labels, str(path), zero_based=zero_based, comment="made here")
    expected, targets = load_svmlight_file(str(path), zero_based="auto")
    batches = everything(path, part_bytes, batch_bytes)
    assert (matrix_of(batches) != expected).nnz == 0
    assert matrix_of(batches).shape == expected.shape
    assert np.array_equal(labels_of(batches), targets)
    assert labels_of(batches).dtype == (np.int64 if whole else np.float64)
    assert np.array_equal(np.concatenate([b.row for b in batches]), np.arange(40))
    n_comments = sum(line.startswith("#") for line in path.read_text().splitlines())
    assert np.array_equal(np.concatenate([b.line for b in batches]), np.arange(40) + n_comments + 1)


def test_numbers_are_those_of_float_however_they_are_spelled(tmp_path):
    rng = np.random.default_rng(5)
    spelled = [
        "+1.5",
        "-0",
        ".5",
        "5.",
        "1e5",
        "1E-7",
        "2e+3",
        "0.1",
        "1e22",
        "1e23",
        "123456789e-22",
        "9e-23",
    ]
    spelled += [
        "9007199254740992",
        "0.30000000000000004",
        "1e-400",
        "00012.50",
    ]
    for digits in range(1, 19):
        bits = rng.integers(0, 2**63, 40)
        scaled = rng.normal(size=40) * 10.0 ** rng.integers(-30, 14, 40)
        spelled += [f"{x:.{digits}g}" for x in scaled] + [f"{x:.{digits}f}" for x in bits / 2.0**60]
    lines = [
        f"{label} 1:{first} 3:{second}" for label, first, second in zip(*[iter(spelled)] * 3, strict=False)
    ]
    path = tmp_path / "t.svm"
    path.write_text("\n".join(lines) + "  # the last one")
    batches = everything(path, 200, 100)
    values = np.concatenate([batch.matrix.data for batch in batches]).reshape(-1, 2)
    read_back = np.column_stack([labels_of(batches), values])
    expected = np.array([float(text) for text in spelled[: read_back.size]])
    assert read_back.size > len(spelled) - 3
    assert np.array_equal(read_back.reshape(-1).view(np.int64), expected.view(np.int64))


@pytest.mark.parametrize("behind", ["", "\n", "\r\n", "\t\n", "#5\n", " #\n"])
def test_short_numbers_are_read_wherever_the_file_ends(tmp_path, behind):
    rng = np.random.default_rng(6)
    path = tmp_path / "t.svm"
    for n_digits in range(1, 10):
        for point in range(n_digits + 1):
            digits = "".join(map(str, rng.integers(0, 10, n_digits)))
            text = ("-", "")[n_digits % 2] + digits[:point] + "." * int(point < n_digits) + digits[point:]
            index = rng.integers(1, 10 ** min(n_digits, 6))
            path.write_bytes(f"3 {index}:{text} 1999999:{text}{behind}".encode())
            [batch] = everything(path, zero_based=False)
            assert batch.matrix.indices.tolist() == [index - 1, 1999998]
            assert batch.matrix.data.tobytes() == np.array([float(text)] * 2).tobytes()


def test_extent_is_that_of_all_files(tmp_path):
    (tmp_path / "a.svm").write_text("1 1:1 3:2\n")
    (tmp_path / "b.svm").write_text("2 2:1 9:0  # explicit zero\n# nothing\n\n3\r\n")
    batches = everything(tmp_path)
    assert batches[0].matrix.n_features == 9
    assert batches[0].matrix.indices.tolist() == [0, 2]
    assert batches[1].matrix.data.tolist() == [1.0, 0.0]
    assert batches[1].line.tolist() == [1, 4]
    assert everything(tmp_path, zero_based=True)[0].matrix.n_features == 10
    assert everything(tmp_path, n_features=100)[1].matrix.n_features == 100
    (tmp_path / "b.svm").write_text("2 0:1\n")
    assert everything(tmp_path)[0].matrix.indices.tolist() == [1, 3]
    with pytest.raises(DataError, match=r"b\.svm:1: feature index 0, but indices count from 1"):
        everything(tmp_path, zero_based=False)
    with pytest.raises(DataError, match=r"a\.svm:1: feature index 3, but there are 3 features"):
        everything(tmp_path, n_features=3)


@pytest.mark.parametrize("seed", range(6))
def test_extent_is_that_of_the_good_records_whatever_is_between_them(tmp_path, seed, monkeypatch):
    """Records are described only where they may widen the range: against all of them, read by Python."""
    monkeypatch.setattr(text_parts, "_SCAN_BYTES", 200)
    rng = np.random.default_rng(seed)
    ends = ["", " ", "\t", " # 3:9 400:1", " 2:1", " 5:x", " nan", ":1", " +700:1", " 000003001:1"]
    lines = []
    for size in rng.integers(0, 6, 300):
        indices = np.unique(1 + rng.zipf(1.4, size) % 3000)
        if rng.random() < 0.1:
            rng.shuffle(indices)
        label = rng.choice(["1", "-1", "+2", "1,2", "3:1", "0.5" if seed % 2 else "4"])
        end = rng.choice(ends, p=[0.8] + [0.2 / 9] * 9)
        lines.append(" ".join([label, *(f"{j}:{j % 7}" for j in indices)]) + end)
    # The largest index, maybe before a comment or with a sign, and larger ones in records that are bad.
    widest = ["1 1:1 3456:1", "1 1:1 3456:1 # 7:1", "1 1:1 +3456:1"][seed % 3]
    fill = 40 * ["1 1:1 7:1"]
    lines += [*fill, widest, *fill, "4 0:1 5:1" if seed % 2 else "4 1:1"]
    lines += [*fill, "1 9999:1 5:1", "1 2:1 x 9998:1", "1 2:1 9997:1 9997:1", "1,2 9996:1", *fill]
    lines += ["2.5 1:1 7:1", *fill] if seed == 4 else []
    (tmp_path / "t.svm").write_text("\n".join(lines) + "\n")
    found, whole = [], True
    for line in lines:
        label, *entries = line.split("#")[0].split()
        try:
            those = [int(entry.partition(":")[0]) for entry in entries if ":" in entry]
        except ValueError:
            continue
        if len(those) < len(entries) or "," in label or ":" in label or sorted(set(those)) != those:
            continue
        found += those
        whole &= label.lstrip("+-").isdecimal()
    [part] = scan(expand_sources(tmp_path / "t.svm"))
    base = 0 if min(found) == 0 else 1
    expected = {"first_index": base, "n_features": max(found) + 1 - base, "whole_labels": whole}
    assert part.options == expected


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("1 2:1 2:1", "must increase"),
        ("1 3:1 2:1", "must increase"),
        ("1 2:nan", "feature 2 is nan"),
        ("1 2:1 5:-inf", "feature 5 is -inf"),
        ("nan 2:1", "the label is nan"),
        ("1,2 2:1", "several labels"),
        ("2:1 3:1", "no label"),
        ("1 2:abc", "abc"),
        ("1 2:", "could not convert"),
        ("1 2:5\x01 3:1", "could not convert"),
        ("1 2:1.2.3", "could not convert"),
        ("1 2:-", "could not convert"),
        ("1 2", "index:value"),
        ("1 -2:1", "index:value"),
        ("1 x:1", "index:value"),
        ("1 2 :1", "index:value"),
        ("1 2:1_0", "underscore"),
        ("1 99999999999999999999:1", "above 2147483646"),
        ("a 2:1", "could not convert"),
    ],
)
def test_bad_lines_stop_the_run_or_are_set_aside(tmp_path, line, reason):
    path = tmp_path / "t.svm"
    good = [f"{i} 1:{i} 7:0.5" for i in range(20)]
    path.write_text("\n".join([*good[:10], "# comment", line, *good[10:]]))
    with pytest.raises(DataError, match=r"t\.svm:12: ") as caught:
        everything(path)
    assert reason in str(caught.value)
    for part_bytes in (1, 1 << 20):
        batches = everything(path, part_bytes, on_bad_row="quarantine")
        assert labels_of(batches).tolist() == list(range(20))
        assert matrix_of(batches).shape == (20, 7)
        assert [(r.line, r.row, r.raw) for b in batches for r in b.rejects] == [(12, 10, line)]


def test_query_ids_are_refused_at_once(tmp_path, monkeypatch):
    path = tmp_path / "t.svm"
    path.write_text("1 1:1\n1 qid:3 1:1\n")
    with pytest.raises(DataError, match=r"t\.svm:2: query ids"):
        scan(expand_sources(path))
    monkeypatch.setattr(text_parts, "_SCAN_BYTES", 200)
    path.write_text(
        100 * "1 1:1 7:1\n" + "1 1:1 qid:3 7:1\n" + 9 * "1 1:1\n"
    )  # in a chunk that says nothing else
    with pytest.raises(DataError, match=r"t\.svm:101: query ids"):
        scan(expand_sources(path))


def test_an_integer_that_float64_does_not_hold_makes_its_row_bad(tmp_path):
    path = tmp_path / "t.svm"
    path.write_text(
        "1 1:9007199254740992\n2 1:1 2:9007199254740993 # why\n1 2:1e300\n2 1:9007199254740994.0\n"
    )
    (batch,) = everything(path, on_bad_row="quarantine")
    assert [reject.line for reject in batch.rejects] == [2]
    assert "9007199254740993 is not exact" in batch.rejects[0].reason
    assert batch.n_rows == 3
