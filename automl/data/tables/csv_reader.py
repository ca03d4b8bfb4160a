"""Reads a CSV of any size in blocks of whole rows, which Arrow parses.

Rows with too few or too many cells are left out of a block's table and named beside it. Arrow does
not hold Python's lock, so that other threads can compute. `table_file.py` makes one table of all
blocks, `chunked_table.py` one chunk of each. `cells.py` says what a cell means.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from automl.data.tables.file_kinds import open_uncompressed

BLOCK_BYTES = 4 * 2**20
_THREAD_BYTES = 2**20
LONGEST_ROW_BYTES = 16 * 2**20
"""Longest row that is read: a quote that is never closed, or one huge cell, would else take the
whole file into memory."""
_NEWLINE, _NOT_UTF8 = b"\n", "\ufffd"
_BLANK_LINE = re.compile(rb"(?:\A|\n)\r?\n")
_QUOTED = rb'"[^"]*(?:""[^"]*)*"'
_SPACED_CELL = rb"([%%b\n])(?: +(%b)?|(%b))" % (_QUOTED, _QUOTED)
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class CsvLayout:
    """The facts in the header of a CSV by which its rows are read."""

    names: list[str]
    separator: str
    n_header_lines: int
    """Number of lines before the first row, blank ones included."""
    has_bare_returns: bool
    """Whether lines end in carriage returns alone, as old programs for the Mac write them."""


class RowFault(Enum):
    """The reason why a row is invalid."""

    n_cells = "cells"
    encoding = "is not UTF-8"
    open_quote = "has a quote that is never closed"
    too_long = f"is longer than {LONGEST_ROW_BYTES // 2**20} MiB"


@dataclass(frozen=True)
class InvalidRow:
    """A row of a CSV that does not have a cell for each column, or cannot be told from the next."""

    line: int
    """The line of the file, from 1, in which it begins."""
    text: str
    n_cells: int
    fault: RowFault = RowFault.n_cells

    @property
    def holds_others(self) -> bool:
        """Return whether a quote that was never closed has taken the lines behind the first."""
        is_open = self.fault is RowFault.open_quote or self.text.count('"') % 2 == 1
        return is_open and bool(self.text.partition("\n")[2].strip())

    def reason(self, names: Sequence[str]) -> str:
        """Return why the row is invalid in a table with the columns `names`."""
        if self.fault is RowFault.n_cells:
            return f"cells: {self.n_cells}, and {len(names)} columns"
        return str(self.fault.value)


@dataclass(frozen=True, eq=False)
class CsvBlock:
    """Consecutive rows of a CSV, blank lines left out."""

    table: Any
    """The valid rows, as an Arrow table."""
    lines: Ints
    """The line of the file, from 1, in which each valid row begins; without `CsvReader.names_rows`,
    a number that rises from row to row."""
    invalid: tuple[InvalidRow, ...]
    n_bytes: int = 0
    """Bytes of the file, as it is on disk, up to the end of the block."""

    @property
    def ends_open(self) -> bool:
        """Return whether the last row has a quote that is not closed."""
        return bool(self.invalid) and self.invalid[-1].fault is RowFault.open_quote


@dataclass(frozen=True)
class CsvReader:
    """Reads the rows of CSVs of one layout."""

    layout: CsvLayout
    types: Mapping[str, Any]
    """Arrow type of each column that is read. Where a cell does not fit its type, all columns of
    its block come as texts."""
    missing: Sequence[str]
    """Texts of missing numbers."""
    texts_can_be_missing: bool = False
    """Whether these are missing in columns of texts, too."""
    names_rows: bool = False
    """Whether rows are named by their lines. Only the first line of a row with an unclosed quote is
    then left out: the next line begins another row."""

    def blocks(self, path: Path, n_bytes: int = BLOCK_BYTES) -> Iterator[CsvBlock]:
        """Yield the rows of a file in blocks of about `n_bytes`. Raises OSError.

        A row that is not complete at the end of a block is read with the next one. The rest of a
        row that is too long is skipped.
        """
        line, is_last, passes_over = self.layout.n_header_lines + 1, False, False
        with open_uncompressed(path) as (held, file):
            rest = self._after_header(held, n_bytes)
            while not is_last:
                read = self._read(held, n_bytes)
                is_last = not read
                if passes_over:
                    _, newline, read = read.partition(_NEWLINE)
                    passes_over = not newline
                content = rest + read
                may_wait = not is_last and len(content) < LONGEST_ROW_BYTES
                end = len(content) if is_last else content.rfind(_NEWLINE) + 1
                if not end and may_wait:
                    rest = content
                    continue
                if not end and not is_last:
                    row = InvalidRow(line, "", 0, RowFault.too_long)
                    none = pa.schema(list(self.types.items())).empty_table()
                    yield CsvBlock(none, np.arange(0), (row,), file.tell())
                    line, rest, passes_over = line + 1, b"", True
                    continue
                complete, rest = content[:end], content[end:]
                block = self._parse(complete, line, self.types)
                if may_wait and block.ends_open:
                    n_lines = block.invalid[-1].line - line
                    unfinished = complete.split(_NEWLINE, n_lines)[-1]
                    complete = complete[: len(complete) - len(unfinished)]
                    rest = unfinished + rest
                    block = replace(block, invalid=block.invalid[:-1])
                if self.names_rows and any(row.holds_others for row in block.invalid):
                    block = self._split(self._parse(complete, line, self._as_texts()))
                line += complete.count(_NEWLINE)
                if len(block.table) or block.invalid:
                    unread = len(rest) if held is file else 0
                    yield replace(block, n_bytes=file.tell() - unread)

    def _after_header(self, file: BinaryIO, n_bytes: int) -> bytes:
        """Read the header of a file, and return what is read of the rows behind it."""
        head, n_lines = b"", self.layout.n_header_lines
        while head.count(_NEWLINE) < n_lines and (read := self._read(file, n_bytes)):
            head += read
        return head.split(_NEWLINE, n_lines)[n_lines] if head.count(_NEWLINE) >= n_lines else b""

    def _read(self, file: BinaryIO, n_bytes: int) -> bytes:
        """Read the next bytes; lone carriage returns become newlines."""
        read = file.read(n_bytes)
        return read.replace(b"\r", _NEWLINE) if self.layout.has_bare_returns else read

    def table_of(self, rows: str) -> Any:
        """Return valid rows as an Arrow table."""
        return self._arrow(f"{rows}\n".encode(), self.types)[0]

    def _as_texts(self) -> Mapping[str, Any]:
        return dict.fromkeys(self.types, pa.string())

    def _parse(self, content: bytes, line: int, types: Mapping[str, Any]) -> CsvBlock:
        """Return the rows in `content`, whose first line is `line`.

        A last row that is not complete is invalid, having a quote that is not closed.
        """
        is_utf8 = _is_utf8(content)
        if not is_utf8:
            content = content.decode(errors="replace").encode()
        if not content.endswith(_NEWLINE):
            content += _NEWLINE
        content = _without_leading_spaces(content, self.layout.separator)
        if is_utf8 and not self.names_rows:
            table = self._valid_table(content)
            if table is not None:
                return CsvBlock(table, np.arange(len(table)), ())
        all_texts = dict.fromkeys(self.layout.names, pa.string())
        parsed_types = types if is_utf8 else all_texts
        try:
            table, found = self._arrow(content, parsed_types)
        except pa.ArrowInvalid:
            table, found = self._arrow(content, self._as_texts())
        lines, is_open = np.arange(len(table) + len(found)), False
        if len(lines) != content.count(_NEWLINE) + 1:
            is_open = not found or found[-1].text != self._last_row
            has_all = parsed_types == all_texts
            cells = table if has_all else self._arrow(content, all_texts)[0]
            lines = _first_lines(cells, found, content)
        block = _block_of_rows(table, found, line + lines)
        if is_open:
            text = content.decode().split("\n", lines[-1])[-1]
            block = _with_open_row(block, line + int(lines[-1]), text)
        if not is_utf8:
            block = _undecodable_apart(block)
            block = replace(block, table=block.table.select(list(types)))
        return block

    @property
    def _last_row(self) -> str:
        """Return a row with a cell too many, which ends the content that Arrow parses.

        If Arrow does not find it invalid, it is inside a cell whose quote is not closed.
        """
        return self.layout.separator * len(self.layout.names)

    def _valid_table(self, content: bytes) -> Any:
        """Return the rows of `content`, parsed in threads; None where Arrow finds invalid ones."""
        try:
            table, found = self._arrow(content, self.types, _THREAD_BYTES)
        except pa.ArrowInvalid:  # a row longer than a thread's part
            return None
        return table if [row.text for row in found] == [self._last_row] else None

    def _arrow(
        self, content: bytes, types: Mapping[str, Any], thread_bytes: int | None = None
    ) -> tuple[Any, list[Any]]:
        """Return the valid rows of `content` and `_last_row`, and Arrow's invalid rows.

        With `thread_bytes`, threads parse so many bytes each; invalid rows then have no number.
        """
        found: list[Any] = []

        def skip(row: Any) -> str:
            found.append(row)
            return "skip"

        content += self._last_row.encode()
        table = pyarrow.csv.read_csv(
            pa.BufferReader(content),
            pyarrow.csv.ReadOptions(
                use_threads=thread_bytes is not None,
                column_names=self.layout.names,
                block_size=thread_bytes or len(content) + 1,
            ),
            pyarrow.csv.ParseOptions(
                delimiter=self.layout.separator,
                quote_char='"' if b'"' in content else False,
                newlines_in_values=True,
                invalid_row_handler=skip,
            ),
            pyarrow.csv.ConvertOptions(
                check_utf8=False,  # it is checked already
                column_types=dict(types),
                include_columns=list(types),
                null_values=list(self.missing),
                strings_can_be_null=self.texts_can_be_missing,
            ),
        )
        return table, found

    def _split(self, block: CsvBlock) -> CsvBlock:
        """Return the block of texts with the lines that an open quote has taken read again."""
        blocks, invalid = [block], list[InvalidRow]()
        for row in block.invalid:
            if row.holds_others:
                first, _, behind = row.text.partition("\n")
                cells = next(csv.reader([first], delimiter=self.layout.separator), [])
                is_open = len(cells) == len(self.layout.names)
                fault = RowFault.open_quote if is_open else RowFault.n_cells
                row = InvalidRow(row.line, first, len(cells), fault)
                rest = self._parse(behind.encode(), row.line + 1, self._as_texts())
                blocks.append(self._split(rest))
                invalid += blocks[-1].invalid
            invalid.append(row)
        lines = np.concatenate([part.lines for part in blocks])
        order = np.argsort(lines)
        table = pa.concat_tables([part.table for part in blocks]).take(order)
        return CsvBlock(table, lines[order], tuple(sorted(invalid, key=lambda row: row.line)))


def _block_of_rows(table: Any, found: Sequence[Any], lines: Ints) -> CsvBlock:
    """Return the valid rows, and the invalid ones that Arrow found, the last of them left out.

    `lines` has the line of each row, also of invalid ones.
    """
    is_valid = np.ones(len(lines), dtype=bool)
    is_valid[[row.number - 1 for row in found]] = False
    invalid = tuple(
        InvalidRow(int(lines[row.number - 1]), row.text, row.actual_columns)
        for row in found
        if row.number < len(lines) and (row.actual_columns > 1 or row.text.strip())
    )
    return CsvBlock(table, lines[is_valid], invalid)


def _with_open_row(block: CsvBlock, line: int, text: str) -> CsvBlock:
    """Return the block whose last row, which may be among the valid ones, has an open quote."""
    n_valid = int(np.searchsorted(block.lines, line))
    invalid = (*block.invalid, InvalidRow(line, text, 0, RowFault.open_quote))
    return CsvBlock(block.table.slice(0, n_valid), block.lines[:n_valid], invalid)


def _first_lines(table: Any, found: Sequence[Any], content: bytes) -> Ints:
    """Return the line of `content`, from 0, in which each row begins; blank lines are no rows."""
    n_lines = np.ones(len(table) + len(found), dtype=np.int64)
    is_valid = np.ones(len(n_lines), dtype=bool)
    for row in found:
        is_valid[row.number - 1] = False
        n_lines[row.number - 1] += row.text.count("\n")
    for cells in table.columns:
        if any(_NEWLINE in bytes(chunk.buffers()[2] or b"") for chunk in cells.chunks):
            n_lines[is_valid] += pc.fill_null(pc.count_substring(cells, "\n"), 0).to_numpy()
    if not _BLANK_LINE.search(content):
        return np.append(0, np.cumsum(n_lines)[:-1])
    is_blank = [not line.rstrip(b"\r") for line in content.split(_NEWLINE)[:-1]]
    line, begins = 0, []
    for n in n_lines.tolist():
        while line < len(is_blank) and is_blank[line]:
            line += 1
        begins.append(line)
        line += n
    return np.array(begins, dtype=np.int64)


def _undecodable_apart(block: CsvBlock) -> CsvBlock:
    """Return the block, whose columns are all texts, with rows that are not UTF-8 as invalid."""
    is_bad = np.zeros(len(block.table), dtype=bool)
    for cells in block.table.columns:
        is_bad |= pc.fill_null(pc.match_substring(cells, _NOT_UTF8), False).to_numpy()
    rows = list(block.invalid)
    for i, row in enumerate(rows):
        if _NOT_UTF8 in row.text and row.fault is RowFault.n_cells:
            rows[i] = replace(row, fault=RowFault.encoding)
    rows += [InvalidRow(line, "", 0, RowFault.encoding) for line in block.lines[is_bad].tolist()]
    invalid = tuple(sorted(rows, key=lambda row: row.line))
    return CsvBlock(block.table.filter(pa.array(~is_bad)), block.lines[~is_bad], invalid)


def _without_leading_spaces(content: bytes, separator: str) -> bytes:
    """Return the content without the spaces before cells, behind which Arrow sees no quotes."""
    if b" " not in content:
        return content
    mark = separator.encode()
    letters = np.frombuffer(_NEWLINE + content, dtype=np.uint8)
    begins = np.flatnonzero(letters[1:] == ord(" "))
    begins = begins[np.isin(letters[begins], (ord(mark), ord(_NEWLINE)))]
    if b'"' in content:
        quotes = np.flatnonzero(letters == ord('"'))
        begins = begins[np.searchsorted(quotes, begins) % 2 == 0]
    if not len(begins):
        return content
    pattern = _SPACED_CELL % re.escape(mark)
    return re.sub(pattern, rb"\1\2\3", _NEWLINE + content)[1:]


def _is_utf8(content: bytes) -> bool:
    if content.isascii():
        return True
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True
