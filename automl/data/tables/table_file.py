"""Reads a CSV or Parquet file whole into a DataFrame, or raises ConfigError naming the fault.

A file is Parquet if it begins with Parquet's magic bytes, else CSV: UTF-8, a header line, cells
separated by commas (semicolons, tabs or bars where the header holds no comma, or what a first line
`sep=;` says). It may be compressed. `file_kinds.py` names all other kinds. Files of any size are
read in `chunked_table.py`.
"""

from __future__ import annotations

import csv
import difflib
import hashlib
import io
import lzma
import math
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from automl.data.cells import MISSING_TARGET_TEXTS, MISSING_TEXTS, are_verbatim, cut_text
from automl.data.tables.csv_reader import (
    LONGEST_ROW_BYTES,
    CsvBlock,
    CsvLayout,
    CsvReader,
    RowFault,
)
from automl.data.tables.file_kinds import (
    PARQUET_MAGIC,
    compression_of,
    encoding_remedy,
    open_uncompressed,
    other_kind,
)
from automl.data.tables.named_file import NamedFile
from automl.devices.device_reading import DeviceReadError
from automl.devices.host import host_memory
from automl.errors import ConfigError
from automl.record.texts import fit_line, parse_json

_MAX_LISTED = 40
_SEPARATOR_LINE = re.compile(r'"?sep=([^\w\s"]|\t)"?\s*', re.IGNORECASE)
"""The first line with which Excel names the separator."""
_SWEEP_BLOCK_BYTES = 8 * 2**20
"""Bytes of a CSV that are parsed at once, in threads."""
_FIRST_ROWS = 1000
"""Number of rows of a Parquet file from which the size of all is estimated."""
_MEMORY_FACTOR = 3
"""Memory that a table takes while it is read and prepared, in sizes of its cells in Arrow."""


