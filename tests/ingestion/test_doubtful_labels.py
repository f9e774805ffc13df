"""Labels that may not have been meant are told, and stay classes of their own."""

import numpy as np
import pytest
from click.testing import CliRunner

from bigmc.api import open_dataset
from bigmc.cli.program import app
from bigmc.ingestion.columns.doubtful_labels import doubts_about_labels


def test_usual_labels_are_not_doubted():
    for classes in ["a", "b", "Straße"], [1, 2, 3], [0.5, -1.0], [True, False], []:
        assert doubts_about_labels(np.array(classes)) == []
    assert doubts_about_labels(np.array(["name", "nano", "nullable"])) == []


def test_texts_of_one_number_or_date_are_doubted_together():
    classes = np.array(["1", "1.0", "1e0", "01", "2", "a", "2024-01-31", "2024-01-31 00:00:00"])
    (doubt,) = doubts_about_labels(classes)
    assert doubt == (
        "'1', '1.0', '1e0', '2024-01-31', '2024-01-31 00:00:00' are the same number or date, and classes of "
        "their own"
    )
    assert "case or spaces" in "".join(doubts_about_labels(np.array(["true", "True"])))
    assert len(doubts_about_labels(np.array(["true", "True"]))) == 1


@pytest.mark.parametrize(("separator", "shown"), [("|", "'|'"), ("; ", "';'"), (",", ",")])
def test_labels_whose_parts_recur_may_be_sets(separator, shown):
    sets = [("art", "law"), ("law", "art", "war"), ("war", "art"), ("law",), ("war", "law")]
    (doubt,) = doubts_about_labels(np.array([separator.join(names) for names in sets]))
    assert doubt.endswith(
        f"look like several labels each; if they are, --label-separator {shown} makes sets of them"
    )


def test_labels_whose_parts_do_not_recur_are_no_sets():
    towns = ["Bari, Italy", "Lyon, France", "Rome, Italy", "Paris, France", "Bonn, Germany"]
    ranges = ["[0,10)", "[10,20)", "[20,30)", "[30,40)", "[40,50)"]
    for classes in towns, ranges, ["a|b", "b|a", "a"]:
        assert doubts_about_labels(np.array(classes)) == []


def test_the_command_tells_them_and_keeps_them(tmp_path):
    labels = ["NA", "null", "a ", "a", "B", "b", "c"]
    rows = "".join(f'w{i} x,"{label}"\n' for i, label in enumerate(labels * 9))
    (tmp_path / "a.csv").write_text(f"t,y\n{rows}")
    arguments = [
        "ingest",
        str(tmp_path / "a.csv"),
        "--to",
        str(tmp_path / "d.bigmc"),
        "--text",
        "t",
        "--label",
        "y",
    ]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    said = " ".join(result.output.split())
    assert "'NA', 'null' counts as a label: leave such rows out if it stands for none" in said
    assert "differ in case or spaces only" in said
    assert "the spaces of 'a ' are part of the label" in said
    assert sorted(open_dataset(tmp_path / "d.bigmc").classes.tolist()) == sorted(labels)
