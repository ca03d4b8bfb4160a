"""How full do GPUs become, and what does backfill add? See README.md.

The real loop, policy, ledger and requests decide; devices, trials and the clock are simulated:
memory that appears late, contexts that stay with idle workers, strangers that come and go.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random

from automl.admission.caps import Caps
from automl.admission.footprint import Structure
from automl.admission.ledger import Ledger
from automl.admission.policy import Idle, Limits
from automl.admission.requests import Requests
from automl.devices.device import DeviceProcess, DeviceSnapshot, Elsewhere, Reading
from automl.devices.promises import Promise
from automl.running.durations import Durations
from automl.running.loop import Loop
from automl.running.messages import (
    Asked,
    DevicesRead,
    DoesNotFit,
    Ended,
    Measured,
    Message,
    Released,
    Running,
    Surveyed,
    Waiting,
)
from automl.trial import (
    LOCAL_NODE,
    DeviceId,
    Finished,
    MemoryPeak,
    Outcome,
    OutOfMemory,
    Params,
    Placement,
    ProcessId,
    Request,
    RequestSource,
)

GIB = 1024**3
CONTEXT_BYTES = GIB // 2
APPEARS_SECONDS = 5.0
"""From a trial's start until its memory is taken."""
RAN_OUT_SECONDS = 30.0
"""What running out costs besides: start-up and lost epochs."""
READ_SECONDS = 60.0
"""And after each end."""


@dataclass(frozen=True)
class Trial:
    peak_bytes: int
    seconds: float
    structure_bytes: int
    """What a survey says of its memory."""


@dataclass(frozen=True)
class Setting:
    n_devices: int
    gib: int
    n_trials: int
    n_at_full_speed: int
    """Trials that one GPU carries without slowing any."""
    sharing_costs: float = 0.0
    """Of all speed on a device, for each trial beyond them."""
    strangers: bool = False

    @property
    def totals(self) -> dict[DeviceId, int]:
        names = (f"GPU-{n:02}" for n in range(self.n_devices))
        return {DeviceId(LOCAL_NODE, name): self.gib * GIB for name in names}

    def trials(self, seed: int) -> list[Trial]:
        """Lognormal sizes and durations; a survey is off by a factor for all and 5 % for each."""
        random, median = Random(seed), 4.0 if self.gib == 24 else 10.0
        factor, drawn = random.uniform(0.85, 1.35), []
        for _ in range(self.n_trials):
            size = min(median * math.exp(0.9 * random.gauss(0, 1)), 0.85 * self.gib)
            peak = int(max(0.3, size) * GIB)
            seconds = max(10.0, 300 * math.exp(random.gauss(0, 1)))
            noise = math.exp(0.05 * random.gauss(0, 1))
            drawn.append(Trial(peak, seconds, int(peak / factor / noise)))
        return drawn

    def bound_seconds(self, trials: Sequence[Trial]) -> float:
        """No packing is faster: by memory, by speed, by the longest trial."""
        room = sum(total - CONTEXT_BYTES for total in self.totals.values())
        by_memory = sum(t.peak_bytes * t.seconds for t in trials) / room
        at_once = self.n_devices * self.n_at_full_speed
        by_speed = sum(t.seconds for t in trials) / at_once
        return max(by_memory, by_speed, max(t.seconds for t in trials))


@dataclass(eq=False)
class OnDevice:
    """A trial that runs."""

    left_seconds: float
    process: ProcessId
    held_bytes: int = 0


