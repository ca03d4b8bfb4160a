"""What the main thread decides: who is asked for, who starts where, who goes back, when it ends.

No clock, thread, file or library is touched here: messages come in with their time, and whatever
must be done goes out through `Ports`. `sweep.py` plugs in the real parts, the tests a simulator
with virtual time. First come, first served: one trial waits at the head, nobody overtakes it.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias

from automl.admission.ledger import Ledger
from automl.admission.policy import Limits, Refusal, Request, place
from automl.devices.device import Reading
from automl.trial import Failed, Interrupted, Outcome, OutOfMemory, Params, Placement

OOM_GROWTH = 1.5
"""A trial that ran out of memory asks for this much more."""
MAX_DEATHS = 2
"""A trial under which this many processes died has failed."""
MAX_SAME_FAILURES = 10
"""This many failures in a row with one error stop the sweep."""


@dataclass(frozen=True)
class Asked:
    """A trial that the study wants run: a new one, or one taken over."""

    number: int
    params: Params


@dataclass(frozen=True)
class Waiting:
    """A trial that has not been admitted yet."""

    trial: Asked
    request: Request
    reason: str = "waiting: not looked at yet"
    attempts: int = 0
    """Times it ran out of memory."""
    deaths: int = 0
    """Processes that died under it."""


@dataclass(frozen=True)
class Running:
    waiting: Waiting
    placement: Placement
    since_seconds: float


class StopReason(enum.Enum):
    """Why no new trial is started any more."""

    INTERRUPTED = "interrupted"
    TERMINATED = "terminated"
    TIMEOUT = "timeout"
    FAILING = "failing"
    BROKEN = "broken"


# --- messages: all that can happen to the loop --------------------------------------------------


@dataclass(frozen=True)
class Ended:
    """A trial's execution came to its outcome."""

    outcome: Outcome


@dataclass(frozen=True)
class Released:
    """An execution is over, and its reservation was given back."""

    key: int


@dataclass(frozen=True)
class DevicesRead:
    reading: Reading


@dataclass(frozen=True)
class Signalled:
    reason: StopReason


@dataclass(frozen=True)
class Broke:
    """The study cannot be recorded any more, or our own code failed: running trials are stopped."""

    error: BaseException


@dataclass(frozen=True)
class Tick:
    """Time passed."""


Message: TypeAlias = Ended | Released | DevicesRead | Signalled | Broke | Tick


