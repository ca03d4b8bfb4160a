"""What the main thread decides: who is asked for, who starts where, who goes back, when it ends.

No clock, thread, file or library is touched here: messages come in with their time, and whatever
must be done goes out through `Ports`. `sweep.py` plugs in the real parts, the tests a simulator
with virtual time. First come, first served: one trial waits at the head, nobody overtakes it,
except that trials of the head's own kind may start with it, as one pack.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from automl.admission.ledger import Ledger
from automl.admission.policy import Limits, Refusal, Request, at_limit, place
from automl.devices.device import Reading
from automl.running.messages import (
    Asked,
    Broke,
    DevicesRead,
    Ended,
    Execution,
    Kind,
    Message,
    Released,
    Running,
    Signalled,
    StopReason,
    TakenOver,
    Tick,
    Waiting,
)
from automl.trial import Failed, Interrupted, Outcome, OutOfMemory, Placement

OOM_GROWTH = 1.5
"""A trial that ran out of memory asks for this much more."""
MAX_DEATHS = 2
"""A trial under which this many processes died has failed."""
MAX_SAME_FAILURES = 10
"""This many failures in a row with one error stop the sweep."""


class Ports(Protocol):
    """What the loop can have done."""

    def ask(self) -> Asked | None:
        """A new trial, or None when the search space is exhausted."""

    def n_may_pend(self) -> int | None:
        """How many trials may be asked for and not ended, without harm to the sampler; None: any
        number."""

    def request_for(self, trial: Asked) -> Request:
        """The memory to ask for."""

    def kind_of(self, trial: Asked) -> Kind | None:
        """What it can go together with; None: it trains alone."""

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

    def end_idle(self) -> None:
        """Processes kept warm for trials to come end, and give their memory back."""


@dataclass
class Loop:
    """The sweep's state and its decisions. All methods belong to the main thread."""

    ports: Ports
    ledger: Ledger
    limits: Limits
    n_trials: int
    """Total of the study."""
    n_asked: int
    """Trials that the study has, those to be taken over included."""
    least_request: Request = field(default_factory=lambda: Request(0))
    """What a trial asks for at least; none is asked for while not even that has room."""
    deadline_seconds: float | None = None
    pid: int | None = None
    """The process in which trials train, where all share one."""
    waiting: deque[Waiting] = field(default_factory=deque)
    running: dict[int, Running] = field(default_factory=dict)
    executions: dict[int, Execution] = field(default_factory=dict)
    reading: Reading | None = None
    stop: StopReason | None = None
    error: BaseException | None = None
    last_failure: Failed | None = None
    refusal: str | None = None
    """Why no new trial is asked for now."""
    _execution_of: dict[int, int] = field(default_factory=dict)
    _exhausted: bool = False
    _same_failures: int = 0

    def take_over(self, trials: Sequence[TakenOver]) -> None:
        """Trials of an earlier sweep that have not ended go first, with what they are known for."""
        self.waiting.extend(self._taken_over(left) for left in trials)

    @property
    def done(self) -> bool:
        """Nothing runs, and nothing more will."""
        if self.executions:
            return False
        return self.stop is not None or (not self.waiting and not self._wants_more())

    def handle(self, message: Message, now_seconds: float) -> None:
        """Take one message, then admit what may start. `now_seconds` is monotonic."""
        match message:
            case Ended(outcome):
                self._ended(outcome, now_seconds)
            case Released(key):
                self._released(key)
            case DevicesRead(reading):
                self.reading = reading
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

    def _released(self, key: int) -> None:
        """The execution is over and its reservation back; trials that did not end go on."""
        execution = self.executions.pop(key)
        for number, waiting in reversed(execution.members.items()):
            match execution.outcomes.get(number):
                case Outcome() if self.error is not None:
                    pass  # for the next sweep, which takes it from the event log
                case OutOfMemory() as outcome:
                    self._retry_larger(waiting, execution.placement, outcome)
                case Interrupted(by_worker_death=True) as outcome:
                    self._retry_after_death(waiting, outcome)
                case Interrupted(pack_dissolved=True):
                    self.waiting.appendleft(replace(waiting, kind=None))
                case None:  # fed to a pack that had just ended, or our own code broke
                    del self.running[number], self._execution_of[number]
                    self.waiting.appendleft(waiting)
                case _:
                    pass  # final, or kept by the study for the next sweep

    def _retry_larger(self, waiting: Waiting, was: Placement, outcome: OutOfMemory) -> None:
        """1.5 times the reservation, then alone on the largest device, then never."""
        if waiting.request.alone:
            cause = f"does not fit, even alone on {was.device_name}: {outcome.cause}"
            self.ports.fail(waiting.trial, cause, too_large=True)
            return
        attempts = waiting.attempts + 1
        request = _larger(None if was.exclusive else was.reservation_bytes, attempts)
        self.waiting.appendleft(replace(waiting, request=request, kind=None, attempts=attempts))

    def _retry_after_death(self, waiting: Waiting, outcome: Interrupted) -> None:
        deaths = waiting.deaths + 1
        if deaths < MAX_DEATHS:
            self.waiting.appendleft(replace(waiting, kind=None, deaths=deaths))
            return
        cause = f"{outcome.cause} ({deaths} times)"
        self.ports.fail(waiting.trial, cause, too_large=False)
        self._count_failure(Failed(outcome.trial, outcome.time, cause))

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
        smallest = self._place(self.least_request, now_seconds)
        if isinstance(smallest, Refusal):
            self.refusal = self._refused(smallest)
            return False
        return self._ask_ahead()

    def _ask_ahead(self) -> bool:
        asked = self.ports.ask() if self._wants_more() else None
        if asked is None:
            self._exhausted = True
            return False
        self.n_asked += 1
        self.waiting.append(self._waiting(asked))
        return True

    def _may_ask_ahead(self) -> bool:
        if not self._wants_more():
            return False
        most = self.ports.n_may_pend()
        n_pending = len(self.waiting) + len(self.running)
        return most is None or n_pending < max(most, self.limits.max_concurrent_trials)

    def _waiting(self, trial: Asked) -> Waiting:
        return Waiting(trial, self.ports.request_for(trial), self.ports.kind_of(trial))

    def _taken_over(self, left: TakenOver) -> Waiting:
        waiting = self._waiting(left.trial)
        if left.attempts:
            request = _larger(waiting.request.memory_bytes, left.attempts)
            waiting = replace(waiting, request=request, kind=None, attempts=left.attempts)
        if left.deaths:
            waiting = replace(waiting, kind=None, deaths=left.deaths)
        return waiting

    # --- admission ---

    def _admit(self, now_seconds: float) -> None:
        while self.stop is None and (self.waiting or self._ask(now_seconds)):
            head = self.waiting[0]
            decision = self._place(head.request, now_seconds)
            if isinstance(decision, Refusal) and not decision.never:
                self.waiting[0] = replace(head, reason=self._refused(decision))
                return  # nor is anything asked for ahead while nothing can start
            group = self._group(head)
            decision = self._place(_together(group), now_seconds)
            while isinstance(decision, Refusal) and len(group) > 1:  # as many as there is room for
                group = group[: len(group) // 2]
                decision = self._place(_together(group), now_seconds)
            if isinstance(decision, Placement):
                self._start(group, decision, now_seconds)
            else:
                self._never_fits(head, decision)

    def _group(self, head: Waiting) -> list[Waiting]:
        """The head, and what starts with it as one pack, asked for ahead where that may be."""
        if head.kind is None:
            return [head]
        same = [waiting for waiting in self.waiting if waiting.kind == head.kind]
        while len(same) < head.kind.n_lanes and self._may_ask_ahead() and self._ask_ahead():
            if self.waiting[-1].kind == head.kind:
                same.append(self.waiting[-1])
        return same[: self._fair_share(head.kind)]

    def _fair_share(self, kind: Kind) -> int:
        """When nothing is left to ask for, the rest is divided among those that could run it."""
        if self._wants_more():
            return kind.n_lanes
        n_free = max(1, self.limits.max_concurrent_trials - len(self.executions))
        return min(kind.n_lanes, math.ceil(len(self.waiting) / n_free))

    def _start(self, group: Sequence[Waiting], placement: Placement, now_seconds: float) -> None:
        members = {waiting.trial.number: waiting for waiting in group}
        key = next(iter(members))
        self.waiting = deque(w for w in self.waiting if w.trial.number not in members)
        kind = group[0].kind if len(group) > 1 else None
        self.executions[key] = Execution(key, placement, kind, members)
        for waiting in group:
            self._run(waiting, self.executions[key], now_seconds)
        self.ledger.reserve(key, placement, self.pid)
        self.ports.submit([waiting.trial for waiting in group], placement, len(group))

    def _run(self, waiting: Waiting, execution: Execution, now_seconds: float) -> None:
        number = waiting.trial.number
        self.running[number] = Running(waiting, execution.placement, now_seconds)
        self._execution_of[number] = execution.key

    def _refill(self, execution: Execution, now_seconds: float) -> None:
        """A lane came free: the next trial of the kind takes it, unless another waits first."""
        if execution.kind is None or execution.n_live == 0 or self.stop is not None:
            return
        if not self.waiting and not (self._may_ask_ahead() and self._ask_ahead()):
            return
        if self.waiting[0].kind != execution.kind or not execution.has_room(self.waiting[0]):
            return
        waiting = self.waiting.popleft()
        execution.members[waiting.trial.number] = waiting
        self._run(waiting, execution, now_seconds)
        self.ports.feed(execution.key, waiting.trial)

    def _place(self, request: Request, now_seconds: float) -> Placement | Refusal:
        if len(self.executions) >= self.limits.max_concurrent_trials:
            return at_limit(self.limits)  # reservations come back before we hear that they did
        return place(
            request,
            self.reading,
            self.ledger.view(),
            self.limits,
            now_seconds=now_seconds,
            pid=self.pid,
        )

    def _refused(self, refusal: Refusal) -> str:
        """Its reason. Where nothing of ours runs, what lacks may be what idle processes hold."""
        if not self.executions:
            self.ports.end_idle()
        return refusal.reason

    def _never_fits(self, head: Waiting, refusal: Refusal) -> None:
        """No device is large enough. The sampler learns it; no device time is spent."""
        self.waiting.popleft()
        if head.attempts:  # it grew past the largest device: one try alone there
            self.waiting.appendleft(replace(head, request=Request(None, alone=True)))
        else:
            self.ports.fail(head.trial, refusal.reason, too_large=True)


def _larger(memory_bytes: int | None, attempts: int) -> Request:
    """What a trial asks for that ran out of memory: 1.5 times as much, then a device alone."""
    if attempts > 1 or not memory_bytes:
        return Request(None, alone=True)
    return Request(int(memory_bytes * OOM_GROWTH))


def _together(group: Sequence[Waiting]) -> Request:
    """A pack is one admission: as many times its largest member as it has lanes; of unknown size
    where one of them is."""
    if len(group) == 1:
        return group[0].request
    sizes = [waiting.request.memory_bytes for waiting in group]
    known = [size for size in sizes if size is not None]
    return Request(len(group) * max(known) if len(known) == len(group) else None)
