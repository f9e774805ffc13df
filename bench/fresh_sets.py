"""Sets of `fit_survey.py` that were drawn after those of `later_sets.py`; the hash of a name tells the half.

Tables of R's packages, shapes that are made (counts, levels in order, categories of many values, repeated
rows with other labels, curves, dates), functions of Python's packages by their texts and numbers, and short
texts.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from package_sets import as_texts, folder_of
from sklearn import datasets
from survey_sets import Table

OF_R = {
    "leaves": Table("modeldata", "leaf_id_flavia", "species"),
    "speech": Table("modeldata", "pd_speech", "class"),
    "grades": Table("modeldata", "lending_club", "sub_grade", ("int_rate",)),
    "tuna": Table("Ecdat", "Tuna", "Tuna.choice", ("Tuna.id",)),
    "headaches": Table("carData", "KosteckiDillon", "headache"),
    "counties": Table("ggplot2", "midwest", "state", ("PID",)),
    "guards": Table("openintro", "nba_players_19", "position", ("team_abbr",)),
    "rocks": Table("heplots", "Oslo", "litho", ("site",)),
    "cormorants": Table("vcdExtra", "Cormorants", "nest"),
    "representatives": Table("Stat2Data", "InsuranceVote", "Party", ("Rep", "Dem")),
    "schooling": Table("ISLR", "Wage", "education", ("logwage",)),
    "queens": Table("dragracer", "rpdr_contep", "outcome"),
    "healthy": Table("Ecdat", "DoctorContacts", "health"),
    "titanic-people": Table("vcdExtra", "Titanicp", "survived"),
    "computers": Table("Ecdat", "Computers", "premium"),
    "kakadu": Table("Ecdat", "Kakadu", "answer"),
    "yogurt": Table("Ecdat", "Yogurt", "choice"),
    "mathematicians": Table("Ecdat", "Mathlevel", "mathlevel"),
    "intensive-care": Table("vcdExtra", "ICU", "died"),
    "pancreas": Table("medicaldata", "indo_rct", "outcome", ("id",)),
    "canadians": Table("sem", "CNES", "MBSA2"),
    "divisions": Table("openintro", "mlb_teams", "division_winner"),
    "crashes": Table("vcdExtra", "AirCrash", "Cause"),
    "quinidine": Table("nlme", "Quinidine", "Race", ("Subject",)),
    "punctual": Table("Stat2Data", "Airlines", "OnTime"),
    "immunised": Table("mlmRev", "guImmun", "immun", ("kid",)),
    "dollars": Table("DAAG", "spam7", "yesno"),
    "salaries": Table("openintro", "blizzard_salary", "performance_rating"),
    "professors": Table("openintro", "evals", "rank", ("course_id",)),
    "infarctions": Table("DAAG", "mifem", "outcome"),
    "german-schools": Table("AER", "GSOEP9402", "school"),
}


def _table(X: np.ndarray, y: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])]).assign(
        label=[f"c{code:02d}" for code in y]
    )


def _counts() -> pd.DataFrame:
    """Counts of 300 things, most of them zero; each class prefers some."""
    generator = np.random.default_rng(41)
    y = generator.integers(0, 6, 2_000)
    rates = generator.gamma(0.3, 0.4, 300) * generator.choice([1.0, 2.5], (6, 300), p=[0.85, 0.15])
    return _table(generator.poisson(rates[y] * generator.gamma(2.0, 0.5, (2_000, 1))), y)


def _levels() -> pd.DataFrame:
    """Seven levels in order, of a smooth score with noise; some columns have few values."""
    generator = np.random.default_rng(42)
    X = generator.standard_normal((1_500, 12))
    X[:, 6:] = X[:, 6:].round()
    score = X[:, 0] + 0.7 * X[:, 1] + np.abs(X[:, 2]) + 0.5 * X[:, 6] * (X[:, 7] > 0)
    score += 0.6 * generator.standard_normal(1_500)
    return _table(X, np.digitize(score, np.quantile(score, [0.05, 0.2, 0.4, 0.7, 0.85, 0.95])))


def _suppliers() -> pd.DataFrame:
    """Categories of 800 and of 150 values, a few numbers, and some that are missing."""
    generator = np.random.default_rng(43)
    n = 6_000
    supplier, town = generator.zipf(1.3, n) % 800, generator.integers(0, 150, n)
    of_supplier, of_town = generator.standard_normal((800, 3)), generator.standard_normal((150, 3))
    price, weight = generator.lognormal(2.0, 1.0, n).round(2), generator.gamma(2.0, 3.0, n).round(1)
    chances = of_supplier[supplier] + 0.8 * of_town[town] + generator.gumbel(size=(n, 3))
    chances[:, 0] += np.where(price > 12, 1.5, 0.0) * (weight < 5)
    table = pd.DataFrame({"supplier": [f"s{code:03d}" for code in supplier], "town": [f"t{t}" for t in town]})
    table["price"] = np.where(generator.random(n) < 0.15, np.nan, price)
    return table.assign(weight=weight, label=np.array(["late", "early", "on time"])[chances.argmax(1)])


def _roll() -> pd.DataFrame:
    """A rolled-up surface in bands, turned in space, beside columns that tell nothing."""
    generator = np.random.default_rng(44)
    X, t = datasets.make_swiss_roll(2_500, noise=0.4, random_state=44)
    turned = X @ np.linalg.qr(generator.standard_normal((3, 3)))[0]
    y = np.digitize(t, np.quantile(t, np.arange(1, 8) / 8))
    return _table(np.hstack([turned, generator.standard_normal((2_500, 5))]), y)


def _thirty() -> pd.DataFrame:
    """Thirty classes of fifteen rows."""
    generator = np.random.default_rng(45)
    y = np.arange(450) % 30
    return _table(2.2 * generator.standard_normal((30, 10))[y] + generator.standard_normal((450, 10)), y)


def _repeated() -> pd.DataFrame:
    """Rows that occur several times, not always with the same label."""
    generator = np.random.default_rng(46)
    X = generator.standard_normal((500, 6)).round(1)
    of_row = generator.integers(0, 500, 2_500)
    chance = 1 / (1 + np.exp(-2 * (X[:, 0] + X[:, 1] * X[:, 2])))
    return _table(X[of_row], (generator.random(2_500) < chance[of_row]).astype(int))


def _curves() -> pd.DataFrame:
    """Smooth curves at 1,200 places; a small bump at one of four places makes the class."""
    generator = np.random.default_rng(47)
    places, y = np.linspace(0, 1, 1_200), generator.integers(0, 4, 160)
    waves = generator.standard_normal((160, 12)) @ np.cos(np.pi * np.arange(12)[:, None] * places)
    centres = np.array([0.2, 0.4, 0.6, 0.8])[y] + 0.01 * generator.standard_normal(160)
    bumps = 1.5 * np.exp(-(((places - centres[:, None]) / 0.015) ** 2))
    return _table((waves + bumps + 0.2 * generator.standard_normal((160, 1_200))).astype(np.float32), y)


def _visits() -> pd.DataFrame:
    """Dates in two columns and the days between them, seasons, a category; one in twenty is of the class."""
    generator = np.random.default_rng(48)
    n = 5_000
    first = pd.Timestamp("2022-01-01") + pd.to_timedelta(generator.integers(0, 1_000, n), "D")
    later = first + pd.to_timedelta(generator.integers(1, 200, n), "D")
    ward = generator.choice(list("ABCDEF"), n)
    days = (later - first).days.to_numpy()
    score = 0.02 * days + 1.2 * np.isin(first.month, (12, 1, 2)) + (ward == "C") + generator.logistic(size=n)
    table = pd.DataFrame({"first": first.strftime("%d.%m.%Y"), "later": later.strftime("%d.%m.%Y")})
    table = table.assign(ward=ward, age=generator.integers(18, 95, n))
    return table.assign(label=np.where(score > np.quantile(score, 0.95), "back", "well"))


def _exponents() -> pd.DataFrame:
    """Friedman's third function of four columns, in quarters, with columns of heavy tails beside them."""
    generator = np.random.default_rng(49)
    X, value = datasets.make_friedman3(1_200, noise=0.1, random_state=49)
    y = np.digitize(value, np.quantile(value, [0.25, 0.5, 0.75]))
    return _table(np.hstack([X, generator.standard_t(1.5, (1_200, 8))]), y)


