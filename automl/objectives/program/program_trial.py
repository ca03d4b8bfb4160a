"""Runs one trial whose objective is a program: its inputs, its printed reports, and its outcome.

The exit of the program becomes one `TrialOutcome` by pure functions. The process itself is started
and read by `running_program.py`.
"""

from __future__ import annotations

import json
import logging
import math
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from automl.in_trial.goal import StudyGoal
from automl.in_trial.reports import outcomes
from automl.in_trial.reports.logged_values import TrialLogReceiver
from automl.in_trial.reports.memory_peaks import DeviceMemoryPeak, PeakReporter
from automl.in_trial.reports.trial_reports import TrialReports
from automl.in_trial.seeds import trial_seed
from automl.objectives.program.printed_metrics import (
    FindMetrics,
    PrintedReport,
    ReportGrouping,
    normalize_name,
)
from automl.objectives.program.program_arguments import (
    ProgramInputs,
    nested_params,
    program_environment,
)
from automl.objectives.program.program_flags import CommandSetup
from automl.objectives.program.running_program import ProgramEnd
from automl.objectives.program.wandb_log import (
    WandbLog,
    logged_points,
    wandb_environment,
    wandb_files,
)
from automl.record.append_only import read_sealed, write_sealed
from automl.record.disk import flush_folder, make_folder, storage_errors, write_atomically
from automl.record.study_files import BEST_REPORT_FILE, PROGRAM_FILES_FOLDER, RETURNED_FILE
from automl.record.texts import exit_status_text, fit_line
from automl.trial import (
    FailedOutcome,
    InterruptedOutcome,
    LoggedPoint,
    OnEvent,
    OutOfMemoryOutcome,
    Placement,
    TrialOutcome,
    TrialSpec,
)

logger = logging.getLogger(__name__)
N_LAST_LINES = 20
_N_SHOWN_LINES = 3
_N_SHOWN_METRICS = 20
_SHELL_SIGNAL_OFFSET = 128
"""A shell exits with this number plus the signal that ended its command."""
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
"""Characters of the marker lines in a traceback, which say nothing without the line above."""
_KILLED_TEXTS = ("Signal 9 (SIGKILL)", "killed by signal: Killed")
"""The messages of torchrun about a killed rank, and of torch about a killed DataLoader worker."""
_NO_MEMORY_TEXTS = ("OutOfMemoryError", "MemoryError")


