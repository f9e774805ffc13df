"""Whatever is wrong with the input, the command line says it in one line: where, what, and the cure."""

import itertools
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bigmc import cli

pytestmark = pytest.mark.slow

GOOD = "text,label,size\n" + "".join(f"some words {i},{'ab'[i % 2]},{i}\n" for i in range(40))
TEXT = "--text text --label label"


def run(monkeypatch, capsys, command: str) -> tuple[int, str, str]:
    """Run a command in this process; any exception but SystemExit would be the user's traceback."""
    monkeypatch.setattr(sys, "argv", ["bigmc", *command.split()])
    with pytest.raises(SystemExit) as exit_:
        cli.main()
    captured = capsys.readouterr()
    return int(exit_.value.code or 0), captured.out, captured.err


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_good(here: Path) -> None:
    (here / "good.csv").write_text(GOOD)
    (here / "renamed.csv").write_text(GOOD.replace("text,label", "Text,labels", 1))


def write_broken(here: Path) -> None:
    lines = GOOD.splitlines()
    (here / "ragged.csv").write_text("\n".join([*lines[:7], "too,many,fields,here", *lines[7:]]))
    (here / "latin.csv").write_bytes(GOOD.encode().replace(b"words 9", b"w\xf6rter"))
    (here / "unlabelled.csv").write_text(GOOD.replace("words 4,a", "words 4,"))
    for value in ("nan", "inf", "-inf", "many"):
        (here / f"{value}.csv").write_text(GOOD.replace(",a,4\n", f",a,{value}\n"))
    (here / "one.csv").write_text(GOOD.replace(",a,", ",b,"))
    (here / "header.csv").write_text("text,label\n")
    (here / "empty.csv").write_text("")
    (here / "blank.csv").write_text("text,label\n" + " ,a\n-,b\n" * 5)
    (here / "quote.csv").write_text('text,label\n"never closed,a\n' + GOOD)
    (here / "twice.csv").write_text("text,text,label\na,b,c\n")
    (here / "broken.jsonl").write_text(
        '{"text": "one word", "label": "x"}\n{"text": "two words", "label": "y"}\n{"text": oops}\n'
    )
    (here / "bare.csv").write_text(GOOD.partition("\n")[2])
    (here / "nested.jsonl").write_text('{"doc": {"body": "one word"}, "label": "x"}\n')
    (here / "wide.svm").write_text("1 1:1 2:1\n2 3:1 9:1\n")
    (here / "nan.svm").write_text("1 1:1 2:1\n2 1:1\n1 2:nan\n")
    (here / "hollow.svm").write_text("1\n2\n")
    (here / "cut.csv.gz").write_bytes(b"\x1f\x8b\x08\x00cut")
    (here / "damaged.parquet").write_bytes(b"PAR1 and nothing more")
    (here / "table.xlsx").write_text("x")
    (here / "folder").mkdir()
    pq.write_table(
        pa.table({"text": ["a", "b"], "label": ["x", "y"], "when": pa.array([1, 2], pa.timestamp("s"))}),
        here / "typed.parquet",
    )
    pq.write_table(pa.table({"n": [1.0, float("nan")], "label": ["x", "y"]}), here / "nan.parquet")


