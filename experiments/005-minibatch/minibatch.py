"""Milliseconds per mini-batch of seven networks: CPU with one thread and more, and GPU.

Table 7 of Shi et al., Benchmarking State-of-the-Art Deep Learning Software Tools (2016, arXiv
1608.07249), with torch.nn. A step is forward, backward and SGD on one random mini-batch that stays
on the device; the copy of it from host to GPU stands beside. float32; on a GPU torch's defaults
let convolutions use TF32. By the median step, by wall clock on a CPU and CUDA events on a GPU; in
brackets the CPU time of the process, which says more where other work shares the cores.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from networks import NETWORKS, Network, network
from stepping import Stepper, copy_seconds, gpu_seconds, host_times

_QUICK = ("AlexNet-R", "ResNet-56")


@dataclass(frozen=True)
class Figure:
    """Milliseconds, over so many measurements."""

    median_ms: float
    fastest_ms: float
    cpu_ms: float | None
    """CPU time of all threads, by the median; None: not on a GPU."""
    n_measured: int

    @classmethod
    def of(cls, seconds: Sequence[float], cpu_seconds: Sequence[float] = ()) -> Figure:
        return cls(
            median_ms=1000 * statistics.median(seconds),
            fastest_ms=1000 * min(seconds),
            cpu_ms=1000 * statistics.median(cpu_seconds) if cpu_seconds else None,
            n_measured=len(seconds),
        )

    def __str__(self) -> str:
        cpu = "" if self.cpu_ms is None else f" ({_in_digits(self.cpu_ms)})"
        return _in_digits(self.median_ms) + cpu


@dataclass
class Row:
    """What was measured of one network."""

    network: str
    n_parameters: int
    batch_size: int
    batch_bytes: int
    figures: dict[str, Figure] = field(default_factory=dict)
    """By column."""


def measure(of: Network, args: argparse.Namespace, device: str) -> Row:
    """All columns of a network."""
    n_rows, n_steps, threads = of.batch_size, args.steps, args.threads
    if args.quick:
        n_rows, n_steps, threads = 2, 1, [1]
    batch = of.batch(n_rows)
    row = Row(of.name, of.n_parameters(), n_rows, batch.n_bytes)
    times = host_times(Stepper(of, n_rows, "cpu"), threads, n_steps, args.network_seconds)
    for n_threads, timed in times.items():
        row.figures[_threads(n_threads)] = Figure.of(*timed)
    if device != "cpu":
        seconds = gpu_seconds(Stepper(of, n_rows, device), 10 * n_steps)
        row.figures["GPU"] = Figure.of(seconds)
        for name, pinned in (("copy", False), ("copy, pinned", True)):
            seconds = copy_seconds(batch, device, 10 * n_steps, pinned=pinned)
            row.figures[name] = Figure.of(seconds)
        torch.cuda.empty_cache()  # the next network's memory is its own
    return row


def table(rows: Sequence[Row], on_cpu: Sequence[str]) -> Iterator[str]:
    """A line per network; milliseconds, and (of CPU time)."""
    columns = [*on_cpu, "GPU", "copy", "copy, pinned"]
    yield f"| network | parameters | batch | MiB a batch | {' | '.join(columns)} |"
    yield "|---" * (4 + len(columns)) + "|"
    for row in rows:
        figures: Mapping[str, Figure] = row.figures
        cells = [str(figures.get(column, "no GPU here")) for column in columns]
        size = f"{row.n_parameters:,} | {row.batch_size:,} | {row.batch_bytes / 2**20:.2f}"
        yield f"| {row.network} | {size} | {' | '.join(cells)} |"


def _threads(n_threads: int) -> str:
    return f"CPU, {n_threads} thread{'s' if n_threads > 1 else ''}"


def _in_digits(ms: float) -> str:
    """Two digits that count, and all before the point."""
    return f"{ms:,.0f}" if ms >= 10 else f"{ms:.2g}"


def main(words: Sequence[str] | None = None) -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    names = [n.name for n in NETWORKS]
    arguments.add_argument("--networks", nargs="+", choices=names, default=names)
    arguments.add_argument("--steps", type=int, default=9, help="timed; on a GPU ten times as many")
    arguments.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    arguments.add_argument("--device", default="auto", help="auto, cpu, or a GPU as cuda:0")
    arguments.add_argument(
        "--network-seconds", type=float, default=120, help="on a CPU; no step starts after these"
    )
    arguments.add_argument("--json", type=Path, help="file for the raw figures")
    arguments.add_argument("--quick", action="store_true", help="two networks, one step of 2 rows")
    args = arguments.parse_args(words)
    if args.steps < 1:
        arguments.error(f"--steps {args.steps}: at least 1.")
    device = args.device
    if device == "auto":
        device = "cuda:0" if torch.cuda.is_available() else "cpu"
    gpu = "no GPU"
    if device != "cpu":
        torch.cuda.set_device(device)  # events are recorded on the current one
        gpu = torch.cuda.get_device_name(device)
    say(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; {gpu}; torch {torch.__version__}")
    rows: list[Row] = []
    for name in _QUICK if args.quick else args.networks:
        rows.append(measure(network(name), args, device))
        found = ", ".join(f"{column} {figure}" for column, figure in rows[-1].figures.items())
        say(f"{name}: {found} ms; load {os.getloadavg()[0]:.1f}")
        if args.json is not None:  # after each, so that it may be cut short
            args.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    columns = [column for column in rows[0].figures if column.startswith("CPU")]
    for line in table(rows, columns):
        say(line)


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
