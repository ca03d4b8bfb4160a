"""A study as the lines of its event log tell it, read without the code of the package.

What answers say is compared with this. A night moves the times of a study's files back.
"""

from __future__ import annotations

import json
import math
import re
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ENDS = {
    "Finished": "finished",
    "Pruned": "pruned",
    "Failed": "failed",
    "Interrupted": "interrupted",
}
FINAL = ("finished", "pruned", "failed")
OUTSIDE = "outside"
_TIME = re.compile(rb'"(time|until)":\s*(\d+)(\.\d+)?')


@dataclass
class Attempt:
    """One execution of a trial."""

    device: str
    start: float
    last: float
    """The time of its last event (Unix seconds)."""
    lease_seconds: float | None
    is_held: bool = False
    has_ended: bool = False


@dataclass
class LoggedTrial:
    """A trial, by its lines."""

    params: dict[str, Any]
    attempts: list[Attempt] = field(default_factory=list)
    reports: dict[int, float] = field(default_factory=dict)
    state: str = "running"
    value: float | None = None
    ended: float | None = None
    cause: str | None = None
    tags: dict[str, str] = field(default_factory=dict)
    is_left: bool = False
    """Whether its sweep was killed under it, or its lease is over: the log does not say why."""

    def leave(self, now: float) -> None:
        """Note that no sweep has the trial any more."""
        if self.state == "running" and not (self.is_outside and self.lease_until > now):
            self.state, self.is_left = "interrupted", True

    @property
    def seconds(self) -> float:
        return sum(attempt.last - attempt.start for attempt in self.attempts)

    @property
    def is_final(self) -> bool:
        return self.state in FINAL

    @property
    def is_outside(self) -> bool:
        return self.state == "running" and self.attempts[-1].device == OUTSIDE

    @property
    def lease_until(self) -> float:
        lease_seconds = self.attempts[-1].lease_seconds
        return self.attempts[-1].last + (math.inf if lease_seconds is None else lease_seconds)


@dataclass
class LoggedStudy:
    """The trials by number, the sweeps, and the edits."""

    trials: dict[int, LoggedTrial] = field(default_factory=dict)
    n_sweeps: int = 0
    n_edits: int = 0
    has_ended: bool = False
    """Whether the last sweep has recorded its end."""

    def leave(self, now: float) -> None:
        """Note that no sweep works on the study."""
        for trial in self.trials.values():
            trial.leave(now)

    def device_seconds(self) -> float:
        """Return the time in which a trial ran here; an attempt ends with its last event."""
        spans = sorted(
            (attempt.start, attempt.last)
            for trial in self.trials.values()
            for attempt in trial.attempts
            if attempt.device != OUTSIDE
        )
        total, until = 0.0, 0.0
        for start, last in spans:
            total += max(0.0, last - max(start, until))
            until = max(until, last)
        return total


def read_log(log: Path, *, is_at_work: bool) -> LoggedStudy:
    """Return the study as it is now; a line that is still being written is left out."""
    study = LoggedStudy()
    for line in _lines(log):
        event = json.loads(line)
        kind, number = event["event"], event.get("trial")
        if kind == "SweepStarted":
            study.n_sweeps, study.has_ended = study.n_sweeps + 1, False
            study.leave(event["time"])
        elif kind == "SweepEnded":
            study.has_ended = True
        elif kind == "Edited":
            study.n_edits += 1
        if isinstance(number, int):
            _take(study.trials, event, number)
    study.trials = dict(sorted(study.trials.items()))
    if not is_at_work:
        study.leave(time.time())
    return study


def _lines(log: Path) -> Iterator[bytes]:
    if log.exists():
        yield from log.read_bytes().rpartition(b"\n")[0].splitlines()


def _take(trials: dict[int, LoggedTrial], event: dict[str, Any], number: int) -> None:
    kind, now = event["event"], event["time"]
    if kind == "Started":
        trial = trials.setdefault(number, LoggedTrial(event["params"]))
        assert not trial.is_final, f"trial {number} is started after its end"
        trial.params, trial.state, trial.cause = event["params"], "running", None
        trial.is_left = False
        trial.attempts.append(Attempt(event["device"], now, now, event["lease_seconds"]))
        return
    if number not in trials:  # it was stopped before it began
        trials[number] = LoggedTrial({})
    trial = trials[number]
    assert not trial.is_final, f"trial {number} has the event {kind} after its end"
    if trial.attempts and not trial.attempts[-1].has_ended:
        trial.attempts[-1].last = now
    if kind == "Reported":
        assert event["step"] not in trial.reports, f"trial {number} repeats step {event['step']}"
        trial.reports[event["step"]] = event["metrics"]["val_loss"]
    elif kind == "Tagged":
        trial.tags[event["name"]] = event["text"]
        trial.attempts[-1].is_held = True
    elif kind in ENDS:
        trial.is_left = False
        trial.state, trial.value = ENDS[kind], event.get("value")
        trial.cause = event.get("cause")
        trial.ended = now if trial.is_final else None
        for attempt in trial.attempts[-1:]:
            attempt.has_ended = True


def sleep_through(directory: Path, seconds: int) -> None:
    """Make a study's files as if so much time had gone by since they were written."""
    for path in (directory / "events.log", directory / "status.json"):
        if path.exists():
            lines = path.read_bytes().splitlines()
            path.write_bytes(b"".join(_earlier(line, seconds) + b"\n" for line in lines))


def _earlier(line: bytes, seconds: int) -> bytes:
    """Return a line with its times moved back, as long as it was, with its checksum."""

    def move(found: re.Match[bytes]) -> bytes:
        moved = b"%d" % (int(found[2]) - seconds) + (found[3] or b"")
        return found[0].replace(found[2] + (found[3] or b""), moved)

    body, seal, _ = line.rpartition(b',"crc":"')
    body = _TIME.sub(move, body)
    return body + seal + b'%08x"}' % zlib.crc32(body)
