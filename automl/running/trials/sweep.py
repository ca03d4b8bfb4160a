"""Runs one sweep from its first trial to the closing table, and does what the loop decides.

    ask → request → place → reserve → submit → execute → record → tell

The main thread runs `loop.SweepLoop` over one queue, pool threads (`carrier.py`) follow admitted
trials. Another process writes MLflow from the event log, so that no trial waits for MLflow.
"""

from __future__ import annotations

import contextlib
import os
import queue
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager

from automl.admission.accounting.ledger import Ledger
from automl.admission.memory_caps import Caps
from automl.admission.placement_policy import Idle
from automl.config import ExecutionKind, ObjectiveKind
from automl.devices.device_reader import ReaderThread
from automl.devices.device_reading import DeviceReading, Elsewhere, HeldBytes
from automl.devices.host import own_memory_bytes
from automl.devices.memory_promises import MemoryPromise, open_promises
from automl.errors import StorageError
from automl.record.study_files import STATUS_FILE
from automl.record.texts import fit_line
from automl.running.display.display_failures import ViewFailureLog
from automl.running.display.failures import DeclaredMemoryAdvice, FailureCounts, death_line
from automl.running.display.live_display import Display
from automl.running.display.view import write_view
from automl.running.display.viewer import SweepViewer
from automl.running.finish.automatic_refit import RunRefit, SweepRefit
from automl.running.finish.ensemble import GrowingEnsemble
from automl.running.finish.result_tables import greeting_lines
from automl.running.finish.sweep_end import SweepFinisher
from automl.running.loop.asking import TrialAsker
from automl.running.loop.cpu_probe import open_cpu_prober, open_pace_model
from automl.running.loop.device_choice import make_durations
from automl.running.loop.loop import SweepLoop
from automl.running.loop.messages import (
    DevicesRead,
    LoopMessage,
    PackKind,
    PeerSweepsObserved,
    PlannedTrial,
    ReservationReleased,
    SweepFailed,
    TakenOverTrial,
    TimePassed,
    TrialSurveyed,
    UnfitTrialFinding,
)
from automl.running.setup.identity_settings import flat_settings
from automl.running.setup.parts import SweepParts
from automl.running.setup.prepared_config import make_governor
from automl.running.trials.carrier import LOST_TRIAL_CAUSE, TrialCarrier, TrialSpecBuilder
from automl.running.trials.executions import (
    NO_SIGNALS,
    ExecutionPool,
    in_main_thread,
    signals_as_messages,
)
from automl.running.trials.program_peaks import ProgramPeaks
from automl.running.trials.repeated_params import open_repeated
from automl.running.trials.suggestion_answers import NoParamQuestions, ParamQuestions
from automl.running.trials.surveyor import TrialSurveyor
from automl.trial import (
    LOCAL_HOST,
    LOCAL_NODE,
    DeviceId,
    DeviceKind,
    FailedOutcome,
    MemoryPeakMeasured,
    Placement,
    ProcessId,
    SweepStarted,
    TooLargeOutcome,
    TrialOutcome,
    TrialSpec,
    TrialStarted,
    TrialState,
)

TICK_SECONDS = 0.25
STATUS_SECONDS = 1.0