CASES = {
    "missing file": ("absent.csv " + TEXT, ["absent.csv", "no such file"]),
    "empty pattern": ("absent*.csv " + TEXT, ["absent*.csv", "no file matches"]),
    "empty folder": ("folder " + TEXT, ["folder", "no files"]),
    "wrong column": ("good.csv --text txt --label label", ["good.csv", "'txt'", "did you mean 'text'"]),
    "wrong label": ("renamed.csv --text Text --label label", ["renamed.csv", "did you mean 'labels'"]),
    "wrong group": (f"good.csv {TEXT} --group sizes", ["'sizes'", "did you mean 'size'"]),
    "wrong keep": (f"good.csv {TEXT} --keep sizes", ["'sizes'", "did you mean 'size'"]),
    "reserved keep": (f"good.csv {TEXT} --keep label", ["'label'", "rename"]),
    "no label": ("good.csv --text text", ["good.csv", "--label"]),
    "no feature": ("good.csv --label label", ["good.csv", "--text"]),
    "label is text": ("good.csv --text text --label text", ["'text'", "label and a feature"]),
    "text twice": (f"good.csv {TEXT} --text text", ["'text'", "2 times"]),
    "text and dense": (f"good.csv {TEXT} --dense text", ["'text'", "2 times"]),
    "unknown ending": ("table.xlsx " + TEXT, ["table.xlsx", ".xlsx", "--format", "csv"]),
    "unknown format": (f"good.csv {TEXT} --format excel", ["'excel'", "csv"]),
    "mixed formats": ("good.csv broken.jsonl " + TEXT, ["good.csv", "broken.jsonl", "one format"]),
    "listed twice": ("good.csv good.csv " + TEXT, ["good.csv", "twice"]),
    "different columns": ("good.csv renamed.csv " + TEXT, ["renamed.csv", "did you mean"]),
    "ragged": ("ragged.csv " + TEXT, ["ragged.csv:8", "4 fields", "3", "quarantine"]),
    "not UTF-8": ("latin.csv " + TEXT, ["latin.csv:11", "UTF-8", "quarantine"]),
    "missing label": ("unlabelled.csv " + TEXT, ["unlabelled.csv:6", "label is missing", "quarantine"]),
    "nan": ("nan.csv --dense size --label label", ["nan.csv:6", "'size' is nan", "quarantine"]),
    "inf": ("inf.csv --dense size --label label", ["inf.csv:6", "'size' is inf"]),
    "minus inf": ("./-inf.csv --dense size --label label", ["-inf.csv:6", "'size' is -inf"]),
    "no number": (
        "many.csv --numeric size --label label",
        ["many.csv:6", "'size' is not a number: 'many'", "value-format", "--odd-as-missing COLUMN"],
    ),
    "nan in Parquet": ("nan.parquet --dense n --label label", ["nan.parquet", "row 1", "'n' is"]),
    "one class": ("one.csv " + TEXT, ["only the class 'b'", "two classes"]),
    "no rows": ("header.csv " + TEXT, ["header.csv", "no rows"]),
    "empty file": ("empty.csv " + TEXT, ["empty.csv", "empty"]),
    "no features": ("blank.csv " + TEXT, ["blank.csv", "no features", "--analyzer char"]),
    "open quote": ("quote.csv " + TEXT, ["quote.csv:2", "never closed"]),
    "column twice": ("twice.csv " + TEXT, ["twice.csv", "2 columns", "'text'"]),
    "no header": ("bare.csv " + TEXT, ["bare.csv", "no column 'text'", "name all columns with --columns"]),
    "wrong key": ("broken.jsonl --text txt --label label", ["broken.jsonl", "'txt'", "did you mean 'text'"]),
    "wrong field": (
        "nested.jsonl --text doc.bdy --label label",
        ["nested.jsonl", "did you mean 'doc.body'"],
    ),
    "wrong label key": ("broken.jsonl --text text --label lable", ["'lable'", "did you mean 'label'"]),
    "broken JSON": ("broken.jsonl " + TEXT, ["broken.jsonl:3", "quarantine"]),
    "wide svmlight": ("wide.svm --n-features 5", ["wide.svm:2", "9"]),
    "nan in svmlight": ("nan.svm", ["nan.svm:3", "nan"]),
    "no features in svmlight": ("hollow.svm --n-features 5", ["hollow.svm", "no features"]),
    "columns of svmlight": ("nan.svm --label label", ["nan.svm", "no named columns"]),
    "width of CSV": (f"good.csv {TEXT} --n-features 7", ["good.csv", "--n-features"]),
    "width 0": ("wide.svm --n-features 0", ["n_features is 0"]),
    "cut gzip": ("cut.csv.gz " + TEXT, ["cut.csv.gz"]),
    "damaged Parquet": ("damaged.parquet " + TEXT, ["damaged.parquet"]),
    "date as text": ("typed.parquet --text when --label label", ["'when'", "timestamp", "text"]),
    "date as number": ("typed.parquet --dense when --label label", ["'when'", "timestamp", "number"]),
    "hash bits 0": (f"good.csv {TEXT} --hash-bits 0", ["hash_bits 0", "1 to 30"]),
    "hash bits -3": (f"good.csv {TEXT} --hash-bits -3", ["hash_bits -3"]),
    "hash bits beyond memory": (
        f"good.csv {TEXT} --hash-bits 30 --memory 1GB",
        ["1,073,741,824", "--memory"],
    ),
    "ngrams": (f"good.csv {TEXT} --ngrams 3-1", ["(3, 1)", "not a range"]),
    "ngrams 0": (f"good.csv {TEXT} --ngrams 0-1", ["(0, 1)", "not a range"]),
    "analyzer": (f"good.csv {TEXT} --analyzer words", ["'words'", "char_wb"]),
    "weighting": (f"good.csv {TEXT} --weighting bm25", ["'bm25'", "tfidf"]),
    "dense tfidf": ("good.csv --dense size --label label --weighting tfidf", ["tfidf", "counts or l2"]),
    "shares": (f"good.csv {TEXT} --split train=0.8,test=0.1", ["0.9, not 1", "train=0.8,test=0.2"]),
    "negative share": (f"good.csv {TEXT} --split train=1.5,test=-0.5", ["'train'", "1.5"]),
    "no share": (f"good.csv {TEXT} --split train=most", ["'most'"]),
    "split named twice": (f"good.csv {TEXT} --split train=0.5,train=0.5", ["'train'", "twice"]),
    "split as a path": (f"good.csv {TEXT} --split ../x=1", ["'../x'"]),
    "memory of nothing": (f"good.csv {TEXT} --memory lots", ["'lots'", "512MB"]),
    "negative memory": (f"good.csv {TEXT} --memory=-1GB", ["-1GB", "512MB"]),
    "little memory": (f"good.csv {TEXT} --memory 1MB", ["1 MB", "at least"]),
}


