"""Recognises the kind of a file by its first bytes, and opens the content of compressed files.

Names of files say nothing here. `table_file.py` reads CSV and Parquet; all other kinds are named
with the remedy.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import zipfile
from collections.abc import Callable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator

PARQUET_MAGIC = b"PAR1"
_N_PEEKED = 512
"""Bytes at the beginning of a file that tell its kind."""


def _open_zstd(file: BinaryIO) -> BinaryIO:
    stream: Any = pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd")
    return io.BufferedReader(stream)


@dataclass(frozen=True)
class Compression:
    """A way in which whole files are compressed."""

    name: str
    command: str
    """The program whose options `-dc` write what a file holds."""
    open: Callable[[BinaryIO], Any]
    """Opens the content of a file of this kind."""


_COMPRESSIONS: Mapping[bytes, Compression] = {
    b"\x1f\x8b": Compression("gzip", "gzip", lambda file: gzip.GzipFile(fileobj=file)),
    b"BZh": Compression("bzip2", "bzip2", bz2.BZ2File),
    b"\xfd7zXZ\x00": Compression("xz", "xz", lzma.LZMAFile),
    b"\x28\xb5\x2f\xfd": Compression("zstd", "zstd", _open_zstd),
}


@contextmanager
def open_uncompressed(path: Path) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Open the content of a file, and the file itself, whose position tells how much is read."""
    with path.open("rb") as file:
        compression = _compression(file)
        if compression is None:
            yield file, file
            return
        with compression.open(file) as held:
            yield held, file


def compression_of(path: Path) -> Compression | None:
    """Return how a file is compressed; None: it is not."""
    with path.open("rb") as file:
        return _compression(file)


def _compression(file: Any) -> Compression | None:
    head = file.peek(_N_PEEKED)
    return next((c for magic, c in _COMPRESSIONS.items() if head.startswith(magic)), None)


