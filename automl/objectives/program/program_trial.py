"""One trial whose objective is a program: what it is given, and what becomes of what it prints.

How a trial ended whose objective is a program: from its exit to one `TrialOutcome`. Pure.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from automl.objectives import outcomes
from automl.objectives.goal import StudyGoal
from automl.objectives.program.printed_metrics import FindMetrics, PrintedReport, ReportGrouping
from automl.objectives.program.program_arguments import ProgramInputs, program_environment
from automl.objectives.program.program_flags import CommandSetup
from automl.objectives.program.running_program import ProgramEnd
from automl.objectives.reports.logged_values import LoggedSide
from automl.objectives.reports.memory_peaks import DeviceMemoryPeak, PeakReporter
from automl.objectives.reports.trial_reports import TrialReports
from automl.objectives.seeds import trial_seed
from automl.record.disk import flush_folder, make_folder, write_atomically
from automl.record.study_files import BEST_REPORT, PROGRAM_FILES
from automl.record.texts import fit_line, how_it_ended
from automl.trial import (
    FailedOutcome,
    FinishedOutcome,
    InterruptedOutcome,
    LoggedPoint,
    OnEvent,
    OutOfMemoryOutcome,
    Placement,
    TrialOutcome,
    TrialSpec,
)

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


class LastOutputLines:
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


def outcome_of_program(
    ended: ProgramEnd, last: LastOutputLines, record: TrialReports
) -> TrialOutcome:
    """The outcome of a program that ended by itself."""
    number, now = record.spec.number, time.time()
    if ended.status == 0:
        if record.best_value is not None:
            return FinishedOutcome(number, now, record.best_value)
        cause = f"{_no_value(record, last)}{_left_behind(ended.left_behind)}"
        return FailedOutcome(
            number, now, cause, hopeless=record.goal.metric not in record.metric_names
        )
    how = _how(ended.status)
    cause = f"{how}; last lines: {last.shown}"
    if outcomes.mentions_out_of_memory(last.all) or last.say(*_NO_MEMORY_TEXTS):
        return OutOfMemoryOutcome(number, now, cause)
    if record.on_gpu and outcomes.mentions_device_failure(last.all):
        return InterruptedOutcome(number, now, f"its GPU failed: {cause}", by_worker_death=True)
    killed = how == "SIGKILL" or last.say(*_KILLED_TEXTS)
    if killed or how.startswith("SIG"):
        died = f"its program died: {cause}"
        return InterruptedOutcome(number, now, died, by_worker_death=True, killed=killed)
    return FailedOutcome(number, now, f"{cause}{_hint(last)}")


def _how(status: int) -> str:
    """`SIGSEGV`, or `exit status 3`."""
    for number in (-status, status - _SHELLS_OFFSET):
        if number in _DEADLY or number == -status > 0:
            return how_it_ended(-number)
    return how_it_ended(status)


def _no_value(record: TrialReports, last: LastOutputLines) -> str:
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


def _hint(last: LastOutputLines) -> str:
    if not last.say(*_NO_TERMINAL_TEXTS):
        return ""
    return " (nobody answers it: there is no terminal, and standard input is closed)"


_PARAMS = "params.json"


class ProgramTrial:
    """One trial: what its program is given, and what becomes of what it prints."""

    def __init__(
        self, spec: TrialSpec, placement: Placement, setup: CommandSetup, on_event: OnEvent
    ) -> None:
        self.spec, self._placement, self._setup = spec, placement, setup
        self._directory = Path(spec.checkpoint_dir).absolute()
        self.given = ProgramInputs(
            seed=trial_seed(spec.study_seed, spec.number),
            trial=spec.number,
            checkpoint_dir=str(self._directory),
            trial_dir=str(self._directory / PROGRAM_FILES),
            n_devices=len(placement.shares),
            json=str(self._directory / _PARAMS),
        )
        self.last = LastOutputLines()
        self.peak_bytes = 0
        """The most main memory that its program was seen to hold."""
        self.teller = PeakReporter(self._get_peak)
        self.record = TrialReports(
            spec=spec,
            goal=StudyGoal(setup.metric, setup.direction, tuple(spec.params)),
            on_event=on_event,
            checkpoint_every_seconds=math.inf,
            teller=self.teller,
            on_gpu=not placement.on_host,
        )
        self._grouping = ReportGrouping(setup.metric)
        self._unflushed: Sequence[Path] = ()

    @property
    def environment(self) -> dict[str, str]:
        """What differs for its program."""
        visible = (
            ""
            if self._placement.on_host
            else ",".join(device.uuid for device in self._placement.devices)
        )
        own = {"CUDA_VISIBLE_DEVICES": visible, "PYTHONUNBUFFERED": "1"}
        defaults = {"OMP_NUM_THREADS": str(self._setup.n_threads), "PET_STANDALONE": "1"}
        unset = {name: text for name, text in defaults.items() if name not in os.environ}
        again = {"AUTOML_REFIT": "1"} if self._setup.refit else {}
        return unset | own | program_environment(self.spec.params, self.given) | again

    def prepare(self) -> None:
        """Make its folders, and take up what is known from before an interruption."""
        self._unflushed = make_folder(Path(self.given.trial_dir))
        write_atomically(Path(self.given.json), json.dumps(dict(self.spec.params)))
        with suppress(FileNotFoundError, ValueError, TypeError, KeyError):
            best = json.loads((self._directory / BEST_REPORT).read_text())
            self.record.set_best(int(best["step"]), float(best["value"]))
        self.record.ask()

    def flush(self) -> None:
        """A power cut does not take the folder from under a checkpoint of the program's; while that
        begins, since it may take as long as a short program."""
        for folder in self._unflushed:
            flush_folder(folder)

    def report(self, report: PrintedReport) -> None:
        """Raises TrialPruned or TrialInterrupted."""
        with self.keeping_best():
            self.record.report(report.step, report.metrics, None, None)

    @contextmanager
    def keeping_best(self) -> Iterator[None]:
        """While something is reported, by whatever thread."""
        with self.record.lock:
            before = self.record.best_step, self.record.best_value
            try:
                yield
            finally:
                step, value = self.record.best_step, self.record.best_value
                if (step, value) != before:
                    text = json.dumps({"step": step, "value": value})
                    write_atomically(self._directory / BEST_REPORT, text)

    def take_line(self, line: str, find: FindMetrics) -> None:
        self.last.add(line)
        for report in self._grouping.take(find(line)):
            self.report(report)

    def end(self) -> None:
        """What its program printed last is a report, too."""
        for report in self._grouping.rest():
            self.report(report)

    def write(self, chunk: bytes) -> None:
        """To where this process prints."""
        sys.stdout.flush()
        left = memoryview(chunk)
        while left:
            left = left[os.write(1, left) :]

    def _get_peak(self) -> DeviceMemoryPeak | None:
        """Of a GPU the driver knows it."""
        return (
            DeviceMemoryPeak(self.peak_bytes)
            if self._placement.on_host and self.peak_bytes
            else None
        )


class ProgramLogSide(LoggedSide):
    """What a program logs through another library, beside what it prints."""

    def __init__(self, trial: ProgramTrial) -> None:
        super().__init__(trial.record)
        self._trial = trial

    def log(
        self,
        points: Sequence[LoggedPoint] = (),
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        with self._trial.keeping_best():
            super().log(points, params, tags)
