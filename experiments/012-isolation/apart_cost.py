"""What keeping trials apart costs each of them: see README.md."""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import statistics
import sys
import time
from collections.abc import Callable

import torch

from automl.execution.trial_isolation import WorkerIsolation

LIBRARIES = ("matplotlib.pyplot", "mlflow", "pandas", "sklearn.ensemble", "tqdm")
"""As a trial may have imported them: what is looked at grows with their loggers and modules."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=300)
    n_trials = parser.parse_args().trials
    torch.set_num_threads(1)
    measure("torch alone, nothing changed", n_trials, lambda: None)
    measure("torch alone, all of it changed", n_trials, change_all)
    for library in LIBRARIES:
        importlib.import_module(library)
    torch.optim.SGD([torch.zeros(1, requires_grad=True)])  # imports what torch puts off
    loggers = len(logging.root.manager.loggerDict)
    sys.stdout.write(
        f"with {', '.join(LIBRARIES)}: {loggers} loggers, {len(sys.modules)} modules\n"
    )
    measure("with these, nothing changed", n_trials, lambda: None)
    measure("with these, all of it changed", n_trials, change_all)


def change_all() -> None:
    """As a careless trial does."""
    os.environ["EXPERIMENT_010"] = "1"
    os.chdir("/")
    sys.argv = ["train.py"]
    sys.path.insert(0, "/")
    logging.getLogger("train").addHandler(logging.NullHandler())
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    torch.set_num_threads(2)
    torch.set_grad_enabled(False)
    torch.use_deterministic_algorithms(True)
    torch.set_float32_matmul_precision("high")


def measure(what: str, n_trials: int, train: Callable[[], None]) -> None:
    """CPU time of one thread, less that of the trial itself."""
    apart = WorkerIsolation()
    took = []
    for _ in range(n_trials):
        begun = time.thread_time()
        with apart():
            trial = time.thread_time()
            train()
            trial = time.thread_time() - trial
        took.append(time.thread_time() - begun - trial)
    assert apart.process_is_reusable
    median, most = statistics.median(took), statistics.quantiles(took, n=100)[98]
    sys.stdout.write(f"{what}: {1000 * median:.2f} ms, 99 in 100 below {1000 * most:.2f} ms\n")


if __name__ == "__main__":
    main()
