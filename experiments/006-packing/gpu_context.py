"""What a process of ours takes of a GPU beside its tensors: the CUDA context and what libraries
keep, as it grows, once it is idle, and what is left when it has ended. See gpu.md.

Several workers, one after another; those before are idle meanwhile. By NVML: what it shows of the
worker's pid, and by how much free memory fell since just before (in a container the first may not
be there). Both are told without what torch holds.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from gpu_machine import MIB, Bench, opened, parser, table, write
from gpu_objectives import STAGES
from gpu_workers import carry, preload_torch, spec_of, workers

from automl.admission.accounting.account import CONTEXT_BOUND_BYTES
from automl.execution.workers_executor import WorkersExecutor
from automl.trial import FinishedOutcome, MetricsReported, ProcessHosted, TrialEvent

SETTLES_SECONDS = 0.5
"""A worker writes what it holds ten times a second, and the driver frees a moment later."""
HEAD = ("worker", "NVML of its pid, MiB", "free fell by, MiB", "torch holds, MiB")


@dataclass
class Worker:
    """One that is measured."""

    bench: Bench
    executor: WorkersExecutor
    free_before_bytes: int
    pid: int = 0

    def look(self) -> Seen:
        """Now, once it has written what it holds."""
        time.sleep(SETTLES_SECONDS)
        device = self.bench.read()
        held = sum(n for (d, _), n in self.executor.held_bytes().items() if not d.on_host)
        of_pid = [p.used_bytes for p in device.processes if p.pid == self.pid]
        shown = of_pid[0] if of_pid else None
        fell = self.free_before_bytes - device.free_bytes - held
        return Seen(None if shown is None else shown - held, fell, held)


@dataclass(frozen=True)
class Seen:
    """Bytes; the first two without the third. None: NVML does not show it."""

    of_pid: int | None
    fell: int
    torch: int


def measure(bench: Bench, n: int, folder: Path) -> dict[str, list[Seen]]:
    """By stage, one of each worker."""
    found: dict[str, list[Seen]] = defaultdict(list)
    free_at_first = bench.read().free_bytes
    with ExitStack() as stack:
        for number in range(n):
            executor = stack.enter_context(workers("stages", folder))
            worker = Worker(bench, executor, bench.read().free_bytes)
            spec = spec_of(number, {}, folder)
            outcome, _ = carry(executor, spec, bench.placement, _looks(worker, found))
            assert isinstance(outcome, FinishedOutcome), outcome
            found["idle"].append(worker.look())
    time.sleep(SETTLES_SECONDS)
    found["all have ended"].append(Seen(None, free_at_first - bench.read().free_bytes, 0))
    return found


def _looks(worker: Worker, found: dict[str, list[Seen]]) -> Callable[[TrialEvent], None]:
    def look(event: TrialEvent) -> None:
        if isinstance(event, ProcessHosted):
            worker.pid = event.process.pid
        elif isinstance(event, MetricsReported) and event.step % 2 == 0:
            found[STAGES[event.step // 2]].append(worker.look())  # it waits for our answer

    return look


def main() -> None:
    arguments = parser(__doc__, "cpu", "stub")
    arguments.add_argument("--workers", type=int, default=4)
    args = arguments.parse_args()
    with opened(args.device) as bench, tempfile.TemporaryDirectory() as folder:
        preload_torch()
        found = measure(bench, args.workers, Path(folder))
    table(HEAD, [(stage, *_cells(seen)) for stage, seen in found.items()])
    write(f"\nMedian of {args.workers} workers (least to most).")
    write(f"Admission keeps {CONTEXT_BOUND_BYTES / MIB:.0f} MiB free until a context is seen.")


def _cells(seen: list[Seen]) -> list[str | None]:
    shown = [s.of_pid for s in seen if s.of_pid is not None]
    return [_cell(numbers) for numbers in (shown, [s.fell for s in seen], [s.torch for s in seen])]


def _cell(sizes: list[int]) -> str | None:
    if not sizes:
        return None
    low, middle, high = (n / MIB for n in (min(sizes), statistics.median(sizes), max(sizes)))
    return f"{middle:.0f} ({low:.0f} to {high:.0f})"


if __name__ == "__main__":
    main()
