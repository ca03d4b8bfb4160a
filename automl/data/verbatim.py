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
from automl.data.csv_blocks import NEWLINE, blocks

_CODE = re.compile(r"[-+]?0\d[\d ]*(?:[eE]\d+)?[^\d\s.,:/-]{0,8}|\+\d[\d ]{6,18}\d|-?\d{17,}")
_CODE_CELL = rb"(?:[-+]?0\d+(?:[eE]\d+)?|\+\d{8,}) *(?=[%b\r\n\"]|\Z)"
_HEXADECIMAL = re.compile(r"[\dA-Fa-f]+")
_EXPONENT = re.compile(r"\d+[eE]\d+")
_PLUS, _ZERO = b"+0"
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

    It takes a tenth of the time of reading the table. Raises OSError.
    """
    mark = separator.encode()
    cell = re.compile(_CODE_CELL % re.escape(mark))
    contents = (NEWLINE + block.content for block in blocks(path, separator))
    return any(
        cell.match(content, place) is not None
        for content in contents
        for place in _places(content, mark).tolist()
    )


def _places(content: bytes, separator: bytes) -> npt.NDArray[np.intp]:
    """Where cells begin with a zero before a digit, or with a sign before that, or with a plus;
    `content` begins with a newline."""
    letters = np.frombuffer(content, dtype=np.uint8)
    before_digit = letters[1:] - np.uint8(ord("0")) < 10  # below the zero it wraps around
    zeros = np.flatnonzero((letters[:-1] == _ZERO) & before_digit)
    signed = np.isin(letters[zeros - 1], np.frombuffer(b"+-", dtype=np.uint8))
    found = [zeros - signed]
    if b"+" in content:
        found.append(np.flatnonzero((letters[:-1] == _PLUS) & before_digit))
    places = np.concatenate(found)
    begins = np.frombuffer(separator + b'\n" ', dtype=np.uint8)
    places = places[np.isin(letters[places - 1], begins)]
    # A space may stand behind a separator; behind a date it stands before the time.
    spaced = (letters[places - 1] == ord(" ")) & (places > 1)
    return places[~spaced | np.isin(letters[places - 2], begins)]


def loses_digits(column: pd.Series[Any]) -> bool:
    """Return whether a column of floats holds numbers so large that floats skip integers."""
    if column.dtype.kind != "f":
        return False
    largest = np.abs(column.to_numpy())
    return bool(((largest >= _LARGEST_EXACT) & np.isfinite(largest)).any())
