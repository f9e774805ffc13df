"""Labels and file names of users must not steer the terminal."""

import csv
import io
import json
import unicodedata

import pyarrow as pa
import pytest

from bigmc import api
from bigmc.cli.terminal import show_features
from bigmc.inference.writers import JsonLinesWriter
from bigmc.printable import printable, printable_json

HOSTILE = "\x1b[31mred\x07\u202eabc\x9b\x7f"
TEXTS = [HOSTILE, "plain", "é ñ 漢字 😀", "\ud800", "\U000e0001", "a\nb\tc"]


def steers(text: str) -> bool:
    """Return whether the text has a control, format, surrogate or unassigned character beside line breaks."""
    return any(unicodedata.category(char)[0] == "C" and char != "\n" for char in text)


@pytest.mark.parametrize("text", TEXTS)
def test_escaped_text_is_harmless_and_keeps_what_was_readable(text):
    assert not steers(printable(text))
    assert steers(text) or printable(text) == text
    packed = printable_json(json.dumps(text, ensure_ascii=False))
    assert not steers(packed)
    assert json.loads(packed) == text
    packed.encode()


def test_predictions_as_json_lines_are_harmless_and_the_same():
    table = pa.table(
        {"row_id": range(len(TEXTS) - 1), "predicted_label": [t for t in TEXTS if t != "\ud800"]}
    )
    file = io.BytesIO()
    with JsonLinesWriter(file, table.schema) as writer:
        writer.write(table)
    written = file.getvalue().decode()
    assert not steers(written)
    assert [json.loads(line) for line in written.splitlines()] == table.to_pylist()


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """Return a folder with a dataset and a model that have a hostile label."""
    folder = tmp_path_factory.mktemp("hostile")
    with open(folder / "in.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        writer.writerows(
            (f"{word}{HOSTILE}w {word}{i % 7}", word) for i in range(30) for word in (HOSTILE, "b")
        )
    api.ingest(folder / "in.csv", folder / "d", text="text", label="label", memory_limit="64MB")
    api.train("sparse", folder / "d", folder / "m", alpha=1e-3, tol=0.1, memory_limit="64MB")
    return folder


@pytest.mark.parametrize(
    "command",
    [
        "info m", "info d", "inspect m", f"explain m {HOSTILE}",
        "evaluate m d --per-class --confusion", "verify d",
        f"info {HOSTILE}", f"verify {HOSTILE}", f"evaluate m {HOSTILE}", f"evaluate m d --split {HOSTILE}",
        f"predict m d --to {HOSTILE}/x.parquet",
    ],
)  # fmt: skip
@pytest.mark.parametrize("more", ["", " --json"])
def test_nothing_a_command_says_steers_the_terminal(command, more, hostile, run, monkeypatch):
    monkeypatch.chdir(hostile)
    _, out, err = run(command + more)
    assert not steers(out + err)
    if any(name in command for name in ("info m", "inspect", "explain")):
        assert "\\x1b" in out or "\\u001b" in out


def test_a_label_of_several_lines_heads_its_features_on_one(capsys):
    show_features(
        {"n_nonzero_features": 0, "n_features": 4, "classes": [{"label": "one\ntwo", "features": []}]}
    )
    assert capsys.readouterr().out.splitlines() == ["0 of 4 features have weight", "", "one\\ntwo"]