@dataclass(frozen=True)
class TableFile(NamedFile):
    """A table on disk, CSV or Parquet."""

    @property
    def is_parquet(self) -> bool:
        with self.path.open("rb") as file:
            return file.read(len(PARQUET_MAGIC)) == PARQUET_MAGIC

    def column_names(self) -> list[str]:
        """Return the names in the header, without spaces around them. Raises ConfigError."""
        with self.reading():
            names = self.parquet_names() if self.is_parquet else self._csv_layout().names
        return self._unique(names)

    def check_target(self, target: str) -> list[str]:
        """Return the column names. Raises ConfigError where the target is not among them."""
        names = self.column_names()
        if target not in names:
            raise self._no_target(target, names)
        return names

    def digest(self) -> str:
        """Return the SHA-256 of the file, in hex."""
        with self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def read(
        self, target: str, *, detect_verbatim: bool = False, verbatim: Sequence[str] = ()
    ) -> pd.DataFrame:
        """Return all rows and columns. Raises ConfigError for a file that is no table.

        Cells in a CSV's columns `verbatim`, and with `detect_verbatim` in all columns that hold
        codes (`cells.py`), stay texts as they are written.
        """
        names = self.check_target(target)
        with self.reading():
            if self.is_parquet:
                frame = self._read_parquet()
            else:
                frame = self._read_csv(target, detect_verbatim=detect_verbatim, verbatim=verbatim)
        frame.columns = pd.Index(names)
        if not len(frame):
            raise self.error("has a header and no rows: a table needs some.")
        return frame

    def _unique(self, names: Sequence[str]) -> list[str]:
        if not names:
            raise self.empty()
        # A column without a name gets the one that pandas gives it.
        unique = [name.strip() or f"Unnamed: {i}" for i, name in enumerate(names)]
        for name, count in Counter(unique).items():
            if count > 1:
                raise self.error(
                    f"column names must differ, and {cut_text(name)!r} stands {count} times in "
                    "the header: rename or remove the others."
                )
        return unique

    def _no_target(self, target: str, names: Sequence[str]) -> ConfigError:
        close = [name for name in names if name.casefold() == target.casefold()]
        shown = [*map(cut_text, names)]
        close += difflib.get_close_matches(target, shown, n=1, cutoff=0.5)
        hint = f" Did you mean {cut_text(close[0])!r}?" if close else ""
        return ConfigError(
            f"data.target={target}: must be a column of {self.key}={self.path}.{hint} "
            f"Its columns: {shown_names(names)}."
        )

    def csv_layout(self) -> CsvLayout:
        """Return how the rows of a CSV are read, by its header. Raises ConfigError."""
        with self.reading():
            layout = self._csv_layout()
        return replace(layout, names=self._unique(layout.names))

    def _csv_layout(self) -> CsvLayout:
        if (kind := other_kind(self.path)) is not None:
            raise self.error(kind)
        # Rows behind the header are decoded with it. Errors in them are left to their readers.
        with (
            open_uncompressed(self.path) as (held, _),
            io.TextIOWrapper(held, "utf-8-sig", "surrogateescape", newline="") as text,
        ):
            lines = _lines(text)
            n_before, separator, line = 0, "", next(lines, "")
            if said := _SEPARATOR_LINE.fullmatch(line):
                n_before, separator, line = 1, said[1], next(lines, "")
            while line and not line.strip():
                n_before, line = n_before + 1, next(lines, "")
            separator = separator or _separator(line)
            rows = csv.reader(chain([line], lines), delimiter=separator, skipinitialspace=True)
            header = [n.encode(errors="surrogateescape").decode() for n in next(rows, [])]
            n_lines = n_before + rows.line_num
            if len(first_row := _first_row(rows)) > len(header):
                raise self.error(
                    f"its first row has {len(first_row)} cells and its header {len(header)} names: "
                    "name every column (pandas: to_csv(index=False))."
                )
        return CsvLayout(header, separator, n_lines, has_bare_returns=line.endswith("\r"))

    def _read_csv(
        self, target: str, *, detect_verbatim: bool, verbatim: Sequence[str]
    ) -> pd.DataFrame:
        layout = self.csv_layout()
        read = {
            name: _ColumnBlocks(keeps_codes=detect_verbatim, stays_text=name in verbatim)
            for name in layout.names
        }
        with ThreadPoolExecutor(thread_name_prefix="reading") as pool:
            for block in self._csv_blocks(layout, layout.names, MISSING_TEXTS):
                for _ in pool.map(_ColumnBlocks.add, read.values(), block.columns):
                    pass  # raises what a thread has raised
        columns = {name: blocks.cells() for name, blocks in read.items()}
        again = [name for name, cells in columns.items() if cells is None and name != target]
        texts = self._csv_texts(layout, again, MISSING_TEXTS) if again else {}
        if read[target].has_missing:  # some of these words may be the names of classes
            texts |= self._csv_texts(layout, [target], MISSING_TARGET_TEXTS)
        elif columns[target] is None:
            texts |= self._csv_texts(layout, [target], MISSING_TEXTS)
        for name, column in texts.items():
            columns[name] = (
                column.to_pandas()
                if name in verbatim
                else _typed_cells(column, keeps_codes=detect_verbatim)
            )
        return pd.DataFrame(columns, copy=False)

    def _csv_texts(
        self, layout: CsvLayout, names: Sequence[str], missing: frozenset[str]
    ) -> dict[str, Any]:
        """Return columns of a CSV as Arrow's texts, in which missing ones are null."""
        parts: dict[str, list[Any]] = {name: [] for name in names}
        for block in self._csv_blocks(layout, names, missing):
            for name, column in zip(names, block.columns, strict=True):
                parts[name] += column.chunks
        return {name: pa.chunked_array(parts[name], pa.string()) for name in names}

    def _csv_blocks(
        self, layout: CsvLayout, names: Sequence[str], missing: frozenset[str]
    ) -> Iterator[Any]:
        """Yield tables of consecutive rows of a CSV, with these columns as Arrow's texts, in which
        missing ones are null."""
        types = dict.fromkeys(names, pa.string())
        reader = CsvReader(layout, types, sorted(missing), texts_can_be_missing=True)
        is_packed, size = compression_of(self.path) is not None, self.path.stat().st_size
        free, held_bytes = _free_bytes(), 0
        for block in reader.blocks(self.path, _SWEEP_BLOCK_BYTES):
            table = self._with_short_rows(block, reader)
            held_bytes += table.nbytes
            # How much a compressed file holds is not known before its end.
            self._check_room(held_bytes if is_packed else held_bytes / block.n_bytes * size, free)
            yield table

    def _with_short_rows(self, block: CsvBlock, reader: CsvReader) -> Any:
        """Return the rows of a block; those with too few cells have empty ones at their end.

        Raises ConfigError for a row that is invalid for another reason.
        """
        names = reader.layout.names
        texts = []
        for row in block.invalid:
            if row.fault is RowFault.encoding:
                raise self.error(encoding_remedy(self.path))
            if row.fault is not RowFault.n_cells or row.n_cells > len(names):
                raise self.error(
                    f"is no proper CSV (line {row.line}: {row.reason(names)}): mend that place."
                )
            texts.append(row.text + reader.layout.separator * (len(names) - row.n_cells))
        if not texts:
            return block.table
        filled = reader.table_of("\n".join(texts))
        lines = [*block.lines.tolist(), *(row.line for row in block.invalid)]
        return pa.concat_tables([block.table, filled]).take(np.argsort(lines))

    def parquet_names(self) -> list[str]:
        """Return the names of a Parquet file's columns, as they are written in the file."""
        import pyarrow.parquet as pq

        schema = pq.read_schema(self.path)
        # pandas keeps its row labels beside the columns; `read_parquet` shows them as no column.
        try:
            pandas = parse_json((schema.metadata or {}).get(b"pandas", b"{}"))
            labels = [*pandas["index_columns"]]
        except KeyError:
            labels = []
        except (ValueError, TypeError) as error:
            raise self.error(f"is no proper Parquet ({error}): write it again.") from error
        return [name for name in schema.names if name not in labels]

    def _read_parquet(self) -> pd.DataFrame:
        import pyarrow.parquet as pq

        file, names = pq.ParquetFile(self.path), self.parquet_names()
        facts, free = file.metadata, _free_bytes()
        self._check_room(sum(group.total_byte_size for group in _row_groups(facts)), free)
        for first in file.iter_batches(_FIRST_ROWS, columns=names):
            self._check_room(first.nbytes / max(1, len(first)) * facts.num_rows, free)
            break
        return parquet_to_frame(file.read(columns=names))

    def only_value(self, name: str) -> object:
        """Return the one value of a Parquet file's column, by its footer; None: it has others, or
        the footer does not say."""
        import pyarrow.parquet as pq

        with self.reading():
            if not self.is_parquet:
                return None
            place = self.column_names().index(name)
            own, facts = self.parquet_names()[place], pq.read_metadata(self.path)
            values = set[object]()
            for group in _row_groups(facts):
                chunks = (group.column(i) for i in range(group.num_columns))
                found = next((c.statistics for c in chunks if c.path_in_schema == own), None)
                if found is None or not found.has_min_max or found.null_count:
                    return None
                values |= {found.min, found.max}
        return values.pop() if len(values) == 1 else None

    def _check_room(self, table_bytes: float, free_bytes: float) -> None:
        """Raise ConfigError for a table that cannot be read into free memory."""
        needed = _MEMORY_FACTOR * table_bytes
        if needed > free_bytes:
            raise self.error(
                f"needs about {_gib(needed)} of memory as a table, and {_gib(free_bytes)} are "
                "free: give fewer rows or columns, or start where more is free."
            )

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Turn errors of the libraries about a bad file into ConfigError."""
        try:
            yield
        except UnicodeDecodeError as error:
            raise self.error(encoding_remedy(self.path)) from error
        except csv.Error as error:
            raise self.error(f"is no proper CSV ({error}): mend that place.") from error
        except MemoryError as error:
            raise self.error(
                "needs more memory than is free: give fewer rows or columns, or start where more "
                "is free."
            ) from error
        except pa.ArrowException as error:
            kind = "Parquet" if self.is_parquet else "CSV"
            raise self.error(
                f"is no proper {kind} ({fit_line(str(error))}): write it again."
            ) from error
        except (EOFError, lzma.LZMAError, zlib.error) as error:
            raise self.error(f"is compressed and damaged ({error}): write it again.") from error
        except OSError as error:
            raise self.error(f"cannot be read ({error}): check the file.") from error


def _row_groups(facts: Any) -> Iterator[Any]:
    """Yield the facts in the footer of a Parquet file about each group of rows."""
    return (facts.row_group(number) for number in range(facts.num_row_groups))


def _free_bytes() -> float:
    """Return the memory that a table may take; without limit where it cannot be read."""
    try:
        return host_memory()[1]
    except DeviceReadError:
        return math.inf


def _gib(n_bytes: float) -> str:
    return f"{n_bytes / 2**30:.2g} GiB"


def shown_names(names: Sequence[str]) -> str:
    """Return the first names, for a message, and how many more there are."""
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return ", ".join(map(cut_text, names[:_MAX_LISTED])) + more


def _lines(text: io.TextIOWrapper) -> Iterator[str]:
    """Yield the lines of a text. Raises csv.Error for one that is longer than a row may be."""
    while line := text.readline(LONGEST_ROW_BYTES):
        if len(line) == LONGEST_ROW_BYTES:
            raise csv.Error(f"a line is longer than {LONGEST_ROW_BYTES // 2**20} MiB")
        yield line


def _separator(header: str) -> str:
    """Return the separator of a header line: a comma, or where it has none outside quotes another
    mark."""
    bare = re.sub(r'"[^"]*"', "", header)
    return next((s for s in ",;\t|" if s in bare), ",")


def parquet_to_frame(rows: pa.Table | pa.RecordBatch) -> pd.DataFrame:
    """Return rows of a Parquet file; dates come as times, not as objects.

    The metadata that pandas has stored with them may be damaged, and pandas reads even the part
    that it ignores.
    """
    bare = rows.replace_schema_metadata()
    # Blocks of several columns would be a second copy of the table.
    frame: pd.DataFrame = bare.to_pandas(
        ignore_metadata=True, date_as_object=False, split_blocks=True
    )
    return frame


def _first_row(rows: Iterator[list[str]]) -> list[str]:
    """Return the first row behind the header, or no cell where there is none.

    A row with a cell longer than Python's csv reads counts as none: Arrow reads it.
    """
    try:
        return next(rows, [])
    except csv.Error:
        return []


_TRUE, _FALSE = ("True", "TRUE", "true"), ("False", "FALSE", "false")
_LARGEST_EXACT = 2.0**53
_N_TRIED = 100
"""Number of cells that show whether a whole column is worth converting."""


class _ColumnBlocks:
    """Makes cells of a column's texts block by block, so that not all texts are in memory at once.

    The cells are those that `_typed_cells` makes of all blocks together. Where a block does not fit
    the blocks before it, or holds codes, the column is given up, and has to be read again.
    """

    def __init__(self, *, keeps_codes: bool, stays_text: bool) -> None:
        self.has_missing = False
        self._keeps_codes = keeps_codes
        self._convert: Callable[[Any], Any] | None = _as_texts if stays_text else None
        self._is_given_up = False
        self._chunks: list[Any] = []

    def add(self, texts: Any) -> None:
        """Add the texts of the next block, a chunked Arrow array."""
        self.has_missing |= texts.null_count > 0
        if self._is_given_up:
            return
        if self._convert is None:
            self._convert, cells = _first_conversion(texts)
        else:
            cells = self._convert(texts)
        may_be_codes = self._keeps_codes and self._convert in (_integers, _floats)
        has_codes = may_be_codes and cells is not None and _has_code_cells(texts)
        if cells is None or cells.type == pa.uint64() or has_codes:
            self._is_given_up, self._chunks = True, []
        else:
            self._chunks += cells.chunks

    def cells(self) -> pd.Series[Any] | None:
        """Return the cells of all blocks; None: the column was given up."""
        if self._chunks:
            column = pa.chunked_array(self._chunks)
            self._chunks = []
            found: pd.Series[Any] = pd.Series(column.to_pandas())
            # All blocks together may have gaps between integers, which makes floats of them.
            if not (self._keeps_codes and _has_large_floats(found)):
                return found
        return None


def _first_conversion(texts: Any) -> tuple[Callable[[Any], Any], Any]:
    """Return the first conversion that takes all texts, and the cells that it makes of them."""
    for convert in _CONVERSIONS:
        if convert(texts.slice(0, _N_TRIED)) is None:
            continue
        cells = convert(texts)
        if cells is not None:
            return convert, cells
    return _as_texts, texts


def _as_texts(texts: Any) -> Any:
    return texts


def _typed_cells(texts: Any, *, keeps_codes: bool) -> pd.Series[Any]:
    """Return the cells of a column: numbers or truth values if all are, else texts.

    `texts` is a chunked Arrow array. With `keeps_codes`, a column that holds codes stays texts.
    """
    convert, found = _first_conversion(texts)
    cells = pd.Series(found.to_pandas())
    may_be_codes = keeps_codes and convert in (_integers, _floats)
    return pd.Series(texts.to_pandas()) if may_be_codes and _holds_codes(texts, cells) else cells


def _integers(texts: Any) -> Any:
    """Return integers as an Arrow array, or None for other texts."""
    for kind in (pa.int64(), pa.uint64()):
        try:
            cells = pc.cast(texts, kind)
        except pa.ArrowInvalid:
            continue
        return None if _holds_hexadecimal(texts) else cells
    plain = pc.utf8_trim_whitespace(pc.utf8_ltrim(texts, "+"))  # neither of which Arrow reads
    return None if plain.equals(texts) else _integers(plain)


def _holds_hexadecimal(texts: Any) -> bool:
    """Return whether integers among the texts are hexadecimal, which Arrow reads, too."""
    return any(b"x" in bytes(chunk.buffers()[2] or b"").lower() for chunk in texts.chunks)


def _floats(texts: Any) -> Any:
    """Return numbers as an Arrow array, or None for other texts."""
    try:
        numbers = pc.cast(texts, pa.float64())
    except pa.ArrowInvalid:
        trimmed = pc.utf8_trim_whitespace(texts)
        return None if trimmed.equals(texts) else _floats(trimmed)
    return None if pc.any(pc.is_nan(numbers)).as_py() else numbers  # Arrow reads NAN, too


def _truths(texts: Any) -> Any:
    """Return truth values as an Arrow array, or None for other texts."""
    if not pc.all(pc.is_in(texts, pa.array([*_TRUE, *_FALSE, None]))).as_py():
        return None
    return pc.if_else(texts.is_null(), None, pc.is_in(texts, pa.array(_TRUE)))


_CONVERSIONS = (_integers, _floats, _truths)


def _holds_codes(texts: Any, numbers: pd.Series[Any]) -> bool:
    """Return whether a column of numbers holds codes (`cells.are_verbatim`).

    Integers so large that floats do not tell them apart are codes, too.
    """
    if _has_large_floats(numbers):
        return are_verbatim(texts.unique().to_pylist())
    return _has_code_cells(texts)


def _has_large_floats(cells: pd.Series[Any]) -> bool:
    """Return whether cells are floats so large that different integers may be the same."""
    is_float = cells.dtype.kind == "f"
    return is_float and bool((cells.abs().to_numpy() >= _LARGEST_EXACT).any())


def _has_code_cells(texts: Any) -> bool:
    return any(are_verbatim(_cells_like_codes(chunk)) for chunk in texts.chunks)


def _cells_like_codes(texts: Any) -> list[str]:
    """Return the cells that begin with a zero before a digit, or with a plus."""
    _, offset_bytes, letter_bytes = texts.buffers()
    offsets = np.frombuffer(offset_bytes, np.int32)[texts.offset :][: len(texts) + 1]
    letters = np.frombuffer(letter_bytes or b"", np.uint8)
    if not len(letters):
        return []
    begins, ends = offsets[:-1], offsets[1:]
    first = letters.take(begins, mode="clip")  # the last cells may be empty
    is_plus = first == ord("+")
    begins = begins + (is_plus | (first == ord("-")))
    is_digit = letters.take(begins + 1, mode="clip") - np.uint8(ord("0")) < 10
    is_padded = (letters.take(begins, mode="clip") == ord("0")) & is_digit
    places = np.flatnonzero((is_padded | is_plus) & (begins + 1 < ends))
    cells: list[str] = texts.take(pa.array(places)).to_pylist()
    return cells
