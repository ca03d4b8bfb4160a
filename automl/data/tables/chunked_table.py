"""Reads a table of any size some thousand rows at a time, and writes their scores.

Rows that cannot be read are named, and have empty cells alone among the scores. A CSV is read by
`csv_reader.py`, a Parquet file by Arrow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from automl.data import cells
from automl.data.scoring.metrics import Threshold, predict_labels
from automl.data.tables.csv_reader import BLOCK_BYTES, CsvReader
from automl.data.tables.table_file import TableFile, parquet_to_frame, shown_names

CELLS_AT_ONCE = 1_000_000
"""Number of cells of a Parquet file that are read at once."""
CATEGORY_TYPE = pa.dictionary(pa.int32(), pa.string())
"""The Arrow type of columns whose different cells are looked at once each."""


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

    def drop_rows(self, bad: Mapping[int, UnreadRow]) -> TableChunk:
        """Return the chunk without the rows at the places `bad` of its frame."""
        if not bad:
            return self
        good = np.setdiff1d(np.arange(len(self.frame)), list(bad))
        unread = sorted((*self.unread, *bad.values()), key=lambda row: row.number)
        frame = self.frame.iloc[good]
        return replace(self, frame=frame, places=self.places[good], unread=tuple(unread))


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
                f"has no column {', '.join(unknown)} to keep; it has: {shown_names(names)}."
            )
        absent = [name for name in wanted if name not in names]
        if absent:
            raise file.error(
                f"lacks the columns {shown_names(absent)}: a model needs every column that it "
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
        others, hold codes, which stay as they are written. Raises ConfigError if the file is no
        longer a table.
        """
        with self.file.reading():
            if self.file.is_parquet:
                kind, found = "row", self._parquet()
            else:
                kind, found = "line", self._csv(numbers, categories, verbatim)
            read_numbers = [name for name in numbers if name in self.columns]
            for chunk, row_numbers in found:
                bad = _texts_among(chunk.frame, read_numbers)
                yield chunk.drop_rows(
                    {i: UnreadRow(int(row_numbers[i]), why, kind) for i, why in bad.items()}
                )

    def _parquet(self) -> Iterator[tuple[TableChunk, npt.NDArray[np.int64]]]:
        import pyarrow.parquet as pq

        table = pq.ParquetFile(self.file.path)
        n_all, begin = table.metadata.num_rows, 0
        n_at_once = max(1, CELLS_AT_ONCE // len(self.columns))
        names = dict(zip(self.file.column_names(), self.file.parquet_names(), strict=True))
        for batch in table.iter_batches(n_at_once, columns=[names[c] for c in self.columns]):
            frame = parquet_to_frame(batch)
            frame = frame[[names[c] for c in self.columns]]
            frame.columns = pd.Index(self.columns)
            for name in self.texts:  # whole numbers stay whole beside missing cells
                frame[name] = batch.column(names[name]).to_pandas(
                    integer_object_nulls=True, date_as_object=False
                )
            n_rows, end = len(frame), begin + len(frame)
            chunk = TableChunk(n_rows, frame, np.arange(n_rows), (), end / max(1, n_all))
            yield chunk, np.arange(begin + 1, end + 1)
            begin = end

    def _csv(
        self, numbers: Sequence[str], categories: Sequence[str], verbatim: Sequence[str]
    ) -> Iterator[tuple[TableChunk, npt.NDArray[np.int64]]]:
        layout = self.file.csv_layout()
        types = dict.fromkeys(self.columns, pa.string())
        types |= {name: pa.float64() for name in numbers if name in types}
        types |= {name: CATEGORY_TYPE for name in categories if name in types}
        types |= dict.fromkeys((*self.texts, *(n for n in verbatim if n in types)), pa.string())
        reader = CsvReader(layout, types, sorted(cells.MISSING_TEXTS), names_rows=True)
        size = self.file.path.stat().st_size
        for block in reader.blocks(self.file.path, self.block_bytes):
            unread = [UnreadRow(row.line, row.reason(layout.names)) for row in block.invalid]
            lines = np.sort(np.append(block.lines, [row.number for row in unread]))
            places = np.searchsorted(lines, block.lines)
            frame = block.table.to_pandas()
            chunk = TableChunk(len(lines), frame, places, tuple(unread), block.n_bytes / size)
            yield chunk, block.lines


def _texts_among(frame: pd.DataFrame, numbers: Sequence[str]) -> dict[int, str]:
    """Return the places of rows that hold a text in a column of `numbers`, with the reason."""
    bad: dict[int, str] = {}
    for name in numbers:
        column = frame[name]
        if column.dtype.kind in "iufbmM":
            continue
        codes, values = cells.distinct_cells(column)
        wrong = [code for code, value in enumerate(values) if cells.cell_to_number(value) is None]
        for place in np.flatnonzero(np.isin(codes, wrong)).tolist():
            cell = repr(str(values[codes[place]])[:60])
            bad.setdefault(place, f"{name}={cell} is no number")
    return bad


PREDICTION = "prediction"


class ScoresWriter:
    """Writes chunks of scored rows: the columns kept, the prediction, a probability per class."""

    def __init__(
        self,
        writer: Any,
        classes: Sequence[object],
        kept: Sequence[str],
        threshold: Threshold | None = None,
    ) -> None:
        self._threshold = threshold
        self._writer, self._kept = writer, tuple(kept)
        self._labels = _labels(classes)
        self.schema = schema_of(classes, kept)

    def write(self, chunk: TableChunk, scores: npt.NDArray[np.float64] | None) -> None:
        """Write the rows of a chunk.

        `scores` are those of the readable rows: (N, classes), or (N,) values. None: no row of the
        chunk is readable.
        """
        if scores is None:
            scores = np.empty((0,) if self._labels is None else (0, len(self._labels)))
        columns = [_texts(chunk.frame[name]) for name in self._kept]
        if self._labels is None:
            columns.append(pa.array(scores))
        else:
            columns.append(self._labels.take(pa.array(predict_labels(scores, self._threshold))))
            columns += [pa.array(np.ascontiguousarray(s)) for s in scores.T]
        if len(chunk.places) < chunk.n_rows:
            rows = np.full(chunk.n_rows, -1)
            rows[chunk.places] = np.arange(len(chunk.places))
            where = pa.array(rows, mask=rows < 0)  # taken at no place: an empty cell
            columns = [column.take(where) for column in columns]
        self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self.schema))


