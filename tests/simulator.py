"""A world in virtual time around the main loop's decisions: devices, trials that take memory late,
strangers, and readings. Only what lies outside our process is made up here.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from automl.admission.ledger import Ledger
from automl.admission.policy import Limits, Request, account
from automl.devices.device import DeviceSnapshot, Reading
from automl.loop import Loop
from automl.messages import Asked, DevicesRead, Ended, Kind, Message, Released, Tick
from automl.trial import Failed, Finished, Interrupted, Outcome, OutOfMemory, Placement

PID = 1


@dataclass(frozen=True)
class Plan:
    """How a trial will behave."""

    request_bytes: int | None
    peak_bytes: int
    """Memory it really takes, from `appears_after` on."""
    appears_after: float = 0.5
    """Virtual seconds from its start to its first backward pass."""
    seconds: float = 3.0
    ends: str = "finished"
    """finished, failed, dies (its process does, once) or dies twice."""
    kind: Kind | None = None


@dataclass
class Stranger:
    """Another tenant of a device, who comes and goes."""

    uuid: str
    size_bytes: int
    from_seconds: float = 0.0
    until_seconds: float = math.inf


@dataclass
class World:
    """Real memory of real devices, and the loop's ports into it."""

    totals: dict[str, int]
    plans: Sequence[Plan]
    strangers: Sequence[Stranger] = ()
    limits: Limits = field(default_factory=lambda: Limits(4, 0, 5.0))
    ledger: Ledger = field(default_factory=Ledger)
    reading_seconds: float = 0.7
    blind: bool = False
    """Mutation: readings always show empty devices, as if NVML were never asked."""
    silent_between: tuple[float, float] = (0.0, 0.0)
    """NVML hangs: no reading arrives."""

    def __post_init__(self) -> None:
        self.now = 0.0
        self.running: dict[int, tuple[Plan, Placement, float]] = {}
        self.told: dict[int, Outcome] = {}
        self.started: list[int] = []
        self.attempts: dict[int, int] = {}
        self.packs: dict[int, list[int]] = {}
        """Trials of each execution, by its key, in the order in which they were given to it."""
        self.most_pending: int | None = None
        self._order = itertools.count()
        self._open: dict[int, tuple[Placement, int]] = {}
        self._key_of: dict[int, int] = {}
        self._heap: list[tuple[float, int, Message]] = []
        self._numbers = iter(range(len(self.plans)))
        self.loop = Loop(self, self.ledger, self.limits, len(self.plans), 0, pid=PID)

    # --- ports ---

    def ask(self) -> Asked | None:
        return Asked(next(self._numbers), {})

    def request_for(self, trial: Asked) -> Request:
        return Request(self.plans[trial.number].request_bytes)

    def n_may_pend(self) -> int | None:
        return self.most_pending

    def kind_of(self, trial: Asked) -> Kind | None:
        return self.plans[trial.number].kind

    def submit(self, trials: Sequence[Asked], placement: Placement, n_lanes: int) -> None:
        assert len(trials) == n_lanes
        self._check_invariant(placement)
        key = trials[0].number
        self.packs[key] = []
        self._open[key] = (placement, n_lanes)
        for trial in trials:
            self.feed(key, trial)
        if n_lanes > 1 and any(self.plans[t.number].ends.startswith("dies") for t in trials):
            self._dissolve(key)

    def feed(self, key: int, trial: Asked) -> None:
        plan, (placement, n_lanes) = self.plans[trial.number], self._open[key]
        share = replace(placement, reservation_bytes=placement.reservation_bytes // n_lanes)
        self.packs[key].append(trial.number)
        self._key_of[trial.number] = key
        self.attempts[trial.number] = self.attempts.get(trial.number, 0) + 1
        self.started.append(trial.number)
        self.running[trial.number] = (plan, share, self.now)
        self._at(plan.seconds, Ended(self._outcome(trial.number, plan, share)))

    def _dissolve(self, key: int) -> None:
        """The pack's process dies: all its trials are to go on alone."""
        self._heap = [
            (at, order, replace(m, outcome=self._dissolved(m.outcome.trial)))
            if isinstance(m, Ended) and m.outcome.trial in self.packs[key]
            else (at, order, m)
            for at, order, m in self._heap
        ]
        for number in self.packs[key]:
            self.attempts[number] -= 1

    def _dissolved(self, number: int) -> Interrupted:
        return Interrupted(number, self.now, "its pack died", pack_dissolved=True)

    def tell(self, outcome: Outcome) -> None:
        assert outcome.trial not in self.told, "told twice"
        self.told[outcome.trial] = outcome

    def fail(self, trial: Asked, cause: str, *, too_large: bool) -> None:
        self.tell(Failed(trial.number, self.now, cause))

    def stop_trials(self) -> None:
        pass

    # --- the world ---

    def run(self) -> None:
        """Until the loop is done, then check that the books are straight."""
        self._at(0.0, DevicesRead(self._reading()))
        next_reading = self.reading_seconds
        for _ in range(3_000):
            if self.loop.done:
                break
            if not self._heap or self._heap[0][0] >= next_reading:
                self.now = next_reading
                next_reading += self.reading_seconds
                self._handle(DevicesRead(self._reading()) if self._nvml_answers else Tick())
                continue
            self.now, _, message = heapq.heappop(self._heap)
            self._handle(message)
        assert self.loop.done, "the sweep never ends"
        assert self.ledger.view().reservations == (), "a reservation was not given back"
        assert sorted(self.told) == list(range(len(self.plans))), "a trial got lost"

    @property
    def _nvml_answers(self) -> bool:
        begin, end = self.silent_between
        return not begin <= self.now < end

    def _handle(self, message: Message) -> None:
        if isinstance(message, Ended):
            self._lane_ends(message.outcome.trial)
        if isinstance(message, Released):
            self.ledger.context_up(message.key, self.now)
            self.ledger.release(message.key)
        self.loop.handle(message, self.now)
        self._check_memory()

    def _lane_ends(self, number: int) -> None:
        """The last trial of an execution gives its reservation back a moment later."""
        self.running.pop(number)
        key = self._key_of.pop(number)
        if key not in self._key_of.values():
            self._at(0.1, Released(key))

    def _at(self, after: float, message: Message) -> None:
        heapq.heappush(self._heap, (self.now + after, next(self._order), message))

    def _outcome(self, number: int, plan: Plan, placement: Placement) -> Outcome:
        end = self.now + plan.seconds
        if plan.peak_bytes > self._free_for(number, placement):
            return OutOfMemory(number, end, "CUDA out of memory")
        if plan.ends == "failed":
            return Failed(number, end, f"ValueError: {number}")
        if plan.ends == "dies twice" or (plan.ends == "dies" and self.attempts[number] == 1):
            return Interrupted(number, end, "killed by SIGSEGV", by_worker_death=True)
        return Finished(number, end, 0.0)

    def _free_for(self, number: int, placement: Placement) -> int:
        """What the trial can get: everything alone, else what was reserved for it."""
        if placement.exclusive:
            return self.totals[placement.device_uuid] - self._strangers(placement.device_uuid)
        return placement.reservation_bytes

    def _strangers(self, uuid: str) -> int:
        return sum(
            s.size_bytes
            for s in self.strangers
            if s.uuid == uuid and s.from_seconds <= self.now < s.until_seconds
        )

    def _own(self, uuid: str) -> int:
        return sum(
            min(plan.peak_bytes, self._free_for(number, placement))
            for number, (plan, placement, since) in self.running.items()
            if placement.device_uuid == uuid and self.now - since >= plan.appears_after
        )

    def _reading(self) -> Reading:
        devices, reserved = [], {}
        for uuid, total in self.totals.items():
            used = 0 if self.blind else self._own(uuid) + self._strangers(uuid)
            devices.append(DeviceSnapshot(uuid, "sim", total, max(0, total - used)))
            reserved[uuid, PID] = 0 if self.blind else self._own(uuid)
        return Reading(self.now, self.now, tuple(devices), reserved, reserved)

    def _check_invariant(self, placement: Placement) -> None:
        """Σ hold + foreign + pending contexts + headroom ≤ total, with the new trial in it."""
        reading = self.loop.reading
        assert reading is not None
        device = next(d for d in reading.devices if d.uuid == placement.device_uuid)
        a = account(device, reading, self.ledger.view(), self.limits.headroom_bytes)
        assert a.room_bytes >= 0, f"over-committed by {-a.room_bytes}"
        assert a.n_trials <= self.limits.max_concurrent_trials

    def _check_memory(self) -> None:
        """The real memory of no device is ever exceeded (unless a stranger grew into it)."""
        if any(s.from_seconds > 0 for s in self.strangers):
            return
        for uuid, total in self.totals.items():
            assert self._own(uuid) + self._strangers(uuid) <= total, "out of memory"
