"""Writes the event logs of small studies, of which the tests make reports."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from automl.record.event_log import encode_event
from automl.trial import (
    Event,
    FinishedOutcome,
    MemoryPeakMeasured,
    MetricsReported,
    Params,
    ParamValue,
    PrunedOutcome,
    SweepStarted,
    TrialStarted,
)

BEGUN = 1_700_000_000.0
SETTINGS = {
    "study.metric": "val_loss",
    "study.direction": "minimize",
    "study.n_trials": "20",
    "space.lr.low": "0.0001",
    "space.lr.high": "0.1",
    "space.lr.log": "True",
}


def write_study(
    path: Path, events: Iterable[Event], settings: Mapping[str, str] = SETTINGS
) -> Path:
    """Write a study with one sweep and these events at `path`; return the path."""
    path.mkdir(parents=True)
    (path / "config.yaml").write_text("study: {}\n")
    started = SweepStarted(BEGUN, path.name, "0" * 32, settings)
    (path / "events.log").write_bytes(b"".join(map(encode_event, [started, *events])))
    return path


def good_lr(params: Params) -> float:
    """Return a loss that is least for lr = 0.01, and depends on nothing else."""
    lr = params["lr"]
    assert isinstance(lr, float)
    return 0.1 + (math.log10(lr) + 2) ** 2


FAMILIES = {
    "boosting": ("learning_rate", "l2_regularization", "max_features", "subsample", "min_rows"),
    "trees": ("depth", "leaf"),
    "mlp": ("lr", "width"),
}
"""The params that only trials of a family have; their names begin with it."""


def searched_families(n_trials: int, name: str = "n") -> Iterable[Event]:
    """Yield the events of trials of several families, with params of their own, of two params with
    a dotted name, and of one called `name`. Those of `mlp` take three times as long."""
    draw = random.Random(1)
    for number in range(n_trials):
        family = draw.choice([*FAMILIES])
        params: dict[str, ParamValue] = {
            "family": family,
            "optimizer.name": draw.choice(["adam", "sgd"]),
            "optimizer.weight_decay": 10 ** draw.uniform(-6, -2),
            name: draw.randint(1, 9),
        }
        params |= {f"{family}_{own}": draw.uniform(0, 1) for own in FAMILIES[family]}
        value, pace = draw.uniform(0.1, 1), 1.5 if family == "mlp" else 0.5
        begun = BEGUN + 10 * number
        yield TrialStarted(number, begun, params, "cpu")
        for step in range(6):
            metrics = {"val_loss": value + 1 / (step + 1)}
            yield MetricsReported(number, begun + (step + 1) * pace, step, metrics)
        yield FinishedOutcome(number, begun + 6 * pace, value)


def searched(
    n_trials: int, loss: Callable[[Params], float] = good_lr, *, metric: str = "val_loss"
) -> Iterable[Event]:
    """Yield the events of a random search; the worse trials are pruned at step 2 of 8."""
    draw = random.Random(0)
    for number in range(n_trials):
        params = {"lr": 10 ** draw.uniform(-4, -1), "width": draw.randint(8, 64)}
        begun, value = BEGUN + 10 * number, loss(params)
        yield TrialStarted(number, begun, params, "cpu")
        yield MemoryPeakMeasured(number, begun, 2**20, predicted_bytes=2**21)
        n_steps = 8 if value < 1 else 3
        for step in range(n_steps):
            yield MetricsReported(number, begun + step, step, {metric: value + 1 / (step + 1)})
        end, best = begun + n_steps, value + 1 / n_steps
        if n_steps == 8:
            yield FinishedOutcome(number, end, best)
        else:
            yield PrunedOutcome(number, end, 2, best)
