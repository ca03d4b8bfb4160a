"""One sweep, from a checked config to the closing table: the only module that knows all parts.

    ask → request → place → reserve → submit → execute → record → tell

The main thread runs `loop.Loop` over one queue. Pool threads (`carry.py`) follow admitted trials.
MLflow is written by a process of its own from the event log, so that no trial waits for it.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import FrameType

from automl.admission.ledger import Ledger, LedgerView
from automl.admission.policy import DeviceAccount, Limits, Request, account
from automl.config import Config, ExecutionKind
from automl.devices.host import HostReader, own_memory_bytes
from automl.devices.reader import ReaderThread, open_reader, take_reading
from automl.errors import AutoMLError, StorageError, TrialsLeftBehindError
from automl.execution.executor import TrialFeed
from automl.record.directory import StudyDirectory, command_line, make_name
from automl.record.files import STATUS
from automl.record.texts import fit_line
from automl.running.carry import Carrier
from automl.running.display import Display, open_display
from automl.running.end import Closing
from automl.running.failures import Failures
from automl.running.loop import Loop
from automl.running.messages import (
    Asked,
    Broke,
    DevicesRead,
    Ended,
    Kind,
    Message,
    Released,
    Signalled,
    StopReason,
    Tick,
)
from automl.running.parts import Parts, open_parts
from automl.running.pictures import Pictures, UnfailingDisplay
from automl.running.prepare import Prepared, flat_settings, prepare
from automl.running.sweep_log import sweep_log
from automl.running.view import write_view
from automl.running.viewer import Viewer
from automl.tracking.delivery import DelivererProcess
from automl.trial import (
    HOST_UUID,
    Failed,
    Finished,
    Interrupted,
    Outcome,
    OutOfMemory,
    Placement,
    Pruned,
    Started,
    SweepStarted,
    TrialSpec,
    TrialState,
)

TICK_SECONDS = 0.25
STATUS_SECONDS = 1.0
JOIN_SECONDS = 30.0
"""How long threads may take to end after their workers were killed."""
CHECKPOINT_AND_STOP = "running trials write a checkpoint and stop"


def run_sweep(
    config: Config,
    stored_config: str,
    *,
    resume: bool = False,
    deliverer: DelivererProcess | None = None,
) -> int:
    """Run a sweep from its checks to its closing table; returns the exit code.

    `deliverer` is a process that loads MLflow already (see `warm.py`). Raises ConfigError before
    anything is written, and other AutoMLErrors for what breaks later, but not before every trial
    has ended; where one cannot be ended, TrialsLeftBehindError.
    """
    prepared, pictures = prepare(config), Pictures()
    if config.study.name is None:
        named = replace(config, study=replace(config.study, name=make_name()))
        prepared = replace(prepared, config=named)
    with (
        contextlib.closing(open_reader(config.devices)) as reader,
        StudyDirectory.open(prepared.config.study, must_exist=resume) as directory,
        open_parts(
            prepared, directory, reader, stored_config=stored_config, deliverer=deliverer
        ) as parts,
        UnfailingDisplay(open_display(), pictures) as display,
        sweep_log(directory.files.sweep_log, display),
    ):
        return _run_to_its_end(Sweep(parts, display, pictures))


def _run_to_its_end(sweep: Sweep) -> int:
    try:
        sweep.run()
        closing = Closing(sweep.parts, sweep.loop, sweep.display, sweep.viewer.view, sweep.pictures)
        code = closing.finish()
    except BaseException as error:
        if sweep.left_behind:
            raise TrialsLeftBehindError from error
        raise
    if sweep.left_behind:
        raise TrialsLeftBehindError(code)
    return code


class Sweep:
    """Runs the loop, and does what it decides (it is the loop's `Ports`)."""

    def __init__(self, parts: Parts, display: Display, pictures: Pictures) -> None:
        config = parts.config
        self.parts = parts
        self.display = display
        self.pictures = pictures
        self.messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self.ledger = Ledger()
        self.limits = limits(parts.prepared)
        self.carrier = Carrier(
            executor=parts.executor,
            log=parts.log,
            study=parts.study,
            ledger=self.ledger,
            post=self.messages.put,
        )
        self.feeds: dict[int, TrialFeed] = {}
        """Of running executions, by key."""
        self.pool = ThreadPoolExecutor(self.limits.max_concurrent_trials, "trial")
        self.began_seconds = time.monotonic()
        timeout = config.study.timeout_seconds
        self.loop = Loop(
            ports=self,
            ledger=self.ledger,
            limits=self.limits,
            n_trials=config.study.n_trials,
            n_asked=parts.study.n_asked,
            least_request=Request(config.admission.request_bytes or 0),
            deadline_seconds=None if timeout is None else self.began_seconds + timeout,
            pid=os.getpid() if config.execution.kind is ExecutionKind.inline else None,
        )
        self.left_behind = False
        """Trials did not stop in time; their threads still run."""
        self._on_host = isinstance(parts.reader, HostReader)
        self._own_memory_at_start = own_memory_bytes()
        self.failures = Failures(parts.log.history)
        self.viewer = Viewer(parts, self.loop, self.carrier, self.failures)
        self._shown_seconds = 0.0
        self._stop_told = False
        self._grace_until: float | None = None
        """When running trials are ended by force."""
        self._killed = False

    def run(self) -> None:
        """Until nothing runs and nothing more will, or what runs cannot be ended. Raises nothing:
        an error stops the trials as a signal does, and is the loop's from then on."""
        try:
            with self._signals(), self._readings():
                self._stop_if_broken(self._begin)
                while not self.loop.done and not self._must_leave():
                    self._stop_if_broken(self._take_next)
        except BaseException as error:  # noqa: BLE001 - stopping failed: the process ends with all
            self.loop.break_off(error)
        if self.loop.executions:
            self._leave_behind()
        self.pool.shutdown(wait=not self.left_behind)

    def _stop_if_broken(self, step: Callable[[], None]) -> None:
        """Trials never outlive the lock: whatever fails here, they are stopped, and waited for."""
        try:
            step()
        except BaseException as error:  # noqa: BLE001 - raised by `Closing`, when all has ended
            self.loop.handle(Broke(error), time.monotonic())

    def _begin(self) -> None:
        self._greet()
        self._record_start()
        self.loop.take_over(self._taken_over())

    def _take_next(self) -> None:
        message = self._next_message()
        if isinstance(message, Released):
            self.feeds.pop(message.key)
        self.loop.handle(message, time.monotonic())
        self._tell_of_deaths(message)
        self._show()

    @contextmanager
    def _readings(self) -> Iterator[None]:
        """Readings of the devices come as messages meanwhile."""
        readings = ReaderThread(
            self.parts.reader,
            self.parts.config.devices.interval_seconds,
            self._own_memory,
            lambda reading: self.messages.put(DevicesRead(reading)),
        )
        readings.start()
        try:
            yield
        finally:
            readings.stop()

    # --- what the loop decides is done here ---

    def ask(self) -> Asked | None:
        asked = self.parts.study.ask()
        return None if asked is None else Asked(asked.number, asked.params)

    def request_for(self, trial: Asked) -> Request:
        return Request(self.parts.prepared.request_bytes(trial.params))

    def n_may_pend(self) -> int | None:
        return self.parts.prepared.sampler.n_may_pend(self.viewer.n_ended)

    def kind_of(self, trial: Asked) -> Kind | None:
        if not self.parts.executor.can.packs:
            return None
        pack = self.parts.prepared.pack_of(trial.params, on_host=self._on_host)
        return None if pack is None else Kind(*pack)

    def submit(self, trials: Sequence[Asked], placement: Placement, n_lanes: int) -> None:
        key = trials[0].number
        feed = self.carrier.feed([self._spec(trial) for trial in trials], placement)
        self.feeds[key] = feed
        self.pool.submit(self.carrier.carry, key, feed, placement)

    def feed(self, key: int, trial: Asked) -> None:
        self.feeds[key].add(self._spec(trial))

    def _spec(self, trial: Asked) -> TrialSpec:
        return TrialSpec(
            number=trial.number,
            params=trial.params,
            checkpoint_dir=str(self.parts.directory.files.checkpoints(trial.number)),
            study_seed=self.parts.config.study.seed,
        )

    def tell(self, outcome: Outcome) -> None:
        device = self.carrier.devices.pop(outcome.trial, None)
        self.parts.study.tell(outcome.trial, outcome, device)
        if isinstance(outcome, Failed):
            self._tell_of_failure(outcome)

    def fail(self, trial: Asked, cause: str, *, too_large: bool) -> None:
        now = time.time()
        self.parts.log.append(Started(trial.number, now, trial.params, device="none"))
        failed = Failed(trial.number, now, cause)
        self.parts.log.append(failed)
        told = OutOfMemory(trial.number, now, cause) if too_large else failed
        self.parts.study.tell(trial.number, told)
        self._tell_of_failure(failed)

    def _tell_of_failure(self, failed: Failed) -> None:
        self.failures.add(failed)
        self.display.say(f"trial {failed.trial} failed: {fit_line(failed.cause)}")

    def stop_trials(self) -> None:
        grace_seconds = self.parts.config.study.grace_seconds
        if not self._stop_told:
            self._stop_told = True
            self._grace_until = time.monotonic() + grace_seconds
            if self.loop.error is not None and self.loop.running:  # what it was is told at the end
                self.display.say(f"broken off: {CHECKPOINT_AND_STOP}, within {grace_seconds:g} s")
        self.carrier.stopping.set()
        self.parts.executor.stop_trials()

    def end_idle(self) -> None:
        self.parts.executor.end_idle()

    # --- beginning and end ---

    def _greet(self) -> None:
        """What it works on, and how to come back to it."""
        prepared, study = self.parts.prepared, self.parts.study
        for note in prepared.notes:
            self.display.say(note)
        n_trials, again = (
            prepared.config.study.n_trials,
            command_line("resume", prepared.config.study),
        )
        if study.n_asked >= n_trials and not study.counts().get(TrialState.RUNNING):
            self.display.say(
                f"study {study.name} has {study.n_asked} trials already, study.n_trials={n_trials} "
                f"asks for no more; go on with: {again} study.n_trials={study.n_asked + 20}"
            )
            return
        before = f", {study.n_asked} of them from before" if study.n_asked else ""
        self.display.say(
            f"study {study.name}: to {n_trials} trials{before}, up to "
            f"{self.limits.max_concurrent_trials} at once; if it is interrupted: {again}"
        )

    def _record_start(self) -> None:
        study, config = self.parts.study, self.parts.config
        self.parts.log.append(
            SweepStarted(time.time(), study.name, study.uuid, flat_settings(config))
        )

    def _taken_over(self) -> list[Asked]:
        """Trials that an earlier sweep left; those whose outcome was logged are only told."""
        left = []
        for asked in self.parts.study.interrupted():
            history = self.parts.log.history.get(asked.number)
            outcome = None if history is None else history.outcome
            if isinstance(outcome, Finished | Pruned | Failed):
                self.tell(outcome)
            else:
                left.append(Asked(asked.number, asked.params))
        return left

    def _must_leave(self) -> bool:
        """After the grace running trials are killed; what cannot be, or is not over soon after
        that, is left."""
        if self._grace_until is None or time.monotonic() < self._grace_until:
            return False
        if self._killed or not self.parts.executor.kill(self._too_late()):
            return True
        self._killed, self._grace_until = True, time.monotonic() + JOIN_SECONDS
        return False

    def _too_late(self) -> str:
        seconds = self.parts.config.study.grace_seconds
        return f"did not report within study.grace_seconds={seconds:g}"

    def _leave_behind(self) -> None:
        """Threads cannot be ended: their trials are recorded as interrupted, and go on later."""
        self.left_behind = True
        self.parts.directory.stay_locked()
        cause = f"{self._too_late()}; left behind"
        with suppress(StorageError):  # the next sweep takes them over all the same
            for number in self.loop.running:
                self.parts.log.append(Interrupted(number, time.time(), cause))

    # --- messages ---

    def _next_message(self) -> Message:
        try:
            return self.messages.get(timeout=TICK_SECONDS)
        except queue.Empty:
            return Tick()

    def _tell_of_deaths(self, message: Message) -> None:
        """A process that died is never passed over in silence, even if its trial goes on."""
        match message:
            case Ended(Interrupted(by_worker_death=True) as outcome):
                self.display.say(f"trial {outcome.trial}: {outcome.cause}; it goes on in another")
            case Ended(Interrupted(pack_dissolved=True) as outcome):
                self.display.say(f"trial {outcome.trial} goes on alone: {outcome.cause}")

    def _own_memory(self) -> Mapping[tuple[str, int], int]:
        """What this process holds, less what it held before the first trial, and its workers."""
        grown = max(0, own_memory_bytes() - self._own_memory_at_start)
        return {(HOST_UUID, os.getpid()): grown, **self.parts.executor.held_bytes()}

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """The first Ctrl-C or SIGTERM stops trials at their next report, the second everything."""
        reasons = {
            signal.SIGINT: StopReason.INTERRUPTED,
            signal.SIGTERM: StopReason.TERMINATED,
        }

        seen: list[int] = []

        def on_signal(number: int, frame: FrameType | None) -> None:
            seen.append(number)
            if len(seen) > 1:  # nothing is lost: what was recorded is on disk
                try:
                    self.display.__exit__(None, None, None)
                finally:
                    os._exit(128 + seen[0])
            self.messages.put(Signalled(reasons[signal.Signals(number)]))
            self.display.say(
                f"{signal.Signals(number).name}: {CHECKPOINT_AND_STOP}, "
                f"within {self.parts.config.study.grace_seconds:g} s; once more: at once"
            )

        before = {number: signal.signal(number, on_signal) for number in reasons}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    # --- what is shown ---

    def _show(self) -> None:
        now = time.monotonic()
        if now - self._shown_seconds >= STATUS_SECONDS:
            self._shown_seconds = now
            with self.pictures.of(STATUS):
                view = self.viewer.view()
                self.display.show(view)
                write_view(self.parts.directory.files.status, view)


def limits(prepared: Prepared) -> Limits:
    """What the config sets for admission."""
    admission = prepared.config.admission
    return Limits(
        max_concurrent_trials=prepared.max_concurrent_trials,
        headroom_bytes=admission.headroom_bytes,
        stale_seconds=admission.stale_seconds,
    )


def device_accounts(config: Config) -> list[DeviceAccount]:
    """One reading of the devices with nothing of ours on them, for `automl devices`."""
    with contextlib.closing(open_reader(config.devices)) as reader:
        reading = take_reading(reader, dict)
    if reading.error is not None:
        raise AutoMLError(f"the devices cannot be read: {reading.error}")
    headroom = config.admission.headroom_bytes
    return [account(device, reading, LedgerView(), headroom) for device in reading.devices]
