"""Leases of trials: their clock, the process that holds one, and the fence of a trial's folder.

Machines may share a disk, and a sweep may sleep through its lease. A sweep that takes a trial over
therefore leaves a mark beside the trial's folder before it begins. A process that writes there
looks for a later mark just before a file takes its place, and leaves the files alone if it finds
one. Each attempt has its own mark, which never changes: in any order of two marks the later attempt
wins.

The leases themselves are rows of the database (`sharing/study_tables.py`).
"""

from __future__ import annotations

import json
import os
import socket
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from automl.errors import StorageError
from automl.record.append_only import file_error_text
from automl.record.disk import flush_folder, make_folder
from automl.record.texts import parse_json

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""A clock that goes on while the machine sleeps, as the clocks of other machines do. The monotonic
clock of Linux stands still during that time."""


def lease_seconds() -> float:
    """Return seconds since a moment that all processes of the machine share; never go back."""
    return time.clock_gettime(_CLOCK)


class FolderTakenOverError(Exception):
    """Raised when a trial's folder belongs to a later attempt."""


@dataclass(frozen=True)
class TrialFolderFence:
    """Keeps earlier attempts of a trial from writing into its folder.

    `attempt` is the attempt of this process; 0: no other sweep can have the trial.
    """

    folder: Path
    attempt: int

    def close(self) -> None:
        """Close the folder to all earlier attempts. Raises StorageError."""
        if self.attempt < 2:
            return
        try:
            make_folder(self.folder.parent)
            for attempt in range(2, self.attempt + 1):
                self._mark(attempt).touch()
            flush_folder(self.folder.parent)
        except OSError as error:
            raise StorageError(file_error_text(self.folder.parent, "written", error)) from error

    def check(self) -> None:
        """Raise FolderTakenOverError when a later attempt has closed the folder to this one."""
        if self.attempt and self._mark(self.attempt + 1).exists():
            raise FolderTakenOverError(f"{self.folder} is that of a later attempt")

    def _mark(self, attempt: int) -> Path:
        return self.folder.with_name(f"{self.folder.name}.attempt-{attempt}")


HOLDER_LEASE_SECONDS = 60
"""A process of another machine or pid namespace counts as alive for this long after its last
renewal, by the database's clock."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class TrialHolder:
    """The process of a sweep that holds trials; stored as text in the database."""

    host: str
    boot: str
    """Identity of the machine's boot, and of the namespace in which the pid counts."""
    pid: int
    started: str
    """Start of the process in clock ticks since the boot, because pids are used again."""

    def text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> TrialHolder:
        return cls(**parse_json(text))

    def is_gone(self, here: str) -> bool:
        """Return whether the process has surely ended, as seen from this boot and namespace."""
        return self.boot == here and _start_ticks(self.pid) != self.started


def this_holder() -> TrialHolder:
    """Return the holder that stands for this process."""
    pid = os.getpid()
    return TrialHolder(socket.gethostname(), this_boot(), pid, _start_ticks(pid) or "")


def this_boot() -> str:
    """Return an identity of this boot of the machine and of the pid namespace of this process."""
    try:
        return f"{_BOOT.read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:  # not Linux: only leases tell whether a process lives
        return f"unknown {socket.gethostname()} {os.getpid()}"


def _start_ticks(pid: int) -> str | None:
    """Return when the process started (clock ticks); None: it is gone, or dead and unreaped."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, *fields = text.rpartition(")")[2].split()
    return None if state in "ZX" else fields[18]
