"""Compares two ways in which an actor of Ray can send messages: answered polls, and one stream.

    python experiments/016-ray/streamed_calls.py --rounds 3

An actor makes 1,000 messages a second. Each call, and each item of the stream, takes those that
wait. Printed is the CPU time of either process by call or item. See README.md.
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import psutil

N_MESSAGES, GAP_SECONDS, POLL_SECONDS = 3000, 0.001, 0.2


class Sender:
    """An actor that makes messages in a thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._messages: list[dict[str, object] | None] = []

    def pid(self) -> int:
        return os.getpid()

    def begin(self) -> None:
        threading.Thread(target=self._make, daemon=True).start()

    def poll(self) -> list[dict[str, object] | None]:
        with self._changed:
            self._changed.wait_for(lambda: self._messages, POLL_SECONDS)
            taken, self._messages = self._messages, []
        return taken

    def stream(self) -> Iterator[list[dict[str, object] | None]]:
        while True:
            taken = self.poll()
            yield taken
            if taken[-1:] == [None]:
                return

    def _make(self) -> None:
        due = time.monotonic()
        for number in range(N_MESSAGES + 1):
            due += GAP_SECONDS
            time.sleep(max(0.0, due - time.monotonic()))
            message = {"key": 1, "events": [(number, {"loss": 0.25})]}
            with self._changed:
                self._messages.append(message if number < N_MESSAGES else None)
                self._changed.notify()


def receive(ray: Any, actor: Any, way: str) -> int:
    """Receive all messages; return the number of calls or items."""
    n_calls = 0
    items = actor.stream.options(num_returns="streaming").remote() if way == "stream" else None
    while True:
        n_calls += 1
        if ray.get(actor.poll.remote() if items is None else next(items))[-1:] == [None]:
            return n_calls


def cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    n_rounds = parser.parse_args().rounds
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # or Ray leaves a token in the home folder
    import ray

    ray.init(
        address="local",
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        _node_ip_address="127.0.0.1",
    )
    here, rows = psutil.Process(), defaultdict[str, list[tuple[float, float]]](list)
    for _ in range(n_rounds):
        for way in ("poll", "stream"):
            actor: Any = ray.remote(Sender).options(num_cpus=0, max_concurrency=2).remote()
            there = psutil.Process(ray.get(actor.pid.remote()))
            before = cpu_seconds(here), cpu_seconds(there)
            actor.begin.remote()
            n_calls = receive(ray, actor, way)
            after = cpu_seconds(here), cpu_seconds(there)
            rows[way].append(
                tuple(1e6 * (a - b) / n_calls for a, b in zip(after, before, strict=True))  # type: ignore[arg-type]
            )
            ray.kill(actor)
    sys.stdout.write("| | receiver, CPU µs a call | sender, CPU µs a call |\n|---|---|---|\n")
    for way, figures in rows.items():
        receiver, sender = (statistics.median(column) for column in zip(*figures, strict=True))
        sys.stdout.write(f"| {way} | {receiver:.0f} | {sender:.0f} |\n")


if __name__ == "__main__":
    main()
