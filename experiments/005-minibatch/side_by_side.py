"""Steps per second of several copies of a network at once: threads of one process, or processes.

On a GPU each thread queues into a CUDA stream of its own, and each process has a context of its
own; on a CPU each copy has one core's thread. What is counted is all steps of all copies, from the
first one's start to the last one's end; they start together, after their warm-up. In brackets the
CPU milliseconds of a step, in the copy's own thread.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing as mp
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Protocol

import torch
from networks import NETWORKS, network
from stepping import Stepper

_WAIT_SECONDS = 300.0  # for all copies to be warm; a first step on a busy core takes seconds


class CopyEndedError(RuntimeError):
    """Raised when a process with a copy of the network ended without its result."""


class Barrier(Protocol):
    """Of threading or of multiprocessing."""

    def wait(self, timeout: float | None = None) -> int: ...

    def abort(self) -> None: ...


@dataclass(frozen=True)
class Copy:
    """What one of the copies does."""

    network: str
    n_rows: int
    n_steps: int
    device: str


@dataclass(frozen=True)
class Span:
    """When a copy's steps began and ended, by the machine's monotonic clock, which all share."""

    begun: float
    ended: float
    cpu_seconds: float
    """Of its thread, which computes all of its steps where there is no GPU."""


@dataclass(frozen=True)
class Measured:
    """So many copies at once, in one way."""

    network: str
    n_copies: int
    way: str
    steps_per_second: float
    """Of all copies together."""
    cpu_ms: float
    """CPU time of a step, in its copy's thread."""


def train(copy: Copy, barrier: Barrier) -> Span:
    """Build and warm up, wait for the others, then take the steps."""
    try:
        torch.set_num_threads(1)
        with own_stream(copy.device):
            stepper = Stepper(network(copy.network), copy.n_rows, copy.device)
            stepper.warm_up()
            barrier.wait(_WAIT_SECONDS)
            begun, cpu_begun = time.monotonic(), time.thread_time()
            for _ in range(copy.n_steps):
                stepper.step()
            stepper.wait()
            return Span(begun, time.monotonic(), time.thread_time() - cpu_begun)
    except BaseException:
        barrier.abort()  # or the others would wait for this one
        raise


def own_stream(device: str) -> contextlib.AbstractContextManager[object]:
    """A CUDA stream for this thread; what is made under it is used under it only."""
    if device == "cpu":
        return contextlib.nullcontext()
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    return torch.cuda.stream(stream)


def in_threads(copy: Copy, n_copies: int) -> list[Span]:
    barrier = threading.Barrier(n_copies)
    with ThreadPoolExecutor(n_copies) as pool:
        futures = [pool.submit(train, copy, barrier) for _ in range(n_copies)]
        errors = [error for f in futures if (error := f.exception()) is not None]
        if errors:
            raise cause(errors)
        return [future.result() for future in futures]


def cause(errors: Sequence[BaseException]) -> BaseException:
    """The first that is more than what others saw of it: a barrier that will not fill."""
    return min(errors, key=lambda error: isinstance(error, threading.BrokenBarrierError))


def in_processes(copy: Copy, n_copies: int) -> list[Span]:
    """Spawned: CUDA does not outlive a fork. Raises CopyEndedError."""
    context = mp.get_context("spawn")
    barrier = context.Barrier(n_copies)
    running = {}
    for _ in range(n_copies):
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_train_and_send, args=(copy, barrier, theirs), daemon=True)
        process.start()
        theirs.close()  # so that its end is seen here
        running[ours] = process
    spans: list[Span] = []
    while running:
        ready = wait(list(running))
        for ours in [of_one for of_one in running if of_one in ready]:
            with ours:
                try:
                    spans.append(ours.recv())
                except EOFError:
                    barrier.abort()  # killed, it cannot tell the others itself
            running.pop(ours).join()
    if len(spans) < n_copies:
        raise CopyEndedError(
            f"{n_copies - len(spans)} of {n_copies} processes with {copy.network} ended without a "
            "result; what they wrote stands above. Fewer at once may fit: --copies."
        )
    return spans


def _train_and_send(copy: Copy, barrier: Barrier, results: Connection) -> None:
    results.send(train(copy, barrier))


WAYS = {"threads": in_threads, "processes": in_processes}


def measure(copy: Copy, n_copies: int, way: str) -> Measured:
    spans = WAYS[way](copy, n_copies)
    seconds = max(span.ended for span in spans) - min(span.begun for span in spans)
    n_steps = n_copies * copy.n_steps
    cpu_ms = 1000 * sum(span.cpu_seconds for span in spans) / n_steps
    return Measured(copy.network, n_copies, way, n_steps / seconds, cpu_ms)


def table(results: Sequence[Measured]) -> Iterator[str]:
    """A line per network and number; the gain is over one copy by itself, in a thread."""
    columns = [f"{way}, steps/s (CPU ms)" for way in WAYS] + [f"gain of {way}" for way in WAYS]
    yield f"| network | at once | {' | '.join(columns)} |"
    yield "|---" * (2 + len(columns)) + "|"
    found = {(r.network, r.n_copies, r.way): r for r in results}
    for name, n_copies in dict.fromkeys((r.network, r.n_copies) for r in results):
        one = found.get((name, 1, "threads"))
        of_ways = [found[name, n_copies, way] for way in WAYS]
        rates = [f"{r.steps_per_second:.3g} ({r.cpu_ms:,.0f})" for r in of_ways]
        gains = [
            "-" if one is None else f"{r.steps_per_second / one.steps_per_second:.2f}"
            for r in of_ways
        ]
        yield f"| {name} | {n_copies} | {' | '.join((*rates, *gains))} |"


def main(words: Sequence[str] | None = None) -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument(
        "--networks",
        nargs="+",
        choices=[n.name for n in NETWORKS],
        default=["FCN-R", "AlexNet-R", "ResNet-56", "LSTM"],
    )
    arguments.add_argument("--copies", type=int, nargs="+", help="1 2, on a GPU 1 2 4 8")
    arguments.add_argument("--steps", type=int, help="of each copy: 5, on a GPU 100")
    arguments.add_argument("--rows", type=int, help="of a mini-batch; by default the table's")
    arguments.add_argument("--device", default="auto", help="auto, cpu, or a GPU as cuda:0")
    arguments.add_argument("--json", type=Path, help="file for the raw figures")
    arguments.add_argument("--quick", action="store_true", help="one network, one step of 2 rows")
    args = arguments.parse_args(words)
    device = args.device
    if device == "auto":
        device = "cuda:0" if torch.cuda.is_available() else "cpu"
    on_cpu = device == "cpu"
    n_steps = (5 if on_cpu else 100) if args.steps is None else args.steps
    copies = args.copies or ([1, 2] if on_cpu else [1, 2, 4, 8])
    names, n_rows = args.networks, args.rows
    if min(n_steps, *copies) < 1:
        arguments.error(f"--steps {n_steps} --copies {copies}: at least 1 each.")
    if args.quick:
        names, copies, n_rows, n_steps = ["AlexNet-R"], [1], 2, 1
    say(f"on {device}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    results: list[Measured] = []
    for name in names:
        copy = Copy(name, n_rows or network(name).batch_size, n_steps, device)
        for n_copies in copies:
            for way in WAYS:
                results.append(measure(copy, n_copies, way))
                say(f"{results[-1]}, load {os.getloadavg()[0]:.1f}")
        if args.json is not None:  # after each, so that it may be cut short
            args.json.write_text(json.dumps([asdict(r) for r in results], indent=1) + "\n")
    for line in table(results):
        say(line)


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
