"""A worker's side of `objective=command`: starts the program of one trial after another.

No torch here: what a program needs it loads itself.
"""

from __future__ import annotations

import json
import logging
import math
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from automl.record.disk import flush_folder, make_folder, write_atomically
from automl.record.files import BEST_REPORT, PROGRAM_FILES, WRITTEN_FILES
from automl.record.texts import fit_line, printable
from automl.training import outcome, steps
from automl.training.command import shared_files
from automl.training.command.arguments import Given, arguments, environment, words_of
from automl.training.command.ending import LastLines, of_end
from automl.training.command.grouping import Grouping, Report
from automl.training.command.metrics import Find, Lines, finder
from automl.training.command.program import Ended, Keeper, KeeperDiedError, Running
from automl.training.command.setup import CommandSetup
from automl.training.objective import TrialStopped
from automl.training.peaks import Peak, PeakTeller
from automl.training.reports import Goal, TrialReports
from automl.training.seeds import trial_seed
from automl.trial import (
    Feed,
    Interrupted,
    OnEvent,
    OnEvents,
    Outcome,
    Placement,
    TrialSpec,
    Verdict,
)

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 0.1
"""So often a program that prints nothing is looked after."""
_GRACE_SHARE = 0.9
"""Of the sweep's grace: after all of it the worker itself is ended."""
_PARAMS = "params.json"


def open_session(setup: CommandSetup) -> CommandSession:
    """See `automl.trial.Entry`."""
    return CommandSession(setup)


class CommandSession:
    """See `automl.trial.Session`. `run` may be called from many threads at once."""

    def __init__(self, setup: CommandSetup) -> None:
        self._setup = setup
        self._words = words_of(setup.command)
        self._find = finder(setup.metric, setup.pattern)
        self._folder = Path.cwd()
        self._lock = threading.Lock()  # guards the two below
        self._keepers: list[Keeper] = []
        """Those that have no program now."""
        self._running: set[Running] = set()

    def run(self, spec: TrialSpec, placement: Placement, on_event: OnEvent) -> None:
        """Carry out one trial; its last event is its outcome. Raises what `on_event` raised."""
        trial = _Trial(spec, placement, self._setup, on_event)
        ended = self._carry_out(trial)
        if trial.record.broken is not None:
            raise trial.record.broken
        for event in (*trial.teller.last(spec.number), ended):
            on_event(event)

    def run_pack(self, feed: Feed, placement: Placement, on_events: OnEvents) -> None:
        """Programs run one by one."""
        while (spec := feed.next()) is not None:
            self.run(spec, placement, lambda e: on_events([e]).get(e.trial, Verdict.GO_ON))

    def held_bytes(self) -> Sequence[int]:
        """The driver tells what programs hold, and of which of our processes they are."""
        return ()

    @property
    def n_steps(self) -> int:
        """Reports."""
        return steps.n_taken()

    @property
    def programs_bytes(self) -> int:
        with self._lock:
            return sum(program.held_bytes for program in self._running)

    def cap_memory(self, caps_bytes: Sequence[int]) -> None:
        """A program cannot be held to it."""

    def give_back_memory(self) -> None:
        """A program that has ended holds none."""

    def close(self) -> None:
        """End what starts programs."""
        with self._lock:
            keepers, self._keepers = self._keepers, []
        for keeper in keepers:
            keeper.close()

    def _carry_out(self, trial: _Trial) -> Outcome:
        record = trial.record
        try:
            trial.prepare()
            began = time.time()
            try:
                ended = self._run(trial)
            finally:
                _name_files_of_several(self._folder, trial.spec, began)
        except KeeperDiedError as error:
            return Interrupted(record.spec.number, time.time(), str(error), by_worker_death=True)
        except BaseException as error:  # noqa: BLE001  pruned and interrupted, or our own defect
            return outcome.of_exception(error, record)
        if ended.left_behind:
            names = ", ".join(name.rpartition(" (pid")[0] for name in ended.left_behind)
            logger.warning("a program left processes behind, which were ended: %s", names)
        return of_end(ended, trial.last, record)

    def _run(self, trial: _Trial) -> Ended:
        argv = arguments(self._words, trial.spec.params, trial.given, self._setup.flags)
        trial.write(f"$ {' '.join(argv)}\n".encode(errors="replace"))
        env = os.environ | trial.environment
        with self._keeper() as keeper, keeper.running(argv, env, self._folder) as program:
            with self._lock:
                self._running.add(program)
            try:
                trial.flush()
                return _follow(program, trial, self._find, self._setup.grace_seconds)
            finally:
                with self._lock:
                    self._running.discard(program)

    @contextmanager
    def _keeper(self) -> Iterator[Keeper]:
        """One that has no program. It lives as long as this process, unless it broke."""
        with self._lock:
            keeper = self._keepers.pop() if self._keepers else None
        keeper = keeper or Keeper()
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


