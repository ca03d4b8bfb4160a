"""Notes which events MLflow has taken, in the file `events.delivered` beside the event log.

    {"offset":        123456, "pid":    4121}      of fixed width, overwritten in place
    {"study": "5b…", "experiment": "3", "parent": "9f…"}     whose runs, in which store
    {"trial": 7, "run": "3c…"}                     one line per run, appended

Only the offset is essential: events before it are in MLflow. The ids save a search. Each line ends
with a checksum. Whatever is lost or damaged of this file is delivered or looked up again, which
changes nothing in MLflow. `LineCounter` turns offsets of the event log into numbers of events.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from automl.errors import StorageError, StudyInUseError
from automl.record.append_only import is_line_damaged, seal_line
from automl.record.disk import public_file_opener, take_lock
from automl.record.study_files import StudyFiles
from automl.record.texts import parse_json

_HEADER = '{{"offset":{offset:20d}, "pid":{pid:10d}}}'
_HEADER_BYTES = len(seal_line(_HEADER.format(offset=0, pid=0).encode()) + b"\n")


class DeliveryConfirmations:
    """The open file of confirmations, under a lock: one process delivers a folder at a time.

    `SharedConfirmations` asks the database of a shared study, too.
    """

    is_shared = False
    """Whether other sweeps may make runs of the study."""

    def __init__(self, fd: int, offset: int, lines: Iterable[bytes]) -> None:
        self._fd = fd
        self._append_lock = threading.Lock()
        self.offset = offset
        study, self.runs = _read_entries(lines)
        """Run ids by trial number."""
        self.study: str | None = study.get("study")
        """Uuid of the study that the file is about; None where an older version wrote it."""
        self.experiment: str | None = study.get("experiment")
        self.parent: str | None = study.get("parent")
        self.completed: set[int] = set()
        """Trials that an earlier elected sweep has delivered to their end."""

    @classmethod
    def open(cls, log: Path, wait_seconds: float) -> Self:
        """Open the file that belongs to the event log `log`.

        Wait up to `wait_seconds` for another process that delivers. Raise StudyInUseError or
        StorageError.
        """
        path = StudyFiles(log.parent).delivered
        try:
            fd = public_file_opener(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        except OSError as error:
            raise StorageError(
                f"{path} cannot be opened ({error.strerror}): mend its rights."
            ) from error
        if not take_lock(fd, wait_seconds):
            holder = os.pread(fd, _HEADER_BYTES, 0).decode(errors="replace").strip()
            os.close(fd)
            raise StudyInUseError(
                f"{path} is held by another process ({holder}) that delivers this study to "
                "MLflow; wait until it has ended. A running sweep needs no help."
            )
        text = os.pread(fd, os.fstat(fd).st_size, 0)
        whole = text[: text.rfind(b"\n") + 1]
        os.ftruncate(fd, len(whole))  # a torn last line is cut off
        header, *lines = whole.split(b"\n")
        confirmed = cls(fd, _offset(header), lines)
        if len(header) + 1 != _HEADER_BYTES:
            confirmed._rewrite()
        confirmed._write_header()
        return confirmed

    def confirm(self, offset: int) -> None:
        """Note that MLflow has all events before `offset`.

        Raise OSError, like every method that writes.
        """
        if offset != self.offset:
            self.offset = offset
            self._write_header()

    def check(self) -> None:
        """Raise NotDeliveredError when another process may write runs; called before a write."""

    def note_completed(self, trials: Collection[int]) -> None:
        """Note trials that are delivered to their end; the offset says so in an unshared study."""

    def note_study(self, study: str, experiment: str, parent: str) -> str:
        """Note the study's own run, and return the one that it has from now on."""
        if (study, experiment, parent) != (self.study, self.experiment, self.parent):
            self.study, self.experiment, self.parent = study, experiment, parent
            self._append({"study": study, "experiment": experiment, "parent": parent})
        return parent

    def forget_others(self, study: str) -> None:
        """Reset the file if it came with a copied folder and is about another study's runs."""
        is_of_older_version = self.study is None and self.parent is not None
        if self.study != study and not is_of_older_version:  # its parent's tags name the study
            self._clear()

    def note_run(self, trial: int, run_id: str) -> str:
        """Note the run of a trial, and return the one that it has from now on."""
        self.runs[trial] = run_id
        self._append({"trial": trial, "run": run_id})
        return run_id

    def reset(self) -> None:
        """Note that nothing is in MLflow: it is another store, or our runs were thrown away."""
        self._clear()

    def _clear(self) -> None:
        os.ftruncate(self._fd, 0)
        self.offset, self.study, self.experiment, self.parent = 0, None, None, None
        self.runs.clear()
        self.completed.clear()
        self._write_header()

    def close(self) -> None:
        os.close(self._fd)

    def _rewrite(self) -> None:
        """Rewrite the file with a header of the current width."""
        os.ftruncate(self._fd, 0)
        self._write_header()
        if self.experiment is not None and self.parent is not None:
            study = {} if self.study is None else {"study": self.study}
            self._append({**study, "experiment": self.experiment, "parent": self.parent})
        for trial, run_id in self.runs.items():
            self._append({"trial": trial, "run": run_id})

    def _write_header(self) -> None:
        header = _HEADER.format(offset=self.offset, pid=os.getpid()).encode()
        os.pwrite(self._fd, seal_line(header) + b"\n", 0)

    def _append(self, entry: dict[str, object]) -> None:
        with self._append_lock:  # several writers note the runs that they make
            end = max(os.fstat(self._fd).st_size, _HEADER_BYTES)
            os.pwrite(self._fd, seal_line(json.dumps(entry).encode()) + b"\n", end)


