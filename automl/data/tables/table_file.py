"""Reads a CSV or Parquet file whole into a DataFrame, or raises ConfigError naming the fault.

A file is Parquet if it begins with Parquet's magic bytes, else CSV: UTF-8, a header line, cells
separated by commas (semicolons or tabs where the header holds no comma). Files of any size are read
in `chunked_table.py`.
"""

from __future__ import annotations

import codecs
import csv
import difflib
import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from automl.data.cells import MISSING_TARGET_TEXTS, MISSING_TEXTS, are_verbatim
from automl.data.tables.csv_reader import CsvBlock, CsvLayout, CsvReader, RowFault
from automl.data.tables.named_file import NamedFile
from automl.errors import ConfigError
from automl.record.texts import parse_json

_PARQUET_MAGIC = b"PAR1"
_MAX_LISTED = 40
_SWEEP_BLOCK_BYTES = 8 * 2**20
"""Bytes of a CSV that are parsed at once, in threads."""


@dataclass(frozen=True)
class TableFile(NamedFile):
    """A table on disk, CSV or Parquet."""

    @property
    def is_parquet(self) -> bool:
        with self.path.open("rb") as file:
            return file.read(len(_PARQUET_MAGIC)) == _PARQUET_MAGIC

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
                    f"column names must differ, and {name!r} stands {count} times in the header: "
                    "rename or remove the others."
                )
        return unique

    def _no_target(self, target: str, names: Sequence[str]) -> ConfigError:
        close = [name for name in names if name.casefold() == target.casefold()]
        close += difflib.get_close_matches(target, names, n=1, cutoff=0.5)
        listed = ", ".join(names[:_MAX_LISTED])
        more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
        hint = f" Did you mean {close[0]!r}?" if close else ""
        return ConfigError(
            f"data.target={target}: must be a column of {self.key}={self.path}.{hint} "
            f"Its columns: {listed}{more}."
        )

    def csv_layout(self) -> CsvLayout:
        """Return how the rows of a CSV are read, by its header. Raises ConfigError."""
        with self.reading():
            layout = self._csv_layout()
        return replace(layout, names=self._unique(layout.names))

    def _csv_layout(self) -> CsvLayout:
        # Rows behind the header are decoded with it. Errors in them are left to their readers.
        with self.path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            n_blank, position, line = 0, 0, file.readline()
            while line and not line.strip():
                n_blank, position, line = n_blank + 1, file.tell(), file.readline()
            absent = "," not in line
            separator = next((s for s in ";\t" if absent and s in line), ",")
            file.seek(position)
            rows = csv.reader(file, delimiter=separator, skipinitialspace=True)
            header = [n.encode(errors="surrogateescape").decode() for n in next(rows, [])]
            n_lines = n_blank + rows.line_num
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
        texts = self._csv_texts(layout, layout.names, MISSING_TEXTS)
        if texts[target].null_count:  # some of these words may be the names of classes
            texts |= self._csv_texts(layout, [target], MISSING_TARGET_TEXTS)

        def cells(name: str) -> pd.Series[Any]:
            column = texts.pop(name)
            if name in verbatim:
                found: pd.Series[Any] = column.to_pandas()
                return found
            return _typed_cells(column, keeps_codes=detect_verbatim)

        with ThreadPoolExecutor(thread_name_prefix="reading") as pool:
            columns = dict(zip(layout.names, pool.map(cells, layout.names), strict=True))
        return pd.DataFrame(columns, copy=False)

    def _csv_texts(
        self, layout: CsvLayout, names: Sequence[str], missing: frozenset[str]
    ) -> dict[str, Any]:
        """Return columns of a CSV as Arrow's texts, in which missing ones are null."""
        types = dict.fromkeys(names, pa.string())
        reader = CsvReader(layout, types, sorted(missing), texts_can_be_missing=True)
        parts: dict[str, list[Any]] = {name: [] for name in names}
        for block in reader.blocks(self.path, _SWEEP_BLOCK_BYTES):
            for name, column in zip(
                names, self._with_short_rows(block, reader).columns, strict=True
            ):
                parts[name] += column.chunks
        return {name: pa.chunked_array(parts[name], pa.string()) for name in names}

    def _with_short_rows(self, block: CsvBlock, reader: CsvReader) -> Any:
        """Return the rows of a block; those with too few cells have empty ones at their end.

        Raises ConfigError for a row that is invalid for another reason.
        """
        names = reader.layout.names
        texts = []
        for row in block.invalid:
            if row.fault is RowFault.encoding:
                raise self.error(self._other_encoding())
            if row.fault is RowFault.open_quote or row.n_cells > len(names):
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

        table = pq.ParquetFile(self.path).read(columns=self.parquet_names())
        return parquet_to_frame(table)

    def _other_encoding(self) -> str:
        """Return the message about a text that is not UTF-8, by its first bytes."""
        with self.path.open("rb") as file:
            is_utf16 = file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
        kind, encoding = ("UTF-16", "UTF-16") if is_utf16 else ("not UTF-8", "LATIN1")
        return (
            f"is {kind} text: save it as UTF-8, for example with "
            f"iconv -f {encoding} -t UTF-8 {self.path.name} > utf8.csv (or give Parquet)."
        )

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Turn errors of the libraries about a bad file into ConfigError."""
        try:
            yield
        except UnicodeDecodeError as error:
            raise self.error(self._other_encoding()) from error
        except csv.Error as error:
            raise self.error(f"is no proper CSV ({error}): mend that place.") from error
        except pa.ArrowException as error:
            reason = str(error).splitlines()[0]
            kind = "Parquet" if self.is_parquet else "CSV"
            raise self.error(f"is no proper {kind} ({reason}): write it again.") from error
        except OSError as error:
            raise self.error(f"cannot be read ({error}): check the file.") from error


def parquet_to_frame(rows: pa.Table | pa.RecordBatch) -> pd.DataFrame:
    """Return rows of a Parquet file; dates come as times, not as objects.

    What pandas has noted beside them may be damaged, and pandas reads even what it ignores.
    """
    bare = rows.replace_schema_metadata()
    frame: pd.DataFrame = bare.to_pandas(ignore_metadata=True, date_as_object=False)
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
"""Number of cells by which it is seen whether a whole column is worth converting."""


def _typed_cells(texts: Any, *, keeps_codes: bool) -> pd.Series[Any]:
    """Return the cells of a column: numbers or truth values if all are, else texts.

    `texts` is a chunked Arrow array. With `keeps_codes`, a column that holds codes stays texts.
    """
    for convert in (_integers, _floats, _truths):
        if convert(texts.slice(0, _N_TRIED)) is None:
            continue
        found = convert(texts)
        if found is not None:
            cells: pd.Series[Any] = found.to_pandas()
            if not keeps_codes or convert is _truths or not _holds_codes(texts, cells):
                return cells
            break
    return pd.Series(texts.to_pandas())


def _integers(texts: Any) -> Any:
    """Return integers as an Arrow array, or None for other texts."""
    if any(b"x" in bytes(chunk.buffers()[2] or b"").lower() for chunk in texts.chunks):
        return None  # Arrow reads hexadecimal integers
    for kind in (pa.int64(), pa.uint64()):
        try:
            return pc.cast(texts, kind)
        except pa.ArrowInvalid:
            continue
    plain = pc.utf8_trim_whitespace(pc.utf8_ltrim(texts, "+"))  # neither of which Arrow reads
    return None if plain.equals(texts) else _integers(plain)


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


def _holds_codes(texts: Any, numbers: pd.Series[Any]) -> bool:
    """Return whether a column of numbers holds codes (`cells.are_verbatim`).

    Integers so large that floats do not tell them apart are codes, too.
    """
    if numbers.dtype.kind == "f" and bool((numbers.abs().to_numpy() >= _LARGEST_EXACT).any()):
        return are_verbatim(texts.unique().to_pylist())
    return any(are_verbatim(_cells_like_codes(chunk)) for chunk in texts.chunks)


def _cells_like_codes(texts: Any) -> list[str]:
    """Return the cells that begin with a zero before a digit, or with a plus."""
    _, offset_bytes, letter_bytes = texts.buffers()
    offsets = np.frombuffer(offset_bytes, np.int32)[texts.offset :][: len(texts) + 1]
    letters = np.frombuffer(letter_bytes or b"", np.uint8)
    places = np.flatnonzero(np.diff(offsets) > 1)
    first = letters[offsets[places]]
    is_signed = (first == ord("-")) | (first == ord("+"))
    begins = offsets[places] + is_signed
    has_two = begins + 1 < offsets[places + 1]
    begins, is_plus, places = begins[has_two], (first == ord("+"))[has_two], places[has_two]
    is_padded = (letters[begins] == ord("0")) & (letters[begins + 1] - np.uint8(ord("0")) < 10)
    cells: list[str] = texts.take(pa.array(places[is_padded | is_plus])).to_pylist()
    return cells
