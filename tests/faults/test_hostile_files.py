"""What a stranger made: studies, models, tables, archives, names. One message each, no code run.

A payload that runs makes the file `ran`; a link or path that is followed reaches `outside`.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.end_to_end.conftest import Call, call
from tests.faults.conftest import NotePromise
from tests.mlflow_store import folder

__all__ = ["call", "folder"]

pytestmark = pytest.mark.timeout(300)

STORED = Path(__file__).parents[1] / "stored_studies"
ESCAPE = "\x1b[2J\x1b]0;owned\x07"
PREDICT = ("predict", "study.name=table", "table=other.csv", "to=out.csv")


class Payload:
    """Unpickled, it makes a file."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return os.system, ("touch ran",)


@dataclass(frozen=True)
class Hostile:
    """What a stranger made, the command that meets it, and what is said of it."""

    make: Callable[[Path], object]
    """Changes the current folder, which has the study `disc`; is given the study's folder."""
    words: tuple[str, ...]
    said: str = ""
    """Part of the message; empty: the command may do its work all the same."""


HOSTILE: dict[str, Hostile] = {}


STATUS = ("status", "study.name=disc")
RESUME = ("resume", "study.name=disc", "study.n_trials=3")


def add(name: str, make: Callable[[Path], object], *words: str, said: str = "") -> None:
    """Add a kind. Without `said` the command may also do its work."""
    HOSTILE[name] = Hostile(make, words, said)


def put(name: str, content: bytes | str) -> Callable[[Path], object]:
    """Return what writes a file of the study."""

    def write(study: Path) -> None:
        (study / name).write_bytes(content if isinstance(content, bytes) else content.encode())

    return write


# --- the files of a study -------------------------------------------------------------------------

NESTED = "[" * 100_000 + "]" * 100_000
LAUGHS = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
)
NO_CONFIG, NO_YAML = "is no config of automl", "valid YAML"
for _name, _text, _said in (
    ("a tag that calls", "study: !!python/object/apply:os.system ['touch ran']\n", NO_YAML),
    ("a tag that imports", "study: !!python/name:os.system\n", NO_YAML),
    ("aliases without end", LAUGHS, NO_CONFIG),
    ("nesting", "study: " + NESTED, NO_CONFIG),
    ("a NUL", "study: \x00\n", NO_YAML),
    ("escapes", f"{ESCAPE}: {ESCAPE}\n", NO_YAML),
    ("no text", b"\xff\xfe\x00\x80", NO_CONFIG),
    ("nothing", "", NO_CONFIG),
    ("a list", "- 1\n", NO_CONFIG),
    ("a key twice", "study: {}\nstudy: {}\n", NO_YAML),
    ("a pickle", pickle.dumps(Payload()), ""),
):
    add(f"a config with {_name}", put("config.yaml", _text), *RESUME, said=_said or "automl: ")


def pipe(name: str) -> Callable[[Path], object]:
    """Return what puts a pipe, which nobody writes, in the place of a file of the study."""

    def write(study: Path) -> None:
        (study / name).unlink(missing_ok=True)
        os.mkfifo(study / name)

    return write


add("a config that is a pipe", pipe("config.yaml"), *RESUME, said=NO_CONFIG)
add("an event log that is a pipe", pipe("events.log"), *STATUS)
add("a status that is a pipe", pipe("status.json"), *STATUS)
add("a journal that is a pipe", pipe("journal.log"), *RESUME, said="automl: ")

_LINES: dict[str, str | bytes] = {
    "nesting": NESTED + "\n",
    "a huge number": "1" * 1_000_000 + "\n",
    "escapes": json.dumps({ESCAPE: ESCAPE}) + "\n",
    "raw escapes": ESCAPE + "\n",
    "NULs": "\x00" * 100 + "\n",
    "a pickle": pickle.dumps(Payload()) + b"\n",
}
for _name, _text in _LINES.items():
    add(f"a journal of {_name}", put("journal.log", _text), *RESUME, said="journal.log")
    add(f"an event log of {_name}", put("events.log", _text), *STATUS, said="")
    add(f"a place of {_name}", put("place.json", _text), *RESUME, said="place.json")
    add(f"a status of {_name}", put("status.json", _text), *STATUS)
    add(f"a delivery of {_name}", put("events.delivered", _text), "status", "all=true")


# --- archives -------------------------------------------------------------------------------------

RESTORE = ("restore", "file=strange.tar.gz")