PACKAGES = ("sklearn", "scipy", "pandas", "dask", "statsmodels", "numpy", "pyarrow", "sphinx")


def _nodes(package: str) -> Iterator[tuple[Path, ast.AST]]:
    """Yield what the files of a package define, beside the file."""
    for file in sorted(folder_of(package).rglob("*.py")):
        text = file.read_text(errors="replace")
        if len(text) < 400_000:
            for node in ast.walk(ast.parse(text)):
                yield file, node


def _callables() -> pd.DataFrame:
    """Name, docstring, numbers and decorator of a function → the package it is of."""
    rows = []
    for package in PACKAGES:
        for file, node in _nodes(package):
            if not isinstance(node, ast.FunctionDef) or "tests" in file.parts or not ast.get_docstring(node):
                continue
            called = node.decorator_list[0] if node.decorator_list else None
            rows.append(
                {
                    "name": node.name.replace("_", " "),
                    "says": str(ast.get_docstring(node)).partition("\n\n")[0].replace(package, "")[:300],
                    "decorator": ast.unparse(called).partition("(")[0] if called else None,
                    "arguments": len(node.args.args),
                    "keywords": len(node.args.kwonlyargs),
                    "lines": (node.end_lineno or node.lineno) - node.lineno,
                    "annotated": node.returns is not None,
                    "label": package,
                }
            )
    return pd.DataFrame(rows).drop_duplicates(["name", "says"]).reset_index(drop=True)


