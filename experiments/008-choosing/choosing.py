"""What is gained where trials go to the CPU or a GPU by where they end first? See README.md.

The real loop, policy, ledger and choice decide; devices, trials and the clock are simulated.
"""

from __future__ import annotations

import argparse
import bisect
import heapq
import itertools
import math
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random

from automl.admission.accounting.ledger import Ledger
from automl.admission.limits import AdmissionLimits
from automl.admission.requests import RequestMaker
from automl.devices.device_reading import DeviceReading, DeviceSnapshot
from automl.running.loop.asking import TrialAsker
from automl.running.loop.device_choice import N_RECENT_WORKS
from automl.running.loop.loop import SweepLoop
from automl.running.loop.messages import (
    CpuProbed,
    DevicesRead,
    ExecutionStart,
    LoopMessage,
    PlannedTrial,
    ReservationReleased,
    TrialEnded,
)
from automl.running.loop.packing import TrialDurations
from automl.running.loop.trial_paces import DevicePaceModel
from automl.running.prepare.prepared_config import LOOKAHEAD
from automl.trial import (
    LOCAL_HOST,
    LOCAL_NODE,
    DeviceId,
    DeviceKind,
    FinishedOutcome,
    Params,
    ProcessId,
    RequestSource,
    ResourceRequest,
    TrainingWork,
)
from tests.running.loop.plain_ports import PlainPorts, ports_of

GIB = 1024**3
N_CORES = 16
BATCH = 128
FLOPS_OF_WEIGHT = 6 * BATCH + 10
START_SECONDS = 0.1
READ_SECONDS = 10.0
PROBES_SECONDS = 15.0
"""The most that timing the CPU may take (`automl/running/trials/cpu_probe.py`)."""
AFTER_END_SECONDS = 0.5
N_EPOCHS = 20
NOISE = 0.1
"""Of each trial's pace on each kind, which nobody can know before (lognormal)."""

# Weights and seconds of a step: three hidden layers of one width, batch 128, SGD with momentum,
# float32, one core of an AMD EPYC, measured by `steps.py`.
_CORE = (
    (914, 0.280e-3),
    (9_794, 0.413e-3),
    (35_970, 0.669e-3),
    (137_474, 1.836e-3),
    (537_090, 7.733e-3),
    (2_122_754, 23.619e-3),
    (8_439_810, 106.82e-3),
    (33_656_834, 406.07e-3),
)


def core(n_weights: float) -> float:
    """Seconds of a step on one core, between what was measured and beyond on straight lines of the
    logarithms."""
    known = [math.log(n) for n, _ in _CORE]
    x = math.log(n_weights)
    i = min(max(bisect.bisect(known, x), 1), len(_CORE) - 1)
    (n_0, s_0), (n_1, s_1) = _CORE[i - 1], _CORE[i]
    slope = math.log(s_1 / s_0) / math.log(n_1 / n_0)
    return s_0 * math.exp(slope * (x - math.log(n_0)))


def data_center(n_weights: float) -> float:
    """A step on a GPU by its data sheet (H100 SXM: 67 TFLOP/s in float32, 3.35 TB/s): 60 % of its
    operations, 80 % of its bandwidth at 32 bytes for each weight, and never less than the launch
    of some 80 kernels."""
    computes = n_weights * FLOPS_OF_WEIGHT / (0.6 * 67e12)
    return max(0.6e-3, computes + 32 * n_weights / (0.8 * 3.35e12))


def laptop(n_weights: float) -> float:
    """A GPU that is faster than a core from 700,000 weights on, as P. Xu's of 2019 was."""
    return max(9e-3, n_weights * FLOPS_OF_WEIGHT / 2e12)


GPUS: Mapping[str, Callable[[float], float]] = {"data center": data_center, "laptop": laptop}


@dataclass(frozen=True)
class Trial:
    n_weights: float
    n_steps: int
    seconds: Mapping[DeviceKind, float]
    """That it takes there."""

    @property
    def work(self) -> TrainingWork:
        return TrainingWork(self.n_steps, self.n_weights * FLOPS_OF_WEIGHT)


