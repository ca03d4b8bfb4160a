"""Runs the program of one trial after another in a worker, for `objective=command`.

It warns if a program reports nothing for long, because a program that hangs looks like one that
trains. No torch is imported: a program loads for itself what it needs. Processes are started and
read in `running_program.py`.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import shlex
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from automl.errors import StorageError
from automl.in_trial.reports import outcomes, step_counter
from automl.in_trial.trial_context import TrialStopped
from automl.in_trial.user_code import open_inside
from automl.objectives.program import shared_files
from automl.objectives.program.printed_metrics import FindMetrics, LineSplitter, make_metric_finder
from automl.objectives.program.program_arguments import command_words, program_arguments
from automl.objectives.program.program_flags import CommandSetup
from automl.objectives.program.program_trial import (
    ProgramLogReceiver,
    ProgramTrial,
    outcome_of_program,
)
from automl.objectives.program.running_program import (
    KeeperDiedError,
    ProgramEnd,
    ProgramKeeper,
    RunningProgram,
    foreign_program,
)
from automl.objectives.repeats.repeated_trial import RepeatSettings
from automl.objectives.repeats.repeats_session import RepeatsSession
from automl.record.secrets import mask_credentials
from automl.trial import (
    InterruptedOutcome,
    ObjectiveSession,
    OnEvent,
    OnEvents,
    Placement,
    SweepChannel,
    TrialIsolation,
    TrialOutcome,
    TrialSource,
    TrialSpec,
    single_event_handler,
)


class SilenceMonitor:
    """Decides when to warn that a program reports nothing; the time is passed in, in seconds."""

    def __init__(self, limit_seconds: float, now: float) -> None:
        self._limit_seconds, self._silent_since = limit_seconds, now
        self._n_reports = 0
        self._has_warned = False

    def warning(self, n_reports: int, now: float) -> str | None:
        """Return a warning once, when the program has reported nothing for as long as the limit.

        It is the same for all programs, so that a sweep shows it once.
        """
        if n_reports != self._n_reports:
            self._n_reports, self._silent_since = n_reports, now
        limit = self._limit_seconds
        if self._has_warned or now - self._silent_since < limit:
            return None
        self._has_warned = True
        return (
            f"a program has told no metric for {limit / 60:g} minutes. If it never ends, Ctrl-C "
            f"ends it, and execution.silence_timeout_seconds={limit:g} has such trials fail"
        )


logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.1
"""Seconds between two checks of a program that prints nothing."""
_GRACE_FRACTION = 0.9
"""Fraction of the sweep's grace that a program gets; after all of it the worker itself is ended."""


def open_session(setup: CommandSetup) -> ObjectiveSession:
    """Open the session of a worker; a `ProcessEntry` names this function."""
    session = CommandSession(setup)
    if setup.repeats == 1:
        return session
    rules = RepeatSettings(setup.repeats, setup.metric, setup.direction, are_programs=True)
    return RepeatsSession(session, rules)


