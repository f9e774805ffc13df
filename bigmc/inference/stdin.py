"""Predict rows that arrive on standard input, one by one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any, NamedTuple

import pyarrow as pa

from bigmc.errors import DataError
from bigmc.inference.part_predictor import PartPredictor
from bigmc.inference.samples import SCORE_BYTES, SampleReader
from bigmc.inference.writers import JsonLinesWriter, open_writer
from bigmc.model import Model
from bigmc.options.declare import values_of
from bigmc.options.inference import PredictOptions
from bigmc.options.raw import FileOptions
from bigmc.printable import printable_json
from bigmc.store.files.outputs import Output, OutputKind
from bigmc.store.shards.csr import Rows

READ_BYTES = 1 << 18
"""Maximum bytes read at once; a row that arrives alone is answered at once."""

LONGEST_ROW = 4 << 20
"""A row of more bytes is refused."""


class _Row(NamedTuple):
    """A JSON object, and the number of its line."""

    line: int
    values: Mapping[str, Any]


@dataclass(frozen=True)
class StreamPredictor:
    """Predicts JSON lines as they arrive: in other formats a line alone may be less than a row."""

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

    def _answer(self, batches: Iterator[list[_Row]], file: IO[bytes]) -> int:
        kept = pa.schema([(name, pa.string()) for name in self.options.keep])
        predictor = PartPredictor(self.model, self.options, SCORE_BYTES, kept)
        reader, n_rows = SampleReader.of(self.model), 0
        with open_writer(self.output, file, predictor.schema) as writer:
            as_text = _text
            if isinstance(writer, JsonLinesWriter):  # numbers stay numbers there
                writer.json_columns, as_text = frozenset(self.options.keep), _json
            for rows in batches:
                for start in range(0, len(rows), reader.batch_rows):
                    for some, samples in _samples(reader, rows[start : start + reader.batch_rows]):
                        kept = self._kept([row.values for row in some], as_text)
                        writer.write(predictor.of_rows(n_rows, samples, kept))
                        file.flush()
                        n_rows += len(some)
        return n_rows

    def _kept(self, rows: list[Mapping[str, Any]], as_text: Callable[[Any], str | None]) -> pa.Table:
        values = {name: [as_text(row.get(name)) for row in rows] for name in self.options.keep}
        return pa.table({name: pa.array(column, pa.string()) for name, column in values.items()})


def _samples(reader: SampleReader, rows: list[_Row]) -> Iterator[tuple[list[_Row], Rows]]:
    """Yield rows with their features: all together, or each alone up to one that cannot be used."""
    try:
        [samples] = reader.batches([row.values for row in rows])
    except DataError as error:
        if len(rows) == 1:
            raise DataError(f"standard input, line {rows[0].line}: {error.message}", error.cure) from None
        for row in rows:
            yield from _samples(reader, [row])
    else:
        yield rows, samples


def _rows(source: int) -> Iterator[list[_Row]]:
    """Yield rows as they arrive; `DataError` at one that is no JSON object, after those before it."""
    for line, lines in _lines(source):
        rows: list[_Row] = []
        for number, text in enumerate(lines, line):
            if not text.strip():
                continue
            try:
                row, problem = json.loads(text), "not a JSON object"
            except (ValueError, RecursionError) as error:
                row, problem = None, f"not JSON ({error})"
            if not isinstance(row, dict):
                yield rows
                raise DataError(f"standard input, line {number}: {problem}", "fix the line")
            rows.append(_Row(number, row))
        yield rows


def _lines(source: int) -> Iterator[tuple[int, list[bytes]]]:
    """Yield complete lines as they arrive, with the number of the first."""
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
    # lone surrogates, which are valid in JSON and in no encoding, stay escapes
    return printable_json(json.dumps(value, ensure_ascii=False))
