"""256 small trials in packs: what does a database a millisecond away cost them? See README.md.

    PYTHONPATH=. python experiments/017-postgresql/latency.py --rounds 3

By turns: with a database a delay away, with one that a proxy without delay leads to, and without.
The delay is one for each question and its answer, put before the question.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from tests.postgres import Server, running_server

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CONFIG = HERE.parent / "001-throughput" / "conf"
DELAYS: dict[str, float | None] = {"own folder": None, "database": 0.0, "database, delayed": 1.0}
"""In milliseconds; None: no database."""


@contextmanager
def way_to(server: Server, delay_ms: float | None) -> Iterator[list[str]]:
    """The words that name a new database, by way of a proxy in a process of its own."""
    if delay_ms is None:
        yield []
        return
    words = [str(HERE / "proxy.py"), str(server.port), str(delay_ms / 1000)]
    with subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True) as proxy:
        assert proxy.stdout is not None
        port = proxy.stdout.readline().strip()
        url = server.url(server.new_database(), tcp=True)
        yield [f"study.storage='{url.replace(f':{server.port}/', f':{port}/')}'"]
        proxy.kill()


def seconds(n_trials: int, *words: str) -> float:
    """Of the whole program, in an empty folder."""
    options = ["--config-dir", str(CONFIG), "--config-name", "throughput"]
    sweep = [sys.executable, "-m", "automl", *options, "study.name=small", "execution=workers"]
    with TemporaryDirectory() as folder:
        begun = time.perf_counter()
        done = subprocess.run(
            [*sweep, f"study.n_trials={n_trials}", *words],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        took = time.perf_counter() - begun
    if done.returncode != 0:
        raise SystemExit(f"exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return took


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--rounds", type=int, default=3)
    words.add_argument("--trials", type=int, default=256)
    words.add_argument("--more", nargs="*", default=[], help="words for each sweep")
    given = words.parse_args()
    took: dict[str, list[float]] = {name: [] for name in DELAYS}
    with TemporaryDirectory(prefix="pg", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        (data := Path(folder, "data")).mkdir()
        with running_server(data, flushes=True) as server:
            for _ in range(given.rounds):
                for name, delay_ms in DELAYS.items():
                    with way_to(server, delay_ms) as storage:
                        took[name].append(seconds(given.trials, *storage, *given.more))
    sys.stdout.write("| study in | seconds | median | to `database` |\n|---|---|---|---|\n")
    for name, each in took.items():
        ratio = median(each) / median(took["database"])
        told = ", ".join(f"{s:.1f}" for s in each)
        sys.stdout.write(f"| {name} | {told} | {median(each):.1f} | {ratio:.2f} |\n")


if __name__ == "__main__":
    main()
