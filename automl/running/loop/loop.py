"""Decides for a sweep's main thread what is asked for, what starts where, and when the sweep ends.

Messages bring their time along, and actions go out through `LoopPorts`: `runner.py` plugs in the
real parts, the tests a simulator with virtual time. First come, first served: trials of the head's
kind may start with it as one pack (`packing.py`), others earlier if they do not delay it
(`lookahead.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from automl.admission.accounting.ledger import Ledger
from automl.admission.governor import SharingGovernor
from automl.admission.limits import AdmissionLimits
from automl.admission.measured_memory import MemoryTally
from automl.admission.refusals import AdmissionRefusal, RefusalKind, impossible_message
from automl.admission.requests import RequestMaker
from automl.errors import ConfigError
from automl.running.loop.asking import TrialAsker
from automl.running.loop.device_choice import make_waiting_lines
from automl.running.loop.lookahead import QueueBackfill
from automl.running.loop.messages import (
    AdmittedExecution,
    CpuProbed,
    DeviceShortage,
    DevicesRead,
    ExecutionStart,
    LoopMessage,
    LoopSnapshot,
    PeerSweepsObserved,
    PlannedTrial,
    QuestionAsked,
    ReservationReleased,
    SignalReceived,
    StopReason,
    SweepFailed,
    TimePassed,
    TrialEnded,
    TrialMemoryMeasured,
    TrialStartsHeld,
    TrialSurveyed,
    UnfitTrialFinding,
    WaitingTrial,
)
from automl.running.loop.packing import PackPlanner, TrialDurations, fair_n_lanes
from automl.running.loop.placing import TrialPlacer
from automl.running.loop.ports import LoopPorts
from automl.running.loop.retries import (
    FailureStreak,
    MeasuredMemoryForwarder,
    retry_after_death,
    retry_after_final_refusal,
)
from automl.running.loop.trial_paces import DevicePaceModel
from automl.running.loop.trial_queue import (
    AllTrialsWait,
    RefusedTrial,
    TrialQueue,
    WaitingState,
)
from automl.trial import (
    FailedOutcome,
    FinishedOutcome,
    InterruptedOutcome,
    OutOfMemoryOutcome,
    PausedOutcome,
    ProcessId,
    ResourceRequest,
    TrialOutcome,
)


@dataclass
class SweepLoop:
    """Holds the state of a sweep and decides what happens next. For the main thread."""

    ports: LoopPorts
    requests: RequestMaker
    ledger: Ledger
    limits: AdmissionLimits
    asking: TrialAsker
    deadline: Callable[[], float | None] = lambda: None
    """Returns when no new trial is started any more (monotonic), or None."""
    ends_in_time: Callable[[], bool] = lambda: False
    """Returns whether running trials are stopped when the deadline is reached."""
    process: ProcessId | None = None
    """The process in which all trials train, or None if they train in several."""
    n_ahead: int = 0
    """Number of trials behind the head that may pass it if they do not delay it."""
    durations: TrialDurations = field(default_factory=TrialDurations)
    governor: SharingGovernor | None = None
    """Finds how many trials share a device. With None, no trials share one."""
    chooser: DevicePaceModel | None = None
    """Knows how long trials take on each kind of device. None if there is one kind only."""
    queue: TrialQueue = field(default_factory=TrialQueue)
    running: dict[int, AdmittedExecution] = field(default_factory=dict)
    """Execution of each running trial, by the trial's number."""
    executions: dict[int, AdmittedExecution] = field(default_factory=dict)
    memory: MemoryTally = field(default_factory=MemoryTally)
    """The memory figures for the line at the end of the sweep."""
    stop: StopReason | None = None
    error: BaseException | None = None
    _stop_was_requested: bool = False
    """Running trials were asked to stop because the time is up."""
    _streak: FailureStreak = field(default_factory=FailureStreak)

    def __post_init__(self) -> None:
        self._packing = PackPlanner(self.ports.trials, self.requests)
        self._placing = TrialPlacer(
            ports=self.ports,
            requests=self.requests,
            ledger=self.ledger,
            limits=self.limits,
            process=self.process,
            executions=self.executions,
            governor=self.governor,
        )
        self._memory_seen = MeasuredMemoryForwarder(self.requests, self._placing, self.memory)
        self._lookahead = QueueBackfill(self.n_ahead, self.durations, self._placing, self._packing)
        self._lines = make_waiting_lines(self.chooser, self._placing, self.durations, self.n_ahead)

    def is_hopeless(self, failed: FailedOutcome) -> bool:
        """Return whether any other trial would fail as well, so that the sweep stops."""
        return self._streak.is_hopeless(failed)

    def snapshot(self) -> LoopSnapshot:
        """Return the state as it is now."""
        placing = self._placing
        return LoopSnapshot(
            running=dict(self.running),
            queued=tuple(self.queue.queued),
            deferred=tuple(self.queue.deferred),
            n_trials=self.asking.n_trials,
            asking_refusal=self.asking.refusal,
            asking_ended=self.asking.ended,
            is_held=placing.hold is not None,
            shortage=self.shortage,
            reading=placing.reading,
            accounts=placing.device_accounts(),
            memory=self.memory.line(),
            stop=self.stop,
            error=self.error,
            last_failure=self._streak.last_cause,
            is_hopeless=self._streak.last is not None
            and self._streak.is_hopeless(self._streak.last),
        )

    @property
    def shortage(self) -> DeviceShortage | None:
        """The shortage of devices. None if no trial waits for a device, or none may start."""
        return self.asking.shortage(self.queue, self._placing) if self.stop is None else None

    def held_trials(self) -> set[int]:
        """Return the numbers of the trials that run or wait here. For any thread."""
        return {*self.running.copy(), *self.queue.held_trials()}

    def take_over(self, trials: Sequence[WaitingTrial], paused: Collection[int] = ()) -> None:
        """Put trials that an earlier sweep left first, with what is known of them. Those with a
        number in `paused` wait until they are promoted."""
        for waiting in trials:
            is_paused = waiting.trial.number in paused
            state = WaitingState.PAUSED if is_paused else WaitingState.QUEUED
            self.queue.add(replace(waiting, kind=self._lines.kept_kind(waiting.kind)), state)

    @property
    def done(self) -> bool:
        """Whether nothing runs, and nothing more will run."""
        if self.executions:
            return False
        if self.stop is not None:
            return True
        if self.queue.may_start or self.asking.may_come or not self.queue.is_stuck:
            return False
        return not self.queue.deferred or self._placing.shows_the_last_end

    def handle(self, message: LoopMessage, now_seconds: float) -> None:
        """Take one message, then admit what may start. `now_seconds` is monotonic."""
        match message:
            case TrialEnded(outcome):
                self._handle_end(outcome, now_seconds)
            case TrialMemoryMeasured(peak):
                self._memory_seen.measured(peak, self.running[peak.trial])
            case QuestionAsked(question):
                params = self.asking.questions.answer(message)
                if (execution := self.running.get(question.trial)) is not None:
                    execution.know_params(question.trial, params)
            case TrialSurveyed():
                self.ports.surveys.take(message)
            case ReservationReleased(key):
                self._handle_release(key, now_seconds)
            case DevicesRead(reading):
                self._placing.read(reading, now_seconds)
                self._lines.observe(now_seconds)
                self.memory.read(reading)
                self.queue.requeue_answered(partial(self._placing.place_alone, now_seconds))
            case SignalReceived(reason):
                self._stop_running(reason)
            case SweepFailed(error):
                self.break_off(error)
                self.ports.starts.stop_trials(StopReason.BROKEN)
            case CpuProbed():
                assert self.chooser is not None, "the CPU is timed for the chooser only"
                self.chooser.probed(message)
            case PeerSweepsObserved():
                self.asking.heard_of(message)
                self.queue.settle_doubts(self.asking.peers.is_lost)
            case TrialStartsHeld(refusal):
                self._placing.hold = refusal
            case TimePassed():
                self.asking.end_if_enough()
        if (deadline := self.deadline()) is not None and now_seconds >= deadline:
            self._time_is_up()
        self._admit(now_seconds)
        if isinstance(message, DevicesRead | TrialMemoryMeasured | ReservationReleased):
            self._placing.cap()

    def _time_is_up(self) -> None:
        self.stop = self.stop or StopReason.TIMEOUT
        if self.stop is StopReason.TIMEOUT and not self._stop_was_requested and self.ends_in_time():
            self._stop_was_requested = True
            self.ports.starts.stop_trials(self.stop)

    def break_off(self, error: BaseException) -> None:
        """Start nothing more, and tell the study nothing more: the next sweep tells it what the
        event log has. The first error counts, even after Ctrl-C."""
        self.error = self.error or error
        self.stop = StopReason.BROKEN

    # --- outcomes ---

    def _handle_end(self, outcome: TrialOutcome, now_seconds: float) -> None:
        execution = self.running.pop(outcome.trial)
        execution.outcomes[outcome.trial] = outcome
        if isinstance(outcome, FailedOutcome | OutOfMemoryOutcome):
            self.requests.forget(outcome.trial)
        if isinstance(outcome, FinishedOutcome):
            seconds = now_seconds - execution.since_seconds[outcome.trial]
            self.durations.finished(seconds)
            self._lines.finished(outcome.trial, execution, seconds)
        if isinstance(outcome, InterruptedOutcome) and outcome.node_lost:
            self._placing.node_lost(execution.placement.node, now_seconds)
        is_final = not isinstance(outcome, OutOfMemoryOutcome | InterruptedOutcome)
        if not is_final:
            self.ports.outcomes.tell_of_interruption(
                outcome, execution, is_stopping=self.stop is not None
            )
        if self.error is not None or not is_final:
            return  # decided when the reservation is back: the trial may ask for another one
        self.ports.outcomes.tell(outcome)
        self.asking.end_if_enough()
        if isinstance(outcome, FailedOutcome):
            self._count_failure(outcome)
        else:
            self._streak.ended()
        if isinstance(outcome, PausedOutcome):
            self.queue.add(execution.members[outcome.trial], WaitingState.PAUSED)
        self._refill(execution, now_seconds)

    def _handle_release(self, key: int, now_seconds: float) -> None:
        """Remove an execution that is over. Its trials that did not end wait again."""
        execution = self.executions.pop(key)
        self._placing.freed(execution.placement.devices, now_seconds)
        for number, waiting in reversed(execution.members.items()):
            match execution.outcomes.get(number):
                case TrialOutcome() if self.error is not None:
                    pass  # the next sweep takes the trial from the event log
                case OutOfMemoryOutcome() as outcome:
                    self._requeue(waiting, self._memory_seen.ran_out(waiting, execution, outcome))
                case InterruptedOutcome(by_worker_death=True) as outcome:
                    had_failed = self._placing.died(execution.placement.devices, now_seconds)
                    decided = retry_after_death(waiting, outcome, drained=had_failed)
                    self._requeue(waiting, decided)
                    if isinstance(decided, str):
                        self._count_failure(FailedOutcome(number, outcome.time, decided))
                case InterruptedOutcome(pack_dissolved=True):
                    self.queue.add_first(replace(waiting, may_pack=False))
                case InterruptedOutcome(node_lost=True):
                    self.queue.add_first(waiting)
                case InterruptedOutcome(lease_ended=True):
                    self.queue.add(waiting, WaitingState.IN_DOUBT)
                case None:  # the trial was fed to a pack that had just ended, or our own code broke
                    del self.running[number]
                    self.queue.add_first(waiting)
                case _:
                    pass  # the outcome is final, or the study keeps the trial for the next sweep

    def _requeue(
        self, waiting: WaitingTrial, decided: WaitingTrial | UnfitTrialFinding | str
    ) -> None:
        """Let the trial wait again as decided, or end it for the cause decided."""
        if isinstance(decided, str):
            self.ports.outcomes.fail(waiting.trial, decided)
        elif isinstance(decided, UnfitTrialFinding):
            self.ports.outcomes.too_large(waiting.trial, decided)
            self._streak.last = decided
        elif decided.undisturbed:
            self.queue.add(decided, WaitingState.DEFERRED)
        else:
            self.queue.add_first(decided)

    def _count_failure(self, failed: FailedOutcome) -> None:
        if self._streak.add(failed):
            self._stop_running(StopReason.FAILING)

    def _stop_running(self, reason: StopReason) -> None:
        if self.stop is None or self.stop is StopReason.TIMEOUT:
            self.stop = reason
        self.ports.starts.stop_trials(self.stop)

    def _ask(self, now_seconds: float) -> bool:
        """Ask for a new trial if a place is free. Return whether one now waits."""
        self.asking.refusal = None
        if not self.asking.wants_more:
            return False
        refusal = self.asking.refused(
            self._placing, self.queue.drained, len(self.running), now_seconds
        )
        if refusal is None:
            return self._ask_ahead()
        if refusal.kind is RefusalKind.NEVER:
            self.break_off(ConfigError(impossible_message(refusal)))
        else:
            self.asking.refusal = refusal
        return False

    def _ask_ahead(self) -> bool:
        if (asked := self.asking.next()) is not None:
            self.enqueue(asked)
        return asked is not None

    def enqueue(self, trial: PlannedTrial) -> None:
        """Queue a trial that the study or the user asked for, or one that was paused."""
        if trial.number < self.asking.n_asked and (paused := self.queue.withdraw(trial.number)):
            self.queue.add(paused)
            return
        self.asking.n_asked = max(self.asking.n_asked, trial.number + 1)
        self.queue.add(WaitingTrial(trial))
        self._lines.asked(trial.params)

    def _ask_early(self) -> WaitingTrial | None:
        n_pending = len(self.queue.queued) + len(self.running)
        if self.asking.may_ask_ahead(n_pending, self._placing) and self._ask_ahead():
            return self.queue.queued[-1]
        return None

    # --- admission ---

    def _admit(self, now_seconds: float) -> None:
        self._admit_waiting(now_seconds)
        if self.stop is None and not self.queue.queued and not self.asking.wants_more:
            for start in self.queue.try_deferred(partial(self._start_alone, now_seconds)):
                self._start(start, now_seconds)

    def _admit_waiting(self, now_seconds: float) -> None:
        while self.stop is None and (self.queue.queued or self._ask(now_seconds)):
            n_left, try_start = self.asking.n_left, partial(self._try_start, now_seconds)
            found = self._lines.look(self.queue.queued, n_left, try_start, now_seconds)
            if isinstance(found, ExecutionStart):
                self._start(found, now_seconds)
            elif isinstance(found, RefusedTrial):
                self._put_aside(found)
            elif not self._all_wait(found, now_seconds):
                return  # while nothing can start, no trial is asked for ahead of time either

    def _all_wait(self, found: AllTrialsWait, now_seconds: float) -> bool:
        """Handle a queue where none can start. Return whether a trial was added that may start."""
        self.queue.refuse(found.refused)
        for refused in found.refused:
            self._placing.make_room(refused.refusal)
        if found.takes_more and self._ask_early() is not None:
            return True
        if found.for_room is not None:
            self._backfill(found.for_room, now_seconds)
        return False

    def _put_aside(self, found: RefusedTrial) -> None:
        self.queue.remove([found.waiting.trial.number])
        if found.refusal.kind is RefusalKind.NEVER:
            decided = retry_after_final_refusal(found.waiting, found.request, found.refusal)
            self._requeue(found.waiting, decided)
        else:
            self.queue.add(found.waiting, WaitingState.DEFERRED)

    def _start_alone(
        self, now_seconds: float, waiting: WaitingTrial
    ) -> ExecutionStart | AdmissionRefusal:
        """Place a deferred trial in agreement with other sweeps."""
        look = partial(self._placing.place_alone, now_seconds, waiting)
        found = self._placing.agreed(look, now_seconds)
        if isinstance(found, AdmissionRefusal):
            self._placing.make_room(found)
        return found

    def _try_start(
        self, now_seconds: float, head: WaitingTrial, request: ResourceRequest
    ) -> ExecutionStart | AdmissionRefusal:
        decide = partial(self._place_pack, now_seconds, head, request)
        return self._placing.agreed(decide, now_seconds)

    def _place_pack(
        self, now_seconds: float, head: WaitingTrial, request: ResourceRequest
    ) -> ExecutionStart | AdmissionRefusal:
        """Place the head, with as many trials of its kind as fit with it as one pack."""
        placement = self._placing.place(request, now_seconds)
        if isinstance(placement, AdmissionRefusal):
            return placement
        group = self._packing.group(
            head, self.queue.queued, self._ask_early, on_host=placement.on_host
        )
        group = self._share_out(group, len(self.queue.queued))
        return self._packing.placed(
            group, request, placement, lambda pack: self._placing.place(pack, now_seconds)
        )

    def _share_out(self, group: list[WaitingTrial], n_waiting: int) -> list[WaitingTrial]:
        """Divide the last trials of a study among the free places, with a core each."""
        if self.asking.wants_more:
            return group
        n_free = self._placing.n_side_by_side - len(self.executions)
        return group[: fair_n_lanes(len(group), n_waiting, n_free)]

    def _backfill(self, head: RefusedTrial, now_seconds: float) -> None:
        """Start trials that may pass the head, which has to wait for memory."""
        if not self._lookahead.is_open(head.waiting, head.request, now_seconds):
            return
        while len(self.queue.queued) <= self.n_ahead and self._ask_early():
            pass
        behind = head.behind(self.queue.queued)
        for start in self._lookahead.passing(behind, head.request, now_seconds, self._share_out):
            self._start(start, now_seconds)

    def _start(self, start: ExecutionStart, now_seconds: float) -> None:
        placement = start.placement
        group = [self._lines.bound(waiting, placement.kind) for waiting in start.group]
        start = start._replace(group=group, key=self._placing.next_key)
        self._placing.next_key += 1
        members = {waiting.trial.number: waiting for waiting in group}
        together = len(group) > 1
        kind = self._packing.kind(group[0], on_host=placement.on_host) if together else None
        self.queue.remove(members)
        disturbed = self._placing.is_disturbed(placement)  # it may end before another reading
        execution = self.executions[start.key] = AdmittedExecution(
            key=start.key,
            request=start.request,
            placement=placement,
            kind=kind,
            members=members,
            n_lanes=len(group),
            disturbed=disturbed,
        )
        for waiting in group:
            self._run(waiting, execution, now_seconds)
        self.ledger.reserve(start.key, placement, self.process)
        self._placing.cap()  # cap the neighbours before the trial that relies on their caps
        self.ports.starts.submit(start)

    def _run(self, waiting: WaitingTrial, execution: AdmittedExecution, now_seconds: float) -> None:
        self._packing.started(waiting.trial.number)
        self.running[waiting.trial.number] = execution
        execution.give(waiting, now_seconds)

    def _refill(self, execution: AdmittedExecution, now_seconds: float) -> None:
        """Fill a free lane with the next trial of the kind, unless another trial waits first."""
        live = execution.live
        is_closed = self.stop is not None or self._placing.hold is not None
        if execution.kind is None or not live or is_closed:
            return
        if not self.queue.queued and self._ask_early() is None:
            return
        head = self._packing.for_lane(execution, self.queue.queued)
        if head is None:
            return
        self.queue.remove([head.trial.number])
        waiting = self._lines.bound(head, execution.placement.kind)
        self._run(waiting, execution, now_seconds)
        self.ports.starts.feed(execution.key, waiting.trial)
