"""A worker's side of `objective=command`: starts the program of one trial after another.

No torch here: what a program needs it loads itself.

When people should hear that a program tells nothing: one that never ends looks like one that
trains. Pure.
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

from automl.objectives import outcomes
from automl.objectives.program import shared_files
from automl.objectives.program.printed_metrics import FindMetrics, LineSplitter, make_metric_finder
from automl.objectives.program.program_arguments import command_words, program_arguments
from automl.objectives.program.program_flags import CommandSetup
from automl.objectives.program.program_trial import ProgramLogSide, ProgramTrial, outcome_of_program
from automl.objectives.program.running_program import (
    KeeperDiedError,
    ProgramEnd,
    ProgramKeeper,
    RunningProgram,
    foreign_program,
)
from automl.objectives.reports import step_counter
from automl.objectives.trial_context import TrialStopped
from automl.objectives.user_code import open_inside
from automl.record.secrets import mask_credentials
from automl.trial import (
    InterruptedOutcome,
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
    """Of one program; what it is asked and when is passed in."""

    def __init__(self, limit_seconds: float, now: float) -> None:
        self._limit_seconds, self._since = limit_seconds, now
        self._n_reports = 0
        self._said = False

    def is_news(self, n_reports: int, now: float) -> bool:
        """Whether it has reported nothing for as long as the limit; true once."""
        if n_reports != self._n_reports:
            self._n_reports, self._since = n_reports, now
        if self._said or now - self._since < self._limit_seconds:
            return False
        self._said = True
        return True

    @property
    def words(self) -> str:
        """The same of all programs, so that they need be said once."""
        limit = self._limit_seconds
        return (
            f"a program has told no metric for {limit / 60:g} minutes. If it never ends, Ctrl-C "
            f"ends it, and execution.silence_timeout_seconds={limit:g} has such trials fail"
        )


logger = logging.getLogger(__name__)

_LOOK_SECONDS = 0.1
"""So often a program that prints nothing is looked after."""
_GRACE_SHARE = 0.9
"""Of the sweep's grace: after all of it the worker itself is ended."""


def open_session(setup: CommandSetup) -> CommandSession:
    """See `automl.trial.ProcessEntry`."""
    return CommandSession(setup)


class CommandSession:
    """See `automl.trial.ObjectiveSession`. `run` may be called from many threads at once."""

    def __init__(self, setup: CommandSetup) -> None:
        self._setup = setup
        self._words = command_words(setup.command)
        self._find = make_metric_finder(setup.metric, setup.pattern)
        self._inside = open_inside(setup.inside)
        self._folder = Path.cwd()
        sweep = multiprocessing.parent_process()
        self._printed_into = shared_files.output_files(
            os.getpid() if sweep is None or sweep.pid is None else sweep.pid
        )
        self._lock = threading.Lock()  # guards the two below
        self._keepers: list[ProgramKeeper] = []
        """Those that have no program now."""
        self._running: set[RunningProgram] = set()

    def run(
        self,
        spec: TrialSpec,
        placement: Placement,
        on_event: OnEvent,
        line: SweepChannel | None = None,
    ) -> None:
        """Carry out one trial; its last event is its outcome. Raises what `on_event` raised.

        A program asks for nothing: its line is not used."""
        trial = ProgramTrial(spec, placement, self._setup, on_event)
        ended = self._carry_out(trial)
        if trial.record.broken is not None:
            raise trial.record.broken
        for event in (*trial.teller.last(spec.number), ended):
            on_event(event)

    def run_pack(self, feed: TrialSource, placement: Placement, on_events: OnEvents) -> None:
        """Programs run one by one."""
        while (spec := feed.next()) is not None:
            self.run(spec, placement, single_event_handler(on_events))

    def held_bytes(self) -> Sequence[int]:
        """The driver tells what programs hold, and of which of our processes they are."""
        return ()

    @property
    def n_steps(self) -> int:
        """Reports."""
        return step_counter.n_steps_taken()

    @property
    def programs_bytes(self) -> int:
        with self._lock:
            return sum(program.held_bytes for program in self._running)

    def cap_memory(self, caps_bytes: Sequence[int]) -> None:
        """A program cannot be held to it."""

    def keep_apart(self, apart: TrialIsolation) -> None:
        """Programs are processes of their own."""

    def give_back_memory(self) -> None:
        """A program that has ended holds none."""

    def close(self) -> None:
        """End what starts programs."""
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
                ended = self._run(trial)
            finally:
                self._name_shared_files(trial.spec, began)
        except KeeperDiedError as error:
            return InterruptedOutcome(
                record.spec.number, time.time(), str(error), by_worker_death=True, killed=True
            )
        except BaseException as error:  # noqa: BLE001  pruned and interrupted, or our own defect
            return outcomes.outcome_of_exception(error, record)
        if ended.left_behind:
            names = ", ".join(name.rpartition(" (pid")[0] for name in ended.left_behind)
            logger.warning("a program left processes behind, which were ended: %s", names)
        return outcome_of_program(ended, trial.last, record)

    def _name_shared_files(self, spec: TrialSpec, began: float) -> None:
        try:
            for text in shared_files.shared_file_warnings(
                self._folder, spec, began, self._printed_into
            ):
                logger.warning("%s", text)
        except OSError as error:  # a picture only
            logger.warning("what programs write is not looked at: %s", error.strerror)

    def _run(self, trial: ProgramTrial) -> ProgramEnd:
        argv = program_arguments(self._words, trial.spec.params, trial.given, self._setup.flags)
        trial.write(f"$ {mask_credentials(shlex.join(argv))}\n".encode(errors="replace"))
        env = os.environ | trial.environment
        with (
            self._inside.program(
                ProgramLogSide(trial), foreign_program(argv), trial.record.ask
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
        """One that has no program. It lives as long as this process, unless it broke."""
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
    """What a program prints becomes reports, until it ends or need not go on."""
    streams = LineSplitter(), LineSplitter()
    silence = SilenceMonitor(setup.silent_seconds, time.monotonic())
    try:
        while program.ended is None:
            for number, chunk in program.read(_LOOK_SECONDS):
                trial.write(chunk)
                for line in streams[number].feed(chunk):
                    trial.take_line(line, find)
            trial.peak_bytes = max(trial.peak_bytes, program.held_bytes)
            trial.record.ask()
            if silence.is_news(trial.record.n_reports, time.monotonic()):
                logger.warning("%s", silence.words)
        for stream in streams:
            for line in stream.rest():
                trial.take_line(line, find)
        trial.end()
    except TrialStopped:
        for _, chunk in program.stop(_GRACE_SHARE * setup.grace_seconds):
            trial.write(chunk)
        raise
    trial.peak_bytes = max(trial.peak_bytes, program.ended.peak_bytes)
    return program.ended