class Machine:
    """Devices and what is on them, in virtual time."""

    def __init__(self, setting: Setting, trials: Sequence[Trial], seed: int) -> None:
        self.setting, self.trials, self.totals = setting, trials, setting.totals
        self.now, self.n_ran_out, self.n_started = 0.0, 0, 0
        self.on: dict[DeviceId, dict[int, OnDevice]] = {d: {} for d in self.totals}
        self.kept: dict[DeviceId, list[ProcessId]] = {d: [] for d in self.totals}
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
        here = self.on[device]
        contexts = CONTEXT_BYTES * (len(here) + len(self.kept[device]))
        return self.foreign[device] + contexts + sum(t.held_bytes for t in here.values())

    def begin(self, number: int, device: DeviceId, again: float = 0.0) -> ProcessId:
        self._advance(device)
        idle = self.kept[device]
        process = idle.pop() if idle else ProcessId(LOCAL_NODE, next(self._pids))
        here = OnDevice(self.trials[number].seconds + again, process)
        self.on[device][number] = here
        self.n_started += 1
        self._plan(device)
        self.at(APPEARS_SECONDS, partial(self._appear, number, device, here))
        return process

    def end(self, number: int, device: DeviceId) -> None:
        self._advance(device)
        self.kept[device].append(self.on[device].pop(number).process)
        self._plan(device)

    def ended(self, number: int, device: DeviceId) -> None:
        raise NotImplementedError

    def ran_out(self, number: int, device: DeviceId) -> None:
        raise NotImplementedError

    def appeared(self, number: int, device: DeviceId) -> None:
        """Its memory is taken."""

    def _speed(self, device: DeviceId) -> float:
        n, most = len(self.on[device]), self.setting.n_at_full_speed
        surplus = max(0, n - most)
        shared = min(1.0, most / max(1, n))
        return shared * max(0.1, 1 - self.setting.sharing_costs * surplus)

    def _advance(self, device: DeviceId) -> None:
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
        if self.used_bytes(device) + peak > self.totals[device]:
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

    def _leave(self, device: DeviceId, size: int) -> None:
        self.foreign[device] -= size


class Fixed(Machine):
    """So many per GPU whatever they take; who runs out goes to the end of the line, then alone."""

    def __init__(self, setting: Setting, trials: Sequence[Trial], seed: int, k: int) -> None:
        super().__init__(setting, trials, seed)
        self._k, self._line = k, list(range(len(trials)))[::-1]
        self._again: list[int] = []
        self._n_left = len(trials)

    def run(self) -> Machine:
        self._fill()
        while self._n_left:
            self.step()
        return self

    def ended(self, number: int, device: DeviceId) -> None:
        self.end(number, device)
        self.kept[device].clear()
        self._n_left -= 1
        self._fill()

    def ran_out(self, number: int, device: DeviceId) -> None:
        self.end(number, device)
        self.kept[device].clear()
        self._again.append(number)
        self._fill()

    def _fill(self) -> None:
        while self._line:
            device = min(self.on, key=lambda d: len(self.on[d]))
            if len(self.on[device]) >= self._k:
                return
            self.begin(self._line.pop(), device)
        for device in [d for d, here in self.on.items() if not here]:
            if self._again:
                self.begin(self._again.pop(), device, again=RAN_OUT_SECONDS)


class Exact(Durations):
    """What a trial takes where nobody slows it."""

    def __init__(self, trials: Sequence[Trial]) -> None:
        super().__init__()
        self._trials = trials

    def of(self, waiting: Waiting) -> float:
        return self._trials[waiting.trial.number].seconds

    def left(self, running: Running, now_seconds: float) -> float:
        return running.since_seconds + self.of(running.waiting) - now_seconds


@dataclass(frozen=True)
class Known:
    """What is known of the trials."""

    request: str = "surveyed"
    """exact, 20 % over, surveyed (and learned), or unknown."""
    n_ahead: int = 0
    exact_durations: bool = False