@pytest.mark.parametrize("case", CASES)
def test_one_line_names_place_reason_and_cure(case, here, monkeypatch, capsys):
    write_good(here)
    write_broken(here)
    arguments, expected = CASES[case]
    status, out, err = run(monkeypatch, capsys, f"ingest {arguments} --to d.bigmc --threads 1")
    message = [line for line in err.splitlines() if line.startswith("bigmc: ")]
    assert status == 1
    assert len(message) == 1
    assert err.rstrip().endswith(message[0])
    assert "Traceback" not in err
    assert out == ""
    assert not [fragment for fragment in expected if fragment not in message[0]], message[0]
    assert "; " in message[0], "no cure"
    assert not (here / "d.bigmc" / "manifest.json").exists()


def test_two_text_columns_add_up(here, monkeypatch, capsys):
    write_good(here)
    command = f"ingest good.csv {TEXT} --text size --to d.bigmc --json"
    status, out, _ = run(monkeypatch, capsys, command)
    assert status == 0
    assert json.loads(out)["n_samples"] == 40


def test_target_is_not_a_dataset(here, monkeypatch, capsys):
    write_good(here)
    (here / "file").write_text("mine")
    (here / "folder").mkdir()
    (here / "folder" / "notes").write_text("mine")
    (here / "project" / "wip").mkdir(parents=True)  # looks like ours and is not
    (here / "project" / "wip" / "draft").write_text("mine")
    for target in ("file", "folder", "project"):
        status, _, err = run(monkeypatch, capsys, f"ingest good.csv {TEXT} --to {target}")
        assert status == 1
        assert f"{target} exists and is not a bigmc dataset; give another --to" in err
    mine = [here / "file", here / "folder" / "notes", here / "project" / "wip" / "draft"]
    assert [path.read_text() for path in mine] == ["mine"] * 3


