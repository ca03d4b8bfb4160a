"""256 small trials on a Ray cluster of two nodes: against worker processes, and against Ray Tune.

What is trained, and how the peer trains it, is that of 001-throughput. Each contender is a whole
process in an empty folder, one after another, round by round; the cluster is there before.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

THROUGHPUT = Path(__file__).resolve().parents[1] / "001-throughput"
_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # its nodes are on loopback
    "PYTHONPATH": os.pathsep.join([str(THROUGHPUT.parents[1]), str(THROUGHPUT)]),
}


@contextmanager
def cluster() -> Iterator[str]:
    """Its address."""
    command = [sys.executable, str(Path(__file__).with_name("cluster.py"))]
    with subprocess.Popen(command, stdin=-1, stdout=-1, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        yield process.stdout.readline().decode().strip()
        process.stdin.close()


def commands(address: str, n_trials: int) -> dict[str, list[str]]:
    """Of each contender, by name."""
    options = ["--config-dir", str(THROUGHPUT / "conf"), "--config-name", "throughput"]
    sweep = [sys.executable, "-m", "automl", *options, f"study.n_trials={n_trials}"]
    on_ray = ["execution=ray", f"ray.address={address}"]
    tune = [sys.executable, str(THROUGHPUT / "ray_mlflow.py"), "--trials", str(n_trials)]
    return {
        "workers, packs": [*sweep, "execution=workers"],
        "ray, packs": [*sweep, *on_ray],
        "workers, off": [*sweep, "execution=workers", "execution.pack=off"],
        "ray, off": [*sweep, *on_ray, "execution.pack=off"],
        "Ray Tune": [*tune, "--address", address],
    }


def seconds(command: list[str]) -> float:
    """From start to end, in an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        done = subprocess.run(
            command,
            cwd=folder,
            env=os.environ | _ENVIRONMENT,
            capture_output=True,
            text=True,
            check=False,
        )
        took = time.perf_counter() - began
    if done.returncode != 0:
        raise SystemExit(f"exit {done.returncode}: {' '.join(command)}\n{done.stderr[-2000:]}")
    return took


def write(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> None:
    names = list(commands("", 1))
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--trials", type=int, default=256)
    arguments.add_argument("--only", nargs="+", choices=names, default=names)
    args = arguments.parse_args()
    took: dict[str, list[float]] = defaultdict(list)
    for n_round in range(args.rounds):
        for name in args.only:
            with cluster() as address:
                took[name].append(seconds(commands(address, args.trials)[name]))
            write(f"round {n_round}: {name} {took[name][-1]:.1f} s")
    for name, found in took.items():
        each = ", ".join(f"{one:.1f}" for one in found)
        write(f"| {name} | {statistics.median(found):.1f} | {each} |")


if __name__ == "__main__":
    main()