class SweepRunner:
    """Runs the loop, and does what it decides (it is the loop's `LoopPorts`)."""

    def __init__(
        self,
        parts: SweepParts,
        display: Display,
        view_failures: ViewFailureLog,
        train_again: RunRefit | None = None,
        called_seconds: float | None = None,
    ) -> None:
        """`called_seconds` (monotonic) is when its time began to count; None: now."""
        config = parts.config
        self.parts = parts
        self.display = display
        self.view_failures = view_failures
        self.messages: queue.SimpleQueue[LoopMessage] = queue.SimpleQueue()
        self.ledger = Ledger()
        self.limits = parts.prepared.limits
        is_program = config.objective.kind is ObjectiveKind.command
        self._program_peaks = ProgramPeaks() if is_program else None
        self.carrier = TrialCarrier(
            executor=parts.executor,
            log=parts.log,
            study=parts.study,
            ledger=self.ledger,
            post=self.messages.put,
            program_peaks=self._program_peaks,
            is_lost=parts.others.is_lost,
            stored=parts.stored,
            machine=parts.machine,
        )
        called_seconds = time.monotonic() if called_seconds is None else called_seconds
        self.refit_step = SweepRefit(parts, train_again, called_seconds)
        chooser = open_pace_model(parts)
        self.loop = SweepLoop(
            ports=self,
            requests=parts.prepared.requests,
            ledger=self.ledger,
            limits=self.limits,
            asking=self._asking(),
            deadline_seconds=self.refit_step.trials_until_seconds,
            ends_in_time=self._ends_in_time,
            process=_this_process() if config.execution.kind is ExecutionKind.inline else None,
            n_ahead=parts.prepared.n_ahead,
            durations=make_durations(self._progress, chooser),
            governor=make_governor(config),
            chooser=chooser,
        )
        self.executions = ExecutionPool(parts, self.loop, self.carrier, display.say)
        self._starts = TrialSpecBuilder(parts)
        self._repeated = open_repeated(parts)
        self.surveyor: TrialSurveyor | None = None
        if parts.prepared.surveys:
            self.surveyor = TrialSurveyor(
                parts.prepared.setup, self._starts.spec, self.loop.requests, self.messages.put
            )
        self.prober = open_cpu_prober(parts.prepared, chooser, self.messages.put)
        self.promises = open_promises(parts.reader.addresses)
        self._own_memory_at_start = own_memory_bytes()
        self.failures = FailureCounts(parts.log.record.trials)
        self._declared = DeclaredMemoryAdvice()
        self.growing = GrowingEnsemble(parts.prepared, parts.directory.path)
        self.viewer = SweepViewer(
            *(parts, self.loop, self.carrier, self.failures, self.growing),
            called_seconds=called_seconds,
        )
        self._shown_seconds = 0.0

    def run(self) -> int:
        """Run until nothing runs or will run, or cannot be ended. Return the exit code.

        Raises the error that broke the sweep, or TrialsLeftBehindError if trials cannot be ended.
        """
        with contextlib.closing(self.growing):
            self._train()
            return self.executions.closed_by(self._closing().finish)

    def _train(self) -> None:
        with (
            contextlib.closing(self.promises),
            self._signals(),
            self.executions.all_over(self._take_next),
            self.surveyor or contextlib.nullcontext(),
            self.prober or contextlib.nullcontext(),
            self._readings(),
        ):
            self._begin()
            while not self.loop.done and not self.executions.overdue():
                self._take_next()

    def _closing(self) -> SweepFinisher:
        return SweepFinisher(
            *(self.parts, self.loop, self.display, self.viewer.view),
            *(self.view_failures, self.growing, self.refit_step),
        )

    def _signals(self) -> AbstractContextManager[None]:
        if not in_main_thread():
            self.display.say(f"called from a thread: {NO_SIGNALS}")
            return contextlib.nullcontext()
        called = self.parts.prepared.called is not None
        # If the sweep was called, the process is the caller's: a second signal must not end it.
        at_once = self.executions.hurry if called else None
        stopping = self.executions.how_they_stop
        return signals_as_messages(self.messages.put, self.display, stopping, at_once)

    def _begin(self) -> None:
        for line in greeting_lines(self.parts):
            self.display.say(line)
        study, settings = self.parts.study, flat_settings(self.parts.config)
        self.parts.log.append(SweepStarted(time.time(), study.name, study.uuid, settings))
        self._learn_from_before()
        self.loop.deadline_seconds = self.refit_step.trials_until_seconds
        post, lend = self.messages.put, self.parts.executor.lease
        self.parts.others.start(self._busy, post, self._end_lost, lend)
        self.loop.take_over(self._taken_over())

    def _learn_from_before(self) -> None:
        """Take the memory that earlier sweeps of the study measured."""
        for trial in self.parts.log.record.trials.values():
            if isinstance(trial.outcome, FailedOutcome | TooLargeOutcome):
                continue  # the trial may have ended before it held all it wants
            kind = trial.kind or DeviceKind.GPU
            for n_lanes, peak_bytes in trial.peaks.items():
                peak = MemoryPeakMeasured(trial.number, trial.started, peak_bytes, n_lanes)
                self.loop.requests.learn(trial.params, peak, kind)

    def _take_next(self) -> None:
        message = self._next_message()
        if isinstance(message, ReservationReleased):
            self.executions.released(message.key)
        executions = self.loop.executions.values()
        stopping = self.loop.stop is not None
        line = death_line(message, executions, stopping=stopping, shown=self.viewer.shown)
        line_to_say = line or self._declared.line(message, executions)
        self.loop.handle(message, time.monotonic())
        if line_to_say is not None:
            self.display.say(line_to_say)
        self._show()

    def _look_after_cluster(self) -> None:
        """Ask the cluster for the devices that the head lacks. Break off if the cluster is lost."""
        if self.parts.nodes is None or self.loop.error is not None:
            return
        if (lost := self.parts.nodes.lost()) is not None:
            self.display.say(str(lost))  # at once: Ray may end this process before its trials end
            self.messages.put(SweepFailed(lost))
        elif (lack := self.loop.lack) is not None:
            self.parts.nodes.claims.want(lack.kinds, lack.n)

    def _take_reading(self, reading: DeviceReading) -> None:
        """Pass a reading on, in the reader's thread."""
        if self._program_peaks is not None:
            with contextlib.suppress(StorageError):  # the main thread is told
                self._program_peaks.read(reading)
        self.messages.put(DevicesRead(reading))

    @contextlib.contextmanager
    def _readings(self) -> Iterator[None]:
        """Read the devices while the block runs. Readings come as messages."""
        readings = ReaderThread(
            self.parts.reader,
            self.parts.config.devices.interval_seconds,
            self._own_memory,
            self._take_reading,
            self.promises.others,
        )
        readings.start()
        try:
            yield
        finally:
            readings.stop()

    # --- what the loop decides is done here ---

    def ask(self) -> PlannedTrial | None:
        asked = self.parts.study.ask()
        if asked is None:
            return None
        if (line := self._repeated.line(asked.number, asked.params)) is not None:
            self.display.say(line)
        return PlannedTrial(asked.number, asked.params)

    def _busy(self) -> Collection[int]:
        """Return the trials that run or wait here. For any thread."""
        loop = self.loop
        held_back = [w.trial.number for w in loop.held_back]
        return {*loop.running.copy(), *held_back, *(w.trial.number for w in loop.waiting.copy())}

    def _end_lost(self, trials: Collection[int]) -> None:
        """End trials that another sweep has taken. For any thread."""
        self.parts.executor.end_trials(trials, LOST_TRIAL_CAUSE)

    def n_may_pend(self) -> int | None:
        return self.parts.prepared.sampler.n_may_pend(self.viewer.n_ended)

    def _asking(self) -> TrialAsker:
        n_trials, n_asked = self.parts.config.study.total, self.parts.study.n_asked
        others = PeerSweepsObserved(run=self.parts.others.may_run)
        return TrialAsker(self, n_trials, n_asked, self._questions(), others)

    def _questions(self) -> ParamQuestions | NoParamQuestions:
        suggesting = self.parts.study.suggester
        if suggesting is None:
            return NoParamQuestions()
        return ParamQuestions(self.parts.study, suggesting, self.display.say)

    def _ends_in_time(self) -> bool:
        """Return whether running trials are stopped when the time is up.

        When the family is chosen, too, the time is for the study rather than its last trial, as
        soon as some trial has a result.
        """
        if self.parts.prepared.plan.refit is not None:  # an unfinished refit is of no use later
            return True
        has_result = self.parts.study.counts().get(TrialState.FINISHED, 0) > 0
        return has_result and self.parts.prepared.choice is not None

    def _progress(self, trial: int) -> float | None:
        """Return the fraction of a trial's reports that have come. None if it is unknown."""
        report = self.carrier.latest.get(trial)
        if report is None:
            return None
        n_reports = self.parts.prepared.plan.n_reports_of(self.parts.study.params(trial))
        if n_reports is None:
            return None
        return min(1.0, (report.step + 1) / n_reports)

    def kind_of(self, trial: PlannedTrial, *, on_host: bool) -> PackKind | None:
        if not self.parts.executor.can.packs:
            return None
        pack = self.parts.prepared.pack_of(trial.params, on_host=on_host)
        return None if pack is None else PackKind(*pack)

    def show_promises(self, promises: Sequence[MemoryPromise]) -> None:
        self.promises.show(promises)

    def promised_elsewhere(self, begun_seconds: float) -> Elsewhere:
        return self.promises.others(begun_seconds)

    def submit(self, trials: Sequence[PlannedTrial], placement: Placement, n_lanes: int) -> None:
        specs = [self._begun(trial) for trial in trials]
        key = trials[0].number
        self.executions.start(key, specs, placement, self.loop.executions[key].request)

    def feed(self, key: int, trial: PlannedTrial) -> None:
        self.executions.add(key, self._begun(trial))

    def _begun(self, trial: PlannedTrial) -> TrialSpec:
        self.refit_step.lengths.began(trial.number, time.monotonic())
        return self._starts.begin(trial)

    def tell(self, outcome: TrialOutcome) -> None:
        device = self.carrier.devices.pop(outcome.trial, None)
        self.parts.study.tell(outcome.trial, outcome, device)
        self.refit_step.lengths.ended(outcome.trial, time.monotonic())
        self.loop.deadline_seconds = self.refit_step.trials_until_seconds
        for line in self.loop.asking.questions.found():
            self.display.say(line)
        if isinstance(outcome, FailedOutcome):
            self._tell_of_failure(outcome)
        if isinstance(outcome, TooLargeOutcome):
            shown = self.viewer.shown(outcome.trial)
            self.display.say(f"trial {shown} {fit_line(outcome.cause)}")

    def fail(self, trial: PlannedTrial, cause: str) -> None:
        self._end(trial, FailedOutcome(trial.number, time.time(), cause))

    def too_large(self, trial: PlannedTrial, found: UnfitTrialFinding) -> None:
        self._end(
            trial,
            TooLargeOutcome(trial.number, time.time(), found.cause, found.excess, found.at_least),
        )

    def _end(self, trial: PlannedTrial, decided: FailedOutcome | TooLargeOutcome) -> None:
        started = TrialStarted(trial.number, decided.time, trial.params, device="none")
        self.parts.log.append(started)
        self.parts.log.append(decided)
        self.tell(decided)

    def _tell_of_failure(self, failed: FailedOutcome) -> None:
        self.failures.add(failed)
        shown = self.viewer.shown(failed.trial)
        self.display.say(f"trial {shown} failed: {fit_line(failed.cause)}")

    def stop_trials(self) -> None:
        self.executions.stop()

    def is_surveying(self, trial: PlannedTrial) -> bool:
        reading = self.loop.reading
        has_gpu = reading is not None and DeviceKind.GPU in reading.kinds
        return has_gpu and self.surveyor is not None and self.surveyor.is_surveying(trial)

    def surveyed(self, surveyed: TrialSurveyed) -> None:
        assert self.surveyor is not None
        self.surveyor.take(surveyed)

    def cap_memory(self, caps: Caps) -> None:
        self.parts.executor.cap_memory(caps)

    def n_steps(self) -> Mapping[int, int]:
        return self.parts.executor.n_steps()

    def idle(self) -> Idle:
        return self.parts.executor.idle()

    def end_idle(self, devices: Collection[DeviceId]) -> None:
        self.parts.executor.end_idle(devices)

    def _taken_over(self) -> list[TakenOverTrial]:
        """Return the trials that an earlier sweep left. Tell the study outcomes that were
        logged."""
        unfinished = []
        for asked in self.parts.study.interrupted():
            trial = PlannedTrial(asked.number, asked.params)
            known = self.parts.log.record.trials.get(asked.number)
            if known is None:
                unfinished.append(TakenOverTrial(trial))
            elif known.outcome is not None and known.state.is_final:
                self.tell(known.outcome)
            else:
                unfinished.append(
                    TakenOverTrial(trial, known.n_out_of_memory, known.n_deaths, known.kind)
                )
        return unfinished

    # --- messages ---

    def _next_message(self) -> LoopMessage:
        try:
            return self.messages.get(timeout=TICK_SECONDS)
        except queue.Empty:
            return TimePassed()

    def _own_memory(self) -> HeldBytes:
        """Return what this process has taken since the start, and what its workers hold."""
        grown = max(0, own_memory_bytes() - self._own_memory_at_start)
        return {(LOCAL_HOST, _this_process()): grown, **self.parts.executor.held_bytes()}

    # --- what is shown ---

    def _show(self) -> None:
        now = time.monotonic()
        if now - self._shown_seconds >= STATUS_SECONDS:
            self._shown_seconds = now
            self._look_after_cluster()
            with self.view_failures.of(STATUS_FILE):
                view = self.viewer.view()
                self.display.show(view)
                write_view(self.parts.directory.files.status, view)


def _this_process() -> ProcessId:
    return ProcessId(LOCAL_NODE, os.getpid())
