"""What every command can be told: to be quiet, to log JSON, to write metrics; options from elsewhere."""

import json
import math
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import click
import pyarrow.parquet as pq
import pytest

import bigmc
from bigmc import api, cli
from bigmc.cli.screen import Course, Screen
from bigmc.progress import Progress
from bigmc.store.dataset import Dataset

ENV = {**os.environ, "PYTHONPATH": str(Path(bigmc.__file__).parents[1])}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("settings")
    with open(folder / "in.jsonl", "w") as file:
        for i in range(300):
            label = "ab"[i % 2]
            file.write(json.dumps({"id": i, "text": f"{label * 3} word{i % 9}", "label": label}) + "\n")
    api.ingest(folder / "in.jsonl", folder / "d", text="text", label="label", memory_limit="64MB")
    api.train("sparse", folder / "d", folder / "m", alpha=1e-2, tol=0.1, memory_limit="64MB")
    return folder


@pytest.fixture(autouse=True)
def inside(made, monkeypatch):
    monkeypatch.chdir(made)
    for name in list(os.environ):
        if name.startswith("BIGMC_"):
            monkeypatch.delenv(name)


def test_a_log_of_json_has_an_event_a_line(run, tmp_path):
    status, out, err = run(f"train sparse d --to {tmp_path / 'n'} --alpha 1e-2 --log json")
    assert status == 0
    events = [json.loads(line) for line in err.splitlines()]
    assert [events[0]["event"], events[-1]["event"]] == ["start", "end"]
    assert {event["command"] for event in events} == {"train sparse"}
    for event in events:
        assert event["memory_bytes"] > 0
        assert event["seconds"] >= 0
    steps = [event for event in events if event["event"] == "progress"]
    assert steps
    assert {"step", "done", "unit", "gap", "tol"} <= steps[-1].keys()
    assert out


def test_an_error_is_an_event_too(run):
    status, _, err = run("train sparse d --to n --split nothing --log json")
    assert status == 1
    events = [json.loads(line) for line in err.splitlines()]
    assert [event["event"] for event in events] == ["start", "error"]
    assert "nothing" in events[-1]["message"]


def test_quiet_says_nothing_but_results_and_errors(run, tmp_path):
    status, out, err = run(f"train sparse d --to {tmp_path / 'n'} --alpha 1e-2 --max-passes 1 --tol 1e-9 -q")
    assert (status, err) == (0, "")
    assert "objective" in out
    status, _, err = run("evaluate m d --split nothing --quiet")
    assert status == 1
    assert err.startswith("bigmc: ")


def test_metrics_are_openmetrics_text(run, tmp_path):
    file = tmp_path / "bigmc.prom"
    assert run(f"train sparse d --to {tmp_path / 'n'} --alpha 1e-2 --metrics {file}")[0] == 0
    lines = file.read_text().splitlines()
    assert lines[-1] == "# EOF"
    values = {}
    for line in lines[:-1]:
        if not line.startswith("# TYPE "):
            name, value = line.rsplit(" ", 1)
            values[name] = float(value)
    assert values['bigmc_run_succeeded{command="train sparse"}'] == 1
    assert values['bigmc_gap{command="train sparse"}'] >= 0
    assert values['bigmc_run_peak_memory_bytes{command="train sparse"}'] > 1e6


EVERY_COMMAND = {
    "demo": "--to demo",
    "fit": "in.jsonl --to fitted --text text --label label --time 1s",
    "ingest": "in.jsonl --to ingested --text text --label label",
    "train": "sparse d --to trained --alpha 1e-2",
    "path": "d --to path --alphas 2",
    "evaluate": "m d --to m.json",
    "predict": "m in.jsonl --to predicted",
    "inspect": "m",
    "explain": "m aaa",
    "report": "m --to m.html",
    "export": "m --to m.md",
    "publish": "m.json --to published",
    "info": "m",
    "verify": "m",
    "warm": "",
}


