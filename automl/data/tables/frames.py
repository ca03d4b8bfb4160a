"""Rows of plain values as a pandas DataFrame, for people.

A frame in memory as a file that a study can be begun with, and gone on with.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from automl.errors import ConfigError
from automl.record.disk import make_folder, open_replacing

if TYPE_CHECKING:
    import pandas as pd

Frame: TypeAlias = "pd.DataFrame"
"""For those who return one."""


def frame_of_cells(cells: Any) -> Frame:
    """Of an array (N, D): columns x0, x1, …; those of objects by what they hold."""
    import pandas as pd

    names = [f"x{place}" for place in range(cells.shape[1])]
    return pd.DataFrame(cells, columns=names).infer_objects()


def frame_of(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[str], index: str | list[str]
) -> Frame:
    """A row each, with these columns first and whatever else the rows have behind them.

    Columns of Unix seconds whose names are `started` or `ended` become times in UTC.
    """
    import pandas as pd  # 0.4 s, and whoever asks for no frame need not wait

    names = dict.fromkeys((*columns, *(name for row in rows for name in row)))
    frame = pd.DataFrame(list(rows), columns=list(names)).set_index(index)
    for name in ("started", "ended"):
        if name in frame:
            frame[name] = pd.to_datetime(
                (frame[name].astype("float64") * 1000).round(), unit="ms", utc=True
            )
    return frame


def write_frame(frame: Any, folder: Path) -> Path:
    """Write `folder/table-DIGEST.parquet`, or find it there: the same rows have the same file.

    The index is no column. Raises ConfigError for what is no DataFrame, and for columns that
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
    except (TypeError, ValueError) as error:  # pyarrow's are both
        raise ConfigError(f"table: it cannot be written as Parquet ({error}).") from error
    path = folder / f"table-{hashlib.sha256(content).hexdigest()[:8]}.parquet"
    if not path.exists():
        make_folder(folder)
        with open_replacing(path) as file:
            file.write(content)
    return path
