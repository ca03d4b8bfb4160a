"""How a trial ended whose objective is a program: from its exit to one `Outcome`. Pure."""

from __future__ import annotations

import signal
import time
from collections import deque
from collections.abc import Sequence

from automl.record.texts import fit_line, how_it_ended
from automl.training import outcome
from automl.training.command.program import Ended
from automl.training.reports import TrialReports
from automl.trial import Failed, Finished, Interrupted, Outcome, OutOfMemory

N_LAST_LINES = 20
_N_SHOWN = 3
_N_SEEN = 20
_SHELLS_OFFSET = 128
"""A shell says so of a signal that ended its command."""
_DEADLY = frozenset((signal.SIGABRT, signal.SIGBUS, signal.SIGKILL, signal.SIGSEGV))
_MAX_SHOWN_CHARACTERS = 300
_NO_TERMINAL_TEXTS = (
    "EOFError",
    "Inappropriate ioctl",
    "not a tty",
    "No such device: '/dev/tty'",
    "_curses.error",
)
_MARKERS = frozenset("^~ ")
"""Of the lines below those of a traceback, which say nothing without them."""
_KILLED_TEXTS = ("Signal 9 (SIGKILL)", "killed by signal: Killed")
"""torchrun's words for a rank, and torch's for a DataLoader's worker, that somebody killed."""
_NO_MEMORY_TEXTS = ("OutOfMemoryError", "MemoryError")


class LastLines:
    """The end of what a program printed."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=N_LAST_LINES)

    def add(self, line: str) -> None:
        self._lines.append(line)

    def say(self, *texts: str) -> bool:
        """Whether one of these stands there."""
        return any(text in line for line in self._lines for text in texts)

    @property
    def all(self) -> str:
        return "\n".join(self._lines)

    @property
    def shown(self) -> str:
        """For a cause: the last few, on one line."""
        told = [line for line in self._lines if not _MARKERS.issuperset(line)]
        lines = [fit_line(line, _MAX_SHOWN_CHARACTERS) for line in told]
        return " / ".join(lines[-_N_SHOWN:]) or "none"


def of_end(ended: Ended, last: LastLines, record: TrialReports) -> Outcome:
    """The outcome of a program that ended by itself."""
    number, now = record.spec.number, time.time()
    if ended.status == 0:
        if record.best_value is not None:
            return Finished(number, now, record.best_value)
        cause = f"{_no_value(record, last)}{_left_behind(ended.left_behind)}"
        return Failed(number, now, cause, hopeless=record.goal.metric not in record.metric_names)
    how = _how(ended.status)
    cause = f"{how}; last lines: {last.shown}"
    if outcome.says_no_memory(last.all) or last.say(*_NO_MEMORY_TEXTS):
        return OutOfMemory(number, now, cause)
    if record.on_gpu and outcome.says_device_failed(last.all):
        return Interrupted(number, now, f"its GPU failed: {cause}", by_worker_death=True)
    killed = how == "SIGKILL" or last.say(*_KILLED_TEXTS)
    if killed or how.startswith("SIG"):
        died = f"its program died: {cause}"
        return Interrupted(number, now, died, by_worker_death=True, killed=killed)
    return Failed(number, now, f"{cause}{_hint(last)}")


def _how(status: int) -> str:
    """`SIGSEGV`, or `exit status 3`."""
    for number in (-status, status - _SHELLS_OFFSET):
        if number in _DEADLY or number == -status > 0:
            return how_it_ended(-number)
    return how_it_ended(status)


def _no_value(record: TrialReports, last: LastLines) -> str:
    metric, seen = record.goal.metric, sorted(record.metric_names)
    shown = ", ".join(seen[:_N_SEEN]) + (", …" if len(seen) > _N_SEEN else "")
    ended = "exit status 0, but "
    if metric in seen:
        return f"{ended}{metric} was never a finite number; last lines: {last.shown}"
    say = (
        f"Have it print `{metric}: 0.31` or {{{metric!r}: 0.31}}, or say where it stands: "
        f"objective.pattern='… (?P<{_identifier(metric)}>[0-9.]+)'"
    )
    if not seen:
        return f"{ended}it printed no metric. {say}. Last lines: {last.shown}"
    return (
        f"{ended}study.metric={metric} was never printed; seen: {shown}. Set "
        f"study.metric to one of these. {say}. Last lines: {last.shown}"
    )


def _identifier(metric: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in metric)


def _left_behind(names: Sequence[str]) -> str:
    if not names:
        return ""
    return f". It left behind, and a trial ends with its program: {', '.join(names)}"


def _hint(last: LastLines) -> str:
    if not last.say(*_NO_TERMINAL_TEXTS):
        return ""
    return " (nobody answers it: there is no terminal, and standard input is closed)"