def test_target_links_to_nothing(here, monkeypatch, capsys):
    write_good(here)
    (here / "d.bigmc").symlink_to("elsewhere")
    status, _, err = run(monkeypatch, capsys, f"ingest good.csv {TEXT} --to d.bigmc")
    assert status == 1
    assert "d.bigmc links to a folder that does not exist; make that one" in err
    (here / "elsewhere").mkdir()
    assert run(monkeypatch, capsys, f"ingest good.csv {TEXT} --to d.bigmc")[0] == 0


@pytest.mark.parametrize("target", [".", "./", "/"])
def test_target_without_a_name(target, here, monkeypatch, capsys):
    write_good(here)
    before = sorted(here.iterdir())
    status, _, err = run(monkeypatch, capsys, f"ingest good.csv {TEXT} --to {target}")
    assert status == 1
    assert err.endswith("is no name for a dataset; give the path of a new folder with --to\n")
    assert sorted(here.iterdir()) == before


def test_dataset_of_other_parameters_or_sources(here, monkeypatch, capsys):
    write_good(here)
    assert run(monkeypatch, capsys, f"ingest good.csv {TEXT} --to d.bigmc")[0] == 0
    for change, fragment in (
        ("--seed 5", "seed: it has 0, asked for 5"),
        ("--no-names", "names: it has true"),
        ("--text size", 'features.text: also asked for ["size"]'),
    ):
        status, _, err = run(monkeypatch, capsys, f"ingest good.csv {TEXT} --to d.bigmc {change}")
        assert status == 1
        assert fragment in err
    (here / "good.csv").write_text(GOOD + "more,a,1\n")
    status, _, err = run(monkeypatch, capsys, f"ingest good.csv {TEXT} --to d.bigmc")
    assert status == 1
    assert "good.csv has changed since" in err


def test_dataset_of_another_version(here, monkeypatch, capsys):
    write_good(here)
    assert run(monkeypatch, capsys, f"ingest good.csv {TEXT} --to d.bigmc")[0] == 0
    manifest = here / "d.bigmc" / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"version": 99}))
    for command in (f"ingest good.csv {TEXT} --to d.bigmc", "info d.bigmc"):
        status, _, err = run(monkeypatch, capsys, command)
        assert status == 1
        assert "format version 99" in err


def test_empty_split_is_named_when_used(here, monkeypatch, capsys):
    from bigmc.api import open_dataset
    from bigmc.errors import DataError

    write_good(here)
    command = f"ingest good.csv {TEXT} --split train=0.9999,test=0.0001 --to d.bigmc"
    assert run(monkeypatch, capsys, command)[0] == 0
    with pytest.raises(DataError, match="test"):
        open_dataset("d.bigmc")["test"]


def test_mended_input_and_suggested_option_need_no_cleaning(here, monkeypatch, capsys):
    write_broken(here)
    command = f"ingest ragged.csv {TEXT} --to d.bigmc"
    assert run(monkeypatch, capsys, command)[0] == 1
    err = run(monkeypatch, capsys, "fit d.bigmc --to m.model")[2]
    assert "d.bigmc: ingest not finished; rerun the same bigmc ingest command" in err
    assert run(monkeypatch, capsys, command + " --on-bad-row quarantine")[0] == 0
    assert run(monkeypatch, capsys, f"ingest one.csv {TEXT} --to one.bigmc")[0] == 1
    (here / "one.csv").write_text(GOOD)
    assert run(monkeypatch, capsys, f"ingest one.csv {TEXT} --to one.bigmc")[0] == 0