@dataclass(frozen=True)
class Setting:
    gpu: str
    n_gpus: int
    n_trials: int
    n_ahead: int = 16

    def trials(self, seed: int) -> list[Trial]:
        """Sizes from 10³ to 10⁸ weights, 10⁴ to 10⁵ steps, log-uniform."""
        random, drawn = Random(seed), []
        for _ in range(self.n_trials):
            n_weights = 10 ** random.uniform(3, 8)
            n_steps = int(10 ** random.uniform(4, 5))
            steps = {DeviceKind.CPU: core(n_weights), DeviceKind.GPU: GPUS[self.gpu](n_weights)}
            seconds = {
                kind: START_SECONDS + n_steps * step * math.exp(NOISE * random.gauss(0, 1))
                for kind, step in steps.items()
            }
            drawn.append(Trial(n_weights, n_steps, seconds))
        return drawn

    def likely(self) -> list[TrainingWork]:
        """What is known of its space: other trials drawn from it."""
        others = replace(self, n_trials=N_RECENT_WORKS).trials(seed=1_000_000)
        return [trial.work for trial in others]

    @property
    def gpus(self) -> list[DeviceId]:
        return [DeviceId(LOCAL_NODE, f"GPU-{n}") for n in range(self.n_gpus)]


class Sweep(PlainPorts):
    """A machine in virtual time, and the loop's ports into it."""

    def __init__(self, setting: Setting, trials: Sequence[Trial], *, chooses: bool) -> None:
        self._setting = setting
        self.trials, self.now, self._n_asked = trials, 0.0, 0
        self.devices = [*setting.gpus, *([LOCAL_HOST] if chooses else [])]
        self.where: dict[int, DeviceKind] = {}
        self._runs: dict[int, tuple[float, float]] = {}
        """From when, and how long."""
        self._order, self._pids = itertools.count(), itertools.count(100)
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self.ledger = Ledger()
        chooser = self._open_chooser() if chooses else None
        predict = {} if chooser is None else {"predict": chooser.seconds}
        self._n_ahead, self._n_ended = setting.n_ahead, 0
        self.loop = SweepLoop(
            ports_of(self),
            RequestMaker(lambda params: ResourceRequest(GIB, RequestSource.ESTIMATED), None),
            self.ledger,
            AdmissionLimits(None, 0, 3 * READ_SECONDS, max_per_gpu=1, max_on_host=N_CORES),
            TrialAsker(ports_of(self), len(trials), 0),
            n_ahead=setting.n_ahead,
            durations=TrialDurations(self._progress, **predict),
            chooser=chooser,
        )

    def run(self) -> float:
        self._tick()
        while not self.loop.done:
            self.now, _, happens = heapq.heappop(self._heap)
            happens()
        return self.now

    def _at(self, after: float, happens: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (self.now + after, next(self._order), happens))

    # --- ports ---

    def ask(self) -> PlannedTrial | None:
        self._n_asked += 1
        return PlannedTrial(self._n_asked - 1, {"n": self._n_asked - 1})

    def n_may_pend(self) -> int | None:
        """Where few are looked at, as many as `tpe` allows."""
        if self._n_ahead >= LOOKAHEAD:
            return None
        return max(4, self._n_ended // 4)

    def submit(self, start: ExecutionStart) -> None:
        number = start.key
        seconds = self.trials[number].seconds[start.placement.kind]
        self.where[number] = start.placement.kind
        self._runs[number] = self.now, seconds
        self.ledger.assign(number, ProcessId(LOCAL_NODE, next(self._pids)))
        self._at(seconds, partial(self._end, number))

    def n_steps(self) -> Mapping[int, int]:
        return {n: int(self._share(n) * self.trials[n].n_steps) for n in self._runs}

    # --- what happens ---

    def _open_chooser(self) -> DevicePaceModel:
        self._at(PROBES_SECONDS, self._probed)
        return DevicePaceModel(
            self._work, frozenset(DeviceKind), likely=self._setting.likely(), is_probing=True
        )

    def _probed(self) -> None:
        """A small, a middle and a large trial were timed on a core."""
        order = sorted(range(len(self.trials)), key=lambda n: self.trials[n].n_weights)
        sizes = (order[0], order[len(order) // 2], order[-1])
        found = CpuProbed(tuple(({"n": n}, core(self.trials[n].n_weights)) for n in sizes))
        self._handle(found)

    def _work(self, params: Params) -> TrainingWork:
        return self.trials[int(str(params["n"]))].work

    def _share(self, number: int) -> float:
        since, seconds = self._runs[number]
        return max(0.0, self.now - since - START_SECONDS) / (seconds - START_SECONDS)

    def _progress(self, number: int) -> float | None:
        """By epochs that it has reported."""
        return math.floor(N_EPOCHS * self._share(number)) / N_EPOCHS or None

    def _end(self, number: int) -> None:
        self._handle(TrialEnded(FinishedOutcome(number, self.now, 0.0)))
        del self._runs[number]
        self._n_ended += 1
        self.ledger.release(number, self.now)
        self._handle(ReservationReleased(number))
        self._at(AFTER_END_SECONDS, self._read)

    def _tick(self) -> None:
        self._read()
        self._at(READ_SECONDS, self._tick)

    def _read(self) -> None:
        size = 1000 * GIB
        devices = tuple(DeviceSnapshot(device, "sim", size, size) for device in self.devices)
        self._handle(DevicesRead(DeviceReading(self.now, devices)))

    def _handle(self, message: LoopMessage) -> None:
        self.loop.handle(message, self.now)


def best_split(setting: Setting, trials: Sequence[Trial]) -> float:
    """The least makespan where all below some size go to the cores that GPUs leave and all others
    to GPUs, in the order in which they were asked for. Who knows all durations tunes the size."""
    sizes = sorted(trial.n_weights for trial in trials)
    return min(split(setting, trials, size) for size in (0.0, *sizes, math.inf))


def split(setting: Setting, trials: Sequence[Trial], size: float) -> float:
    small = [t.seconds[DeviceKind.CPU] for t in trials if t.n_weights < size]
    large = [t.seconds[DeviceKind.GPU] for t in trials if t.n_weights >= size]
    return max(listed(small, N_CORES - setting.n_gpus), listed(large, setting.n_gpus))


def listed(durations: Iterable[float], n_places: int) -> float:
    """First come, first served."""
    free = [0.0] * n_places
    for seconds in durations:
        heapq.heapreplace(free, free[0] + seconds)
    return max(free)


def row(setting: Setting, seeds: Sequence[int]) -> str:
    against_gpus, against_split, on_cpu = [], [], []
    for seed in seeds:
        trials = setting.trials(seed)
        chosen = Sweep(setting, trials, chooses=True)
        seconds = chosen.run()
        against_gpus.append(seconds / Sweep(setting, trials, chooses=False).run())
        against_split.append(seconds / best_split(setting, trials))
        n_on_cpu = sum(kind is DeviceKind.CPU for kind in chosen.where.values())
        on_cpu.append(n_on_cpu / len(trials))
    ratios = f"{spread_of(against_gpus)} | {spread_of(against_split)}"
    what = f"{setting.n_gpus} x {setting.gpu} | {setting.n_trials} | {setting.n_ahead}"
    return f"| {what} | {ratios} | {statistics.median(on_cpu):.0%} |\n"


def spread_of(numbers: Iterable[float]) -> str:
    """`1.43 (1.31–1.52)`: median, least and most."""
    found = sorted(numbers)
    return f"{statistics.median(found):.2f} ({found[0]:.2f}–{found[-1]:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="of the seeds")
    parser.add_argument("--only", choices=[*GPUS])
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    head = "| GPUs | trials | ahead | makespan / GPUs only | / best split | on the CPU |"
    sys.stdout.write(f"{head}\n|---|---|---|---|---|---|\n")
    for gpu, n_gpus, n_ahead in itertools.product(GPUS, (1, 8), (16, 4)):
        if arguments.only not in (None, gpu):
            continue
        n_trials = 100 if n_gpus == 1 else 300
        sys.stdout.write(row(Setting(gpu, n_gpus, n_trials, n_ahead), seeds))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