@contextmanager
def open_scores_writer(
    file: BinaryIO,
    classes: Sequence[object],
    kept: Sequence[str],
    *,
    parquet: bool,
    threshold: Threshold | None = None,
) -> Iterator[ScoresWriter]:
    """Yield a writer into `file`, of Parquet or of CSV with a header."""
    schema = schema_of(classes, kept)
    if parquet:
        with pa.parquet.ParquetWriter(file, schema) as writer:
            yield ScoresWriter(writer, classes, kept, threshold)
        return
    with pa.csv.CSVWriter(file, schema) as writer:
        yield ScoresWriter(writer, classes, kept, threshold)


def schema_of(classes: Sequence[object], kept: Sequence[str]) -> Any:
    """Return the names and types of the columns that are written."""
    labels = _labels(classes)
    return pa.schema(
        [
            *((name, pa.string()) for name in kept),
            (PREDICTION, pa.float64() if labels is None else labels.type),
            *((f"probability_{label}", pa.float64()) for label in classes),
        ]
    )


def _texts(column: pd.Series[Any]) -> Any:
    """Return the column's cells as texts; numbers and times, which Parquet has, as in pandas."""
    texts = column.astype(str).where(column.notna(), None)
    return pa.array(texts, type=pa.string(), from_pandas=True)


def _labels(classes: Sequence[object]) -> Any:
    """Return the labels as an Arrow array, or None where there are none.

    They become texts where they are of several types, and where they are truth values, which CSV
    would spell in another way.
    """
    if not classes:
        return None
    kinds = {type(label) for label in classes}
    return pa.array(list(classes) if len(kinds) == 1 and bool not in kinds else map(str, classes))