class CommandSession:
    """An `automl.trial.ObjectiveSession` whose objective is a program.

    `run` may be called from many threads at once.
    """

    def __init__(self, setup: CommandSetup) -> None:
        self._setup = setup
        self._words = command_words(setup.command)
        self._find = make_metric_finder(setup.metric, setup.pattern)
        self._inside = open_inside(setup.inside)
        self._folder = Path.cwd()
        sweep = multiprocessing.parent_process()
        self._output_files = shared_files.output_files(
            os.getpid() if sweep is None or sweep.pid is None else sweep.pid
        )
        self._lock = threading.Lock()  # guards the two below
        self._keepers: list[ProgramKeeper] = []
        """Keepers that run no program now."""
        self._running: set[RunningProgram] = set()

    def run(
        self,
        spec: TrialSpec,
        placement: Placement,
        on_event: OnEvent,
        line: SweepChannel | None = None,
    ) -> None:
        """Carry out one trial; its last event is its outcome. Raises what `on_event` raised, and
        StorageError if the trial's files cannot be written.

        `line` is not used, because a program asks for nothing.
        """
        trial = ProgramTrial(spec, placement, self._setup, on_event)
        outcome = self._carry_out(trial)
        if trial.record.broken is not None:
            raise trial.record.broken
        for event in (*trial.peak_reporter.last(spec.number), outcome):
            on_event(event)

    def run_pack(self, feed: TrialSource, placement: Placement, on_events: OnEvents) -> None:
        """Run the feed's trials one by one: programs form no packs."""
        while (spec := feed.next()) is not None:
            self.run(spec, placement, single_event_handler(on_events))

    def held_bytes(self) -> Sequence[int]:
        """Return nothing: the driver knows the GPU memory of programs, and whose they are."""
        return ()

    @property
    def n_steps(self) -> int:
        """Number of reports of all programs, which count as steps."""
        return step_counter.n_steps_taken()

    @property
    def programs_bytes(self) -> int:
        with self._lock:
            return sum(program.held_bytes for program in self._running)

    def cap_memory(self, caps_bytes: Sequence[int]) -> None:
        """Do nothing: a program's GPU memory cannot be capped."""

    def keep_apart(self, apart: TrialIsolation) -> None:
        """Do nothing: programs are processes of their own."""

    def give_back_memory(self) -> None:
        """Do nothing: a program that has ended holds no memory."""

    def close(self) -> None:
        """End the processes that start programs."""
        with self._lock:
            keepers, self._keepers = self._keepers, []
        for keeper in keepers:
            keeper.close()

    def _carry_out(self, trial: ProgramTrial) -> TrialOutcome:
        record = trial.record
        try:
            trial.prepare()
            began = time.time()
            try:
                end = self._run(trial)
            finally:
                self._warn_of_shared_files(trial.spec, began)
        except KeeperDiedError as error:
            return InterruptedOutcome(
                record.spec.number, time.time(), str(error), by_worker_death=True, killed=True
            )
        except BaseException as error:  # noqa: BLE001  pruned, interrupted, or a defect of automl
            if isinstance(error, StorageError):
                record.broken = error
            return outcomes.outcome_of_exception(error, record)
        if end.left_behind:
            names = ", ".join(name.rpartition(" (pid")[0] for name in end.left_behind)
            logger.warning("a program left processes behind, which were ended: %s", names)
        return outcome_of_program(end, trial.last_lines, record, trial.returned)

    def _warn_of_shared_files(self, spec: TrialSpec, began: float) -> None:
        try:
            for text in shared_files.shared_file_warnings(
                self._folder, spec, began, self._output_files
            ):
                logger.warning("%s", text)
        except OSError as error:  # the warnings are a help only; the trial is unharmed
            logger.warning("what programs write is not looked at: %s", error.strerror)

    def _run(self, trial: ProgramTrial) -> ProgramEnd:
        argv = program_arguments(self._words, trial.spec.params, trial.inputs, self._setup.flags)
        trial.write(f"$ {mask_credentials(shlex.join(argv))}\n".encode(errors="replace"))
        env = os.environ | trial.environment
        with (
            self._inside.program(
                ProgramLogReceiver(trial), foreign_program(argv), trial.record.ask
            ) as variables,
            self._keeper() as keeper,
            keeper.running(argv, {**env, **variables}, self._folder) as program,
        ):
            with self._lock:
                self._running.add(program)
            try:
                trial.flush()
                return _follow(program, trial, self._find, self._setup)
            finally:
                with self._lock:
                    self._running.discard(program)

    @contextmanager
    def _keeper(self) -> Iterator[ProgramKeeper]:
        """Yield a keeper that runs no program. It lives as long as this process, unless it died."""
        with self._lock:
            keeper = self._keepers.pop() if self._keepers else None
        keeper = keeper or ProgramKeeper()
        try:
            yield keeper
        except KeeperDiedError:
            keeper.close()
            raise
        except BaseException:
            with self._lock:
                self._keepers.append(keeper)
            raise
        with self._lock:
            self._keepers.append(keeper)


def _follow(
    program: RunningProgram, trial: ProgramTrial, find: FindMetrics, setup: CommandSetup
) -> ProgramEnd:
    """Turn what a program prints into reports, until it ends or the trial must end."""
    streams = LineSplitter(), LineSplitter()
    logged = ProgramLogReceiver(trial)
    silence = SilenceMonitor(setup.silent_seconds, time.monotonic())
    try:
        while program.ended is None:
            for number, chunk in program.read(_POLL_SECONDS):
                trial.write(chunk)
                for line in streams[number].feed(chunk):
                    trial.take_line(line, find)
            if setup.wandb:
                logged.take_wandb_calls()
            trial.peak_bytes = max(trial.peak_bytes, program.held_bytes)
            trial.record.ask()
            if warning := silence.warning(trial.record.n_reports, time.monotonic()):
                logger.warning("%s", warning)
        for stream in streams:
            for line in stream.rest():
                trial.take_line(line, find)
        trial.end()
    except TrialStopped:
        for _, chunk in program.stop(_GRACE_FRACTION * setup.grace_seconds):
            trial.write(chunk)
        raise
    trial.peak_bytes = max(trial.peak_bytes, program.ended.peak_bytes)
    return program.ended