class Sweep(Machine):
    """The real loop; this is its ports."""

    def __init__(self, setting: Setting, trials: Sequence[Trial], seed: int, known: Known) -> None:
        super().__init__(setting, trials, seed)
        self._known, self._n_asked = known, 0
        self._where: dict[int, DeviceId] = {}
        self._ran_out: set[int] = set()
        self.n_over_committed = self.n_failed = 0
        self.delayed_seconds: list[float] = []
        """Of each head that others may have passed: start less the time first promised."""
        self._promises: dict[int, float] = {}
        self.ledger = Ledger()
        durations = Exact(trials) if known.exact_durations else Durations(self._progress)
        self.loop = Loop(
            self,
            Requests(self._estimate, None),
            self.ledger,
            Limits(None, GIB // 4, 5.0, max_on_host=16 * setting.n_devices),
            len(trials),
            0,
            n_ahead=known.n_ahead,
            durations=durations,
        )

    def run(self) -> Machine:
        self._tick()
        while not self.loop.done:
            self.step()
        return self

    # --- ports ---

    def promise(self, promises: Sequence[Promise], begun_seconds: float) -> Elsewhere:
        return {}  # there is no other sweep

    def ask(self) -> Asked | None:
        number, self._n_asked = self._n_asked, self._n_asked + 1
        params = {"n": number}
        if self._known.request == "surveyed":
            structure = Structure((self.trials[number].structure_bytes,))
            self.loop.requests.survey(params, structure)
        return Asked(number, params)

    def n_may_pend(self) -> int | None:
        return None

    def kind_of(self, trial: Asked, *, on_host: bool) -> None:
        return None

    def submit(self, trials: Sequence[Asked], placement: Placement, n_lanes: int) -> None:
        (number,), (device,) = [t.number for t in trials], placement.devices
        if (promised := self._promises.pop(number, None)) is not None:
            self.delayed_seconds.append(max(0.0, self.now - promised))
        again = RAN_OUT_SECONDS if number in self._ran_out else 0.0
        process = self.begin(number, device, again)
        self._where[number] = device
        self.ledger.assign(number, process)
        self.ledger.context_up(number, self.now)

    def feed(self, key: int, trial: Asked) -> None:
        raise AssertionError("no packs here")

    def tell(self, outcome: Outcome) -> None:
        """It has ended."""

    def fail(self, trial: Asked, cause: str) -> None:
        self.n_failed += 1

    def too_large(self, trial: Asked, found: DoesNotFit) -> None:
        self.n_failed += 1

    def stop_trials(self) -> None:
        raise AssertionError("nobody stops it")

    def is_surveying(self, trial: Asked) -> bool:
        return False

    def surveyed(self, surveyed: Surveyed) -> None:
        raise AssertionError("nothing is surveyed here")

    def cap_memory(self, caps: Caps) -> None:
        """Trials here take what was reserved for them."""

    def n_steps(self) -> Mapping[int, int]:
        return {}

    def idle(self) -> Idle:
        return {(device,): tuple(ps) for device, ps in self.kept.items() if ps}

    def end_idle(self, devices: Collection[DeviceId]) -> None:
        for device in devices:
            self.kept[device].clear()

    # --- what is known ---

    def _estimate(self, params: Params) -> Request:
        trial = self.trials[int(str(params["n"]))]
        factor = {"exact": 1.0, "20 % over": 1.2}.get(self._known.request)
        if factor is None:
            return Request(None, RequestSource.UNKNOWN)
        return Request(int(factor * trial.peak_bytes), RequestSource.ESTIMATED)

    def _progress(self, number: int) -> float | None:
        here = self.on[self._where[number]].get(number)
        if here is None:
            return None
        self._advance(self._where[number])
        return max(0.0, 1 - here.left_seconds / self.trials[number].seconds) or None

    # --- what happens ---

    def ended(self, number: int, device: DeviceId) -> None:
        self._over(Finished(number, self.now, 0.0), device)

    def ran_out(self, number: int, device: DeviceId) -> None:
        self._ran_out.add(number)
        self._over(OutOfMemory(number, self.now, "CUDA out of memory"), device)

    def appeared(self, number: int, device: DeviceId) -> None:
        if self._known.request == "surveyed":
            peak = MemoryPeak(number, self.now, self.trials[number].peak_bytes)
            self._handle(Measured(peak))

    def _over(self, outcome: Outcome, device: DeviceId) -> None:
        self.end(outcome.trial, device)
        self._handle(Ended(outcome))
        self.ledger.release(outcome.trial, self.now)
        self._handle(Released(outcome.trial))
        self.at(0.5, self._read)

    def _tick(self) -> None:
        self._read()
        self.at(READ_SECONDS, self._tick)

    def _read(self) -> None:
        devices = tuple(
            DeviceSnapshot(
                device,
                "sim",
                total,
                max(0, total - self.used_bytes(device)),
                processes=tuple(self._tenants(device)),
            )
            for device, total in self.totals.items()
        )
        held = {
            (device, trial.process): trial.held_bytes
            for device, here in self.on.items()
            for trial in here.values()
        }
        held |= {(device, p): 0 for device, ps in self.kept.items() for p in ps}
        self._handle(DevicesRead(Reading(self.now, devices, held, held)))

    def _tenants(self, device: DeviceId) -> Iterator[DeviceProcess]:
        """As the driver shows them where it is not asked from within a container."""
        for trial in self.on[device].values():
            used = CONTEXT_BYTES + trial.held_bytes
            yield DeviceProcess(trial.process.pid, used, used)
        for process in self.kept[device]:
            yield DeviceProcess(process.pid, CONTEXT_BYTES, CONTEXT_BYTES)

    def _handle(self, message: Message) -> None:
        self.loop.handle(message, self.now)
        lookahead = self.loop._lookahead
        if self.loop.waiting and lookahead.promised and lookahead.until_seconds < math.inf:
            head = self.loop.waiting[0].trial.number
            if lookahead._head == head:
                self._promises.setdefault(head, lookahead.until_seconds)


@dataclass
class Figures:
    """Of one policy, a figure for each seed."""

    over_bound: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    full: list[float] = field(default_factory=list)
    ran_out: list[float] = field(default_factory=list)
    delayed: list[float] = field(default_factory=list)
    failed: int = 0

    def add(self, machine: Machine) -> None:
        trials = machine.trials
        self.seconds.append(machine.now)
        self.over_bound.append(machine.now / machine.setting.bound_seconds(trials))
        self.full.append(machine.held_area / machine.now / sum(machine.totals.values()))
        self.ran_out.append(machine.n_ran_out / len(trials))
        if isinstance(machine, Sweep):
            self.delayed.append(max(machine.delayed_seconds, default=0.0))
            self.failed += machine.n_failed

    def row(self, name: str, alone: Figures) -> str:
        faster = [a / b for a, b in zip(alone.seconds, self.seconds, strict=True)]
        spread = f"{spread_of(self.over_bound)} | {spread_of(faster)}"
        full, out = statistics.fmean(self.full), statistics.fmean(self.ran_out)
        delayed = f"{max(self.delayed):.0f}" if self.delayed else "–"
        return f"| {name} | {spread} | {full:.0%} | {out:.1%} | {self.failed} | {delayed} |\n"


def spread_of(numbers: Iterable[float]) -> str:
    """`1.43 (1.31–1.52)`: median, least and most."""
    found = sorted(numbers)
    return f"{statistics.median(found):.2f} ({found[0]:.2f}–{found[-1]:.2f})"


POLICIES: Mapping[str, Known] = {
    "unknown: each alone": Known("unknown"),
    "exact, nobody passes": Known("exact"),
    "exact, 16 ahead, exact durations": Known("exact", 16, exact_durations=True),
    "exact, 16 ahead": Known("exact", 16),
    "exact, 4 ahead": Known("exact", 4),
    "20 % over, nobody passes": Known("20 % over"),
    "20 % over, 16 ahead": Known("20 % over", 16),
    "surveyed, nobody passes": Known("surveyed"),
    "surveyed, 16 ahead": Known("surveyed", 16),
    "surveyed, 4 ahead": Known("surveyed", 4),
}


def table(setting: Setting, seeds: Sequence[int]) -> None:
    title = f"{setting.n_devices} x {setting.gib} GB, {setting.n_trials} trials, {setting}"
    head = "| policy | makespan / bound | x faster | full | ran out | lost | head later, s |"
    sys.stdout.write(f"\n{title}\n{head}\n|---|---|---|---|---|---|---|\n")
    worlds = [(setting.trials(seed), seed) for seed in seeds]
    fixed: dict[int, Figures] = {k: Figures() for k in (1, 2, 3, 4, 6, 8)}
    for k, figures in fixed.items():
        for trials, seed in worlds:
            figures.add(Fixed(setting, trials, seed, k).run())
    best = min(fixed, key=lambda k: statistics.median(fixed[k].over_bound))
    sys.stdout.write(fixed[1].row("one per GPU (a fraction safe for the largest)", fixed[1]))
    sys.stdout.write(fixed[best].row(f"best fixed number, {best}", fixed[1]))
    for name, known in POLICIES.items():
        figures = Figures()
        for trials, seed in worlds:
            figures.add(Sweep(setting, trials, seed, known).run())
        sys.stdout.write(figures.row(name, fixed[1]))
        sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", type=int, help="the n-th table alone")
    arguments = parser.parse_args()
    settings = [
        Setting(1, 24, 60, 4),
        Setting(8, 24, 300, 8),
        Setting(8, 80, 300, 4),
        Setting(8, 80, 300, 16),
        Setting(8, 24, 300, 4, 0.03),
        Setting(8, 24, 300, 4, 0.1),
        Setting(8, 24, 300, 8, strangers=True),
    ]
    chosen = settings if arguments.only is None else [settings[arguments.only]]
    for setting in chosen:
        table(setting, range(arguments.seeds))


if __name__ == "__main__":
    main()
