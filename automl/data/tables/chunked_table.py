"""A table of any size, some thousand rows at a time; rows that cannot be read are named.

A CSV is cut into blocks of whole rows (`csv_blocks.py`), and each is parsed as `table.py` parses a
file, without the rows that have too few or too many cells; or sooner (`csv_blocks.py`), where no
cell is quoted and each row has all of them.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from automl.data import cells
from automl.data.tables import csv_blocks
from automl.data.tables.csv_blocks import BLOCK_BYTES, NEWLINE, CsvBlock, CsvRowIndex, read_blocks
from automl.data.tables.table_file import TableFile

CELLS_AT_ONCE = 1_000_000
"""Of a Parquet file."""


@dataclass(frozen=True)
class UnreadRow:
    """A row that is left out, and why."""

    number: int
    reason: str
    kind: str = "line"
    """Of number: `row` of a Parquet file."""

    @property
    def where(self) -> str:
        return f"{self.kind} {self.number}"


@dataclass(frozen=True, eq=False)
class TableChunk:
    """Some rows of the table, in its order."""

    n_rows: int
    """Those that cannot be read among them."""
    frame: pd.DataFrame
    """Those that can."""
    places: npt.NDArray[np.int64]
    """Which of the chunk's rows they are."""
    unread: tuple[UnreadRow, ...]
    share: float
    """How much of the file is read by now, 0 to 1."""

    def without(self, bad: npt.NDArray[np.bool_], unread: Sequence[UnreadRow]) -> TableChunk:
        """Without some rows of the frame, which these lines name."""
        good = ~bad
        together = tuple(sorted((*self.unread, *unread), key=lambda row: row.number))
        return TableChunk(self.n_rows, self.frame[good], self.places[good], together, self.share)


