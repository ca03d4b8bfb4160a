"""Measures the size of a study's report, and the time to make it.

    python experiments/023-report/report.py --trials 300 10000

Each study is an event log of a random search that is written here: six params, twenty epochs, four
trials at once on two devices, a few failures, pruned trials. See README.md.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import optuna  # noqa: F401 - a sweep has loaded it when it makes its report

from automl.record.event_log import encode_event
from automl.running.features.report_page import make_report
from automl.trial import (
    Event,
    FailedOutcome,
    FinishedOutcome,
    MemoryPeakMeasured,
    MetricsReported,
    ParamValue,
    PrunedOutcome,
    SweepStarted,
    TrialStarted,
)

N_EPOCHS, N_AT_ONCE, BEGUN, GIB = 20, 4, 1.7e9, 2**30
DEVICES = ("GPU 0", "GPU 1")
RUNGS = {2: 0.35, 6: 0.15}
"""The excess over the best loss with which a trial is stopped, by the step of the rung."""
SETTINGS = {
    "study.metric": "val_loss",
    "study.direction": "minimize",
    "space.lr.low": "0.0001",
    "space.lr.high": "0.1",
    "space.lr.log": "True",
}


def draw_params(draw: random.Random) -> dict[str, ParamValue]:
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


def write_study(path: Path, n_trials: int) -> None:
    """Write the event log of a study at `path`."""
    path.mkdir()
    (path / "config.yaml").touch()
    draw, free = random.Random(0), [BEGUN] * N_AT_ONCE
    with (path / "events.log").open("wb") as log:
        log.write(encode_event(SweepStarted(BEGUN, path.name, "0" * 32, SETTINGS)))
        for number in range(n_trials):
            place = min(range(N_AT_ONCE), key=free.__getitem__)
            for event in events_of_trial(number, free[place], draw):
                log.write(encode_event(event))
                free[place] = event.time


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, nargs="+", default=[300, 10_000])
    asked = parser.parse_args()
    sys.stdout.write("| trials | kB | CPU s |\n|---|---|---|\n")
    for n_trials in asked.trials:
        with TemporaryDirectory() as folder:
            study = Path(folder) / "study"
            write_study(study, n_trials)
            begun = time.process_time()
            page = make_report(study)
            seconds = time.process_time() - begun
            size = page.stat().st_size / 1e3
        sys.stdout.write(f"| {n_trials:,} | {size:,.0f} | {seconds:.2f} |\n")


if __name__ == "__main__":
    main()
