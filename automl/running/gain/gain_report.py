"""Runs the command `gain` from its config to its output: prepare, measure, table, advice."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from automl.config import Config, DevicesConfig, ObjectiveKind, check_setting
from automl.devices.device_reader import open_device_reader
from automl.devices.host import usable_cores
from automl.errors import AutoMLError
from automl.measure.gain.gain_messages import TrainingTiming, TrainingWay
from automl.objectives.training_plan import TrainingPlan
from automl.record.texts import fit_line
from automl.running.display.console import CommandConsole, open_console, params_text
from automl.running.display.machine_output import write_answer
from automl.running.gain.gain_advice import ParallelismLimits, advise, serial_share
from automl.running.gain.gain_measurement import (
    HOST_DEVICE,
    USERS_WAY_SECONDS,
    WAY_SECONDS,
    TimedDevice,
    TimingRow,
    TimingTask,
    TrialSize,
    distinct_sizes,
    time_tasks,
    unvaried_reason,
    ways_to_time,
)
from automl.running.setup.preparation import prepare_study
from automl.running.setup.prepared_config import PreparedStudy
from automl.trial import DeviceId, Params

GAIN_COLUMNS = ("device", "size", "way", "ms/step", "gain", "fixed", "trial")


def gain_table_rows(rows: Sequence[TimingRow]) -> list[tuple[str, ...]]:
    """Return a line for each timing. A device and a size are named in their first line."""
    lines: list[tuple[str, ...]] = []
    named: tuple[str, str] | None = None
    for place, group in groupby(rows, lambda row: (row.device.name, row.size.name)):
        timings = [row.timing for row in group]
        first = next(row.timing for row in rows if row.size.name == place[1])
        for timing in timings:
            device = place[0] if named is None or named[0] != place[0] else ""
            size = place[1] if named != place else ""
            lines.append((device, size, *_cells(timing, first, timings)))
            named = place
    return lines


def gain(timing: TrainingTiming, first: TrainingTiming) -> float | None:
    """Return how many times as fast as the first the timing is. None if either is unknown."""
    if timing.step_seconds is None or first.step_seconds is None:
        return None
    return first.step_seconds / timing.step_seconds


def way_text(timing: TrainingTiming, base: TrainingWay) -> str:
    """Return what differs from one thread, alone, in the base precision: `2 threads`, `pack of
    32`."""
    way = timing.way
    words = list(_differences(way, base))
    text = ", ".join(words) if words else f"1 thread, {base.precision.value}"
    return text + " (not native here)" if timing.emulated else text


def _differences(way: TrainingWay, base: TrainingWay) -> Iterator[str]:
    if way.n_threads > 1:
        yield f"{way.n_threads} threads"
    if way.precision is not base.precision:
        yield way.precision.value
    if way.n_lanes > 1:
        yield f"pack of {way.n_lanes}"
    if way.copies:
        yield "data copied each step"


def _cells(
    timing: TrainingTiming, first: TrainingTiming, timings: Sequence[TrainingTiming]
) -> tuple[str, ...]:
    way = way_text(timing, timings[0].way)
    if timing.step_seconds is None:
        return (f"{way}: {timing.trouble}", "", "", "", "")
    times = gain(timing, first)
    fixed = _fixed(timing, timings)
    trial = "" if timing.trial_seconds is None else f"{timing.trial_seconds:.3g} s"
    per = " per report" if timing.per_report else ""
    return (
        way + per,
        f"{timing.step_seconds * 1000:.3g}",
        "" if times is None else f"{times:.2f}",
        "" if fixed is None else f"{fixed:.0%}",
        trial,
    )


def _fixed(timing: TrainingTiming, timings: Sequence[TrainingTiming]) -> float | None:
    """Return the share that does not shrink, in the line of the most threads and of the most
    lanes."""
    for count in (_n_threads, _n_lanes):
        points = [
            (count(t.way), t.step_seconds)
            for t in timings
            if t.step_seconds is not None and _differs_in(count, t.way, timings[0].way)
        ]
        most = max((n for n, _ in points), default=1)
        if count(timing.way) == most > 1:
            return serial_share(points)
    return None


def _n_threads(way: TrainingWay) -> int:
    return way.n_threads


def _n_lanes(way: TrainingWay) -> int:
    return way.n_lanes


def _differs_in(count: Callable[[TrainingWay], int], way: TrainingWay, base: TrainingWay) -> bool:
    """Return whether the ways differ at most in this count."""
    if count is _n_threads:
        return replace(way, n_threads=base.n_threads) == base
    return replace(way, n_lanes=base.n_lanes) == base


def print_gain_report(config: Config) -> None:
    """Time the ways, and print table and advice. Raises AutoMLError, also if nothing could be
    timed."""
    check_setting(
        config.objective.kind is not ObjectiveKind.command,
        "objective",
        "command",
        "gain times single steps, and a program shows none. Ask it of a function of your own "
        "(objective=python), or of the built-in training.",
    )
    console = open_console()
    prepared = prepare_study(config)
    for note in prepared.notes:
        console.say(fit_line(note))
    if prepared.plan.n_models > 1:
        console.say(f"timed is one of the {prepared.plan.n_models} models of a trial")
        prepared = prepared.of_one_model
    devices, found = devices_of(config.devices), sizes_to_time(prepared)
    for size in found:
        console.say(f"{size.name}: {params_text(size.params)}")
    users = config.objective.kind is not ObjectiveKind.builtin
    rows = time_tasks(
        prepared.setup,
        tasks_of(prepared, devices, found),
        lambda line: console.say(line, "dim"),
        way_seconds=USERS_WAY_SECONDS if users else WAY_SECONDS,
    )
    _print(console, prepared.plan, rows, devices)
    if all(row.timing.step_seconds is None for row in rows):
        raise AutoMLError(f"gain: nothing could be timed: {rows[0].timing.trouble}.")
    advice = advise(rows, machine_of(config)).text
    console.say(advice)
    write_answer({"timings": rows, "advice": advice})


def devices_of(config: DevicesConfig) -> tuple[TimedDevice, ...]:
    """Return the host, and one GPU of each name. Raises ConfigError."""
    with contextlib.closing(open_device_reader(config)) as reader:
        snapshots = reader.read()
    gpus: dict[str, DeviceId] = {}
    for snapshot in snapshots:
        if not snapshot.address.on_host:
            gpus.setdefault(snapshot.name, snapshot.address)
    return (HOST_DEVICE, *(TimedDevice(address, name) for name, address in gpus.items()))


def sizes_to_time(prepared: PreparedStudy) -> tuple[TrialSize, ...]:
    """Return the small, the middle and the large trial of the space."""

    def work(params: Params) -> int | None:
        return prepared.plan.request(params, prepared.dataset).memory_bytes

    return distinct_sizes(prepared.space, work)


def tasks_of(
    prepared: PreparedStudy, devices: tuple[TimedDevice, ...], found: tuple[TrialSize, ...]
) -> list[TimingTask]:
    """Return everything that is timed, by device and size."""

    def task(device: TimedDevice, size: TrialSize) -> TimingTask:
        n_cores, pack = usable_cores(), prepared.config.execution.pack
        chosen = ways_to_time(
            prepared.plan, size.params, on_host=device.on_host, n_cores=n_cores, pack=pack
        )
        return TimingTask(device, size, chosen)

    return [task(device, size) for device in devices for size in found]


def machine_of(config: Config) -> ParallelismLimits:
    """Return the limits on how many trials run at once."""
    admission, study = config.admission, config.study
    most = min(admission.max_concurrent_trials or study.decided_n_trials, study.decided_n_trials)
    return ParallelismLimits(usable_cores(), most, precision_stays=study.name is not None)


def _print(
    console: CommandConsole,
    plan: TrainingPlan,
    rows: list[TimingRow],
    devices: tuple[TimedDevice, ...],
) -> None:
    console.table(GAIN_COLUMNS, gain_table_rows(rows), n_left=3)
    notes = ["gain: against the first line of the size; fixed: the share that does not shrink"]
    if devices == (HOST_DEVICE,):
        notes.append("no GPU is seen here, so that nothing tells what one would gain")
    if (note := unvaried_reason(plan)) is not None:
        notes.append(note)
    for note in notes:
        console.say(note, "dim")
