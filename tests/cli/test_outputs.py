"""What commands write: never over an input or a file of somebody else, once, and the same after a kill."""

import csv
import errno
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from killing import child

import bigmc
from bigmc import api
from bigmc.engine import ThreadEngine
from bigmc.errors import BigmcError, BusyError
from bigmc.inference import journal, raw_input
from bigmc.store.files import disk
from bigmc.store.files.atomic import exclusive
from bigmc.store.files.outputs import Output

MINE = b"a file of the user"
PREDICT = "predict m.model in.jsonl --to"
COMMANDS = [
    PREDICT,
    "evaluate m.model d --to",
    "report m.model --to",
    "publish e.json --to",
    "train sparse d --alpha 0.3 --to",
]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a folder with a source, a dataset, a model and an evaluation."""
    folder = tmp_path_factory.mktemp("outputs")
    with open(folder / "in.jsonl", "w") as file:
        for i in range(400):
            label = "ab"[i % 2]
            row = {"id": f"row {i}", "text": f"{label * 3} word{i % 9} word{i % 5}", "label": label}
            file.write(json.dumps(row) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        api.ingest("in.jsonl", "d", text="text", label="label", keep="id", memory_limit="64MB")
        api.train("sparse", "d", "m.model", alpha=1e-2, tol=0.1, memory_limit="64MB")
        api.evaluate("m.model", "d", to="e.json")
    return folder


@pytest.fixture(autouse=True)
def inside(made, monkeypatch, tmp_path):
    monkeypatch.chdir(made)
    for leftover in set(made.iterdir()) - {made / n for n in ("in.jsonl", "d", "m.model", "e.json")}:
        disk.clear(leftover)


def state(folder: Path) -> dict[str, tuple[int, bytes]]:
    files = (file for file in folder.rglob("*") if file.is_file() and not file.is_symlink())
    return {str(file): (file.stat().st_mtime_ns, file.read_bytes()) for file in files}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("more", ["", " --overwrite"])
def test_no_input_is_overwritten(command, more, run, made):
    os.symlink("m.model", "link")
    targets = ["m.model", "./m.model", "link", "d"] if "train" not in command else ["d"]
    if "in.jsonl" in command:
        targets += ["in.jsonl", str(made / "in.jsonl")]
    if " d " in command:
        targets += ["d/manifest.json", "d/new"]
    if "publish" in command:
        targets += ["e.json"]
    before = state(made)
    for target in targets:
        status, _, err = run(f"{command} {target}{more}")
        assert status == 1, target
        assert "is an input of this command" in err or "is a folder" in err
    assert state(made) == before
    assert os.readlink("link") == "m.model"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_of_the_user_is_overwritten_only_on_request(command, run, made):
    Path("mine").write_bytes(MINE)
    os.symlink("mine", "link")
    before = state(made)
    for target in ("mine", "link"):
        status, _, err = run(f"{command} {target}")
        assert status == 1
        assert len(err.strip().splitlines()) == 1
        assert state(made) == before
    status, _, err = run(f"{command} link --overwrite")
    assert status == 0, err
    assert os.readlink("link") == "mine"
    assert Path("mine").read_bytes() != MINE


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_done_is_not_done_again(command, run, made):
    first = run(f"{command} out --json")
    assert first[0] == 0, first
    before = state(made)
    again = run(f"{command} out --json")
    assert again[0] == 0
    assert state(made) == before
    measured = ("seconds", "peak_memory_bytes", "file_bytes_read")
    said = [{k: v for k, v in json.loads(out).items() if k not in measured} for _, out, _ in (first, again)]
    assert said[0] == said[1]
    assert not [path for path in made.iterdir() if "partial" in path.name or "wip" in path.name]


def test_figures_per_class_come_back_from_the_file(tmp_path):
    with open(tmp_path / "in.csv", "w", newline="") as file:
        csv.writer(file).writerows([("x", "label"), *((i % 3 + 0.5, i % 3) for i in range(90))])
    api.ingest(tmp_path / "in.csv", tmp_path / "d", dense="x", label="label")
    api.train("sparse", tmp_path / "d", tmp_path / "m", alpha=1e-3)
    options = {"to": tmp_path / "e.json", "per_class": True, "confusion": True}
    first = api.evaluate(tmp_path / "m", tmp_path / "d", **options)
    assert api.evaluate(tmp_path / "m", tmp_path / "d", **options) == first
    with pytest.raises(BigmcError, match="not the result of the same command"):
        api.evaluate(tmp_path / "m", tmp_path / "d", to=tmp_path / "e.json")


def test_other_options_and_a_changed_source_are_other_results(run, made):
    Path("copy.jsonl").write_bytes(Path("in.jsonl").read_bytes())
    command = "predict m.model copy.jsonl --to p.parquet"
    assert run(command)[0] == 0
    assert run(command + " --scores")[0] == 1
    assert run(command + " --scores --overwrite")[0] == 0
    assert run(command)[0] == 1
    assert run(command + " --scores")[0] == 0
    with open("copy.jsonl", "a") as file:
        file.write(json.dumps({"id": "new", "text": "aaa", "label": "a"}) + "\n")
    assert run(command + " --scores")[0] == 1


def test_files_of_rows_set_aside_are_not_overwritten_either(run, made):
    Path("bad.jsonl").write_text('{"text": "aaa word1"}\n{"text": null}\n')
    Path("p.parquet.rejects.parquet").write_bytes(MINE)
    command = "predict m.model bad.jsonl --to p.parquet --on-bad-row quarantine"
    assert run(command)[0] == 1
    assert Path("p.parquet.rejects.parquet").read_bytes() == MINE
    assert run(f"{command} --overwrite")[0] == 0
    assert pq.read_table("p.parquet.rejects.parquet").num_rows == 1
    Path("bad.jsonl").write_text('{"text": "aaa word1"}\n')
    assert run(f"{command} --overwrite")[0] == 0
    assert not Path("p.parquet.rejects.parquet").exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_devices_and_pipes_are_written_into(command, run, made):
    os.mkfifo("pipe")
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(Path("pipe").read_bytes()))
    reader.start()
    status, _, err = run(f"{command} pipe")
    reader.join(30)
    assert status == 0, err
    assert Path("pipe").is_fifo()
    assert len(received[0]) > 100
    assert run(f"{command} /dev/null")[0] == 0
    assert Path("/dev/null").is_char_device()


def bigmc_process(words: str, **options) -> subprocess.CompletedProcess[bytes]:
    env = {**os.environ, "PYTHONPATH": str(Path(bigmc.__file__).parents[1])}
    return subprocess.run(
        [sys.executable, "-m", "bigmc", *words.split()], env=env, check=True, capture_output=True, **options
    )


@pytest.mark.parametrize("target", ["-", "/dev/stdout"])
def test_standard_output_gets_rows_only(target):
    out = bigmc_process(f"predict m.model in.jsonl --keep id --to {target} --json").stdout
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["id"] for row in rows] == [f"row {i}" for i in range(400)]
    assert {row["predicted_label"] for row in rows} == {"a", "b"}


@pytest.mark.parametrize("name", ["p.xlsx", "p.json", "p.TSV"])
def test_a_name_of_another_format_is_refused(name, run, made):
    code, _, said = run(f"{PREDICT} {name}")
    assert code == 1
    assert "give a name that ends with .parquet, .csv or .jsonl" in said
    assert not (made / name).exists()


def test_the_ending_chooses_the_format_and_columns_are_copied(run, made):
    for name in ("p.parquet", "p.csv", "p.jsonl"):
        assert run(f"{PREDICT} {name} --scores --keep id")[0] == 0
    table = pq.read_table("p.parquet").to_pylist()
    assert [row["id"] for row in table] == [f"row {i}" for i in range(400)]
    assert list(table[0]) == ["row_id", "id", "predicted_label", "score_a", "score_b"]
    assert pc.read_csv("p.csv").to_pylist() == table
    assert [json.loads(line) for line in Path("p.jsonl").read_text().splitlines()] == table
    assert run("predict m.model d --keep id --to stored.jsonl")[0] == 0
    stored = [json.loads(line) for line in Path("stored.jsonl").read_text().splitlines()]
    assert all(row["id"] == f"row {row['row_id']}" for row in stored)
    assert run(f"{PREDICT} q.parquet --keep nothing")[0] == 1
    assert run(f"{PREDICT} q.parquet --keep row_id")[0] == 1


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(raw_input, "SMALLEST_PART", 1 << 11)
    monkeypatch.setattr(raw_input, "LARGEST_PART", 1 << 11)
    monkeypatch.setattr(journal, "SECONDS_BETWEEN_COMMITS", 0.0)


@pytest.mark.slow
def test_predictions_killed_anywhere_continue_to_the_same_bytes(small_parts, made, tmp_path):
    name = "p.parquet"
    Path("bad.jsonl").write_text(Path("in.jsonl").read_text() + '{"text": null}\n')

    def predict(to: Path):
        options = {"scores": True, "on_bad_row": "quarantine", "engine": ThreadEngine(1)}
        return lambda: api.predict("m.model", "bad.jsonl", to / name, memory_limit="64MB", **options)

    def files(folder: Path) -> dict[str, bytes]:
        return {file.name: file.read_bytes() for file in folder.iterdir()}

    whole = tmp_path / "whole"
    whole.mkdir()
    predict(whole)()
    expected = files(whole)
    assert set(expected) == {name, f"{name}.rejects.parquet", f".{name}.receipt.json"}
    names = ("rename", "unlink", "sync")
    watch = [(disk, call) for call in names]
    parts = [(raw_input.PartPredictor, "raw")]
    counted = tmp_path / "counted"
    counted.mkdir()
    _, counts = child(predict(counted), watch + parts)
    assert counts["raw"] >= 6
    points = [
        (call, k, when)
        for call in ("rename", "unlink", "raw")  # a kill around a sync leaves what one of these does
        for k in sorted({1, counts[call] // 2, counts[call]})
        for when in ("before", "after")
        if k >= 1
    ]
    for number, point in enumerate(points):
        folder = tmp_path / str(number)
        folder.mkdir()
        status, _ = child(predict(folder), watch + parts, point)
        assert os.WIFSIGNALED(status), point
        _, again = child(predict(folder), watch + parts)
        assert files(folder) == expected, point
        if point[0] == "raw" and point[1] > 2:
            assert again.get("raw", 0) <= counts["raw"] - point[1] + 2, "finished parts were done again"


def test_one_process_at_a_time_writes_predictions(made):
    with exclusive(Path("p.parquet.wip") / "lock"), pytest.raises(BusyError):
        api.predict("m.model", "in.jsonl", "p.parquet")
    assert api.predict("m.model", "in.jsonl", "p.parquet")["n_samples"] == 400


def test_unfinished_work_of_another_is_not_removed(run, made):
    Path("p.parquet.wip").mkdir()
    Path("p.parquet.wip/notes").write_bytes(MINE)
    Path("n.model.wip").mkdir()
    Path("n.model.wip/notes").write_bytes(MINE)
    assert run(f"{PREDICT} p.parquet")[0] == 1
    assert run("train sparse d --to n.model")[0] == 1
    assert Path("p.parquet.wip/notes").read_bytes() == Path("n.model.wip/notes").read_bytes() == MINE


@pytest.mark.exhaustive
def test_the_command_and_the_function_make_the_same_path(run, made):
    assert run("path d --to p --alphas 2 --memory 64MB")[0] == 0
    api.sparse_path("d", "q", n_alphas=2, memory_limit="64MB")
    files = [{file.name: file.read_bytes() for file in Path(to).iterdir()} for to in ("p", "q")]
    assert files[0] == files[1]
    before = Path("p/path.json").stat().st_mtime_ns
    assert api.sparse_path("d", "p", n_alphas=2, memory_limit="64MB")["table"]
    assert Path("p/path.json").stat().st_mtime_ns == before


def test_a_folder_of_another_stays_beside_a_finished_training(run, made):
    train = "train sparse d --alpha 0.3 --to n.model"
    assert run(train)[0] == 0
    Path("n.model.wip").mkdir()
    Path("n.model.wip/notes").write_bytes(MINE)
    assert run(train)[0] == 0
    assert Path("n.model.wip/notes").read_bytes() == MINE


def test_predictions_interrupted_by_another_model_are_not_mixed(small_parts, made):
    """A second model finds parts of the first one: it says so, and the first one resumes."""
    api.train("sparse", "d", "n.model", alpha=0.05, tol=0.1, memory_limit="64MB")
    options = {"engine": ThreadEngine(1), "memory_limit": "64MB"}
    seen = []

    def stop(message):
        seen.append(message.done)
        if len(seen) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        api.predict("m.model", "in.jsonl", "p.parquet", progress=stop, **options)
    with pytest.raises(BigmcError, match="unfinished predictions of another model"):
        api.predict("n.model", "in.jsonl", "p.parquet", **options)
    api.predict("m.model", "in.jsonl", "p.parquet", **options)
    api.predict("m.model", "in.jsonl", "whole.parquet", **options)
    assert Path("p.parquet").read_bytes() == Path("whole.parquet").read_bytes()
    assert not Path("p.parquet.wip").exists()


@pytest.mark.parametrize("command", ["predict", "evaluate", "report", "export"])
def test_a_result_written_by_another_process_meanwhile_is_no_file_of_the_user(command, made, monkeypatch):
    """The same command ends elsewhere just after this one has looked for its result."""
    commands = {
        "predict": lambda: api.predict("m.model", "in.jsonl", "out.parquet"),
        "evaluate": lambda: api.evaluate("m.model", "d", to="out.json"),
        "report": lambda: api.report("m.model", "out.html"),
        "export": lambda: api.export("m.model", "out.md"),
    }
    others = [commands[command]]
    looks = {name: getattr(Output, name) for name in ("exists", "receipt")}

    def looking(name):
        def look(output):
            found = looks[name](output)
            if not found and others:
                others.pop()()
            return found

        return look

    for name in looks:
        monkeypatch.setattr(Output, name, looking(name))
    commands[command]()
    assert not others
    (result,) = made.glob("out.*")
    result.write_bytes(MINE)
    with pytest.raises(BigmcError, match="not the result of the same command"):
        commands[command]()
    assert result.read_bytes() == MINE


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_place_that_may_not_be_written_is_named_with_a_cure(run, monkeypatch, number):
    def refused(**_):
        raise OSError(number, os.strerror(number), "folder/m.model.wip")

    monkeypatch.setattr("bigmc.cli.program.app", refused)
    status, _, err = run("info folder")
    assert status == 1
    assert err.startswith(f"bigmc: folder/m.model.wip: {os.strerror(number)}; check the permissions")
