"""Files of the project's folder that more than one trial wrote, of which the last one's remains.

Nobody tells which process wrote a file. But what changed while a trial ran, and changed again after
its end while another ran, is that file of both, unless its name could be one trial's alone: a name
with a digit or with a param's value in it is believed to be, until no single trial ran through all
of its changes. What trials saw is kept in a file beside their checkpoints, a line for each.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from automl.record.disk import opener
from automl.trial import Params

MAX_ENTRIES = 2_000
"""Of the project's folder and those in it; where there are more, nothing is looked at."""
_MAX_FILES = 50
_SLACK_SECONDS = 0.05
"""The kernel's clock for files is behind by some milliseconds."""
_NOT_LOOKED_INTO = frozenset(("__pycache__", "node_modules", "mlruns", "mlartifacts"))
_TAKES_MANY = (".db", ".db-journal", ".db-wal", ".db-shm", ".sqlite", ".sqlite3", ".pyc", ".lock")
"""Ends of the names of files that are made to be written by several."""


@dataclass(frozen=True)
class Seen:
    """What a trial saw change. Times are Unix seconds."""

    began: float
    ended: float
    changed: Mapping[str, float]
    """The last change by path, below the project's folder."""
    values: tuple[str, ...] = ()
    """Texts among its params."""

    def covers(self, times: Iterable[float]) -> bool:
        return all(self.began - _SLACK_SECONDS <= time <= self.ended for time in times)


def written_twice(path: str, seen: Sequence[Seen]) -> bool:
    """Whether more than one of these trials wrote the file."""
    saw = [one for one in seen if path in one.changed]
    times = {one.changed[path] for one in saw}
    if len(times) < 2:
        return False
    if not any(one.covers(times) for one in seen):
        return True
    return not any(map(str.isdigit, path)) and not any(
        value in path for one in seen for value in one.values if value
    )


def changed_since(folder: Path, began: float, without: Path) -> dict[str, float]:
    """Files of a folder and of those in it that changed, and when; `without` is left out."""
    found: dict[str, float] = {}
    for n, (path, changed) in enumerate(_files(folder, without)):
        if n >= MAX_ENTRIES:
            return {}
        if changed >= began - _SLACK_SECONDS and len(found) < _MAX_FILES:
            found[path] = changed
    return found


def note(file: Path, seen: Seen) -> list[Seen]:
    """Add what a trial saw to what those before it did; all of that."""
    line = json.dumps([seen.began, seen.ended, dict(seen.changed), list(seen.values)])
    with open(file, "ab", opener=opener) as out:
        out.write(line.encode() + b"\n")
    return list(_read(file))


def texts(params: Params) -> tuple[str, ...]:
    """Values that a name could hold."""
    return tuple(value for value in params.values() if isinstance(value, str))


def _read(file: Path) -> Iterator[Seen]:
    for line in file.read_bytes().splitlines():
        try:
            began, ended, changed, values = json.loads(line)
            yield Seen(float(began), float(ended), dict(changed), tuple(values))
        except (ValueError, TypeError):  # torn by a kill; it is a picture only
            continue


def _files(folder: Path, without: Path) -> Iterator[tuple[str, float]]:
    for entry in _entries(folder, without):
        if entry.is_dir(follow_symlinks=False):
            for inner in _entries(Path(entry.path), without):
                if inner.is_file(follow_symlinks=False):
                    yield f"{entry.name}/{inner.name}", inner.stat().st_mtime
        elif entry.is_file(follow_symlinks=False):
            yield entry.name, entry.stat().st_mtime


def _entries(folder: Path, without: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [
                entry
                for entry in entries
                if not entry.name.startswith(".")
                and entry.name not in _NOT_LOOKED_INTO
                and not entry.name.endswith(_TAKES_MANY)
                and not without.is_relative_to(entry.path)
            ]
    except OSError:
        return []
