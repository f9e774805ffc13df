"""`bigmc fit` on files as people have them: rows that cannot be used are refused, or counted."""

import json
import random

import pyarrow.parquet as pq

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


def test_fit_names_objects_among_the_columns_that_it_leaves_out(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [{"n": i, "doc": {"body": "word"}, "team": "ab"[i % 2]} for i in range(40)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    status, out, err = run("fit t.jsonl --to m --label team --memory 500MB --time 1s")
    assert status == 0, err
    assert "bytes, times of day, row numbers, random ids, or no values): doc\n" in out
    assert "--text doc.FIELD" in out