@pytest.mark.exhaustive(keep=4)
@pytest.mark.parametrize("command", EVERY_COMMAND)
def test_every_command_writes_metrics_and_a_log(command, run, made, monkeypatch, tmp_path):
    for slow in ("bigmc.api.warm", "bigmc.cli.demo.run"):
        monkeypatch.setattr(slow, lambda *_, **__: {})
    api.evaluate("m", "d", to="m.json", overwrite=True)
    asked = [command, *EVERY_COMMAND[command].split()]
    status, _, err = run([*asked, "--metrics", tmp_path / "figures", "--log", "json"])
    events = [json.loads(line)["event"] for line in err.splitlines()]
    assert (status, events[0], events[-1]) == (0, "start", "end")
    name = " ".join(asked[: 2 if command == "train" else 1])
    assert f'bigmc_run_succeeded{{command="{name}"}} 1.0' in (tmp_path / "figures").read_text()


def test_these_are_all_commands():
    assert sorted(EVERY_COMMAND) == sorted(cli.app.list_commands(click.Context(cli.app)))


def test_metrics_say_that_a_damaged_model_was_found(run, made, tmp_path):
    damaged = bytearray((made / "m").read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (tmp_path / "damaged").write_bytes(damaged)
    for file in ("first", "again"):
        asked = f"verify {tmp_path / 'damaged'} --metrics {tmp_path / file}"
        status, out, err = run(asked + " --log json" * (file == "again"))
        assert status == 1
        assert "damaged" in out
        assert 'bigmc_run_succeeded{command="verify"} 0.0' in (tmp_path / file).read_text()
    assert [json.loads(line)["event"] for line in err.splitlines()] == ["start", "error"]


@pytest.mark.parametrize("link", [shutil.copy, os.link, os.symlink])
@pytest.mark.parametrize("other", ["in.jsonl", "m", "d/manifest.json"])
def test_metrics_replace_no_other_file(run, made, other, link, tmp_path):
    before = (made / other).read_bytes()
    link(made / other, tmp_path / "figures")
    status, _, err = run(f"predict m in.jsonl --to {tmp_path / 'p'} --metrics {tmp_path / 'figures'}")
    assert (status, "not a metrics file" in err) == (1, True)
    assert (made / other).read_bytes() == (tmp_path / "figures").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["figures"]


def test_metrics_of_a_folder_that_is_missing_are_refused_first_and_by_their_name(run, tmp_path):
    status, _, err = run(f"predict m in.jsonl --to {tmp_path / 'p'} --metrics {tmp_path / 'no' / 'figures'}")
    assert (status, "create it, or give another --metrics" in err) == (1, True)
    assert not (tmp_path / "p").exists()


def test_metrics_replace_those_of_before_and_not_the_result(run, tmp_path):
    file, to = tmp_path / "figures", tmp_path / "p.parquet"
    file.write_bytes(b"")
    command = f"predict m in.jsonl --to {to} --metrics"
    for _ in range(2):
        assert run(f"{command} {file}")[0] == 0
        assert file.read_text().endswith("# EOF\n")
    to.unlink()
    assert run(f"{command} {to}")[0] == 1
    assert pq.read_table(to).num_rows == 300


def test_metrics_are_written_into_a_pipe(run, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit((tmp_path / "pipe").read_text)
        assert run(f"predict m in.jsonl --to {tmp_path / 'p'} --metrics {tmp_path / 'pipe'}")[0] == 0
        assert read.result().endswith("# EOF\n")
    assert (tmp_path / "pipe").is_fifo()


def limit_of(run, command: str, to: Path) -> int:
    status, out, err = run(f"{command} train sparse d --to {to} --alpha 1e-2 --json")
    assert status == 0, err
    return json.loads(out)["memory_limit_bytes"]


def test_options_come_from_the_line_the_environment_and_a_file_in_this_order(run, monkeypatch, tmp_path):
    config = tmp_path / "bigmc.toml"
    config.write_text("memory = '70MB'\nquiet = true\n[train.sparse]\nmax_passes = 7\ntol = 1e-9\n")
    assert limit_of(run, f"--config {config}", tmp_path / "1") == 70_000_000
    monkeypatch.setenv("BIGMC_MEMORY", "80MB")
    assert limit_of(run, f"--config {config}", tmp_path / "2") == 80_000_000
    status, out, _ = run(f"--config {config} train sparse d --to {tmp_path / '3'} --memory 90MB --json")
    assert status == 0
    assert json.loads(out)["memory_limit_bytes"] == 90_000_000
    monkeypatch.setenv("BIGMC_CONFIG", str(config))
    monkeypatch.setenv("BIGMC_PREDICT_SCORES", "1")
    assert run(f"predict m in.jsonl --to {tmp_path / 'p.jsonl'}")[2] == ""
    assert "score_a" in json.loads((tmp_path / "p.jsonl").read_text().splitlines()[0])
    assert api.load_model(tmp_path / "3").model_.params["max_passes"] == 7


def test_one_text_of_a_file_is_one_value_of_an_option_that_may_be_repeated(run, tmp_path):
    (tmp_path / "in.csv").write_text("text,label\n" + "one two,a\nthree four,b\n" * 9)
    config = tmp_path / "bigmc.toml"
    for number, text in enumerate(('"text"', '["text"]')):
        config.write_text(f"[ingest]\ntext = {text}\nlabel = 'label'\nhash_bits = 10\n")
        to = tmp_path / f"d{number}"
        status, _, err = run(f"--config {config} ingest {tmp_path / 'in.csv'} --to {to}")
        assert status == 0, err
        assert Dataset.open(to).features["text"] == ["text"]


def test_workers_are_those_of_the_first_place_that_names_any(run, monkeypatch, tmp_path):
    """Threads set for a machine are in no conflict with a scheduler on the line, nor the reverse."""
    config = tmp_path / "bigmc.toml"
    config.write_text("threads = 1\n")
    monkeypatch.setenv("BIGMC_THREADS", "1")
    assert "no scheduler file" in run("evaluate m d --scheduler-file s.json")[2]
    monkeypatch.delenv("BIGMC_THREADS")
    monkeypatch.setenv("BIGMC_SCHEDULER_FILE", "s.json")
    assert "no scheduler file" in run(f"--config {config} evaluate m d")[2]
    assert run("evaluate m d --threads 1")[0] == 0
    status, _, err = run("evaluate m d --threads 1 --scheduler-file s.json")
    assert (status, "give only one of" in err) == (2, True)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("memory = ", "is not TOML"),
        ("memery = '1GB'", "no command has an option 'memery'"),
        ("[predict]\nscore = true", "bigmc predict has no option 'score'"),
        ("[preduct]\nscores = true", "there is no command 'preduct'"),
        ("[train]\nalpah = 1", "no command of bigmc train has an option 'alpah'"),
        ("[train.sparse]\nalpah = 1", "bigmc train sparse has no option 'alpah'"),
        ("[info]\nquiet = [true]", "quiet of bigmc info is a list; give one value"),
        ("[predict]\nkeep = [['id']]", "keep of bigmc predict has a list or table in it"),
        ("threads = 2.7", "threads of bigmc fit: '2.7' is not a valid integer range; change its value"),
        ("threads = true", "'true' is not a valid integer range"),
        ("quiet = 2", "'2' is not a valid boolean"),
        ("[train.sparse]\nalpha = 'q'", "alpha of bigmc train sparse: 'q' is neither a number nor auto"),
    ],
)
def test_a_wrong_file_of_options_is_refused(text, reason, run, tmp_path):
    config = tmp_path / "bigmc.toml"
    config.write_text(text)
    status, _, err = run(f"--config {config} evaluate m d")
    assert status == 1
    assert err.startswith(f"bigmc: {config}")
    assert reason in err


