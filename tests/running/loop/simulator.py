"""The main loop's decisions on a simulated machine: its ports and its messages.

The main thread hears of everything a moment late, as from a queue. What must always hold is
checked throughout: `simulated_checks.py`.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import repeat

from automl.admission.accounting.idle_processes import Idle
from automl.admission.accounting.ledger import Ledger
from automl.admission.governor import SharingGovernor
from automl.admission.limits import AdmissionLimits
from automl.admission.requests import RequestMaker
from automl.devices.device_reading import (
    DeviceReading,
    DeviceSnapshot,
    HeldBytes,
    HostState,
    OtherPromises,
)
from automl.running.loop.asking import TrialAsker
from automl.running.loop.loop import SweepLoop
from automl.running.loop.messages import (
    AdmittedExecution,
    DevicesRead,
    ExecutionStart,
    LoopMessage,
    PlannedTrial,
    ReservationReleased,
    SignalReceived,
    StopReason,
    TimePassed,
    TrialEnded,
    UnfitTrialFinding,
)
from automl.running.loop.trial_paces import DevicePaceModel
from automl.trial import (
    UNKNOWN_REQUEST,
    DeviceId,
    FailedOutcome,
    InterruptedOutcome,
    PackKind,
    Params,
    ProcessId,
    RequestSource,
    ResourceRequest,
    TooLargeOutcome,
    TrialOutcome,
)
from tests.places import device_id
from tests.running.loop.choosers import Told
from tests.running.loop.plain_ports import ports_of
from tests.running.loop.simulated_checks import Checked
from tests.running.loop.simulated_machine import (
    CONTEXT_BYTES,
    RELEASED_AFTER,
    SWEEP,
    Fault,
    Hosted,
    Lane,
    Machine,
    Plan,
    Process,
    Stranger,
)

_DIES_AFTER = 0.05
"""What starts on a device that has failed, dies so soon."""
_STOPS_AFTER = 0.4
"""Until the next report of any trial, at which it learns that the sweep stops."""


@dataclass
class World(Checked):
    """A machine, and the loop's ports into it."""

    sizes: Mapping[str, int]
    """Total bytes of each device, by its name (`tests.places.device_id`)."""
    plans: Sequence[Plan]
    strangers: Sequence[Stranger] = ()
    limits: AdmissionLimits = field(default_factory=lambda: AdmissionLimits(4, 0, 5.0))
    ledger: Ledger = field(default_factory=Ledger)
    own_processes: bool = False
    """Trials run in workers, as with the default executor: whose pid is known late."""
    told_after: float = 0.0
    """How late the main thread hears."""
    reading_seconds: float = 0.7
    reading_takes: float = 0.0
    blind: bool = False
    """Mutation: readings always show empty devices, as if NVML were never asked."""
    silent_between: tuple[float, float] = (0.0, 0.0)
    """NVML hangs: no reading arrives."""
    declared_bytes: int | None = None
    """What the user said that each trial takes."""
    contexts: Iterator[int] = field(default_factory=lambda: repeat(CONTEXT_BYTES))
    """What CUDA takes in each new process."""
    shows_pids: bool = False
    """NVML tells what each process holds, as it does but in containers."""
    faults: Sequence[Fault] = ()
    max_processes: int | None = None
    """Most processes on a GPU, by its compute mode."""
    stop_at: float | None = None
    """When somebody presses Ctrl-C."""
    n_ahead: int = 0
    """How many behind the head may pass it."""
    governor: SharingGovernor | None = None
    chooser: DevicePaceModel | None = None
    max_events: int = 5_000
    released_after: float = RELEASED_AFTER
    """Seconds from the end of an execution until its reservation is returned."""
    rough: float = 1.0
    """What is thought of how long a trial takes: so many times the truth."""

    def __post_init__(self) -> None:
        self.now = 0.0
        self.totals = {device_id(name): size for name, size in self.sizes.items()}
        self.machine = Machine(
            self.totals,
            self.strangers,
            self.own_processes,
            self.contexts,
            self.shows_pids,
            self.faults,
            self.max_processes,
        )
        self.n_ended_idle = 0
        self.told: dict[int, TrialOutcome] = {}
        self.interrupted: set[int] = set()
        """Left for the next sweep."""
        self.started: list[int] = []
        self.attempts: dict[int, int] = {}
        """Starts of each trial, less those in packs that were dissolved."""
        self.packs: dict[int, list[int]] = {}
        """Trials of each execution, in the order in which they were given to it, by the first one;
        of several that began with one trial, those of the last."""
        self._pack_of: dict[int, list[int]] = {}
        """The same by the execution's key."""
        self.most_pending: int | None = None
        self.stopping = False
        self._read_at = 0.0
        self._n_asked = 0
        self._order = itertools.count()
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self.loop = SweepLoop(
            ports_of(self),
            RequestMaker(self._estimate, self.declared_bytes),
            self.ledger,
            self.limits,
            TrialAsker(ports_of(self), len(self.plans), 0),
            process=None if self.own_processes else SWEEP,
            n_ahead=self.n_ahead,
            durations=Told(self.plans, self.rough),
            governor=self.governor,
            chooser=self.chooser,
        )

    def _estimate(self, params: Params) -> ResourceRequest:
        plan = self.plans[int(str(params["plan"]))]
        request = UNKNOWN_REQUEST
        if plan.request_bytes is not None:
            request = ResourceRequest(plan.request_bytes, RequestSource.ESTIMATED)
        return replace(request, n_devices=plan.n_devices, kinds=plan.kinds)

    # --- ports ---

    def ask(self) -> PlannedTrial | None:
        assert self._n_asked < len(self.plans), "more trials than the study may have"
        self._n_asked += 1
        return PlannedTrial(self._n_asked - 1, {"plan": self._n_asked - 1})

    def n_may_pend(self) -> int | None:
        return self.most_pending

    def kind_of(self, trial: PlannedTrial, *, on_host: bool) -> PackKind | None:
        return self.plans[trial.number].kind

    def others(self, begun_seconds: float) -> OtherPromises:
        return self._elsewhere(begun_seconds)

    def submit(self, start: ExecutionStart) -> None:
        key, first = start.key, start.group[0].trial.number
        process = self.machine.process_on(start.placement.devices)
        process.n_executions += 1
        execution = Hosted(key, first, start.placement, len(start.group), process)
        self.machine.executions[key] = execution
        self.packs[first] = self._pack_of[key] = []
        for trial in [w.trial for w in start.group]:
            self.feed(key, trial)
        self._check_admission(execution)
        self._at(self.plans[first].hosted_after, partial(self._host, execution))

    def feed(self, key: int, trial: PlannedTrial) -> None:
        assert not self.stopping, "a trial started after Ctrl-C"
        self._pack_of[key].append(trial.number)
        self.started.append(trial.number)
        execution = self.machine.executions.get(key)
        if execution is None or execution.over:
            return  # nobody takes it any more
        assert not any(trial.number in e.lanes for e in self.machine.executions.values())
        execution.fed.append(trial.number)
        self._check_promise(execution)
        self._fill(execution)

    def tell(self, outcome: TrialOutcome) -> None:
        assert outcome.trial not in self.told, "told twice"
        self.told[outcome.trial] = outcome

    def fail(self, trial: PlannedTrial, cause: str) -> None:
        self.tell(FailedOutcome(trial.number, self.now, cause))

    def too_large(self, trial: PlannedTrial, found: UnfitTrialFinding) -> None:
        self.tell(
            TooLargeOutcome(trial.number, self.now, found.cause, found.excess, found.at_least)
        )

    def tell_of_interruption(
        self, outcome: TrialOutcome, execution: AdmittedExecution, *, is_stopping: bool
    ) -> None:
        assert outcome.trial in execution.members

    def stop_trials(self, reason: StopReason) -> None:
        self.stopping = True
        for execution in self.machine.executions.values():
            for lane in execution.lanes.values():
                self._at(_STOPS_AFTER, partial(self._stop_lane, execution, lane))

    def idle(self) -> Idle:
        found: dict[tuple[DeviceId, ...], list[ProcessId]] = {}
        for process in self._idle_processes():
            found.setdefault(process.devices, []).append(process.address)
        return found

    def end_idle(self, devices: Collection[DeviceId]) -> None:
        ended = [p for p in self._idle_processes() if not set(devices).isdisjoint(p.devices)]
        self.n_ended_idle += len(ended)
        self.machine.processes = [p for p in self.machine.processes if p not in ended]

    def _idle_processes(self) -> list[Process]:
        everyone = self.machine.processes if self.own_processes else []
        return [process for process in everyone if not process.n_executions]

    # --- what the executor and the pool's threads do ---

    def _host(self, execution: Hosted) -> None:
        if self.own_processes:
            self.ledger.assign(execution.key, execution.process.address)
        execution.runs = True
        self._fill(execution)

    def _fill(self, execution: Hosted) -> None:
        while execution.runs and execution.fed and len(execution.lanes) < execution.n_lanes:
            number = execution.fed.popleft()
            lane = Lane(number, self.plans[number], self.now)
            execution.lanes[number] = lane
            self.attempts[number] = self.attempts.get(number, 0) + 1
            self._begin_lane(execution, lane)
            self._at(lane.plan.reports_after, partial(self._report, execution, lane))
            seconds = lane.plan.seconds_on(execution.placement.kind)
            self._at(seconds, partial(self._end_lane, execution, lane))
            if self.faults:
                self._at(_DIES_AFTER, partial(self._die_with_device, execution, lane))
            if self.stopping:
                self._at(_STOPS_AFTER, partial(self._stop_lane, execution, lane))

    def _begin_lane(self, execution: Hosted, lane: Lane) -> None:
        """Do nothing: a trial has nothing to go on from here."""

    def _die_with_device(self, execution: Hosted, lane: Lane) -> None:
        """Where its device has failed, its process has, too."""
        devices = execution.placement.devices
        if lane not in execution.lanes.values():
            return
        if all(self.machine.fault_of(device, self.now) is None for device in devices):
            return
        if execution.process in self.machine.processes and self.own_processes:
            self.machine.processes.remove(execution.process)
        if execution.n_lanes > 1:
            self._dissolve(execution)
            return
        lost = InterruptedOutcome(lane.number, self.now, "its GPU failed", by_worker_death=True)
        self._tell_end(execution, lost)

    def _break_down(self) -> None:
        for execution in list(self.machine.executions.values()):
            for lane in list(execution.lanes.values()):
                self._die_with_device(execution, lane)

    def _report(self, execution: Hosted, lane: Lane) -> None:
        if lane in execution.lanes.values():
            execution.process.has_context = True
            if not execution.placement.on_host:
                seen = max(execution.process.host_bytes, lane.plan.host_bytes)
                execution.process.host_bytes = seen
            self.ledger.context_up(execution.key, self.now)

    def _stop_lane(self, execution: Hosted, lane: Lane) -> None:
        if lane in execution.lanes.values():
            self.interrupted.add(lane.number)
            self._tell_end(execution, InterruptedOutcome(lane.number, self.now, "the sweep stops"))

    def _end_lane(self, execution: Hosted, lane: Lane) -> None:
        if lane not in execution.lanes.values():
            return
        in_pack = execution.n_lanes > 1
        too_large = lane.plan.peak_bytes > self.machine.can_get(execution, lane, self.now)
        dies = lane.plan.ends == "dies twice" or (
            lane.plan.ends == "dies" and self.attempts[lane.number] == 1
        )
        if dies and not too_large and self.own_processes:
            self.machine.processes.remove(execution.process)
        if in_pack and (dies or too_large):
            self._dissolve(execution)
            return
        peak = min(lane.plan.peak_bytes, self.machine.can_get(execution, lane, self.now))
        seen = 0 if in_pack else peak
        self.ledger.observe_peak(execution.key, *[seen] * len(execution.placement.shares))
        n_starts = self.attempts[lane.number]
        self._tell_end(execution, lane.outcome(self.now, n_starts, too_large=too_large, dies=dies))

    def _dissolve(self, execution: Hosted) -> None:
        """The pack breaks: its trials are to go on alone; what it was fed it never took."""
        for number in list(execution.lanes):
            self.attempts[number] -= 1
            ended = InterruptedOutcome(number, self.now, "its pack died", pack_dissolved=True)
            self._tell_end(execution, ended, takes_more=False)

    def _tell_end(
        self, execution: Hosted, outcome: TrialOutcome, *, takes_more: bool = True
    ) -> None:
        del execution.lanes[outcome.trial]
        self._pass_on(execution, outcome)
        if takes_more:
            self._fill(execution)
        if not execution.lanes:
            execution.over = True
            execution.process.n_executions -= 1
            self._at(self.released_after, partial(self._release, execution.key))

    def _pass_on(self, execution: Hosted, outcome: TrialOutcome) -> None:
        """Tell the main thread how a trial has ended."""
        self._post(TrialEnded(outcome))

    def _release(self, key: int) -> None:
        del self.machine.executions[key]
        self.ledger.release(key, self.now)
        self._post(ReservationReleased(key))

    # --- the world ---

    def run(self, left: Sequence[int] = ()) -> None:
        """Until the loop is done, then check that the books are straight; the trials `left` may be
        held back for good."""
        self.go_to_end()
        if not self.stopping:
            held_back = [waiting.trial.number for waiting in self.loop.queue.deferred]
            assert set(held_back) <= set(left), "a trial waits for nobody"
            everyone = list(range(len(self.plans)))
            assert sorted([*self.told, *held_back]) == everyone, "a trial got lost"

    def go_to_end(self) -> None:
        """Let everything happen until the loop is done, and all reservations are back."""
        self._read()
        for fault in self.faults:
            self._at(fault.from_seconds, self._break_down)
        if self.stop_at is not None:
            self._at(self.stop_at, partial(self._post, SignalReceived(StopReason.INTERRUPTED)))
        for _ in range(self.max_events):
            if self.loop.done:
                break
            self._go_on()
            self._check_memory()
        assert self.loop.done, "the sweep never ends"
        assert self.ledger.snapshot().reservations == (), "a reservation was not given back"

    def _go_on(self) -> None:
        """Let the next thing happen."""
        self.now, _, happens = heapq.heappop(self._heap)
        happens()

    def _at(self, after: float, happens: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (self.now + after, next(self._order), happens))

    def _post(self, message: LoopMessage) -> None:
        self._at(self.told_after, partial(self._handle, message))

    def _handle(self, message: LoopMessage) -> None:
        self.loop.handle(message, self.now)
        self._check_books()

    def _read(self) -> None:
        """The reader's thread: what ours hold, the driver's word, what ours hold."""
        self._at(self.reading_seconds, self._read)
        begin, end = self.silent_between
        if begin <= self.now < end:
            self._post(TimePassed())
            return
        begun = DeviceReading(
            self.now, reserved_before=self._held(), promised_elsewhere=self._elsewhere(self.now)
        )
        self._at(self.reading_takes / 2, partial(self._ask_driver, begun))

    def _ask_driver(self, begun: DeviceReading) -> None:
        devices = self.machine.snapshots(self.now)
        if self.blind:
            devices = tuple(DeviceSnapshot(d, "sim", t, t) for d, t in self.totals.items())
        asked = replace(begun, devices=devices, hosts=self.host_states())
        self._at(self.reading_takes / 2, partial(self._end_reading, asked))

    def _end_reading(self, asked: DeviceReading) -> None:
        self._post(DevicesRead(replace(asked, reserved_after=self._held())))

    def _reading(self) -> DeviceReading:
        """All at once, for a test that handles messages itself."""
        held = self._held()
        devices, elsewhere = self.machine.snapshots(self.now), self._elsewhere(self.now)
        return DeviceReading(self.now, devices, held, held, elsewhere, self.host_states())

    def host_states(self) -> Mapping[str, HostState]:
        """Return the machines as the reader's threads find them now."""
        return {}

    def _elsewhere(self, begun_seconds: float) -> OtherPromises:
        """What other sweeps promise now that a reading begun then may have missed."""
        return {}

    def _held(self) -> HeldBytes:
        return {} if self.blind else self.machine.held_bytes(self.now)
