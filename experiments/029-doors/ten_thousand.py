"""How long does `from=` take for 10,000 trials?

Writes `old.db` (as Optuna 5 lays it out; by Optuna itself it would take minutes) and a function to
the current folder; the sweep that begins with it is timed by hand:

    python experiments/029-doors/ten_thousand.py 10000
    time python -m automl from=old.db:big train=my.py:train n_trials=10001 name=moved
"""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import optuna
from optuna.distributions import (
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
    distribution_to_json,
)

OPTIMIZERS = ["sgd", "adam"]
DISTRIBUTIONS = {
    "lr": distribution_to_json(FloatDistribution(1e-5, 1e-1, log=True)),
    "depth": distribution_to_json(IntDistribution(2, 8)),
    "width": distribution_to_json(IntDistribution(16, 512, log=True)),
    "optimizer": distribution_to_json(CategoricalDistribution(OPTIMIZERS)),
}
FUNCTION = "def train(lr, depth, width, optimizer):\n    return lr + depth / width\n"
TABLES = {
    "trials": "trial_id,number,study_id,state,datetime_start,datetime_complete",
    "trial_params": "trial_id,param_name,param_value,distribution_json",
    "trial_values": "trial_id,objective,value,value_type",
    "trial_user_attributes": "trial_id,key,value_json",
    "trial_intermediate_values": ("trial_id,step,intermediate_value,intermediate_value_type"),
}


def main() -> None:
    n_trials, begin = int(sys.argv[1]), datetime(2026, 1, 1)
    rng = np.random.default_rng(0)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    optuna.create_study(study_name="big", storage="sqlite:///old.db")
    rows: dict[str, list[tuple[object, ...]]] = {table: [] for table in TABLES}
    for n in range(n_trials):
        key, start, value = n + 1, begin + timedelta(minutes=n), float(rng.random())
        end = start + timedelta(minutes=1)
        rows["trials"].append((key, n, 1, "COMPLETE", f"{start}.000000", f"{end}.000000"))
        values: tuple[float, ...] = (
            10 ** rng.uniform(-5, -1),
            int(rng.integers(2, 9)),
            int(rng.integers(16, 513)),
            n % 2,
        )
        rows["trial_params"] += [
            (key, name, float(param), text)
            for (name, text), param in zip(DISTRIBUTIONS.items(), values, strict=True)
        ]
        rows["trial_values"].append((key, 0, value, "FINITE"))
        rows["trial_user_attributes"].append((key, "host", json.dumps("node-0")))
        rows["trial_intermediate_values"] += [
            (key, step, value + 1 / (step + 1), "FINITE") for step in range(3)
        ]
    with closing(sqlite3.connect("old.db")) as database, database:
        for table, columns in TABLES.items():
            places = ",".join("?" * len(columns.split(",")))
            database.executemany(f"INSERT INTO {table} ({columns}) VALUES ({places})", rows[table])
    Path("my.py").write_text(FUNCTION)


if __name__ == "__main__":
    main()
