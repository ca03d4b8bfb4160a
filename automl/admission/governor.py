"""How many trials share one device: found, not set. Pure; for the main thread; no clock inside.

A device's figure is the sum of the paces of its trials, each relative to its own best. One more
trial joins once the paces of those that share it are known, and stays if the sum rose by 5 %; else
there is one less, for good. A newcomer's own best is not known: it counts as slowed as much as
those that it joined, so the sum rises from n trials to n + 1 by

    (n + 1) / n · mean of (pace among n + 1 / pace among n), over trials that were seen in both.

Where no pace is known, because trials end too soon, take no steps for long, or tell none, nothing
is held back for long: the number doubles. Devices of one model learn from each other.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from automl.admission.accounting.account import context_bytes
from automl.devices.device_reading import DeviceSnapshot
from automl.trial import DeviceId

CHEAP = 10
"""A context is cheap where a device has room for so many."""
PAYS = 1.05
"""The sum of paces, from which on one more pays."""
FELL = 0.98
"""Below it one more has made all slower beyond doubt: maybe fewer than to begin with are faster."""
WINDOW_SECONDS = 5.0
"""A pace is that over so long at least."""
WINDOW_STEPS = 10
"""And over so many steps, of every other trial at least."""
PATIENCE_SECONDS = 60.0
"""So long a number is held while no pace can be told."""
_ORDINALS = ("second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_KEPT_RATIOS = 16
"""Of each number the newest ones count: what trials are like changes during a sweep."""


@dataclass(frozen=True)
class SharingLimit:
    """How many trials share a device at most, for now."""

    n_most: int
    why: str
    """In words, after `2 trials share GPU-8f…`."""


@dataclass(frozen=True)
class SharedDevice:
    """A device as the governor sees it at one moment."""

    device: DeviceId
    model: str
    n_start: int
    """To begin with."""
    n_most: int
    """Never more."""
    n_steps: Mapping[int, int | None]
    """Steps so far of each execution there, by its key; None: it does not tell any yet."""


def shared_device(
    device: DeviceSnapshot, n_most: int, n_steps: Mapping[int, int | None]
) -> SharedDevice:
    """Two to begin with where contexts are a small part of the device; all cores of the host."""
    here = device.address
    n_start = 2 if CHEAP * context_bytes(here) <= device.total_bytes else 1
    model = f"host of {here.node}" if here.on_host else device.name
    return SharedDevice(here, model, n_most if here.on_host else n_start, n_most, n_steps)


class SharingGovernor:
    """Finds how many trials share a device."""

    def __init__(self) -> None:
        self._models: dict[str, _PaceModel] = {}
        self._devices: dict[DeviceId, _GovernedDevice] = {}

    def observe(self, seen: SharedDevice, now_seconds: float) -> None:
        """Take what runs on a device now, and how far it is."""
        model = self._models.setdefault(seen.model, _PaceModel(seen.n_start, _pays(seen)))
        model.begin = max(model.begin, seen.n_start)  # a machine may come to have more places
        device = self._devices.setdefault(seen.device, _GovernedDevice(model))
        device.n_most = seen.n_most
        device.observe(seen.n_steps, now_seconds)

    def limit(self, device: DeviceId) -> SharingLimit | None:
        """None: not less than ever."""
        known = self._devices.get(device)
        return None if known is None else known.limit()


def _pays(seen: SharedDevice) -> float:
    """On the host all cores are used to begin with, each of which is a small part of them: fewer
    trials only where these are faster together."""
    return 1.0 if seen.device.on_host else PAYS


@dataclass
class _PaceModel:
    """What is known of devices that are alike."""

    begin: int
    pays: float
    blind: int = 0
    """The number that was reached while no pace was known."""
    _ratios: dict[int, dict[int, float]] = field(default_factory=lambda: defaultdict(dict))
    """By number: of trials that were seen among so many and among one more, the pace there to the
    pace here."""

    def add(self, n: int, trial: int, ratio: float) -> None:
        ratios = self._ratios[n]
        ratios.pop(trial, None)
        ratios[trial] = ratio
        if len(ratios) > _KEPT_RATIOS:
            del ratios[next(iter(ratios))]

    def rise(self, n: int) -> float | None:
        """Of the sum of paces from n trials to one more; None: not known."""
        ratios = self._ratios.get(n)
        return (n + 1) / n * statistics.fmean(ratios.values()) if ratios else None

    def best(self, n_most: int) -> int:
        """As many as are known to pay; to begin with, and blindly, nobody has to know."""
        n = min(max(self.begin, self.blind), n_most)
        while n < n_most and (self.rise(n) or 0) >= self.pays:
            n += 1
        while n > 1 and (self.rise(n - 1) or math.inf) < self.pays:
            n -= 1
        return n

    def doubts(self, n: int, n_most: int) -> bool:
        """Whether one less may be better than n, though nobody has seen it."""
        if n == 1 or self.rise(n - 1) is not None:
            return False
        above = self.rise(n)
        fell = above is not None and above < FELL
        return fell or n == n_most or n > self.begin


@dataclass
class _GovernedDevice:
    """What runs on one."""

    model: _PaceModel
    n_most: int = 1
    _first: dict[int, int] = field(default_factory=dict)
    """Steps of each execution when it was first seen."""
    _now: dict[int, int | None] = field(default_factory=dict)
    _at: dict[int, int] = field(default_factory=dict)
    """As the window opened; empty: it has not."""
    _opened_seconds: float = -math.inf
    _since_seconds: float = -math.inf
    """When what runs last changed, or patience was lost."""
    _is_overdue: bool = False
    """Paces have been awaited for too long."""
    _paces: dict[int, dict[int, float]] = field(default_factory=dict)
    """Of each that runs, by the number that shared the device."""
    _is_paced: bool = False
    """Of those that run now the paces are known."""
    _n_unpaced: int = 0
    """Trials that ended before their pace was known, since the last that was."""

    def observe(self, n_steps: Mapping[int, int | None], now_seconds: float) -> None:
        if n_steps.keys() != self._now.keys():
            self._changed(n_steps, now_seconds)
        self._now = dict(n_steps)
        for trial, n in n_steps.items():
            if n is not None:
                self._first.setdefault(trial, n)
        if not n_steps:
            return
        if not self._at:
            self._open(n_steps, now_seconds)
        else:
            self._measure(now_seconds)
        self._lose_patience(now_seconds)

    def limit(self) -> SharingLimit | None:
        best = self.model.best(self.n_most)
        if self._tries_more(best):
            best += 1
        elif self._tries_fewer(best):
            best -= 1
        return None if best >= self.n_most else SharingLimit(best, self._why(best))

    def _tries_more(self, best: int) -> bool:
        is_known = best == self.n_most or self.model.rise(best) is not None
        return self._is_paced and len(self._now) == best and not is_known

    def _tries_fewer(self, best: int) -> bool:
        """As soon as one has ended, for as long as one is there whose pace before is known."""
        if not self.model.doubts(best, self.n_most) or self._is_overdue:
            return False
        n = len(self._now)
        were_paced = any(best in paces for paces in self._paces.values())
        return (n == best and self._is_paced) or (n == best - 1 and were_paced)

    def _why(self, n: int) -> str:
        rise = self.model.rise(n)
        if rise is None:
            return "their pace is measured before another joins"
        more = f"a {_ORDINALS[n - 1]}" if n <= len(_ORDINALS) else "one more"
        percent = round(100 * (rise - 1))
        if percent > 0:
            return f"{more} made them only {percent} % faster together"
        return f"{more} made them {-percent} % slower together"

    def _changed(self, n_steps: Iterable[int], now_seconds: float) -> None:
        """Others run than before."""
        for trial in self._now.keys() - set(n_steps):
            self._first.pop(trial, None)
            self._n_unpaced += self._paces.pop(trial, None) is None
        self._at, self._is_paced = {}, False
        self._since_seconds, self._is_overdue = now_seconds, False

    def _open(self, n_steps: Mapping[int, int | None], now_seconds: float) -> None:
        """Paces are taken from when every one has begun to step."""
        if all(n is not None and n > self._first[trial] for trial, n in n_steps.items()):
            self._at = {trial: n for trial, n in n_steps.items() if n is not None}
            self._opened_seconds = now_seconds

    def _measure(self, now_seconds: float) -> None:
        """Paces of all since the window opened: the longer, the better they are known."""
        seconds = now_seconds - self._opened_seconds
        steps = {trial: (n or 0) - self._at[trial] for trial, n in self._now.items()}
        told = {trial for trial, n in steps.items() if n >= WINDOW_STEPS}
        if seconds < WINDOW_SECONDS or 2 * len(told) < len(steps):
            return
        self._is_paced, self._n_unpaced = True, 0
        n = len(steps)
        for trial in told:
            paces = self._paces.setdefault(trial, {})
            paces[n] = steps[trial] / seconds
            for fewer in (n - 1, n):
                if fewer in paces and fewer + 1 in paces:
                    self.model.add(fewer, trial, paces[fewer + 1] / paces[fewer])

    def _lose_patience(self, now_seconds: float) -> None:
        """Whoever tells no pace is not waited for."""
        if self._is_paced:
            return
        best = self.model.best(self.n_most)
        too_long = now_seconds - self._since_seconds >= PATIENCE_SECONDS
        self._is_overdue |= too_long
        if self.model.rise(best) is not None:
            return
        if (too_long and len(self._now) >= best) or self._n_unpaced >= best:
            self.model.blind = max(self.model.blind, 2 * best)
            self._n_unpaced, self._since_seconds = 0, now_seconds
