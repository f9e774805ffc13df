"""Readers, one per format; `FORMATS` is the table of them."""

from __future__ import annotations

from bigmc.ingestion.readers.base import Reader
from bigmc.ingestion.readers.delimited import DelimitedReader
from bigmc.ingestion.readers.jsonl import JsonLinesReader
from bigmc.ingestion.readers.matrices import MatrixReader
from bigmc.ingestion.readers.parquet import ParquetReader
from bigmc.ingestion.readers.svmlight import SvmlightReader
from bigmc.ingestion.readers.tables import TableReader

FORMATS: dict[str, Reader] = {
    "csv": DelimitedReader("csv", ","),
    "tsv": DelimitedReader("tsv", "\t"),
    "jsonl": JsonLinesReader(),
    "parquet": ParquetReader(),
    "svmlight": SvmlightReader(),
    "table": TableReader(),
    "array": MatrixReader(),
    "sparse": MatrixReader(),
    "dask": MatrixReader(),
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

TEXT_FORMATS = frozenset({"csv", "tsv", "jsonl", "svmlight"})
FILE_FORMATS = TEXT_FORMATS | {"parquet"}

__all__ = ["ENDINGS", "FILE_FORMATS", "FORMATS", "TEXT_FORMATS"]
