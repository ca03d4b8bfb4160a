"""What the main thread decides: who is asked for, who starts where, who goes back, when it ends.

No clock, thread, file or library is touched here: messages come in with their time, and whatever
must be done goes out through `Ports`. `sweep.py` plugs in the real parts, the tests a simulator
with virtual time. First come, first served: one trial waits at the head, nobody overtakes it,
except that trials of the head's own kind may start with it, as one pack.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from automl.admission.account import account, contexts_seen
from automl.admission.ledger import Ledger
from automl.admission.policy import Idle, Limits, place
from automl.admission.reasons import Refusal, RefusalKind, at_limit
from automl.admission.requests import Requests
from automl.admission.unseen import unseen, with_elsewhere
from automl.devices.device import Elsewhere, Reading
from automl.devices.promises import Promise
from automl.errors import ConfigError
from automl.running.agreement import agreed
from automl.running.doubt import doubting, drained
from automl.running.messages import (
    Asked,
    Broke,
    DevicesRead,
    Ended,
    Execution,
    Kind,
    Measured,
    Message,
    Released,
    Running,
    Signalled,
    StopReason,
    TakenOver,
    Tick,
    Waiting,
)
from automl.running.retries import after_death, after_out_of_memory, after_refusal_for_good
from automl.trial import (
    DeviceId,
    DeviceKind,
    Failed,
    Interrupted,
    Outcome,
    OutOfMemory,
    Placement,
    ProcessId,
    Request,
)

MAX_SAME_FAILURES = 10
"""This many failures in a row with one error stop the sweep."""


_FOR_GOOD = (RefusalKind.NO_ROOM, RefusalKind.LOST)
"""Why nothing of ours is in the way of what is held back."""


class Ports(Protocol):
    """What the loop can have done."""

    def ask(self) -> Asked | None:
        """A new trial, or None when the search space is exhausted."""

    def n_may_pend(self) -> int | None:
        """How many trials may be asked for and not ended, without harm to the sampler; None: any
        number."""

    def kind_of(self, trial: Asked, *, on_host: bool) -> Kind | None:
        """What it can go together with on such a device; None: it trains alone there."""

    def promise(self, promises: Sequence[Promise]) -> Elsewhere:
        """Show other sweeps what NVML does not show yet; returns what they show after that."""

    def submit(self, trials: Sequence[Asked], placement: Placement, n_lanes: int) -> None:
        """Start them in the pool as one execution, known by its first trial's number."""

    def feed(self, key: int, trial: Asked) -> None:
        """Give a running pack another trial, for a lane that came free."""

    def tell(self, outcome: Outcome) -> None:
        """Give the study an outcome that the executor saw: finished, pruned or failed."""

    def fail(self, trial: Asked, cause: str, *, too_large: bool) -> None:
        """Record and tell a failure that was decided here; `too_large`: no device can hold it."""

    def stop_trials(self) -> None:
        """Running trials write a checkpoint at their next report and stop."""

    def idle(self) -> Idle:
        """Processes kept warm for trials to come."""

    def end_idle(self, devices: Collection[DeviceId]) -> None:
        """Those of these devices end, and give their memory back."""


