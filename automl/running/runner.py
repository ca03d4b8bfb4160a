"""Runs one sweep from its first trial to the closing table, and does what the loop decides.

    ask → request → place → reserve → submit → execute → record → tell

The main thread runs `loop.SweepLoop` over one queue, pool threads (`carrier.py`) follow admitted
trials. Another process writes MLflow from the event log, so that no trial waits for MLflow.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import time
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import replace

from automl.admission.accounting.ledger import Ledger
from automl.admission.governor import SharingGovernor
from automl.config import ExecutionKind, ObjectiveKind
from automl.devices.device_reader import READING_SECONDS, ReaderThread
from automl.devices.device_reading import DeviceReading, HeldBytes
from automl.devices.host import own_memory_bytes
from automl.devices.memory_promises import open_promises
from automl.errors import StorageError
from automl.record.signal_receiver import StopPhase, in_main_thread, signal_receiver
from automl.record.study_files import STATUS_FILE
from automl.record.texts import fit_line
from automl.running.features.feature import RunRefit, SweepClock, SweepSite
from automl.running.features.table import SweepFeatures
from automl.running.loop.asking import TrialAsker
from automl.running.loop.device_choice import make_durations
from automl.running.loop.loop import SweepLoop
from automl.running.loop.messages import (
    AdmittedExecution,
    DevicesRead,
    ExecutionStart,
    LoopMessage,
    PeerSweepsObserved,
    PlannedTrial,
    ReservationReleased,
    SignalReceived,
    StopReason,
    SweepFailed,
    TimePassed,
    UnfitTrialFinding,
)
from automl.running.loop.ports import LoopPorts
from automl.running.opening.parts import SweepParts
from automl.running.opening.recovery import learn_memory, take_over_trials
from automl.running.prepare.identity_settings import flat_settings
from automl.running.sweep_end import SweepFinisher, leave_at_once
from automl.running.sweep_lines import DeclaredMemoryAdvice, greeting_lines, interruption_line
from automl.running.sweep_view import SweepViewer
from automl.running.trials.carrier import LOST_TRIAL_CAUSE, TrialCarrier, TrialSpecBuilder
from automl.running.trials.cpu_probe import open_cpu_prober, open_pace_model
from automl.running.trials.executions import ExecutionPool
from automl.running.trials.param_questions import open_questions
from automl.running.trials.program_peaks import ProgramPeaks
from automl.running.trials.promotions import TrialPromotions
from automl.running.trials.row_promotion import (
    TrialTime,
    choose_promotion,
    is_time_for_more_rows,
    promotion_request,
)
from automl.running.trials.steering import StartConditions, StudySteering
from automl.running.trials.surveyor import NoSurveys, TrialSurveyor
from automl.search.search_space import EnqueuedPoint
from automl.search.study import AskedTrial
from automl.terminal.live_display import Display, ViewFailureLog
from automl.terminal.view import write_view
from automl.trial import (
    LOCAL_HOST,
    LOCAL_NODE,
    ROWS_PARAM,
    FailedOutcome,
    PackKind,
    PausedOutcome,
    ProcessId,
    PrunedOutcome,
    SweepStarted,
    TooLargeOutcome,
    TrialOutcome,
    TrialSpec,
    TrialStarted,
    TrialState,
)

NO_SIGNALS = "Ctrl-C and SIGTERM are not its business, and it ends with its trials"
TICK_SECONDS = 0.25
STATUS_SECONDS = 1.0


class SweepRunner:
    """Runs the loop over the real parts. It supplies and starts trials and hears of outcomes, for
    which the loop has three of its ports."""

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
        is_program = config.objective.kind is ObjectiveKind.command
        self._program_peaks = ProgramPeaks() if is_program else None
        self.carrier = TrialCarrier(
            executor=parts.executor,
            log=parts.log,
            study=parts.study,
            ledger=self.ledger,
            post=self.messages.put,
            program_peaks=self._program_peaks,
            is_lost=parts.store.peers.is_lost,
            stored=parts.stored,
            machine=parts.store.machine,
        )
        self.promises = open_promises(parts.reader.addresses)
        called_seconds = time.monotonic() if called_seconds is None else called_seconds
        self._clock = SweepClock(
            called_seconds, time.monotonic(), has_long_end=parts.prepared.choice is not None
        )
        site = SweepSite(
            study=parts.study,
            log=parts.log,
            files=parts.directory.files,
            say=display.say,
            clock=self._clock,
            prepared=lambda: parts.prepared,
            n_places=lambda: parts.n_places,
            train_again=train_again,
            free_workers=parts.executor.close,
        )
        self.features = SweepFeatures(site, view_failures)
        self.promotions = TrialPromotions(
            parts.study,
            parts.directory.files,
            display.say,
            sees_states=not is_program and parts.states_are_here,
            value_at_end=parts.prepared.plan.goal.value_at_end,
        )
        self._deadline_seconds = self._trials_until_seconds()
        """When the trials have to be done (monotonic), as computed after each outcome."""
        self._began_seconds: dict[int, float] = {}
        """When the trials that run have begun (monotonic), by number."""
        earlier = parts.log.record.trials.values()
        self._trial_seconds = defaultdict(float, {trial.number: trial.seconds for trial in earlier})
        """How long each trial has run, in this sweep and in earlier ones, by number."""
        kinds, admission = frozenset(d.kind for d in parts.reader.addresses), config.admission
        chooser = open_pace_model(parts.prepared, kinds, parts.log)
        is_inline = config.execution.kind is ExecutionKind.inline
        # The user has set the number of trials on a device, or one process hides their paces.
        hides_pace = bool(
            is_inline or admission.max_trials_per_device or admission.max_concurrent_trials
        )
        self._requests = parts.prepared.make_requests()
        self._starts = TrialSpecBuilder(
            parts.study, parts.log, parts.directory.files, config.study.seed
        )
        self.surveyor: TrialSurveyor | NoSurveys = NoSurveys()
        if parts.prepared.surveys:
            self.surveyor = TrialSurveyor(
                parts.prepared.setup, self._starts.spec, self._requests, self.messages.put
            )
        self._questions = open_questions(parts.study, display.say)
        ports = LoopPorts(
            promises=self.promises,
            processes=parts.executor,
            promotions=self.promotions,
            surveys=self.surveyor,
            trials=self,
            starts=self,
            outcomes=self,
        )
        self.loop = SweepLoop(
            ports=ports,
            requests=self._requests,
            ledger=self.ledger,
            limits=parts.prepared.limits,
            asking=self._open_asker(ports),
            deadline=lambda: self._deadline_seconds,
            ends_in_time=self._ends_in_time,
            process=_this_process() if is_inline else None,
            n_ahead=parts.prepared.n_ahead,
            durations=make_durations(self._progress, chooser),
            governor=None if hides_pace else SharingGovernor(),
            chooser=chooser,
        )
        self.executions = ExecutionPool(
            self.carrier,
            parts.directory,
            study=config.study,
            n_threads=parts.n_threads,
            display=display,
            loop=self.loop,
        )
        self.prober = open_cpu_prober(parts.prepared, chooser, self.messages.put)
        self._own_memory_at_start = own_memory_bytes()
        self._declared = DeclaredMemoryAdvice()
        self.viewer = SweepViewer(
            parts,
            self.loop.snapshot,
            self.carrier,
            self.features.look,
            called_seconds=called_seconds,
        )
        self._shown_seconds = 0.0
        self._start_conditions = StartConditions(
            parts.config.study, parts.directory.path, self.loop.handle
        )
        self._steering = StudySteering(
            parts=parts,
            loop=self.loop,
            carrier=self.carrier,
            start_conditions=self._start_conditions,
            end_trial=self._end,
            tell=self.tell,
        )

    def _open_asker(self, ports: LoopPorts) -> TrialAsker:
        study, peers = self.parts.study, self.parts.store.peers
        return TrialAsker(
            ports,
            self.parts.config.study.decided_n_trials,
            study.n_asked,
            self._questions,
            others=PeerSweepsObserved(run=peers.are_expected),
            peers=peers,
            why_no_more=self.features.why_no_more,
        )

    def run(self) -> int:
        """Run until nothing runs or will run, or cannot be ended. Return the exit code.

        Raises the error that broke the sweep, or TrialsLeftBehindError if trials cannot be ended.
        """
        with contextlib.closing(self.features):
            self._train()
            finisher = SweepFinisher(
                self.parts,
                self.loop.snapshot(),
                self.display,
                self.viewer,
                self.view_failures,
                self.features,
                self._questions,
            )
            return self.executions.closed_by(finisher.finish)

    def _train(self) -> None:
        with (
            contextlib.closing(self.promises),
            self.executions.all_over(self._take_next),
            self.surveyor,
            self.prober or contextlib.nullcontext(),
            self._readings(),
        ):
            self._receive_signals()
            self._begin()
            while not self.loop.done and not self.executions.overdue():
                self._take_next()
            self.promotions.prune_rest(self.loop.snapshot(), self._end)
            self.features.trials_over()

    def _receive_signals(self) -> None:
        """Have a signal stop the trials at their next report, and a second one at once."""
        if not in_main_thread():
            self.display.say(f"called from a thread: {NO_SIGNALS}")
            return
        receiver = signal_receiver()

        def stop(number: signal.Signals) -> None:
            is_ctrl_c = number is signal.SIGINT
            reason = StopReason.INTERRUPTED if is_ctrl_c else StopReason.TERMINATED
            self.messages.put(SignalReceived(reason))
            how = self.executions.how_they_stop
            self.display.say(f"{number.name}: {how}; once more: at once")

        def leave() -> None:
            if not receiver.owns_process:
                self.executions.hurry()
                return
            go_on = f"go on with: {self.parts.prepared.how_to_go_on()}"
            leave_at_once(self.display, receiver, go_on)

        receiver.enter(StopPhase(stop, leave))

    def _begin(self) -> None:
        for line in greeting_lines(self.parts):
            self.display.say(line)
        study, settings = self.parts.study, flat_settings(self.parts.config)
        stored = self.parts.directory.files.config.read_text("utf-8")
        prepared, n_begun = self.parts.prepared, self.parts.log.record.n_begun
        started = SweepStarted(
            time.time(),
            study.name,
            study.uuid,
            settings,
            stored,
            prepared.code,
            n_begun,
            prepared.judged_rows_digest,
            loading_seconds=time.monotonic() - self._clock.called_seconds,
        )
        self.parts.log.append(started)
        learn_memory(self.parts.log.record, self._requests)
        self.features.begin()
        self._deadline_seconds = self._trials_until_seconds()
        post, lend = self.messages.put, self.parts.executor.lease
        self.parts.store.peers.start(self.loop.held_trials, post, self._end_lost, lend)
        record, elsewhere = self.parts.log.record, self.parts.outside.numbers
        left = take_over_trials(study, record, self.tell, elsewhere)
        self.loop.take_over(left, study.pauses.all())
        self.loop.asking.end_if_enough()
        self._steer()  # before a trial starts that was to be stopped

    def _take_next(self) -> None:
        message: LoopMessage = TimePassed()
        with contextlib.suppress(queue.Empty):
            message = self.messages.get(timeout=TICK_SECONDS)
        if isinstance(message, ReservationReleased):
            self.executions.released(message.key)
        self.loop.handle(message, time.monotonic())
        self._steer()
        self._show()

    def _steer(self) -> None:
        """Do what commands ask for."""
        for line in self._steering.look(time.monotonic()):
            self.display.say(line)
            self._deadline_seconds = self._trials_until_seconds()

    def _trials_until_seconds(self) -> float | None:
        """Return when the trials have to be done by what is known so far. None without a limit."""
        limit = self.parts.config.study.timeout_seconds
        kept = self.features.kept_seconds()
        return None if limit is None else self._clock.trials_until(limit, kept)

    def _look_after_machines(self) -> None:
        """Ask for the devices that the head lacks. Break off if the machines are lost."""
        if self.loop.error is not None:
            return
        if (lost := self.parts.machines.look_after(self.loop.shortage)) is not None:
            self.display.say(str(lost))  # at once: Ray may end this process before its trials end
            self.messages.put(SweepFailed(lost))

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
            READING_SECONDS,
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
        if self.parts.outside.only:
            return None
        asked = self._ask_on_more_rows() or self.parts.study.ask()
        if asked is None:
            return None
        trial = PlannedTrial(asked.number, asked.params)
        for line in self.features.trial_asked(trial):
            self.display.say(line)
        return trial

    def _ask_on_more_rows(self) -> AskedTrial | None:
        """Return a new trial with the params of a good one and more rows, if it is time for one."""
        prepared, study = self.parts.prepared, self.parts.study
        if not prepared.promotes_rows:
            return None
        now = time.monotonic()
        times = TrialTime(self._clock.loaded_seconds, now, self._deadline_seconds)
        if not is_time_for_more_rows(times, study.n_asked, self.loop.asking.n_trials):
            return None
        assert prepared.dataset is not None, "`promotes_rows` is about a table"
        ranking, leader = study.ranking(study.n_asked), study.leader()
        found = choose_promotion(
            ranking,
            self._trial_seconds,
            leader=None if leader is None else leader[0],
            promoted=study.by_request,
            n_all=prepared.dataset.n_train,
            left_seconds=times.left_seconds,
        )
        if found is None:
            return None
        params = {**study.params(found.trial), ROWS_PARAM: found.n_rows}
        request = promotion_request(found.trial)
        (asked,) = study.enqueue([EnqueuedPoint(params, request, may_be_outside=True)])
        shown, again = self.viewer.shown(asked.number), self.viewer.shown(found.trial)
        self.display.say(
            f"trial {shown} trains the params of trial {again} again, on {found.n_rows:,} of "
            f"{prepared.dataset.n_train:,} rows"
        )
        return asked

    def n_may_pend(self) -> int | None:
        if self.parts.prepared.promotes_rows:
            return 1  # a trial that was asked for early would keep a place from one on more rows
        counts = self.parts.study.counts()
        n_known = sum(n for s, n in counts.items() if s.is_final or s is TrialState.PAUSED)
        return self.parts.prepared.sampler.n_may_pend(n_known)

    def kind_of(self, trial: PlannedTrial, *, on_host: bool) -> PackKind | None:
        if not self.parts.executor.can.packs:
            return None
        return self.parts.prepared.pack_kind(trial.params, on_host=on_host)

    def submit(self, start: ExecutionStart) -> None:
        specs = [self._begun(waiting.trial) for waiting in start.group]
        self.executions.start(start.key, specs, start.placement, start.request)

    def feed(self, key: int, trial: PlannedTrial) -> None:
        self.executions.add(key, self._begun(trial))

    def _begun(self, trial: PlannedTrial) -> TrialSpec:
        now = time.monotonic()
        self._began_seconds[trial.number] = now
        self.features.trial_began(trial, now)
        return self._starts.begin(trial)

    def stop_trials(self, reason: StopReason) -> None:
        ends = reason is StopReason.TIMEOUT and self.parts.prepared.keeps_stopped_trials
        self.carrier.ends_trials = ends
        self.executions.stop(reason)

    def _end_lost(self, trials: Collection[int]) -> None:
        """End trials that another sweep has taken. For any thread."""
        self.parts.executor.end_trials(trials, LOST_TRIAL_CAUSE)

    def _ends_in_time(self) -> bool:
        """Return whether running trials are stopped when the time is up.

        When the family is chosen, too, the time is for the study rather than its last trial, as
        soon as some trial has a result.
        """
        if self.parts.prepared.purpose.stops_in_time:
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

    def tell(self, outcome: TrialOutcome) -> None:
        if (began := self._began_seconds.pop(outcome.trial, None)) is not None:
            self._trial_seconds[outcome.trial] += time.monotonic() - began
        if isinstance(outcome, PausedOutcome):
            self.parts.study.pauses.pause(outcome.trial)
            self.features.trial_paused(outcome.trial)
            return
        device = self.carrier.devices.pop(outcome.trial, None)
        self.parts.study.tell(outcome.trial, outcome, device)
        lines = [*self._questions.found(), *self.features.trial_ended(outcome)]
        self.viewer.trial_ended(outcome)
        self._deadline_seconds = self._trials_until_seconds()
        for line in lines:
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

    def _end(
        self, trial: PlannedTrial, decided: FailedOutcome | PrunedOutcome | TooLargeOutcome
    ) -> None:
        if not self.parts.study.pauses.has(trial.number):
            self.parts.log.append(TrialStarted(trial.number, decided.time, trial.params, "none"))
        self.parts.log.append(decided)
        self.tell(decided)

    def _tell_of_failure(self, failed: FailedOutcome) -> None:
        shown = self.viewer.shown(failed.trial)
        # The error that ends the sweep names the cause.
        is_hopeless = self.loop.is_hopeless(failed)
        cause = ", as any other would" if is_hopeless else f": {fit_line(failed.cause)}"
        self.display.say(f"trial {shown} failed{cause}")

    def tell_of_interruption(
        self, outcome: TrialOutcome, execution: AdmittedExecution, *, is_stopping: bool
    ) -> None:
        shown = self.viewer.shown
        line = interruption_line(outcome, execution, is_stopping=is_stopping, shown=shown)
        line = line or self._declared.line(outcome, execution)
        if line is not None:
            self.display.say(line)

    def _own_memory(self) -> HeldBytes:
        """Return what this process has taken since the start, and what its workers hold."""
        grown = max(0, own_memory_bytes() - self._own_memory_at_start)
        return {(LOCAL_HOST, _this_process()): grown, **self.parts.executor.held_bytes()}

    # --- what is shown ---

    def _show(self) -> None:
        now = time.monotonic()
        if now - self._shown_seconds >= STATUS_SECONDS:
            self._shown_seconds = now
            self._look_after_machines()
            with self.view_failures.of(STATUS_FILE):
                view = replace(self.viewer.view(), is_paused=self._start_conditions.is_paused)
                self.display.show(view)
                write_view(self.parts.directory.files.status, view)


def _this_process() -> ProcessId:
    return ProcessId(LOCAL_NODE, os.getpid())
