"""A table of any size, read some thousand rows at a time; rows that cannot be read are named.

A CSV is cut into blocks of whole rows (`csv_blocks.py`). Arrow parses a block in which no cell is
quoted and each row has all cells. pandas parses the others as `table_file.py` does, without rows
that have too few or too many cells.
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
"""Number of cells of a Parquet file that are read at once."""


@dataclass(frozen=True)
class UnreadRow:
    """A row that cannot be read and is left out, with the reason."""

    number: int
    reason: str
    kind: str = "line"
    """The meaning of `number`: a `line` of a CSV, or a `row` of a Parquet file."""

    @property
    def where(self) -> str:
        return f"{self.kind} {self.number}"


@dataclass(frozen=True, eq=False)
class TableChunk:
    """Consecutive rows of the table, in its order."""

    n_rows: int
    """Number of rows in the chunk, unreadable ones included."""
    frame: pd.DataFrame
    """The readable rows of the chunk."""
    places: npt.NDArray[np.int64]
    """Places in the chunk, from 0, of the readable rows."""
    unread: tuple[UnreadRow, ...]
    share: float
    """Share of the file that is read so far, 0 to 1."""

    def drop_rows(self, bad: npt.NDArray[np.bool_], unread: Sequence[UnreadRow]) -> TableChunk:
        """Return the chunk without the `bad` rows of its frame, which `unread` names."""
        good = ~bad
        all_unread = tuple(sorted((*self.unread, *unread), key=lambda row: row.number))
        return TableChunk(self.n_rows, self.frame[good], self.places[good], all_unread, self.share)


@dataclass(frozen=True)
class ChunkedTable:
    """A table on disk whose header is checked, to be read in chunks."""

    file: TableFile
    columns: tuple[str, ...]
    """Names of the columns that are read."""
    texts: tuple[str, ...]
    """Names of the columns, among those read, that are kept as they were written."""
    block_bytes: int = BLOCK_BYTES
    """Bytes of a CSV that are read at once."""

    @classmethod
    def at(
        cls, key: str, path: str, columns: Sequence[str], texts: Sequence[str] = ()
    ) -> ChunkedTable:
        """Open the table at `path`, which messages call by its setting `key`.

        Raises ConfigError for a file that is no table, or lacks columns.
        """
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
        """Yield all rows, in their order.

        A text that is no number in a column of `numbers` makes its row unreadable. Cells of
        `categories` are compared by their spelling alone. The columns `verbatim`, of these or
        others, hold codes, which stay as they are written. Raises ConfigError where the file is no
        table any more.
        """
        with self.file.reading():
            if self.file.is_parquet:
                found = self._parquet()
            else:
                found = self._csv(numbers, categories, verbatim)
            for chunk, row_names in found:
                yield _without_texts(chunk, [n for n in numbers if n in self.columns], row_names)

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
        """Return the Arrow type of each column that is read.

        The result is empty where a column of another kind is read, such as one of dates: its
        meaning may depend on the type that pandas finds.
        """
        if not set(self.columns) <= {*numbers, *categories, *self.texts}:
            return {}
        types = dict.fromkeys(categories, csv_blocks.arrow_category_type())
        types |= dict.fromkeys(numbers, csv_blocks.arrow_number_type())
        types |= dict.fromkeys(self.texts, csv_blocks.arrow_text_type())
        return {name: types[name] for name in self.columns}

    def _readable(
        self, block: CsvBlock, names: list[str], verbatim: Sequence[str]
    ) -> tuple[CsvRowIndex, pd.DataFrame]:
        """Return the readable rows of a block, and their frame.

        Where pandas reads quotes in another way, cells are counted again, row by row. Raises
        ConfigError for quotes that remain unclear.
        """
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
        missing = sorted(cells.MISSING_TEXTS)
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
            skipinitialspace=b" " in block,  # the search for spaces costs a third of the time
            low_memory=False,
        )[list(self.columns)]


@dataclass(frozen=True, eq=False)
class _RowNames:
    """The numbers by which messages name the rows of a frame."""

    kind: str
    numbers: npt.NDArray[np.int64]

    def unread(self, place: int, reason: str) -> UnreadRow:
        return UnreadRow(int(self.numbers[place]), reason, self.kind)


def _without_texts(chunk: TableChunk, numbers: Sequence[str], names: _RowNames) -> TableChunk:
    """Return the chunk without rows that hold a text in a column of `numbers`."""
    bad: dict[int, str] = {}
    for name in numbers:
        column = chunk.frame[name]
        if column.dtype.kind in "iufbmM":
            continue
        codes, values = cells.distinct_cells(column)
        wrong = [code for code, value in enumerate(values) if cells.cell_to_number(value) is None]
        for place in np.flatnonzero(np.isin(codes, wrong)).tolist():
            cell = repr(str(values[codes[place]])[:60])
            bad.setdefault(place, f"{name}={cell} is no number")
    if not bad:
        return chunk
    mask = np.zeros(len(chunk.frame), dtype=bool)
    mask[list(bad)] = True
    return chunk.drop_rows(mask, [names.unread(place, why) for place, why in bad.items()])
