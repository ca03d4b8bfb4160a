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
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from automl.data import cells
from automl.data.cells import (
    MISSING_TARGET_TEXTS,
    MISSING_TEXTS,
    are_verbatim,
    loses_digits,
    may_hold_codes,
)
from automl.errors import ConfigError

_PARQUET_MAGIC = b"PAR1"
_MAX_LISTED = 40


@dataclass(frozen=True)
class TableFile:
    """A table on disk, CSV or Parquet. Messages name it by the setting that it came from."""

    key: str
    """The setting that names the file, such as `data.path`."""
    path: Path

    @classmethod
    def at(cls, key: str, path: str) -> TableFile:
        """Return the file at `path`. Raises ConfigError unless it is readable and not empty."""
        file = cls(key, Path(path).expanduser())
        if file.path.is_dir():
            raise file.error("is a folder: name the CSV or Parquet file in it.")
        try:
            n_bytes = file.path.stat().st_size
            file.path.open("rb").close()
        except FileNotFoundError as error:
            raise file.error(
                f"there is no such file ({file.path.absolute()}): check the path."
            ) from error
        except OSError as error:
            raise file.error(f"cannot be read ({error.strerror}): check the file.") from error
        if n_bytes == 0:
            raise file.empty()
        return file

    def error(self, rest: str) -> ConfigError:
        """Return an error whose message is `data.path=x.csv: ` and the rest."""
        return ConfigError(f"{self.key}={self.path}: {rest}")

    def empty(self) -> ConfigError:
        return self.error("is empty: a table needs a header line and rows.")

    @property
    def is_parquet(self) -> bool:
        with self.path.open("rb") as file:
            return file.read(len(_PARQUET_MAGIC)) == _PARQUET_MAGIC

    def column_names(self) -> list[str]:
        """Return the names in the header, without spaces around them. Raises ConfigError."""
        with self.reading():
            names = self.parquet_names() if self.is_parquet else self._csv_header()[0]
        return self._unique(names)

    def separator(self) -> str:
        """Return the separator between the cells of a CSV. Raises ConfigError."""
        with self.reading():
            return self._csv_header()[1]

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
                frame = self._read_csv(names, target, texts=verbatim)
                if detect_verbatim:
                    self._restore_codes(frame, target)
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

    def _csv_header(self) -> tuple[list[str], str]:
        """Return the names in the header of a CSV, and the separator between them."""
        # Rows behind the header are decoded with it. Errors in them are left to their readers.
        with self.path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            position, line = 0, file.readline()
            while line and not line.strip():
                position, line = file.tell(), file.readline()
            absent = "," not in line
            separator = next((s for s in ";\t" if absent and s in line), ",")
            file.seek(position)
            rows = csv.reader(file, delimiter=separator, skipinitialspace=True)
            header = [n.encode(errors="surrogateescape").decode() for n in next(rows, [])]
            if len(first_row := _first_row(rows)) > len(header):
                raise self.error(
                    f"its first row has {len(first_row)} cells and its header {len(header)} names: "
                    "name every column (pandas: to_csv(index=False))."
                )
        return header, separator

    def _restore_codes(self, frame: pd.DataFrame, target: str) -> None:
        """Replace columns by their texts where pandas has made numbers of codes.

        Integers so large that floats do not tell them apart are codes, too.
        """
        suspects = [name for name in frame.columns if frame[name].dtype.kind in "iuf"]
        if not may_hold_codes(self.path, self._csv_header()[1]):
            suspects = [name for name in suspects if loses_digits(frame[name])]
        if not suspects:
            return
        texts = self._read_csv([*frame.columns], target, texts=suspects, only=suspects)
        for name in suspects:
            if are_verbatim(cells.distinct_cells(texts[name])[1]):
                frame[name] = texts[name]

    def _read_csv(
        self,
        names: list[str],
        target: str,
        *,
        texts: Sequence[str] = (),
        only: list[str] | None = None,
    ) -> pd.DataFrame:
        """Return the columns `only`, or all; the columns `texts` stay as they are written."""
        missing = {n: sorted(MISSING_TARGET_TEXTS if n == target else MISSING_TEXTS) for n in names}
        with self.path.open("rb") as file:
            return pd.read_csv(
                file,
                sep=self._csv_header()[1],
                names=names,
                header=0,
                index_col=False,
                usecols=only,
                dtype=dict.fromkeys(texts, str),
                na_values=missing,
                keep_default_na=False,
                skipinitialspace=True,
                low_memory=False,  # one type per column, however long the file is
            )

    def parquet_names(self) -> list[str]:
        """Return the names of a Parquet file's columns, as they are written in the file."""
        import pyarrow.parquet as pq

        schema = pq.read_schema(self.path)
        # pandas keeps its row labels beside the columns; `read_parquet` shows them as no column.
        labels = (schema.pandas_metadata or {}).get("index_columns", [])
        return [name for name in schema.names if name not in labels]

    def _read_parquet(self) -> pd.DataFrame:
        import pyarrow.parquet as pq

        # Dates come as times, not as objects.
        table = pq.ParquetFile(self.path).read(columns=self.parquet_names())
        frame: pd.DataFrame = table.to_pandas(ignore_metadata=True, date_as_object=False)
        return frame

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
        import pyarrow as pa

        try:
            yield
        except UnicodeDecodeError as error:
            raise self.error(self._other_encoding()) from error
        except (pd.errors.ParserError, pd.errors.EmptyDataError, csv.Error) as error:
            reason = str(error).strip().removeprefix("Error tokenizing data. C error: ")
            raise self.error(f"is no proper CSV ({reason}): mend that place.") from error
        except pa.ArrowException as error:
            reason = str(error).splitlines()[0]
            raise self.error(f"is no proper Parquet ({reason}): write it again.") from error
        except OSError as error:
            raise self.error(f"cannot be read ({error}): check the file.") from error


def _first_row(rows: Iterator[list[str]]) -> list[str]:
    """Return the first row behind the header, or no cell where there is none.

    A row with a cell longer than Python's csv reads counts as none: pandas reads it.
    """
    try:
        return next(rows, [])
    except csv.Error:
        return []
