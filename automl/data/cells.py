"""The meaning of a table's cells: a number, a text, a code, or nothing. Columns of any pandas type.

A training table, a test table and a frame given to `predict` are read by different programs, so
that the same cell may arrive as `1`, `1.0` or `" 1"`. The results of training must hold for all of
them, so each table is read by these functions.

Codes, such as `007`, are cells that change when they are read as numbers; they stay texts as
written.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from automl.errors import ConfigError
from automl.record.texts import fit_line

_EMPTY = frozenset(["", "?", "NA", "N/A", "n/a", "NULL", "null", "None", "<NA>", "#NA", "#N/A"])
_NO_NUMBER = frozenset(
    ["NaN", "nan", "-NaN", "-nan", "#N/A N/A", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"]
)
MISSING_TEXTS = _EMPTY | _NO_NUMBER
"""Cells that count as missing: `?`, and all that `pandas.read_csv` takes for missing, because most
frames given to `predict` come from `read_csv`."""
MISSING_TARGET_TEXTS = frozenset(["", "?", "NA"])
"""Cells of the target that count as missing: `None` or `null` can be the name of a class."""

LARGEST_NUMBER = float(np.finfo(np.float32).max)
"""The largest absolute value of a number; beyond it a number counts as missing."""
_EXACT = 2**53  # from here on, different integers can be the same float
_MAX_FLOAT_BITS = 1023
"""Bits of an integer that every float holds; Python raises OverflowError for some longer ones."""


def distinct_cells(
    column: pd.Series[Any], missing: frozenset[str] = MISSING_TEXTS
) -> tuple[npt.NDArray[np.intp], list[Any]]:
    """Return (N,) places in a list of the different cells, and the list; -1 for a missing cell.

    Texts in the list have no spaces around them. Callers work on the list, so that equal cells are
    looked at once.
    """
    found = _distinct(column, missing)
    if column.dtype == object and any(value in (0, 1) for value in found[1]):
        return _distinct(_with_truths_apart(column), missing)
    return found


def _with_truths_apart(column: pd.Series[Any]) -> pd.Series[Any]:
    """Return the column with `True` and `False` as texts, where it holds other cells, too.

    Python takes `True` and 1 for equal, and a table may hold both.
    """
    truths = np.array([isinstance(cell, bool | np.bool_) for cell in column], dtype=bool)
    if truths.all() or not truths.any():
        return column
    return column.where(~truths, column.astype(str))


def _distinct(
    column: pd.Series[Any], missing: frozenset[str] = MISSING_TEXTS
) -> tuple[npt.NDArray[np.intp], list[Any]]:
    try:
        codes, uniques = pd.factorize(column)
    except TypeError:  # lists and dicts, which Parquet can hold
        codes, uniques = pd.factorize(column.astype(str).where(column.notna()))
    values = [_plain_cell(value) for value in uniques.tolist()]
    present = dict.fromkeys(v for v in values if not _is_missing(v, missing))
    places = {v: i for i, v in enumerate(present)}
    moved = np.array([places.get(v, -1) for v in values] + [-1], dtype=np.intp)
    return moved[codes], list(places)


def _plain_cell(value: Any) -> Any:
    """Return a text without spaces around it; periods, and integers that are too large for a float,
    as the texts that a file has of them."""
    if isinstance(value, pd.Period):
        return str(value)
    if isinstance(value, int) and value.bit_length() > _MAX_FLOAT_BITS:
        return str(Decimal(value))
    return value.strip() if isinstance(value, str) else value


def _is_missing(value: object, missing: frozenset[str]) -> bool:
    return value in missing if isinstance(value, str) else value != value


def cell_to_number(value: object) -> float | None:
    """Return the number that a cell says, or None if it says none."""
    # Only Python's own notation has underscores in numbers.
    if isinstance(value, str) and "_" in value:
        return None
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return None if math.isnan(number) else number


def cell_to_text(value: object) -> str:
    """Return the common spelling of a cell: `1`, `1.0` and `"1.0"` all become `1`."""
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.title()
    if isinstance(value, bool | np.bool_):
        return str(value)
    number = cell_to_number(value)
    if number is None or abs(number) >= _EXACT:
        return str(value)
    return str(int(number)) if number.is_integer() else repr(number)


def holds_numbers(column: pd.Series[Any]) -> bool:
    """Return whether every cell that is not missing says a number, or a time."""
    return _is_time(column) or _is_number(column) or are_all_numbers(distinct_cells(column)[1])


def are_all_numbers(values: Iterable[object]) -> bool:
    """Return whether each of the different cells says a number; a truth value does not."""
    return all(cell_to_number(v) is not None and not isinstance(v, bool | np.bool_) for v in values)


def column_to_numbers(column: pd.Series[Any]) -> npt.NDArray[np.float64]:
    """Return the (N,) numbers, times as seconds since 1970; NaN where a cell says none.

    Numbers that float32 cannot hold, infinity included, count as missing.
    """
    if _is_time(column):
        values = _seconds(column)
    elif _is_number(column) or column.dtype.kind == "b":
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        codes, different = _distinct(column)  # among numbers `True` is 1
        found = [*map(cell_to_number, different), None]
        values = np.array([math.nan if n is None else n for n in found], dtype=np.float64)[codes]
    with np.errstate(invalid="ignore"):
        return np.where(np.abs(values) <= LARGEST_NUMBER, values, np.nan)


def count_too_large(column: pd.Series[Any]) -> int:
    """Return the number of cells that are infinite, or numbers beyond the largest one."""
    if _is_time(column):
        return 0
    return int((pd.to_numeric(column, errors="coerce").abs() > LARGEST_NUMBER).sum())


_MAX_SHOWN_CHARACTERS = 60


def cut_text(text: str) -> str:
    """Return a text from a table as messages show it, cut to some characters."""
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else fit_line(text, _MAX_SHOWN_CHARACTERS)


def shown_cell(cell: object) -> str:
    """Return a cell as messages show it."""
    return repr(cut_text(cell)) if isinstance(cell, str) else cut_text(repr(cell))


def verbatim_text(value: object) -> str:
    """Return the text of a cell in a column of codes, in which `7` and `007` differ."""
    return value if isinstance(value, str) else cell_to_text(value)


def column_spellings(
    column: pd.Series[Any], *, verbatim: bool = False
) -> tuple[npt.NDArray[np.intp], list[str]]:
    """Return (N,) places in a list of the different texts, and the list; missing cells are `""`.

    Raises ConfigError where a column of codes (`verbatim`) is given as numbers, in which leading
    zeros are lost.
    """
    if verbatim and _is_number(column) and column.notna().any():
        first = cell_to_text(column[column.notna()].iloc[0])
        raise ConfigError(
            f"Column {column.name} held codes, as texts, in training and now holds numbers, for "
            f"example {first}: give it as texts (pandas: read_csv(dtype={{{column.name!r}: str}}))."
        )
    codes, values = distinct_cells(column)
    texts = [*map(verbatim_text if verbatim else cell_to_text, values), ""]
    places = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    return np.array([places[text] for text in texts], dtype=np.intp)[codes], list(places)


def _is_number(column: pd.Series[Any]) -> bool:
    return bool(pd.api.types.is_numeric_dtype(column)) and column.dtype.kind in "iuf"


def _is_time(column: pd.Series[Any]) -> bool:
    return column.dtype.kind in "mM"


def _seconds(column: pd.Series[Any]) -> npt.NDArray[np.float64]:
    if isinstance(column.dtype, pd.DatetimeTZDtype):
        column = column.dt.tz_convert(None)
    unit = "timedelta64[us]" if column.dtype.kind == "m" else "datetime64[us]"
    times = column.to_numpy().astype(unit)
    return np.where(np.isnat(times), np.nan, times.astype(np.int64) / 1e6)


_CODE = re.compile(r"[-+]?0\d[\d ]*(?:[eE]\d+)?[^\d\s.,:/-]{0,8}|\+\d[\d ]{6,18}\d|-?\d{17,}")
_HEXADECIMAL = re.compile(r"[\dA-Fa-f]+")
_EXPONENT = re.compile(r"\d+[eE]\d+")


def are_verbatim(values: Iterable[Any]) -> bool:
    """Return whether the different cells of a column are codes, because one of them is.

    A code is a text with a zero before another digit (`007`, `00`, `-01`, `01e5`, `05 kg`), a plus
    before 8 digits or more (`+49 301 2345`), or 17 digits or more, which a float does not hold.
    In a column of hexadecimal texts, `1e5` is a code. Texts with a decimal mark are no codes, and
    neither are `0`, `-0`, `0.5`, `00.5`, `0e5` and `+5`, nor `01/02/2024` and `08:30`. Numbers of a
    numeric type are no codes, and neither are the 64-bit integers of a CSV's integer column.
    """
    texts = [value for value in values if isinstance(value, str)]
    if any(map(_CODE.fullmatch, texts)):
        return True
    has_exponents = any(map(_EXPONENT.fullmatch, texts))
    return has_exponents and all(map(_HEXADECIMAL.fullmatch, texts)) and not are_all_numbers(texts)
