"""pandas DataFrames for people: made of rows of plain values, or written as a study's table.

pandas is imported only where a frame is made. Tables are read in `table_file.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

from automl.errors import ConfigError
from automl.record.disk import make_folder, open_replacing

if TYPE_CHECKING:
    import pandas as pd

    Column: TypeAlias = "pd.Series[Any]"

Frame: TypeAlias = "pd.DataFrame"
"""The type of a DataFrame, for annotations in modules that do not import pandas."""


def frame_from_cells(cells: Any) -> Frame:
    """Return an array (N, D) as a frame with the columns x0, x1, …

    Columns of objects get the type of the cells that they hold.
    """
    import pandas as pd

    names = [f"x{place}" for place in range(cells.shape[1])]
    return pd.DataFrame(cells, columns=names).infer_objects()


def frame_from_records(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[str], index: str | list[str]
) -> Frame:
    """Return a frame with a line for each row: `columns` first, then all other keys of the rows.

    Columns of Unix seconds whose names are `started` or `ended` become times in UTC. Whole numbers
    stay whole beside missing cells (Int64).
    """
    import pandas as pd  # takes 0.4 s, which only callers that want a frame should wait

    names = dict.fromkeys((*columns, *(name for row in rows for name in row)))
    frame = pd.DataFrame(list(rows), columns=list(names))
    for name in names:
        cells = [row.get(name) for row in rows]
        if frame[name].dtype.kind == "f" and {*map(type, cells)} == {int, type(None)}:
            frame[name] = pd.array(cells, dtype="Int64")
    frame = frame.set_index(index)
    for name in ("started", "ended"):
        if name in frame:
            frame[name] = pd.to_datetime(
                (frame[name].astype("float64") * 1000).round(), unit="ms", utc=True
            )
    return frame


def frame_text(frame: Frame, *, as_json: bool) -> str:
    """Return a frame as CSV, or as a JSON list of its rows; the index is a column."""
    rows = frame.reset_index()
    if as_json:
        return str(rows.to_json(orient="records", date_format="iso", force_ascii=False)) + "\n"
    return str(rows.to_csv(index=False, lineterminator="\n"))


def frame_to_parquet(frame: Frame, file: BinaryIO) -> None:
    """Write a frame to an open Parquet file. Columns whose values differ in type become texts."""
    rows = frame.reset_index()
    for name in [name for name in rows.columns if rows[name].dtype.kind == "O"]:
        kinds = {type(value) for value in rows[name].dropna()}
        if len(kinds) > 1:
            rows[name] = rows[name].map(str, na_action="ignore")
    rows.to_parquet(file, index=False)


def write_frame(frame: Any, folder: Path) -> Path:
    """Write `folder/table-DIGEST.parquet` unless it is there: the same rows have the same file.

    The index is not written. Cells that a file has no type for, such as intervals, lists and
    columns of several types, become the texts that a CSV has of them. Raises ConfigError for
    anything but a DataFrame, and for columns that a file cannot hold.
    """
    import pandas as pd

    if not isinstance(frame, pd.DataFrame):
        raise ConfigError(
            f"table: a {type(frame).__name__}; give a pandas DataFrame, or the path of a CSV or "
            "Parquet file."
        )
    rows = frame.reset_index(drop=True)
    rows.columns = [str(column) for column in rows.columns]
    if rows.columns.has_duplicates:
        twice = rows.columns[rows.columns.duplicated()][0]
        raise ConfigError(f"table: two of its columns are called {twice}; rename one of them.")
    for name in rows.columns:
        written = _column_of_file(column := rows[name])
        if written is not column:
            rows[name] = written
    try:
        content = rows.to_parquet(None, index=False)
    except (TypeError, ValueError) as error:  # pyarrow's errors are one or the other
        raise ConfigError(f"table: it cannot be written as Parquet ({error}).") from error
    path = folder / f"table-{hashlib.sha256(content).hexdigest()[:8]}.parquet"
    if not path.exists():
        make_folder(folder)
        with open_replacing(path) as file:
            file.write(content)
    return path


def _column_of_file(column: Column) -> Column:
    """Return a column whose cells Parquet holds and gives back, or their texts.

    Raises ConfigError for complex numbers, and for texts that are not Unicode.
    """
    import numpy as np
    import pandas as pd

    if isinstance(column.dtype, pd.SparseDtype):
        column = column.astype(column.dtype.subtype)
    is_categorical = isinstance(column.dtype, pd.CategoricalDtype)
    cells = column.cat.categories.to_series() if is_categorical else column
    if cells.dtype.kind == "c" or any(isinstance(cell, complex) for cell in _objects(cells)):
        raise ConfigError(
            f"table: column {column.name} holds complex numbers, which no model learns from; give "
            "their real and imaginary parts as two columns, or leave it out."
        )
    if cells.dtype == np.longdouble:
        return column.astype("float64")
    if cells.dtype.kind in "iufbmM" or _has_file_type(cells):
        return column
    try:
        return column.astype(object).map(_cell_text, na_action="ignore")
    except UnicodeEncodeError as error:
        raise ConfigError(f"table: column {column.name} holds no Unicode ({error}).") from error


def _objects(column: Column) -> Column:
    """Return the column if its cells are Python objects, else no cell of it."""
    return column if column.dtype == object else column[:0]


def _has_file_type(column: Column) -> bool:
    """Return whether Parquet has a type for the cells that gives the same cells back."""
    import pyarrow as pa

    try:
        kind = pa.array(column, from_pandas=True).type
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return False
    return not (pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType))


def _cell_text(cell: object) -> str:
    """Return the text of a cell in a CSV, but a fraction as a decimal number, and an integer of
    any length."""
    if isinstance(cell, Fraction):
        return str(float(cell))
    return str(Decimal(cell)) if type(cell) is int else str(cell)
