"""What is wrong with a training, an evaluation or a prediction is said in one line with its cure."""

import json
import os
import shutil
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import scipy.sparse

from bigmc import api, cli
from bigmc.engine import ThreadEngine

TEXT = "text,label\n" + "".join(f"some words {i} of {'ab'[i % 2]},{'ab'[i % 2]}\n" for i in range(200))
OPTIONS = {"text": "text", "label": "label", "hash_bits": 10, "memory_limit": "100MB"}
TRAIN = "train sparse d.bigmc --to new.model --memory 100MB"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a folder with datasets, models and what looks like them."""
    here = tmp_path_factory.mktemp("bad")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        (here / "rows.csv").write_text(TEXT)
        (here / "renamed.csv").write_text(TEXT.replace("text,label", "texts,label", 1))
        (here / "unfinished.bigmc" / "wip").mkdir(parents=True)
        (here / "rows.svm").write_text("1 1:1\n2 2:1\n")
        api.ingest("rows.csv", "d.bigmc", **OPTIONS)
        api.ingest("rows.csv", "wide.bigmc", **{**OPTIONS, "hash_bits": 11})
        api.ingest("rows.csv", "chars.bigmc", **OPTIONS, analyzer="char")
        api.ingest("rows.csv", "counts.bigmc", **OPTIONS, weighting="counts")
        X, y = np.repeat(np.eye(2), 8, axis=0), np.repeat(["a", "b"], 8)
        api.ingest(X, "matrix.bigmc", label=y, split={"train": 0.5, "test": 0.5}, memory_limit="100MB")
        # Rows of a label stay together; with this seed the labels go to different splits.
        shares = {"train": 0.5, "test": 0.5}
        api.ingest("rows.csv", "single.bigmc", **OPTIONS, group="label", seed=0, split=shares)
        api.train("sparse", "d.bigmc", "m.model", alpha=0.01, memory_limit="100MB")
        api.train("sparse", "matrix.bigmc", "matrix.model", alpha=0.01, memory_limit="100MB")
        whole = (here / "m.model").read_bytes()
        (here / "cut.model").write_bytes(whole[: len(whole) // 2])
        (here / "flipped.model").write_bytes(whole.replace(b"\x93NUMPY", b"\x93NUMPZ", 1))
        (here / "text.model").write_text("a model, they say")
        with zipfile.ZipFile("m.model") as old, zipfile.ZipFile("future.model", "w") as new:
            header = json.loads(old.read("model.json")) | {"version": 99}
            new.writestr("model.json", json.dumps(header))
        (here / "folder").mkdir()
    return here


@pytest.fixture(autouse=True)
def here(made, monkeypatch):
    monkeypatch.chdir(made)
    yield made
    for left in made.glob("new.*"):
        shutil.rmtree(left) if left.is_dir() else left.unlink()


def run(monkeypatch, capsys, command: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["bigmc", *command.split()])
    with pytest.raises(SystemExit) as exit_:
        cli.main()
    captured = capsys.readouterr()
    return int(exit_.value.code or 0), captured.out, captured.err


CASES = {
    "no dataset": ("train sparse absent.bigmc --to new.model", ["absent.bigmc", "ingest"]),
    "unfinished": ("train sparse unfinished.bigmc --to new.model", ["unfinished.bigmc", "ingest"]),
    "unknown split": (f"{TRAIN} --split valid", ["'valid'", "train (", "test ("]),
    "one class": ("train sparse single.bigmc --to new.model", ["one class (a)", "at least 2"]),
    "loss": (f"{TRAIN} --loss log", ["'log'", "squared_hinge"]),
    "penalty": (f"{TRAIN} --penalty l3", ["'l3'", "l1/l2"]),
    "step": (f"{TRAIN} --step big", ["'big'", "line_search"]),
    "class weight": (f"{TRAIN} --class-weight even", ["'even'", "balanced"]),
    "alpha 0": (f"{TRAIN} --alpha 0", ["alpha is 0.0", "above 0"]),
    "alpha -1": (f"{TRAIN} --alpha=-1", ["alpha is -1.0"]),
    "alpha nan": (f"{TRAIN} --alpha nan", ["alpha is nan"]),
    "tol 0": (f"{TRAIN} --tol 0", ["tol is 0.0"]),
    "no start": (f"{TRAIN} --warm-start absent.model", ["absent.model", "to start from", "check the path"]),
    "no passes": (f"{TRAIN} --max-passes 0", ["max_passes is 0", "at least 1"]),
    "memory": ("train sparse d.bigmc --to new.model --memory 1MB", ["1 MB", "at least 32 MB"]),
    "target is a folder": ("train sparse d.bigmc --to folder", ["folder is a folder", "--to"]),
    "target nowhere": ("train sparse d.bigmc --to nowhere/m", ["no folder nowhere", "create it"]),
    "other parameters": (
        "train sparse d.bigmc --to m.model --alpha 0.5",
        ["m.model", "alpha: it has 0.01, asked for 0.5", "delete it"],
    ),
    "other learner": (
        "train mrc d.bigmc --to m.model",
        ['made with other parameters (learner: it has "sparse", asked for "mrc")'],
    ),
    "other dataset": ("train sparse wide.bigmc --to m.model --alpha 0.01", ["another dataset"]),
    "target is no model": ("train sparse d.bigmc --to text.model", ["text.model", "not a bigmc model"]),
    "cut model": ("evaluate cut.model d.bigmc", ["cut.model", "train again"]),
    "flipped model": (
        "predict flipped.model d.bigmc --to new.p",
        ["flipped.model", "damaged", "train again"],
    ),
    "future model": ("inspect future.model", ["future.model", "version 99", "versions 1"]),
    "no model": ("evaluate text.model d.bigmc", ["text.model", "not a bigmc model"]),
    "absent model": ("inspect absent.model", ["absent.model", "does not exist", "train"]),
    "dataset as model": ("evaluate d.bigmc d.bigmc", ["d.bigmc", "folder", "train"]),
    "other width": ("evaluate m.model wide.bigmc", ["1024 in the model and 2048 in the dataset", "ingest"]),
    "other hashing": (
        "predict m.model chars.bigmc --to new.p",
        ["analyzer is word in the model and char in the dataset"],
    ),
    "other weighting": ("evaluate m.model counts.bigmc", ["weighting is l2+idf in the model and counts"]),
    "split of evaluate": ("evaluate m.model d.bigmc --split valid", ["'valid'", "train ("]),
    "evaluate in no memory": ("evaluate m.model d.bigmc --memory 1MB", ["1 MB", "at least"]),
    "missing text": ("predict m.model renamed.csv --to new.p", ["'text'", "did you mean 'texts'"]),
    "matrix for a text model": ("predict m.model rows.svm --to new.p", ["rows.svm", "needs text"]),
    "text for a matrix model": ("predict matrix.model rows.csv --to new.p", ["rows.csv", "2 features"]),
    "split of files": ("predict m.model rows.csv --split test --to new.p", ["no splits", "--split"]),
    "predict nothing": ("predict m.model absent.csv --to new.p", ["absent.csv", "no such file"]),
    "predict to a folder": ("predict m.model rows.csv --to folder", ["folder is a folder"]),
    "predict to nowhere": ("predict m.model rows.csv --to nowhere/p", ["no folder nowhere"]),
    "info of nothing": ("info absent", ["nothing at absent"]),
}


@pytest.mark.parametrize("case", CASES)
def test_one_line_names_place_reason_and_cure(case, here, monkeypatch, capsys):
    command, expected = CASES[case]
    status, out, err = run(monkeypatch, capsys, command)
    lines = [line for line in err.splitlines() if line]
    assert status == 1
    assert out == ""
    assert len(lines) == 1
    assert lines[0].startswith("bigmc: ")
    assert not [fragment for fragment in expected if fragment not in lines[0]], lines[0]
    assert "; " in lines[0], "no cure"
    assert not (here / "new.model").exists()
    assert not (here / "new.p").exists()


def test_a_mended_command_needs_no_cleaning(here, monkeypatch, capsys):
    assert run(monkeypatch, capsys, f"{TRAIN} --alpha 0")[0] == 1
    assert run(monkeypatch, capsys, f"{TRAIN} --split valid")[0] == 1
    assert run(monkeypatch, capsys, TRAIN)[0] == 0
    assert run(monkeypatch, capsys, "verify new.model")[0] == 0


def test_unfinished_training_of_other_parameters(here, monkeypatch, capsys):
    from bigmc.store.files.checkpoint import FileCheckpoint

    class StoppedError(Exception):
        pass

    def stop(self, meta, arrays):
        save(self, meta, arrays)
        raise StoppedError

    save = FileCheckpoint.save
    with monkeypatch.context() as patch:
        patch.setattr(FileCheckpoint, "save", stop)
        with pytest.raises(StoppedError):
            api.train("sparse", "d.bigmc", "new.model", alpha=1e-4, memory_limit="100MB")
    status, _, err = run(monkeypatch, capsys, f"{TRAIN} --alpha 0.3")
    assert status == 1
    assert "alpha: it has 0.0001, asked for 0.3" in err
    assert "delete new.model.wip" in err
    checkpoint = here / "new.model.wip" / "checkpoint.npz"
    whole = checkpoint.read_bytes()
    checkpoint.write_bytes(whole[:-20])
    status, _, err = run(monkeypatch, capsys, f"{TRAIN} --alpha 1e-4")
    assert status == 1
    assert "checkpoint" in err
    assert "delete it to start over" in err
    checkpoint.write_bytes(whole)
    assert run(monkeypatch, capsys, f"{TRAIN} --alpha 1e-4")[0] == 0


def test_a_damaged_shard_is_named_while_training(here, monkeypatch, capsys):
    shutil.copytree("d.bigmc", "new.bigmc")
    train = api.open_dataset("new.bigmc")["train"].shards[0].entry.name
    chunk = here / "new.bigmc" / "shards" / train / "x" / "data" / "c" / "0"
    content = bytearray(chunk.read_bytes())
    content[len(content) // 2] ^= 1
    chunk.write_bytes(content)
    status, _, err = run(monkeypatch, capsys, TRAIN.replace("d.bigmc", "new.bigmc"))
    assert status == 1
    assert f"{train}/x/data/c/0" in err
    assert "run bigmc verify" in err
    status, out, _ = run(monkeypatch, capsys, "verify new.bigmc")
    assert status == 1
    assert f"{train}/x/data/c/0" in out


def test_memory_that_does_not_do_names_what_does(here, monkeypatch, capsys):
    X, y = scipy.sparse.eye(1800, 1 << 21, format="csr"), np.arange(1800) // 2
    api.ingest(X, "new.bigmc", label=y, split={"train": 1.0}, memory_limit="200MB", engine=ThreadEngine(1))
    command = "train sparse new.bigmc --to new.model --alpha 10 --max-passes 1 --memory "
    status, _, err = run(monkeypatch, capsys, command + "32MB")
    assert status == 1
    assert "entries and norms per feature" in err
    assert "more than the limit of 32 MB; give --memory" in err
    assert "alpha" not in err
    status, _, err = run(monkeypatch, capsys, "train sparse new.bigmc --to new.model --memory 64MB")
    assert status == 1
    assert "MB or more, select features with an alpha, or ingest into fewer features (--hash-bits)" in err


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("mount") is None, reason="needs root to mount a tmpfs")
def test_disk_full_then_rerun(here, monkeypatch, capsys):
    disk = here / "new.disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", str(disk)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        train = TRAIN.replace("new.model", "new.disk/m")
        status, _, err = run(monkeypatch, capsys, train)
        assert status == 1
        assert "bigmc: no space left on the disk while writing new.disk/" in err
        assert "Traceback" not in err
        subprocess.run(["mount", "-o", "remount,size=8m", disk], check=True)
        assert run(monkeypatch, capsys, train)[0] == 0
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_values_too_large_are_named_and_leave_no_work(here):
    values = np.random.default_rng(0).normal(size=(200, 2)) * [1.0, 1e300]
    lines = [f"{a!r},{b!r},{'yn'[a < 0]}" for a, b in values.tolist()]
    (here / "huge.csv").write_text("\n".join(["small,huge,y", *lines]))
    api.ingest("huge.csv", "new.bigmc", label="y", dense=["small", "huge"], memory_limit="100MB")
    options = {"loss": "huber_hinge", "alpha": 0.1, "memory_limit": "100MB"}
    with pytest.raises(ValueError, match="not finite; look for huge or non-finite values in") as told:
        api.train("sparse", "new.bigmc", "new.model", **options)
    assert "'huge'" in str(told.value) or "the data" in str(told.value)
    assert not list(here.glob("new.model*"))
