"""Times every way of every size on every device, each size in a process of its own, bounded by
time. What takes too long is told as that.

The small, the middle and the large trial of a space. Pure.

Which ways of training are worth timing on a device. Pure.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from automl.config import ObjectiveKind, Precision
from automl.errors import AutoMLError, ConfigError
from automl.execution.child_calls import ProcessConfinement, stream_confined
from automl.measure.gain.gain_messages import GainSetup, TrainingTiming, TrainingWay
from automl.models.family import PackSetting, pack_size
from automl.models.networks.network_family import NetworkFamily
from automl.objectives.training_plan import SessionSetup, TrainingPlan
from automl.record.texts import fit_line
from automl.running.trials.surveyor import throwaway_environment
from automl.search.search_space import SearchSpace, SpaceParam
from automl.trial import HOST, DeviceId, DeviceShare, Params, ParamValue, Placement, ProcessEntry

_N_DRAWS = 201
Work = Callable[[Params], "int | None"]
"""What a trial wants of its device, by the family's arithmetic; None: it has none."""


@dataclass(frozen=True)
class TrialSize:
    """A trial that stands for those of its size."""

    name: str
    params: Params


def distinct_sizes(space: SearchSpace, work: Work) -> tuple[TrialSize, ...]:
    """Those that differ, small to large; a space of one size gives one.

    By arithmetic: a trial in the space that wants least, the median of evenly drawn ones, and one
    that wants most. Where there is none, all params at their first ends, halfway and at their last.
    """
    middle = space.fill(lambda param: param.domain.at(0.5))
    if work(middle) is None:
        found = [("first", 0.0), ("halfway", 0.5), ("last", 1.0)]
        return _distinct([TrialSize(name, _at(space, share)) for name, share in found])

    def wants(params: Params) -> int:
        return work(params) or 0

    least = space.fill(lambda param: _extreme(param, middle, wants, sign=1))
    most = space.fill(lambda param: _extreme(param, middle, wants, sign=-1))
    drawn = sorted(draw_params_evenly(space), key=wants)
    every = [
        TrialSize("small", least),
        TrialSize("middle", drawn[len(drawn) // 2]),
        TrialSize("large", most),
    ]
    return _distinct(every) if wants(least) < wants(most) else (TrialSize("all alike", middle),)


def _extreme(
    param: SpaceParam, middle: Params, wants: Callable[[Params], int], *, sign: int
) -> ParamValue:
    """The end that wants least (`sign` -1: most), all else halfway; halfway where none does."""
    candidates = [param.domain.at(0.5), *param.domain.ends]
    return min(candidates, key=lambda value: sign * wants({**middle, param.name: value}))


def draw_params_evenly(space: SearchSpace) -> list[Params]:
    """Trials of it, evenly drawn; the same every time."""
    draw = random.Random(0)
    return [space.fill(lambda param: param.domain.at(draw.random())) for _ in range(_N_DRAWS)]


def _at(space: SearchSpace, share: float) -> Params:
    return space.fill(lambda param: param.domain.at(share))


def _distinct(found: list[TrialSize]) -> tuple[TrialSize, ...]:
    kept: list[TrialSize] = []
    for size in found:
        if all(size.params != other.params for other in kept):
            kept.append(size)
    return tuple(kept)


TOTAL_SECONDS = 45.0
"""For all timing; what is loaded before takes some seconds more."""
WAY_SECONDS = 1.5
"""For one way, at the most: longer looks say no more."""
USERS_WAY_SECONDS = 6.0
"""The same of a user's function, which may read its data first."""
_SHARE = 0.7
"""Of the time that a process has, what it is told: a step may take long."""
_NO_LIMIT = 2**50
_TARGET = "automl.measure.gain.child:time_ways"


@dataclass(frozen=True)
class TimedDevice:
    """What is timed; `name` for people."""

    address: DeviceId
    name: str

    @property
    def on_host(self) -> bool:
        return self.address.on_host


HOST_DEVICE = TimedDevice(HOST, "cpu")


@dataclass(frozen=True)
class TimingTask:
    """One size on one device, in the ways that are to be timed."""

    device: TimedDevice
    size: TrialSize
    ways: tuple[TrainingWay, ...]


@dataclass(frozen=True)
class TimingRow:
    """What came of one way."""

    device: TimedDevice
    size: TrialSize
    timing: TrainingTiming


def time_tasks(
    setup: SessionSetup,
    tasks: Sequence[TimingTask],
    say: Callable[[str], None],
    *,
    total_seconds: float = TOTAL_SECONDS,
    way_seconds: float = WAY_SECONDS,
    is_over: Callable[[], bool] = lambda: False,
) -> list[TimingRow]:
    """A row for each way of each task, in their order. Takes about `total_seconds` at the most, and
    ends at once where `is_over`, which is asked ten times a second.

    Raises ConfigError where a user's function cannot be had. Nothing is left behind.
    """
    ends = time.monotonic() + total_seconds
    rows: list[TimingRow] = []
    for n, task in enumerate(tasks):
        say(f"timing {task.size.name} on {task.device.name} ({n + 1} of {len(tasks)})")
        seconds = max(0.0, ends - time.monotonic()) / (len(tasks) - n)
        timings = _timings(setup, task, seconds, way_seconds, is_over)
        rows += [TimingRow(task.device, task.size, timing) for timing in timings]
    return rows


def _timings(
    setup: SessionSetup,
    task: TimingTask,
    seconds: float,
    way_seconds: float,
    is_over: Callable[[], bool],
) -> Sequence[TrainingTiming]:
    """One for each way; the process is ended after `seconds`, with what is known by then."""
    ends = time.monotonic() + seconds
    late = f"no two steps within {seconds:.0f} s"
    found = {way: TrainingTiming(way, trouble=late) for way in task.ways}
    with tempfile.TemporaryDirectory(prefix="automl-gain-", ignore_cleanup_errors=True) as folder:
        for_child = min(_SHARE * seconds, way_seconds * len(task.ways))
        placement = Placement((DeviceShare(task.device.address, task.device.name, 0),))
        there = GainSetup(setup, task.size.params, task.ways, placement, for_child, folder)
        limits = _limits(task.device, folder, seconds)
        stream = stream_confined(
            ProcessEntry(_TARGET, there), limits, lambda: time.monotonic() > ends or is_over()
        )
        with closing(stream):
            try:
                for timing in stream:
                    assert isinstance(timing, TrainingTiming)
                    found[timing.way] = timing
            except ConfigError:
                raise
            except AutoMLError as error:
                if time.monotonic() <= ends and not is_over():
                    found = {way: _after(timing, str(error)) for way, timing in found.items()}
    return [found[way] for way in task.ways]


def _after(timing: TrainingTiming, error: str) -> TrainingTiming:
    """What is known of a way once its process has ended with an error."""
    if timing.step_seconds is not None:
        return timing
    return TrainingTiming(timing.way, trouble=fit_line(error, 200))


def _limits(device: TimedDevice, folder: str, seconds: float) -> ProcessConfinement:
    """It may take what a trial may take, and at the same priority."""
    visible = "" if device.on_host else device.address.uuid
    return ProcessConfinement(
        seconds=seconds,
        memory_bytes=_NO_LIMIT,
        file_bytes=_NO_LIMIT,
        niceness=0,
        environment={
            "AUTOML_GAIN": "1",
            "CUDA_VISIBLE_DEVICES": visible,
            **throwaway_environment(folder),
        },
    )


_ALL_COUNTS = 4
"""Up to so many threads each count is timed, above powers of two."""


def ways_to_time(
    plan: TrainingPlan, params: Params, *, on_host: bool, n_cores: int, pack: PackSetting
) -> tuple[TrainingWay, ...]:
    """The first is what the others are compared with: one thread, alone, data on the device."""
    precision = _base_precision(plan)
    counts = thread_counts(n_cores) if on_host else (1,)
    found = [TrainingWay(n, precision) for n in counts]
    if plan.objective.kind is ObjectiveKind.builtin and isinstance(plan.family, NetworkFamily):
        found += [TrainingWay(precision=other) for other in _other_precisions(precision)]
        found += _packs(plan, params, precision, on_host=on_host, pack=pack)
        found += [TrainingWay(precision=precision, copies=True)]
    return tuple(found)


def unvaried_reason(plan: TrainingPlan) -> str | None:
    """What is the user's own business, in words; None: all was varied."""
    if plan.objective.kind is not ObjectiveKind.builtin:
        return "precision, packs and copies of data are the function's own, and were not varied"
    if not isinstance(plan.family, NetworkFamily):
        return "precision, packs and copies of data are of networks, and were not varied"
    return None


def thread_counts(n_cores: int) -> tuple[int, ...]:
    """From 1 to all cores."""
    powers = {2**k for k in range(n_cores.bit_length())}
    return tuple(sorted({*range(1, min(n_cores, _ALL_COUNTS) + 1), *powers, n_cores}))


def _base_precision(plan: TrainingPlan) -> Precision:
    """float32, unless the weights have to be wider."""
    wide = plan.training.precision is Precision.float64
    return Precision.float64 if wide else Precision.float32


def _other_precisions(base: Precision) -> Iterator[Precision]:
    if base is Precision.float64:
        yield Precision.float32
    yield Precision.bfloat16


def _packs(
    plan: TrainingPlan, params: Params, precision: Precision, *, on_host: bool, pack: PackSetting
) -> list[TrainingWay]:
    """A whole pack, and a quarter of one, so that it is seen what does not shrink."""
    key = plan.pack_key(params, on_host=on_host)
    n_lanes = 1 if key is None else pack_size(key, "auto" if pack == "off" else pack)
    counts = sorted({n for n in (n_lanes // 4, n_lanes) if n > 1})
    return [TrainingWay(precision=precision, n_lanes=n) for n in counts]
