"""Readers, one per format, in the table `FORMATS`."""

from __future__ import annotations

from bigmc.ingestion.readers.base import Format
from bigmc.ingestion.readers.delimited import DelimitedFormat
from bigmc.ingestion.readers.jsonl import JsonLinesFormat
from bigmc.ingestion.readers.matrices import MatrixFormat
from bigmc.ingestion.readers.parquet import ParquetFormat
from bigmc.ingestion.readers.svmlight import SvmlightFormat
from bigmc.ingestion.readers.tables import TableFormat

FORMATS: dict[str, Format] = {
    "csv": DelimitedFormat(","),
    "tsv": DelimitedFormat("\t"),
    "jsonl": JsonLinesFormat(),
    "parquet": ParquetFormat(),
    "svmlight": SvmlightFormat(),
    "table": TableFormat(),
    "array": MatrixFormat(),
    "sparse": MatrixFormat(),
    "dask": MatrixFormat(),
}

ENDINGS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".svmlight": "svmlight",
    ".libsvm": "svmlight",
    ".svm": "svmlight",
}

DELIMITED = frozenset({"csv", "tsv"})
TEXT_FORMATS = DELIMITED | {"jsonl", "svmlight"}
FILE_FORMATS = TEXT_FORMATS | {"parquet"}

MATRICES = frozenset({"svmlight", "array", "sparse", "dask"})
"""Formats with features and labels, but without column names."""

__all__ = ["DELIMITED", "ENDINGS", "FILE_FORMATS", "FORMATS", "MATRICES", "TEXT_FORMATS"]