@dataclass(frozen=True)
class DeliveredRuns:
    """The ids of a study's runs in the store that it was last delivered to."""

    experiment: str
    parent: str
    """The id of the study's own run."""
    runs: Mapping[int, str]
    """Ids of the trials' runs by trial number."""


def read_delivered_runs(log: Path) -> DeliveredRuns | None:
    """Return the ids of a study's runs; None if it was never delivered, or the ids are unknown.

    This only reads, without the lock.
    """
    try:
        text = StudyFiles(log.parent).delivered.read_bytes()
    except OSError:
        return None
    study, runs = _read_entries(text[: text.rfind(b"\n") + 1].split(b"\n"))
    if not study:
        return None
    experiment, parent = study["experiment"], study["parent"]
    are_ids = all(map(str.isalnum, (experiment, parent, *runs.values())))
    return DeliveredRuns(experiment, parent, runs) if are_ids else None


def is_fully_delivered(log: Path) -> bool:
    """Return whether the store that the study was last delivered to has all of its events.

    This only reads, without the lock.
    """
    try:
        header = StudyFiles(log.parent).delivered.read_bytes().partition(b"\n")[0]
        return 0 < log.stat().st_size == _offset(header)
    except OSError:
        return False


def _offset(header: bytes) -> int:
    """Return the offset in the header; 0 if it is unreadable, so that all is delivered again."""
    try:
        return 0 if is_line_damaged(header) else int(parse_json(header)["offset"])
    except (ValueError, KeyError, TypeError):
        return 0


def _read_entries(lines: Iterable[bytes]) -> tuple[dict[str, str], dict[int, str]]:
    """Return the last entry about the study, and the run ids by trial number.

    Lines that cannot be read are skipped.
    """
    study: dict[str, str] = {}
    runs: dict[int, str] = {}
    for line in lines:
        if is_line_damaged(line):
            continue
        with contextlib.suppress(ValueError):
            match parse_json(line):
                case {"trial": int(trial), "run": str(run)}:
                    runs[trial] = run
                case {"experiment": str(), "parent": str()} as entry:
                    study = entry
    return study, runs


_CHUNK_BYTES = 1 << 20


class LineCounter:
    """Counts the lines of a growing file, reading each byte once. Not safe for several threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._n_lines = 0

    def count(self, offset: int | None = None) -> int:
        """Return how many lines end before `offset`, or before the end of the file.

        Return 0 if there is no file, and what was counted before if the disk fails. Raises
        PermissionError for a file that may not be read.
        """
        try:
            self._count_on(offset)
        except PermissionError:
            raise
        except OSError:
            return self._n_lines if self._path.exists() else 0
        return self._n_lines

    def _count_on(self, offset: int | None) -> None:
        fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            end = os.fstat(fd).st_size if offset is None else offset
            if end < self._offset:  # cut back, or delivered anew
                self._offset, self._n_lines = 0, 0
            while self._offset < end:
                chunk = os.pread(fd, min(_CHUNK_BYTES, end - self._offset), self._offset)
                if not chunk:
                    break
                self._offset += len(chunk)
                self._n_lines += chunk.count(b"\n")
        finally:
            os.close(fd)
