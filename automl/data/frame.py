"""Rows of plain values as a pandas DataFrame, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

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
