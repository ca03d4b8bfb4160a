"""Cuts a CSV into blocks of whole rows, as bytes, and finds the rows that have all their cells.

Cells are counted on all bytes of a block at once. Where no cell is quoted and every row has all
cells, it is enough that newlines and separators alternate as they must. Else, a newline or
separator with an even number of quotes before it is outside quoted cells. Quotes within an unquoted
cell make this count wrong; such a block is counted again, row by row, by Python's csv.

Arrow parses blocks without quoted cells, which is the usual and fast case: it counts the cells of
each row itself, and holds no lock of Python's, so that other threads compute meanwhile. Blocks that
it refuses (a row with too few cells, a text in a column of numbers) are left to pandas, by which
the row is found. `cells.py` decides for both what a cell means.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.csv

from automl.data import cells

BLOCK_BYTES = 4 * 2**20
LONGEST_ROW_BYTES = 64 * 2**20
"""Longest row that is waited for: a quote that is never closed would else take the whole file into
memory."""
NEWLINE, _QUOTE = b"\n", b'"'
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class CsvRowIndex:
    """The rows of a block, blank lines left out, sorted into good and bad ones."""

    good: bytes
    """The rows with all their cells, one after the other."""
    lines: Ints
    """The line of the file, from 1, in which each good row begins."""
    places: Ints
    """Places in the block, from 0, of the good rows among all rows."""
    bad: tuple[tuple[int, str], ...]
    """Line and reason of each bad row."""


@dataclass(frozen=True, eq=False)
class _CutRows:
    """The ends of rows in a block, blank ones included, and the number of cells of each."""

    ends: Ints
    n_cells: Ints


@dataclass(frozen=True)
class CsvBlock:
    """Consecutive whole rows of a CSV, as bytes."""

    content: bytes
    first_line: int
    separator: str
    n_bytes: int
    """Bytes of the file that this block stands for, its header included."""

    @property
    def is_utf8(self) -> bool:
        return _is_utf8(self.content)

    def without_header(self) -> CsvBlock:
        """Return the block without its header, which is the first row that is no blank line."""
        ends = self._cut().ends
        begin = 0
        for end in ends.tolist():
            row, begin = self.content[begin:end], end
            if row.strip():
                break
        n_lines = self.content.count(NEWLINE, 0, begin)
        line = self.first_line + n_lines
        return CsvBlock(self.content[begin:], line, self.separator, self.n_bytes)

    def rows(self, n_cells: int, *, exactly: bool = False) -> CsvRowIndex:
        """Return the rows that have `n_cells` cells and can be read, and the others with reasons.

        With `exactly`, Python's csv counts the cells row by row.
        """
        if not exactly and self._is_flawless(n_cells):
            places = np.arange(self.content.count(NEWLINE))
            return CsvRowIndex(self.content, self.first_line + places, places, ())
        cut = self._cut_exactly(n_cells) if exactly else self._cut()
        begins = np.append(0, cut.ends[:-1])[: len(cut.ends)]
        filled = np.ones(len(cut.ends), dtype=bool)
        for row in np.flatnonzero(cut.n_cells == 1).tolist():
            filled[row] = bool(self.content[begins[row] : cut.ends[row]].strip())
        wrong = np.flatnonzero(filled & (cut.n_cells != n_cells))
        if len(wrong) and not exactly and _QUOTE in self.content:
            return self.rows(n_cells, exactly=True)
        reasons = {r: f"cells: {cut.n_cells[r]}, and {n_cells} columns" for r in wrong.tolist()}
        reasons |= self._undecodable(begins, cut.ends, filled)
        good = filled.copy()
        good[list(reasons)] = False
        newlines = np.flatnonzero(np.frombuffer(self.content, dtype=np.uint8) == NEWLINE[0])
        lines = self.first_line + np.searchsorted(newlines, begins)
        return CsvRowIndex(
            good=self.content if good.all() else self._joined(begins[good], cut.ends[good]),
            lines=lines[good],
            places=(np.cumsum(filled) - 1)[good],
            bad=tuple((int(lines[row]), reasons[row]) for row in sorted(reasons)),
        )

    def _is_flawless(self, n_cells: int) -> bool:
        """Return whether each line is a row with `n_cells` cells, two or more, and none quoted."""
        if n_cells < 2 or not self.content.endswith(NEWLINE):
            return False  # with one column, a blank line would count as a row
        separator = self.separator.encode()
        marks = self.content.translate(None, delete=_others(NEWLINE + separator + _QUOTE))
        row = separator * (n_cells - 1) + NEWLINE
        return marks == row * (len(marks) // n_cells) and self.is_utf8

    def _joined(self, begins: Ints, ends: Ints) -> bytes:
        places = zip(begins.tolist(), ends.tolist(), strict=True)
        return b"".join(self.content[begin:end] for begin, end in places)

    def _cut(self) -> _CutRows:
        ends = _outside(self.content, NEWLINE) + 1
        if not len(ends) or ends[-1] < len(self.content):
            ends = np.append(ends, len(self.content))
        separators = _outside(self.content, self.separator.encode())
        return _CutRows(ends, np.diff(np.searchsorted(separators, ends), prepend=0) + 1)

    def _cut_exactly(self, n_cells: int) -> _CutRows:
        """Return the rows as Python's csv finds them.

        A row of several lines without all cells has a quote that was never closed: its first line
        alone is taken as a row, and the next line begins another.
        """
        lines = [line + "\n" for line in self.content.decode("latin-1").split("\n")]
        line_ends = np.cumsum([len(line) for line in lines])
        line_ends[-1] = len(self.content)
        ends, counts, begin, offset = list[int](), list[int](), 0, 0
        rows = self._reader(lines)
        while begin < len(lines):
            row = _next_row(rows)
            end = offset + rows.line_num
            if row is None or (len(row) != n_cells and end - begin > 1):
                row, end = _next_row(self._reader(lines[begin : begin + 1])), begin + 1
                rows, offset = self._reader(lines[end:]), end
            ends.append(int(line_ends[end - 1]))
            counts.append(max(1, len(row or ())))
            begin = end
        return _CutRows(np.array(ends, dtype=np.int64), np.array(counts, dtype=np.int64))

    def _reader(self, lines: list[str]) -> Any:
        return csv.reader(lines, delimiter=self.separator, skipinitialspace=True)

    def _undecodable(
        self, begins: Ints, ends: Ints, filled: npt.NDArray[np.bool_]
    ) -> dict[int, str]:
        if self.is_utf8:
            return {}
        rows = np.flatnonzero(filled).tolist()
        bad = [row for row in rows if not _is_utf8(self.content[begins[row] : ends[row]])]
        return dict.fromkeys(bad, "is not UTF-8")


def read_blocks(path: Path, separator: str, n_bytes: int = BLOCK_BYTES) -> Iterator[CsvBlock]:
    """Yield the file in blocks of about `n_bytes`, cut where rows end. Raises OSError."""
    line, rest = 1, b""
    with path.open("rb") as file:
        if file.read(3) != b"\xef\xbb\xbf":  # the byte order mark, with which Windows begins UTF-8
            file.seek(0)
        while read := file.read(n_bytes):
            rest += read
            end = _end_of_rows(rest)
            if end <= 1 and len(rest) < LONGEST_ROW_BYTES:
                continue
            end = end if end > 1 else rest.rfind(NEWLINE) + 1 or len(rest)
            yield CsvBlock(rest[:end], line, separator, end)
            line += rest.count(NEWLINE, 0, end)
            rest = rest[end:]
    if rest:
        yield CsvBlock(rest, line, separator, len(rest))


def _others(letters: bytes) -> bytes:
    """Return all bytes except `letters`."""
    return bytes(set(range(256)).difference(letters))


def _end_of_rows(content: bytes) -> int:
    """Return the place behind the last newline outside quoted cells; 0: there is none."""
    if _QUOTE not in content:
        return content.rfind(NEWLINE) + 1
    ends = _outside(content, NEWLINE)
    return int(ends[-1]) + 1 if len(ends) else 0


def _outside(content: bytes, byte: bytes) -> Ints:
    """Return the places at which `byte` stands outside quoted cells."""
    letters = np.frombuffer(content, dtype=np.uint8)
    found: Ints = np.flatnonzero(letters == byte[0])
    if _QUOTE not in content:
        return found
    quotes = np.flatnonzero(letters == _QUOTE[0])
    outside: Ints = found[np.searchsorted(quotes, found) % 2 == 0]
    return outside


def _next_row(rows: Any) -> list[str] | None:
    """Return the next row, or None where it is longer than Python's csv reads.

    An open quote makes a row so long.
    """
    try:
        row: list[str] = next(rows)
    except csv.Error:
        return None
    return row


def _is_utf8(row: bytes) -> bool:
    if row.isascii():
        return True
    try:
        row.decode()
    except UnicodeDecodeError:
        return False
    return True


def arrow_number_type() -> Any:
    """Return the Arrow type of number columns; another cell leaves its block to pandas."""
    return pa.float64()


def arrow_category_type() -> Any:
    """Return the Arrow type of columns whose different cells are looked at once each."""
    return pa.dictionary(pa.int32(), pa.string())


def arrow_text_type() -> Any:
    """Return the Arrow type of columns that are kept as they were written."""
    return pa.string()


def parse_plain_block(
    block: CsvBlock, names: Sequence[str], types: Mapping[str, Any]
) -> pd.DataFrame | None:
    """Return the columns of `types` with a row for each line, as Arrow parses them.

    The result is None for a block whose rows have to be looked at one by one.
    """
    content = block.content
    if len(names) < 2 or b'"' in content or not content.endswith(NEWLINE) or not block.is_utf8:
        return None  # with one column, a blank line would count as a row
    try:
        table = pyarrow.csv.read_csv(
            pa.BufferReader(content),
            pyarrow.csv.ReadOptions(
                use_threads=False, column_names=list(names), block_size=len(content) + 1
            ),
            pyarrow.csv.ParseOptions(delimiter=block.separator, quote_char=False),
            pyarrow.csv.ConvertOptions(
                check_utf8=False,  # the block is checked already
                column_types=dict(types),
                include_columns=list(types),
                null_values=sorted(cells.MISSING_TEXTS),
                strings_can_be_null=False,  # `cells` decides which texts are missing
            ),
        )
    except pa.ArrowInvalid:
        return None
    if table.num_rows != content.count(NEWLINE):
        return None  # a blank line is no row
    frame: pd.DataFrame = table.to_pandas()
    if b" " in content:  # pandas skips spaces behind separators, too
        for name, kind in types.items():
            if kind == arrow_text_type():
                frame[name] = frame[name].str.lstrip(" ")
    return frame
