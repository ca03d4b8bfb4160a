"""Writes nine studies, one of each kind that a report has to show."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from automl.trial import (
    Event,
    FailedOutcome,
    FinishedOutcome,
    MemoryPeakMeasured,
    MetricsReported,
    ParamValue,
    PrunedOutcome,
    SweepEnded,
    TrialStarted,
)
from tests.report.studies import BEGUN, SETTINGS, searched, write_study

N_EPOCHS, N_AT_ONCE, GIB = 20, 4, 2**30
DEVICES = ("GPU 0", "GPU 1")
RUNGS = {2: 0.35, 6: 0.15}
"""The excess over the best loss with which a trial is stopped, by the step of the rung."""
SEVERAL = {"study.metric": "val_loss, seconds", "study.direction": "minimize, minimize"}
TABLE = Path("tests/stored_studies/studies/any_family")


def draw_params(draw: random.Random) -> dict[str, ParamValue]:
    """Return params of a random search: numbers, and categories of few and of many words."""
    return {
        "lr": 10 ** draw.uniform(-4, -1),
        "width": int(8 * 64 ** draw.random()),
        "depth": draw.randint(1, 6),
        "dropout": draw.uniform(0, 0.5),
        "optimizer": draw.choice(["sgd", "adam", "lion"]),
        "batch_size": draw.choice([32, 64, 128]),
    }


def events_of_trial(number: int, begun: float, draw: random.Random) -> Iterator[Event]:
    """Yield the events of one trial; the last one is its outcome."""
    params = draw_params(draw)
    lr, width = params["lr"], params["width"]
    assert isinstance(lr, float), "drawn as one"
    assert isinstance(width, int), "drawn as one"
    excess = 0.3 * (math.log10(lr) + 2) ** 2 + abs(width - 100) / 2000
    yield TrialStarted(number, begun, params, DEVICES[number % len(DEVICES)])
    if draw.random() < 0.04:
        yield FailedOutcome(number, begun + 3, f"ValueError: lr={lr:.3g} is too large")
        return
    held = int((2 + width / 100) * GIB)
    yield MemoryPeakMeasured(number, begun + 1, held, predicted_bytes=held + GIB)
    best = math.inf
    for step in range(N_EPOCHS):
        loss = 0.02 + excess + 0.6 * math.exp(-step / 5) + 0.01 * draw.random()
        best = min(best, loss)
        yield MetricsReported(number, begun + 1 + step, step, {"val_loss": loss})
        if excess > RUNGS.get(step, math.inf):
            yield PrunedOutcome(number, begun + 2 + step, step, best)
            return
    yield FinishedOutcome(number, begun + 1 + N_EPOCHS, best)


def random_search(n_trials: int) -> Iterator[Event]:
    """Yield the events of a search of six params, four trials at once on two devices."""
    draw, free = random.Random(0), [BEGUN] * N_AT_ONCE
    for number in range(n_trials):
        place = min(range(N_AT_ONCE), key=free.__getitem__)
        for event in events_of_trial(number, free[place], draw):
            yield event
            free[place] = event.time
    yield SweepEnded(max(free), True, {}, 0, 0.1)


def several_metrics(n_trials: int) -> Iterator[Event]:
    """Yield the events of trials whose loss falls with the seconds that they take."""
    draw = random.Random(0)
    for number in range(n_trials):
        width, lr = draw.randint(8, 256), 10 ** draw.uniform(-4, -1)
        seconds = width / 40 + draw.random()
        loss = 0.1 + 8 / width + 0.1 * abs(math.log10(lr) + 2)
        begun = BEGUN + 10 * number
        values = {"val_loss": loss, "seconds": seconds}
        yield TrialStarted(number, begun, {"width": width, "lr": lr}, "cpu")
        for step in range(5):
            yield MetricsReported(number, begun + step, step, {"val_loss": loss + 0.2 / (step + 1)})
        yield FinishedOutcome(number, begun + 5, loss, values=values)
    yield SweepEnded(BEGUN + 10 * n_trials, True, {}, 0, 0.1)


def repeats(n_trials: int) -> Iterator[Event]:
    """Yield the events of trials of three trainings each."""
    draw = random.Random(0)
    for event in searched(n_trials):
        if isinstance(event, FinishedOutcome):
            parts = tuple(event.value + draw.gauss(0, 0.05) for _ in range(3))
            yield FinishedOutcome(event.trial, event.time, sum(parts) / 3, parts)
        elif isinstance(event, MetricsReported):
            spread = {"val_loss_se": 0.03}
            yield MetricsReported(event.trial, event.time, event.step, {**event.metrics, **spread})
        else:
            yield event
    yield SweepEnded(BEGUN + 10 * n_trials, True, {}, 0, 0.1)


def interrupted(n_trials: int) -> Iterator[Event]:
    """Yield the events of a search that was killed in its last trial."""
    yield from random_search(n_trials - 1)
    yield TrialStarted(n_trials, BEGUN + 1_000, draw_params(random.Random(1)), "GPU 0")


def all_failed(n_trials: int) -> Iterator[Event]:
    for number in range(n_trials):
        begun = BEGUN + 10 * number
        yield TrialStarted(number, begun, {"lr": 0.01 * (number + 1)}, "cpu")
        yield FailedOutcome(number, begun + 3, "ValueError: the table has no rows")


def table_study(path: Path) -> Path:
    """Copy the log of a study of a table with folds, an ensemble and a refit."""
    path.mkdir(parents=True)
    for name in ("config.yaml", "events.log"):
        (path / name).write_bytes((TABLE / name).read_bytes())
    return path


def _made(
    events: Callable[[int], Iterator[Event]], n_trials: int, more: Mapping[str, str] | None = None
) -> StudyWriter:
    settings = {**SETTINGS, **(more or {}), "study.n_trials": str(n_trials)}
    return lambda path: write_study(path, events(n_trials), settings)


StudyWriter = Callable[[Path], Path]
STUDY_KINDS: Mapping[str, StudyWriter] = {
    "20": _made(random_search, 20),
    "300": _made(random_search, 300),
    "table": table_study,
    "metrics": _made(several_metrics, 40, SEVERAL),
    "repeats": _made(repeats, 30),
    "interrupted": _made(interrupted, 12),
    "failed": _made(all_failed, 6),
    "one": _made(random_search, 1),
    "10000": _made(random_search, 10_000),
}
"""Writes a study of each kind at a path, and returns the path."""
