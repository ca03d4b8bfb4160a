"""Decides for a sweep's main thread what is asked for, what starts where, and when the sweep ends.

No clock, thread, file or library is touched here. Messages bring their time along, and all actions
go out through `LoopPorts`: `sweep.py` plugs in the real parts, the tests a simulator with virtual
time. First come, first served: one trial waits at the head. Trials of its kind may start with it as
one pack (`packing.py`), and trials behind it earlier if they do not delay it (`lookahead.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from automl.admission.accounting.account import DeviceAccount
from automl.admission.accounting.ledger import Ledger
from automl.admission.governor import SharingGovernor
from automl.admission.limits import AdmissionLimits
from automl.admission.measured_memory import MemoryTally
from automl.admission.refusals import AdmissionRefusal, RefusalKind, impossible_message
from automl.admission.requests import RequestMaker
from automl.devices.device_reading import DeviceReading
from automl.errors import ConfigError
from automl.running.loop.asking import TrialAsker
from automl.running.loop.device_choice import make_trial_queues
from automl.running.loop.lookahead import QueueBackfill
from automl.running.loop.messages import (
    AdmittedExecution,
    CpuProbed,
    DeviceShortage,
    DevicesRead,
    ExecutionStart,
    LoopMessage,
    LoopPorts,
    PeerSweepsObserved,
    QuestionAsked,
    ReservationReleased,
    RunningTrial,
    SignalReceived,
    StopReason,
    SweepFailed,
    TakenOverTrial,
    TimePassed,
    TrialEnded,
    TrialMemoryMeasured,
    TrialSurveyed,
    UnfitTrialFinding,
    WaitingTrial,
)
from automl.running.loop.packing import PackPlanner, TrialDurations, fair_n_lanes
from automl.running.loop.placing import TrialPlacer
from automl.running.loop.retries import (
    FailureStreak,
    MemoryObservations,
    retry_after_death,
    retry_after_final_refusal,
)
from automl.running.loop.trial_paces import DevicePaceModel
from automl.running.loop.waiting_lines import (
    AllTrialsWait,
    DeferredTrials,
    RefusedTrial,
    remove_trials,
)
from automl.trial import (
    FailedOutcome,
    FinishedOutcome,
    InterruptedOutcome,
    OutOfMemoryOutcome,
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
    deadline_seconds: float | None = None
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
    waiting: deque[WaitingTrial] = field(default_factory=deque)
    running: dict[int, RunningTrial] = field(default_factory=dict)
    executions: dict[int, AdmittedExecution] = field(default_factory=dict)
    memory: MemoryTally = field(default_factory=MemoryTally)
    """The memory figures for the line at the end of the sweep."""
    stop: StopReason | None = None
    error: BaseException | None = None
    _execution_of: dict[int, int] = field(default_factory=dict)
    _in_doubt: list[WaitingTrial] = field(default_factory=list)
    """Trials whose lease ended here, until the sweeps that may have taken them report."""
    _stop_was_requested: bool = False
    """Running trials were asked to stop because the time is up."""
    _streak: FailureStreak = field(default_factory=FailureStreak)

    def __post_init__(self) -> None:
        self._packing = PackPlanner(self.ports, self.requests)
        self._placing = TrialPlacer(
            *(self.ports, self.requests, self.ledger, self.limits, self.process, self.executions),
            governor=self.governor,
        )
        self._held_back = DeferredTrials(self._placing)
        self._memory_seen = MemoryObservations(self.requests, self._placing, self.memory)
        self._lookahead = QueueBackfill(
            self.n_ahead, self.durations, self._placing, self._packing, self.running
        )
        self._lines = make_trial_queues(
            self.chooser, self._placing, self.durations, self.running, self.n_ahead
        )

    @property
    def reading(self) -> DeviceReading | None:
        """The last reading of the devices."""
        return self._placing.reading

    def device_accounts(self) -> Sequence[DeviceAccount]:
        """Return the accounts of the devices by the last reading, or nothing without a reading."""
        return self._placing.device_accounts()

    @property
    def last_failure(self) -> FailedOutcome | UnfitTrialFinding | None:
        """Why the last trial that failed, or that fits on no device, came to that end."""
        return self._streak.last

    @property
    def held_back(self) -> Sequence[WaitingTrial]:
        """Trials that let all others pass because of a failed device or memory of other users."""
        return self._held_back.trials

    @property
    def lack(self) -> DeviceShortage | None:
        """The shortage of devices, or None if no trial waits for a device."""
        head = self.waiting[0] if self.waiting else None
        refusal = self.asking.refusal if head is None else head.refusal
        if self.stop is not None or refusal is None or not refusal.for_devices:
            return None
        request = self._placing.least if head is None else self._placing.request(head)
        kinds = request.kinds & self._placing.kinds or request.kinds
        return DeviceShortage(kinds, max(1, len(self.waiting) + self.asking.n_left))

    def take_over(self, trials: Sequence[TakenOverTrial]) -> None:
        """Put trials that an earlier sweep left unfinished first, with what is known of them."""
        self.waiting.extend(t.waits(self._lines.kept_kind(t.kind)) for t in trials)

    @property
    def done(self) -> bool:
        """Whether nothing runs, and nothing more will run."""
        if self.executions:
            return False
        if self.stop is not None:
            return True
        more = bool(self.waiting or self._in_doubt) or self.asking.may_come
        return not more and self._held_back.for_good

    def handle(self, message: LoopMessage, now_seconds: float) -> None:
        """Take one message, then admit what may start. `now_seconds` is monotonic."""
        match message:
            case TrialEnded(outcome):
                self._handle_end(outcome, now_seconds)
            case TrialMemoryMeasured(peak):
                execution = self.executions[self._execution_of[peak.trial]]
                self._memory_seen.measured(peak, self.running[peak.trial], execution)
            case QuestionAsked():
                self.asking.questions.answer(message, self.running, self.executions)
            case TrialSurveyed():
                self.ports.surveyed(message)
            case ReservationReleased(key):
                self._handle_release(key, now_seconds)
            case DevicesRead(reading):
                self._placing.read(reading, now_seconds)
                self._lines.observe(now_seconds)
                self.memory.read(reading)
                self.waiting.extendleft(reversed(self._held_back.answered(now_seconds)))
            case SignalReceived(reason):
                self._stop_running(reason)
            case SweepFailed(error):
                self.break_off(error)
                self.ports.stop_trials()
            case CpuProbed():
                assert self.chooser is not None, "the CPU is timed for the chooser only"
                self.chooser.probed(message)
            case PeerSweepsObserved():
                self._drop_trials_of_others(message)
            case TimePassed():
                pass
        if self.deadline_seconds is not None and now_seconds >= self.deadline_seconds:
            self._time_is_up()
        self._admit(now_seconds)
        if isinstance(message, DevicesRead | TrialMemoryMeasured | ReservationReleased):
            self._placing.cap()

    def _time_is_up(self) -> None:
        self.stop = self.stop or StopReason.TIMEOUT
        if self.stop is StopReason.TIMEOUT and not self._stop_was_requested and self.ends_in_time():
            self._stop_was_requested = True
            self.ports.stop_trials()

    def break_off(self, error: BaseException) -> None:
        """Start nothing more, and tell the study nothing more: the next sweep tells it what the
        event log has. The first error counts, even after Ctrl-C."""
        self.error = self.error or error
        self.stop = StopReason.BROKEN

    def _drop_trials_of_others(self, others: PeerSweepsObserved) -> None:
        """Drop waiting trials that other sweeps hold by now."""
        self.asking.heard_of(others)
        waiting, self._in_doubt = [*self._in_doubt, *self.waiting], []
        self.waiting = deque(w for w in waiting if others.held(w.trial.number))

    # --- outcomes ---

    def _handle_end(self, outcome: TrialOutcome, now_seconds: float) -> None:
        running = self.running.pop(outcome.trial)
        execution = self.executions[self._execution_of.pop(outcome.trial)]
        execution.outcomes[outcome.trial] = outcome
        if isinstance(outcome, FailedOutcome | OutOfMemoryOutcome):
            self.requests.forget(outcome.trial)
        if isinstance(outcome, FinishedOutcome):
            self.durations.finished(now_seconds - running.since_seconds)
            self._lines.finished(running, execution, now_seconds)
        if self.error is not None:
            return
        if isinstance(outcome, OutOfMemoryOutcome | InterruptedOutcome):
            return  # decided when the reservation is back: the trial may ask for another one
        self.ports.tell(outcome)
        if isinstance(outcome, FailedOutcome):
            self._count_failure(outcome)
        else:
            self._streak.ended()
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
                    self._handle_death(waiting, outcome, drained=had_failed)
                case InterruptedOutcome(pack_dissolved=True):
                    self.waiting.appendleft(replace(waiting, may_pack=False))
                case InterruptedOutcome(node_lost=True):
                    self.waiting.appendleft(waiting)
                case InterruptedOutcome(lease_ended=True):
                    self._in_doubt.append(waiting)
                case None:  # the trial was fed to a pack that had just ended, or our own code broke
                    del self.running[number], self._execution_of[number]
                    self.waiting.appendleft(waiting)
                case _:
                    pass  # the outcome is final, or the study keeps the trial for the next sweep

    def _requeue(
        self, waiting: WaitingTrial, decided: WaitingTrial | UnfitTrialFinding | str
    ) -> None:
        """Let the trial wait again as decided, or end it for the cause decided."""
        if isinstance(decided, str):
            self.ports.fail(waiting.trial, decided)
        elif isinstance(decided, UnfitTrialFinding):
            self.ports.too_large(waiting.trial, decided)
            self._streak.last = decided
        elif decided.undisturbed:
            self._held_back.trials.append(decided)
        else:
            self.waiting.appendleft(decided)

    def _handle_death(
        self, waiting: WaitingTrial, outcome: InterruptedOutcome, *, drained: bool
    ) -> None:
        decided = retry_after_death(waiting, outcome, drained=drained)
        if isinstance(decided, WaitingTrial):
            self.waiting.appendleft(decided)
            return
        self.ports.fail(waiting.trial, decided)
        self._count_failure(FailedOutcome(outcome.trial, outcome.time, decided))

    def _count_failure(self, failed: FailedOutcome) -> None:
        if self._streak.add(failed):
            self._stop_running(StopReason.FAILING)

    def _stop_running(self, reason: StopReason) -> None:
        if self.stop is None or self.stop is StopReason.TIMEOUT:
            self.stop = reason
        self.ports.stop_trials()

    def _ask(self, now_seconds: float) -> bool:
        """Ask for a new trial if a place is free. Return whether one now waits."""
        self.asking.refusal = None
        if not self.asking.wants_more:
            return False
        refusal = self.asking.refused(
            self._placing, self._held_back, len(self.running), now_seconds
        )
        if refusal is None:
            return self._ask_ahead()
        if refusal.kind is RefusalKind.NEVER:
            self.break_off(ConfigError(impossible_message(refusal)))
        else:
            self.asking.refusal = refusal
        return False

    def _ask_ahead(self) -> bool:
        asked = self.asking.next()
        if asked is None:
            return False
        self.waiting.append(WaitingTrial(asked))
        self._lines.asked(asked.params)
        return True

    def _ask_early(self) -> WaitingTrial | None:
        n_pending = len(self.waiting) + len(self.running)
        if self.asking.may_ask_ahead(n_pending, self._placing) and self._ask_ahead():
            return self.waiting[-1]
        return None

    # --- admission ---

    def _admit(self, now_seconds: float) -> None:
        self._admit_waiting(now_seconds)
        if self.stop is None and not self.waiting and not self.asking.wants_more:
            for start in self._held_back.starts(now_seconds):
                self._start(start, now_seconds)

    def _admit_waiting(self, now_seconds: float) -> None:
        while self.stop is None and (self.waiting or self._ask(now_seconds)):
            n_left, try_start = self.asking.n_left, partial(self._try_start, now_seconds)
            found = self._lines.look(self.waiting, n_left, try_start, now_seconds)
            if isinstance(found, ExecutionStart):
                self._start(found, now_seconds)
            elif isinstance(found, RefusedTrial):
                self._put_aside(found)
            elif not self._all_wait(found, now_seconds):
                return  # while nothing can start, no trial is asked for ahead of time either

    def _all_wait(self, found: AllTrialsWait, now_seconds: float) -> bool:
        """Handle a queue where none can start. Return whether a trial was added that may start."""
        for n, refused in enumerate(found.refused):
            self.waiting[n] = refused.waiting
            self._placing.make_room(refused.refusal)
        if found.takes_more and self._ask_early() is not None:
            return True
        if found.for_room is not None:
            self._backfill(found.for_room, now_seconds)
        return False

    def _put_aside(self, found: RefusedTrial) -> None:
        self.waiting = remove_trials(self.waiting, {found.waiting.trial.number})
        if found.refusal.kind is RefusalKind.NEVER:
            decided = retry_after_final_refusal(found.waiting, found.request, found.refusal)
            self._requeue(found.waiting, decided)
        else:
            self._held_back.trials.append(found.waiting)

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
        group = self._packing.group(head, self.waiting, self._ask_early, on_host=placement.on_host)
        group = self._share_out(group, len(self.waiting))
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
        while len(self.waiting) <= self.n_ahead and self._ask_early():
            pass
        behind = head.behind(self.waiting)
        for start in self._lookahead.passing(behind, head.request, now_seconds, self._share_out):
            self._start(start, now_seconds)

    def _start(self, start: ExecutionStart, now_seconds: float) -> None:
        group, request, placement = start
        group = [self._lines.bound(waiting, placement.kind) for waiting in group]
        members = {waiting.trial.number: waiting for waiting in group}
        key = next(iter(members))
        together = len(group) > 1
        kind = self._packing.kind(group[0], on_host=placement.on_host) if together else None
        self.waiting = remove_trials(self.waiting, {*members})
        disturbed = self._placing.is_disturbed(placement)  # it may end before another reading
        self.executions[key] = AdmittedExecution(
            key, request, placement, kind, members, len(group), disturbed=disturbed
        )
        for waiting in group:
            self._run(waiting, self.executions[key], now_seconds)
        self.ledger.reserve(key, placement, self.process)
        self._placing.cap()  # cap the neighbours before the trial that relies on their caps
        self.ports.submit([waiting.trial for waiting in group], placement, len(group))

    def _run(self, waiting: WaitingTrial, execution: AdmittedExecution, now_seconds: float) -> None:
        number = waiting.trial.number
        self._packing.started(number)
        self.running[number] = RunningTrial(
            waiting, execution.placement, now_seconds, execution.request
        )
        self._execution_of[number] = execution.key

    def _refill(self, execution: AdmittedExecution, now_seconds: float) -> None:
        """Fill a free lane with the next trial of the kind, unless another trial waits first."""
        live = execution.live
        if execution.kind is None or not live or self.stop is not None:
            return
        if not self.waiting and self._ask_early() is None:
            return
        head = self._packing.for_lane(execution, self.waiting)
        if head is None:
            return
        self.waiting.remove(head)
        waiting = self._lines.bound(head, execution.placement.kind)
        execution.members[waiting.trial.number] = waiting
        self._run(waiting, execution, now_seconds)
        self.ports.feed(execution.key, waiting.trial)