class LastOutputLines:
    """The last lines that a program printed, for causes and for the search of known errors."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=N_LAST_LINES)

    def add(self, line: str) -> None:
        self._lines.append(line)

    def contain(self, *texts: str) -> bool:
        """Return whether any of these texts is in the lines."""
        return any(text in line for line in self._lines for text in texts)

    @property
    def text(self) -> str:
        return "\n".join(self._lines)

    @property
    def summary(self) -> str:
        """The last three lines joined into one, for the cause of a failure."""
        telling = [line for line in self._lines if not _MARKERS.issuperset(line)]
        lines = [fit_line(line, _MAX_SHOWN_CHARACTERS) for line in telling]
        return " / ".join(lines[-_N_SHOWN_LINES:]) or "none"


def outcome_of_program(
    end: ProgramEnd, last: LastOutputLines, record: TrialReports, returned: object = None
) -> TrialOutcome:
    """Return the outcome of a program that ended by itself.

    `returned` is what it wrote to `returned.json`; None: nothing.
    """
    number, now = record.spec.number, time.time()
    if end.status == 0:
        if isinstance(returned, str):
            return FailedOutcome(number, now, fit_line(returned), hopeless=True)
        if returned is not None:
            return outcomes.outcome_of_return(returned, record)
        if record.best_value is not None:
            return outcomes.finished_outcome(record.best_value, record)
        cause = f"{_no_value(record, last)}{_left_behind(end.left_behind)}"
        return FailedOutcome(
            number, now, cause, hopeless=record.goal.metric not in record.metric_names
        )
    how = _exit_text(end.status)
    cause = f"{how}; last lines: {last.summary}"
    if outcomes.mentions_out_of_memory(last.text) or last.contain(*_NO_MEMORY_TEXTS):
        return OutOfMemoryOutcome(number, now, cause)
    if record.on_gpu and outcomes.mentions_device_failure(last.text):
        return InterruptedOutcome(number, now, f"its GPU failed: {cause}", by_worker_death=True)
    killed = how == "SIGKILL" or last.contain(*_KILLED_TEXTS)
    if killed or how.startswith("SIG"):
        died = f"its program died: {cause}"
        return InterruptedOutcome(number, now, died, by_worker_death=True, killed=killed)
    return FailedOutcome(number, now, f"{cause}{_hint(last)}")


def _exit_text(status: int) -> str:
    """Return `SIGSEGV`, or `exit status 3`."""
    for number in (-status, status - _SHELL_SIGNAL_OFFSET):
        if number in _DEADLY or number == -status > 0:
            return exit_status_text(-number)
    return exit_status_text(status)


def _no_value(record: TrialReports, last: LastOutputLines) -> str:
    metric, seen = record.goal.metric, sorted(record.metric_names)
    shown = ", ".join(seen[:_N_SHOWN_METRICS]) + (", …" if len(seen) > _N_SHOWN_METRICS else "")
    prefix = "exit status 0, but "
    if metric in seen:
        return f"{prefix}{metric} was never a finite number; last lines: {last.summary}"
    remedy = (
        f"Have it print `{metric}: 0.31` or {{{metric!r}: 0.31}}, or say where it stands: "
        f"objective.pattern='… (?P<{_identifier(metric)}>[0-9.]+)'"
    )
    if not seen:
        return f"{prefix}it printed no metric. {remedy}. Last lines: {last.summary}"
    return (
        f"{prefix}study.metric={metric} was never printed; seen: {shown}. Set "
        f"study.metric to one of these. {remedy}. Last lines: {last.summary}"
    )


def _identifier(metric: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in metric)


def _left_behind(names: Sequence[str]) -> str:
    if not names:
        return ""
    return f". It left behind, and a trial ends with its program: {', '.join(names)}"


def _hint(last: LastOutputLines) -> str:
    if not last.contain(*_NO_TERMINAL_TEXTS):
        return ""
    return " (nobody answers it: there is no terminal, and standard input is closed)"


_PARAMS = "params.json"


class ProgramTrial:
    """One trial whose objective is a program: its inputs, and the reports from its output."""

    def __init__(
        self, spec: TrialSpec, placement: Placement, setup: CommandSetup, on_event: OnEvent
    ) -> None:
        self.spec, self._placement, self._setup = spec, placement, setup
        self._directory = Path(spec.checkpoint_dir).absolute()
        self.inputs = ProgramInputs(
            seed=trial_seed(spec.study_seed, spec.number),
            trial=spec.trial,
            checkpoint_dir=str(self._directory),
            trial_dir=str(self._directory / PROGRAM_FILES_FOLDER),
            n_devices=len(placement.shares),
            json=str(self._directory / _PARAMS),
        )
        self.last_lines = LastOutputLines()
        self.peak_bytes = 0
        """The largest main memory that its program was measured to hold, in bytes."""
        self.peak_reporter = PeakReporter(self._get_peak)
        self.record = TrialReports(
            spec=spec,
            goal=StudyGoal(
                setup.metric,
                setup.direction,
                tuple(spec.params),
                more_metrics=setup.more_metrics,
            ),
            on_event=on_event,
            checkpoint_every_seconds=math.inf,
            peak_reporter=self.peak_reporter,
            on_gpu=not placement.on_host,
        )
        self._grouping = ReportGrouping(setup.metric)
        self._unflushed: Sequence[Path] = ()
        self.returned: object = None
        """What the program returned by its file; None: nothing."""

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that differ for its program."""
        visible = (
            ""
            if self._placement.on_host
            else ",".join(device.uuid for device in self._placement.devices)
        )
        own = {"CUDA_VISIBLE_DEVICES": visible, "PYTHONUNBUFFERED": "1"}
        defaults = {"OMP_NUM_THREADS": str(self._setup.n_threads), "PET_STANDALONE": "1"}
        unset = {name: text for name, text in defaults.items() if name not in os.environ}
        refit = {"AUTOML_REFIT": "1"} if self._setup.refit else {}
        wandb = wandb_environment(self._directory, os.environ) if self._setup.wandb else {}
        return unset | own | program_environment(self.spec.params, self.inputs) | refit | wandb

    def prepare(self) -> None:
        """Make the trial's folders, and restore the best report from before an interruption.

        Raises StorageError, as `flush` and `report` do.
        """
        with self._storing():
            self._unflushed = make_folder(Path(self.inputs.trial_dir))
            (self._directory / RETURNED_FILE).unlink(missing_ok=True)
            params = self.spec.params
            files = wandb_files(self._directory, params) if self._setup.wandb else {}
            texts = nested_params(params) if self._setup.wandb else dict(params)
            for file, text in {Path(self.inputs.json): json.dumps(texts), **files}.items():
                write_atomically(file, text)
        try:
            best = read_sealed(self._directory / BEST_REPORT_FILE)
            self.record.set_best(int(best["step"]), float(best["value"]))
            self.record.further.newest |= best.get("newest", {})
        except FileNotFoundError:
            pass
        except (ValueError, TypeError, KeyError) as error:
            logger.warning(
                "trial %d forgets its best report of before: %s cannot be read (%s)",
                self.spec.trial,
                self._directory / BEST_REPORT_FILE,
                error,
            )
        self.record.ask()

    def flush(self) -> None:
        """Flush the new folders, so that a power cut cannot lose them with a program's checkpoint.

        The program already runs meanwhile: a flush may take as long as a short program.
        """
        with self._storing():
            for folder in self._unflushed:
                flush_folder(folder)

    def report(self, report: PrintedReport) -> None:
        """Take a printed report. Raises TrialPruned or TrialInterrupted."""
        asked = {normalize_name(name): name for name in self._setup.more_metrics}
        metrics = {asked.get(normalize_name(n), n): v for n, v in report.metrics.items()}
        with self.keeping_best():
            self.record.report(report.step, metrics, None, None)

    @contextmanager
    def keeping_best(self) -> Iterator[None]:
        """Store the best report in a file if the block changes it. Any thread may use it."""
        with self.record.lock:
            before = self.record.best_step, self.record.best_value
            try:
                yield
            finally:
                step, value = self.record.best_step, self.record.best_value
                if (step, value) != before:
                    known = self.record.further.newest
                    newest = {"newest": known} if known else {}
                    best = {"step": step, "value": value} | newest
                    with self._storing():
                        write_sealed(self._directory / BEST_REPORT_FILE, best)

    def _storing(self) -> AbstractContextManager[None]:
        return storage_errors(self._directory, "the trial's files could not be written")

    def take_line(self, line: str, find: FindMetrics) -> None:
        self.last_lines.add(line)
        for report in self._grouping.take(find(line)):
            self.report(report)

    def end(self) -> None:
        """Report the metrics that the program printed last, and those that it returned."""
        for report in self._grouping.rest():
            self.report(report)
        self.returned = self._read_returned()
        if isinstance(self.returned, Mapping):
            self.record.conclude(self.returned)
        self.record.finish()

    def _read_returned(self) -> object:
        try:
            content = (self._directory / RETURNED_FILE).read_bytes()
        except FileNotFoundError:
            return None
        try:
            return json.loads(content)
        except ValueError as error:
            text = content.decode(errors="replace")
            return f"its {RETURNED_FILE} is no JSON ({error}): {text}"

    def write(self, chunk: bytes) -> None:
        """Write bytes to this process's standard output, if its file takes them."""
        left = memoryview(chunk)
        with suppress(OSError):
            sys.stdout.flush()
            while left:
                left = left[os.write(1, left) :]

    def _get_peak(self) -> DeviceMemoryPeak | None:
        """Return the peak of main memory; None on a GPU, whose memory the driver knows."""
        return (
            DeviceMemoryPeak(self.peak_bytes)
            if self._placement.on_host and self.peak_bytes
            else None
        )


class ProgramLogReceiver(TrialLogReceiver):
    """The trial that a program logs to through another library, besides what it prints."""

    def __init__(self, trial: ProgramTrial) -> None:
        super().__init__(trial.record)
        self._trial = trial
        self._wandb = WandbLog(Path(trial.spec.checkpoint_dir).absolute())

    def take_wandb_calls(self) -> None:
        """Log what the program has logged to W&B since the last call. Raises TrialPruned or
        TrialInterrupted."""
        record = self._trial.record
        for values, step in self._wandb.calls():
            self.log(logged_points(values, step, record.goal.metric, record.last_step))

    def log(
        self,
        points: Sequence[LoggedPoint] = (),
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        with self._trial.keeping_best():
            super().log(points, params, tags)
