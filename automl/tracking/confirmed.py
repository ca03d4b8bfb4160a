"""What MLflow has taken: `events.delivered`, beside the event log.

    {"offset":        123456, "pid":    4121}      of fixed width, overwritten in place
    {"experiment": "3", "parent": "9f…"}           the store that the offset speaks of
    {"trial": 7, "run": "3c…"}                     one line per run, appended

The offset is what counts: events before it are in MLflow. The ids save a search. Whatever is lost
of this file is delivered or looked up again, which changes nothing in MLflow.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path
from typing import Any

from automl.errors import StorageError, StudyInUseError

_HEADER = '{{"offset":{offset:20d}, "pid":{pid:10d}}}\n'
_HEADER_BYTES = len(_HEADER.format(offset=0, pid=0))
_POLL_SECONDS = 0.05


class Confirmed:
    """The open file, under a lock for its whole life: one process delivers a study at a time."""

    def __init__(self, fd: int, offset: int, entries: list[dict[str, Any]]) -> None:
        self._fd = fd
        self.offset = offset
        self.experiment: str | None = None
        self.parent: str | None = None
        self.runs: dict[int, str] = {}
        """Run ids by trial number."""
        for entry in entries:
            if "trial" in entry:
                self.runs[entry["trial"]] = entry["run"]
            else:
                self.experiment, self.parent = entry.get("experiment"), entry.get("parent")

    @classmethod
    def open(cls, log: Path, wait_seconds: float) -> Confirmed:
        """Open the file that belongs to the event log `log`.

        Waits for a predecessor that is just ending. Raises StudyInUseError, StorageError.
        """
        path = log.with_suffix(".delivered")
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StorageError(
                f"{path} cannot be opened ({error.strerror}): mend its rights."
            ) from error
        _lock(fd, path, wait_seconds)
        confirmed = cls(fd, *_read(fd))
        confirmed._write_header()
        return confirmed

    def confirm(self, offset: int) -> None:
        """MLflow has all events before `offset`. Raises OSError, as all that write here."""
        if offset != self.offset:
            self.offset = offset
            self._write_header()

    def note_study(self, experiment: str, parent: str) -> None:
        if (experiment, parent) != (self.experiment, self.parent):
            self.experiment, self.parent = experiment, parent
            self._append({"experiment": experiment, "parent": parent})

    def note_run(self, trial: int, run_id: str) -> None:
        self.runs[trial] = run_id
        self._append({"trial": trial, "run": run_id})

    def reset(self) -> None:
        """Nothing is in MLflow: it is another store, or ours was thrown away."""
        os.ftruncate(self._fd, 0)
        self.offset, self.experiment, self.parent = 0, None, None
        self.runs.clear()
        self._write_header()

    def close(self) -> None:
        os.close(self._fd)

    def _write_header(self) -> None:
        os.pwrite(self._fd, _HEADER.format(offset=self.offset, pid=os.getpid()).encode(), 0)

    def _append(self, entry: dict[str, object]) -> None:
        end = max(os.fstat(self._fd).st_size, _HEADER_BYTES)
        os.pwrite(self._fd, json.dumps(entry).encode() + b"\n", end)


def delivered_to(log: Path) -> tuple[str, str] | None:
    """Experiment and parent run of a study in the store that it was last delivered to.

    Reads only, without the lock; None: it was never delivered, or it cannot be known.
    """
    try:
        text = log.with_suffix(".delivered").read_bytes()
    except OSError:
        return None
    known = [entry for entry in _entries(text[: text.rfind(b"\n") + 1]) if "parent" in entry]
    if not known:
        return None
    experiment, parent = str(known[-1].get("experiment")), str(known[-1]["parent"])
    return (experiment, parent) if experiment.isalnum() and parent.isalnum() else None


def _lock(fd: int, path: Path, wait_seconds: float) -> None:
    deadline = time.monotonic() + wait_seconds
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                holder = os.pread(fd, _HEADER_BYTES, 0).decode(errors="replace").strip()
                os.close(fd)
                raise StudyInUseError(
                    f"{path} is held by another process ({holder}) that delivers this study to "
                    "MLflow; wait until it has ended. A running sweep needs no help."
                ) from None
            time.sleep(_POLL_SECONDS)


def _read(fd: int) -> tuple[int, list[dict[str, Any]]]:
    """Offset and entries; what cannot be read is left out (a torn last line is cut off)."""
    text = os.pread(fd, os.fstat(fd).st_size, 0)
    whole = text[: text.rfind(b"\n") + 1]
    if len(whole) < len(text):
        os.ftruncate(fd, len(whole))
    try:
        offset = int(json.loads(whole[:_HEADER_BYTES])["offset"])
    except (ValueError, KeyError, TypeError):
        return 0, []
    return offset, _entries(whole)


def _entries(whole: bytes) -> list[dict[str, Any]]:
    entries = []
    for line in whole[_HEADER_BYTES:].splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict):
            entries.append(entry)
    return entries