def archive(*members: tuple[str, bytes, str]) -> Callable[[Path], object]:
    """Return what writes an archive of members: their names, types and what they link to."""

    def write(study: Path) -> None:
        with tarfile.open("strange.tar.gz", "w:gz") as tar:
            for name, kind, target in members:
                info = tarfile.TarInfo(name)
                info.type, info.linkname = kind, target
                tar.addfile(info)

    return write


CONFIG = ("a/config.yaml", tarfile.REGTYPE, "")
for _name, _member in {
    "a path upwards": ("../outside", tarfile.REGTYPE, ""),
    "a path upwards inside": ("a/../../outside", tarfile.REGTYPE, ""),
    "an absolute path": ("/tmp/outside", tarfile.REGTYPE, ""),
    "a link": ("a/checkpoints", tarfile.SYMTYPE, "/etc"),
    "a hard link": ("a/events.log", tarfile.LNKTYPE, "a/../../../outside"),
    "a pipe": ("a/pipe", tarfile.FIFOTYPE, ""),
    "a device": ("a/zero", tarfile.CHRTYPE, ""),
    "a second study": ("b/config.yaml", tarfile.REGTYPE, ""),
    "escapes in a name": (f"{ESCAPE}/config.yaml", tarfile.REGTYPE, ""),
}.items():
    add(f"an archive with {_name}", archive(CONFIG, _member), *RESTORE, said="no whole study")


def _archive_of_pickle(study: Path) -> None:
    Path("strange.tar.gz").write_bytes(gzip.compress(pickle.dumps(Payload())))


def _archive_of_links_to_itself(study: Path) -> None:
    Path("strange.tar.gz").symlink_to("strange.tar.gz")


add("an archive that is a pickle", _archive_of_pickle, *RESTORE, said="no whole study")
add("an archive that links to itself", _archive_of_links_to_itself, *RESTORE, said="cannot be read")

# --- tables ---------------------------------------------------------------------------------------


def table(name: str, content: bytes, *, said: str = "", file: str = "table.csv") -> None:
    """Add a table, which the command `plan` reads."""
    words = ("plan", "timing_seconds=0", "data=csv", f"data.path={file}", "data.target=y")
    add(f"a table {name}", lambda study: Path(file).write_bytes(content), *words, said=said)


ROWS = b"".join(b"%d,%d\n" % (n, n % 2) for n in range(60))
table("of a pickle", pickle.dumps(Payload()), said="table.csv")
table("of 200,000 columns", b",".join(b"c%d" % n for n in range(200_000)) + b"\n1\n", said="y")
table("of NULs", b"a,y\n" + b"\x00" * 10_000 + b"\n")
table("with NUL in a name", b"a\x00b,y\n" + ROWS)
table("with escapes in a name", ESCAPE.encode() + b",y\n" + ROWS)
_CELLS = b"".join(b"{}%d,%d\n" % (n % 5, n % 2) for n in range(60))
table("with escapes in its cells", b"a,y\n" + _CELLS.replace(b"{}", ESCAPE.encode()))
table("with formulas", b"a,y\n" + _CELLS.replace(b"{}", b"=cmd|' /C calc'!A"))
table("with one line of 20 MB", b"a,y\n" + b"x" * 20_000_000 + b",1\n")
table("with an open quote", b'a,y\n"' + ROWS)
table("of UTF-16", "a,y\n1,2\n".encode("utf-16"), said="table.csv")
table("that is compressed to a bomb", gzip.compress(b"0" * 10_000_000), said="table.csv")
_PARQUET = "table.parquet"
_BROKEN = b"PAR1" + b"\xff" * 1_000 + b"PAR1"
table("of Parquet that is none", _BROKEN, file=_PARQUET, said=_PARQUET)
table("of Parquet that is a pickle", pickle.dumps(Payload()), file=_PARQUET, said=_PARQUET)


