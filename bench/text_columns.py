"""`bigmc fit` on tables of several text columns: words shared, told apart by column, and as it chooses.

    python bench/text_columns.py section functions

Beside it, scikit-learn: tf-idf of every column and LinearSVC. Prints accuracy, log loss and CPU seconds on
the quarter of the groups (source packages, files) that no method has seen. The packages are those of the
local apt, the functions those of the Python that runs this.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import re
import resource
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))  # bigmc need not be installed

TEST_SHARE, MOST_ROWS, FEWEST_OF_A_CLASS = 0.25, 25_000, 20
EVERYWHERE = {"libc6", "libgcc-s1", "libstdc++6", "perl", "python3"}
"""Packages that nearly all others need."""
FLAGS = {"shared": ["--no-words-by-column"], "by column": ["--words-by-column"], "chosen": []}


def _packages() -> pd.DataFrame:
    """Return name, summary, section, source and needed packages of every package that apt knows."""
    found = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True, check=True).stdout
    rows = [dict(re.findall(r"^([A-Z][\w-]*): (.*)$", stanza, re.M)) for stanza in found.split("\n\n")]
    table = pd.DataFrame([row for row in rows if "Description" in row]).drop_duplicates("Package").fillna("")
    table["source"] = table["Source"].where(table["Source"] != "", table["Package"]).str.split(" ").str[0]
    table["section"] = table["Section"].str.rpartition("/")[2]
    table["name"] = table["Package"].str.replace("-", " ")
    table["needs"] = table["Depends"].str.replace(r"\([^)]*\)", "", regex=True)
    return table.rename(columns={"Description": "summary"})


def _section() -> pd.DataFrame:
    """Name and summary of a package → its section."""
    return _packages().rename(columns={"section": "label", "source": "group"})[
        ["name", "summary", "label", "group"]
    ]


def _needs() -> pd.DataFrame:
    """What a package needs, and its summary → its section."""
    return _packages().rename(columns={"section": "label", "source": "group"})[
        ["needs", "summary", "label", "group"]
    ]


def _direction() -> pd.DataFrame:
    """Summaries of two packages → which of them needs the other."""
    table = _packages()
    summaries = dict(zip(table["Package"], table["summary"], strict=True))
    known = summaries.keys() - EVERYWHERE
    random = np.random.default_rng(1)
    rows = []
    for package, needs, source in table[["Package", "needs", "source"]].itertuples(index=False):
        others = [name for name in re.split(r"[,|\s]+", needs) if name in known]
        if others:
            pair, first = (summaries[package], summaries[random.choice(others)]), random.random() < 0.5
            rows.append((*pair, "first", source) if first else (*pair[::-1], "second", source))
    return pd.DataFrame(rows, columns=["one", "other", "label", "group"])


def _functions() -> pd.DataFrame:
    """Name and docstring of a function or class → the package that it is from, of those with 150 or more."""
    paths, rows = sysconfig.get_paths(), []
    for root in {paths["stdlib"], paths["purelib"]}:
        for file in sorted(Path(root).rglob("*.py")):
            place = file.relative_to(root).parts
            if "test" not in str(file) and "site-packages" not in place:
                rows += [(*found, place[0], str(file)) for found in _documented(file)]
    table = pd.DataFrame(rows, columns=["name", "doc", "label", "group"])
    return table[table["label"].map(table["label"].value_counts()) >= 150]


def _documented(file: Path) -> Iterator[tuple[str, str]]:
    try:
        tree = ast.parse(file.read_text())
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            text = ast.get_docstring(node)
            if text and len(text) > 20:
                yield node.name.replace("_", " "), text[:600]


def _opposite() -> pd.DataFrame:
    """Twenty words speak for a class in the title and against it in the body; a tenth of the rows errs."""
    random = np.random.default_rng(0)
    words = np.array([f"word{k}" for k in range(400)])
    rows = []
    for row in range(4_000):
        label = int(random.integers(2))
        own, against = random.integers(0, 10, 2) + 10 * np.array([label, 1 - label])
        title, body = (" ".join(words[[k, *random.integers(20, 400, 12)]]) for k in (own, against))
        rows.append((title, body, f"class {label ^ (random.random() < 0.1)}", str(row)))
    return pd.DataFrame(rows, columns=["title", "body", "label", "group"])


SETS: dict[str, Callable[[], pd.DataFrame]] = {
    "section": _section,
    "functions": _functions,
    "needs": _needs,
    "direction": _direction,
    "opposite": _opposite,
}


def split(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the training and test rows of a table, by whole groups, without the groups."""
    table = table[table["label"].map(table["label"].value_counts()) >= FEWEST_OF_A_CLASS]
    table = table.drop_duplicates(table.columns[:3].tolist())
    places = {name: hashlib.sha1(name.encode()).hexdigest() for name in table["group"].unique()}
    table = table.assign(group=table["group"].map(places)).sort_values("group", kind="stable")[:MOST_ROWS]
    first = table["group"] <= table["group"].iloc[int(TEST_SHARE * len(table))]
    parts = (table[~first], table[first])
    train, test = (part.drop(columns="group").sample(frac=1.0, random_state=0) for part in parts)
    return train, test


def fitted(folder: Path, columns: list[str], flags: list[str]) -> str:
    """Return the figures of `bigmc fit`, in a process of its own."""
    command = [sys.executable, "-m", "bigmc"]
    model, given = folder / "model", [part for name in columns for part in ("--text", name)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    asked = [*command, "fit", folder / "train.parquet", "--to", model, "--label", "label", *given, *flags]
    subprocess.run([*asked, "--quiet", "--json"], check=True, stdout=subprocess.DEVNULL)
    seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    measured = [*command, "evaluate", model, folder / "test.parquet", "--quiet", "--json"]
    figures = json.loads(subprocess.run(measured, check=True, capture_output=True).stdout)
    return f"{figures['accuracy']:.4f} | {figures['log_loss']:.4f} | {seconds:.1f}"


def vectorized(train: pd.DataFrame, test: pd.DataFrame, columns: list[str]) -> str:
    """Return the figures of a vectorizer for every column and LinearSVC."""
    from sklearn.compose import make_column_transformer
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import LinearSVC

    before = time.process_time()
    vectorizers = [(TfidfVectorizer(sublinear_tf=True), name) for name in columns]
    model = make_pipeline(make_column_transformer(*vectorizers), LinearSVC()).fit(train, train["label"])
    accuracy = model.score(test, test["label"])
    return f"{accuracy:.4f} | – | {time.process_time() - before:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("sets", nargs="+", choices=SETS)
    for name in parser.parse_args().sets:
        train, test = split(SETS[name]())
        columns = [column for column in train.columns if column != "label"]
        for way, flags in FLAGS.items():
            with tempfile.TemporaryDirectory() as scratch:
                folder = Path(scratch)
                train.to_parquet(folder / "train.parquet", index=False)
                test.to_parquet(folder / "test.parquet", index=False)
                print(f"| {name} | words {way} | {fitted(folder, columns, flags)} |", flush=True)
        print(f"| {name} | LinearSVC | {vectorized(train, test, columns)} |", flush=True)


if __name__ == "__main__":
    main()
