"""pandas DataFrames for people: made of rows of plain values, or written as a study's table.

pandas is imported only where a frame is made. Tables are read in `table_file.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

from automl.errors import ConfigError
from automl.record.disk import make_folder, open_replacing

if TYPE_CHECKING:
    import pandas as pd

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

    Columns of Unix seconds whose names are `started` or `ended` become times in UTC.
    """
    import pandas as pd  # takes 0.4 s, which only callers that want a frame should wait

    names = dict.fromkeys((*columns, *(name for row in rows for name in row)))
    frame = pd.DataFrame(list(rows), columns=list(names)).set_index(index)
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

    The index is not written. Raises ConfigError for anything but a DataFrame, and for columns that
    a file cannot hold.
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
