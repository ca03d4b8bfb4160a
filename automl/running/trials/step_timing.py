"""Times every way of training every size of trial on every device, each size in its own process, in
bounded time.

The module chooses the sizes and the ways that are worth timing. A way that takes too long is
reported as such. The table and the advice are made elsewhere.
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
from automl.trial import (
    LOCAL_HOST,
    DeviceId,
    DeviceShare,
    Params,
    ParamValue,
    Placement,
    ProcessEntry,
)

_N_DRAWS = 201
Work = Callable[[Params], "int | None"]
"""Returns what a trial wants of its device, by the family's arithmetic. None if it has none."""


@dataclass(frozen=True)
class TrialSize:
    """A trial that stands for all trials of its size."""

    name: str
    params: Params


def distinct_sizes(space: SearchSpace, work: Work) -> tuple[TrialSize, ...]:
    """Return the sizes that differ, small to large. A space of one size gives one.

    With arithmetic they are a trial that wants least, the median of evenly drawn trials, and a
    trial that wants most. Without arithmetic all params are at their first ends, halfway, and at
    their last ends.
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
    """Return the end of the param that wants least (`sign` -1: most) with all else halfway. If no
    end does, return the middle."""
    candidates = [param.domain.at(0.5), *param.domain.ends]
    return min(candidates, key=lambda value: sign * wants({**middle, param.name: value}))


def draw_params_evenly(space: SearchSpace) -> list[Params]:
    """Return evenly drawn trials of the space, the same at every call."""
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
"""Seconds for all timing. Loading takes some seconds more."""
WAY_SECONDS = 1.5
"""Most seconds for one way. Timing for longer adds no information."""
USERS_WAY_SECONDS = 6.0
"""Most seconds for one way of a user's function, which may read its data first."""
_TOLD_FRACTION = 0.7
"""Fraction of a process's time that it is told to use, since a step may take long."""
_NO_LIMIT = 2**50
_TARGET = "automl.measure.gain.child:time_ways"


@dataclass(frozen=True)
class TimedDevice:
    """A device that is timed. `name` is for people."""

    address: DeviceId
    name: str

    @property
    def on_host(self) -> bool:
        return self.address.on_host


HOST_DEVICE = TimedDevice(LOCAL_HOST, "cpu")


@dataclass(frozen=True)
class TimingTask:
    """One size on one device, with the ways that are to be timed."""

    device: TimedDevice
    size: TrialSize
    ways: tuple[TrainingWay, ...]


@dataclass(frozen=True)
class TimingRow:
    """The timing of one way of training."""

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
    """Return a row for each way of each task, in their order.

    Takes about `total_seconds` at most, and ends at once if `is_over`, which is called ten times a
    second. Raises ConfigError if a user's function cannot be loaded. Leaves nothing behind.
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
    """Return the timing of each way. The process is ended after `seconds`, and what is known by
    then counts."""
    ends = time.monotonic() + seconds
    late = f"no two steps within {seconds:.0f} s"
    found = {way: TrainingTiming(way, trouble=late) for way in task.ways}
    with tempfile.TemporaryDirectory(prefix="automl-gain-", ignore_cleanup_errors=True) as folder:
        for_child = min(_TOLD_FRACTION * seconds, way_seconds * len(task.ways))
        placement = Placement((DeviceShare(task.device.address, task.device.name, 0),))
        setup_of_child = GainSetup(setup, task.size.params, task.ways, placement, for_child, folder)
        limits = _limits(task.device, folder, seconds)
        stream = stream_confined(
            ProcessEntry(_TARGET, setup_of_child),
            limits,
            lambda: time.monotonic() > ends or is_over(),
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
                    found = {
                        way: _with_trouble(timing, str(error)) for way, timing in found.items()
                    }
    return [found[way] for way in task.ways]


def _with_trouble(timing: TrainingTiming, error: str) -> TrainingTiming:
    """Return what is known of a way once its process has ended with an error."""
    if timing.step_seconds is not None:
        return timing
    return TrainingTiming(timing.way, trouble=fit_line(error, 200))


def _limits(device: TimedDevice, folder: str, seconds: float) -> ProcessConfinement:
    """Return the limits of the process: those of a trial, at the same priority."""
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
"""Largest number of threads up to which each count is timed. Above it powers of two are."""


def ways_to_time(
    plan: TrainingPlan, params: Params, *, on_host: bool, n_cores: int, pack: PackSetting
) -> tuple[TrainingWay, ...]:
    """Return the ways that are worth timing. The others are compared with the first: one thread,
    alone, data on the device."""
    precision = _base_precision(plan)
    counts = thread_counts(n_cores) if on_host else (1,)
    found = [TrainingWay(n, precision) for n in counts]
    if plan.objective.kind is ObjectiveKind.builtin and isinstance(plan.family, NetworkFamily):
        found += [TrainingWay(precision=other) for other in _other_precisions(precision)]
        found += _packs(plan, params, precision, on_host=on_host, pack=pack)
        found += [TrainingWay(precision=precision, copies=True)]
    return tuple(found)


def unvaried_reason(plan: TrainingPlan) -> str | None:
    """Return which settings were not varied because they are the user's own, in words. None if all
    were varied."""
    if plan.objective.kind is not ObjectiveKind.builtin:
        return "precision, packs and copies of data are the function's own, and were not varied"
    if not isinstance(plan.family, NetworkFamily):
        return "precision, packs and copies of data are of networks, and were not varied"
    return None


def thread_counts(n_cores: int) -> tuple[int, ...]:
    """Return the numbers of threads to time, from 1 to all cores."""
    powers = {2**k for k in range(n_cores.bit_length())}
    return tuple(sorted({*range(1, min(n_cores, _ALL_COUNTS) + 1), *powers, n_cores}))


def _base_precision(plan: TrainingPlan) -> Precision:
    """Return float32, unless the weights have to be wider."""
    wide = plan.training.precision is Precision.float64
    return Precision.float64 if wide else Precision.float32


def _other_precisions(base: Precision) -> Iterator[Precision]:
    if base is Precision.float64:
        yield Precision.float32
    yield Precision.bfloat16


def _packs(
    plan: TrainingPlan, params: Params, precision: Precision, *, on_host: bool, pack: PackSetting
) -> list[TrainingWay]:
    """Return a whole pack, and a quarter of one, which shows what does not shrink."""
    key = plan.pack_key(params, on_host=on_host)
    n_lanes = 1 if key is None else pack_size(key, "auto" if pack == "none" else pack)
    counts = sorted({n for n in (n_lanes // 4, n_lanes) if n > 1})
    return [TrainingWay(precision=precision, n_lanes=n) for n in counts]
