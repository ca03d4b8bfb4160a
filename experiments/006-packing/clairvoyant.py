"""What would who knows everything reach in the same worlds? How much of what a policy is above its
bound is the bound's, how much is not to know durations, and how much its own? See packing.md.

All trials wait at the start, and their memory is known. They are started by a list: whenever
something ends, whoever comes first in it and fits. Where all is known, durations too, the best of a
few lists counts; in the order asked for nobody knows how long one takes, nor waits for anything.
"""

from __future__ import annotations

import argparse
import heapq
import math
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from several import N_DEVICES, bound_seconds, draw
from worlds import CONTEXT_BYTES, GIB, Setting

HEADROOM_BYTES = GIB // 4


@dataclass(frozen=True)
class Job:
    """One trial."""

    seconds: float
    size: float = 1.0
    """Of each of its devices, as a share of what one has."""
    n_devices: int = 1


LISTS: Mapping[str, Callable[[Job], float]] = {
    "longest first": lambda job: -job.seconds,
    "most of all first": lambda job: -job.seconds * job.size * job.n_devices,
    "widest first": lambda job: -job.size * job.n_devices,
}


def makespan_seconds(jobs: Sequence[Job], n_devices: int) -> float:
    """Of a list, in this order; of devices that have room the fullest is taken. O(n²)."""
    waiting, room, now = list(jobs), [1.0] * n_devices, 0.0
    running: list[tuple[float, int, tuple[int, ...], float]] = []
    while waiting or running:
        left = []
        for job in waiting:
            fitting = [d for d in range(n_devices) if room[d] >= job.size - 1e-9]
            if len(fitting) < job.n_devices:
                left.append(job)
                continue
            chosen = tuple(heapq.nsmallest(job.n_devices, fitting, key=lambda d: room[d]))
            for d in chosen:
                room[d] -= job.size
            heapq.heappush(running, (now + job.seconds, len(running), chosen, job.size))
        waiting = left
        now, _, devices, size = heapq.heappop(running)
        for d in devices:
            room[d] += size
    return now


def known_seconds(jobs: Sequence[Job], n_devices: int) -> float:
    """The least makespan of the lists that know how long trials take."""
    return min(makespan_seconds(sorted(jobs, key=by), n_devices) for by in LISTS.values())


def several(rounds: Sequence[int], n_trials: int) -> None:
    """Of `several.py`'s rounds."""
    known, greedy = [], []
    for seed in rounds:
        trials = draw(seed, n_trials, shared=False)
        jobs = [Job(t.seconds, 1.0, t.n_devices) for t in trials]
        bound = bound_seconds(trials)
        known.append(known_seconds(jobs, N_DEVICES) / bound)
        greedy.append(makespan_seconds(jobs, N_DEVICES) / bound)
    _tell(f"{len(known)} rounds: all known", known)
    _tell(f"{len(known)} rounds: in the order asked for, anybody passes", greedy)


def packing(name: str, setting: Setting, seeds: Sequence[int]) -> None:
    """Of `packing.py`'s worlds: over the bound, and how much faster than one per GPU."""
    over, greedy, faster = [], [], []
    whole = setting.gib * GIB - HEADROOM_BYTES
    for seed in seeds:
        trials = setting.trials(seed)
        jobs = [Job(t.seconds, (t.peak_bytes + CONTEXT_BYTES) / whole) for t in trials]
        alone = makespan_seconds([Job(t.seconds) for t in trials], setting.n_devices)
        best = known_seconds(jobs, setting.n_devices)
        bound = setting.bound_seconds(trials)
        over.append(best / bound)
        greedy.append(makespan_seconds(jobs, setting.n_devices) / bound)
        faster.append(alone / best)
    _tell(f"{name}, {len(over)} seeds: all known", over)
    _tell(f"{name}, {len(over)} seeds: all known, x one per GPU", faster)
    _tell(f"{name}, {len(over)} seeds: in the order asked for, anybody passes", greedy)


def _tell(what: str, numbers: Sequence[float]) -> None:
    found = sorted(numbers)
    most = found[math.ceil(0.99 * len(found)) - 1]
    sys.stdout.write(
        f"| {what} | {statistics.median(found):.3f} | {found[0]:.3f} | {most:.3f} | "
        f"{found[-1]:.3f} |\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1000, help="of several.py")
    parser.add_argument("--seeds", type=int, default=5, help="of packing.py")
    parser.add_argument("--first", type=int, default=0, help="the first seed of both")
    arguments = parser.parse_args()
    sys.stdout.write("| makespan / bound | median | least | 99 % | most |\n|---|---|---|---|---|\n")
    first = arguments.first
    several(range(first, first + arguments.rounds), 100)
    for gib in (24, 80):
        seeds = range(first, first + arguments.seeds)
        packing(f"8 x {gib} GB", Setting(8, gib, 300, 16), seeds)


if __name__ == "__main__":
    main()
