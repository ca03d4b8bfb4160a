"""Who holds trials: a process, known for as long as its machine runs."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import asdict, dataclass
from pathlib import Path

LEASE_SECONDS = 60
"""For so long a process that cannot be looked at is believed to live, by the database's clock."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Holder:
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
    def of(cls, text: str) -> Holder:
        return cls(**json.loads(text))

    def is_gone(self, here: str) -> bool:
        """Whether the process has surely ended, as seen from `here`; one of another machine, or of
        another namespace, may live."""
        return self.boot == here and _started(self.pid) != self.started


def this_holder() -> Holder:
    """This process."""
    pid = os.getpid()
    return Holder(socket.gethostname(), here(), pid, _started(pid) or "")


def here() -> str:
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