FRESH_MADE: dict[str, Callable[[], pd.DataFrame]] = {
    "counts": _counts,
    "levels": _levels,
    "suppliers": _suppliers,
    "roll": _roll,
    "thirty": _thirty,
    "repeated": _repeated,
    "curves": _curves,
    "visits": _visits,
    "exponents": _exponents,
    "callables": _callables,
}
"""Tables of generators, and of the functions of installed packages."""


def _tests() -> pd.DataFrame:
    """Name of a function that tests → the package that it tests."""
    rows = []
    for package in ("sklearn", "scipy", "pandas", "dask", "numpy", "distributed"):
        for _, node in _nodes(package):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                rows.append((node.name.removeprefix("test_").replace("_", " "), package))
    return as_texts(rows)


def _territories() -> pd.DataFrame:
    """Name of a country → the language it is in, of 36."""
    from babel import Locale

    languages = (
        "af az bs ca cs cy da de es et eu fi fr ga gl hr hu id is it lt lv ms mt nb nl pl pt ro sk sl sq "
    )
    rows = []
    for language in (languages + "sv sw tr vi").split():
        rows += [(name, language) for code, name in Locale(language).territories.items() if len(code) == 2]
    return as_texts(rows)


def _parameters() -> pd.DataFrame:
    """Description of a parameter → its type, of those with 100 descriptions."""
    found = re.compile(r"^ {4,}(\w+) : ([\w-]+)[^\n]*\n((?: {8,}[^\n]+\n)+)", re.M)
    rows = []
    for package in ("sklearn", "scipy", "pandas", "numpy", "statsmodels"):
        for file in sorted(folder_of(package).rglob("*.py")):
            for _, kind, text in found.findall(file.read_text(errors="replace")):
                rows.append((" ".join(text.split()), kind.lower()))
    table = as_texts([row for row in rows if len(row[0]) > 20])
    return table[table["label"].map(table["label"].value_counts()) >= 100].reset_index(drop=True)


FRESH_TEXTS: dict[str, Callable[[], pd.DataFrame]] = {
    "test-names": _tests,
    "territories": _territories,
    "parameters": _parameters,
}
"""Texts, by name."""

FRESH: dict[str, Table | str] = {
    **OF_R,
    **{name: Table("made", name, "label") for name in FRESH_MADE},
    **{name: name for name in FRESH_TEXTS},
    "manuals-it": "manpages-it",
}
"""All of these."""