@dataclass
class Loop:
    """The sweep's state and its decisions. All methods belong to the main thread."""

    ports: Ports
    requests: Requests
    ledger: Ledger
    limits: Limits
    n_trials: int
    """Total of the study."""
    n_asked: int
    """Trials that the study has, those to be taken over included."""
    deadline_seconds: float | None = None
    process: ProcessId | None = None
    """In which trials train, where all share one."""
    waiting: deque[Waiting] = field(default_factory=deque)
    held_back: list[Waiting] = field(default_factory=list)
    """Those that ran out of memory for what others hold, or fit on a lost device alone; they let
    all others pass."""
    running: dict[int, Running] = field(default_factory=dict)
    executions: dict[int, Execution] = field(default_factory=dict)
    reading: Reading | None = None
    stop: StopReason | None = None
    error: BaseException | None = None
    last_failure: Failed | None = None
    refusal: Refusal | None = None
    """Why no new trial is asked for now."""
    _execution_of: dict[int, int] = field(default_factory=dict)
    _kinds: dict[tuple[int, bool], Kind | None] = field(default_factory=dict)
    """Of waiting trials, by number and whether on the host; asked for once."""
    _freed_seconds: dict[DeviceId, float] = field(default_factory=dict)
    """When an execution there was heard to be over."""
    _died_seconds: dict[DeviceId, float] = field(default_factory=dict)
    """When a process was last heard to have died on a GPU."""
    _exhausted: bool = False
    _same_failures: int = 0

    def take_over(self, trials: Sequence[TakenOver]) -> None:
        """Trials of an earlier sweep that have not ended go first, with what they are known for."""
        for left in trials:
            is_new = left.n_ran_out == left.deaths == 0
            self.waiting.append(
                Waiting(left.trial, is_new, n_ran_out=left.n_ran_out, deaths=left.deaths)
            )

    @property
    def done(self) -> bool:
        """Nothing runs, and nothing more will."""
        if self.executions:
            return False
        if self.stop is not None:
            return True
        return not self.waiting and not self._wants_more() and self._held_back_for_good

    def handle(self, message: Message, now_seconds: float) -> None:
        """Take one message, then admit what may start. `now_seconds` is monotonic."""
        match message:
            case Ended(outcome):
                self._ended(outcome, now_seconds)
            case Measured(peak):
                running = self.running[peak.trial]
                params, kind = running.waiting.trial.params, running.placement.kind
                self.requests.learn(params, peak, kind)
            case Released(key):
                self._released(key, now_seconds)
            case DevicesRead(reading):
                self._read(reading)
            case Signalled(reason):
                self._stop_running(reason)
            case Broke(error):
                self.break_off(error)
                self.ports.stop_trials()
            case Tick():
                pass
        if self.deadline_seconds is not None and now_seconds >= self.deadline_seconds:
            self.stop = self.stop or StopReason.TIMEOUT
        self._admit(now_seconds)

    def _read(self, reading: Reading) -> None:
        self.reading = reading = doubting(reading, self._died_seconds)
        if failed := drained(reading):
            self.ports.end_idle(failed)  # their contexts have failed, too, even if it comes back
        self.ledger.note(reading, contexts_seen(reading))
        self._promise()
        ledger = self.ledger.snapshot()
        for device in reading.devices:
            here = account(device, reading, ledger, self.limits.headroom_bytes)
            self.ledger.note_foreign(device.address, here.foreign_bytes)
            if not here.is_undisturbed:
                for execution in self.executions.values():
                    execution.disturbed |= device.address in execution.placement.devices

    def break_off(self, error: BaseException) -> None:
        """Nothing starts any more, and the study is told nothing more: the next sweep tells it what
        the event log has. The first error is the one that counts, even after Ctrl-C."""
        self.error = self.error or error
        self.stop = StopReason.BROKEN

    # --- outcomes ---

    def _ended(self, outcome: Outcome, now_seconds: float) -> None:
        del self.running[outcome.trial]
        execution = self.executions[self._execution_of.pop(outcome.trial)]
        execution.outcomes[outcome.trial] = outcome
        if isinstance(outcome, Failed | OutOfMemory):
            self.requests.forget(outcome.trial)
        if self.error is not None:
            return
        if isinstance(outcome, OutOfMemory | Interrupted):
            return  # decided when the reservation is back: it may ask for another
        self.ports.tell(outcome)
        if isinstance(outcome, Failed):
            self._count_failure(outcome)
        else:
            self._same_failures = 0
        self._refill(execution, now_seconds)

    def _released(self, key: int, now_seconds: float) -> None:
        """The execution is over and its reservation back; trials that did not end go on."""
        execution = self.executions.pop(key)
        for device in execution.placement.devices:
            self._freed_seconds[device] = now_seconds
        for number, waiting in reversed(execution.members.items()):
            match execution.outcomes.get(number):
                case Outcome() if self.error is not None:
                    pass  # for the next sweep, which takes it from the event log
                case OutOfMemory() as outcome:
                    self._ran_out(waiting, execution, outcome)
                case Interrupted(by_worker_death=True) as outcome:
                    self._died(waiting, outcome, execution, now_seconds)
                case Interrupted(pack_dissolved=True):
                    self.waiting.appendleft(replace(waiting, may_pack=False))
                case None:  # fed to a pack that had just ended, or our own code broke
                    del self.running[number], self._execution_of[number]
                    self.waiting.appendleft(waiting)
                case _:
                    pass  # final, or kept by the study for the next sweep

    def _ran_out(self, waiting: Waiting, was: Execution, outcome: OutOfMemory) -> None:
        asked = was.request.memory_bytes
        if asked is not None and was.kind is None:
            self.requests.ran_out(waiting.trial.params, asked, was.placement.kind)
        self._again(waiting, after_out_of_memory(waiting, was, outcome))

    def _again(self, waiting: Waiting, decided: Waiting | str) -> None:
        """Have the trial wait again as was decided, or fail for the cause decided."""
        if isinstance(decided, str):
            self.ports.fail(waiting.trial, decided, too_large=True)
        elif decided.undisturbed:
            self.held_back.append(decided)
        else:
            self.waiting.appendleft(decided)

    def _died(
        self, waiting: Waiting, outcome: Interrupted, was: Execution, now_seconds: float
    ) -> None:
        devices = was.placement.devices
        failed = self.reading is not None and not drained(self.reading).isdisjoint(devices)
        decided = after_death(waiting, outcome, drained=failed)
        self._died_seconds |= {d: now_seconds for d in devices if not d.on_host}
        if self.reading is not None:
            self.reading = doubting(self.reading, self._died_seconds)
        if isinstance(decided, Waiting):
            self.waiting.appendleft(decided)
            return
        self.ports.fail(waiting.trial, decided, too_large=False)
        self._count_failure(Failed(outcome.trial, outcome.time, decided))

    def _count_failure(self, failed: Failed) -> None:
        same = self.last_failure is not None and self.last_failure.cause == failed.cause
        self._same_failures = self._same_failures + 1 if same else 1
        self.last_failure = failed
        if failed.hopeless or self._same_failures >= MAX_SAME_FAILURES:
            self._stop_running(StopReason.FAILING)

    def _stop_running(self, reason: StopReason) -> None:
        if self.stop is None or self.stop is StopReason.TIMEOUT:
            self.stop = reason
        self.ports.stop_trials()

    # --- asking ---

    def _wants_more(self) -> bool:
        return not self._exhausted and self.n_asked < self.n_trials

    def _ask(self, now_seconds: float) -> bool:
        """Ask when a place is free, as late as can be: the sampler then knows the most."""
        self.refusal = None
        if not self._wants_more():
            return False
        smallest = self._place(self.requests.least(), now_seconds)
        if isinstance(smallest, Refusal):
            if smallest.kind is RefusalKind.NEVER:
                self.break_off(ConfigError(f"admission.request: {smallest.reason}; declare less."))
                return False
            self.refusal = smallest
            self._make_room(smallest)
            return False
        return self._ask_ahead()

    def _ask_ahead(self) -> bool:
        asked = self.ports.ask() if self._wants_more() else None
        if asked is None:
            self._exhausted = True
            return False
        self.n_asked += 1
        self.waiting.append(Waiting(asked))
        return True

    def _may_ask_ahead(self) -> bool:
        if not self._wants_more():
            return False
        most = self.ports.n_may_pend()
        n_pending = len(self.waiting) + len(self.running)
        return most is None or n_pending < max(most, self._n_places)

    @property
    def _n_places(self) -> int:
        devices = () if self.reading is None else self.reading.devices
        return self.limits.at_once(device.address for device in devices)

    def _request(self, waiting: Waiting) -> Request:
        devices = () if self.reading is None else self.reading.devices
        kinds = {device.address.kind for device in devices}
        request = self.requests.of(waiting.trial.params, waiting.n_ran_out, kinds)
        return replace(request, undisturbed=waiting.undisturbed)

    def _pack_request(self, members: Sequence[Waiting], kind: DeviceKind) -> Request:
        return self.requests.of_pack([waiting.trial.params for waiting in members], kind)

    def _kind(self, waiting: Waiting, *, on_host: bool) -> Kind | None:
        """What it can go together with on such a device; None: it trains alone there."""
        key = (waiting.trial.number, on_host)
        if waiting.may_pack and key not in self._kinds:
            self._kinds[key] = self.ports.kind_of(waiting.trial, on_host=on_host)
        return self._kinds[key] if waiting.may_pack else None

    # --- admission ---

    def _admit(self, now_seconds: float) -> None:
        self._admit_waiting(now_seconds)
        if self.stop is None and not self.waiting and not self._wants_more():
            self._admit_held_back(now_seconds)

    def _admit_held_back(self, now_seconds: float) -> None:
        """Nobody else waits any more: those whose device others have left get another try."""
        held_back, self.held_back = self.held_back, []
        for waiting in held_back:
            request = self._request(waiting)
            decision = self._place_for_good(request, now_seconds)
            if isinstance(decision, Placement):
                self._start([waiting], request, decision, now_seconds)
            else:
                self.held_back.append(replace(waiting, refusal=decision))
                self._make_room(decision)

    @property
    def _held_back_for_good(self) -> bool:
        """Whether what is held back would wait for others alone, by a reading that shows it."""
        return all(
            waiting.refusal.kind in _FOR_GOOD and not waiting.refusal.in_the_way
            for waiting in self.held_back
        ) and (not self.held_back or self._shows_the_last_end)

    @property
    def _shows_the_last_end(self) -> bool:
        last_seconds = max(self._freed_seconds.values(), default=-math.inf)
        return self.reading is not None and self.reading.begun_seconds > last_seconds

    def _admit_waiting(self, now_seconds: float) -> None:
        while self.stop is None and (self.waiting or self._ask(now_seconds)):
            head = self.waiting[0]
            request = self._request(head)
            decision = self._place_for_good(request, now_seconds)
            if isinstance(decision, Placement):
                self._start_with(head, request, decision, now_seconds)
            elif decision.kind is RefusalKind.NEVER:
                self._again(self.waiting.popleft(), after_refusal_for_good(head, request, decision))
            elif decision.kind is RefusalKind.LOST:
                self.held_back.append(replace(self.waiting.popleft(), refusal=decision))
            else:
                self.waiting[0] = replace(head, refusal=decision)
                self._make_room(decision)
                return  # nor is anything asked for ahead while nothing can start

    def _start_with(
        self, head: Waiting, request: Request, placement: Placement, now_seconds: float
    ) -> None:
        """Start the head, which has a place, and as many of its kind with it as fit as one pack."""
        group = self._group(head, on_host=placement.on_host)
        while len(group) > 1:
            pack = self._pack_request(group, placement.kind)
            decision = self._place_for_good(pack, now_seconds)
            if isinstance(decision, Placement):
                self._start(group, pack, decision, now_seconds)
                return
            group = group[: len(group) // 2]
        self._start(group, request, placement, now_seconds)

    def _group(self, head: Waiting, *, on_host: bool) -> list[Waiting]:
        """The head, and what starts with it as one pack, asked for ahead where that may be."""
        kind = self._kind(head, on_host=on_host)
        if kind is None:
            return [head]
        same = [waiting for waiting in self.waiting if self._kind(waiting, on_host=on_host) == kind]
        while len(same) < kind.n_lanes and self._may_ask_ahead() and self._ask_ahead():
            if self._kind(self.waiting[-1], on_host=on_host) == kind:
                same.append(self.waiting[-1])
        return same[: self._fair_share(kind)]

    def _fair_share(self, kind: Kind) -> int:
        """When nothing is left to ask for, the rest is divided among those that could run it, a
        core each."""
        if self._wants_more():
            return kind.n_lanes
        n_free = max(1, min(self._n_places, self.limits.max_on_host) - len(self.executions))
        return min(kind.n_lanes, math.ceil(len(self.waiting) / n_free))

    def _start(
        self, group: Sequence[Waiting], request: Request, placement: Placement, now_seconds: float
    ) -> None:
        members = {waiting.trial.number: waiting for waiting in group}
        key = next(iter(members))
        kind = self._kind(group[0], on_host=placement.on_host) if len(group) > 1 else None
        self.waiting = deque(w for w in self.waiting if w.trial.number not in members)
        self.executions[key] = Execution(key, request, placement, kind, members, len(group))
        for waiting in group:
            self._run(waiting, self.executions[key], now_seconds)
        self.ledger.reserve(key, placement, self.process)
        self.ports.submit([waiting.trial for waiting in group], placement, len(group))

    def _run(self, waiting: Waiting, execution: Execution, now_seconds: float) -> None:
        number = waiting.trial.number
        for on_host in (True, False):
            self._kinds.pop((number, on_host), None)
        self.running[number] = Running(waiting, execution.placement, now_seconds)
        self._execution_of[number] = execution.key

    def _refill(self, execution: Execution, now_seconds: float) -> None:
        """A lane came free: the next trial of the kind takes it, unless another waits first."""
        live = execution.live
        if execution.kind is None or not live or self.stop is not None:
            return
        if not self.waiting and not (self._may_ask_ahead() and self._ask_ahead()):
            return
        head = self.waiting[0]
        if self._kind(head, on_host=execution.placement.on_host) != execution.kind:
            return
        if not self._is_promised(execution, head):
            return
        waiting = self.waiting.popleft()
        execution.members[waiting.trial.number] = waiting
        self._run(waiting, execution, now_seconds)
        self.ports.feed(execution.key, waiting.trial)

    def _is_promised(self, execution: Execution, head: Waiting) -> bool:
        """Whether a pack's promise is enough with the head in its free lane. It is for all that is
        no larger than what the pack began with, whatever was learned since."""
        kind = execution.placement.kind
        request = self._pack_request([*execution.live, head], kind)
        has_room = execution.has_room_for(request)
        if has_room or request.memory_bytes is None:
            return has_room
        began = list(execution.members.values())[: execution.n_lanes]
        first_bytes = self._pack_request(began, kind).memory_bytes
        return first_bytes is not None and request.memory_bytes <= first_bytes

    def _place_for_good(self, request: Request, now_seconds: float) -> Placement | Refusal:
        """A place that no other sweep has been promised meanwhile."""
        first = self._place(request, now_seconds)
        if isinstance(first, Refusal) or first.on_host:
            return first

        def decide(elsewhere: Elsewhere) -> Placement | Refusal:
            assert self.reading is not None
            self.reading = with_elsewhere(self.reading, elsewhere)
            return self._place(request, now_seconds)

        return agreed(first, self._promise, decide)

    def _promise(self, coming: Placement | None = None) -> Elsewhere:
        """Show other sweeps what NVML does not; what they show."""
        assert self.reading is not None
        return self.ports.promise(unseen(self.reading, self.ledger.snapshot(), coming))

    def _place(self, request: Request, now_seconds: float) -> Placement | Refusal:
        most = self.limits.max_concurrent_trials
        if most is not None and len(self.executions) >= most:
            return at_limit(most)  # reservations come back before we hear that they did
        return place(
            request,
            self.reading,
            self.ledger.snapshot(),
            self.limits,
            now_seconds=now_seconds,
            process=self.process,
            idle=self.ports.idle(),
        )

    def _make_room(self, refusal: Refusal) -> None:
        """What lacks may be what processes hold in which nothing runs; a later reading shows it.

        One that was begun before they gave their memory back shows what they held then.
        """
        for device in refusal.in_the_way:
            assert self.reading is not None, "it was in the way by a reading"
            if self.reading.begun_seconds > self._freed_seconds.get(device, -math.inf):
                self.ports.end_idle({device})