def test_a_value_in_a_file_is_what_the_same_text_is_on_the_command_line(run, tmp_path):
    config = tmp_path / "bigmc.toml"
    config.write_text("quiet = 1\n[evaluate]\nthreads = '1'\nper-class = false\n[train]\nmax_passes = 3\n")
    status, out, err = run(f"--config {config} evaluate m d --json")
    assert (status, err) == (0, "")
    assert "per_class" not in json.loads(out)


def test_the_rest_of_a_training_is_estimated_from_the_gap():
    course = Course(started=0.0)
    for passes in range(1, 11):
        gap, tol = 10.0**-passes, 1e-10
        share = course.share(Progress("train", passes, 1000, "passes", {"gap": gap, "tol": tol}))
        assert share == pytest.approx((passes - 1) / 9, abs=2e-3)  # or that of the passes
    assert course.seconds_left(0.25, now=10.0) == pytest.approx(30.0)
    assert course.seconds_left(0.25, now=0.0) is None  # no time has passed yet
    assert Course(0.0).share(Progress("x", 3, 4, "rows")) == 0.75
    assert Course(0.0).share(Progress("x", 3, 4, "rows", {"gap": math.inf, "tol": 0.1})) == 0.75


def test_a_stage_that_comes_again_is_estimated_anew(monkeypatch, capsys):
    clock = iter([0.0, 0.0, 10.0, 100.0, 110.0])
    own = SimpleNamespace(monotonic=lambda: next(clock))  # other threads ask the real one
    monkeypatch.setattr("bigmc.cli.screen.time", own)
    screen = Screen()
    for done in (0, 5, 0, 5):
        screen.update(Progress("round", done, 10, "chunks"))
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if "5/10" in line] == 2 * [next(line for line in lines if "5/10" in line)]


