"""Tables that are compressed, of other kinds under any name, or too large for free memory."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.orc
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from automl.config import DataConfig, DataKind
from automl.data.load import load_dataset
from automl.data.tables.chunked_table import ChunkedTable
from automl.data.tables.csv_reader import LONGEST_ROW_BYTES
from automl.data.tables.table_file import TableFile
from automl.errors import ConfigError

FRAME = pd.DataFrame({"a": [1.5, 2.5, 3.5], "name": ["x", "é", "z"], "y": [0.5, 1.5, 2.5]})
CSV = FRAME.to_csv(index=False).encode()
PACKED: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": lambda content: pa.compress(content, codec="zstd", asbytes=True),
}


def file_of(folder: Path, content: bytes, name: str = "table.csv") -> TableFile:
    path = folder / name
    path.write_bytes(content)
    return TableFile.at("data.path", str(path))


def refusal(folder: Path, content: bytes, name: str = "table.csv") -> str:
    with pytest.raises(ConfigError) as error:
        file_of(folder, content, name).read("y")
    return str(error.value)


@pytest.mark.parametrize("kind", PACKED)
def test_a_compressed_csv_is_read_as_what_it_holds(kind: str, tmp_path: Path) -> None:
    pack = PACKED[kind]
    for content in (pack(CSV), pack(CSV[:9]) + pack(CSV[9:]), pack(CSV.replace(b"\n", b"\r"))):
        pd.testing.assert_frame_equal(file_of(tmp_path, content).read("y"), FRAME)
    table = ChunkedTable.at("table", str(tmp_path / "table.csv"), ["a", "name"])
    (chunk,) = table.chunks(["a"])
    assert (chunk.n_rows, chunk.share, chunk.frame["name"].tolist()) == (3, 1.0, ["x", "é", "z"])
    latin = refusal(tmp_path, pack(CSV.decode().encode("latin-1")))
    assert "is not UTF-8 text" in latin
    assert f"{ {'bzip2': 'bzip2'}.get(kind, kind) } -dc table.csv | iconv -f LATIN1" in latin


@pytest.mark.parametrize("kind", PACKED)
def test_a_compressed_file_that_ends_early_is_named(kind: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    csv = pd.DataFrame(rng.normal(size=(500, 2)), columns=["a", "y"]).to_csv(index=False)
    message = refusal(tmp_path, PACKED[kind](csv.encode())[:-40])
    assert message.startswith(f"data.path={tmp_path}/table.csv: ")
    assert "iconv" not in message


def _excel() -> bytes:
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w") as archive:
        archive.writestr("[Content_Types].xml", "<x/>")
        archive.writestr("xl/workbook.xml", "<x/>")
    return found.getvalue()


def _written(write: Callable[[Any, io.BytesIO], object]) -> bytes:
    found = io.BytesIO()
    write(pa.Table.from_pandas(FRAME), found)
    return found.getvalue()


def _zip() -> bytes:
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w") as archive:
        archive.writestr("table.csv", CSV)
    return found.getvalue()


def _numpy() -> bytes:
    found = io.BytesIO()
    np.savez(found, a=np.arange(3))
    return found.getvalue()


PARQUET = _written(pyarrow.parquet.write_table)
OTHERS = {
    "Excel": (_excel(), "an Excel workbook, .*pandas.read_excel"),
    "Feather": (_written(pyarrow.feather.write_feather), "a Feather file .*pandas.read_feather"),
    "ORC": (_written(pyarrow.orc.write_table), "an ORC file, .*pandas.read_orc"),
    "zip": (_zip(), "a zip archive, .*unzip table.csv and name"),
    "npz": (_numpy(), "a file of arrays of NumPy, "),
    "old Excel": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "an Excel workbook, "),
    "packed Parquet": (gzip.compress(PARQUET), "a Parquet file, compressed by gzip.*gzip -dc"),
    "packed pickle": (bz2.compress(pickle.dumps([1])), "a pickle, compressed by bzip2"),
    "SQLite": (b"SQLite format 3\x00" + bytes(90), "an SQLite database"),
    "JSON": (json.dumps(FRAME.to_dict("records")).encode(), "JSON, .*pandas.read_json"),
    "JSON lines": (b'{"a": 1, "y": 2}\n{"a": 1, "y": 2}\n', "JSON, .*pandas.read_json"),
    "HTML": (b"<!DOCTYPE html>\n<html></html>", "XML or HTML"),
    "NULs": (bytes(100_000), "no text .its first line has NUL bytes"),
    "UTF-16": (CSV.decode().encode("utf-16"), "UTF-16 text.*iconv -f UTF-16 "),
    "UTF-16 without a mark": (b"a,y\n1,2\n".decode().encode("utf-16-le"), "iconv -f UTF-16LE "),
    "UTF-32": (CSV.decode().encode("utf-32"), "UTF-32 text.*iconv -f UTF-32 "),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_a_file_of_another_kind_is_named_with_the_remedy(kind: str, tmp_path: Path) -> None:
    content, said = OTHERS[kind]
    with pytest.raises(ConfigError, match=said) as error:
        file_of(tmp_path, content).read("y")
    assert len(str(error.value)) < 300
    assert "LATIN1" not in str(error.value)


def test_parquet_is_read_under_any_name(tmp_path: Path) -> None:
    assert file_of(tmp_path, PARQUET, "table.xlsx").read("y")["a"].tolist() == [1.5, 2.5, 3.5]


@pytest.mark.parametrize(
    "text",
    [
        "a|name|y\n1.5|x|0.5\n",
        "sep=;\na;name;y\n1.5;x;0.5\n",
        '"sep=|"\r\na|name|y\r\n1.5|x|0.5\r\n',
        "SEP=\t\na\tname\ty\n1.5\tx\t0.5\n",
        "sep=,\ra,name,y\r1.5,x,0.5\r",
        "\ufeffsep=^\n\na^name^y\n1.5^x^0.5\n",
        '"a"|"name"|y\n1.5|x|0.5\n',
    ],
)
def test_bars_and_excels_line_of_the_separator_are_understood(text: str, tmp_path: Path) -> None:
    file = file_of(tmp_path, text.encode())
    assert file.read("y").to_dict("list") == {"a": [1.5], "name": ["x"], "y": [0.5]}
    (chunk,) = ChunkedTable.at("table", str(file.path), ["a"]).chunks(["a"])
    assert chunk.frame["a"].tolist() == [1.5]


@given(st.text(min_size=1, max_size=3).map(lambda text: text * 50_000), st.booleans())
def test_a_name_or_cell_of_any_length_is_cut_in_a_message(
    tmp_path_factory: pytest.TempPathFactory, text: str, in_header: bool
) -> None:
    long = text.replace('"', '""').encode(errors="replace")
    content = b'a,"' + long + b'"\n1,2\n' if in_header else b'a,y\n1,"' + long + b'"\n' * 2
    path = tmp_path_factory.getbasetemp() / "long.csv"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as error:
        load_dataset(DataConfig(kind=DataKind.csv, path=str(path), target="y"))
    assert len(str(error.value)) < 1000


def test_a_row_without_end_is_passed_over_by_its_line(tmp_path: Path) -> None:
    long = b"x" * (3 * LONGEST_ROW_BYTES)
    content = b"a,y\n1,2\n" + long + b",3\n4,5\n"
    assert "line 3: is longer than 16 MiB" in refusal(tmp_path, content)
    table = ChunkedTable.at("table", str(tmp_path / "table.csv"), ["a"])
    chunks = [*table.chunks(["a"])]
    assert [row.number for chunk in chunks for row in chunk.unread] == [3]
    assert [cell for chunk in chunks for cell in chunk.frame["a"]] == [1, 4]
    assert "a line is longer than 16 MiB" in refusal(tmp_path, long)


def test_a_target_of_one_value_is_refused_by_the_footer(tmp_path: Path) -> None:
    table = pa.table({"a": pa.array(np.arange(100.0)), "y": pa.array(np.ones(100))})
    pa.parquet.write_table(table, tmp_path / "t.parquet", row_group_size=30)
    file = TableFile.at("data.path", str(tmp_path / "t.parquet"))
    assert (file.only_value("y"), file.only_value("a")) == (1.0, None)
    config = DataConfig(kind=DataKind.csv, path=str(file.path), target="y")
    with pytest.raises(ConfigError, match=r"every row holds 1\.0, so there is nothing to learn"):
        load_dataset(config)


_READ_WITH_LITTLE_MEMORY = """
import resource, sys
import pandas, pyarrow.parquet
from automl.data.tables.table_file import TableFile
from automl.errors import ConfigError
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    TableFile.at("data.path", sys.argv[1]).read("y")
except ConfigError as error:
    print(error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.parametrize("kind", ["parquet", "cell"])
def test_a_table_beyond_free_memory_is_refused_before_it_is_read(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "large"
    if kind == "cell":
        path.write_bytes(b"a,y\n1,2\n" + b"x" * 200_000_000 + b",3\n")
    else:
        texts = pa.DictionaryArray.from_arrays(np.zeros(50_000_000, np.int8), ["x" * 10_000])
        pa.parquet.write_table(pa.table({"y": texts}), path, store_schema=False)
        assert path.stat().st_size < 1_000_000
    argv = [sys.executable, "-c", _READ_WITH_LITTLE_MEMORY, str(path)]
    message, mebibytes = subprocess.run(
        argv, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert ("are free: give fewer rows" if kind == "parquet" else "longer than 16 MiB") in message
    assert int(mebibytes) < 250
