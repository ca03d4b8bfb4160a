"""Turns timings into one sentence of advice, and computes the share of work that does not shrink.
Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import linear_regression

from automl.config import Precision
from automl.measure.gain.gain_messages import TrainingTiming, TrainingWay
from automl.running.gain.gain_measurement import TimingRow

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
    """The sentence of advice, and the overrides in it."""

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
        for choose in (_threads, _packs, _precision, _device)
        if (choice := choose(rows, machine)) is not None
    ]
    if not choices:
        return GainAdvice("too little was timed to advise anything.")
    overrides = tuple(choice.override for choice in choices if choice.override is not None)
    reasons = "; ".join(choice.reason for choice in choices)
    return GainAdvice(f"To get most trials done: {' '.join(overrides)} ({reasons}).", overrides)


def _threads(rows: Sequence[TimingRow], machine: ParallelismLimits) -> _AdvisedOverride | None:
    """Advise the number of threads with the most trials an hour. More threads mean fewer trials
    side by side."""
    host = [row for row in rows if row.device.on_host]
    counts = sorted({row.timing.way.n_threads for row in host})
    gains = {n: times for n in counts if (times := _gain_of_threads(host, n)) is not None}
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


def _gain_of_threads(rows: Sequence[TimingRow], n: int) -> float | None:
    return _gain(rows, lambda way: way.n_threads == n)


def _packs(rows: Sequence[TimingRow], machine: ParallelismLimits) -> _AdvisedOverride | None:
    here = _fastest_device(rows, machine)
    times = _gain(here, lambda way: way.n_lanes > 1)
    if times is None:
        return None
    use_packs = times * MIN_GAIN >= 1  # packs are the default unless they lose
    return _AdvisedOverride(
        f"execution.pack={'auto' if use_packs else 'off'}",
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
    chosen = Precision.bfloat16 if times >= MIN_GAIN else base
    return _AdvisedOverride(f"training.precision={chosen.value}", reason)


def _device(rows: Sequence[TimingRow], machine: ParallelismLimits) -> _AdvisedOverride | None:
    """Compare the GPU, with one trial or pack at a time, to all cores of the CPU."""
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
