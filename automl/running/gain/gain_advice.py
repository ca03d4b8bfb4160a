"""One sentence of advice from what was timed. Pure.

The share of the work that does not shrink. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import linear_regression

from automl.config import Precision
from automl.measure.gain.gain_messages import TrainingTiming, TrainingWay
from automl.running.gain.gain_measurement import TimingRow

WORTH = 1.1
"""A gain below is not worth a change: times differ by so much from one look to the next."""


@dataclass(frozen=True)
class ParallelismLimits:
    """What bounds how many trials run side by side."""

    n_cores: int
    most_at_once: int
    precision_stays: bool = False
    """The study is there, and none of what its trials train by may change."""


@dataclass(frozen=True)
class GainAdvice:
    """The sentence, and the overrides in it."""

    text: str
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True)
class _AdvisedOverride:
    override: str | None
    """None: nothing can be set."""
    reason: str


def advise(rows: Sequence[TimingRow], machine: ParallelismLimits) -> GainAdvice:
    """What gets most trials done: by threads, packs, precision and device.

    Trials of all sizes count alike, by the time of a whole one, or of a step where nobody knows how
    long one is. Each is judged with the others as they are.
    """
    choices = [
        choice
        for choose in (_threads, _packs, _precision, _device)
        if (choice := choose(rows, machine)) is not None
    ]
    if not choices:
        return GainAdvice("too little was timed to advise anything.")
    overrides = tuple(choice.override for choice in choices if choice.override is not None)
    reasons = "; ".join(choice.reason for choice in choices)
    return GainAdvice(f"To get most trials done: {' '.join(overrides)} ({reasons}).", overrides)


def _threads(rows: Sequence[TimingRow], machine: ParallelismLimits) -> _AdvisedOverride | None:
    """The count with the most trials an hour: with more threads fewer run side by side."""
    host = [row for row in rows if row.device.on_host]
    counts = sorted({row.timing.way.n_threads for row in host})
    gains = {n: times for n in counts if (times := _gain_of_threads(host, n)) is not None}
    if len(gains) < 2:
        return None
    at_once = {n: max(1, min(machine.n_cores // n, machine.most_at_once)) for n in gains}
    best = max(gains, key=lambda n: gains[n] * at_once[n])
    if gains[best] * at_once[best] < WORTH * at_once[1]:
        best = 1
    other = best if best > 1 else max(gains)
    reason = (
        f"{other} threads train a trial {gains[other]:.2g} times as fast as one, and "
        f"{at_once[other]} at once in place of {at_once[1]}"
    )
    return _AdvisedOverride(f"execution.threads_per_trial={best}", reason)


def _gain_of_threads(rows: Sequence[TimingRow], n: int) -> float | None:
    return _gain(rows, lambda way: way.n_threads == n)


def _packs(rows: Sequence[TimingRow], machine: ParallelismLimits) -> _AdvisedOverride | None:
    here = _fastest_device(rows, machine)
    times = _gain(here, lambda way: way.n_lanes > 1)
    if times is None:
        return None
    on = times * WORTH >= 1  # the default, unless it loses
    return _AdvisedOverride(
        f"execution.pack={'auto' if on else 'off'}",
        f"packs train {times:.2g} times as fast as one after another",
    )


def _precision(rows: Sequence[TimingRow], machine: ParallelismLimits) -> _AdvisedOverride | None:
    here = _fastest_device(rows, machine)
    times = _gain(here, lambda way: way.precision is Precision.bfloat16)
    if times is None:
        return None
    base = here[0].timing.way.precision
    reason = f"bfloat16 trains {times:.2g} times as fast as {base.value}"
    if machine.precision_stays:
        return _AdvisedOverride(None, f"{reason}, which only a new study can change")
    chosen = Precision.bfloat16 if times >= WORTH else base
    return _AdvisedOverride(f"training.precision={chosen.value}", reason)


def _device(rows: Sequence[TimingRow], machine: ParallelismLimits) -> _AdvisedOverride | None:
    """The GPU with one trial, or pack, at a time against all cores of the CPU."""
    if all(row.device.on_host for row in rows):
        return None
    best = _fastest_device(rows, machine)
    on_host = best[0].device.on_host
    return _AdvisedOverride(
        f"devices={'host' if on_host else 'auto'}",
        f"the {best[0].device.name} gets more done than the others, where a GPU is counted with "
        "one trial at a time",
    )


def _fastest_device(rows: Sequence[TimingRow], machine: ParallelismLimits) -> Sequence[TimingRow]:
    """The rows of the device with the most trials an hour in its best way of all."""
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
    """How many times as fast a trial of each size is done in the best way that is `chosen`, as in
    its first way; over the sizes for which there is such a way. None: there is none."""
    before = after = 0.0
    for name in dict.fromkeys(row.size.name for row in rows):
        group = [row.timing for row in rows if row.size.name == name]
        costs = [_cost(t, rows) for t in group if t.step_seconds is not None and chosen(t.way)]
        if costs and group[0].step_seconds is not None:
            before += _cost(group[0], rows)
            after += min(costs)
    return before / after if after else None


def _cost(timing: TrainingTiming, rows: Sequence[TimingRow]) -> float:
    """Seconds of a trial, where they are known of all; else of a step."""
    timed = [row.timing for row in rows if row.timing.step_seconds is not None]
    if all(t.trial_seconds is not None for t in timed):
        return timing.trial_seconds or float("inf")
    return timing.step_seconds or float("inf")


def serial_share(points: Sequence[tuple[int, float]]) -> float | None:
    """0 to 1, of (n, seconds with n threads or lanes); None: fewer than two counts.

    The seconds are taken as t(n) = a + b / n, fitted by least squares, and a / (a + b) is the share
    of t(1) that no number of threads takes away (G. M. Amdahl, Validity of the single processor
    approach to achieving large scale computing capabilities, AFIPS 1967). Where more of them take
    longer nothing shrinks: 1.
    """
    if len({n for n, _ in points}) < 2:
        return None
    b, a = linear_regression([1 / n for n, _ in points], [seconds for _, seconds in points])
    if b <= 0:
        return 1.0
    return max(0.0, a) / (max(0.0, a) + b)