QUARANTINED = {
    "ragged.csv": (TEXT, 41, 6, 8, "4 fields", "too,many,fields,here"),
    "latin.csv": (TEXT, 40, 9, 11, "UTF-8", "some w"),
    "unlabelled.csv": (TEXT, 40, 4, 6, "label is missing", "words 4"),
    "nan.csv": ("--dense size --label label", 40, 4, 6, "'size' is nan", "nan"),
    "inf.csv": ("--dense size --label label", 40, 4, 6, "'size' is inf", "inf"),
    "many.csv": ("--numeric size --label label", 40, 4, 6, "'size' is not a number", "many"),
    "broken.jsonl": (TEXT, 3, 2, 3, "", "oops"),
    "nan.svm": ("", 3, 2, 3, "nan", "2:nan"),
    "nan.parquet": (None, 3, 1, 1, "'n' is", "NaN"),
}


@pytest.mark.parametrize("file", QUARANTINED)
def test_bad_rows_are_set_aside(file, here, monkeypatch, capsys):
    from bigmc.store.files.layout import read_manifest
    from bigmc.store.verify import verify

    write_broken(here)
    columns, n_rows, row, line, reason, raw = QUARANTINED[file]
    if columns is None:
        columns = "--dense n --label label"
        numbers = {"n": [1.0, float("nan"), 3.0], "label": ["x", "y", "y"]}
        pq.write_table(pa.table(numbers), here / file)
    command = f"ingest {file} {columns} --to d.bigmc --on-bad-row quarantine --split all --json"
    status, out, err = run(monkeypatch, capsys, command)
    assert status == 0, err
    assert json.loads(out)["n_samples"] == n_rows - 1
    manifest = read_manifest(here / "d.bigmc")
    assert (manifest.rows_in, manifest.rows_quarantined) == (n_rows, 1)
    [reject] = pq.read_table(here / "d.bigmc" / "rejects.parquet").to_pylist()
    assert (reject["row_id"], reject["line"]) == (row, line)
    assert reject["path"].endswith(file)
    assert reason in reject["reason"]
    assert raw in reject["raw"]
    assert verify(here / "d.bigmc") == []
    (here / "d.bigmc" / "rejects.parquet").write_bytes(b"")
    assert "rejects.parquet" in verify(here / "d.bigmc")[0]


def shell(command: list[str], here: Path, **options) -> subprocess.CompletedProcess[str]:
    root = Path(cli.__file__).parents[2]
    return subprocess.run(
        [sys.executable, "-m", "bigmc", *command],
        cwd=here,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
        **options,
    )


def many_rows(path: Path) -> None:
    words = np.random.default_rng(0).integers(0, 10**9, (20_000, 12))
    lines = (f"{' '.join(map(str, row))},{label}\n" for row, label in zip(words, itertools.cycle("ab")))
    path.write_text("text,label\n" + "".join(lines))


def test_file_size_limit_then_rerun(here):
    """A write that fails in a real process: one line, and the same command continues later."""
    many_rows(here / "many.csv")
    command = [
        "ingest",
        "many.csv",
        "--text",
        "text",
        "--label",
        "label",
        "--to",
        "d.bigmc",
        "--threads",
        "1",
    ]

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))

    failed = shell(command, here, preexec_fn=limit)
    assert failed.returncode == 1
    assert "Traceback" not in failed.stderr
    assert failed.stderr.splitlines()[-1].startswith("bigmc: a file would exceed")
    assert shell(command, here).returncode == 0


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("mount") is None, reason="needs root to mount a tmpfs")
def test_disk_full_then_rerun(here, monkeypatch, capsys):
    disk = here / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    try:
        many_rows(here / "many.csv")
        command = f"ingest many.csv {TEXT} --to disk/d.bigmc --threads 1"
        status, _, err = run(monkeypatch, capsys, command)
        assert status == 1
        assert re.search(r"no space left on the disk while writing \S*disk/d\.bigmc/\S+; free", err), err
        subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
        assert run(monkeypatch, capsys, command)[0] == 0
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)  # a child that ends may still look at it