class _Trial:
    """One trial: what its program is given, and what becomes of what it prints."""

    def __init__(
        self, spec: TrialSpec, placement: Placement, setup: CommandSetup, on_event: OnEvent
    ) -> None:
        self.spec, self._placement, self._setup = spec, placement, setup
        self._directory = Path(spec.checkpoint_dir).absolute()
        self.given = Given(
            seed=trial_seed(spec.study_seed, spec.number),
            trial=spec.number,
            checkpoint_dir=str(self._directory),
            trial_dir=str(self._directory / PROGRAM_FILES),
            n_devices=len(placement.shares),
            json=str(self._directory / _PARAMS),
        )
        self.last = LastLines()
        self.peak_bytes = 0
        """The most main memory that its program was seen to hold."""
        self.teller = PeakTeller(self._get_peak)
        self.record = TrialReports(
            spec=spec,
            goal=Goal(setup.metric, setup.direction, tuple(spec.params)),
            on_event=on_event,
            checkpoint_every_seconds=math.inf,
            teller=self.teller,
            on_gpu=not placement.on_host,
        )
        self._grouping = Grouping(setup.metric)
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
        return unset | own | environment(self.spec.params, self.given)

    def prepare(self) -> None:
        """Make its folders, and take up what is known from before an interruption."""
        self._unflushed = make_folder(Path(self.given.trial_dir))
        write_atomically(Path(self.given.json), json.dumps(dict(self.spec.params)))
        with suppress(FileNotFoundError, ValueError, TypeError, KeyError):
            best = json.loads((self._directory / BEST_REPORT).read_text())
            self.record.know_best(int(best["step"]), float(best["value"]))
        self.record.ask()

    def flush(self) -> None:
        """A power cut does not take the folder from under a checkpoint of the program's; while that
        begins, since it may take as long as a short program."""
        for folder in self._unflushed:
            flush_folder(folder)

    def report(self, report: Report) -> None:
        """Raises TrialPruned or TrialInterrupted."""
        before = self.record.best_step, self.record.best_value
        try:
            self.record.report(report.step, report.metrics, None, None)
        finally:
            step, value = self.record.best_step, self.record.best_value
            if (step, value) != before:
                text = json.dumps({"step": step, "value": value})
                write_atomically(self._directory / BEST_REPORT, text)

    def take_line(self, line: str, find: Find) -> None:
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

    def _get_peak(self) -> Peak | None:
        """Of a GPU the driver knows it."""
        return Peak(self.peak_bytes) if self._placement.on_host and self.peak_bytes else None


def _follow(program: Running, trial: _Trial, find: Find, grace_seconds: float) -> Ended:
    """What a program prints becomes reports, until it ends or need not go on."""
    streams = Lines(), Lines()
    try:
        while program.ended is None:
            for number, chunk in program.read(_LOOK_SECONDS):
                trial.write(chunk)
                for line in streams[number].feed(chunk):
                    trial.take_line(line, find)
            trial.peak_bytes = max(trial.peak_bytes, program.held_bytes)
            trial.record.ask()
        for stream in streams:
            for line in stream.rest():
                trial.take_line(line, find)
        trial.end()
    except TrialStopped:
        for _, chunk in program.stop(_GRACE_SHARE * grace_seconds):
            trial.write(chunk)
        raise
    trial.peak_bytes = max(trial.peak_bytes, program.ended.peak_bytes)
    return program.ended


def _name_files_of_several(folder: Path, spec: TrialSpec, began: float) -> None:
    """Once for each file: the same words again are not said again."""
    checkpoints = Path(spec.checkpoint_dir).absolute().parent
    seen = shared_files.Seen(
        began,
        time.time(),
        shared_files.changed_since(folder, began, without=checkpoints),
        shared_files.texts(spec.params),
    )
    try:
        every = shared_files.note(checkpoints / WRITTEN_FILES, seen)
    except OSError as error:  # a picture only
        logger.warning("what programs write is not looked at: %s", error.strerror)
        return
    for path in seen.changed:
        if shared_files.written_twice(path, every):
            logger.warning(
                "%s was written by more than one trial, and the last one's remains: have the "
                "program write to {trial_dir}, such as --out={trial_dir}/%s",
                fit_line(printable(path)),
                fit_line(printable(Path(path).name)),
            )