@dataclass(frozen=True)
class ChunkedTable:
    """A table on disk, its header checked."""

    file: TableFile
    columns: tuple[str, ...]
    """Those that are read."""
    texts: tuple[str, ...]
    """Those of them that are kept as they were written."""
    block_bytes: int = BLOCK_BYTES
    """Of a CSV that are read at once."""

    @classmethod
    def at(
        cls, key: str, path: str, columns: Sequence[str], texts: Sequence[str] = ()
    ) -> ChunkedTable:
        """Raises ConfigError for a file that is no table, or lacks columns."""
        file = TableFile.at(key, path)
        names = file.column_names()
        wanted = tuple(dict.fromkeys((*columns, *texts)))
        unknown = [name for name in texts if name not in (*names, *columns)]
        if unknown:
            raise file.error(
                f"has no column {', '.join(unknown)} to keep; it has: {', '.join(names)}."
            )
        absent = [name for name in wanted if name not in names]
        if absent:
            raise file.error(
                f"lacks the columns {', '.join(absent)}: a model needs every column that it "
                "learned from. Cells may be empty."
            )
        return cls(file, wanted, tuple(texts))

    def chunks(
        self,
        numbers: Sequence[str],
        categories: Sequence[str] = (),
        verbatim: Sequence[str] = (),
    ) -> Iterator[TableChunk]:
        """All rows, in their order. A text that is no number in one of `numbers` makes its row
        one that cannot be read; of `categories` only the spelling counts; `verbatim`, some of
        these or others, hold codes, which stay as they are written. Raises ConfigError where the
        file is none any more."""
        with self.file.reading():
            if self.file.is_parquet:
                found = self._parquet()
            else:
                found = self._csv(numbers, categories, verbatim)
            for chunk, line_of in found:
                yield _without_texts(chunk, [n for n in numbers if n in self.columns], line_of)

    def _parquet(self) -> Iterator[tuple[TableChunk, _RowNames]]:
        import pyarrow.parquet as pq

        table = pq.ParquetFile(self.file.path)
        n_all, begin = table.metadata.num_rows, 0
        n_at_once = max(1, CELLS_AT_ONCE // len(self.columns))
        names = dict(zip(self.file.column_names(), self.file.parquet_names(), strict=True))
        for batch in table.iter_batches(n_at_once, columns=[names[c] for c in self.columns]):
            frame = batch.to_pandas(ignore_metadata=True, date_as_object=False)
            frame = frame[[names[c] for c in self.columns]]
            frame.columns = pd.Index(self.columns)
            n_rows, end = len(frame), begin + len(frame)
            chunk = TableChunk(n_rows, frame, np.arange(n_rows), (), end / max(1, n_all))
            yield chunk, _RowNames("row", np.arange(begin + 1, end + 1))
            begin = end

    def _csv(
        self, numbers: Sequence[str], categories: Sequence[str], verbatim: Sequence[str]
    ) -> Iterator[tuple[TableChunk, _RowNames]]:
        types = self._types(numbers, categories)
        separator = self.file.separator()
        names = self.file.column_names()
        size = self.file.path.stat().st_size
        n_read = 0
        for index, block in enumerate(read_blocks(self.file.path, separator, self.block_bytes)):
            n_read += block.n_bytes
            body = block.without_header() if index == 0 else block
            frame = csv_blocks.parse_plain_block(body, names, types) if types else None
            if frame is not None:
                places = np.arange(len(frame))
                chunk = TableChunk(len(frame), frame, places, (), n_read / size)
                yield chunk, _RowNames("line", body.first_line + places)
                continue
            rows, frame = self._readable(body, names, verbatim)
            unread = tuple(UnreadRow(line, why) for line, why in rows.bad)
            n_rows = len(rows.places) + len(unread)
            chunk = TableChunk(n_rows, frame, rows.places, unread, n_read / size)
            yield chunk, _RowNames("line", rows.lines)

    def _types(self, numbers: Sequence[str], categories: Sequence[str]) -> dict[str, Any]:
        """Of each column that is read, for Arrow; none where another kind of column is among them
        (dates, say, whose meaning may hang on what pandas takes them for)."""
        if not set(self.columns) <= {*numbers, *categories, *self.texts}:
            return {}
        types = dict.fromkeys(categories, csv_blocks.category_type())
        types |= dict.fromkeys(numbers, csv_blocks.number_type())
        types |= dict.fromkeys(self.texts, csv_blocks.text_type())
        return {name: types[name] for name in self.columns}

    def _readable(
        self, block: CsvBlock, names: list[str], verbatim: Sequence[str]
    ) -> tuple[CsvRowIndex, pd.DataFrame]:
        """Counted again, row by row, where pandas reads quotes otherwise. Raises ConfigError."""
        for exactly in (False, True):
            rows = block.rows(len(names), exactly=exactly)
            try:
                frame = self._parsed(rows.good, names, block.separator, verbatim)
            except pd.errors.ParserError:
                continue
            if len(frame) == len(rows.places):
                return rows, frame
        last = block.first_line + block.content.count(NEWLINE)
        raise self.file.error(
            f"is no proper CSV between the lines {block.first_line} and {last}: mend its quotes."
        )

    def _parsed(
        self, block: bytes, names: list[str], separator: str, verbatim: Sequence[str]
    ) -> pd.DataFrame:
        if not block:
            return pd.DataFrame(columns=pd.Index(self.columns))
        missing = sorted(cells.MISSING)
        return pd.read_csv(
            io.BytesIO(block),
            sep=separator,
            names=names,
            header=None,
            usecols=list(self.columns),
            dtype=dict.fromkeys((*self.texts, *verbatim), str),
            index_col=False,
            na_values={name: missing for name in self.columns if name not in self.texts},
            keep_default_na=False,
            skipinitialspace=b" " in block,  # to look costs a third of the time
            low_memory=False,
        )[list(self.columns)]


@dataclass(frozen=True, eq=False)
class _RowNames:
    """What the rows of a frame are called."""

    kind: str
    numbers: npt.NDArray[np.int64]

    def unread(self, place: int, reason: str) -> UnreadRow:
        return UnreadRow(int(self.numbers[place]), reason, self.kind)


def _without_texts(chunk: TableChunk, numbers: Sequence[str], names: _RowNames) -> TableChunk:
    """Without rows that hold a text where a number was."""
    bad: dict[int, str] = {}
    for name in numbers:
        column = chunk.frame[name]
        if column.dtype.kind in "iufbmM":
            continue
        codes, values = cells.distinct_cells(column)
        wrong = [code for code, value in enumerate(values) if cells.to_number(value) is None]
        for place in np.flatnonzero(np.isin(codes, wrong)).tolist():
            cell = repr(str(values[codes[place]])[:60])
            bad.setdefault(place, f"{name}={cell} is no number")
    if not bad:
        return chunk
    mask = np.zeros(len(chunk.frame), dtype=bool)
    mask[list(bad)] = True
    return chunk.without(mask, [names.unread(place, why) for place, why in bad.items()])
