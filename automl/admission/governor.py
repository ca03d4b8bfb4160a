"""Finds how many trials may share one device. Pure; for the main thread; no clock inside.

A device's figure is the sum of the paces of its trials, each relative to the trial's own best. One
more trial joins once the paces of the trials that share the device are known. It stays if the sum
rose by 5 %; else there is one less, for good. A newcomer's own best is not known: it counts as
slowed as much as the trials that it joined, so the sum rises from n trials to n + 1 by

    (n + 1) / n · mean of (pace among n + 1 / pace among n), over trials that were seen in both.

Where no pace is known, because trials end too soon, take no steps for long, or report none, no
trial is held back for long: the number doubles. Devices of one model learn from each other.
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
"""A CUDA context is cheap where the device has room for this many."""
PAYS = 1.05
"""Ratio by which the sum of paces must rise for one more trial to pay."""
FELL = 0.98
"""Ratio below which one more trial has made all slower beyond doubt. Then even fewer trials than at
the start may be faster."""
WINDOW_SECONDS = 5.0
"""Least number of seconds over which a pace is measured."""
WINDOW_STEPS = 10
"""Least number of steps over which a pace is measured, in at least every other trial."""
PATIENCE_SECONDS = 60.0
"""How long a number of trials is held while no pace can be measured."""
_ORDINALS = ("second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_KEPT_RATIOS = 16
"""Number of newest ratios that count for each number of trials, since trials change during a
sweep."""


@dataclass(frozen=True)
class SharingLimit:
    """The most trials that share a device for now, with the reason."""

    n_most: int
    why: str
    """The reason in words that follow `2 trials share GPU-8f…`."""


@dataclass(frozen=True)
class SharedDevice:
    """A device as the governor sees it at one moment."""

    device: DeviceId
    model: str
    n_start: int
    """Number of trials to start with."""
    n_most: int
    """Number of trials that is never exceeded."""
    n_steps: Mapping[int, int | None]
    """Steps so far of each execution there, by its key; None: none was reported yet."""


def shared_device(
    device: DeviceSnapshot, n_most: int, n_steps: Mapping[int, int | None]
) -> SharedDevice:
    """Return the device as the governor sees it.

    A GPU starts with two trials where contexts are a small part of it, else with one; a host starts
    with all its cores.
    """
    here = device.address
    n_start = 2 if CHEAP * context_bytes(here) <= device.total_bytes else 1
    model = f"host of {here.node}" if here.on_host else device.name
    return SharedDevice(here, model, n_most if here.on_host else n_start, n_most, n_steps)


class SharingGovernor:
    """Finds how many trials share a device, from the steps that they take."""

    def __init__(self) -> None:
        self._models: dict[str, _PaceModel] = {}
        self._devices: dict[DeviceId, _GovernedDevice] = {}

    def observe(self, shared: SharedDevice, now_seconds: float) -> None:
        """Take what runs on a device now, and how many steps it has taken."""
        model = self._models.setdefault(shared.model, _PaceModel(shared.n_start, _pays(shared)))
        model.n_start = max(model.n_start, shared.n_start)  # a machine may get more places
        device = self._devices.setdefault(shared.device, _GovernedDevice(model))
        device.n_most = shared.n_most
        device.observe(shared.n_steps, now_seconds)

    def limit(self, device: DeviceId) -> SharingLimit | None:
        """Return the limit of a device; None: it takes as many trials as ever."""
        known = self._devices.get(device)
        return None if known is None else known.limit()


def _pays(shared: SharedDevice) -> float:
    """Return the rise from which on one more trial pays.

    A host starts with all its cores, each of which is a small part of it: it goes down to fewer
    trials only if these are faster together.
    """
    return 1.0 if shared.device.on_host else PAYS


@dataclass
class _PaceModel:
    """What is known of devices of one model."""

    n_start: int
    pays: float
    n_blind: int = 0
    """Number of trials that was reached while no pace was known."""
    _ratios: dict[int, dict[int, float]] = field(default_factory=lambda: defaultdict(dict))
    """Ratios of paces by number n of trials, then by trial: the pace among n + 1 over the pace
    among n."""

    def add(self, n: int, trial: int, ratio: float) -> None:
        ratios = self._ratios[n]
        ratios.pop(trial, None)
        ratios[trial] = ratio
        if len(ratios) > _KEPT_RATIOS:
            del ratios[next(iter(ratios))]

    def rise(self, n: int) -> float | None:
        """Return the ratio of the sums of paces, n + 1 trials to n; None: not known."""
        ratios = self._ratios.get(n)
        return (n + 1) / n * statistics.fmean(ratios.values()) if ratios else None

    def best(self, n_most: int) -> int:
        """Return the largest number of trials that is known to pay.

        Numbers up to the start, or reached blindly, need no such knowledge.
        """
        n = min(max(self.n_start, self.n_blind), n_most)
        while n < n_most and (self.rise(n) or 0) >= self.pays:
            n += 1
        while n > 1 and (self.rise(n - 1) or math.inf) < self.pays:
            n -= 1
        return n

    def doubts(self, n: int, n_most: int) -> bool:
        """Return whether one trial less may be better than n, though this was never measured."""
        if n == 1 or self.rise(n - 1) is not None:
            return False
        above = self.rise(n)
        fell = above is not None and above < FELL
        return fell or n == n_most or n > self.n_start


@dataclass
class _GovernedDevice:
    """The trials that run on one device, and their paces."""

    model: _PaceModel
    n_most: int = 1
    _first_steps: dict[int, int] = field(default_factory=dict)
    """Steps of each execution when it was first seen."""
    _steps_now: dict[int, int | None] = field(default_factory=dict)
    _steps_at_opening: dict[int, int] = field(default_factory=dict)
    """Steps of each execution when the window opened; empty: it has not opened."""
    _opened_seconds: float = -math.inf
    _since_seconds: float = -math.inf
    """Time at which the set of trials last changed, or patience was lost."""
    _is_overdue: bool = False
    """Whether paces have been awaited for too long."""
    _paces: dict[int, dict[int, float]] = field(default_factory=dict)
    """Paces of each running trial, by the number of trials that shared the device."""
    _is_paced: bool = False
    """Whether the paces of the trials that run now are known."""
    _n_unpaced: int = 0
    """Number of trials that ended before their pace was known, since the last known pace."""

    def observe(self, n_steps: Mapping[int, int | None], now_seconds: float) -> None:
        if n_steps.keys() != self._steps_now.keys():
            self._changed(n_steps, now_seconds)
        self._steps_now = dict(n_steps)
        for trial, n in n_steps.items():
            if n is not None:
                self._first_steps.setdefault(trial, n)
        if not n_steps:
            return
        if not self._steps_at_opening:
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
        return self._is_paced and len(self._steps_now) == best and not is_known

    def _tries_fewer(self, best: int) -> bool:
        """Return whether to try one trial less.

        The try begins as soon as one trial has ended, and lasts while a trial is there whose
        earlier pace is known.
        """
        if not self.model.doubts(best, self.n_most) or self._is_overdue:
            return False
        n = len(self._steps_now)
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
        """Start over, since other trials run than before."""
        for trial in self._steps_now.keys() - set(n_steps):
            self._first_steps.pop(trial, None)
            self._n_unpaced += self._paces.pop(trial, None) is None
        self._steps_at_opening, self._is_paced = {}, False
        self._since_seconds, self._is_overdue = now_seconds, False

    def _open(self, n_steps: Mapping[int, int | None], now_seconds: float) -> None:
        """Open the window once every trial has begun to step."""
        if all(n is not None and n > self._first_steps[trial] for trial, n in n_steps.items()):
            self._steps_at_opening = {trial: n for trial, n in n_steps.items() if n is not None}
            self._opened_seconds = now_seconds

    def _measure(self, now_seconds: float) -> None:
        """Measure the paces of all trials since the window opened: the longer, the more
        precisely."""
        seconds = now_seconds - self._opened_seconds
        steps = {
            trial: (n or 0) - self._steps_at_opening[trial] for trial, n in self._steps_now.items()
        }
        paced = {trial for trial, n in steps.items() if n >= WINDOW_STEPS}
        if seconds < WINDOW_SECONDS or 2 * len(paced) < len(steps):
            return
        self._is_paced, self._n_unpaced = True, 0
        n = len(steps)
        for trial in paced:
            paces = self._paces.setdefault(trial, {})
            paces[n] = steps[trial] / seconds
            for fewer in (n - 1, n):
                if fewer in paces and fewer + 1 in paces:
                    self.model.add(fewer, trial, paces[fewer + 1] / paces[fewer])

    def _lose_patience(self, now_seconds: float) -> None:
        """Stop waiting for trials that report no pace."""
        if self._is_paced:
            return
        best = self.model.best(self.n_most)
        too_long = now_seconds - self._since_seconds >= PATIENCE_SECONDS
        self._is_overdue |= too_long
        if self.model.rise(best) is not None:
            return
        if (too_long and len(self._steps_now) >= best) or self._n_unpaced >= best:
            self.model.n_blind = max(self.model.n_blind, 2 * best)
            self._n_unpaced, self._since_seconds = 0, now_seconds