def _parquet_of_python_objects(study: Path) -> None:
    """An extension type that old versions of Arrow unpickled (CVE-2023-47248)."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    metadata = {
        b"ARROW:extension:name": b"arrow.py_extension_type",
        b"ARROW:extension:metadata": pickle.dumps(Payload()),
    }
    fields = [pa.field("a", pa.int64(), metadata=metadata), pa.field("y", pa.int64())]
    numbers = pa.array([*range(60)], pa.int64())
    rows = pa.Table.from_arrays([numbers, numbers], schema=pa.schema(fields))
    pq.write_table(rows, _PARQUET)


def _table_that_is_a_pipe(study: Path) -> None:
    os.mkfifo("table.csv")


def _table_that_never_ends(study: Path) -> None:
    Path("table.csv").symlink_to("/dev/zero")


READ = ("plan", "timing_seconds=0", "data=csv", "data.target=y")
READ_CSV = (*READ, "data.path=table.csv")
add("a table of Python objects", _parquet_of_python_objects, *READ, f"data.path={_PARQUET}")
add("a table that is a pipe", _table_that_is_a_pipe, *READ_CSV, said="table.csv")
add("a table that is a folder", lambda study: Path("table.csv").mkdir(), *READ_CSV, said="a folder")
add("a table that never ends", _table_that_never_ends, *READ_CSV, said="table.csv")

# --- models ---------------------------------------------------------------------------------------


def model(name: str, write: Callable[[Path], object], said: str = "best.pt") -> None:
    """Replace each model of the study `table`, with which `predict` scores rows."""

    def make(study: Path) -> None:
        for path in study.parent.glob("table/checkpoints/*/best.pt"):
            path.unlink()
            write(path)

    add(f"a model {name}", make, *PREDICT, said=said)


def _zip(parts: Mapping[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    with zipfile.ZipFile(file := io.BytesIO(), "w", compression) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return file.getvalue()


_PICKLE = pickle.dumps(Payload(), 2)
_STATE = b'{"format": "automl-arrays-1", "content": %b}' % NESTED.encode()
for _name, _content in {
    "that is a pickle": _PICKLE,
    "with a pickle in it": _zip({"archive/data.pkl": _PICKLE, "archive/version": b"3"}),
    "that is a bomb": _zip({"archive/data.pkl": b"0" * 10**8}, zipfile.ZIP_DEFLATED),
    "of nesting": _zip({"state.json": _STATE}),
    "of nested marks": _zip({"archive/data.pkl": b"\x80\x02" + b"(" * 10**6 + b"."}),
    "with a path upwards": _zip({"../outside": _PICKLE}),
    "of nothing": b"",
}.items():
    model(_name, lambda path, content=_content: path.write_bytes(content))  # type: ignore[misc]
model("that is a folder", lambda path: path.mkdir())
model("that never ends", lambda path: path.symlink_to("/dev/zero"))
model("that is a pipe", lambda path: os.mkfifo(path))

# --- databases and names --------------------------------------------------------------------------

add(
    "a database of MLflow that is a pickle",
    lambda study: Path("bad.db").write_bytes(_PICKLE),
    *("sync", "study.name=disc", "tracking.uri=sqlite:///bad.db"),
    said="bad.db",
)
for _name, _text in {
    "a path": "../outside",
    "an absolute path": "/tmp/outside",
    "a NUL": "a\x00b",
    "escapes": ESCAPE,
    "SQL": "x'; DROP TABLE runs; --",
    "HTML": "<script>",
    "a reference": "${oc.env:HOME}",
    "lines": "a\nb",
}.items():
    _quote = '"' if "'" in _text else "'"
    _word = f"study.name={_quote}{_text}{_quote}"
    add(f"a study named by {_name}", lambda study: None, "status", _word, said="automl: ")


@pytest.fixture
def stranger(folder: Path) -> Path:
    shutil.copytree(STORED / "studies", folder / "studies")
    (folder / "other.csv").write_text("size,price\n1,2.5\n2,3.5\n")
    return folder / "studies" / "disc"


@pytest.mark.parametrize("name", HOSTILE)
def test_it_ends_with_a_message_and_runs_no_code(
    stranger: Path, call: Call, name: str, note_promise: NotePromise
) -> None:
    hostile = HOSTILE[name]
    hostile.make(stranger)
    done = call(*hostile.words)
    is_refused = bool(hostile.said or done.code)
    promises = {
        "no code ran": not (stranger.parents[1] / "ran").exists(),
        "no traceback": "Traceback" not in done.stdout + done.stderr,
        "no escapes": "\x1b" not in done.stdout + done.stderr,
        "its exit code": done.code in ((1, 2) if is_refused else (0,)),
        "one message": done.stderr.count("automl: ") == is_refused,
        "the right one": hostile.said in done.stderr,
        "a short one": len(done.stderr) < 2_000 or not is_refused,
    }
    broken = [promise for promise, holds in promises.items() if not holds]
    note_promise("hostile files, tables and models", 1, bool(broken))
    assert broken == [], done
