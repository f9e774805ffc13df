"""Predict rows that arrive on standard input, one by one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any

import pyarrow as pa

from bigmc.errors import DataError
from bigmc.inference.part_predictor import PartPredictor
from bigmc.inference.samples import SCORE_BYTES, SampleReader
from bigmc.inference.writers import JsonLinesWriter, open_writer
from bigmc.model import Model
from bigmc.options.declare import values_of
from bigmc.options.inference import PredictOptions
from bigmc.options.raw import FileOptions
from bigmc.store.files.outputs import Output, OutputKind

STDIN = "-"
"""Stands for standard input as a source."""

READ_BYTES = 1 << 18
"""Bytes taken from the input at once, at most; a row that has come alone is answered alone."""

LONGEST_ROW = 4 << 20
"""A row of more bytes is refused."""


@dataclass(frozen=True)
class StreamPredictor:
    """Predicts rows as they arrive, as JSON lines: in no other format does a line alone tell a row."""

    model: Model
    options: PredictOptions
    output: Output

    def run(self, source: int = 0) -> int:
        """Predict every row of an open file, by default standard input, and return how many there were.

        `DataError` at the first row that cannot be used, by its line; or if the output is no pipe or
        device.
        """
        asked = FileOptions(**values_of(FileOptions, self.options))
        if asked not in (FileOptions(), FileOptions(format="jsonl")):
            raise DataError("standard input must be JSON lines in UTF-8", "save other formats to a file")
        if self.output.kind is not OutputKind.STREAM:
            raise DataError(
                "predictions for standard input go to standard output", "give --to - and redirect it"
            )
        if self.options.on_bad_row != "fail":
            raise DataError(
                "rows can only be set aside if predictions go to a file", "give --on-bad-row fail"
            )
        with self.output.open_stream() as file:
            return self._answer(_rows(source), file)

    def _answer(self, batches: Iterator[tuple[int, list[Mapping[str, Any]]]], file: IO[bytes]) -> int:
        kept = pa.schema([(name, pa.string()) for name in self.options.keep])
        predictor = PartPredictor(self.model, self.options, SCORE_BYTES, kept)
        reader, n_rows = SampleReader.of(self.model), 0
        with open_writer(self.output, file, predictor.schema) as writer:
            as_text = _text
            if isinstance(writer, JsonLinesWriter):  # numbers stay numbers there
                writer.json_columns, as_text = frozenset(self.options.keep), _json
            for line, rows in batches:
                for start in range(0, len(rows), reader.batch_rows):
                    some = rows[start : start + reader.batch_rows]
                    try:
                        [samples] = reader.batches(some)
                    except DataError as error:
                        where = f"standard input, rows read from line {line} on"
                        raise DataError(f"{where}: {error.message}", error.cure) from None
                    writer.write(predictor.of_rows(n_rows, samples, self._kept(some, as_text)))
                    file.flush()
                    n_rows += len(some)
        return n_rows

    def _kept(self, rows: list[Mapping[str, Any]], as_text: Callable[[Any], str | None]) -> pa.Table:
        values = {name: [as_text(row.get(name)) for row in rows] for name in self.options.keep}
        return pa.table({name: pa.array(column, pa.string()) for name, column in values.items()})


def _rows(source: int) -> Iterator[tuple[int, list[Mapping[str, Any]]]]:
    for line, lines in _lines(source):
        rows: list[Mapping[str, Any]] = []
        for number, text in enumerate(lines, line):
            if not text.strip():
                continue
            try:
                row = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise DataError(
                    f"standard input, line {number}: not JSON ({error})", "fix the line"
                ) from None
            if not isinstance(row, dict):
                raise DataError(f"standard input, line {number}: not a JSON object", "fix the line")
            rows.append(row)
        yield line, rows


def _lines(source: int) -> Iterator[tuple[int, list[bytes]]]:
    """Yield the complete lines that have come, with the number of the first, whenever there are some."""
    rest, number = b"", 1
    while True:
        piece = os.read(source, READ_BYTES)
        text = rest + piece
        if piece:
            end = text.rfind(b"\n") + 1
            text, rest = text[:end], text[end:]
            if len(rest) > LONGEST_ROW:
                raise DataError(f"standard input: line {number} is too long", "give shorter rows")
        if text:
            lines = text.splitlines(keepends=True)
            yield number, lines
            number += len(lines)
        if not piece:
            return


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
