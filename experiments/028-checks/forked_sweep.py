"""Times sweeps of the tests whose programs are forked: CPU and wall seconds of each.

    .venv/bin/python experiments/028-checks/forked_sweep.py [disc|auto] [--n 4]

Like `cost_plugin.py` it needs root and cgroup v1's `cpuacct`. The first sweep also starts the warm
servers, so it is left out of what counts.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from automl.tracking.mlflow_loading import set_mlflow_defaults
from automl.tracking.mlflow_store import make_mlflow_database
from tests.end_to_end.program import Program, objective_words
from tests.end_to_end.tables import AUTO, wine_like
from tests.network_guard import GUARD
from tests.network_guard.sitecustomize import LOG
from tests.warm import warm_programs

GROUP = Path("/sys/fs/cgroup/cpuacct/forked-sweeps")
SWEEPS = {
    "disc": (
        *("devices.only=cpu", "study.n_trials=4", "sampler=random", "pruner=none"),
        *objective_words("speaks"),
    ),
    "auto": AUTO,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", nargs="?", choices=SWEEPS, default="disc")
    parser.add_argument("--n", type=int, default=4, help="number of sweeps that count")
    asked = parser.parse_args()
    GROUP.mkdir(exist_ok=True)
    (GROUP / "cgroup.procs").write_text(str(os.getpid()))
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "mlflow.db"
        (Path(folder) / "network.log").touch()
        os.environ |= {LOG: f"{folder}/network.log", "PYTHONPATH": GUARD}
        set_mlflow_defaults(os.environ)
        make_mlflow_database(database)
        with warm_programs(database):
            for number in range(asked.n + 1):
                cpu, wall = time_sweep(Path(folder) / f"{number}", database, asked)
                first = "" if number else "  (starts the servers)"
                sys.stdout.write(f"{number}: {cpu:.2f} CPU s, {wall:.2f} s{first}\n")


def time_sweep(folder: Path, database: Path, asked: argparse.Namespace) -> tuple[float, float]:
    folder.mkdir()
    shutil.copyfile(database, folder / "mlflow.db")
    if asked.kind == "auto":
        wine_like().to_csv(folder / "wine.csv", index=False)
    cpu, wall = cpu_seconds(), time.monotonic()
    done = Program(folder).start("study.name=a", *SWEEPS[asked.kind]).wait()
    assert done.code == 0, done.stderr
    return cpu_seconds() - cpu, time.monotonic() - wall


def cpu_seconds() -> float:
    return int((GROUP / "cpuacct.usage").read_text()) / 1e9


if __name__ == "__main__":
    main()
