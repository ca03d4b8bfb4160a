"""Writes the scores of a table chunk by chunk, as CSV or Parquet, with a row for each of its rows.

A row that could not be read has empty cells alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from automl.data.scoring.metrics import predict_labels
from automl.data.tables.chunked_table import TableChunk

PREDICTION = "prediction"


class ScoresWriter:
    """Writes chunks of scored rows: the columns kept, the prediction, a probability per class."""

    def __init__(
        self,
        writer: Any,
        classes: Sequence[object],
        kept: Sequence[str],
        threshold: float | None = None,
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
    threshold: float | None = None,
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
