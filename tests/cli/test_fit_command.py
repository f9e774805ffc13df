"""`bigmc fit` on files as people have them: rows that cannot be used are refused, or counted."""

import json
import random

import pyarrow.parquet as pq
import pytest

from bigmc.cli.terminal import show_fit
from bigmc.model import load_model

TEAMS = {"billing": "invoice refund card price", "shipping": "parcel box courier address"}
MISSING = (7, 100, 101)


def tickets(path):
    rng = random.Random(0)
    lines = ["message,team"]
    for row in range(300):
        team = rng.choice([*TEAMS])
        words = " ".join(rng.choices(TEAMS[team].split(), k=3))
        lines.append(f"{words},{'' if row in MISSING else 'NA' if row == 5 else team}")
    path.write_text("\n".join(lines) + "\n")


def test_rows_without_a_label_are_set_aside_on_request(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tickets(tmp_path / "tickets.csv")
    command = "fit tickets.csv --to m --text message --label team --memory 500MB --time 1s"
    status, _, err = run(command)
    assert status == 1
    assert "tickets.csv:9: the label is missing" in err
    assert "--on-bad-row quarantine" in err

    status, out, err = run(f"{command} --on-bad-row quarantine")
    assert status == 0, err
    assert "3 invalid rows were set aside" in out
    assert "'NA'" in err
    rejects = pq.read_table("m.dataset/rejects.parquet")
    assert rejects["row_id"].to_pylist() == list(MISSING)
    status, out, _ = run("info m.dataset --json")
    assert status == 0
    info = json.loads(out)
    assert (info["n_samples"], info["n_quarantined"]) == (297, 3)


@pytest.mark.exhaustive
def test_one_row_set_aside_is_a_row(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tickets(tmp_path / "tickets.csv")
    lines = (tmp_path / "tickets.csv").read_text().splitlines()
    (tmp_path / "tickets.csv").write_text("\n".join(lines[:60]) + "\n")
    options = "--text message --label team --memory 500MB --time 1s --on-bad-row quarantine"
    status, out, err = run(f"fit tickets.csv --to m {options}")
    assert status == 0, err
    assert "1 invalid row was set aside" in out


def test_a_report_that_could_not_be_written_stops_fit_before_the_work(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tickets(tmp_path / "tickets.csv")
    (tmp_path / "other.html").write_text("<p>of another model")
    command = "fit tickets.csv --to m --text message --label team --memory 500MB --time 1s"
    for report, reason in [
        ("absent/m.html", "there is no folder absent"),
        ("other.html", "give another --report"),
    ]:
        status, _, err = run(f"{command} --report {report}")
        assert status == 1
        assert reason in err
        assert [path.name for path in sorted(tmp_path.iterdir())] == ["other.html", "tickets.csv"]


def test_the_report_of_a_fit_shows_what_it_measured_on_held_out_rows(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tickets(tmp_path / "tickets.csv")
    options = "--on-bad-row quarantine --memory 500MB --time 1s --report m.html"
    command = f"fit tickets.csv --to m --text message --label team {options}"
    status, out, err = run(f"{command} --json")
    assert status == 0, err
    found, page = json.loads(out), (tmp_path / "m.html").read_text()
    evaluation, (low, high) = page[page.index("<h2>Evaluation</h2>") :], found["test"]["interval"]
    for label, *values in (
        ("samples", found["test"]["n_samples"]),
        ("accuracy", found["test"]["accuracy"]),
        ("accuracy, 95 % interval", low, high),
        ("accuracy of always answering the largest class", found["baselines"]["largest_class"]),
        ("log loss", found["test"]["log_loss"]),
    ):
        shown = evaluation[evaluation.index(f">{label}</th>") :].split("</tr>")[0]
        assert all(f'value="{value!r}"' in shown for value in values), label
    refitted = load_model(tmp_path / "m").params["split"] == "all"
    assert ("which had not seen these samples" in page) == refitted
    assert run(command)[0] == 0
    assert (tmp_path / "m.html").read_text() == page


def test_fit_names_objects_among_the_columns_that_it_leaves_out(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [{"n": i, "doc": {"body": "word"}, "team": "ab"[i % 2]} for i in range(40)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    status, out, err = run("fit t.jsonl --to m --label team --memory 500MB --time 1s")
    assert status == 0, err
    assert "bytes, times of day, row numbers, ids, or no values): doc\n" in out
    assert "--text doc.FIELD" in out


def test_fit_says_what_is_certified_or_that_nothing_is(run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tickets(tmp_path / "tickets.csv")
    command = "fit tickets.csv --to m --text message --label team --memory 500MB --on-bad-row quarantine"
    status, out, err = run(f"{command} --json")
    assert status == 0, err
    result = json.loads(out)
    gap = (result["objective"] - result["certificate"]["lower"]) / result["objective"]
    early = "nothing is certified: training ended before it had a useful bound of its optimum; "
    for certificate, more, line in [
        (result["certificate"], {}, f"certified: the training objective is within {gap:.1e} of its optimum"),
        ({"gap": 1.0}, {"time_limit": 5.0}, f"{early}more --time, with --overwrite, may give one"),
        ({"gap": None}, {}, f"{early}bigmc train sparse --max-passes may give one"),
        ({"gap": None}, {"learner": "sum"}, "nothing is certified: a sum of models has no bound"),
    ]:
        show_fit({**result, "certificate": certificate, **more})
        shown = capsys.readouterr().out.splitlines()
        assert [text for text in shown if text.startswith(line)] == [s for s in shown if "certified" in s]
        assert any(text.startswith(line) for text in shown)


def test_fit_says_that_nothing_is_certified_of_trees(run, tmp_path, monkeypatch, few_rounds_of_boosting):
    monkeypatch.chdir(tmp_path)
    rng = random.Random(0)
    numbers = [rng.random() for _ in range(300)]
    rows = (f"{x},{'in' if 0.3 < x < 0.7 else 'out'}\n" for x in numbers)
    (tmp_path / "t.csv").write_text("x,y\n" + "".join(rows))
    status, out, err = run("fit t.csv --to m --dense x --label y --memory 500MB")
    assert status == 0, err
    assert "nothing is certified: no bound is known of how much better other trees could be" in out
