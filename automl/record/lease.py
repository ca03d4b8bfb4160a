"""The clock of leases. It goes on while the machine sleeps, as those of other machines do.

Who may write into a trial's folder, where machines share a disk.

Whoever takes a trial over leaves a mark beside the folder before it begins, and who writes there
looks for a later one just before a file takes its place. So a sweep that slept through its lease,
by whatever clock, leaves the files alone of who has the trial now. Marks are made and never
changed, one for each attempt: in whatever order two of them come, the later attempt stands.

Who holds trials: a process, known for as long as its machine runs.
"""

from __future__ import annotations

import json
import os
import socket
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from automl.errors import StorageError
from automl.record.append_only import cannot
from automl.record.disk import flush_folder, make_folder

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux's; its monotonic clock stands still meanwhile."""


def lease_seconds() -> float:
    """Since a moment that is the same for all processes of the machine. Never goes back."""
    return time.clock_gettime(_CLOCK)


class OthersFolderError(Exception):
    """Raised where a trial's folder is a later attempt's."""


@dataclass(frozen=True)
class TrialFolderFence:
    """Around the folder of a trial, for one of its attempts; 0: nobody else can have the trial."""

    folder: Path
    attempt: int

    def close(self) -> None:
        """To all earlier attempts. Raises StorageError."""
        if self.attempt < 2:
            return
        try:
            make_folder(self.folder.parent)
            for attempt in range(2, self.attempt + 1):
                self._mark(attempt).touch()
            flush_folder(self.folder.parent)
        except OSError as error:
            raise StorageError(cannot(self.folder.parent, "written", error)) from error

    def check(self) -> None:
        """Raises OthersFolderError."""
        if self.attempt and self._mark(self.attempt + 1).exists():
            raise OthersFolderError(f"{self.folder} is that of a later attempt")

    def _mark(self, attempt: int) -> Path:
        return self.folder.with_name(f"{self.folder.name}.attempt-{attempt}")


LEASE_SECONDS = 60
"""For so long a process that cannot be looked at is believed to live, by the database's clock."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class TrialHolder:
    """A process of a machine."""

    host: str
    boot: str
    """Of the machine, and the namespace in which the pid counts."""
    pid: int
    started: str
    """In clock ticks since the boot: a pid is given out again."""

    def text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> TrialHolder:
        return cls(**json.loads(text))

    def is_gone(self, here: str) -> bool:
        """Whether the process has surely ended, as seen from `is_on_this_machine`; one of another
        machine, or of
        another namespace, may live."""
        return self.boot == here and _started(self.pid) != self.started


def this_holder() -> TrialHolder:
    """This process."""
    pid = os.getpid()
    return TrialHolder(socket.gethostname(), is_on_this_machine(), pid, _started(pid) or "")


def is_on_this_machine() -> str:
    """This run of this machine, and the namespace of this process."""
    try:
        return f"{_BOOT.read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:  # no Linux: leases alone tell
        return f"unknown {socket.gethostname()} {os.getpid()}"


def _started(pid: int) -> str | None:
    """When the process began; None: there is none, or it is dead and was not waited for."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, *fields = text.rpartition(")")[2].split()
    return None if state in "ZX" else fields[18]
