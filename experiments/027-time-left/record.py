"""Records when the trials of twenty sweeps start and end.

$ python experiments/027-time-left/record.py /tmp/recorded > experiments/027-time-left/sweeps.json

Most trials only sleep, so that any machine records in some minutes what sweeps of hours look like:
trials of one length, of random lengths, that depend on their params, that pruners end, that fail.
"""

from __future__ import annotations

import json
import math
import os
import random
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import automl
from automl.record.event_log import read_events
from automl.trial import TrialOutcome, TrialStarted

SPACE = {"x": {"low": 0.0, "high": 1.0}}
N_STEPS = 9


def seconds_of(law: str, x: float, seed: int) -> float:
    """Return how long a whole trial takes."""
    chance = random.Random(f"{x} {seed}")
    if law == "random":
        return chance.lognormvariate(0.0, 0.8)
    return {"equal": 1.0, "by x": 0.2 + 2 * x, "steep": math.exp(3 * x - 1.5)}[law]


def make(law: str, seed: int, fails: float) -> Callable[[automl.TrialContext], None]:
    def train(trial: automl.TrialContext) -> None:
        x = float(trial.params["x"])
        state = trial.restore()
        for step in range(0 if state is None else state["step"] + 1, N_STEPS):
            time.sleep(seconds_of(law, x, seed) / N_STEPS)
            if step == 4 and random.Random(f"{x}").random() < fails:
                raise ValueError(f"fails at {x}")
            loss = (x - 0.3) ** 2 + 1 / (step + 1)
            trial.report(step, {"val_loss": loss}, checkpoint=partial(dict, step=step))

    return train


SWEEPS: list[dict[str, Any]] = [
    *({"law": law, "at_once": n} for law in ("equal", "random", "by x", "steep") for n in (1, 4)),
    *({"law": "random", "at_once": 2, "pruner": p} for p in ("median", "halving", "asha")),
    *({"law": "by x", "at_once": 4, "pruner": p} for p in ("median", "halving", "asha")),
    {"law": "equal", "at_once": 16, "n_trials": 80},
    {"law": "random", "at_once": 16, "n_trials": 80},
    {"law": "by x", "at_once": 2, "sampler": "tpe"},
    {"law": "random", "at_once": 2, "fails": 0.4},
    {"law": "equal", "at_once": 1, "n_trials": 8},
    {"law": "steep", "at_once": 2, "sampler": "tpe", "pruner": "median"},
]


def record(number: int) -> Mapping[str, Any]:
    how = SWEEPS[number]
    n_trials, name = how.get("n_trials", 30), f"recorded-{number}"
    automl.sweep(
        make(how["law"], number, how.get("fails", 0.0)),
        SPACE,
        n_trials=n_trials,
        sampler=how.get("sampler", "random"),
        pruner=how.get("pruner", "none"),
        name=name,
        overrides=[
            "execution=inline",
            "devices.only=cpu",
            "tracking.uri=none",
            f"admission.max_concurrent_trials={how['at_once']}",
            f"study.seed={number}",
        ],
    )
    events = [event for event, _ in read_events(Path("studies") / name / "events.log")]
    began = min(e.time for e in events)
    kept = [
        (
            round(e.time - began, 3),
            e.trial,
            "started" if isinstance(e, TrialStarted) else e.state.value,
        )
        for e in events
        if isinstance(e, TrialStarted | TrialOutcome)
    ]
    return {"how": how, "n_trials": n_trials, "events": kept}


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True)
    os.chdir(folder)
    printed, sys.stdout = sys.stdout, sys.stderr
    with ProcessPoolExecutor(4) as pool:
        found = [*pool.map(record, range(len(SWEEPS)))]
    printed.write("[\n" + ",\n".join(json.dumps(sweep) for sweep in found) + "\n]\n")


if __name__ == "__main__":
    main()