def test_rows_from_standard_input_are_answered_as_they_come(made):
    words = [sys.executable, "-m", "bigmc", "predict", "m", "-", "--to", "-", "--keep", "id", "-q"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(words, env=ENV, cwd=made, **pipes)
    ids = ["row 0", "half a pair \ud800", {"day": [1, 2.5], "n": 17}, None]
    for number, label in enumerate("abba"):
        row = {"id": ids[number], "text": f"{label * 3} word{number}"}
        process.stdin.write(json.dumps(row).encode() + b"\n")
        process.stdin.flush()
        answer = json.loads(process.stdout.readline())
        assert answer == {"row_id": number, "id": ids[number], "predicted_label": label}
    process.stdin.write(b'{"text": "aaa"}\n\n{"text": "bbb"}\n{"id": 1}\n{"text": "aaa"}\n')  # in one piece
    out, err = process.communicate()
    assert process.returncode == 1
    assert [json.loads(line)["predicted_label"] for line in out.splitlines()] == ["a", "b"]
    assert b"line 8: sample 0 has no 'text'" in err


def test_many_rows_from_standard_input_are_those_of_the_file(made, tmp_path):
    words = [sys.executable, "-m", "bigmc", "predict", "m", "-", "--to", "-", "--scores", "-q"]
    with open(made / "in.jsonl") as source:
        done = subprocess.run(words, env=ENV, cwd=made, stdin=source, capture_output=True, check=True)
    api.predict(made / "m", made / "in.jsonl", tmp_path / "p.jsonl", scores=True)
    assert done.stdout == (tmp_path / "p.jsonl").read_bytes()
    refused = subprocess.run(
        [*words[:5], "-", "--to", "out.parquet"], env=ENV, cwd=made, capture_output=True, check=False
    )
    assert refused.returncode == 1
    assert b"give --to -" in refused.stderr


def test_progress_lines_write_figures_for_people(capsys):
    screen = Screen()
    screen.update(Progress("ingest", 9, 9, "rows", {"rows/s": 344213.4, "MB/s": 5.4521}))
    screen.update(Progress("scan", 7, 7, "bytes"))
    screen.update(Progress("train", 1, 1, "passes", {"gap": 0.0123456, "lower": -math.inf, "n_nonzero": 512}))
    assert capsys.readouterr().err.splitlines() == [
        "ingest: 9/9 rows, 344,213 rows/s  5.452 MB/s",
        "scan: 7/7 bytes",
        "train: 1/1 passes, gap 0.01235  lower -inf  n_nonzero 512",
    ]
