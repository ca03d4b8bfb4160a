"""A CSV cut into blocks of whole rows, as bytes, and which of their rows have all cells.

Cells are counted on all bytes of a block at once. Where no cell is quoted and every row has all of
them, newlines and separators alternate as they must, and that is all. Else: a newline or separator
with an even number of quotes before it is in no quoted cell. Where quotes stand in cells that are
not quoted, that counts wrongly; such a block is counted again, row by row, by Python's csv.

Blocks of a CSV in which no cell is quoted, parsed by Arrow: the usual case, and the fast one.

Arrow counts the cells of each row itself, and parses without Python's lock, so that others compute
meanwhile. Whatever it will not take (a row with too few cells, a text in a column of numbers) is
left to pandas, which finds out which row it is. Both mean the same by a cell: `cells.py` decides.
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
"""A quote that is never closed would else take all of the file into memory."""
NEWLINE, _QUOTE = b"\n", b'"'
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class CsvRowIndex:
    """What a block holds, blank lines left out."""

    good: bytes
    """The rows with all their cells, one after the other."""
    lines: Ints
    """Where each of them begins in the file, from 1."""
    places: Ints
    """Which of all rows of the block they are."""
    bad: tuple[tuple[int, str], ...]
    """Line and reason of the others."""


@dataclass(frozen=True, eq=False)
class _CutRows:
    """Rows, blank ones among them, by where they end, and how many cells each has."""

    ends: Ints
    n_cells: Ints


@dataclass(frozen=True)
class CsvBlock:
    """Whole rows of a CSV."""

    content: bytes
    first_line: int
    separator: str
    n_bytes: int
    """Of the file that are read with it."""

    @property
    def is_utf8(self) -> bool:
        return _is_utf8(self.content)

    def without_header(self) -> CsvBlock:
        """Its first row that is no blank line stands for no row of the table."""
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
        """Which rows have so many cells, and can be read; `exactly`: each is looked at."""
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
        why = {r: f"cells: {cut.n_cells[r]}, and {n_cells} columns" for r in wrong.tolist()}
        why |= self._undecodable(begins, cut.ends, filled)
        good = filled.copy()
        good[list(why)] = False
        newlines = np.flatnonzero(np.frombuffer(self.content, dtype=np.uint8) == NEWLINE[0])
        lines = self.first_line + np.searchsorted(newlines, begins)
        return CsvRowIndex(
            good=self.content if good.all() else self._joined(begins[good], cut.ends[good]),
            lines=lines[good],
            places=(np.cumsum(filled) - 1)[good],
            bad=tuple((int(lines[row]), why[row]) for row in sorted(why)),
        )

    def _is_flawless(self, n_cells: int) -> bool:
        """Whether each line is a row with so many cells, two or more, and none is quoted."""
        if n_cells < 2 or not self.content.endswith(NEWLINE):
            return False  # of one cell, a blank line would count as a row
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
        """Row by row. Of one of several lines that has not all cells, a quote was never closed: its
        first line alone is a row, and the next line begins another."""
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
    """The file, cut where rows end, every so many bytes. Raises OSError."""
    line, rest = 1, b""
    with path.open("rb") as file:
        if file.read(3) != b"\xef\xbb\xbf":  # what Windows begins UTF-8 with
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
    """All bytes but these."""
    return bytes(set(range(256)).difference(letters))


def _end_of_rows(content: bytes) -> int:
    """Behind the last newline that is in no quoted cell; 0: there is none."""
    if _QUOTE not in content:
        return content.rfind(NEWLINE) + 1
    ends = _outside(content, NEWLINE)
    return int(ends[-1]) + 1 if len(ends) else 0


def _outside(content: bytes, byte: bytes) -> Ints:
    """Where it stands and is part of no quoted cell."""
    letters = np.frombuffer(content, dtype=np.uint8)
    found: Ints = np.flatnonzero(letters == byte[0])
    if _QUOTE not in content:
        return found
    quotes = np.flatnonzero(letters == _QUOTE[0])
    outside: Ints = found[np.searchsorted(quotes, found) % 2 == 0]
    return outside


def _next_row(rows: Any) -> list[str] | None:
    """None: it is longer than Python's csv reads, which an open quote makes it."""
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


def number_type() -> Any:
    """Of a column of numbers; a cell that is none makes its block one for pandas."""
    return pa.float64()


def category_type() -> Any:
    """Of a column of which each different cell is looked at once."""
    return pa.dictionary(pa.int32(), pa.string())


def text_type() -> Any:
    """Of a column that is kept as it was written."""
    return pa.string()


def parse_plain_block(
    block: CsvBlock, names: Sequence[str], types: Mapping[str, Any]
) -> pd.DataFrame | None:
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
