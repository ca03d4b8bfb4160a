"""What a worker that is killed has started, in process groups that are not its own.

Its group is killed with it. What started a session (the ranks of `torchrun`, a daemon) is found
before, while it still is the worker's, and ended after: what ends itself when the worker is gone,
as what keeps programs does with all that is theirs, is given a moment for it.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from automl.execution.descendants import descendants
from automl.execution.isolation.left import program

_MOMENT_SECONDS = 1.0
_LOOK_SECONDS = 0.005


class Outliving:
    """For one worker; any thread may note, one ends."""

    def __init__(self) -> None:
        self._found: dict[int, str] = {}
        """When each process began, by which it is known from another of its number."""

    def note(self, pid: int) -> None:
        """Before the worker is killed."""
        found = {child: _began(child) for child in descendants(pid)}
        self._found |= {child: began for child, began in found.items() if began}

    def end(self) -> Sequence[str]:
        """After it was; what had to be killed."""
        ends = time.monotonic() + _MOMENT_SECONDS
        while (rest := self._living()) and time.monotonic() < ends:
            time.sleep(_LOOK_SECONDS)
        names = [*dict.fromkeys(map(program, rest))]
        for pid in rest:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        return names

    def _living(self) -> Sequence[int]:
        return [pid for pid, began in self._found.items() if _began(pid) == began]


def _began(pid: int) -> str:
    """In ticks of the clock; empty where it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]
