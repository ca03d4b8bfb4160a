"""Cells that a reading as numbers changes, such as `007`: codes, which stay texts as written.

Decides which texts are codes, and finds out quickly whether a CSV may hold any, because pandas has
made numbers of them by then.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from automl.data import cells

_CODE = re.compile(r"[-+]?0\d[\d ]*(?:[eE]\d+)?[^\d\s.,:/-]{0,8}|\+\d[\d ]{6,18}\d|-?\d{17,}")
_CODE_CELL = rb"(?:[-+]?0\d+(?:[eE]\d+)?|\+\d{8,}) *(?=[%b\r\n\"]|\Z)"
_HEXADECIMAL = re.compile(r"[\dA-Fa-f]+")
_EXPONENT = re.compile(r"\d+[eE]\d+")
_PLUS, _MINUS, _POINT, _ZERO = b"+-.0"
_BYTES_AT_ONCE = 2**18
_LONGEST_CODE = 64
"""Bytes of a cell that are looked at again with those behind it."""
_LARGEST_EXACT = 2.0**53


def are_verbatim(values: Iterable[Any]) -> bool:
    """Return whether the different cells of a column are codes, because one of them is.

    A code is a text with a zero before another digit (`007`, `00`, `-01`, `01e5`, `05 kg`), a plus
    before 8 digits or more (`+49 301 2345`), or 17 digits or more, which a float does not hold.
    In a column of hexadecimal texts, `1e5` is one. Texts with a decimal mark are no codes, and
    neither are `0`, `-0`, `0.5`, `00.5`, `0e5` and `+5`, nor `01/02/2024` and `08:30`. Numbers of a
    numeric type are no codes, among them integers of 64 bits that a whole column of a CSV holds.
    """
    texts = [value for value in values if isinstance(value, str)]
    if any(map(_CODE.fullmatch, texts)):
        return True
    has_exponents = any(map(_EXPONENT.fullmatch, texts))
    return (
        has_exponents and all(map(_HEXADECIMAL.fullmatch, texts)) and not cells.all_numbers(texts)
    )


def may_hold_codes(path: Path, separator: str) -> bool:
    """Return whether some cell of a CSV looks like a code that pandas reads as a number.

    For 100,000 rows of 20 numbers it adds 0.01 to 0.03 s to 0.06 to 0.11 s of reading (one core).
    Raises OSError.
    """
    mark = separator.encode()
    cell = re.compile(_CODE_CELL % re.escape(mark))
    content = b"\n"
    with path.open("rb") as file:
        while read := file.read(_BYTES_AT_ONCE):
            content = content[-_LONGEST_CODE:] + read
            if any(cell.match(content, place) for place in _places(content, mark).tolist()):
                return True
    return False


def _places(content: bytes, separator: bytes) -> npt.NDArray[np.intp]:
    """Return where cells begin with a zero before a digit, with a sign and such a zero, or with a
    plus before a digit."""
    letters = np.frombuffer(content, dtype=np.uint8)
    is_digit = letters - np.uint8(_ZERO) < 10  # letters before the zero wrap around
    is_begin = letters < _POINT  # a space, a quote, a sign, a newline or most separators
    is_begin |= letters == separator[0]
    zeros = 1 + np.flatnonzero(is_begin[:-2] & (letters[1:-1] == _ZERO) & is_digit[2:])
    zeros = zeros - np.isin(letters[zeros - 1], (_PLUS, _MINUS))
    pluses = np.flatnonzero((letters[:-1] == _PLUS) & is_digit[1:])
    places: npt.NDArray[np.intp] = np.concatenate([zeros, pluses])
    begins = np.frombuffer(separator + b'\n" ', dtype=np.uint8)
    places = places[np.isin(letters[places - 1], begins)]
    # A space may stand behind a separator; behind a date it stands before the time.
    is_spaced = letters[places - 1] == ord(" ")
    places = places[~is_spaced | np.isin(letters[places - 2], begins)]
    return places


def loses_digits(column: pd.Series[Any]) -> bool:
    """Return whether a column of floats holds numbers so large that floats skip integers."""
    if column.dtype.kind != "f":
        return False
    largest = np.abs(column.to_numpy())
    return bool(((largest >= _LARGEST_EXACT) & np.isfinite(largest)).any())
