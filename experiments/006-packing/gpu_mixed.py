"""A sweep of 40 trials of mixed sizes while another process takes and gives back GPU memory: by
admission, one at a time, and with fixed numbers at once that nobody admits. See gpu.md.

Nothing is declared: admission surveys. Fixed numbers are carried out by the same workers, without
it; who runs out of memory goes to the end, then alone. Each has its share of the time that is left
and is ended after it; its rate is of the trials that finished.

*Over-committed*: times that NVML showed less than the headroom free, in all, and those of them in
which the other process had not grown since the last trial started: these would be admission's.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

from gpu_fixed import fixed
from gpu_machine import MIB, Bench, Sample, opened, parser, table, watched, write
from gpu_stranger import breathing, held
from gpu_sweeps import Ran, sweep

from automl.config import AdmissionConfig
from automl.trial import Params

HEADROOM_BYTES = AdmissionConfig().headroom_bytes
HEAD = ("way", "finished", "s", "trials per minute", "at once", "lost", "ran out",
        "least free, MiB", "over-committed", "by admission", "ended early")  # fmt: skip
SPACE = (
    "{family: {choices: [MLP, transformer, conv, RNN]}, optimizer: {choices: [0, 1, 2]}, "
    "width: {choices: [128, 256, 512, 1024]}, depth: {choices: [2, 4]}, "
    "batch: {choices: [16, 64, 256]}, size: {choices: [16, 32, 64]}, "
    "data_mib: {choices: [0, 4000, 12000, 24000]}, n_steps: 30, n_epochs: 3, loading_ms: 20}"
)
SMALL = (
    "{family: {choices: [MLP, RNN]}, optimizer: {choices: [0, 1]}, width: {choices: [8, 16]}, "
    "depth: 1, batch: {choices: [4, 8]}, size: 8, n_steps: 3, n_epochs: 2, loading_ms: 1}"
)
Row: TypeAlias = tuple[object, ...]
Way: TypeAlias = Callable[[float], Ran]
"""Seconds → what ran in them."""


def shortages(
    samples: Sequence[Sample], starts: Sequence[float], grew: Sequence[float]
) -> tuple[int, int]:
    """Times that free memory fell below the headroom; and those of them before which the other
    process had not grown since the last trial started. All three are in the order of time."""
    low = [
        after.time
        for before, after in itertools.pairwise(samples)
        if after.free_bytes < HEADROOM_BYTES <= before.free_bytes
    ]
    ours = [when for when in low if _last(starts, when) > _last(grew, when)]
    return len(low), len(ours)


def _last(times: Sequence[float], until: float) -> float:
    index = bisect_right(times, until)
    return times[index - 1] if index else -float("inf")


def row(name: str, ran: Ran, samples: Sequence[Sample], log: Path) -> Row:
    changes = held(log)
    grew = [now for (_, before), (now, n) in itertools.pairwise([(0.0, 0), *changes]) if n > before]
    n_low, n_ours = shortages(samples, sorted(start.time for start in ran.starts), grew)
    seconds, rate = ran.seconds, ran.per_minute
    return (
        name,
        ran.n_finished,
        None if seconds is None else f"{seconds:.0f}",
        None if rate is None else f"{rate:.1f}",
        ran.at_once,
        ran.n_lost,
        len(ran.ran_out),
        f"{min(s.free_bytes for s in samples) / MIB:.0f}" if samples else None,
        n_low,
        n_ours,
        ran.trouble,
    )


def measure(bench: Bench, folder: Path, name: str, way: Way, seconds: float) -> tuple[Ran, Row]:
    log = folder / f"{name}.log"
    log.touch()
    with watched(bench) as samples, breathing(bench, log):
        ran = way(seconds)
    for outcome in ran.ran_out:
        write(f"{name}: trial {outcome.trial}: {outcome.cause}")
    return ran, row(name, ran, samples, log)


def main() -> None:
    arguments = parser(__doc__, "stub")
    arguments.add_argument("--trials", type=int, default=40)
    arguments.add_argument("--numbers", type=int, nargs="+", default=[2, 4, 8])
    args = arguments.parse_args()
    until = time.monotonic() + args.budget_seconds
    space = SPACE if args.device == "cuda" else SMALL
    words = [f"study.n_trials={args.trials}", f"space={space}"]
    rows: list[Row] = []
    with opened(args.device) as bench, tempfile.TemporaryDirectory() as at:
        folder = Path(at)

        def admitted(name: str, *more: str) -> Way:
            return lambda s: sweep(bench, folder, name, "train", *words, *more, seconds=s)

        def share(n_left: int) -> float:
            left: float = until - time.monotonic()
            return max(1.0, left / n_left)

        n_left = 2 + len(args.numbers)
        ran, first = measure(bench, folder, "admission", admitted("admission"), share(n_left))
        rows.append(first)
        alone = admitted("one-at-a-time", "admission.max_concurrent_trials=1")
        rows.append(measure(bench, folder, "one at a time", alone, share(n_left - 1))[1])
        params: dict[int, Params] = ran.params
        for done, k in enumerate(args.numbers):
            seconds = share(len(args.numbers) - done)
            way = partial(fixed, bench, folder, params, k)
            rows.append(measure(bench, folder, f"{k} at once", way, seconds)[1])
        table(HEAD, rows)


if __name__ == "__main__":
    main()
