"""Whole sweeps, as `python -m automl` runs them, and what their records tell."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path

from gpu_machine import Bench

from automl.record.event_log import read_events
from automl.trial import (
    Event,
    FailedOutcome,
    FinishedOutcome,
    OutOfMemoryOutcome,
    Params,
    TooLargeOutcome,
    TrialOutcome,
    TrialStarted,
)
from tests.end_to_end.program import ROOT, Program


@dataclass(frozen=True)
class Ran:
    """A sweep, or what ran the same trials without one."""

    events: Sequence[Event]
    trouble: str = ""
    """Why it ended before all trials did; empty: it did not."""

    @cached_property
    def starts(self) -> list[TrialStarted]:
        return [event for event in self.events if isinstance(event, TrialStarted)]

    @cached_property
    def outcomes(self) -> list[TrialOutcome]:
        return [event for event in self.events if isinstance(event, TrialOutcome)]

    @property
    def params(self) -> dict[int, Params]:
        return {start.trial: start.params for start in self.starts}

    @property
    def n_finished(self) -> int:
        return sum(isinstance(o, FinishedOutcome) for o in self.outcomes)

    @property
    def n_lost(self) -> int:
        """Failed, or ended because they fit nowhere."""
        return sum(isinstance(o, FailedOutcome | TooLargeOutcome) for o in self.outcomes)

    @property
    def ran_out(self) -> list[OutOfMemoryOutcome]:
        """Times that a trial ran out of memory; each ran again."""
        return [o for o in self.outcomes if isinstance(o, OutOfMemoryOutcome)]

    @property
    def seconds(self) -> float | None:
        """From the first trial's start to the last one's end; None: none has finished."""
        ends = [o.time for o in self.outcomes if isinstance(o, FinishedOutcome)]
        return max(ends) - min(start.time for start in self.starts) if ends else None

    @property
    def per_minute(self) -> float | None:
        """Trials that finished, while any ran: also of a sweep that was cut short."""
        return 60 * self.n_finished / self.seconds if self.seconds else None

    @property
    def at_once(self) -> float | None:
        """The most that ran at once, for at least half of the time."""
        changes = [(start.time, 1) for start in self.starts]
        changes = sorted(changes + [(outcome.time, -1) for outcome in self.outcomes])
        running = accumulate(change for _, change in changes)
        times = [time for time, _ in changes]
        spans = [
            (n, after - before) for n, before, after in zip(running, times, times[1:], strict=False)
        ]
        half, so_far = sum(seconds for _, seconds in spans) / 2, 0.0
        for n, seconds in sorted(spans, reverse=True):
            so_far += seconds
            if so_far >= half:
                return n
        return None


def sweep(bench: Bench, folder: Path, name: str, function: str, *words: str, seconds: float) -> Ran:
    """One of an objective in `gpu_objectives.py`, killed after so many seconds."""
    program = Program(folder)
    here = Path(__file__).parent
    program.environment["PYTHONPATH"] = os.pathsep.join(map(str, (ROOT, here)))
    program.environment["MLFLOW_DISABLE_TELEMETRY"] = "true"
    running = program.start(
        f"study.name={name}",
        *bench.words,
        "sampler=random",
        "pruner=none",
        "execution=workers",
        "objective=python",
        f"objective.target=gpu_objectives:{function}",
        *words,
    )
    trouble = ""
    try:
        if running.process.wait(seconds) != 0:
            trouble = f"exit {running.process.returncode}: {_last_line(running.stderr)}"
    except subprocess.TimeoutExpired:
        trouble = f"killed after {seconds:.0f} s"
    finally:
        program.end_all()
    log = folder / "studies" / name / "events.log"
    return Ran([event for event, _ in read_events(log)], trouble)


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2].replace("|", "/")[:160]
