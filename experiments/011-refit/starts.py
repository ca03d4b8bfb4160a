"""Times the start of two ranks: ours, torch.multiprocessing's and torch.distributed.launcher's."""

from __future__ import annotations

import importlib
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from torch.multiprocessing.spawn import spawn

MODULE, N_RANKS, N_TIMES = "automl.models.networks.network_estimator", 2, 5
CODE = f"import {MODULE}; print(flush=True); input()"


def ours() -> None:
    """As `parallel/launcher.py` starts them."""
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    ranks = [subprocess.Popen([sys.executable, "-c", CODE], **pipes) for _ in range(N_RANKS)]
    for rank in ranks:
        assert rank.stdout is not None
        rank.stdout.readline()
    for rank in ranks:
        rank.kill()
        rank.communicate()


def load(_rank: int = 0) -> None:
    importlib.import_module(MODULE)


def of_multiprocessing() -> None:
    spawn(load, nprocs=N_RANKS)  # type: ignore[no-untyped-call]


def of_launcher() -> None:
    settings: dict[str, Any] = {"rdzv_backend": "c10d", "rdzv_endpoint": "localhost:0"}
    config = LaunchConfig(1, 1, N_RANKS, run_id="starts", start_method="spawn", **settings)
    elastic_launch(config, load)()


def main() -> None:
    for start in (ours, of_multiprocessing, of_launcher):
        best = min(seconds_of(start) for _ in range(N_TIMES))
        sys.stdout.write(f"{start.__name__}: {best:.1f} s\n")


def seconds_of(start: Callable[[], None]) -> float:
    begun = time.perf_counter()
    start()
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