_KINDS: tuple[tuple[bytes, str, str], ...] = (
    (b"ARROW1", "a Feather file (Arrow)", "read_feather"),
    (b"FEA1", "a Feather file", "read_feather"),
    (b"ORC", "an ORC file", "read_orc"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an Excel workbook", "read_excel"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file", "read_hdf"),
    (b"<stata_dta>", "a Stata file", "read_stata"),
    (b"$FL2", "an SPSS file", "read_spss"),
    (bytes(12) + b"\xc2\xea\x81\x60", "a SAS file", "read_sas"),
    (b"SQLite format 3\x00", "an SQLite database", ""),
    (b"\x93NUMPY", "an array of NumPy", ""),
    (b"\x80\x02", "a pickle", ""),
    (b"\x80\x03", "a pickle", ""),
    (b"\x80\x04", "a pickle", ""),
    (b"\x80\x05", "a pickle", ""),
    (b"Obj\x01", "an Avro file", ""),
    (b"PARE", "an encrypted Parquet file", ""),
    (b"RDX", "a file of R", ""),
    (b"X\n\x00\x00\x00", "a file of R", ""),
    (b"%PDF", "a PDF", ""),
    (b"\x89PNG", "an image", ""),
    (b"\xff\xd8\xff", "an image", ""),
)
"""First bytes of kinds of files that are not read, the kind, and the function of pandas that reads
it."""
_ARCHIVES: tuple[tuple[int, bytes, str, str], ...] = (
    (257, b"ustar", "a tar archive", "tar -xf"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive", "7z x"),
    (0, b"Rar!", "a RAR archive", "unrar x"),
    (0, b"\x04\x22\x4d\x18", "compressed by LZ4", "lz4 -d"),
    (0, b"\x1f\x9d", "compressed by compress", "uncompress -c"),
)
"""Position and bytes that identify archives, their kind, and the command that unpacks them."""


def other_kind(path: Path) -> str | None:
    """Return what a file is that is no CSV, and what to do, for a message; None: it may be one.

    Raises OSError.
    """
    compression = compression_of(path)
    with open_uncompressed(path) as (file, _):
        head = file.peek(_N_PEEKED)[: 2 * _N_PEEKED]  # type: ignore[attr-defined]
    name, packed = path.name, "" if compression is None else f", compressed by {compression.name}"
    if compression is not None and head.startswith(PARQUET_MAGIC):
        kind, remedy = "a Parquet file", f"{compression.command} -dc {name} > table.parquet"
    elif head.startswith(b"PK\x03\x04"):
        kind, remedy = _kind_of_zip(path)
    elif found := next((a for a in _ARCHIVES if head[a[0] :].startswith(a[1])), None):
        kind, remedy = found[2], f"{found[3]} {name}"
    elif known := next((k for k in _KINDS if head.startswith(k[0])), None):
        kind, remedy = known[1], _pandas_remedy(known[2], name)
    elif other_encoding(head) != "LATIN1":
        return encoding_remedy(path)
    elif (text := _kind_of_text(head)) is not None:
        kind, remedy = text, _pandas_remedy({"JSON": "read_json"}.get(text, ""), name)
    else:
        return None
    return f"is {kind}{packed}, and CSV and Parquet are read: {remedy}"


def _pandas_remedy(reader: str, name: str) -> str:
    if not reader:
        return "write the table as one of these where it was made."
    return f'in Python, pandas.{reader}({name!r}).to_parquet("table.parquet") makes one.'


def _kind_of_zip(path: Path) -> tuple[str, str]:
    """Return the kind of a zip file, which may be a workbook, and the remedy."""
    names: list[str] = []
    with suppress(zipfile.BadZipFile, OSError), zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    if any(name.startswith("xl/") for name in names):
        return "an Excel workbook", _pandas_remedy("read_excel", path.name)
    if "content.xml" in names:
        return "an OpenDocument file", _pandas_remedy("read_excel", path.name)
    if any(name.endswith(".npy") for name in names):
        return "a file of arrays of NumPy", _pandas_remedy("", path.name)
    return "a zip archive", f"unzip {path.name} and name the file in it."


def _kind_of_text(head: bytes) -> str | None:
    """Return the kind of a text that is no CSV, by its first bytes; None: it may be a CSV."""
    text = head.removeprefix(codecs.BOM_UTF8).lstrip().lower()
    if text.startswith((b"<?xml", b"<!doctype", b"<html", b"<table")):
        return "XML or HTML"
    if text[:1] in (b"{", b"[") and text[1:].lstrip()[:1] in (b'"', b"{", b"[", b"}", b"]"):
        return "JSON"
    return "no text (its first line has NUL bytes)" if b"\x00" in head.partition(b"\n")[0] else None


def other_encoding(head: bytes) -> str:
    """Return the encoding, as iconv calls it, of a text that is not UTF-8, by its first bytes."""
    if head.startswith((codecs.BOM_UTF32_LE, b"\x00\x00\xfe\xff")):
        return "UTF-32"
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "UTF-16"
    # Western letters have a byte 0 each in UTF-16.
    even, odd = head[: len(head) & ~1 : 2], head[1::2]
    if odd and not any(odd) and all(even):
        return "UTF-16LE"
    return "UTF-16BE" if even and not any(even) and all(odd) else "LATIN1"


def encoding_remedy(path: Path) -> str:
    """Return, for a message, what is wrong with a text that is not UTF-8, and what to do."""
    with open_uncompressed(path) as (file, _):
        encoding = other_encoding(file.peek(_N_PEEKED)[:_N_PEEKED])  # type: ignore[attr-defined]
    kind, compression = encoding, compression_of(path)
    if encoding == "LATIN1":
        kind = "not UTF-8"
    convert, name = f"iconv -f {encoding} -t UTF-8", path.name
    command = f"{convert} {name}"
    if compression is not None:
        command = f"{compression.command} -dc {name} | {convert}"
    return (
        f"is {kind} text: save it as UTF-8, for example with {command} > utf8.csv (or give "
        "Parquet)."
    )
