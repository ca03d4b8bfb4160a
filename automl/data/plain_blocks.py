"""Blocks of a CSV in which no cell is quoted, parsed by Arrow: the usual case, and the fast one.

Arrow counts the cells of each row itself, and parses without Python's lock, so that others compute
meanwhile. Whatever it will not take (a row with too few cells, a text in a column of numbers) is
left to pandas, which finds out which row it is. Both mean the same by a cell: `cells.py` decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.csv

from automl.data import cells
from automl.data.csv_blocks import NEWLINE, Block


def number_type() -> Any:
    """Of a column of numbers; a cell that is none makes its block one for pandas."""
    return pa.float64()


def category_type() -> Any:
    """Of a column of which each different cell is looked at once."""
    return pa.dictionary(pa.int32(), pa.string())


def text_type() -> Any:
    """Of a column that is kept as it was written."""
    return pa.string()


def parsed(block: Block, names: Sequence[str], types: Mapping[str, Any]) -> pd.DataFrame | None:
    """The columns of `types`, a row for each line; None: rows have to be looked at one by one."""
    content = block.content
    if len(names) < 2 or b'"' in content or not content.endswith(NEWLINE) or not block.is_utf8:
        return None  # of one cell, a blank line would count as a row
    try:
        table = pyarrow.csv.read_csv(
            pa.BufferReader(content),
            pyarrow.csv.ReadOptions(
                use_threads=False, column_names=list(names), block_size=len(content) + 1
            ),
            pyarrow.csv.ParseOptions(delimiter=block.separator, quote_char=False),
            pyarrow.csv.ConvertOptions(
                check_utf8=False,  # it was looked at
                column_types=dict(types),
                include_columns=list(types),
                null_values=sorted(cells.MISSING),
                strings_can_be_null=False,  # what of a text is missing, `cells` says
            ),
        )
    except pa.ArrowInvalid:
        return None
    if table.num_rows != content.count(NEWLINE):
        return None  # a blank line is no row
    frame: pd.DataFrame = table.to_pandas()
    if b" " in content:  # as pandas is told to
        for name, kind in types.items():
            if kind == text_type():
                frame[name] = frame[name].str.lstrip(" ")
    return frame
