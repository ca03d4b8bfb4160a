"""`gain`: times what a GPU, more threads, bfloat16 and packs would gain the trials of a space.

Some steps of a small, a middle and a large trial are timed; nothing of a study is written. The
timing is in `automl/measure/gain` and `automl/running/trials/step_timing.py`; here are the order of
the work, the table and the sentence of advice.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from statistics import linear_regression

from automl.commands.command_call import CommandCall
from automl.config import (
    Config,
    DevicesConfig,
    ExecutionKind,
    ObjectiveKind,
    Precision,
    check_setting,
)
from automl.devices.device_reader import open_device_reader
from automl.devices.host import usable_cores
from automl.errors import AutoMLError, ConfigError
from automl.execution.worker_process import preload_fork_server
from automl.measure.gain.gain_messages import TrainingTiming, TrainingWay
from automl.objectives.training_plan import TrainingPlan
from automl.record.texts import fit_line
from automl.running.prepare.preparation import prepare_study
from automl.running.prepare.prepared_config import PreparedStudy
from automl.running.trials.step_timing import (
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
from automl.terminal.console import CommandConsole, open_console, params_text
from automl.terminal.machine_output import write_answer
from automl.trial import DeviceId, Params

MIN_GAIN = 1.1
"""Smallest gain that is worth a change. Repeated timings differ by about this factor."""


@dataclass(frozen=True)
class ParallelismLimits:
    """The limits on how many trials run side by side."""

    n_cores: int
    most_at_once: int
    precision_stays: bool = False
    """Whether the study has begun, so that no setting of its training may change."""


@dataclass(frozen=True)
class GainAdvice:
    text: str
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True)
class _AdvisedOverride:
    """One part of the advice: an override and its reason."""

    override: str | None
    """The override. None if nothing can be set."""
    reason: str


def advise(rows: Sequence[TimingRow], machine: ParallelismLimits) -> GainAdvice:
    """Return the threads, packs, precision and device that get most trials done.

    Trials of all sizes count alike, by the time of a whole trial, or of a step if the length is
    unknown. Each setting is judged with the others unchanged.
    """
    choices = [
        choice
        for choose in (_advise_threads, _advise_packs, _advise_precision, _advise_device)
        if (choice := choose(rows, machine)) is not None
    ]
    if not choices:
        return GainAdvice("too little was timed to advise anything.")
    overrides = tuple(choice.override for choice in choices if choice.override is not None)
    reasons = "; ".join(choice.reason for choice in choices)
    return GainAdvice(f"To get most trials done: {' '.join(overrides)} ({reasons}).", overrides)


def _advise_threads(
    rows: Sequence[TimingRow], machine: ParallelismLimits
) -> _AdvisedOverride | None:
    """Advise the number of threads with the most trials an hour. More threads mean fewer trials
    side by side."""
    host = [row for row in rows if row.device.on_host]
    counts = sorted({row.timing.way.n_threads for row in host})
    found = {n: _gain(host, lambda way, n=n: way.n_threads == n) for n in counts}  # type: ignore[misc]
    gains = {n: times for n, times in found.items() if times is not None}
    if len(gains) < 2:
        return None
    at_once = {n: max(1, min(machine.n_cores // n, machine.most_at_once)) for n in gains}
    best = max(gains, key=lambda n: gains[n] * at_once[n])
    if gains[best] * at_once[best] < MIN_GAIN * at_once[1]:
        best = 1
    other = best if best > 1 else max(gains)
    reason = (
        f"{other} threads train a trial {gains[other]:.2g} times as fast as one, and "
        f"{at_once[other]} at once in place of {at_once[1]}"
    )
    return _AdvisedOverride(f"execution.threads_per_trial={best}", reason)


def _advise_packs(rows: Sequence[TimingRow], machine: ParallelismLimits) -> _AdvisedOverride | None:
    here = _fastest_device(rows, machine)
    times = _gain(here, lambda way: way.n_lanes > 1)
    if times is None:
        return None
    use_packs = times * MIN_GAIN >= 1  # packs are the default unless they lose
    return _AdvisedOverride(
        f"execution.pack={'auto' if use_packs else 'none'}",
        f"packs train {times:.2g} times as fast as one after another",
    )


def _advise_precision(
    rows: Sequence[TimingRow], machine: ParallelismLimits
) -> _AdvisedOverride | None:
    here = _fastest_device(rows, machine)
    times = _gain(here, lambda way: way.precision is Precision.bfloat16)
    if times is None:
        return None
    base = here[0].timing.way.precision
    reason = f"bfloat16 trains {times:.2g} times as fast as {base.value}"
    if machine.precision_stays:
        return _AdvisedOverride(None, f"{reason}, which only a new study can change")
    chosen = Precision.bfloat16 if times >= MIN_GAIN else base
    return _AdvisedOverride(f"training.precision={chosen.value}", reason)


def _advise_device(
    rows: Sequence[TimingRow], machine: ParallelismLimits
) -> _AdvisedOverride | None:
    """Compare the GPU, with one trial or pack at a time, to all cores of the CPU."""
    if all(row.device.on_host for row in rows):
        return None
    best = _fastest_device(rows, machine)
    on_host = best[0].device.on_host
    return _AdvisedOverride(
        f"devices.only={'cpu' if on_host else 'auto'}",
        f"the {best[0].device.name} gets more done than the others, where a GPU is counted with "
        "one trial at a time",
    )


def _fastest_device(rows: Sequence[TimingRow], machine: ParallelismLimits) -> Sequence[TimingRow]:
    """Return the rows of the device with the most trials an hour in its best way."""
    groups = [
        [row for row in rows if row.device == device]
        for device in dict.fromkeys(row.device for row in rows)
    ]

    def rate(group: Sequence[TimingRow]) -> float:
        at_once = min(machine.n_cores, machine.most_at_once) if group[0].device.on_host else 1
        names = dict.fromkeys(row.size.name for row in rows)
        costs = [
            min((_cost(row.timing, rows) for row in group if row.size.name == name), default=None)
            for name in names
        ]
        return at_once / sum(costs) if all(costs) else 0.0  # type: ignore[arg-type]

    return max(groups, key=rate)


def _gain(rows: Sequence[TimingRow], chosen: Callable[[TrainingWay], bool]) -> float | None:
    """Return how many times as fast the best `chosen` way is as the first way, over all sizes. None
    if no size has such a way.

    Sizes without such a way do not count.
    """
    before = after = 0.0
    for name in dict.fromkeys(row.size.name for row in rows):
        group = [row.timing for row in rows if row.size.name == name]
        costs = [_cost(t, rows) for t in group if t.step_seconds is not None and chosen(t.way)]
        if costs and group[0].step_seconds is not None:
            before += _cost(group[0], rows)
            after += min(costs)
    return before / after if after else None


def _cost(timing: TrainingTiming, rows: Sequence[TimingRow]) -> float:
    """Return the seconds of a trial if they are known for all rows, or else of a step."""
    timed = [row.timing for row in rows if row.timing.step_seconds is not None]
    if all(t.trial_seconds is not None for t in timed):
        return timing.trial_seconds or float("inf")
    return timing.step_seconds or float("inf")


def serial_share(points: Sequence[tuple[int, float]]) -> float | None:
    """Return the serial share of the work from (n, seconds with n threads or lanes), from 0 to 1.
    None with fewer than two counts.

    The seconds are fitted as t(n) = a + b / n by least squares. a / (a + b) is the share of t(1)
    that no number of threads takes away (G. M. Amdahl, Validity of the single processor approach to
    achieving large scale computing capabilities, AFIPS 1967). If more threads take longer, nothing
    shrinks, and the share is 1.
    """
    if len({n for n, _ in points}) < 2:
        return None
    b, a = linear_regression([1 / n for n, _ in points], [seconds for _, seconds in points])
    if b <= 0:
        return 1.0
    return max(0.0, a) / (max(0.0, a) + b)


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
    base = timings[0].way
    for count in ("n_threads", "n_lanes"):
        points = [
            (int(getattr(t.way, count)), t.step_seconds)
            for t in timings
            if t.step_seconds is not None
            and replace(t.way, **{count: getattr(base, count)}) == base
        ]
        most = max((n for n, _ in points), default=1)
        if getattr(timing.way, count) == most > 1:
            return serial_share(points)
    return None


def run(call: CommandCall) -> int:
    """Print a table and a sentence of advice. Raises AutoMLError."""
    if not call.config.space:
        raise ConfigError(
            "space: it is empty, so that there is no trial to time. Choose one, such as "
            "space=mlp, or name params: space.width=32,64"
        )
    _refuse_untimed(call.config)
    preload_fork_server("automl.measure.gain.child")  # runs while this process prepares the trials
    # Here every training is a process that can be ended, whatever `execution` a sweep would use.
    execution = replace(call.config.execution, kind=ExecutionKind.workers)
    prepared = prepare_study(replace(call.config, execution=execution))
    for note in prepared.notes:
        open_console().say(fit_line(note))
    rows, advice = print_gain_report(prepared)
    write_answer({"timings": rows, "advice": advice})
    return 0


def _refuse_untimed(config: Config) -> None:
    """Raise ConfigError for an objective whose steps nobody can time."""
    check_setting(
        config.objective.kind is not ObjectiveKind.command,
        "objective",
        "command",
        "gain times single steps, and a program shows none. Ask it of a function of your own "
        "(objective=python), or of the built-in training.",
    )
    check_setting(
        config.objective.kind is not ObjectiveKind.outside,
        "objective",
        "outside",
        "its trials run elsewhere, so that there is nothing to time.",
    )


def print_gain_report(prepared: PreparedStudy) -> tuple[Sequence[TimingRow], str]:
    """Time the ways, print table and advice, and return both. Raises AutoMLError, also if nothing
    could be timed."""
    config = prepared.config
    _refuse_untimed(config)
    console = open_console()
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
    return rows, advice


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
    def work(params: Params) -> int | None:
        return prepared.plan.request(params, prepared.dataset).memory_bytes

    return distinct_sizes(prepared.space, work)


def tasks_of(
    prepared: PreparedStudy, devices: tuple[TimedDevice, ...], found: tuple[TrialSize, ...]
) -> list[TimingTask]:
    def task(device: TimedDevice, size: TrialSize) -> TimingTask:
        n_cores, pack = usable_cores(), prepared.config.execution.pack
        chosen = ways_to_time(
            prepared.plan, size.params, on_host=device.on_host, n_cores=n_cores, pack=pack
        )
        return TimingTask(device, size, chosen)

    return [task(device, size) for device in devices for size in found]


def machine_of(config: Config) -> ParallelismLimits:
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
