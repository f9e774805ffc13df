"""`bigmc fit` on tables of some hundred to some thousand rows, beside LightGBM and a random forest.

    python bench/tables.py sonar vowel --folder bench/data
    python bench/tables.py --table

Five random splits of each table, three tenths of the rows to test on, of more than 3,000 rows a fifth. Every
method gets the same rows and is processes of its own from the Parquet table to the probabilities of the rows
to test on, which the same code judges; every process has one thread. LightGBM has its defaults; the forest
has 500 trees, and else those of scikit-learn. Categories are columns of 0 and 1 for them. Tables of
R's packages (`tables_of_r.py`), some of which have texts, are for `bigmc fit` alone. Some tables are made,
with labels that are partly wrong (`wrong_labels.py`) or change at sharp values (`sharp_values.py`). What
`bigmc fit` does by default was chosen on `CHOSEN_ON`; the other tables judge. One JSON line a run, kept in
``results/tables.jsonl``; runs that are there are not repeated.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import sharp_values
import wrong_labels
from data import KEEL, keel
from first_choice import judged_table, timed
from first_choice_peers import judged
from first_choice_sets import HERE
from tables_of_r import TABLES, prepared, table_of

CHOSEN_ON = ("vehicle", "ionosphere", "pima", "wine", "wdbc", "satimage", "twonorm")
SMALLER = {"letter": 5_000, "magic": 5_000, "twonorm": 2_000, "optdigits": 3_000}
MADE = {name: module.made for module in (wrong_labels, sharp_values) for name in module.NAMES}
OF_R, TO_TEST_ON = 10_000, 0.6
"""Rows that are kept of larger tables, drawn once; of tables of R's packages this many, and this share of
them is to test on."""
OURS, LIGHTGBM, FOREST = "bigmc fit", "LightGBM", "random forest"
METHODS = (OURS, LIGHTGBM, FOREST)
LIMIT = 1800
"""CPU seconds of one process."""


def sides(name: str, seed: int, folder: Path) -> tuple[Path, Path]:
    """Write the two sides of a split and return their paths."""
    paths = tuple(folder / "tables" / f"{name}-{seed}-{side}.parquet" for side in ("train", "test"))
    if not all(path.exists() for path in paths):
        from sklearn.model_selection import train_test_split

        if name in TABLES:
            package, label = TABLES[name]
            table, most = prepared(table_of(package, name), label), OF_R
        elif name in MADE:
            table = MADE[name](name)
            most = len(table)
        else:
            table = pd.read_csv(keel(folder) / f"{name}.csv", dtype={"label": str})
            most = SMALLER.get(name, len(table))
        table = table.sample(min(len(table), most), random_state=0)
        share = TO_TEST_ON if name in TABLES else 0.3 if len(table) <= 3_000 else 0.2
        halves = train_test_split(table, test_size=share, random_state=seed, stratify=table["label"])
        paths[0].parent.mkdir(parents=True, exist_ok=True)
        for path, half in zip(paths, halves, strict=True):
            half.to_parquet(path, index=False)
    return paths[0], paths[1]


def run_ours(train: Path, test: Path) -> dict[str, Any]:
    """Run the commands of bigmc and judge the probabilities that they wrote."""
    with tempfile.TemporaryDirectory(dir=train.parent) as scratch:
        model, said = str(Path(scratch) / "m.model"), str(Path(scratch) / "p.parquet")
        fit, printed = timed(
            [sys.executable, "-m", "bigmc", "fit", str(train), "--to", model, "--label", "label", "--json"],
            LIMIT,
        )
        predict = ["predict", model, str(test), "--to", said, "--proba"]
        then, _ = timed([sys.executable, "-m", "bigmc", *predict], LIMIT)
        found = json.loads(printed)
        return {
            "seconds": fit["seconds"] + then["seconds"],
            "cpu_seconds": fit["cpu_seconds"] + then["cpu_seconds"],
            "settings": f"{found['learner']}: {found['settings']}",
            "model_bytes": Path(model).stat().st_size,
            **judged_table(pq.read_table(said), pq.read_table(test).column("label").to_pylist()),
        }


def run_peer(method: str, train: Path, test: Path) -> dict[str, Any]:
    """Run a peer in a process of its own."""
    spent, said = timed([sys.executable, __file__, "--peer", method, str(train), str(test)], LIMIT)
    return {"seconds": spent["seconds"], "cpu_seconds": spent["cpu_seconds"], **json.loads(said)}


def peer(method: str, train: Path, test: Path) -> dict[str, float]:
    """Train a peer and judge it, in this process."""
    rows, others = pd.read_parquet(train), pd.read_parquet(test)
    X = pd.get_dummies(pd.concat([rows, others]).drop(columns="label"), dtype=float).to_numpy()
    if method == LIGHTGBM:
        from lightgbm import LGBMClassifier

        model = LGBMClassifier(n_jobs=1, verbose=-1)
    else:
        from sklearn.ensemble import RandomForestClassifier

        model = RandomForestClassifier(500, n_jobs=1, random_state=0)
    model.fit(X[: len(rows)], rows["label"])
    probability = model.predict_proba(X[len(rows) :])
    said = model.classes_[probability.argmax(axis=1)]
    return judged(list(others["label"]), said, probability, model.classes_)


def shown(results: Path) -> None:
    """Print means over splits that all have run on, and how far `bigmc fit` is from LightGBM, ± one SE."""
    runs = pd.DataFrame(map(json.loads, results.read_text().splitlines()))
    runs = runs.drop_duplicates(["set", "seed", "method"], keep="last").set_index(["set", "seed", "method"])
    columns = ("table", *METHODS, "fit − LightGBM", "log loss of the three", "CPU s", "wall s")
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    figures = ["accuracy", "log_loss", "cpu_seconds", "seconds"]
    for name in sorted(runs.index.unique("set"), key=lambda name: (name in CHOSEN_ON, name)):
        wide = runs.loc[name][figures].unstack("method").dropna()
        if not set(METHODS) <= set(wide.columns.get_level_values("method")):
            continue
        right, loss = (wide[figure][list(METHODS)] for figure in ("accuracy", "log_loss"))
        ahead = right[OURS] - right[LIGHTGBM]
        error = ahead.std() / np.sqrt(len(ahead))
        cells = (
            f"{name}{' (chosen on)' if name in CHOSEN_ON else ''}",
            *(f"{right[method].mean():.4f}" for method in METHODS),
            f"{ahead.mean():+.4f} ± {error:.4f}",
            " / ".join(f"{loss[method].mean():.3f}" for method in METHODS),
            " / ".join(f"{wide['cpu_seconds'][method].mean():.1f}" for method in METHODS),
            " / ".join(f"{wide['seconds'][method].mean():.1f}" for method in METHODS),
        )
        print(f"| {' | '.join(cells)} |")


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("sets", nargs="*", metavar="TABLE", help=f"of {', '.join([*KEEL, *TABLES, *MADE])}")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--again", action="store_true", help="repeat runs that are in the results")
    parser.add_argument("--folder", type=Path, default=HERE / "data")
    parser.add_argument("--results", type=Path, default=HERE / "results" / "tables.jsonl")
    parser.add_argument("--table", action="store_true", help="print the table of the runs there are")
    parser.add_argument("--peer", nargs=3, metavar=("METHOD", "TRAIN", "TEST"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.peer:
        print(json.dumps(peer(given.peer[0], Path(given.peer[1]), Path(given.peer[2]))))
        return
    if unknown := set(given.sets) - {*KEEL, *TABLES, *MADE}:
        parser.error(f"no such table: {', '.join(sorted(unknown))}")
    given.results.parent.mkdir(parents=True, exist_ok=True)
    lines = given.results.read_text().splitlines() if given.results.exists() else []
    done = {(run["set"], run["seed"], run["method"]) for run in map(json.loads, lines)}
    for name in given.sets:
        for seed in range(given.splits):
            train, test = sides(name, seed, given.folder.resolve())
            for method in given.methods:
                if (name, seed, method) in done and not given.again:
                    continue
                figures = run_ours(train, test) if method == OURS else run_peer(method, train, test)
                line = json.dumps({"set": name, "seed": seed, "method": method, **figures})
                print(line, flush=True)
                with given.results.open("a") as file:
                    file.write(f"{line}\n")
    if given.table:
        shown(given.results)


if __name__ == "__main__":
    main()