class Ports(Protocol):
    """What the loop can have done."""

    def ask(self) -> Asked | None:
        """A new trial, or None when the search space is exhausted."""

    def request_for(self, trial: Asked) -> Request: ...

    def submit(self, trial: Asked, placement: Placement) -> None:
        """Start it in the pool; its reservation is released there."""

    def tell(self, outcome: Outcome) -> None:
        """Give the study an outcome that the executor saw: finished, pruned or failed."""

    def fail(self, trial: Asked, cause: str, *, too_large: bool) -> None:
        """Record and tell a failure that was decided here; `too_large`: no device can hold it."""

    def stop_trials(self) -> None:
        """Running trials write a checkpoint at their next report and stop."""


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
    deadline_seconds: float | None = None
    pid: int | None = None
    """The process in which trials train, where all share one."""
    waiting: deque[Waiting] = field(default_factory=deque)
    running: dict[int, Running] = field(default_factory=dict)
    reading: Reading | None = None
    stop: StopReason | None = None
    error: BaseException | None = None
    last_failure: Failed | None = None
    refusal: str | None = None
    """Why no new trial is asked for now."""
    _outcomes: dict[int, Outcome] = field(default_factory=dict)
    _exhausted: bool = False
    _same_failures: int = 0

    def take_over(self, trials: Sequence[Asked]) -> None:
        """Trials of an earlier sweep that have not ended go first."""
        self.waiting.extend(Waiting(t, self.ports.request_for(t)) for t in trials)

    @property
    def done(self) -> bool:
        """Nothing runs, and nothing more will."""
        if self.running:
            return False
        return self.stop is not None or (not self.waiting and not self._wants_more())

    def handle(self, message: Message, now_seconds: float) -> None:
        """Take one message, then admit what may start. `now_seconds` is monotonic."""
        match message:
            case Ended(outcome):
                self._ended(outcome)
            case DevicesRead(reading):
                self.reading = reading
            case Signalled(reason):
                self._stop_running(reason)
            case Broke(error):
                self.error = self.error or error
                self._stop_running(StopReason.BROKEN)
            case Released(key):
                self._released(key)
            case Tick():
                pass
        if self.deadline_seconds is not None and now_seconds >= self.deadline_seconds:
            self.stop = self.stop or StopReason.TIMEOUT
        self._admit(now_seconds)

    # --- outcomes ---

    def _ended(self, outcome: Outcome) -> None:
        self._outcomes[outcome.trial] = outcome
        if isinstance(outcome, OutOfMemory | Interrupted):
            return  # decided when its reservation is back: it may ask for another
        self.ports.tell(outcome)
        if isinstance(outcome, Failed):
            self._count_failure(outcome)
        else:
            self._same_failures = 0

    def _released(self, key: int) -> None:
        """The execution is over and its reservation back; without an outcome it broke."""
        was = self.running.pop(key)
        match self._outcomes.pop(key, None):
            case OutOfMemory() as outcome:
                self._retry_larger(was, outcome)
            case Interrupted(by_worker_death=True) as outcome:
                self._retry_after_death(was, outcome)
            case _:
                pass  # final, or kept by the study for the next sweep

    def _retry_larger(self, was: Running, outcome: OutOfMemory) -> None:
        """1.5 times the reservation, then alone on the largest device, then never."""
        waiting = was.waiting
        if waiting.request.alone:
            cause = f"does not fit, even alone on {was.placement.device_name}: {outcome.cause}"
            self.ports.fail(waiting.trial, cause, too_large=True)
            return
        request = Request(int(was.placement.reservation_bytes * OOM_GROWTH))
        if waiting.attempts or was.placement.exclusive or not request.memory_bytes:
            request = Request(None, alone=True)
        self.waiting.appendleft(replace(waiting, request=request, attempts=waiting.attempts + 1))

    def _retry_after_death(self, was: Running, outcome: Interrupted) -> None:
        deaths = was.waiting.deaths + 1
        if deaths < MAX_DEATHS:
            self.waiting.appendleft(replace(was.waiting, deaths=deaths))
            return
        cause = f"{outcome.cause} ({deaths} times)"
        self.ports.fail(was.waiting.trial, cause, too_large=False)
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

    # --- admission ---

    def _wants_more(self) -> bool:
        return not self._exhausted and self.n_asked < self.n_trials

    def _admit(self, now_seconds: float) -> None:
        while self.stop is None and (self.waiting or self._ask(now_seconds)):
            head = self.waiting[0]
            decision = self._place(head.request, now_seconds)
            if isinstance(decision, Refusal):
                if not decision.never:
                    self.waiting[0] = replace(head, reason=decision.reason)
                    return
                self._never_fits(head, decision)
                continue
            self.waiting.popleft()
            self.running[head.trial.number] = Running(head, decision, now_seconds)
            self.ledger.reserve(head.trial.number, decision, self.pid)
            self.ports.submit(head.trial, decision)

    def _ask(self, now_seconds: float) -> bool:
        """Ask when a place is free, as late as can be: the sampler then knows the most."""
        self.refusal = None
        if not self._wants_more():
            return False
        smallest = self._place(Request(0), now_seconds)
        if isinstance(smallest, Refusal):
            self.refusal = smallest.reason
            return False
        asked = self.ports.ask()
        if asked is None:
            self._exhausted = True
            return False
        self.n_asked += 1
        self.waiting.append(Waiting(asked, self.ports.request_for(asked)))
        return True

    def _place(self, request: Request, now_seconds: float) -> Placement | Refusal:
        return place(
            request,
            self.reading,
            self.ledger.view(),
            self.limits,
            now_seconds=now_seconds,
            pid=self.pid,
        )

    def _never_fits(self, head: Waiting, refusal: Refusal) -> None:
        """No device is large enough. The sampler learns it; no device time is spent."""
        self.waiting.popleft()
        if head.attempts:  # it grew past the largest device: one try alone there
            self.waiting.appendleft(replace(head, request=Request(None, alone=True)))
        else:
            self.ports.fail(head.trial, refusal.reason, too_large=True)
