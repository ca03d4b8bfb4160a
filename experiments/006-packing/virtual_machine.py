"""Devices in virtual time: trials whose memory appears late, contexts and caches that stay with
idle workers, strangers that breathe. What decides over them is another's part."""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

from worlds import CONTEXT_BYTES, GIB, Setting, Trial

from automl.trial import DeviceId, ProcessId

APPEARS_SECONDS = 5.0
"""From a trial's start until its memory is taken."""
RAN_OUT_SECONDS = 30.0
"""What running out costs besides: start-up and lost epochs."""
_CACHE_SHARE, _CACHE_BYTES = 0.05, GIB // 4
"""Of its trial's peak, what an idle worker keeps at most until it is used again."""


@dataclass(eq=False)
class OnDevice:
    """A trial that runs."""

    left_seconds: float
    process: ProcessId
    held_bytes: int = 0


class Machine:
    """Devices and what is on them."""

    def __init__(self, setting: Setting, trials: Sequence[Trial], seed: int) -> None:
        self.setting, self.trials, self.totals = setting, trials, setting.totals
        self.now, self.n_ran_out, self.n_started = 0.0, 0, 0
        self.on: dict[DeviceId, dict[int, OnDevice]] = {d: {} for d in self.totals}
        self.kept: dict[DeviceId, dict[ProcessId, int]] = {d: {} for d in self.totals}
        """Idle workers, and the bytes of their caches."""
        self.foreign: dict[DeviceId, int] = dict.fromkeys(self.totals, 0)
        self.held_area = 0.0
        self._since: dict[DeviceId, float] = dict.fromkeys(self.totals, 0.0)
        self._version: dict[DeviceId, int] = defaultdict(int)
        self._pids, self._order = itertools.count(100), itertools.count()
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        if setting.strangers:
            self._strangers(Random(seed))

    def at(self, after: float, happens: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (self.now + after, next(self._order), happens))

    def step(self) -> None:
        self.now, _, happens = heapq.heappop(self._heap)
        happens()

    def used_bytes(self, device: DeviceId) -> int:
        here, kept = self.on[device], self.kept[device]
        contexts = CONTEXT_BYTES * (len(here) + len(kept))
        held = sum(t.held_bytes for t in here.values()) + sum(kept.values())
        return self.foreign[device] + contexts + held

    def begin(self, number: int, device: DeviceId, again: float = 0.0) -> ProcessId:
        self._advance(device)
        idle = self.kept[device]
        process = idle.popitem()[0] if idle else ProcessId(device.node, next(self._pids))
        here = OnDevice(self.trials[number].seconds + again, process)
        self.on[device][number] = here
        self.n_started += 1
        self._plan(device)
        self.at(APPEARS_SECONDS, partial(self._appear, number, device, here))
        return process

    def end(self, number: int, device: DeviceId) -> None:
        self._advance(device)
        trial = self.on[device].pop(number)
        cached = min(int(_CACHE_SHARE * trial.held_bytes), _CACHE_BYTES)
        self.kept[device][trial.process] = cached if self.setting.caches_stay else 0
        self._plan(device)

    # --- for whoever decides ---

    def ended(self, number: int, device: DeviceId) -> None:
        raise NotImplementedError

    def ran_out(self, number: int, device: DeviceId) -> None:
        raise NotImplementedError

    def appeared(self, number: int, device: DeviceId) -> None:
        """Its memory is taken."""

    def cap_bytes(self, number: int, device: DeviceId) -> int:
        """The most that its worker lets it take."""
        return self.totals[device]

    def breathed(self) -> None:
        """A stranger came or left."""

    # --- what happens ---

    def _speed(self, device: DeviceId) -> float:
        n, most = len(self.on[device]), self.setting.n_at_full_speed
        surplus = max(0, n - most)
        shared = min(1.0, most / max(1, n))
        return shared * max(0.1, 1 - self.setting.sharing_costs * surplus)

    def _advance(self, device: DeviceId) -> None:
        if self._since[device] == self.now:
            return
        seconds, speed = self.now - self._since[device], self._speed(device)
        for trial in self.on[device].values():
            trial.left_seconds -= seconds * speed
            self.held_area += seconds * trial.held_bytes
        self._since[device] = self.now

    def _plan(self, device: DeviceId) -> None:
        self._version[device] += 1
        if left := [t.left_seconds for t in self.on[device].values()]:
            after = max(0.0, min(left)) / self._speed(device) + 1e-9
            self.at(after, partial(self._next_end, device, self._version[device]))

    def _next_end(self, device: DeviceId, version: int) -> None:
        if version != self._version[device]:
            return
        self._advance(device)
        for number in [n for n, t in self.on[device].items() if t.left_seconds <= 1e-6]:
            self.ended(number, device)

    def _appear(self, number: int, device: DeviceId, here: OnDevice) -> None:
        if self.on[device].get(number) is not here:
            return
        self._advance(device)
        peak = self.trials[number].peak_bytes
        free = self.totals[device] - self.used_bytes(device)
        if peak > min(free, self.cap_bytes(number, device)):
            self.n_ran_out += 1
            self.ran_out(number, device)
        else:
            here.held_bytes = peak
            self.appeared(number, device)

    def _strangers(self, random: Random) -> None:
        """On every fourth device they take 10 to 50 % for 25 minutes or so, as much as is free."""
        for device in [*self.totals][::4]:
            begin = 0.0
            while begin < 40_000:
                begin += random.expovariate(1 / 2000)
                size = int(random.uniform(0.1, 0.5) * self.totals[device])
                self.at(begin, partial(self._come, device, size, random.expovariate(1 / 1500)))

    def _come(self, device: DeviceId, size: int, seconds: float) -> None:
        size = max(0, min(size, self.totals[device] - self.used_bytes(device)))
        self.foreign[device] += size
        self.at(seconds, partial(self._leave, device, size))
        self.breathed()

    def _leave(self, device: DeviceId, size: int) -> None:
        self.foreign[device] -= size
        self.breathed()
