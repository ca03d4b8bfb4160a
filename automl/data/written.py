"""A frame in memory as a file that a study can be begun with, and gone on with."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from automl.errors import ConfigError
from automl.record.disk import make_folder, replacing


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
        with replacing(path) as file:
            file.write(content)
    return path
