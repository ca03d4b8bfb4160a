"""Trials of 1, 2 and 4 GPUs mixed on 8: does one wait for ever, how good is the plan? several.md.

The real loop, policy, ledger and requests decide; devices, trials and the clock are simulated.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import math
import statistics
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from random import Random

from automl.admission.accounting.ledger import Ledger
from automl.admission.limits import AdmissionLimits
from automl.admission.requests import RequestMaker
from automl.devices.device_reading import DeviceReading, DeviceSnapshot
from automl.running.loop.asking import TrialAsker
from automl.running.loop.loop import SweepLoop
from automl.running.loop.messages import (
    DevicesRead,
    ExecutionStart,
    LoopMessage,
    PlannedTrial,
    ReservationReleased,
    TrialEnded,
    WaitingTrial,
)
from automl.running.loop.packing import TrialDurations
from automl.trial import (
    LOCAL_NODE,
    UNKNOWN_REQUEST,
    DeviceId,
    DeviceKind,
    FinishedOutcome,
    Params,
    Placement,
    ProcessId,
    RequestSource,
    ResourceRequest,
)
from tests.running.loop.plain_ports import PlainPorts, ports_of

GIB = 1024**3
N_DEVICES, TOTAL_BYTES = 8, 24 * GIB
READ_SECONDS = 30.0
"""And soon after each end."""
SEEN_SECONDS = 0.5
GOAL = 1.25
"""Makespan over the bound."""


@dataclass(frozen=True)
class Trial:
    n_devices: int
    seconds: float
    size_bytes: int | None
    """On each of its devices; None: it has them to itself."""

    @property
    def share(self) -> float:
        """Of each of its devices."""
        return 1.0 if self.size_bytes is None else self.size_bytes / TOTAL_BYTES


def draw(seed: int, n_trials: int, *, shared: bool) -> list[Trial]:
    """Of every hundred 50, 30 and 20 have 1, 2 and 4 devices: to themselves, or `shared` with as
    many others as their memory allows."""
    random = Random(seed)
    found = []
    for _ in range(n_trials):
        n_devices = random.choices([1, 2, 4], [5, 3, 2])[0]
        seconds = max(10.0, 300 * math.exp(random.gauss(0, 0.7)))
        size = int(random.uniform(1, 20) * GIB) if shared else None
        found.append(Trial(n_devices, seconds, size))
    return found


def bound_seconds(trials: Sequence[Trial]) -> float:
    """No plan is faster: by what there is of the devices, by those that need more than half of
    one, by the longest."""
    area = sum(t.n_devices * t.seconds * t.share for t in trials) / N_DEVICES
    large = sum(t.n_devices * t.seconds for t in trials if t.share > 0.5) / N_DEVICES
    return max(area, large, max(t.seconds for t in trials))


class Exact(TrialDurations):
    """What a trial takes."""

    def __init__(self, trials: Sequence[Trial]) -> None:
        super().__init__()
        self._trials = trials

    def of(self, waiting: WaitingTrial, share: float = 0.5) -> float:
        return self._trials[waiting.trial.number].seconds


class Sweep(PlainPorts):
    """The real loop; this is its ports, and the machine."""

    def __init__(self, trials: Sequence[Trial], n_ahead: int, *, exact: bool = False) -> None:
        self.trials, self.now = trials, 0.0
        self.devices = [DeviceId(LOCAL_NODE, f"GPU-{n}") for n in range(N_DEVICES)]
        self.on: dict[DeviceId, dict[int, int]] = {device: {} for device in self.devices}
        self.began: dict[int, float] = {}
        self.headed: dict[int, float] = {}
        """When each trial was first found to wait at the head."""
        self._n_asked, self._order = 0, itertools.count()
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self.ledger = Ledger()
        self.loop = SweepLoop(
            ports_of(self),
            RequestMaker(self._estimate, None),
            self.ledger,
            AdmissionLimits(None, 0, 5.0),
            TrialAsker(ports_of(self), len(trials), 0),
            n_ahead=n_ahead,
            durations=Exact(trials) if exact else TrialDurations(self._progress),
        )

    def run(self) -> Sweep:
        """To the end; it has one."""
        self._tick()
        while not self.loop.done:
            assert self.now < 1e6, "a deadlock: readings come and nothing starts"
            self.now, _, happens = heapq.heappop(self._heap)
            happens()
        assert len(self.began) == len(self.trials), "a trial never ran"
        return self

    @property
    def waited(self) -> float:
        """The most that a trial stood at the head, as a share of the longest trial."""
        longest = max(t.seconds for t in self.trials)
        return max((self.began[n] - at for n, at in self.headed.items()), default=0.0) / longest

    # --- ports ---

    def ask(self) -> PlannedTrial | None:
        number, self._n_asked = self._n_asked, self._n_asked + 1
        return PlannedTrial(number, {"n": number})

    def submit(self, start: ExecutionStart) -> None:
        number = start.key
        trial = self.trials[number]
        assert len(start.placement.devices) == trial.n_devices, "all or none"
        self.began[number] = self.now
        for share in start.placement.shares:
            here = self.on[share.device]
            here[number] = share.reservation_bytes
            assert sum(here.values()) <= TOTAL_BYTES, "more is promised than there is"
        self.ledger.assign(number, ProcessId(LOCAL_NODE, 100 + number))
        self.ledger.context_up(number, self.now)
        self._at(trial.seconds, partial(self._end, number, start.placement))

    # --- what is known, and what happens ---

    def _estimate(self, params: Params) -> ResourceRequest:
        trial = self.trials[int(str(params["n"]))]
        known = ResourceRequest(trial.size_bytes, RequestSource.ESTIMATED)
        request = UNKNOWN_REQUEST if trial.size_bytes is None else known
        return replace(request, n_devices=trial.n_devices, kinds=frozenset({DeviceKind.GPU}))

    def _progress(self, number: int) -> float | None:
        return min(1.0, (self.now - self.began[number]) / self.trials[number].seconds) or None

    def _end(self, number: int, placement: Placement) -> None:
        for device in placement.devices:
            del self.on[device][number]
        self._handle(TrialEnded(FinishedOutcome(number, self.now, 0.0)))
        self.ledger.release(number, self.now)
        self._handle(ReservationReleased(number))
        self._at(SEEN_SECONDS, self._read)

    def _at(self, after: float, happens: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (self.now + after, next(self._order), happens))

    def _tick(self) -> None:
        self._read()
        self._at(READ_SECONDS, self._tick)

    def _read(self) -> None:
        """Trials hold nothing of the devices here: what is promised counts."""
        devices = tuple(DeviceSnapshot(d, "sim", TOTAL_BYTES, TOTAL_BYTES) for d in self.devices)
        self._handle(DevicesRead(DeviceReading(self.now, devices)))

    def _handle(self, message: LoopMessage) -> None:
        self.loop.handle(message, self.now)
        if self.loop.queue.queued:
            self.headed.setdefault(self.loop.queue.queued[0].trial.number, self.now)


POLICIES = {
    "nobody passes": (0, False),
    "16 ahead": (16, False),
    "16 ahead, exact durations": (16, True),
}


def round_of(seed: int, n_trials: int, policy: str, *, shared: bool) -> tuple[float, float]:
    """Makespan over the bound, and the most that a head waited over the longest trial."""
    trials = draw(seed, n_trials, shared=shared)
    n_ahead, exact = POLICIES[policy]
    sweep = Sweep(trials, n_ahead, exact=exact).run()
    return sweep.now / bound_seconds(trials), sweep.waited


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="of the rounds")
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--shared", action="store_true", help="devices take as many as fit")
    parser.add_argument("--policy", choices=POLICIES, action="append")
    arguments = parser.parse_args()
    sys.stdout.write(f"{arguments.rounds} rounds of {arguments.trials} trials\n")
    head = f"| policy | makespan / bound: median | 99 % | most | above {GOAL} | head waited, most |"
    sys.stdout.write(f"{head}\n")
    sys.stdout.write("|---|---|---|---|---|---|\n")
    rounds = range(arguments.first, arguments.first + arguments.rounds)
    with ProcessPoolExecutor() as pool:
        for policy in arguments.policy or POLICIES:
            one = partial(
                round_of, n_trials=arguments.trials, policy=policy, shared=arguments.shared
            )
            found = list(pool.map(one, rounds, chunksize=8))
            over = sorted(ratio for ratio, _ in found)
            waited = max(share for _, share in found)
            most_of = over[math.ceil(0.99 * len(over)) - 1]
            sys.stdout.write(
                f"| {policy} | {statistics.median(over):.3f} | {most_of:.3f} | {over[-1]:.3f} | "
                f"{sum(ratio > GOAL for ratio in over)} | "
                f"{waited:.2f} x the longest trial |\n"
            )
            sys.stdout.flush()


if __name__ == "__main__":
    main()
